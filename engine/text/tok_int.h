/* What the parts of the tokenizer share: the loaded vocabulary and the state of one encode call.
 * Internal to engine/text. */
#ifndef ENGINE_TEXT_TOK_INT_H
#define ENGINE_TEXT_TOK_INT_H

#include "engine/text/pretok.h"
#include "engine/text/text.h"
#include "engine/text/vocab.h"

enum tok_model { TOK_BPE, TOK_SPM };

/* Pairs of neighbouring code points that occur inside some token (SentencePiece-style only). */
struct bigram_set {
    uint64_t ascii[128][2]; /* bit second of row first */
    uint64_t *slot; /* owns; first << 32 | second, plus 1; 0: empty */
    uint32_t mask, n;
};

struct tokenizer {
    enum tok_model model;
    uint32_t n_vocab;
    struct str *text; /* owns the array; texts borrow from the file */
    struct str *bytes; /* owns the array; what a token stands for, in byte_pool or the file */
    char *byte_pool; /* owns */
    uint8_t *type; /* owns; enum token_type */
    bool *direct; /* owns; a piece equal to the token's bytes encodes to just this token */
    uint32_t max_bytes;
    uint32_t max_direct; /* bytes of the longest direct token */
    struct byte_map by_bytes; /* tokens that merges can build */
    int32_t byte_id[256]; /* BPE: the byte's symbol; SPM: its byte token; -1: none */
    struct pair_map pairs;
    struct special_trie special;
    struct pretok *pretok; /* BPE; owns */
    struct bigram_set bigrams; /* SPM */
    uint32_t ascii[128]; /* SPM: symbols of the first 128 characters */
    bool space_prefix; /* SPM: a space in front of each fragment */
    bool add_bos, add_eos;
    int32_t bos, eos, unknown;
    int32_t *stop; /* owns; ascending */
    uint32_t n_stop;
};

/* One call of tokenizer_encode. */
struct encode {
    const struct tokenizer *t;
    const struct encode_options *o;
    struct tokens *out;
    uint32_t n_start; /* tokens in out before the call */
    struct merge_work merge;
    struct pretok_work pretok;
    struct buf fragment; /* SPM: the normalised fragment */
    struct err *e;
    enum status status;
};

/* False once the bound on tokens is passed. */
bool encode_emit(struct encode *x, int32_t id);

/* bpe.c: reads merges and pre (pre_option, when not empty, instead of the file's); encodes text without
 * added tokens. */
enum status bpe_load(struct tokenizer *t, const struct gguf *g, struct str pre_option,
                     struct err *e);
bool bpe_fragment(struct encode *x, struct str text);
/* spm.c: the same from scores. */
enum status spm_load(struct tokenizer *t, const struct gguf *g, struct err *e);
bool spm_fragment(struct encode *x, struct str text);

/* Marks the tokens whose own bytes encode to themselves. symbols: splits bytes into x->merge.sym
 * and returns their number. */
void mark_direct(struct tokenizer *t, uint32_t (*symbols)(struct encode *x, struct str bytes));
/* The direct token of these bytes, -1 when there is none. */
int32_t find_direct(const struct tokenizer *t, struct str bytes);

#endif
