/* Hits in the prefix index and their visibility: hits at every offset with and without windows, tenants and
 * salts, forced collisions, prompts that arrive together, blocks that are overwritten when they are free. */
#include "tests/unit/scheduler/pressure.h"

static struct rig g;

static struct rig_options windowed(uint32_t kind, uint32_t window)
{
    struct rig_options opt = rig_defaults();
    opt.prefix = true;
    opt.n_slots = 8;
    opt.n_blocks = 4096; /* nothing is evicted */
    opt.n_groups = kind == 2 ? 2 : 1;
    opt.window[kind == 2] = kind ? window : 0;
    return opt;
}

/* Prompt tokens that came from the index. */
static uint32_t cached(struct request *r)
{
    struct ran o = run_alone(&g, r);
    ck_assert_int_eq(o.status, OK);
    request_unref(r);
    return o.n_cached;
}

START_TEST(a_prompt_hits_at_every_offset_what_it_shares)
{
    static const uint32_t windows[] = {0, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 40};
    for (uint32_t kind = 0; kind < 3; kind++) {
        struct rig_options opt = windowed(kind, windows[_i]);
        if (kind && !windows[_i])
            continue;
        rig_init(&g, &opt);
        ck_assert_uint_eq(cached(prompt_of(&g, 1, 100, 0, 3)), 0);
        for (uint32_t shared = 0; shared <= 100; shared++) {
            uint32_t most = shared < 100 ? shared : 99; /* the last token is always computed */
            uint32_t n = cached(prompt_of(&g, 1, shared, shared + 2, 100 - shared + 1));
            ck_assert_msg(n == (shared <= 100 ? shared / 8 * 8 : most),
                          "kind %u, window %u: %u of %u shared tokens", kind, windows[_i], n,
                          shared);
        }
        ck_assert_uint_eq(cached(prompt_of(&g, 1, 100, 0, 0)), 96);
        ck_assert_uint_eq(cached(prompt_of(&g, 1, 96, 0, 0)), 88); /* the 96th is computed */
        rig_release(&g);
    }
}
END_TEST

START_TEST(the_tokens_a_choice_made_are_hit_by_the_next_turn_of_the_talk)
{
    for (uint32_t kind = 0; kind < 3; kind++) {
        struct rig_options opt = windowed(kind, 20);
        rig_init(&g, &opt);
        int32_t talk[400];
        uint32_t n = 30;
        for (uint32_t i = 0; i < n; i++)
            talk[i] = (int32_t)(i * 7 % 1000);
        for (uint32_t round = 0; round < 6; round++) {
            struct request *r = rig_request(&g, talk, n, 20);
            struct ran o = run_alone(&g, r);
            /* all but the last token sampled have been computed */
            ck_assert_uint_eq(o.n_cached, round ? (n - 10 - 1) / 8 * 8 : 0);
            memcpy(talk + n, o.token, 20 * sizeof(int32_t));
            n += 20;
            for (uint32_t i = 0; i < 10; i++, n++)
                talk[n] = (int32_t)(n * 13 % 1000);
            request_unref(r);
        }
        rig_release(&g);
    }
}
END_TEST

static struct request *salted(uint32_t family, uint32_t salt)
{
    struct request *r = prompt_of(&g, family, 64, 0, 4);
    if (salt > 0) {
        r->salt = mem_dup(&salt, sizeof(salt));
        r->n_salt_bytes = sizeof(salt);
    }
    return r;
}

START_TEST(two_salts_share_nothing_and_one_salt_shares)
{
    struct rig_options opt = windowed((uint32_t)_i, 20);
    opt.key_bits = 8;
    rig_init(&g, &opt);
    for (uint32_t i = 0; i < 20; i++) {
        for (uint32_t salt = 0; salt < 3; salt++)
            ck_assert_uint_eq(cached(salted(i, salt)), 0);
        for (uint32_t salt = 0; salt < 3; salt++)
            ck_assert_uint_gt(cached(salted(i, salt)), 0);
    }
    rig_release(&g);
}
END_TEST

START_TEST(keys_of_eight_bits_cost_hits_and_never_a_wrong_token)
{
    struct rig_options opt = windowed((uint32_t)_i, 20);
    opt.key_bits = 8;
    rig_init(&g, &opt);
    uint32_t n_hit = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 200; i++) /* 800 blocks under 256 keys */
            n_hit += cached(prompt_of(&g, i, 32, 0, 1));
    }
    ck_assert_uint_gt(n_hit, 0);
    rig_release(&g);
}
END_TEST

START_TEST(without_the_index_nothing_is_hit)
{
    struct rig_options opt = windowed((uint32_t)_i, 20);
    opt.prefix = false;
    rig_init(&g, &opt);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(cached(prompt_of(&g, 1, 100, 0, 3)), 0);
    rig_release(&g);
}
END_TEST

static uint64_t n_rows;

static void count_rows(void *arg, const struct batch *b)
{
    (void)arg;
    n_rows += b->n_rows;
}

START_TEST(sixty_four_equal_prompts_at_once_are_computed_once)
{
    struct rig_options opt = windowed((uint32_t)_i, 20);
    rig_init(&g, &opt);
    n_rows = 0;
    fake_set_watch(g.be, count_rows, NULL);
    struct request *r[64];
    struct ran o[64];
    for (uint32_t i = 0; i < 64; i++)
        rig_submit(&g, r[i] = prompt_of(&g, 1, 200, 0, 1));
    run_all(&g, r, o, 64);
    for (uint32_t i = 0; i < 64; i++) {
        ck_assert_int_eq(o[i].status, OK);
        ck_assert_uint_eq(o[i].n_cached, i ? 200 : 0);
        request_unref(r[i]);
    }
    /* 200 shared rows once, then the own token and the 3 that follow it of each */
    ck_assert_uint_eq(n_rows, 200 + 64 * 4);
    rig_release(&g);
}
END_TEST

START_TEST(a_prompt_whose_first_reader_is_cancelled_is_computed_by_the_next)
{
    struct rig_options opt = windowed((uint32_t)_i, 20);
    opt.limits.chunk_max = 16;
    rig_init(&g, &opt);
    struct request *r[8];
    struct ran o[8];
    for (uint32_t i = 0; i < 8; i++)
        rig_submit(&g, r[i] = prompt_of(&g, 1, 200, 0, 1));
    for (uint32_t i = 0; i < 3; i++)
        sched_turn(g.s);
    sched_cancel(g.s, r[0]);
    run_all(&g, r, o, 8);
    ck_assert_int_eq(o[0].status, ERR_CANCELLED);
    for (uint32_t i = 1; i < 8; i++)
        ck_assert_int_eq(o[i].status, OK);
    for (uint32_t i = 0; i < 8; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

static bool bad_at(uint64_t chain)
{
    int32_t history[21];
    for (uint32_t i = 0; i < 21; i++)
        history[i] = token_of(&g, 1, i);
    return chain != fake_chain(history, 21);
}

START_TEST(a_prompt_with_values_that_are_not_finite_fails_alone_and_is_never_shared)
{
    struct rig_options opt = windowed((uint32_t)_i, 20);
    opt.fake.kv_finite = bad_at;
    rig_init(&g, &opt);
    for (uint32_t round = 0; round < 2; round++) {
        struct request *bad = prompt_of(&g, 1, 60, 0, 1), *good = prompt_of(&g, 1, 20, 9, 41);
        struct request *r[2] = {bad, good};
        struct ran o[2];
        rig_submit(&g, bad);
        rig_submit(&g, good);
        run_all(&g, r, o, 2);
        ck_assert_int_eq(o[0].status, ERR_NUMERIC);
        ck_assert_int_eq(o[1].status, OK);
        ck_assert_uint_le(o[1].n_cached, round ? 56 : 16);
        request_unref(bad);
        request_unref(good);
    }
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/prefix");
    TCase *tc = tcase_create("prefix");
    tcase_add_loop_test(tc, a_prompt_hits_at_every_offset_what_it_shares, 0, 13);
    tcase_add_test(tc, the_tokens_a_choice_made_are_hit_by_the_next_turn_of_the_talk);
    tcase_add_loop_test(tc, two_salts_share_nothing_and_one_salt_shares, 0, 3);
    tcase_add_loop_test(tc, keys_of_eight_bits_cost_hits_and_never_a_wrong_token, 0, 3);
    tcase_add_loop_test(tc, without_the_index_nothing_is_hit, 0, 3);
    tcase_add_loop_test(tc, sixty_four_equal_prompts_at_once_are_computed_once, 0, 3);
    tcase_add_loop_test(tc, a_prompt_whose_first_reader_is_cancelled_is_computed_by_the_next, 0, 3);
    tcase_add_loop_test(
        tc, a_prompt_with_values_that_are_not_finite_fails_alone_and_is_never_shared, 0, 3);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
