/* Compiles grammars and tries them: for tests that compare with independent validators.
 *
 * grammar_check MODEL.gguf: reads one JSON object per line,
 *   {"kind": "schema" | "object" | "regex" | "choice" | "gbnf", "source": ..., "texts": [TEXT, ...], "samples": N,
 *    "seed": N, "masks": N}
 * and prints one per line: {"error", "param"} or {"compile_us", "bytes", "texts": [0 no match, 1 beginning of one,
 * 2 whole match], "samples": [TEXT, ...], "mask_us": [...], "wrong": N}. Samples are drawn token by token under the
 * masks; of the first `masks` masks every bit is compared with matching the token's bytes ("wrong": bits that
 * differ). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocab.h"
#include "engine/model/gguf.h"

static struct tokenizer *tok;
static struct gram_vocab *vocab;
static struct gram_scratch *scratch;
static uint64_t rng;

static uint64_t draw(uint64_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (rng >> 33) % n;
}

static int64_t number(const struct json *v, const char *key, int64_t otherwise)
{
    const struct json *n = json_get(v, key);
    int64_t x = otherwise;
    if (n && !json_i64(n, 0, INT64_MAX, &x))
        exit(2);
    return x;
}

static int match_text(const struct grammar *g, struct str text)
{
    struct gram_match *m = mem_alloc(sizeof(*m));
    gram_match_init(m, g, scratch);
    bool any = m->n && gram_match_bytes(m, text, scratch);
    int result = !any ? 0 : gram_match_complete(m) ? 2 : 1;
    mem_free(m);
    return result;
}

static uint32_t count_wrong(const struct gram_match *m, const uint32_t *mask)
{
    struct gram_match *copy = mem_alloc(sizeof(*copy));
    uint32_t n_wrong = 0;
    for (uint32_t t = 0; t < vocab->n_vocab; t++) {
        enum token_type type = tokenizer_type(tok, (int32_t)t);
        bool text = type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_BYTE;
        bool ok = text && tokenizer_bytes(tok, (int32_t)t).len > 0;
        *copy = *m;
        ok = ok && gram_match_token(copy, (int32_t)t, scratch);
        if (tokenizer_is_stop(tok, (int32_t)t))
            ok = gram_match_complete(m);
        n_wrong += ok != (mask[t / 32] >> (t % 32) & 1);
    }
    mem_free(copy);
    return n_wrong;
}

/* A random allowed token; more and more one that closes something, as the text grows. */
static int32_t choose(const uint32_t *mask, size_t n_text)
{
    int32_t chosen = -1, closing = -1;
    uint32_t n = 0, n_closing = 0;
    for (uint32_t t = 0; t < vocab->n_vocab; t++) {
        if (!(mask[t / 32] >> (t % 32) & 1))
            continue;
        struct str bytes = tokenizer_bytes(tok, (int32_t)t);
        bool closes = tokenizer_is_stop(tok, (int32_t)t) ||
                      (bytes.len <= 2 && bytes.len && strchr("\"}]", bytes.ptr[0]) &&
                       (bytes.len == 1 || strchr("\"}]", bytes.ptr[1])));
        if (draw(++n) == 0)
            chosen = (int32_t)t;
        if (closes && draw(++n_closing) == 0)
            closing = (int32_t)t;
    }
    return closing >= 0 && draw(200) < 20 + n_text ? closing : chosen;
}

struct report {
    struct buf samples, times;
    uint32_t n_times, n_wrong;
    int64_t n_masks;
};

static void sample(const struct grammar *g, struct report *r, bool first)
{
    enum { MAX_TEXT = 4000 };
    struct gram_match *m = mem_alloc(sizeof(*m));
    uint32_t *own = mem_alloc(vocab->n_words * sizeof(*own) + 4);
    struct buf text = {0};
    bool over = false;
    gram_match_init(m, g, scratch);
    while (m->n && text.len < MAX_TEXT && !over) {
        uint64_t start = clock_ns();
        const uint32_t *mask = gram_mask(m, own, scratch);
        buf_printf(&r->times, "%s%.1f", r->n_times++ ? "," : "",
                   (double)(clock_ns() - start) / 1e3);
        if (r->n_masks-- > 0)
            r->n_wrong += count_wrong(m, mask);
        int32_t t = choose(mask, text.len);
        over = t < 0 || tokenizer_is_stop(tok, t);
        if (t < 0)
            buf_add_c(&text, "<STUCK>");
        if (over)
            break;
        bool at_start = m->at_start;
        buf_add_str(&text, tokenizer_shown(tok, t, true, &at_start));
        if (!gram_match_token(m, t, scratch))
            buf_add_c(&text, "<LOST>");
        over = gram_match_over(m);
    }
    if (!first)
        buf_add_char(&r->samples, ',');
    if (over)
        json_add_string(&r->samples, buf_str(&text));
    else
        buf_add_c(&r->samples, "null"); /* cut at its length */
    buf_release(&text);
    mem_free(own);
    mem_free(m);
}

static void report_grammar(const struct json *line, const struct grammar *g, double us,
                           struct buf *out)
{
    struct report r = {.n_masks = number(line, "masks", 0)};
    const struct json *texts = json_get(line, "texts");
    buf_printf(out, "{\"compile_us\":%.1f,\"bytes\":%llu,\"texts\":[", us,
               (unsigned long long)grammar_bytes(g));
    for (const struct json *v = texts ? json_first(texts) : NULL; v; v = json_next(v))
        buf_printf(out, "%s%d", v == json_first(texts) ? "" : ",", match_text(g, json_string(v)));
    rng = (uint64_t)number(line, "seed", 1) * 7919 + 1;
    for (int64_t i = 0, n = number(line, "samples", 0); i < n; i++)
        sample(g, &r, i == 0);
    buf_printf(out, "],\"samples\":[%s],\"mask_us\":[%s],\"wrong\":%u}",
               r.samples.ptr ? r.samples.ptr : "", r.times.ptr ? r.times.ptr : "", r.n_wrong);
    buf_release(&r.samples);
    buf_release(&r.times);
}

static bool find_kind(struct str name, enum grammar_kind *out)
{
    static const char *const names[] = {"object", "schema", "regex", "choice", "gbnf"};
    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *out = (enum grammar_kind)i;
        if (str_eq_c(name, names[i]))
            return true;
    }
    return false;
}

static void run_line(struct str text, struct buf *out)
{
    const struct json_limits limits = {.depth = 128, .n_nodes = 1 << 20};
    struct json_doc *doc;
    struct grammar *g = NULL;
    struct err e = {.text = ""};
    if (json_parse(text, limits, &doc, &e)) {
        fprintf(stderr, "grammar_check: %s\n", e.text);
        exit(2);
    }
    const struct json *line = json_root(doc);
    enum grammar_kind kind;
    if (!find_kind(json_string(json_get(line, "kind")), &kind))
        exit(2);
    uint64_t start = clock_ns();
    const struct gram_owner owner = {.ledger = NULL};
    enum status st = grammar_compile(kind, json_get(line, "source"), vocab, NULL, &g, &e);
    if (!st)
        st = grammar_charge(g, &owner, &e);
    double us = (double)(clock_ns() - start) / 1e3;
    if (st) {
        buf_add_c(out, "{\"error\":");
        json_add_string(out, str_of(e.text));
        buf_add_c(out, ",\"param\":");
        json_add_string(out, str_of(e.param));
        buf_printf(out, ",\"compile_us\":%.1f}", us);
    } else {
        report_grammar(line, g, us, out);
    }
    grammar_unref(g);
    json_free(doc);
}

int main(int argc, char **argv)
{
    struct gguf *file;
    struct err e;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (argc != 2 || gguf_open(argv[1], &file, &e) || tokenizer_new(file, STR_LIT(""), &tok, &e)) {
        fprintf(stderr, "usage: grammar_check MODEL.gguf\n");
        return 2;
    }
    vocab = gram_vocab_new(tok);
    scratch = gram_scratch_new();
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct buf out = {0};
        run_line((struct str){line, (size_t)n}, &out);
        puts(out.ptr);
        fflush(stdout);
        buf_release(&out);
    }
    free(line);
    gram_scratch_free(scratch);
    gram_vocab_free(vocab);
    tokenizer_free(tok);
    gguf_close(file);
    return 0;
}
