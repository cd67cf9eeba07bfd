/* Builds the byte tree; see vocab.h. */
#include "engine/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { MAX_TOKEN_BYTES = 255 };

struct entry {
    struct str bytes;
    int32_t token;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t n = x->bytes.len < y->bytes.len ? x->bytes.len : y->bytes.len;
    int order = memcmp(x->bytes.ptr, y->bytes.ptr, n);
    if (order == 0)
        order = (x->bytes.len > y->bytes.len) - (x->bytes.len < y->bytes.len);
    return order ? order : (x->token > y->token) - (x->token < y->token);
}

static bool is_text(const struct tokenizer *tok, int32_t token)
{
    enum token_type type = tokenizer_type(tok, token);
    struct str bytes = tokenizer_bytes(tok, token);
    return (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_BYTE) &&
           bytes.len > 0 && bytes.len <= MAX_TOKEN_BYTES && !tokenizer_is_stop(tok, token);
}

static struct entry *sorted_entries(const struct tokenizer *tok, uint32_t *n, uint64_t *n_bytes)
{
    uint32_t n_vocab = tokenizer_n_vocab(tok);
    struct entry *entry = mem_alloc(mem_mul((size_t)n_vocab + 1, sizeof(*entry)));
    *n = 0;
    *n_bytes = 0;
    for (uint32_t t = 0; t < n_vocab; t++) {
        if (!is_text(tok, (int32_t)t))
            continue;
        entry[*n] = (struct entry){tokenizer_bytes(tok, (int32_t)t), (int32_t)t};
        *n_bytes += entry[(*n)++].bytes.len;
    }
    qsort(entry, *n, sizeof(*entry), by_bytes);
    return entry;
}

static void add_nodes(struct gram_vocab *v, struct gram_tree *tree, struct entry e,
                      struct str before, uint32_t *open)
{
    size_t shared = 0;
    while (shared < before.len && shared < e.bytes.len && before.ptr[shared] == e.bytes.ptr[shared])
        shared++;
    if (shared == e.bytes.len && before.len == e.bytes.len) { /* same text */
        if (tree->token[open[shared]] == e.token)
            return;
        v->twin[e.token] = tree->token[open[shared]];
        tree->token[open[shared]] = e.token;
        return;
    }
    for (size_t d = shared + 1; d <= before.len; d++)
        tree->skip[open[d]] = tree->n_nodes;
    for (size_t d = shared + 1; d <= e.bytes.len; d++) {
        open[d] = tree->n_nodes;
        tree->byte[tree->n_nodes] = (uint8_t)e.bytes.ptr[d - 1];
        tree->depth[tree->n_nodes] = (uint8_t)d;
        tree->token[tree->n_nodes++] = -1;
    }
    tree->token[tree->n_nodes - 1] = e.token;
}

static bool is_plain(const struct gram_vocab *v, const struct entry *e)
{
    return v->plain_mask[e->token / 32] >> (e->token % 32) & 1;
}

static void make_tree(struct gram_vocab *v, struct gram_tree *tree, const struct entry *entry,
                      uint32_t n, uint64_t n_bytes, bool plain_too)
{
    uint32_t open[MAX_TOKEN_BYTES + 1]; /* the path from the root to the last node added */
    struct str before = {"", 0};
    tree->byte = mem_alloc(n_bytes + 1);
    tree->depth = mem_alloc(n_bytes + 1);
    tree->skip = mem_alloc(mem_mul(n_bytes + 1, sizeof(*tree->skip)));
    tree->token = mem_alloc(mem_mul(n_bytes + 1, sizeof(*tree->token)));
    open[0] = 0;
    tree->depth[0] = tree->byte[0] = 0;
    tree->token[0] = -1;
    tree->n_nodes = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (!plain_too && is_plain(v, &entry[i]))
            continue;
        add_nodes(v, tree, entry[i], before, open);
        before = entry[i].bytes;
    }
    for (size_t d = 0; d <= before.len; d++)
        tree->skip[open[d]] = tree->n_nodes;
    tree->byte = mem_realloc(tree->byte, tree->n_nodes);
    tree->depth = mem_realloc(tree->depth, tree->n_nodes);
    tree->skip = mem_realloc(tree->skip, mem_mul(tree->n_nodes, sizeof(*tree->skip)));
    tree->token = mem_realloc(tree->token, mem_mul(tree->n_nodes, sizeof(*tree->token)));
}

static void tree_release(struct gram_tree *tree)
{
    mem_free(tree->byte);
    mem_free(tree->depth);
    mem_free(tree->skip);
    mem_free(tree->token);
}

static bool bytes_are_plain(struct str bytes)
{
    uint32_t n_chars = 0, c;
    for (size_t i = 0; i < bytes.len; n_chars++) {
        int n = utf8_decode((struct str){bytes.ptr + i, bytes.len - i}, &c);
        if (n <= 0 || c < 0x20 || c == '"' || c == '\\')
            return false;
        i += (size_t)n;
    }
    return n_chars <= GRAM_PLAIN_CHARS;
}

static void find_plain(struct gram_vocab *v, const struct entry *entry, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (bytes_are_plain(entry[i].bytes))
            v->plain_mask[entry[i].token / 32] |= 1u << (entry[i].token % 32);
}

static bool keeps_space(const struct tokenizer *tok, struct entry e)
{
    bool at_start = true;
    return tokenizer_shown(tok, e.token, true, &at_start).len == e.bytes.len;
}

static void find_odd(struct gram_vocab *v, const struct entry *entry, uint32_t n)
{
    uint32_t n_space = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (entry[i].bytes.ptr[0] != ' ')
            continue;
        n_space++;
        if (keeps_space(v->tok, entry[i]))
            v->n_odd++;
    }
    v->drops_space = v->n_odd < n_space;
    v->odd = mem_zalloc(mem_mul((size_t)v->n_odd + 1, sizeof(*v->odd)));
    v->n_odd = 0;
    for (uint32_t i = 0; i < n && v->drops_space; i++)
        if (entry[i].bytes.ptr[0] == ' ' && keeps_space(v->tok, entry[i]))
            v->odd[v->n_odd++] = entry[i].token;
}

struct gram_vocab *gram_vocab_new(const struct tokenizer *tok)
{
    struct gram_vocab *v = mem_zalloc(sizeof(*v));
    uint32_t n, n_stop, n_vocab = tokenizer_n_vocab(tok);
    uint64_t n_bytes;
    struct entry *entry = sorted_entries(tok, &n, &n_bytes);
    const int32_t *stop = tokenizer_stop_tokens(tok, &n_stop);
    v->tok = tok;
    v->n_vocab = n_vocab;
    v->n_words = (n_vocab + 31) / 32;
    v->twin = mem_alloc(mem_mul((size_t)n_vocab + 1, sizeof(*v->twin)));
    memset(v->twin, 0xff, ((size_t)n_vocab + 1) * sizeof(*v->twin));
    v->end_mask = mem_zalloc(mem_mul((size_t)v->n_words + 1, sizeof(uint32_t)));
    for (uint32_t i = 0; i < n_stop; i++)
        v->end_mask[stop[i] / 32] |= 1u << (stop[i] % 32);
    v->plain_mask = mem_zalloc(mem_mul((size_t)v->n_words + 1, sizeof(uint32_t)));
    find_plain(v, entry, n);
    make_tree(v, &v->all, entry, n, n_bytes, true);
    make_tree(v, &v->rest, entry, n, n_bytes, false);
    find_odd(v, entry, n);
    mem_free(entry);
    return v;
}

void gram_vocab_free(struct gram_vocab *v)
{
    if (!v)
        return;
    tree_release(&v->all);
    tree_release(&v->rest);
    mem_free(v->plain_mask);
    mem_free(v->twin);
    mem_free(v->end_mask);
    mem_free(v->odd);
    mem_free(v);
}
