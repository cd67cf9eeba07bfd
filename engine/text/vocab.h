/* Parts of a tokenizer: the map from bytes to token, the trie of added tokens, the merge engine.
 * Internal to engine/text. All are read-only after building, except the scratch structs. */
#ifndef ENGINE_TEXT_VOCAB_H
#define ENGINE_TEXT_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "engine/text/text.h"

/* ---- bytes -> id (vocab.c) ---- */

struct byte_slot {
    uint32_t hash;
    uint32_t id_plus_1; /* 0: empty */
};

/* Keys are borrowed from a table text[id]; open addressing, at most half full. */
struct byte_map {
    struct byte_slot *slot; /* owns */
    uint32_t mask;
    const struct str *text; /* borrows */
};

void byte_map_init(struct byte_map *m, const struct str *text, uint32_t n);
void byte_map_release(struct byte_map *m);
/* The first of several equal keys stays. */
void byte_map_add(struct byte_map *m, uint32_t id);
int32_t byte_map_find(const struct byte_map *m, struct str key); /* -1 when absent */

/* The 256 characters that byte-level vocabularies write bytes with. */
uint32_t byte_char(uint8_t byte);
int char_byte(uint32_t code_point); /* -1 for any other character */

/* ---- added tokens (special.c) ---- */

struct trie_slot {
    uint32_t key; /* node << 8 | byte, plus 1; 0: empty */
    uint32_t child;
};

struct special_trie {
    struct trie_slot *slot; /* owns */
    uint32_t mask, n_slots;
    int32_t *id; /* owns; per node, -1 when no token ends there */
    bool *control; /* owns; per node */
    uint32_t n_nodes, cap_nodes;
    bool first[256];
};

void special_init(struct special_trie *t);
void special_release(struct special_trie *t);
/* False when the trie is full (2^24 nodes). */
bool special_add(struct special_trie *t, struct str text, int32_t id, bool control);

struct special_match {
    size_t start, end;
    int32_t id;
};
struct special_filter {
    bool control, user; /* kinds that count */
    const struct text_range *trusted; /* NULL: all; else a control token must lie inside one */
    size_t n_trusted;
};
/* The first place at or behind `at` where a token that counts starts, the longest one there. */
bool special_find(const struct special_trie *t, struct str text, size_t at,
                  const struct special_filter *f, struct special_match *out);

/* ---- merging (merge.c) ---- */

#define SYMBOL_CHAR 0x80000000u /* plus a code point: a character that is no token */

struct pair_slot {
    uint64_t key; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank;
    uint32_t id;
};

struct pair_map {
    struct pair_slot *slot; /* owns */
    uint32_t mask;
};

void pair_map_init(struct pair_map *m, uint64_t n);
void pair_map_release(struct pair_map *m);
void pair_map_set(struct pair_map *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/* Scratch of one call; zero-initialised is valid. sym: in and out. */
struct merge_work {
    uint32_t *sym, *prev, *next, *rank; /* own */
    uint64_t *heap; /* owns */
    uint32_t cap, cap_links;
};
void merge_work_release(struct merge_work *w);
void merge_work_reserve(struct merge_work *w, uint32_t n); /* room for n symbols */

/* Merges w->sym[0..n) by rank, lowest first, leftmost first among equals, until nothing merges.
 * Returns the symbols left. n log n. */
uint32_t merge_run(const struct pair_map *m, struct merge_work *w, uint32_t n);

#endif
