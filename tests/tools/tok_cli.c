/* Drives the tokenizer from the Python tests: tok_cli MODEL.gguf [PRE] < records > answers.
 *
 * Record: u32 op, u32 flags, u32 n, then n bytes (op 0, encode) or n int32 ids (op 1, decode; op 2,
 * decode one token at a time through struct detok). Flags: encode 1 add_special, 2 parse_special;
 * decode 1 skip_special.
 * Answer: i32 status, u32 n, then ids, or bytes, or the error text. Native byte order.
 * First answer, unasked: status of tokenizer_new and, when OK, ids: bos, eos, adds_bos, adds_eos,
 * then the stop tokens. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/text/text.h"

static void answer(enum status status, uint32_t n, const void *data, size_t n_bytes)
{
    int32_t s = status;
    fwrite(&s, 4, 1, stdout);
    fwrite(&n, 4, 1, stdout);
    fwrite(data, 1, n_bytes, stdout);
}

static void answer_error(const struct err *e)
{
    answer(e->status, (uint32_t)strlen(e->text), e->text, strlen(e->text));
}

static void answer_info(const struct tokenizer *t)
{
    struct tokens info = {0};
    tokens_add(&info, tokenizer_bos(t));
    tokens_add(&info, tokenizer_eos(t));
    tokens_add(&info, tokenizer_adds_bos(t));
    tokens_add(&info, tokenizer_adds_eos(t));
    uint32_t n;
    const int32_t *stop = tokenizer_stop_tokens(t, &n);
    for (uint32_t i = 0; i < n; i++)
        tokens_add(&info, stop[i]);
    answer(OK, info.n, info.id, info.n * sizeof *info.id);
    tokens_release(&info);
}

static void encode(const struct tokenizer *t, uint32_t flags, struct str text)
{
    struct encode_options o = {.add_special = flags & 1, .parse_special = flags & 2};
    struct tokens out = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, &o, &out, &e) == OK)
        answer(OK, out.n, out.id, out.n * sizeof *out.id);
    else
        answer_error(&e);
    tokens_release(&out);
}

static void decode(const struct tokenizer *t, uint32_t flags, const int32_t *id, uint32_t n)
{
    struct buf out = {0};
    struct err e = {0};
    if (tokenizer_decode(t, id, n, flags & 1, &out, &e) == OK)
        answer(OK, (uint32_t)out.len, out.ptr, out.len);
    else
        answer_error(&e);
    buf_release(&out);
}

static void decode_steps(const struct tokenizer *t, uint32_t flags, const int32_t *id, uint32_t n)
{
    struct buf out = {0};
    struct detok d;
    uint32_t cap = detok_bound(t);
    char *delta = mem_alloc(cap);
    detok_init(&d, t, flags & 1);
    for (uint32_t i = 0; i < n; i++)
        buf_add(&out, delta, detok_push(&d, id[i], delta, cap));
    buf_add(&out, delta, detok_flush(&d, delta, cap));
    answer(OK, (uint32_t)out.len, out.ptr, out.len);
    mem_free(delta);
    buf_release(&out);
}

int main(int argc, char **argv)
{
    struct gguf *g;
    struct tokenizer *t;
    struct err e = {0};
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: tok_cli MODEL.gguf [PRE]\n");
        return 2;
    }
    struct str pre = str_of(argc == 3 ? argv[2] : "");
    if (gguf_open(argv[1], &g, &e) != OK || tokenizer_new(g, pre, &t, &e) != OK) {
        answer_error(&e);
        return 0;
    }
    answer_info(t);
    uint32_t head[3];
    while (fread(head, 4, 3, stdin) == 3) {
        size_t n_bytes = (size_t)head[2] * (head[0] ? 4 : 1);
        char *data = mem_alloc(n_bytes + 1);
        if (fread(data, 1, n_bytes, stdin) != n_bytes)
            return 1;
        if (head[0] == 0)
            encode(t, head[1], (struct str){data, n_bytes});
        else if (head[0] == 1)
            decode(t, head[1], (const int32_t *)(void *)data, head[2]);
        else
            decode_steps(t, head[1], (const int32_t *)(void *)data, head[2]);
        mem_free(data);
        fflush(stdout);
    }
    tokenizer_free(t);
    gguf_close(g);
    return 0;
}
