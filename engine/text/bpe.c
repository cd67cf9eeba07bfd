/* Byte-level BPE (tokenizer.ggml.model "gpt2"): pieces from the pre-tokenizer, bytes as symbols,
 * merges in the order of the file. Called by tokenizer.c; any thread. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/gguf.h"
#include "engine/text/tok_int.h"

/* The vocabulary's own spelling: a byte is one character of the byte alphabet. */
static void load_byte_ids(struct tokenizer *t, const struct byte_map *by_text)
{
    for (int b = 0; b < 256; b++) {
        char c[4];
        int n = utf8_encode(byte_char((uint8_t)b), c);
        t->byte_id[b] = byte_map_find(by_text, (struct str){c, (size_t)n});
    }
}

/* "left right": the byte alphabet holds no space, so the only one parts the halves. */
static enum status load_merge(struct tokenizer *t, const struct byte_map *by_text, struct str merge,
                              uint32_t rank, struct buf *joined, struct err *e)
{
    const char *space = merge.len ? memchr(merge.ptr, ' ', merge.len) : NULL;
    if (!space)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges: entry %u is no pair", rank);
    struct str first = {merge.ptr, (size_t)(space - merge.ptr)};
    struct str second = {space + 1, merge.len - first.len - 1};
    buf_clear(joined);
    buf_add_str(joined, first);
    buf_add_str(joined, second);
    int32_t left = byte_map_find(by_text, first);
    int32_t right = byte_map_find(by_text, second);
    int32_t id = byte_map_find(by_text, buf_str(joined));
    if (left < 0 || right < 0 || id < 0)
        return err_set(e, ERR_FORMAT,
                       "tokenizer.ggml.merges: entry %u names a token that the "
                       "vocabulary lacks",
                       rank);
    pair_map_set(&t->pairs, (uint32_t)left, (uint32_t)right, rank, (uint32_t)id);
    return OK;
}

static enum status load_merges(struct tokenizer *t, const struct gguf_value *merges, struct err *e)
{
    if (merges->n > UINT32_MAX / 4)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges: too many entries");
    struct byte_map by_text;
    byte_map_init(&by_text, t->text, t->n_vocab);
    for (uint32_t i = 0; i < t->n_vocab; i++)
        byte_map_add(&by_text, i);
    load_byte_ids(t, &by_text);
    pair_map_init(&t->pairs, merges->n);
    size_t cursor = 0;
    struct str merge;
    struct buf joined = {0};
    enum status status = OK;
    for (uint32_t rank = 0; status == OK && gguf_array_next_string(merges, &cursor, &merge); rank++)
        status = load_merge(t, &by_text, merge, rank, &joined, e);
    buf_release(&joined);
    byte_map_release(&by_text);
    return status;
}

/* A byte that the vocabulary lacks is dropped, as the published tokenizers do. */
static uint32_t byte_symbols(struct encode *x, struct str piece)
{
    merge_work_reserve(&x->merge, (uint32_t)piece.len);
    uint32_t n = 0;
    for (size_t i = 0; i < piece.len; i++) {
        int32_t id = x->t->byte_id[(uint8_t)piece.ptr[i]];
        if (id >= 0)
            x->merge.sym[n++] = (uint32_t)id;
    }
    return n;
}

/* Llama 3, with or without tokens added behind its own: many files of it were made before the key
 * tokenizer.ggml.pre existed. */
static bool is_llama3(const struct tokenizer *t)
{
    enum { N_TOKENS = 128256, BEGIN = 128000 };
    return t->n_vocab >= N_TOKENS && str_eq_c(t->text[BEGIN], "<|begin_of_text|>");
}

/* The option, else the file's name, else what the vocabulary shows. "default" says nothing of the rule:
 * converters wrote it where they knew none. */
static enum status find_pre(const struct tokenizer *t, const struct gguf *g, struct str option,
                            struct str *pre, struct err *e)
{
    *pre = option;
    if (option.len)
        return OK;
    bool has_pre = gguf_string(g, "tokenizer.ggml.pre", pre);
    if (has_pre && !str_eq_c(*pre, "default"))
        return OK;
    if (is_llama3(t)) {
        *pre = STR_LIT("llama-bpe");
        return OK;
    }
    return pretok_refuse(e, has_pre ? "pre-tokenizer 'default' is not supported"
                                    : "byte-level tokenizer: the file lacks tokenizer.ggml.pre");
}

static enum status find_merges(const struct gguf *g, struct str option,
                               const struct gguf_value **out, struct err *e)
{
    const struct gguf_value *merges = gguf_find(g, "tokenizer.ggml.merges");
    *out = merges;
    if (merges && merges->type == GGUF_ARRAY && merges->elem_type == GGUF_STRING)
        return OK;
    bool has_pre = option.len || gguf_find(g, "tokenizer.ggml.pre");
    return err_set(e, ERR_FORMAT, "byte-level tokenizer: the file lacks tokenizer.ggml.merges%s",
                   has_pre ? "" : " and tokenizer.ggml.pre");
}

enum status bpe_load(struct tokenizer *t, const struct gguf *g, struct str pre_option,
                     struct err *e)
{
    const struct gguf_value *merges;
    struct str pre;
    enum status status = find_merges(g, pre_option, &merges, e);
    if (status == OK)
        status = find_pre(t, g, pre_option, &pre, e);
    if (status == OK)
        status = pretok_new(pre, &t->pretok, e);
    if (status == OK)
        status = load_merges(t, merges, e);
    if (status != OK)
        return status;
    byte_map_init(&t->by_bytes, t->bytes, t->n_vocab);
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->type[i] == TOKEN_NORMAL && t->bytes[i].len)
            byte_map_add(&t->by_bytes, i);
    mark_direct(t, pretok_whole_first(t->pretok) ? NULL : byte_symbols);
    t->add_bos = pretok_adds_bos(t->pretok);
    return OK;
}

static bool encode_piece(void *arg, struct str piece)
{
    struct encode *x = arg;
    int32_t id = find_direct(x->t, piece);
    if (id >= 0)
        return encode_emit(x, id);
    uint32_t n = merge_run(&x->t->pairs, &x->merge, byte_symbols(x, piece));
    for (uint32_t i = 0; i < n; i++)
        if (!encode_emit(x, (int32_t)x->merge.sym[i]))
            return false;
    return true;
}

bool bpe_fragment(struct encode *x, struct str text)
{
    if (x->status == OK) {
        enum status status = pretok_split(x->t->pretok, &x->pretok, text, encode_piece, x, x->e);
        if (status != OK)
            x->status = status;
    }
    return x->status == OK;
}
