/* server/think: reasoning and answer are the same for every cut. */
#include <check.h>
#include <string.h>

#include "server/api/think.h"
#include "base/base_test.h"
#include "tests/unit/run_suite.h"

static void check_cut(const char *text, size_t a, size_t b, bool opened, const char *reasoning,
                      const char *rest)
{
    struct think t = {.state = opened ? THINK_INSIDE : THINK_START};
    struct buf r = {0}, o = {0};
    think_feed(&t, (struct str){text, a}, &r, &o);
    think_feed(&t, (struct str){text + a, b - a}, &r, &o);
    think_feed(&t, (struct str){text + b, strlen(text) - b}, &r, &o);
    think_end(&t, &r, &o);
    ck_assert_msg(str_eq_c(buf_str(&r), reasoning) && str_eq_c(buf_str(&o), rest),
                  "%s\ncut at %zu and %zu gives %.*s and %.*s", text, a, b, (int)r.len,
                  r.ptr ? r.ptr : "", (int)o.len, o.ptr ? o.ptr : "");
    buf_release(&r);
    buf_release(&o);
    buf_release(&t.held);
}

static void check(const char *text, bool opened, const char *reasoning, const char *rest)
{
    size_t n = strlen(text);
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++)
            check_cut(text, a, b, opened, reasoning, rest);
}

START_TEST(reasoning_is_split_for_every_cut)
{
    check("<think>\nI see. \n</think>\n\nYes. ", false, "I see.", "Yes. ");
    check(" \n<think>a < b </thin k> c\n\nd</think>x", false, "a < b </thin k> c\n\nd", "x");
    check("on and\non</think>done", true, "on and\non", "done");
    check("<think></think>\n\nplain", false, "", "plain");
    check("<think>cut off \n", false, "cut off", "");
    check("<think>cut </thi", false, "cut </thi", "");
    check("x</think>y<think>z</think>", true, "x", "y<think>z</think>");
    check("<think>only</think>\n", false, "only", "");
}
END_TEST

START_TEST(text_without_reasoning_is_unchanged)
{
    static const char *const texts[] = {
        "", "plain", " \n plain ", "<thin", "<thinx", "a <think> b</think>", "</think> x", " "};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check(texts[i], false, "", texts[i]);
}
END_TEST

START_TEST(a_prompt_may_open_reasoning)
{
    EXPECT(think_is_open(STR_LIT("<|im_start|>assistant\n<think>\n")));
    EXPECT(think_is_open(STR_LIT("<think>")));
    EXPECT(!think_is_open(STR_LIT("<think>\n\n</think>\n\n")));
    EXPECT(!think_is_open(STR_LIT("think>")) && !think_is_open(STR_LIT("")));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/think");
    TCase *t = tcase_create("think");
    suite_add_tcase(s, t);
    tcase_add_test(t, reasoning_is_split_for_every_cut);
    tcase_add_test(t, text_without_reasoning_is_unchanged);
    tcase_add_test(t, a_prompt_may_open_reasoning);
    return run_suite(s);
}
