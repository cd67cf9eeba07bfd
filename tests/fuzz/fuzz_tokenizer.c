/* Any text and any options through two small vocabularies: no crash, ids in range, decoding gives the
 * text back (byte-level: always; SentencePiece-style: when it holds no U+2581), one-by-one decoding gives
 * the same, and cutting off a token bound never changes the tokens before it. The first byte picks
 * vocabulary and options; the rest is text, made valid UTF-8 first. */
#include <stdint.h>
#include <stdlib.h>

#include "base/check.h"
#include "tests/unit/engine/tok_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = {"gpt-2",        "smollm",         "llama-bpe",   "qwen2",
                                   "deepseek-llm", "deepseek-coder", "deepseek-v3", "tekken"};
enum { N_PRES = 8, N_FIXTURES = N_PRES + 2 };
static struct fixture fixtures[N_FIXTURES];

static void make_fixtures(void)
{
    for (int i = 0; i < N_PRES; i++)
        fx_bpe(&fixtures[i], pres[i]);
    fx_spm(&fixtures[N_PRES], false);
    fx_spm(&fixtures[N_PRES + 1], true);
}

static void check_decode(const struct fixture *f, const struct tokens *ids, struct str want)
{
    struct buf whole = {0}, steps = {0};
    struct err e;
    struct detok d;
    char out[4096];
    CHECK(tokenizer_decode(f->t, ids->id, ids->n, false, &whole, &e) == OK);
    CHECK(str_eq(buf_str(&whole), want));
    detok_init(&d, f->t, false);
    for (uint32_t i = 0; i < ids->n; i++)
        buf_add(&steps, out, detok_push(&d, ids->id[i], out, sizeof out));
    buf_add(&steps, out, detok_flush(&d, out, sizeof out));
    CHECK(str_eq(buf_str(&steps), want));
    buf_release(&whole);
    buf_release(&steps);
}

static void check_bound(const struct fixture *f, struct str text, struct encode_options o,
                        const struct tokens *full, uint32_t bound)
{
    struct tokens cut = {0};
    struct err e;
    o.max_tokens = bound;
    enum status status = tokenizer_encode(f->t, text, &o, &cut, &e);
    CHECK(status == (full->n > bound ? ERR_CONTEXT_LENGTH : OK));
    CHECK(cut.n == (full->n > bound ? bound : full->n));
    CHECK(cut.n == 0 || memcmp(cut.id, full->id, cut.n * sizeof *cut.id) == 0);
    tokens_release(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!fixtures[0].t)
        make_fixtures();
    if (size < 3)
        return 0;
    const struct fixture *f = &fixtures[data[0] % N_FIXTURES];
    struct buf text = {0};
    utf8_add_lossy(&text, (struct str){(const char *)data + 3, size - 3});
    size_t half = text.len * data[2] / 256;
    struct text_range trusted = {half / 2, half};
    struct encode_options o = {.parse_special = data[1] & 1, .add_special = data[1] & 2};
    if (data[1] & 4) {
        o.trusted = &trusted;
        o.n_trusted = half / 2 < half;
    }
    struct tokens ids = {0};
    struct err e;
    CHECK(tokenizer_encode(f->t, buf_str(&text), &o, &ids, &e) == OK);
    for (uint32_t i = 0; i < ids.n; i++)
        CHECK(ids.id[i] >= 0 && (uint32_t)ids.id[i] < tokenizer_n_vocab(f->t));
    bool mark = text.len && memmem(text.ptr, text.len, "\xe2\x96\x81", 3);
    if (!(data[1] & 2) && (data[0] % N_FIXTURES < N_PRES || !mark))
        check_decode(f, &ids, buf_str(&text));
    check_bound(f, buf_str(&text), o, &ids, 1 + data[2]);
    tokens_release(&ids);
    buf_release(&text);
    return 0;
}
