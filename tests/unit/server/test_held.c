/* server/held: scores are reported with the text of their tokens. */
#include <check.h>
#include <string.h>

#include "server/api/held.h"
#include "tests/unit/engine/tok_fixture.h"
#include "tests/unit/run_suite.h"

static struct fixture fx;
static struct held held;

static void setup(void)
{
    fx_bpe(&fx, "gpt-2");
    held_init(&held, fx.t, true);
}

static void teardown(void)
{
    held_release(&held);
    held = (struct held){0};
    fx_release(&fx);
}

/* The token of a byte, with one alternative, and how much text came with it. */
static void add(char byte, uint32_t n_text)
{
    struct {
        struct event ev;
        char text[8];
        struct event_top top;
    } record = {.ev = {.token = (uint8_t)byte, .n_text = n_text, .n_top = 1, .logprob = -1}};
    struct event_top top = {(uint8_t)byte + 1, -2};
    memcpy(record.text + ((n_text + 3u) & ~3u), &top, sizeof(top));
    held_add(&held, &record.ev, true, true);
}

static void expect_taken(const char *bytes, bool all)
{
    const struct event *ev;
    size_t n = 0;
    for (; (ev = held_take(&held, all)); n++) {
        EXPECT(bytes[n] && ev->token == (uint8_t)bytes[n] && ev->n_text == 0 && ev->logprob == -1);
        EXPECT(ev->n_top == 1 && event_tops(ev)->token == (uint8_t)bytes[n] + 1);
        EXPECT(event_tops(ev)->logprob == -2);
    }
    EXPECT(n == strlen(bytes));
}

START_TEST(scores_come_with_their_text_and_the_rest_when_asked_for)
{
    add('a', 1);
    expect_taken("a", false);
    add('b', 0);
    add('c', 0);
    expect_taken("", false);
    add('d', 2); /* "bc" */
    expect_taken("bc", false);
    expect_taken("d", true);
    expect_taken("", true);
}
END_TEST

START_TEST(a_token_of_which_a_part_is_told_is_told)
{
    add('a', 0);
    add('\xC3', 0);
    add('\xA9', 1); /* "a": the character is still held */
    expect_taken("a", false);
    add('b', 2); /* the character */
    expect_taken("\xC3\xA9", false);
}
END_TEST

START_TEST(a_stream_of_which_something_is_always_held_keeps_its_memory)
{
    add('a', 0);
    size_t cap = 0;
    for (int i = 0; i < 100000; i++) {
        add('a', 1);
        expect_taken("a", false);
        cap = i == 10 ? held.records.cap : cap;
    }
    ck_assert_uint_eq(held.records.cap, cap);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/held");
    TCase *t = tcase_create("held");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, scores_come_with_their_text_and_the_rest_when_asked_for);
    tcase_add_test(t, a_token_of_which_a_part_is_told_is_told);
    tcase_add_test(t, a_stream_of_which_something_is_always_held_keeps_its_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
