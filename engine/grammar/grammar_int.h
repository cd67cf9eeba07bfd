/* Internals of a grammar: its tables, its memory and the masks that it keeps. For grammar.c, match.c and examples.c. */
#ifndef ENGINE_GRAMMAR_GRAMMAR_INT_H
#define ENGINE_GRAMMAR_GRAMMAR_INT_H

#include "base/thread.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocab.h"

struct kept_mask {
    uint64_t key[2];
    uint32_t *mask; /* inside kept_words; NULL: empty */
};

struct grammar {
    struct automaton a;
    const struct gram_vocab *vocab;
    struct mutex lock; /* of all below */
    uint32_t n_uses;
    bool cached; /* kept by a cache, too */
    struct ledger_hold held;
    atomic_uint *
        owner_uses; /* borrows, or NULL: counts this grammar while it is on the account of held.key */
    struct kept_mask *kept; /* owns [2 * cap_kept], open addressing; NULL: not paid for yet */
    uint32_t n_kept, cap_kept; /* a power of two, or 0 */
    uint32_t *kept_words; /* owns; pages are touched as masks are added */
};

/* Whether a text that is at this state alone, with nothing on the stack, is within the bounds of places and steps. */
bool gram_state_fits(const struct grammar *g, uint16_t state, struct gram_scratch *s,
                     uint64_t *n_steps);
uint64_t gram_scratch_steps(const struct gram_scratch *s); /* of the last match */
/* The mask with this key, or NULL. */
const uint32_t *grammar_kept_mask(struct grammar *g, const uint64_t key[2]);
/* Keeps a copy while there is room. Returns the copy, or the mask itself. */
const uint32_t *grammar_keep_mask(struct grammar *g, const uint64_t key[2], const uint32_t *mask);

#endif
