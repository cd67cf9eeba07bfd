/* Text in, tokens out, and back: tokenizer, incremental detokenizer, stop strings.
 * Everything here is read-only after it was made and may be used by any thread, except struct detok
 * and struct stop_scan, which belong to one sequence. */
#ifndef ENGINE_TEXT_TEXT_H
#define ENGINE_TEXT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct gguf;

/* ---- tokenizer (engine/text/tokenizer.c) ---- */

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

struct tokenizer;

/* Reads tokenizer.ggml.* of the file; copies what it keeps except token texts, which borrow from
 * its head (the gguf must outlive it). pre: the option tokenizer.pre, which replaces the name of the
 * file's pre-tokenizer; empty: as the file says. Errors: ERR_UNSUPPORTED naming an unknown model or
 * pre, ERR_FORMAT. */
enum status tokenizer_new(const struct gguf *g, struct str pre, struct tokenizer **out,
                          struct err *e);
void tokenizer_free(struct tokenizer *t);

/* The name in pretok.def of the rule that splits texts; "" for SentencePiece vocabularies. */
const char *tokenizer_pre(const struct tokenizer *t);
uint32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1 when none */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
/* The union of all end-of-generation tokens, ascending. */
const int32_t *tokenizer_stop_tokens(const struct tokenizer *t, uint32_t *n);
bool tokenizer_is_stop(const struct tokenizer *t, int32_t token);
enum token_type tokenizer_type(const struct tokenizer *t, int32_t token);
/* The token as stored in the vocabulary (for /tokenizer_info and templates). Borrows. */
struct str tokenizer_text(const struct tokenizer *t, int32_t token);
/* The bytes the token stands for in output: byte-level decoded, U+2581 as a space, byte tokens as
 * their byte; control tokens give their text. Borrows. */
struct str tokenizer_bytes(const struct tokenizer *t, int32_t token);
/* Of them, those that decoding shows: none of a control token with skip_special; without the space
 * that encoding put in front of a fragment. *at_start: a fragment begins here (true at first; set for
 * the next token). Borrows. */
struct str tokenizer_shown(const struct tokenizer *t, int32_t token, bool skip_special,
                           bool *at_start);

struct tokens {
    int32_t *id; /* owns (mem_free) */
    uint32_t n;
    uint32_t cap;
};
void tokens_release(struct tokens *t);
void tokens_add(struct tokens *t, int32_t id);

/* Byte ranges [start, end) of a text, ascending, not touching one another. */
struct text_range {
    size_t start, end;
};

struct encode_options {
    bool add_special; /* BOS/EOS as the metadata says; never a second BOS when the text has one */
    bool parse_special; /* control tokens' texts become the tokens */
    /* When not NULL: a control token is only recognised wholly inside one of these ranges (the parts
     * of a rendered chat that the template itself wrote). */
    const struct text_range *trusted;
    size_t n_trusted;
    uint32_t max_tokens; /* 0 = no bound; else ERR_CONTEXT_LENGTH as soon as it is exceeded */
};

/* Appends to *out. text must be valid UTF-8 (may hold U+0000). n log n in the length. */
enum status tokenizer_encode(const struct tokenizer *t, struct str text,
                             const struct encode_options *o, struct tokens *out, struct err *e);
/* Appends all bytes of the tokens; skip_special leaves control tokens out. Strips the dummy-prefix
 * space of SentencePiece vocabularies that add one. The result is made valid UTF-8 (lossy). */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *id, uint32_t n,
                             bool skip_special, struct buf *out, struct err *e);

/* ---- incremental detokenizer (engine/text/detok.c) ---- */

/* Holds back at most 3 bytes: never emits half a code point. No allocation. */
struct detok {
    const struct tokenizer *tok;
    char held[4];
    uint8_t n_held;
    bool skip_special;
    bool at_start; /* the next token is the first one of the text (dummy-prefix rule) */
};
void detok_init(struct detok *d, const struct tokenizer *tok, bool skip_special);
/* Writes the text that became complete (valid UTF-8, malformed bytes as U+FFFD) to out, returns its
 * length; out_cap must be at least detok_bound(tok). */
uint32_t detok_push(struct detok *d, int32_t token, char *out, uint32_t out_cap);
uint32_t detok_flush(struct detok *d, char *out, uint32_t out_cap); /* the held tail as U+FFFD */
uint32_t detok_bound(const struct tokenizer *tok);

/* ---- stop strings (engine/text/stop.c) ---- */

enum { STOP_MAX_STRINGS = 16, STOP_MAX_BYTES = 256 };

/* Finds the earliest occurrence of any stop string in a stream cut anywhere, holding back only what
 * could still become one. The earliest start wins; of strings that start together the one that
 * completes first, the shortest: so the answer never depends on where the stream is cut. Fixed
 * memory. */
struct stop_set {
    struct str s[STOP_MAX_STRINGS]; /* borrows; each 1..STOP_MAX_BYTES bytes */
    uint32_t n;
    uint32_t longest;
};
struct stop_scan {
    const struct stop_set *set;
    char held[STOP_MAX_BYTES];
    uint32_t n_held;
    bool include; /* of the last push */
};
void stop_scan_init(struct stop_scan *s, const struct stop_set *set);
/* Feeds text; appends what is safe to emit to out (bounded: n_held + text.len). Returns the index of
 * the matched stop string or -1; on a match out got all before the match (and, with include, the match
 * itself) and nothing after. */
int stop_scan_push(struct stop_scan *s, struct str text, bool include, char *out, uint32_t *n_out);
/* The end of the stream: releases what is held. A string that was complete but had to wait for an
 * earlier start that did not complete is a match here. */
int stop_scan_flush(struct stop_scan *s, char *out, uint32_t *n_out);

#endif
