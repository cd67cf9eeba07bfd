/* Blocks, tables, forks, claims: the life of a block, and every abort on misuse. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/run_suite.h"
#include "base/mem.h"
#include "kvpool/kvpool.h"

static struct kv_pool pool;
static struct kv_claim claim;

static void setup(void)
{
    kv_pool_init(&pool, 16, 4);
    ck_assert(kv_claim_try(&pool, &claim, 12));
}

static void expect_sound(void)
{
    struct err e;
    ck_assert_msg(kv_audit(&pool, &e) == OK, "%s", e.text);
}

static void grow(struct kv_table *t, uint32_t n, bool copies)
{
    struct kv_copy copy;
    ck_assert_int_eq(kv_table_grow(&pool, t, &claim, n, &copy), copies);
    expect_sound();
    kv_table_retire(&pool, t);
    expect_sound();
}

START_TEST(a_block_goes_from_free_to_open_to_sealed_to_ready_and_back)
{
    struct kv_table t;
    struct kv_copy copy;
    kv_table_init(&pool, &t, 8);
    ck_assert(!kv_table_grow(&pool, &t, &claim, 3, &copy));
    const struct kv_block *b = &pool.block[t.block[0]];
    ck_assert_int_eq(b->state, KV_OPEN);
    ck_assert_uint_eq(b->pin, 1);
    kv_table_retire(&pool, &t);
    ck_assert_uint_eq(b->pin, 0);
    ck_assert(!kv_table_grow(&pool, &t, &claim, 1, &copy));
    ck_assert_int_eq(b->state, KV_SEALED);
    kv_table_retire(&pool, &t);
    ck_assert_int_eq(b->state, KV_READY);
    uint32_t generation = b->generation;
    kv_table_drop(&pool, &t);
    ck_assert_int_eq(b->state, KV_FREE);
    ck_assert_uint_eq(b->generation, generation + 1);
    expect_sound();
    kv_table_release(&pool, &t);
    kv_claim_release(&pool, &claim);
    kv_pool_release(&pool);
}
END_TEST

START_TEST(a_fork_shares_full_blocks_and_copies_the_open_tail_once_per_sharer_but_the_last)
{
    struct kv_table t[3];
    for (int i = 0; i < 3; i++)
        kv_table_init(&pool, &t[i], 8);
    grow(&t[0], 6, false);
    kv_table_fork(&pool, &t[0], &t[1]);
    kv_table_fork(&pool, &t[0], &t[2]);
    expect_sound();
    ck_assert_uint_eq(pool.n_free, 14);
    ck_assert_uint_eq(pool.block[t[0].block[1]].ref, 3);
    struct kv_copy copy;
    ck_assert(kv_table_grow(&pool, &t[1], &claim, 1, &copy));
    ck_assert_uint_eq(copy.src, t[0].block[1]);
    ck_assert_uint_eq(copy.dst, t[1].block[1]);
    kv_table_retire(&pool, &t[1]);
    grow(&t[0], 1, true);
    grow(&t[2], 1, false);
    ck_assert_uint_eq(t[2].block[1], copy.src);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(t[i].block[0], t[0].block[0]);
    ck_assert_uint_eq(pool.n_free, 12);
    kv_table_drop(&pool, &t[0]);
    expect_sound();
    ck_assert_uint_eq(pool.n_free, 13);
    for (int i = 0; i < 3; i++) {
        kv_table_drop(&pool, &t[i]);
        kv_table_release(&pool, &t[i]);
    }
    kv_claim_release(&pool, &claim);
    kv_pool_release(&pool);
}
END_TEST

START_TEST(a_fork_at_a_block_border_copies_nothing)
{
    struct kv_table t[2];
    for (int i = 0; i < 2; i++)
        kv_table_init(&pool, &t[i], 8);
    grow(&t[0], 8, false);
    kv_table_fork(&pool, &t[0], &t[1]);
    ck_assert_uint_eq(kv_table_need(&pool, &t[1], 9), 1);
    grow(&t[1], 1, false);
    grow(&t[0], 5, false);
    for (int i = 0; i < 2; i++) {
        kv_table_drop(&pool, &t[i]);
        kv_table_release(&pool, &t[i]);
    }
    kv_claim_release(&pool, &claim);
    kv_pool_release(&pool);
}
END_TEST

START_TEST(what_is_promised_cannot_be_promised_again)
{
    struct kv_claim more = {0};
    ck_assert_uint_eq(kv_available(&pool), 4);
    ck_assert(!kv_claim_try(&pool, &more, 5));
    ck_assert(kv_claim_try(&pool, &more, 4));
    kv_claim_trim(&pool, &claim, 2);
    ck_assert_uint_eq(kv_available(&pool), 10);
    kv_claim_trim(&pool, &claim, 7);
    ck_assert_uint_eq(claim.n_left, 2);
    expect_sound();
    kv_claim_release(&pool, &more);
    kv_claim_release(&pool, &claim);
    kv_claim_release(&pool, &claim);
    ck_assert_uint_eq(kv_available(&pool), 16);
    kv_pool_release(&pool);
}
END_TEST

/* Random growth, forks, drops; the model is the list of each table's lengths, and who wrote what. */
START_TEST(random_use_keeps_every_invariant)
{
    enum { N = 8 };
    srand((unsigned)_i);
    kv_claim_release(&pool, &claim);
    struct kv_table t[N];
    struct kv_claim c[N] = {0};
    uint32_t len[N] = {0};
    for (int i = 0; i < N; i++)
        kv_table_init(&pool, &t[i], 16);
    for (int op = 0; op < 3000; op++) {
        int i = rand() % N, j = rand() % N;
        uint32_t n = 1 + (uint32_t)rand() % 9;
        uint32_t need = kv_table_need(&pool, &t[i], len[i] + n);
        if (rand() % 4 == 0) {
            kv_table_drop(&pool, &t[i]);
            len[i] = 0;
        } else if (rand() % 4 == 0 && i != j && len[j] == 0) {
            kv_table_fork(&pool, &t[i], &t[j]);
            len[j] = len[i];
        } else if (len[i] + n <= 64 && kv_claim_try(&pool, &c[i], need)) {
            struct kv_copy copy;
            kv_table_grow(&pool, &t[i], &c[i], n, &copy);
            ck_assert_uint_eq(c[i].n_left, 0);
            len[i] += n;
            expect_sound();
            kv_table_retire(&pool, &t[i]);
            kv_claim_release(&pool, &c[i]);
        }
        expect_sound();
        for (int k = 0; k < N; k++)
            ck_assert_uint_eq(t[k].n_tokens, len[k]);
    }
    for (int i = 0; i < N; i++) {
        kv_table_drop(&pool, &t[i]);
        kv_table_release(&pool, &t[i]);
    }
    ck_assert_uint_eq(pool.n_written, 0);
    kv_pool_release(&pool);
}
END_TEST

START_TEST(use_after_free_aborts)
{
    struct kv_table t;
    kv_table_init(&pool, &t, 8);
    grow(&t, 2, false);
    struct kv_handle h = kv_table_at(&t, 0);
    kv_table_drop(&pool, &t);
    kv_deref(&pool, h);
}
END_TEST

START_TEST(a_stale_handle_aborts_even_when_the_block_lives_again)
{
    struct kv_table t;
    kv_table_init(&pool, &t, 8);
    grow(&t, 2, false);
    struct kv_handle h = kv_table_at(&t, 0);
    kv_table_drop(&pool, &t);
    grow(&t, 2, false);
    ck_assert_uint_eq(t.block[0], h.index);
    kv_deref(&pool, h);
}
END_TEST

START_TEST(freeing_a_block_that_a_step_writes_aborts)
{
    struct kv_table t;
    struct kv_copy copy;
    kv_table_init(&pool, &t, 8);
    kv_table_grow(&pool, &t, &claim, 2, &copy);
    kv_table_drop(&pool, &t);
}
END_TEST

START_TEST(writing_a_shared_block_aborts)
{
    struct kv_table t[2];
    for (int i = 0; i < 2; i++)
        kv_table_init(&pool, &t[i], 8);
    grow(&t[0], 2, false);
    kv_table_fork(&pool, &t[0], &t[1]);
    kv_block_fill(&pool, kv_table_at(&t[0], 0), 1);
}
END_TEST

START_TEST(taking_more_than_was_promised_aborts)
{
    struct kv_table t;
    struct kv_copy copy;
    kv_table_init(&pool, &t, 16);
    kv_table_grow(&pool, &t, &claim, 49, &copy);
}
END_TEST

START_TEST(releasing_a_pool_in_use_aborts)
{
    struct kv_table t;
    kv_table_init(&pool, &t, 8);
    grow(&t, 2, false);
    kv_pool_release(&pool);
}
END_TEST

START_TEST(the_ledger_names_every_table)
{
    struct kv_table t;
    struct buf out = {0};
    kv_table_init(&pool, &t, 8);
    grow(&t, 6, false);
    kv_dump(&pool, &out);
    ck_assert_ptr_nonnull(
        strstr(out.ptr, "16 blocks of 4 slots, 10 promised, 14 free, 1 open, 0 sealed, 1 ready"));
    ck_assert_ptr_nonnull(strstr(
        out.ptr, "table of 6 tokens (6 retired): 0.0(ready ref 1 pin 0) 1.0(open ref 1 pin 0)"));
    buf_release(&out);
    kv_table_drop(&pool, &t);
    kv_table_release(&pool, &t);
    kv_claim_release(&pool, &claim);
    kv_pool_release(&pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kvpool/pool");
    TCase *tc = tcase_create("pool");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, a_block_goes_from_free_to_open_to_sealed_to_ready_and_back);
    tcase_add_test(tc,
                   a_fork_shares_full_blocks_and_copies_the_open_tail_once_per_sharer_but_the_last);
    tcase_add_test(tc, a_fork_at_a_block_border_copies_nothing);
    tcase_add_test(tc, what_is_promised_cannot_be_promised_again);
    tcase_add_loop_test(tc, random_use_keeps_every_invariant, 0, 10);
    tcase_add_test(tc, the_ledger_names_every_table);
    tcase_add_test_raise_signal(tc, use_after_free_aborts, SIGABRT);
    tcase_add_test_raise_signal(tc, a_stale_handle_aborts_even_when_the_block_lives_again, SIGABRT);
    tcase_add_test_raise_signal(tc, freeing_a_block_that_a_step_writes_aborts, SIGABRT);
    tcase_add_test_raise_signal(tc, writing_a_shared_block_aborts, SIGABRT);
    tcase_add_test_raise_signal(tc, taking_more_than_was_promised_aborts, SIGABRT);
    tcase_add_test_raise_signal(tc, releasing_a_pool_in_use_aborts, SIGABRT);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
