/* More work than blocks: every request ends with its own tokens, by swap or by recomputation, whatever the
 * tiers do; forks, windows and sequences longer than the arena; a storm of cancels. */
#include "tests/unit/scheduler/pressure.h"

static struct rig g;

enum tiers { NO_TIER, RAM_TIER, FILE_TIER, BOTH_TIERS, N_TIERS };

static struct rig_options tight(uint32_t n_blocks, enum tiers tiers, uint32_t n_slots_tier)
{
    struct rig_options opt = rig_defaults();
    opt.prefix = true;
    opt.n_slots = 8;
    opt.n_blocks = n_blocks;
    opt.limits.max_running = 16;
    opt.limits.max_batch_tokens = 64;
    opt.limits.chunk_max = 32;
    opt.limits.max_context = 480;
    opt.limits.reserve = SCHED_RESERVE_NONE;
    opt.fake.tier_waits = true;
    opt.fake.tier_costs = (struct kv_tier_costs){1, 1, 1};
    opt.fake.step_row_ns = NS_PER_MS;
    if (tiers == RAM_TIER || tiers == BOTH_TIERS)
        opt.n_host[0] = opt.n_host[1] = n_slots_tier;
    if (tiers == FILE_TIER || tiers == BOTH_TIERS)
        opt.n_file[0] = opt.n_file[1] = n_slots_tier;
    opt.max_jobs = tiers == NO_TIER ? 0 : 4;
    return opt;
}

static void all_end(uint32_t n, uint32_t n_prompt, uint32_t max_tokens, bool equal)
{
    struct request *r[64];
    struct ran o[64];
    for (uint32_t i = 0; i < n; i++) {
        r[i] = prompt_of(&g, equal ? 1 : i, n_prompt, i, 1);
        r[i]->max_tokens = max_tokens;
        rig_submit(&g, r[i]);
    }
    run_all(&g, r, o, n);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(o[i].status, OK);
        ck_assert_uint_eq(o[i].n_token, max_tokens);
        request_unref(r[i]);
    }
}

static uint64_t n_preempted(void)
{
    return g.s->n_preempted[0] + g.s->n_preempted[1];
}

START_TEST(sequences_that_outgrow_the_pool_together_all_end)
{
    clock_fake(true, NS_PER_S);
    for (enum tiers t = NO_TIER; t < N_TIERS; t++) {
        struct rig_options opt = tight(20, t, 40);
        rig_init(&g, &opt);
        all_end(12, 16, 100, false); /* 15 blocks each in the end */
        ck_assert_uint_gt(n_preempted(), 0);
        rig_release(&g);
    }
}
END_TEST

START_TEST(two_that_need_the_whole_pool_each_end_one_after_the_other)
{
    clock_fake(true, NS_PER_S);
    for (enum tiers t = NO_TIER; t < N_TIERS; t++) {
        struct rig_options opt = tight(15, t, 15);
        rig_init(&g, &opt);
        all_end(2, 16, 104, false); /* 120 positions: 15 blocks */
        ck_assert_uint_le(n_preempted(), 6); /* no ping-pong */
        rig_release(&g);
    }
}
END_TEST

/* What is asked beyond the key's best priority, here 0, counts as little as in the queue. */
START_TEST(a_priority_beyond_the_keys_own_saves_nobody_from_being_parked)
{
    struct rig_options opt = tight(20, NO_TIER, 0);
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    struct request *r[3];
    clock_fake(true, NS_PER_S);
    set->n = 2;
    for (uint32_t i = 0; i < set->n; i++)
        set->row[i] = (struct tenant_config){.weight = 1, .generation = i + 1};
    opt.limits.tenants = tenants_new(10 * NS_PER_S, opt.limits.max_running, 0, 0);
    tenants_publish(opt.limits.tenants, set);
    rig_init(&g, &opt);
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = rig_random(&g, i + 1, 16, 100);
        r[i]->tenant = i != 1; /* the last one's was served most */
        r[i]->priority = i == 2 ? INT32_MIN : 0;
        rig_submit(&g, r[i]);
        sched_turn(g.s);
    }
    for (uint32_t turn = 0; n_preempted() == 0; turn++) {
        ck_assert_uint_lt(turn, 1000);
        sched_turn(g.s);
    }
    ck_assert_uint_eq(((const struct req *)r[1]->engine_part)->n_preempted, 0);
    ck_assert_uint_eq(((const struct req *)r[2]->engine_part)->n_preempted, 1);
    for (uint32_t i = 0; i < 3; i++)
        sched_cancel(g.s, r[i]);
    rig_run(&g);
    for (uint32_t i = 0; i < 3; i++)
        request_unref(r[i]);
    rig_release(&g);
    tenants_free(opt.limits.tenants);
}
END_TEST

START_TEST(a_tier_that_is_full_leaves_computing_again)
{
    clock_fake(true, NS_PER_S);
    for (enum tiers t = RAM_TIER; t < N_TIERS; t++) {
        struct rig_options opt = tight(20, t, 2);
        rig_init(&g, &opt);
        all_end(12, 16, 100, false);
        rig_release(&g);
    }
}
END_TEST

static uint32_t n_bad_copies;

/* The same as run_all, but copies fail. */
static void run_with_bad_copies(struct request **r, uint32_t n, uint32_t one_in_n)
{
    struct seen seen[64];
    uint32_t n_left = n, n_copies = 0;
    for (uint32_t i = 0; i < n; i++)
        seen_init(&seen[i], r[i]);
    for (uint32_t turn = 0; n_left > 0; turn++) {
        ck_assert_uint_lt(turn, 100000);
        sched_turn(g.s);
        sched_audit(g.s);
        wipe_free(&g);
        while (fake_tier_flying(g.be)) {
            bool ok = ++n_copies % one_in_n != 0;
            n_bad_copies += !ok;
            fake_tier_finish(g.be, 0, ok);
        }
        for (uint32_t i = 0; i < n; i++) {
            if (!seen[i].n_end)
                seen_read(&seen[i], r[i], UINT32_MAX), n_left -= seen[i].n_end;
        }
    }
    settle_copies(&g);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(seen[i].status, OK);
        ck_assert_uint_eq(seen[i].n_token[0], r[i]->max_tokens);
        expect_lone(&g, r[i], &seen[i]);
        seen_release(&seen[i]);
    }
}

START_TEST(copies_that_fail_cost_time_and_no_request)
{
    static const uint32_t rates[] = {1, 2, 3, 10};
    clock_fake(true, NS_PER_S);
    struct rig_options opt = tight(20, 1 + (enum tiers)(_i % 3), 40);
    rig_init(&g, &opt);
    struct request *r[12];
    for (uint32_t i = 0; i < 12; i++) {
        r[i] = prompt_of(&g, i, 16, i, 1);
        r[i]->max_tokens = 100;
        rig_submit(&g, r[i]);
    }
    n_bad_copies = 0;
    run_with_bad_copies(r, 12, rates[_i / 3]);
    ck_assert_uint_gt(n_bad_copies, 0);
    for (uint32_t i = 0; i < 12; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

START_TEST(a_sequence_longer_than_the_arena_runs_through_it)
{
    clock_fake(true, NS_PER_S);
    for (enum tiers t = RAM_TIER; t < N_TIERS; t++) {
        for (uint32_t kind = 0; kind < 2; kind++) {
            struct rig_options opt = tight(24, t, 60);
            opt.n_groups = 1 + kind;
            opt.window[1] = 20;
            rig_init(&g, &opt);
            struct request *r[3];
            struct ran o[3];
            uint32_t room = 0;
            ck_assert(sched_room(g.s, 300, 1, &room));
            for (uint32_t i = 0; i < 3; i++) { /* 400 positions: 50 blocks, the arena holds 24 */
                r[i] = prompt_of(&g, i, 300, 0, 0);
                r[i]->max_tokens = i == 1 ? 20 : 100;
                rig_submit(&g, r[i]);
            }
            run_all(&g, r, o, 3);
            for (uint32_t i = 0; i < 3; i++) {
                ck_assert_int_eq(o[i].status, OK);
                ck_assert_uint_eq(o[i].n_token, r[i]->max_tokens);
                request_unref(r[i]);
            }
            rig_release(&g);
        }
    }
}
END_TEST

/* Each reads more than half of what a step can stage; their blocks are nearly all shared, so that there
 * are frames for both at once. */
START_TEST(choices_that_come_back_together_read_no_more_than_a_step_can)
{
    clock_fake(true, NS_PER_S);
    struct rig_options opt = tight(24, FILE_TIER, 60);
    opt.backend.max_staged = 36;
    rig_init(&g, &opt);
    struct ran o;
    struct request *r = prompt_of(&g, 1, 300, 0, 0);
    r->n_choices = 2;
    r->max_tokens = 20;
    rig_submit(&g, r);
    struct req *q = NULL;
    for (uint32_t n = 0; !q || !q->seq[1].forked || g.s->running.n < 2; n++) {
        ck_assert_uint_lt(n, 1000);
        sched_turn(g.s);
        q = g.s->running.reqs;
        while (fake_tier_flying(g.be))
            fake_tier_finish(g.be, 0, true);
    }
    while (g.s->running.n > 0)
        park_seq(g.s, g.s->running.seq[g.s->running.n - 1]);
    run_all(&g, &r, &o, 1);
    ck_assert_int_eq(o.status, OK);
    ck_assert_uint_eq(o.n_token, 20);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(what_arena_and_tiers_together_cannot_hold_is_refused)
{
    struct rig_options opt = tight(12, FILE_TIER, 20);
    rig_init(&g, &opt);
    struct request *r = prompt_of(&g, 1, 300, 0, 0);
    struct err e;
    uint32_t retry;
    ck_assert_int_eq(sched_submit(g.s, r, &retry, &e), ERR_CONTEXT_LENGTH);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(a_reserved_request_among_greedy_ones_runs_without_a_preemption)
{
    clock_fake(true, NS_PER_S);
    for (enum tiers t = NO_TIER; t < N_TIERS; t++) {
        struct rig_options opt = tight(24, t, 40);
        rig_init(&g, &opt);
        struct request *r[13];
        struct ran o[13];
        for (uint32_t i = 0; i < 13; i++) {
            r[i] = prompt_of(&g, i, 16, i, 1);
            r[i]->max_tokens = 100;
            r[i]->reserve = i == 6;
            rig_submit(&g, r[i]);
        }
        run_all(&g, r, o, 13);
        for (uint32_t i = 0; i < 13; i++) {
            ck_assert_int_eq(o[i].status, OK);
            ck_assert_uint_eq(o[i].n_token, 100);
            request_unref(r[i]);
        }
        rig_release(&g);
    }
}
END_TEST

/* The first block that it hits slides out of its window while others still hold it: what was promised
 * to it is one short then, and the oldest needs a frame. */
START_TEST(a_reserved_request_that_shares_its_beginning_goes_on_when_that_slides_away)
{
    clock_fake(true, NS_PER_S);
    for (uint32_t i = 0; i < 9 * 6 * 4; i++) {
        struct rig_options opt = tight(11 + i / 9 % 6, FILE_TIER, 16);
        opt.n_slots = 4;
        opt.window[0] = 9 + i % 9;
        opt.limits.max_running = 9;
        opt.limits.max_batch_tokens = 24;
        opt.limits.chunk_max = 64;
        rig_init(&g, &opt);
        struct request *r[3] = {prompt_of(&g, 9, 44, 0, 0), prompt_of(&g, 1, 7, 0, 0),
                                prompt_of(&g, 1, 4, 2, 55)};
        struct ran o[3];
        r[0]->max_tokens = 3;
        r[1]->n_choices = 2;
        r[1]->sampling.temperature = 1;
        r[1]->max_tokens = 50;
        r[2]->max_tokens = 22;
        r[2]->reserve = true;
        uint32_t retry;
        struct err e;
        rig_submit(&g, r[0]);
        rig_submit(&g, r[1]);
        for (uint32_t k = 0; k < i / 54; k++)
            sched_turn(g.s);
        bool fits = sched_submit(g.s, r[2], &retry, &e) == OK;
        run_all(&g, r, o, 2 + fits);
        for (uint32_t k = 0; k < 2u + fits; k++)
            ck_assert_int_eq(o[k].status, OK);
        for (uint32_t k = 0; k < 3; k++)
            request_unref(r[k]);
        rig_release(&g);
    }
}
END_TEST

START_TEST(forks_under_pressure_equal_separate_runs)
{
    clock_fake(true, NS_PER_S);
    static const uint32_t lengths[] = {1, 7, 8, 9, 16, 17, 40};
    for (uint32_t n = 1; n <= 8; n++) {
        struct rig_options opt = tight(40, (enum tiers)(n % N_TIERS), 40);
        opt.n_groups = 1 + n % 2;
        opt.window[1] = 10;
        rig_init(&g, &opt);
        struct request *r[3];
        struct ran o[3];
        for (uint32_t i = 0; i < 3; i++) {
            r[i] = prompt_of(&g, 1, lengths[_i], 0, 0);
            r[i]->n_choices = n;
            r[i]->max_tokens = 24;
            r[i]->sampling.temperature = 1;
            r[i]->sampling.seed = i;
            rig_submit(&g, r[i]);
        }
        run_all(&g, r, o, 3); /* compares each choice with itself stepped alone */
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(o[i].status, OK);
            ck_assert_uint_eq(o[i].n_token, 24);
            request_unref(r[i]);
        }
        rig_release(&g);
    }
}
END_TEST

START_TEST(windows_slide_ten_times_around_and_hold_no_more_than_they_see)
{
    static const uint32_t windows[] = {2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33};
    clock_fake(true, NS_PER_S);
    for (uint32_t alone = 0; alone < 2; alone++) {
        struct rig_options opt = tight(128, NO_TIER, 0);
        uint32_t window = windows[_i];
        opt.n_groups = alone ? 1 : 2;
        opt.window[alone ? 0 : 1] = window;
        opt.limits.chunk_max = 16;
        rig_init(&g, &opt);
        struct request *r = prompt_of(&g, 1, 30, 0, 0);
        r->max_tokens = window * 10 + 8 * 12 < 440 ? window * 10 + 8 * 12 : 440;
        struct seen o;
        seen_init(&o, r);
        rig_submit(&g, r);
        while (sched_turn(g.s)) {
            seen_read(&o, r, UINT32_MAX);
            if (g.s->running.n) {
                const struct kv_table *t = &g.s->running.seq[0]->kv.t[alone ? 0 : 1];
                ck_assert_uint_le(t->n - t->first, (window + 16 + 7) / 8 + 1);
            }
        }
        seen_read(&o, r, UINT32_MAX);
        ck_assert_uint_eq(o.n_token[0], r->max_tokens);
        expect_lone(&g, r, &o);
        seen_release(&o);
        request_unref(r);
        rig_release(&g);
    }
}
END_TEST

/* Requests in all states at once, two of three cancelled at any moment, the others untouched. */
START_TEST(a_storm_of_cancels_leaves_nothing_and_nobody_else_notices)
{
    enum { N = 1200, PLACES = 24 };
    srand((unsigned)_i + 1);
    clock_fake(true, NS_PER_S);
    struct rig_options opt = tight(24, (enum tiers)(_i % N_TIERS), 30);
    opt.n_groups = 1 + (uint32_t)_i / N_TIERS;
    opt.window[1] = 10;
    opt.limits.max_queued = PLACES;
    rig_init(&g, &opt);
    struct request *r[PLACES] = {0};
    struct seen o[PLACES];
    uint32_t n_sent = 0, n_ended = 0, n_good = 0;
    while (n_ended < N) {
        for (uint32_t i = 0; i < PLACES; i++) {
            if (!r[i] && n_sent < N) {
                r[i] = prompt_of(&g, (uint32_t)rand() % 4, (uint32_t)rand() % 60, ++n_sent, 1);
                r[i]->max_tokens = 1 + (uint32_t)rand() % 90;
                r[i]->n_choices = r[i]->max_tokens > 30 || rand() % 3 ? 1 : 3;
                seen_init(&o[i], r[i]);
                rig_submit(&g, r[i]);
            }
            if (r[i] && r[i]->max_tokens % 3 && rand() % 40 == 0)
                sched_cancel(g.s, r[i]);
        }
        sched_turn(g.s);
        sched_audit(g.s);
        wipe_free(&g);
        if (fake_tier_flying(g.be) && rand() % 3)
            fake_tier_finish(g.be, (uint32_t)rand() % fake_tier_flying(g.be), true);
        for (uint32_t i = 0; i < PLACES; i++) {
            if (!r[i])
                continue;
            seen_read(&o[i], r[i], UINT32_MAX);
            if (!o[i].n_end)
                continue;
            ck_assert(o[i].status == OK || (o[i].status == ERR_CANCELLED && r[i]->max_tokens % 3));
            expect_lone(&g, r[i], &o[i]);
            n_good += o[i].status == OK;
            n_ended++;
            seen_release(&o[i]);
            request_unref(r[i]);
            r[i] = NULL;
        }
    }
    ck_assert_uint_gt(n_good, N / 4);
    settle_copies(&g);
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/pressure");
    TCase *tc = tcase_create("pressure");
    tcase_add_test(tc, sequences_that_outgrow_the_pool_together_all_end);
    tcase_add_test(tc, two_that_need_the_whole_pool_each_end_one_after_the_other);
    tcase_add_test(tc, a_priority_beyond_the_keys_own_saves_nobody_from_being_parked);
    tcase_add_test(tc, a_tier_that_is_full_leaves_computing_again);
    tcase_add_loop_test(tc, copies_that_fail_cost_time_and_no_request, 0, 12);
    tcase_add_test(tc, a_sequence_longer_than_the_arena_runs_through_it);
    tcase_add_test(tc, choices_that_come_back_together_read_no_more_than_a_step_can);
    tcase_add_test(tc, what_arena_and_tiers_together_cannot_hold_is_refused);
    tcase_add_test(tc, a_reserved_request_among_greedy_ones_runs_without_a_preemption);
    tcase_add_test(tc, a_reserved_request_that_shares_its_beginning_goes_on_when_that_slides_away);
    tcase_add_loop_test(tc, forks_under_pressure_equal_separate_runs, 0, 7);
    tcase_add_loop_test(tc, windows_slide_ten_times_around_and_hold_no_more_than_they_see, 0, 14);
    tcase_add_loop_test(tc, a_storm_of_cancels_leaves_nothing_and_nobody_else_notices, 0, 8);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
