/* Constrained output: determines which tokens may come next so that the text matches a grammar.
 *
 * A grammar is compiled from a JSON schema, a regular expression, a list of choices or GBNF rules, on any
 * thread (HTTP side), with limits on size and steps. Afterwards it does not change, and all requests that name it
 * share it. A sequence has a struct gram_match: the set of places in the grammar that its text can be at. A mask
 * has one bit per token (set: allowed). Everything fails closed: tokens that would exceed a bound are not allowed.
 *
 * Source of the idea: incremental parsing of the vocabulary against a pushdown automaton, with cached masks per
 * state (Willard and Louf 2023; Dong et al. 2024, XGrammar).
 * Thread: compiling and masks any; a struct gram_match and a struct gram_scratch belong to one thread at a
 * time. No allocation in gram_match_* and gram_mask. */
#ifndef ENGINE_GRAMMAR_GRAMMAR_H
#define ENGINE_GRAMMAR_GRAMMAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/status.h"
#include "base/str.h"

struct exprs;
struct gram_scratch;
struct gram_vocab;
struct grammar;
struct json;
struct tokenizer;

enum {
    GRAM_MAX_DEPTH = 64, /* nesting depth of rules, as for nested values */
    GRAM_MAX_PLACES = 32, /* limit of places that a text can be at simultaneously */
    GRAM_MAX_STEPS = 32 << 20 /* of a mask: places looked at, for all tokens together */
};

/* Whose memory a grammar is while requests use it: the first one's key. */
struct gram_owner {
    struct ledger *ledger; /* borrows; NULL: no bounds */
    uint32_t key; /* account, or LEDGER_NOBODY */
    bool shared; /* other keys exist */
    atomic_uint *uses; /* borrows, or NULL: keeps the account the key's */
};

struct grammar_size {
    uint32_t n_states, n_rules, n_calls;
    uint32_t depth; /* return states that every text needs */
    uint64_t n_bytes;
};

/* In use once. Takes ownership of x, even on an error. */
enum status grammar_new(struct exprs *x, const struct gram_vocab *vocab, struct grammar **out,
                        struct err *e);
/* Takes its memory from the ledger, and only then allocates the masks that it keeps. Once, before it is shared; errors of
 * ledger_take. */
enum status grammar_charge(struct grammar *g, const struct gram_owner *owner, struct err *e);
/* One use more. A grammar that nobody used goes to the owner's account; errors of ledger_move. */
enum status grammar_use(struct grammar *g, const struct gram_owner *owner, struct err *e);
/* Ends a use. Behind the last one it is freed; or, while it is cached, it is on no key's account. NULL is fine. */
void grammar_unref(struct grammar *g);
void grammar_set_cached(struct grammar *g,
                        bool cached); /* false: it is freed unless it is in use */
bool grammar_is_idle(struct grammar *g);
void grammar_describe(const struct grammar *g, struct grammar_size *out);
uint32_t grammar_mask_words(const struct grammar *g); /* 32-bit words of a mask */
uint64_t
grammar_bytes(const struct grammar *g); /* the most memory that it holds, including cached masks */

/* One place: a state of the automaton, and the states to return to, outermost first. */
struct gram_place {
    uint16_t state, depth;
    uint16_t back[GRAM_MAX_DEPTH];
};

struct gram_match {
    const struct grammar *g; /* borrows: the request holds a reference */
    uint32_t n; /* 0: the text does not match */
    bool at_start; /* after an added token: see tokenizer_shown */
    struct gram_place place[GRAM_MAX_PLACES];
};

void gram_match_init(struct gram_match *m, const struct grammar *g, struct gram_scratch *s);
/* Advances by one token. False: the text no longer matches (m has no places then). */
bool gram_match_token(struct gram_match *m, int32_t token, struct gram_scratch *s);
bool gram_match_bytes(struct gram_match *m, struct str bytes, struct gram_scratch *s);
bool gram_match_complete(const struct gram_match *m); /* the text is a complete match */
bool gram_match_over(const struct gram_match *m); /* and nothing could follow it */

/* The mask of m: cached by the grammar, or computed into own[words of the vocabulary]. A complete match also
 * allows the tokens that end an answer. One that takes over GRAM_MAX_STEPS allows nothing. */
const uint32_t *gram_mask(const struct gram_match *m, uint32_t *own, struct gram_scratch *s);

/* Why a mask allows nothing. */
enum gram_limit {
    GRAM_NO_LIMIT, /* it allows a token */
    GRAM_LIMIT_STEPS,
    GRAM_LIMIT_PLACES, /* what could follow is at more places than allowed */
    GRAM_LIMIT_TOKENS /* no token of the vocabulary follows */
};
/* Computes the mask of m once more. */
enum gram_limit gram_mask_limit(const struct gram_match *m, uint32_t *own, struct gram_scratch *s);

struct gram_scratch *gram_scratch_new(void);
void gram_scratch_free(struct gram_scratch *s); /* NULL is fine */

#endif
