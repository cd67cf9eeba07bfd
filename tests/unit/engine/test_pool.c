/* The worker pool: every item runs once, results are visible, one stuck item delays no other. */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/cpu/pool.h"
#include "tests/unit/run_suite.h"

enum { MAX_ITEMS = 3000 };

struct tally {
    uint32_t count[MAX_ITEMS]; /* plain: an item is run by one worker, and seen after the run */
    uint32_t n_threads;
    _Atomic uint32_t others_done, wrong_worker;
    uint32_t n_items;
};

static void count_item(void *ctx, uint32_t item, uint32_t worker)
{
    struct tally *t = ctx;
    t->count[item]++;
    if (worker >= t->n_threads)
        atomic_fetch_add(&t->wrong_worker, 1);
}

START_TEST(every_item_runs_once_in_thousands_of_runs)
{
    struct pool *p;
    struct err e;
    struct tally *t = mem_zalloc(sizeof *t);
    t->n_threads = (uint32_t)_i;
    ck_assert_int_eq(pool_new(t->n_threads, _i == 2, &p, &e), OK);
    ck_assert_uint_eq(pool_threads(p), t->n_threads);
    uint32_t expected[MAX_ITEMS] = {0};
    for (uint32_t run = 0; run < 4000; run++) {
        uint32_t n = run % 500 == 0 ? MAX_ITEMS : run * 7 % 23;
        pool_run(p, count_item, t, n);
        for (uint32_t i = 0; i < n; i++)
            ck_assert_uint_eq(t->count[i], ++expected[i]);
    }
    ck_assert_uint_eq(atomic_load(&t->wrong_worker), 0);
    pool_free(p);
    mem_free(t);
}
END_TEST

/* Item 0 ends only when all others are done: its thread must not own any of them. */
static void stuck_item(void *ctx, uint32_t item, uint32_t worker)
{
    struct tally *t = ctx;
    (void)worker;
    if (item != 0) {
        atomic_fetch_add(&t->others_done, 1);
        return;
    }
    while (atomic_load(&t->others_done) < t->n_items - 1)
        ;
}

START_TEST(a_stuck_item_delays_no_other)
{
    struct pool *p;
    struct err e;
    struct tally *t = mem_zalloc(sizeof *t);
    ck_assert_int_eq(pool_new(2, false, &p, &e), OK);
    for (t->n_items = 2; t->n_items < 200; t->n_items += 13) {
        atomic_store(&t->others_done, 0);
        pool_run(p, stuck_item, t, t->n_items);
        ck_assert_uint_eq(atomic_load(&t->others_done), t->n_items - 1);
    }
    pool_free(p);
    mem_free(t);
}
END_TEST

START_TEST(a_new_pool_can_be_freed_at_once)
{
    for (int i = 0; i < 50; i++) {
        struct pool *p;
        struct err e;
        ck_assert_int_eq(pool_new(1 + (uint32_t)i % 5, false, &p, &e), OK);
        pool_free(p);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool");
    TCase *c = tcase_create("all");
    tcase_add_loop_test(c, every_item_runs_once_in_thousands_of_runs, 1, 6);
    tcase_add_test(c, a_stuck_item_delays_no_other);
    tcase_add_test(c, a_new_pool_can_be_freed_at_once);
    suite_add_tcase(s, c);
    return run_suite(s);
}
