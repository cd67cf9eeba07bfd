/* engine/grammar on any source: a JSON schema, regular expression, list of choices or GBNF rules; the first byte picks the
 * kind, and the last ones a walk. What compiles must keep its promises: every token that a mask allows matches and no other
 * does, a mask that allows nothing has a limit to name, and examples match as a whole; those of schemas are JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/examples.h"
#include "engine/grammar/vocab.h"
#include "tests/unit/engine/tok_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SOURCE = 4096, N_STEPS = 6, N_VOCABS = 2 };

static struct fixture fixtures[N_VOCABS];
static struct gram_vocab *vocabs[N_VOCABS];
static struct gram_scratch *scratch;

static void make_vocabs(void)
{
    fx_bpe(&fixtures[0], "gpt-2");
    fx_spm(&fixtures[1], true);
    for (int i = 0; i < N_VOCABS; i++)
        vocabs[i] = gram_vocab_new(fixtures[i].t);
    scratch = gram_scratch_new();
}

static bool allows(const uint32_t *mask, uint32_t token)
{
    return mask[token / 32] >> (token % 32) & 1;
}

/* Every bit of the mask, by matching the token's bytes. */
static void check_mask(const struct gram_match *m, const struct fixture *f, const uint32_t *mask,
                       uint32_t n_vocab)
{
    struct gram_match next;
    for (uint32_t t = 0; t < n_vocab; t++) {
        enum token_type type = tokenizer_type(f->t, (int32_t)t);
        bool text = type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_BYTE;
        bool ok = text && tokenizer_bytes(f->t, (int32_t)t).len > 0;
        next = *m;
        ok = ok && gram_match_token(&next, (int32_t)t, scratch);
        if (tokenizer_is_stop(f->t, (int32_t)t))
            ok = gram_match_complete(m);
        CHECKF(ok == allows(mask, t), "token %u: matches %d, mask %d", t, ok, !ok);
    }
}

/* The n-th token that is allowed, -1 for none. */
static int32_t pick(const uint32_t *mask, const struct fixture *f, uint32_t n_vocab, uint32_t n)
{
    int32_t found = -1;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t t = 0; t < n_vocab; t++) {
            if (!allows(mask, t) || tokenizer_is_stop(f->t, (int32_t)t))
                continue;
            found = (int32_t)t;
            if (n-- == 0)
                return found;
        }
        if (found < 0)
            return -1;
    }
    return found;
}

static void walk(const struct grammar *g, const struct fixture *f, const struct gram_vocab *v,
                 const uint8_t *choice)
{
    uint32_t own[16];
    struct gram_match m;
    CHECK(v->n_words <= 16);
    gram_match_init(&m, g, scratch);
    CHECK(m.n > 0);
    for (uint32_t i = 0; i < N_STEPS && !gram_match_over(&m); i++) {
        const uint32_t *mask = gram_mask(&m, own, scratch);
        uint32_t again[16];
        enum gram_limit limit = gram_mask_limit(&m, again, scratch);
        CHECK(memcmp(mask, again, v->n_words * sizeof(*again)) == 0);
        if (limit != GRAM_LIMIT_STEPS)
            check_mask(&m, f, mask, v->n_vocab);
        int32_t t = pick(mask, f, v->n_vocab, choice[i]);
        CHECK((t >= 0) <= (limit == GRAM_NO_LIMIT));
        if (t < 0)
            break;
        CHECK(gram_match_token(&m, t, scratch));
    }
}

static void check_examples(const struct grammar *g, bool is_json)
{
    const struct json_limits limits = {.depth = 4096, .n_nodes = 1 << 16};
    struct gram_examples *x = gram_examples_new(g);
    struct gram_match m;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct buf text = {0};
        struct json_doc *doc;
        if (gram_example(x, seed, &text)) {
            gram_match_init(&m, g, scratch);
            CHECK(text.len == 0 || gram_match_bytes(&m, buf_str(&text), scratch));
            CHECK(gram_match_complete(&m) && utf8_valid(buf_str(&text)));
            if (is_json) {
                CHECKF(json_parse(buf_str(&text), limits, &doc, NULL) == OK, "%s", text.ptr);
                json_free(doc);
            }
        }
        buf_release(&text);
    }
    gram_examples_free(x);
}

static void run(enum grammar_kind kind, const struct json *source, uint32_t i,
                const uint8_t *choice)
{
    static const struct gram_owner nobody = {.key = LEDGER_NOBODY};
    struct grammar *g = NULL;
    struct err e = {0};
    enum status status = grammar_compile(kind, source, vocabs[i], NULL, &g, &e);
    if (status != OK) {
        CHECK(!g && e.status == status && e.text[0] && utf8_valid(str_of(e.text)));
        CHECK(utf8_valid(str_of(e.param)));
        return;
    }
    CHECK(grammar_charge(g, &nobody, &e) == OK);
    walk(g, &fixtures[i], vocabs[i], choice);
    check_examples(g, kind == GRAMMAR_SCHEMA);
    grammar_unref(g);
}

/* Regular expressions and rules are any text, schemas and choices any JSON. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum grammar_kind kinds[] = {GRAMMAR_SCHEMA, GRAMMAR_REGEX, GRAMMAR_CHOICE,
                                              GRAMMAR_GBNF};
    const struct json_limits limits = {.depth = 64, .n_nodes = 1 << 16};
    if (!vocabs[0])
        make_vocabs();
    if (size < 1 + N_STEPS || size > MAX_SOURCE)
        return 0;
    enum grammar_kind kind = kinds[data[0] % 4];
    struct str text = {(const char *)data + 1, size - 1 - N_STEPS};
    struct buf valid = {0}, json = {0};
    struct json_doc *doc;
    utf8_add_lossy(&valid, text);
    if (kind == GRAMMAR_REGEX || kind == GRAMMAR_GBNF)
        json_add_string(&json, buf_str(&valid));
    else
        buf_add_str(&json, buf_str(&valid));
    if (json_parse(buf_str(&json), limits, &doc, NULL) == OK) {
        run(kind, json_root(doc), data[0] / 4 % N_VOCABS, data + size - N_STEPS);
        json_free(doc);
    }
    buf_release(&valid);
    buf_release(&json);
    return 0;
}
