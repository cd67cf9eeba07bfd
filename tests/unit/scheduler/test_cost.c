/* The cost model learns the line that it is shown, keeps it, and never gives absurd values. */
#include <stdlib.h>

#include "tests/unit/run_suite.h"
#include "base/clock.h"
#include "scheduler/cost.h"

static uint64_t line(uint32_t n_rows, uint64_t kv)
{
    return 8 * NS_PER_MS + n_rows * 700000ull + kv * 40;
}

static void expect_near(const struct cost *c, uint32_t n_rows, uint64_t kv, double within)
{
    double truth = (double)line(n_rows, kv), said = cost_step_ns(c, n_rows, kv);
    ck_assert_msg(said > truth * (1 - within) && said < truth * (1 + within),
                  "%u rows, %llu positions: %.2f ms, truth %.2f", n_rows, (unsigned long long)kv,
                  said / 1e6, truth / 1e6);
}

START_TEST(before_anything_is_known_the_prior_fills_the_target)
{
    struct cost c;
    cost_init(&c, 200 * NS_PER_MS, 64);
    ck_assert_uint_eq(cost_rows(&c, 200e6, 0), 64);
    ck_assert_uint_eq(cost_rows(&c, 0, 0), 0);
    ck_assert_uint_eq(cost_rows(&c, -5e6, 100), 0);
}
END_TEST

START_TEST(mixed_steps_give_the_line)
{
    struct cost c;
    srand(3);
    cost_init(&c, 200 * NS_PER_MS, 64);
    for (int i = 0; i < 200; i++) {
        uint32_t n_rows = 1 + (uint32_t)rand() % 300;
        uint64_t kv = (uint64_t)rand() % 200000;
        double noise = 0.95 + 0.1 * rand() / RAND_MAX;
        cost_observe(&c, n_rows, kv, (uint64_t)((double)line(n_rows, kv) * noise));
    }
    expect_near(&c, 1, 100, 0.4);
    expect_near(&c, 64, 20000, 0.1);
    expect_near(&c, 256, 100000, 0.1);
}
END_TEST

START_TEST(long_decoding_does_not_forget_what_prefill_costs)
{
    struct cost c;
    cost_init(&c, 200 * NS_PER_MS, 64);
    for (uint32_t i = 0; i < 20; i++)
        cost_observe(&c, 200 + i, i * 2000, line(200 + i, i * 2000));
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t kv = 16 * (100 + i * 37 % 500);
        cost_observe(&c, 16, kv, line(16, kv));
    }
    expect_near(&c, 200, 20000, 0.1);
    expect_near(&c, 16, 6000, 0.1);
}
END_TEST

START_TEST(rows_that_fit_keep_within_what_is_left)
{
    struct cost c;
    cost_init(&c, 200 * NS_PER_MS, 64);
    for (uint32_t i = 0; i < 300; i++)
        cost_observe(&c, 1 + i, i * 100, line(1 + i, i * 100));
    for (uint32_t pos = 0; pos < 100000; pos += 997) {
        uint32_t n = cost_rows(&c, 100e6, pos);
        double took = c.row_ns * n + c.kv_ns * (double)cost_kv_read(pos, n);
        ck_assert_double_le(took, 100e6 * 1.001);
        if (pos < 10000)
            ck_assert_double_ge(took, 80e6);
    }
}
END_TEST

START_TEST(a_stopped_process_does_not_blow_the_model_up)
{
    struct cost c;
    cost_init(&c, 200 * NS_PER_MS, 64);
    for (uint32_t i = 0; i < 200; i++)
        cost_observe(&c, 1 + i, 0, line(1 + i, 0));
    cost_observe(&c, 100, 0, 3600 * NS_PER_S);
    ck_assert_double_lt(cost_step_ns(&c, 100, 0), 2.5 * (double)line(100, 0));
    for (uint32_t i = 0; i < 60; i++)
        cost_observe(&c, 100, 0, line(100, 0));
    expect_near(&c, 100, 0, 0.1);
}
END_TEST

START_TEST(wild_times_never_give_a_negative_or_endless_cost)
{
    struct cost c;
    srand(5);
    cost_init(&c, NS_PER_MS, 64);
    for (int i = 0; i < 5000; i++) {
        cost_observe(&c, 1 + (uint32_t)rand() % 100000, (uint64_t)rand(),
                     (uint64_t)rand() % 1000000000);
        ck_assert(c.base_ns >= 0 && c.kv_ns >= 0 && c.row_ns > 0);
        ck_assert(c.base_ns < 1e13 && c.kv_ns < 1e13 && c.row_ns < 1e13);
    }
}
END_TEST

/* Share of steps of 100 rows that take longer than the target, when each is planned as the model says. */
static double late_steps(double waver)
{
    enum { LEARN = 200, N = 2000 };
    struct cost c;
    uint32_t n_late = 0;
    srand(7);
    cost_init(&c, 200 * NS_PER_MS, 64);
    for (uint32_t i = 0; i < LEARN + N; i++) {
        uint32_t n_rows = cost_rows(&c, cost_budget_ns(&c) - c.base_ns, 0);
        uint64_t kv = cost_kv_read(0, n_rows);
        double times = 1 - waver + 2 * waver * rand() / RAND_MAX;
        uint64_t took = (uint64_t)((double)line(n_rows, kv) * times);
        n_late += i >= LEARN && took > 201 * NS_PER_MS;
        cost_observe(&c, n_rows, kv, took);
    }
    return (double)n_late / N;
}

START_TEST(on_a_wavering_machine_few_steps_take_longer_than_their_target)
{
    ck_assert_double_lt(late_steps(0.2), 0.1);
    ck_assert_double_eq(late_steps(0), 0);
}
END_TEST

START_TEST(an_exact_model_gives_all_of_the_target)
{
    struct cost c;
    cost_init(&c, 200 * NS_PER_MS, 64);
    for (uint32_t i = 0; i < 500; i++)
        cost_observe(&c, 300, 0, (uint64_t)(cost_step_ns(&c, 300, 0) * (i % 2 ? 0.999 : 1)));
    ck_assert_double_le(c.over, 1.05);
    cost_observe(&c, 300, 0, 3600 * NS_PER_S);
    ck_assert_double_le(c.over, 1.05);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/cost");
    TCase *tc = tcase_create("cost");
    tcase_add_test(tc, before_anything_is_known_the_prior_fills_the_target);
    tcase_add_test(tc, mixed_steps_give_the_line);
    tcase_add_test(tc, long_decoding_does_not_forget_what_prefill_costs);
    tcase_add_test(tc, rows_that_fit_keep_within_what_is_left);
    tcase_add_test(tc, a_stopped_process_does_not_blow_the_model_up);
    tcase_add_test(tc, wild_times_never_give_a_negative_or_endless_cost);
    tcase_add_test(tc, on_a_wavering_machine_few_steps_take_longer_than_their_target);
    tcase_add_test(tc, an_exact_model_gives_all_of_the_target);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
