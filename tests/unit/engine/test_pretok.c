/* engine/text/pretok: pieces of every family, long runs with and without JIT. Equality with the
 * published pre-tokenizers on real text: test_tokenizer_hf.py. */
#include <check.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/text/pretok.h"
#include "tests/unit/run_suite.h"

struct pieces {
    struct buf text; /* joined by '|' */
    size_t n, n_bytes, stop_after;
};

static bool collect(void *arg, struct str piece)
{
    struct pieces *p = arg;
    if (p->n++)
        buf_add_char(&p->text, '|');
    buf_add_str(&p->text, piece);
    p->n_bytes += piece.len;
    return p->n != p->stop_after;
}

static bool count(void *arg, struct str piece)
{
    struct pieces *p = arg;
    p->n++;
    p->n_bytes += piece.len;
    return true;
}

static struct pretok *make(const char *name)
{
    struct pretok *p;
    struct err e = {0};
    ck_assert_msg(pretok_new(str_of(name), &p, &e) == OK, "%s", e.text);
    return p;
}

static void expect(const char *name, const char *text, const char *want)
{
    struct pretok *p = make(name);
    struct pretok_work w = {0};
    struct pieces got = {0};
    struct err e = {0};
    ck_assert_int_eq(pretok_split(p, &w, str_of(text), collect, &got, &e), OK);
    ck_assert_str_eq(got.text.ptr ? got.text.ptr : "", want);
    buf_release(&got.text);
    pretok_work_release(&w);
    pretok_free(p);
}

START_TEST(each_family_cuts_its_own_way)
{
    expect("gpt-2", "I'm  12a's\n\n x", "I|'m| | 12|a|'s|\n\n| x");
    expect("smollm", "I'm  12a  3", "I|'m|  |1|2|a|  |3");
    expect("llama-bpe", "I'M 1234 a.b\n\nc", "I|'M| |123|4| a|.b|\n\n|c");
    expect("qwen2", "12 'LLx", "1|2| '|LLx");
    expect("qwen35", "e\xcc\x81x 1", "e\xcc\x81x| |1");
    expect("tekken", "camelCase HTTPServer 12", "camel|Case| HTTPServer| |1|2");
    expect("deepseek-llm", "ab  cd\r\n12!?  ", "ab| | cd|\r|\n|1|2|!?|  ");
    expect("deepseek-coder", "a b\n\t\tx=1;", "a| b|\n|\t|\tx|=|1|;");
    expect("deepseek-v3", "abc1234 .x+y", "abc|123|4| .|x|+y");
}
END_TEST

START_TEST(empty_text_has_no_pieces)
{
    expect("gpt-2", "", "");
    expect("deepseek-llm", "", "");
}
END_TEST

START_TEST(an_unknown_name_is_refused_with_the_name)
{
    struct pretok *p;
    struct err e = {0};
    ck_assert_int_eq(pretok_new(STR_LIT("nonesuch"), &p, &e), ERR_UNSUPPORTED);
    ck_assert_str_eq(
        e.text, "pre-tokenizer 'nonesuch' is not supported; --tokenizer.pre NAME chooses one of "
                "gpt-2, smollm, llama-bpe, qwen2, qwen35, tekken, deepseek-llm, deepseek-coder, "
                "deepseek-v3");
    ck_assert_int_eq(pretok_new(STR_LIT("gpt-"), &p, &e), ERR_UNSUPPORTED);
    ck_assert_int_eq(pretok_new(STR_LIT(""), &p, &e), ERR_UNSUPPORTED);
}
END_TEST

START_TEST(the_caller_can_stop_early)
{
    struct pretok *p = make("gpt-2");
    struct pretok_work w = {0};
    struct pieces got = {.stop_after = 2};
    struct err e;
    ck_assert_int_eq(pretok_split(p, &w, STR_LIT("a b c d"), collect, &got, &e), OK);
    ck_assert_str_eq(got.text.ptr, "a| b");
    buf_release(&got.text);
    pretok_work_release(&w);
    pretok_free(p);
}
END_TEST

static const char *const names[] = {"gpt-2",        "smollm",         "llama-bpe",
                                    "qwen2",        "qwen35",         "tekken",
                                    "deepseek-llm", "deepseek-coder", "deepseek-v3"};
static const char *const units[] = {"a",
                                    "A",
                                    " ",
                                    "\n",
                                    "\r",
                                    "\t",
                                    "7",
                                    "'",
                                    ".",
                                    "\xcc\x81",
                                    "\xe4\xb8\xad",
                                    "\xf0\x9f\x98\x80",
                                    "\xe3\x80\x80",
                                    "aA",
                                    " a",
                                    " \n",
                                    "\xc2\xa0 ",
                                    "\xe2\x80\x99s",
                                    "A\xcc\x81",
                                    "\x01"};

/* 1 MiB of each unit, then the same with a letter behind it, which is what makes patterns that end in a
 * run of spaces try again. */
static void long_runs(bool jit)
{
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct pretok *p = make(names[k]);
        struct pretok_work w = {0};
        if (!jit)
            pretok_test_without_jit(p);
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            struct buf text = {0};
            struct err e = {0};
            while (text.len < 1u << 20)
                buf_add_c(&text, units[u]);
            for (int letter = 0; letter < 2; letter++) {
                struct pieces got = {0};
                ck_assert_msg(pretok_split(p, &w, buf_str(&text), count, &got, &e) == OK, "%s",
                              e.text);
                ck_assert_uint_eq(got.n_bytes, text.len);
                buf_add_c(&text, "x");
            }
            buf_release(&text);
        }
        pretok_work_release(&w);
        pretok_free(p);
    }
}

START_TEST(a_million_of_the_same_neither_fails_nor_loses_a_byte)
{
    long_runs(true);
}
END_TEST

START_TEST(the_same_without_jit)
{
    long_runs(false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pretok");
    TCase *c = tcase_create("all");
    tcase_add_test(c, each_family_cuts_its_own_way);
    tcase_add_test(c, empty_text_has_no_pieces);
    tcase_add_test(c, an_unknown_name_is_refused_with_the_name);
    tcase_add_test(c, the_caller_can_stop_early);
    tcase_add_test(c, a_million_of_the_same_neither_fails_nor_loses_a_byte);
    tcase_add_test(c, the_same_without_jit);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
