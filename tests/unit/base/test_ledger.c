/* base/ledger: bounds in total, per kind and per key, and that all memory is given back. */
#include <check.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/base_test.h"
#include "base/mem.h"
#include "base/thread.h"
#include "tests/unit/run_suite.h"

enum { KIB = 1024, TOTAL = 1024 * KIB, LARGE = TOTAL - TOTAL / 8 };

static const struct ledger_kind kinds[] = {{"all", 100}, {"some", 25}};

static struct ledger *make(void)
{
    struct ledger *l = ledger_new(kinds, 2, 4);
    ledger_set_total(l, TOTAL);
    return l;
}

static struct ledger_hold hold(struct ledger *l, uint32_t key, bool shared)
{
    return (struct ledger_hold){.ledger = l, .key = key, .shared = shared};
}

START_TEST(what_was_taken_is_counted_by_kind_and_key_and_comes_back)
{
    struct ledger *l = make();
    struct ledger_hold a = hold(l, 1, false), b = hold(l, LEDGER_NOBODY, false);
    struct err e;
    ck_assert_int_eq(ledger_take(&a, 0, 100, &e), OK);
    ck_assert_int_eq(ledger_take(&a, 1, 10, &e), OK);
    ck_assert_int_eq(ledger_take(&b, 0, 1000, &e), OK);
    ledger_add(&b, 1, 7);
    ck_assert_uint_eq(ledger_used(l), 1117);
    ck_assert_uint_eq(ledger_used_by_kind(l, 0), 1100);
    ck_assert_uint_eq(ledger_used_by_kind(l, 1), 17);
    ck_assert_uint_eq(ledger_used_by_key(l, 1), 110);
    ck_assert_int_eq(ledger_resize(&a, 0, 30, &e), OK);
    ck_assert_uint_eq(ledger_used_by_key(l, 1), 40);
    ck_assert_int_eq(ledger_resize(&a, 0, 50, &e), OK);
    ck_assert_uint_eq(ledger_used_by_key(l, 1), 60);
    ledger_give(&a, 0, 50);
    ledger_drop(&a);
    ledger_drop(&b);
    ck_assert_uint_eq(ledger_used(l), 0);
    ck_assert_uint_eq(ledger_used_by_key(l, 1), 0);
    ledger_free(l);
}
END_TEST

START_TEST(the_budget_ends_with_503_and_its_last_eighth_is_for_small_holds)
{
    struct ledger *l = make();
    struct ledger_hold large[2] = {hold(l, 0, false), hold(l, 0, false)}, small = large[0];
    struct err e;
    ck_assert_int_eq(ledger_take(&large[0], 0, LARGE - 100 * KIB, &e), OK);
    ck_assert_int_eq(ledger_take(&large[1], 0, 100 * KIB + 1, &e), ERR_NO_MEMORY);
    ck_assert_str_eq(e.code, "out_of_memory");
    ck_assert_int_eq(ledger_take(&large[1], 0, 100 * KIB, &e), OK);
    ck_assert_int_eq(ledger_take(&small, 0, LEDGER_SMALL_BYTES, &e), OK);
    ck_assert_int_eq(ledger_take(&small, 0, 1, &e), ERR_NO_MEMORY);
    ck_assert_uint_eq(ledger_used(l), LARGE + LEDGER_SMALL_BYTES);
    ck_assert_uint_eq(ledger_refusals(l, 0), 2);
    ledger_drop(&large[0]);
    ck_assert_int_eq(ledger_take(&small, 0, 1, &e), OK);
    ledger_drop(&large[1]);
    ledger_drop(&small);
    ledger_free(l);
}
END_TEST

START_TEST(what_could_never_be_had_is_413)
{
    struct ledger *l = make();
    struct ledger_hold h = hold(l, 0, false), shares = hold(l, 1, true);
    struct err e;
    ck_assert_int_eq(ledger_take(&h, 0, LARGE + 1, &e), ERR_TOO_LARGE);
    ck_assert_int_eq(ledger_take(&shares, 0, LARGE / 2 + 1, &e), ERR_TOO_LARGE);
    ck_assert_int_eq(ledger_take(&h, 0, UINT64_MAX / 2, &e), ERR_TOO_LARGE);
    ck_assert_int_eq(ledger_take(&h, 0, LARGE, &e), OK);
    ck_assert_int_eq(ledger_take(&h, 0, 1, &e), ERR_TOO_LARGE);
    ledger_drop(&h);
    ledger_free(l);
}
END_TEST

START_TEST(a_kind_has_its_share_and_no_more)
{
    struct ledger *l = make();
    struct ledger_hold h = hold(l, 0, false);
    struct err e;
    uint64_t share = TOTAL / 100 * 25;
    ck_assert_int_eq(ledger_take(&h, 1, share, &e), OK);
    ck_assert_int_eq(ledger_take(&h, 1, 1, &e), ERR_NO_MEMORY);
    ck_assert_int_eq(ledger_take(&h, 0, 1, &e), OK);
    ledger_drop(&h);
    ledger_free(l);
}
END_TEST

START_TEST(a_key_leaves_as_much_as_it_holds_and_a_new_one_finds_room)
{
    struct ledger *l = make();
    static struct ledger_hold greedy[TOTAL / KIB];
    uint32_t n_holds = 0;
    struct err e;
    uint64_t n[3] = {0, 0, 0};
    for (uint32_t key = 0; key < 3; key++) {
        for (;; n[key] += KIB) {
            greedy[n_holds] = hold(l, key, true);
            if (ledger_take(&greedy[n_holds], 0, KIB, &e))
                break;
            n_holds++;
        }
        ck_assert_int_eq(e.status, ERR_QUEUE_FULL);
        ck_assert_str_eq(e.code, "key_memory_full");
    }
    /* Each takes half of what those before it left: half, a quarter, an eighth. */
    for (uint32_t key = 0; key < 3; key++)
        ck_assert(n[key] <= (uint64_t)TOTAL >> (key + 1) &&
                  n[key] + 2 * KIB >= (uint64_t)TOTAL >> (key + 1));
    struct ledger_hold fresh = hold(l, 3, true);
    ck_assert_int_eq(ledger_take(&fresh, 0, 50 * KIB, &e), OK);
    while (n_holds)
        ledger_drop(&greedy[--n_holds]);
    ledger_drop(&fresh);
    ledger_free(l);
}
END_TEST

START_TEST(what_moves_to_another_key_stays_one_amount)
{
    struct ledger *l = make();
    struct ledger_hold a = hold(l, 1, true), b = hold(l, 2, true), big = hold(l, 2, true);
    struct ledger_hold nobody = hold(l, LEDGER_NOBODY, false);
    struct err e;
    ck_assert_int_eq(ledger_take(&a, 1, 100 * KIB, &e), OK);
    ck_assert_int_eq(ledger_move(&a, &b, &e), OK);
    ck_assert_uint_eq(ledger_used_by_key(l, 1), 0);
    ck_assert_uint_eq(ledger_used_by_key(l, 2), 100 * KIB);
    ck_assert_uint_eq(a.sum, 0);
    ck_assert_int_eq(ledger_move(&b, &nobody, &e), OK);
    ck_assert_uint_eq(ledger_used_by_key(l, 2), 0);
    ck_assert_uint_eq(ledger_used(l), 100 * KIB);
    /* A key that holds as much as is free takes nothing over. */
    ck_assert_int_eq(ledger_take(&big, 0, 440 * KIB, &e), OK);
    ck_assert_int_eq(ledger_move(&nobody, &b, &e), ERR_QUEUE_FULL);
    ck_assert_str_eq(e.code, "key_memory_full");
    ck_assert_uint_eq(ledger_used_by_key(l, 2), 440 * KIB);
    ck_assert_uint_eq(ledger_used_by_kind(l, 1), 100 * KIB);
    ledger_drop(&big);
    ck_assert_int_eq(ledger_move(&nobody, &b, &e), OK);
    ledger_drop(&b);
    ck_assert_uint_eq(ledger_used(l), 0);
    ck_assert_uint_eq(ledger_used_by_kind(l, 1), 0);
    ledger_free(l);
}
END_TEST

START_TEST(a_hold_without_a_ledger_takes_what_it_likes)
{
    struct ledger_hold h = {.ledger = NULL};
    struct err e;
    ck_assert_int_eq(ledger_take(&h, 0, UINT64_MAX, &e), OK);
    ck_assert(ledger_has_room(&h, UINT64_MAX));
    ledger_give(&h, 0, 5);
    ledger_drop(&h);
}
END_TEST

static void take_and_give(void *arg)
{
    struct ledger_hold h = hold(arg, 2, true);
    struct err e;
    for (int i = 0; i < 20000; i++) {
        if (ledger_take(&h, 0, 10 * KIB, &e) == OK && i % 5 == 0)
            ledger_drop(&h);
        EXPECT(ledger_used_by_key(h.ledger, 2) <=
               TOTAL / 2 + 4 * 10 * KIB); /* raised, then looked at */
    }
    EXPECT(h.sum <= TOTAL / 2);
    ledger_drop(&h);
}

START_TEST(threads_that_take_together_pass_no_bound)
{
    struct ledger *l = make();
    struct thread t[4];
    struct err e;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(thread_start(&t[i], "take", take_and_give, l, &e), OK);
    for (int i = 0; i < 4; i++)
        thread_join(&t[i]);
    ck_assert_uint_eq(ledger_used(l), 0);
    ledger_free(l);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/ledger");
    TCase *t = tcase_create("ledger");
    tcase_add_test(t, what_was_taken_is_counted_by_kind_and_key_and_comes_back);
    tcase_add_test(t, the_budget_ends_with_503_and_its_last_eighth_is_for_small_holds);
    tcase_add_test(t, what_could_never_be_had_is_413);
    tcase_add_test(t, a_kind_has_its_share_and_no_more);
    tcase_add_test(t, a_key_leaves_as_much_as_it_holds_and_a_new_one_finds_room);
    tcase_add_test(t, what_moves_to_another_key_stays_one_amount);
    tcase_add_test(t, a_hold_without_a_ledger_takes_what_it_likes);
    tcase_add_test(t, threads_that_take_together_pass_no_bound);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
