/* engine/grammar: what is refused and by which limit, no dead ends at the bound of the stack, several threads with one
 * grammar, and whose memory it is. What grammars match is compared with independent validators in tests/py/test_grammar.py. */
#include <check.h>
#include <stdlib.h>

#include "base/base_test.h"
#include "base/json.h"
#include "base/ledger.h"
#include "base/thread.h"
#include "config/ledger.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/expr.h"
#include "engine/grammar/vocab.h"
#include "tests/unit/engine/tok_fixture.h"
#include "tests/unit/run_suite.h"

static struct fixture fx;
static struct gram_vocab *vocab;
static struct gram_scratch *scratch;
static const struct gram_owner nobody = {.key = LEDGER_NOBODY};

static void setup(void)
{
    fx_bpe(&fx, "gpt-2");
    vocab = gram_vocab_new(fx.t);
    scratch = gram_scratch_new();
}

static void teardown(void)
{
    gram_scratch_free(scratch);
    gram_vocab_free(vocab);
    fx_release(&fx);
}

/* The source as JSON text. */
static enum status compile_json(enum grammar_kind kind, struct str source, struct grammar **out,
                                struct err *e)
{
    const struct json_limits limits = {.depth = 128, .n_nodes = 1 << 20};
    struct json_doc *doc;
    CHECKF(json_parse(source, limits, &doc, e) == OK, "%s", e->text);
    enum status st = grammar_compile(kind, json_root(doc), vocab, NULL, out, e);
    json_free(doc);
    return st;
}

/* The source as text of its notation. */
static enum status compile_text(enum grammar_kind kind, const struct buf *text,
                                struct grammar **out, struct err *e)
{
    struct buf json = {0};
    json_add_string(&json, buf_str(text));
    enum status st = compile_json(kind, buf_str(&json), out, e);
    buf_release(&json);
    return st;
}

static struct grammar *must_compile(enum grammar_kind kind, const char *text)
{
    struct grammar *g;
    struct err e = {0};
    enum status st;
    if (kind == GRAMMAR_SCHEMA) {
        st = compile_json(kind, str_of(text), &g, &e);
    } else {
        struct buf source = {0};
        buf_add_c(&source, text);
        st = compile_text(kind, &source, &g, &e);
        buf_release(&source);
    }
    CHECKF(st == OK, "%s", e.text);
    CHECK(grammar_charge(g, &nobody, &e) == OK);
    return g;
}

/* ---- bounds of compiling ---- */

static void expect_refused(enum grammar_kind kind, struct buf *text, const char *why)
{
    struct grammar *g;
    struct err e = {0};
    enum status st = compile_text(kind, text, &g, &e);
    ck_assert_msg(st == ERR_TOO_LARGE && g == NULL, "%s: %d", why, st);
    ck_assert_msg(strstr(e.text, why), "%s", e.text);
    buf_clear(text);
}

static void add_times(struct buf *text, const char *what, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        buf_add_c(text, what);
}

START_TEST(what_takes_too_many_steps_is_refused_with_the_limit)
{
    static const char steps[] = "over 50331648 steps of compiling";
    struct buf text = {0};
    ck_assert_int_eq(EXPRS_MAX_STEPS, 50331648);
    buf_add_c(&text, "(?:\\D?){65536}"); /* sets of all copies at once */
    expect_refused(GRAMMAR_REGEX, &text, steps);
    buf_add_c(&text, "(((a?){40}){40}){40}");
    expect_refused(GRAMMAR_REGEX, &text, steps);
    add_times(&text, "a?", 100000);
    expect_refused(GRAMMAR_REGEX, &text, steps);
    buf_add_c(&text, "(?:a*b*){30000}");
    expect_refused(GRAMMAR_REGEX, &text, steps);
    /* A class of nothing but surrogates: its copies have states, and no transitions. */
    buf_add_c(&text, "(?:a|(?:[^\\u0000-\xed\x9f\xbf\xee\x80\x80-\\u{10ffff}]{65536}){65536})");
    expect_refused(GRAMMAR_REGEX, &text, steps);
    buf_add_c(&text, "root ::= \"x\" (a?){65000}\na ::= \"b\"");
    expect_refused(GRAMMAR_GBNF, &text, steps);
    buf_release(&text);
}
END_TEST

/* Schemas whose branches multiply: the same keywords are read again and again. */
START_TEST(keywords_that_are_read_too_often_are_refused_with_the_limit)
{
    struct grammar *g;
    struct err e = {0};
    struct buf text = {0};
    buf_add_c(&text, "{\"allOf\":[");
    for (uint32_t i = 0; i < 11; i++) {
        buf_add_c(&text, i ? ",{" : "{");
        for (uint32_t k = 0; k < 1000; k++)
            buf_printf(&text, "\"x%u\":1,", k);
        buf_add_c(&text, "\"anyOf\":[{},{\"title\":\"y\"}]}");
    }
    buf_add_c(&text, "]}");
    ck_assert_int_eq(compile_json(GRAMMAR_SCHEMA, buf_str(&text), &g, &e), ERR_TOO_LARGE);
    ck_assert_msg(strstr(e.text, "the schema at #") && strstr(e.text, "steps of compiling"), "%s",
                  e.text);
    buf_release(&text);
}
END_TEST

/* ---- nesting ---- */

static void add_chain(struct buf *text, const char *head, uint32_t n)
{
    buf_add_c(text, head);
    for (uint32_t i = 0; i < n; i++)
        buf_printf(text, "\nr%u ::= r%u \"a\"", i, i + 1);
    buf_printf(text, "\nr%u ::= \"b\"", n);
}

START_TEST(a_grammar_whose_every_text_is_nested_too_deep_is_refused)
{
    struct buf text = {0};
    struct grammar *g;
    struct grammar_size size;
    struct err e;
    add_chain(&text, "root ::= r0", GRAM_MAX_DEPTH);
    ck_assert_int_eq(compile_text(GRAMMAR_GBNF, &text, &g, &e), OK);
    grammar_describe(g, &size);
    ck_assert_uint_eq(size.depth, GRAM_MAX_DEPTH);
    grammar_unref(g);
    buf_clear(&text);
    add_chain(&text, "root ::= r0", GRAM_MAX_DEPTH + 1);
    expect_refused(GRAMMAR_GBNF, &text, "nested at least 65 deep, the limit is 64");
    add_chain(&text, "root ::= r0 | \"c\"", 4000); /* another way is flat */
    ck_assert_int_eq(compile_text(GRAMMAR_GBNF, &text, &g, &e), OK);
    grammar_unref(g);
    buf_release(&text);
}
END_TEST

static bool allows(const uint32_t *mask, int32_t token)
{
    return mask[token / 32] >> (token % 32) & 1;
}

/* Opens brackets as long as they are allowed; then there must be a way to the end from where that has led to. */
START_TEST(nothing_is_opened_that_the_stack_could_not_close)
{
    struct buf text = {0};
    struct grammar *g;
    struct err e;
    uint32_t own[16], n_open = 0, n_tokens = 0;
    struct gram_match *m = mem_alloc(sizeof(*m));
    add_chain(&text, "root ::= \"[\" root \"]\" | \"<\" r0 \">\"", 10);
    ck_assert_int_eq(compile_text(GRAMMAR_GBNF, &text, &g, &e), OK);
    gram_match_init(m, g, scratch);
    while (allows(gram_mask(m, own, scratch), '[')) {
        ck_assert(gram_match_bytes(m, STR_LIT("["), scratch));
        n_open++;
    }
    ck_assert_uint_eq(n_open, GRAM_MAX_DEPTH - 11);
    for (; !gram_match_over(m) && n_tokens < 1000; n_tokens++) {
        const uint32_t *mask = gram_mask(m, own, scratch);
        int32_t t = 0;
        while (t < 256 && !allows(mask, t))
            t++;
        ck_assert_msg(t < 256, "a dead end behind %u tokens", n_tokens);
        ck_assert(gram_match_token(m, t, scratch));
    }
    ck_assert_uint_eq(n_tokens, 1 + 1 + 10 + 1 + n_open);
    mem_free(m);
    grammar_unref(g);
    buf_release(&text);
}
END_TEST

/* ---- bounds of masks ---- */

/* Every byte leads through 120 rules that all call the same 120 rules. */
static void add_crossing(struct buf *text)
{
    buf_add_c(text, "root ::= ");
    for (uint32_t i = 0; i < 120; i++)
        buf_printf(text, "%st%u", i ? "|" : "", i);
    for (uint32_t i = 0; i < 120; i++) {
        buf_printf(text, "\nt%u ::= ", i);
        for (uint32_t k = 0; k < 120; k++)
            buf_printf(text, "%su%u", k ? "|" : "", k);
        buf_printf(text, "\nu%u ::= v", i);
    }
    buf_add_c(text, "\nv ::= [^\"] root | [^\"]");
}

static bool is_empty(const uint32_t *mask)
{
    for (uint32_t i = 0; i < vocab->n_words; i++)
        if (mask[i])
            return false;
    return true;
}

START_TEST(a_mask_that_takes_too_many_steps_allows_nothing_and_says_why)
{
    struct buf text = {0};
    struct grammar *g;
    struct err e = {0};
    uint32_t own[16];
    struct gram_match *m = mem_alloc(sizeof(*m));
    add_crossing(&text);
    ck_assert_msg(compile_text(GRAMMAR_GBNF, &text, &g, &e) == OK, "%s", e.text);
    gram_match_init(m, g, scratch);
    ck_assert_uint_gt(m->n, 0);
    ck_assert(is_empty(gram_mask(m, own, scratch)));
    ck_assert_int_eq(gram_mask_limit(m, own, scratch), GRAM_LIMIT_STEPS);
    grammar_unref(g);
    mem_free(m);
    buf_release(&text);
}
END_TEST

START_TEST(a_text_at_too_many_places_says_why)
{
    uint32_t own[16];
    /* A letter may have a partner behind Z, or not: so that the stacks differ. Behind Z there are more places for each. */
    static const char partners[] = "root ::= x \"!\"\nx ::= y | z | \"Z\" (p | q | r | s)\ny ::= "
                                   "[a-z] x [a-z]\nz ::= [a-z] x\n"
                                   "p ::= \"1\"\nq ::= \"2\"\nr ::= \"3\"\ns ::= \"4\"";
    struct grammar *g = must_compile(GRAMMAR_GBNF, partners);
    struct gram_match *m = mem_alloc(sizeof(*m));
    gram_match_init(m, g, scratch);
    uint32_t n = 0;
    while (n < 200 && !is_empty(gram_mask(m, own, scratch))) {
        ck_assert_int_eq(gram_mask_limit(m, own, scratch), GRAM_NO_LIMIT);
        ck_assert(gram_match_bytes(m, STR_LIT("a"), scratch));
        n++;
    }
    ck_assert_uint_lt(n, 200);
    ck_assert_int_eq(gram_mask_limit(m, own, scratch), GRAM_LIMIT_PLACES);
    mem_free(m);
    grammar_unref(g);
}
END_TEST

START_TEST(where_rules_begin_at_too_many_places_the_grammar_is_refused)
{
    struct buf text = {0};
    buf_add_c(&text, "root ::= \"x\" (r0");
    for (uint32_t i = 1; i < 33; i++)
        buf_printf(&text, "|r%u", i);
    buf_add_c(&text, ")");
    for (uint32_t i = 0; i < 33; i++)
        buf_printf(&text, "\nr%u ::= [a-z]+ \"%u\"", i, i);
    expect_refused(GRAMMAR_GBNF, &text, "at over 32 places at once");
    buf_release(&text);
}
END_TEST

/* ---- threads ---- */

enum { N_THREADS = 4, N_WALKS = 12, N_STEPS = 60 };

static const char walked[] =
    "{\"type\":\"object\",\"properties\":{\"he\":{\"type\":\"string\",\"maxLength\":12},\"list\":{"
    "\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":2},\"n\":{\"type\":\"integer\","
    "\"minimum\":-5,\"maximum\":120}},\"additionalProperties\":{\"enum\":[\"hello\",null]}}";

struct walk {
    int32_t token[N_STEPS];
    uint32_t n;
};

/* Tokens drawn under the masks; a function of the seed and the grammar. */
static void take_walk(const struct grammar *g, uint64_t seed, struct gram_scratch *s,
                      struct walk *out)
{
    uint32_t own[16];
    struct gram_match *m = mem_alloc(sizeof(*m));
    uint64_t rng = seed * 2862933555777941757ull + 3037000493ull;
    gram_match_init(m, g, s);
    for (out->n = 0; out->n < N_STEPS && !gram_match_over(m);) {
        const uint32_t *mask = gram_mask(m, own, s);
        uint32_t n = 0;
        int32_t chosen = -1;
        for (uint32_t t = 0; t < vocab->n_vocab; t++) {
            if (!allows(mask, (int32_t)t) || tokenizer_is_stop(fx.t, (int32_t)t))
                continue;
            rng = rng * 6364136223846793005ull + 1442695040888963407ull;
            if ((rng >> 33) % ++n == 0)
                chosen = (int32_t)t;
        }
        if (chosen < 0 || !gram_match_token(m, chosen, s))
            break;
        out->token[out->n++] = chosen;
    }
    mem_free(m);
}

struct walker {
    struct grammar *g;
    struct thread thread;
    uint64_t seed;
    struct walk walk[N_WALKS];
};

static void walk_all(void *arg)
{
    struct walker *w = arg;
    struct gram_scratch *s = gram_scratch_new();
    for (uint32_t i = 0; i < N_WALKS; i++) {
        CHECK(grammar_use(w->g, &nobody, NULL) == OK);
        take_walk(w->g, w->seed + i, s, &w->walk[i]);
        grammar_unref(w->g);
    }
    gram_scratch_free(s);
    grammar_unref(w->g);
}

START_TEST(threads_that_share_a_grammar_get_what_each_gets_alone)
{
    static struct walker w[N_THREADS];
    struct walk alone;
    struct err e;
    struct grammar *g = must_compile(GRAMMAR_SCHEMA, walked);
    uint32_t n_tokens = 0;
    grammar_set_cached(g, true);
    for (uint64_t i = 0; i < N_THREADS; i++) {
        w[i] = (struct walker){.g = g, .seed = i * 7};
        ck_assert_int_eq(grammar_use(g, &nobody, &e), OK);
        ck_assert_int_eq(thread_start(&w[i].thread, "walker", walk_all, &w[i], &e), OK);
    }
    grammar_unref(g); /* the walkers use it still */
    grammar_set_cached(g, false);
    for (uint32_t i = 0; i < N_THREADS; i++)
        thread_join(&w[i].thread);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        for (uint32_t k = 0; k < N_WALKS; k++) {
            g = must_compile(GRAMMAR_SCHEMA, walked);
            take_walk(g, w[i].seed + k, scratch, &alone);
            grammar_unref(g);
            EXPECT(alone.n == w[i].walk[k].n && alone.n > 0);
            EXPECT(!memcmp(alone.token, w[i].walk[k].token, alone.n * sizeof(int32_t)));
            n_tokens += alone.n;
        }
    }
    ck_assert_uint_gt(n_tokens, N_THREADS * N_WALKS * 10);
}
END_TEST

/* ---- memory ---- */

static struct ledger *make_ledger(uint64_t n_bytes)
{
    struct ledger *l = ledger_new(ledger_kinds, N_LEDGER_KINDS, 4);
    ledger_set_total(l, n_bytes);
    return l;
}

START_TEST(a_grammar_is_on_the_account_of_the_key_that_uses_it_first)
{
    struct ledger *l = make_ledger(64 << 20);
    atomic_uint uses[2] = {0, 0};
    struct gram_owner a = {l, 1, true, &uses[0]}, b = {l, 2, true, &uses[1]};
    struct grammar *g;
    struct err e;
    struct buf text = {0};
    buf_add_c(&text, "(ab|cd)*");
    ck_assert_int_eq(compile_text(GRAMMAR_REGEX, &text, &g, &e), OK);
    ck_assert_uint_eq(ledger_used_by_kind(l, LEDGER_GRAMMARS), 0);
    ck_assert_int_eq(grammar_charge(g, &a, &e), OK);
    uint64_t n = grammar_bytes(g);
    grammar_set_cached(g, true);
    ck_assert_int_eq(grammar_use(g, &b, &e), OK);
    ck_assert_uint_eq(ledger_used_by_kind(l, LEDGER_GRAMMARS), n); /* once, however many use it */
    ck_assert_uint_eq(ledger_used_by_key(l, 1), n);
    ck_assert_uint_eq(ledger_used_by_key(l, 2), 0);
    grammar_unref(g);
    ck_assert_uint_eq(ledger_used_by_key(l, 1), n);
    ck_assert_uint_eq(atomic_load(&uses[0]), 1);
    grammar_unref(g);
    ck_assert_uint_eq(ledger_used_by_kind(l, LEDGER_GRAMMARS), n); /* only the cache has it */
    ck_assert_uint_eq(ledger_used_by_key(l, 1), 0);
    ck_assert_uint_eq(atomic_load(&uses[0]), 0);
    ck_assert(grammar_is_idle(g));
    ck_assert_int_eq(grammar_use(g, &b, &e), OK);
    ck_assert_uint_eq(ledger_used_by_key(l, 2), n);
    grammar_set_cached(g, false);
    ck_assert_uint_eq(ledger_used_by_kind(l, LEDGER_GRAMMARS), n);
    grammar_unref(g);
    ck_assert_uint_eq(ledger_used_by_kind(l, LEDGER_GRAMMARS), 0);
    ck_assert_uint_eq(ledger_used_by_key(l, 2), 0);
    ck_assert_uint_eq(atomic_load(&uses[1]), 0);
    ledger_free(l);
    buf_release(&text);
}
END_TEST

START_TEST(a_grammar_without_room_is_refused_and_leaves_nothing)
{
    struct ledger *l = make_ledger(4 << 10);
    struct gram_owner a = {l, 1, false, NULL};
    struct grammar *g;
    struct err e;
    struct buf text = {0};
    buf_add_c(&text, "x{200}");
    ck_assert_int_eq(compile_text(GRAMMAR_REGEX, &text, &g, &e), OK);
    ck_assert_int_eq(grammar_charge(g, &a, &e), ERR_TOO_LARGE);
    ledger_set_total(l, grammar_bytes(g) * 3 / 2); /* half of it is for grammars */
    ck_assert_int_eq(grammar_charge(g, &a, &e), ERR_NO_MEMORY);
    ck_assert_str_eq(e.code, "out_of_memory");
    ck_assert_uint_eq(ledger_used_by_kind(l, LEDGER_GRAMMARS), 0);
    grammar_unref(g);
    ledger_free(l);
    buf_release(&text);
}
END_TEST

/* Of a short text, compiling can need much. */
START_TEST(what_compiling_needs_is_taken_before_and_given_back)
{
    static const char *const sources[] = {"\"[\\\\w\\\\W]{0,60000}\"", "\"(?:\\\\D?){65536}\"",
                                          "\"(?:a?){20000}\"", "\"[a-z]{60000}\""};
    for (uint32_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        const struct json_limits limits = {.depth = 2, .n_nodes = 4};
        struct ledger *l = make_ledger(1 << 20);
        struct ledger_hold held = {.ledger = l, .key = 1};
        struct json_doc *doc;
        struct grammar *g;
        struct err e;
        ck_assert_int_eq(json_parse(str_of(sources[i]), limits, &doc, &e), OK);
        enum status st = grammar_compile(GRAMMAR_REGEX, json_root(doc), vocab, &held, &g, &e);
        ck_assert(!g && (st == ERR_TOO_LARGE || st == ERR_NO_MEMORY));
        ck_assert_msg(strstr(e.code, "request_too_large") || strstr(e.code, "out_of_memory"), "%s",
                      e.text);
        ck_assert_uint_eq(ledger_used(l), 0);
        ledger_set_total(l, 1 << 30);
        st = grammar_compile(GRAMMAR_REGEX, json_root(doc), vocab, &held, &g, &e);
        ck_assert_msg(st == OK || strstr(e.text, "the grammar is too large"), "%s", e.text);
        ck_assert_uint_eq(ledger_used(l), 0);
        grammar_unref(g);
        json_free(doc);
        ledger_free(l);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine/grammar");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, what_takes_too_many_steps_is_refused_with_the_limit);
    tcase_add_test(c, keywords_that_are_read_too_often_are_refused_with_the_limit);
    tcase_add_test(c, a_grammar_whose_every_text_is_nested_too_deep_is_refused);
    tcase_add_test(c, nothing_is_opened_that_the_stack_could_not_close);
    tcase_add_test(c, a_mask_that_takes_too_many_steps_allows_nothing_and_says_why);
    tcase_add_test(c, a_text_at_too_many_places_says_why);
    tcase_add_test(c, where_rules_begin_at_too_many_places_the_grammar_is_refused);
    tcase_add_test(c, threads_that_share_a_grammar_get_what_each_gets_alone);
    tcase_add_test(c, a_grammar_is_on_the_account_of_the_key_that_uses_it_first);
    tcase_add_test(c, a_grammar_without_room_is_refused_and_leaves_nothing);
    tcase_add_test(c, what_compiling_needs_is_taken_before_and_given_back);
    suite_add_tcase(s, c);
    return run_suite(s);
}
