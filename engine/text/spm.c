/* SentencePiece-style BPE (tokenizer.ggml.model "llama"): characters as symbols, the pair whose
 * joined piece has the highest score merges first, leftmost among equals, bytes as the fallback.
 *
 * Inside this file U+2581 (the vocabulary's mark for a space) is written as a plain space, in the
 * vocabulary and in the text. The text has no pre-tokenizer; it is cut where two neighbouring
 * characters stand inside no piece, which no merge can ever cross, so the result is the same.
 * Called by tokenizer.c; any thread. */
#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/gguf.h"
#include "engine/text/tok_int.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* ---- bigrams ---- */

static uint64_t bigram_key(uint32_t first, uint32_t second)
{
    return ((uint64_t)first << 32 | second) + 1;
}

static uint64_t *bigram_slot(const struct bigram_set *b, uint64_t key)
{
    uint32_t i = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & b->mask;
    while (b->slot[i] && b->slot[i] != key)
        i = (i + 1) & b->mask;
    return &b->slot[i];
}

static void bigram_grow(struct bigram_set *b)
{
    struct bigram_set old = *b;
    uint32_t cap = old.slot ? (old.mask + 1) * 2 : 1024;
    b->slot = mem_zalloc(mem_mul(cap, sizeof *b->slot));
    b->mask = cap - 1;
    for (uint32_t i = 0; old.slot && i <= old.mask; i++)
        if (old.slot[i])
            *bigram_slot(b, old.slot[i]) = old.slot[i];
    mem_free(old.slot);
}

static void bigram_add(struct bigram_set *b, uint32_t first, uint32_t second)
{
    if (first < 128 && second < 128) {
        b->ascii[first][second >> 6] |= 1ull << (second & 63);
        return;
    }
    if (!b->slot || b->n * 2 > b->mask)
        bigram_grow(b);
    uint64_t key = bigram_key(first, second);
    uint64_t *slot = bigram_slot(b, key);
    b->n += *slot == 0;
    *slot = key;
}

static bool bigram_has(const struct bigram_set *b, uint32_t first, uint32_t second)
{
    if (first < 128 && second < 128)
        return b->ascii[first][second >> 6] >> (second & 63) & 1;
    return b->slot && *bigram_slot(b, bigram_key(first, second));
}

/* ---- loading ---- */

/* The symbol of one code point: its token, or itself as a character without one. */
static uint32_t char_symbol(const struct tokenizer *t, struct str bytes, uint32_t code_point)
{
    if (bytes.len == 1)
        return t->ascii[code_point];
    int32_t id = byte_map_find(&t->by_bytes, bytes);
    return id >= 0 ? (uint32_t)id : SYMBOL_CHAR | code_point;
}

static void load_ascii(struct tokenizer *t)
{
    for (uint32_t c = 0; c < 128; c++) {
        char byte = (char)c;
        int32_t id = byte_map_find(&t->by_bytes, (struct str){&byte, 1});
        t->ascii[c] = id >= 0 ? (uint32_t)id : SYMBOL_CHAR | c;
    }
}

/* The symbol that spells exactly these bytes, if one can: a token or a single character. */
static bool half_symbol(const struct tokenizer *t, struct str half, uint32_t *symbol)
{
    int32_t id = byte_map_find(&t->by_bytes, half);
    if (id >= 0) {
        *symbol = (uint32_t)id;
        return true;
    }
    uint32_t c;
    if (utf8_decode(half, &c) != (int)half.len)
        return false;
    *symbol = SYMBOL_CHAR | c;
    return true;
}

/* How pieces split into two symbols. */
struct split {
    uint32_t left, right, id, rank;
};
struct splits {
    struct split *at; /* owns */
    uint64_t n, cap;
};

static void add_split(struct splits *all, struct split s)
{
    if (all->n == all->cap) {
        all->cap = all->cap ? all->cap * 2 : 4096;
        all->at = mem_realloc(all->at, mem_mul(all->cap, sizeof *all->at));
    }
    all->at[all->n++] = s;
}

/* Tries each border between code points of a piece. One that is no valid UTF-8 can't come from
 * text. */
static void add_piece(const struct tokenizer *t, uint32_t id, uint32_t rank, struct splits *all)
{
    struct str s = t->bytes[id];
    uint32_t c;
    int len = 0;
    for (size_t at = 0; at < s.len; at += (size_t)len) {
        struct split split = {.id = id, .rank = rank};
        if (at && half_symbol(t, (struct str){s.ptr, at}, &split.left) &&
            half_symbol(t, (struct str){s.ptr + at, s.len - at}, &split.right))
            add_split(all, split);
        len = utf8_decode((struct str){s.ptr + at, s.len - at}, &c);
        if (len <= 0)
            return;
    }
}

static void add_bigrams(struct tokenizer *t, struct str s)
{
    uint32_t before = 0, c;
    bool first = true;
    for (size_t at = 0; at < s.len; first = false, before = c) {
        int len = utf8_decode((struct str){s.ptr + at, s.len - at}, &c);
        if (len <= 0)
            return;
        if (!first)
            bigram_add(&t->bigrams, before, c);
        at += (size_t)len;
    }
}

struct scored {
    double score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Equal scores share a rank: then the leftmost pair is first. */
static void load_pairs(struct tokenizer *t, struct scored *piece, uint32_t n)
{
    qsort(piece, n, sizeof *piece, by_score);
    struct splits all = {0};
    uint32_t rank = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i && piece[i].score != piece[i - 1].score)
            rank = i;
        add_piece(t, piece[i].id, rank, &all);
        add_bigrams(t, t->bytes[piece[i].id]);
    }
    pair_map_init(&t->pairs, all.n);
    for (uint64_t i = 0; i < all.n; i++)
        pair_map_set(&t->pairs, all.at[i].left, all.at[i].right, all.at[i].rank, all.at[i].id);
    mem_free(all.at);
}

static void load_byte_tokens(struct tokenizer *t)
{
    for (int b = 0; b < 256; b++)
        t->byte_id[b] = -1;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->type[i] == TOKEN_BYTE && t->bytes[i].len == 1)
            t->byte_id[(uint8_t)t->bytes[i].ptr[0]] = (int32_t)i;
}

static uint32_t char_symbols(struct encode *x, struct str text)
{
    merge_work_reserve(&x->merge, (uint32_t)text.len);
    uint32_t n = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t c;
        int len = utf8_decode((struct str){text.ptr + at, text.len - at}, &c);
        if (len <= 0)
            return 0;
        x->merge.sym[n++] = char_symbol(x->t, (struct str){text.ptr + at, (size_t)len}, c);
        at += (size_t)len;
    }
    return n;
}

static enum status refuse_normalisers(const struct gguf *g, struct err *e)
{
    const struct gguf_value *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    bool squeeze;
    if (map && map->n)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.ggml.precompiled_charsmap is not supported");
    if (gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &squeeze) && squeeze)
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.ggml.remove_extra_whitespaces is not supported");
    return OK;
}

enum status spm_load(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    enum status status = refuse_normalisers(g, e);
    if (status != OK)
        return status;
    const struct gguf_value *scores = gguf_find(g, "tokenizer.ggml.scores");
    if (!scores || scores->type != GGUF_ARRAY)
        return err_set(e, ERR_FORMAT,
                       "sentencepiece tokenizer: the file lacks "
                       "tokenizer.ggml.scores");
    if (scores->n != t->n_vocab || scores->elem_type == GGUF_STRING)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores: %llu entries for %u tokens",
                       (unsigned long long)scores->n, t->n_vocab);
    load_byte_tokens(t);
    byte_map_init(&t->by_bytes, t->bytes, t->n_vocab);
    struct scored *piece = mem_alloc(mem_mul(t->n_vocab, sizeof *piece));
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        if (t->type[i] != TOKEN_NORMAL || t->bytes[i].len == 0)
            continue;
        byte_map_add(&t->by_bytes, i);
        piece[n] = (struct scored){gguf_array_f64(scores, i), i};
        if (!isfinite(piece[n++].score))
            status = err_set(e, ERR_FORMAT, "tokenizer.ggml.scores: entry %u is not finite", i);
    }
    if (status != OK) {
        mem_free(piece);
        return status;
    }
    load_ascii(t);
    load_pairs(t, piece, n);
    mem_free(piece);
    mark_direct(t, char_symbols);
    t->add_bos = true;
    t->space_prefix = true;
    (void)gguf_bool(g, "tokenizer.ggml.add_space_prefix", &t->space_prefix);
    return OK;
}

/* ---- encoding ---- */

static bool emit_bytes(struct encode *x, uint32_t code_point)
{
    char c[4];
    int n = utf8_encode(code_point, c);
    for (int i = 0; i < n; i++)
        if (x->t->byte_id[(uint8_t)c[i]] < 0)
            return x->t->unknown < 0 || encode_emit(x, x->t->unknown);
    for (int i = 0; i < n; i++)
        if (!encode_emit(x, x->t->byte_id[(uint8_t)c[i]]))
            return false;
    return true;
}

static bool encode_run(struct encode *x, struct str run)
{
    int32_t id = find_direct(x->t, run);
    if (id >= 0)
        return encode_emit(x, id);
    uint32_t n = merge_run(&x->t->pairs, &x->merge, char_symbols(x, run));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = x->merge.sym[i];
        if (!(s & SYMBOL_CHAR ? emit_bytes(x, s & ~SYMBOL_CHAR) : encode_emit(x, (int32_t)s)))
            return false;
    }
    return true;
}

/* text: spaces already plain, no added token in it. */
static bool encode_runs(struct encode *x, struct str text)
{
    size_t start = 0, at = 0;
    uint32_t before = 0;
    while (at < text.len) {
        uint32_t c = (uint8_t)text.ptr[at];
        int len = c < 128 ? 1 : utf8_decode((struct str){text.ptr + at, text.len - at}, &c);
        if (at > start && !bigram_has(&x->t->bigrams, before, c)) {
            if (!encode_run(x, (struct str){text.ptr + start, at - start}))
                return false;
            start = at;
        }
        before = c;
        at += (size_t)len;
    }
    return start == at || encode_run(x, (struct str){text.ptr + start, at - start});
}

/* A space in front when the model was trained so: it needs a copy of the fragment. */
static bool encode_part(struct encode *x, struct str text)
{
    if (text.len == 0)
        return true;
    if (!x->t->space_prefix)
        return encode_runs(x, text);
    struct buf prefixed = {0};
    buf_reserve(&prefixed, text.len + 1);
    buf_add_char(&prefixed, ' ');
    buf_add_str(&prefixed, text);
    bool more = encode_runs(x, buf_str(&prefixed));
    buf_release(&prefixed);
    return more;
}

static struct str plain_spaces(struct encode *x, struct str text)
{
    if (!memmem(text.ptr, text.len, SPACE_MARK, 3))
        return text;
    buf_clear(&x->fragment);
    size_t at = 0;
    while (at < text.len) {
        const char *mark = memmem(text.ptr + at, text.len - at, SPACE_MARK, 3);
        size_t n = mark ? (size_t)(mark - text.ptr) - at : text.len - at;
        buf_add(&x->fragment, text.ptr + at, n);
        at += n;
        if (mark) {
            buf_add_char(&x->fragment, ' ');
            at += 3;
        }
    }
    return buf_str(&x->fragment);
}

/* User-defined pieces are cut out of the normalised text, as the trainer's library does. */
bool spm_fragment(struct encode *x, struct str text)
{
    static const struct special_filter users = {.user = true};
    text = plain_spaces(x, text);
    size_t at = 0;
    struct special_match m;
    while (special_find(&x->t->special, text, at, &users, &m)) {
        if (!encode_part(x, (struct str){text.ptr + at, m.start - at}) || !encode_emit(x, m.id))
            return false;
        at = m.end;
    }
    return encode_part(x, (struct str){text.ptr + at, text.len - at});
}
