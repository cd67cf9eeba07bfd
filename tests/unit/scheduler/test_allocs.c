/* The step path allocates nothing: a steady load with preemptions, swaps, hits and forks, watched by the
 * counting allocator. Counting starts when the last request has been admitted. */
#include "tests/unit/scheduler/pressure.h"
#include "base/base_test.h"

static struct rig g;

/* How often this thread allocated until all n have ended; the last n_reads admitted before that. */
static uint64_t allocs_of(struct request **r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rig_submit(&g, r[i]);
    do
        sched_turn(g.s);
    while (g.s->queue);
    uint64_t before = mem_thread_allocs();
    for (uint32_t n_idle = 0; n_idle < 3;) {
        bool any = sched_turn(g.s);
        for (; fake_tier_flying(g.be); any = true)
            fake_tier_finish(g.be, 0, true);
        n_idle = any ? 0 : n_idle + 1;
    }
    return mem_thread_allocs() - before;
}

static void expect_none(struct rig_options *opt, bool swaps, uint32_t max_tokens)
{
    clock_fake(true, NS_PER_S);
    opt->prefix = true;
    opt->n_slots = 8;
    opt->limits.max_running = 16;
    opt->limits.max_batch_tokens = 64;
    opt->limits.reserve = SCHED_RESERVE_NONE;
    opt->limits.preempt = swaps ? SCHED_PREEMPT_SWAP : SCHED_PREEMPT_RECOMPUTE;
    opt->fake.tier_waits = true;
    opt->fake.tier_costs = (struct kv_tier_costs){1, 1, 1};
    rig_init(&g, opt);
    struct request *r[12];
    for (uint32_t i = 0; i < 12; i++) {
        r[i] = prompt_of(&g, 1, 9, i, 2);
        r[i]->max_tokens = max_tokens;
        r[i]->n_choices = i == 3 && max_tokens < 200 ? 3 : 1;
        r[i]->sampling.temperature = 1;
    }
    ck_assert_uint_eq(allocs_of(r, 12), 0);
    ck_assert_uint_gt(g.s->n_preempted[0] + g.s->n_preempted[1], 3);
    for (uint32_t i = 0; i < 12; i++) {
        struct seen o;
        seen_init(&o, r[i]);
        seen_read(&o, r[i], UINT32_MAX);
        ck_assert_int_eq(o.status, OK);
        expect_lone(&g, r[i], &o);
        seen_release(&o);
        request_unref(r[i]);
    }
    rig_release(&g);
}

START_TEST(preemption_by_computing_again_allocates_nothing)
{
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 40;
    expect_none(&opt, false, 100);
}
END_TEST

START_TEST(preemption_by_swap_allocates_nothing)
{
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 40;
    opt.n_groups = 2;
    opt.window[1] = 12;
    for (uint32_t i = 0; i < 2; i++)
        opt.n_host[i] = opt.n_file[i] = 100;
    opt.max_jobs = 8;
    expect_none(&opt, true, 100);
}
END_TEST

START_TEST(sequences_longer_than_the_arena_allocate_nothing)
{
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 28;
    for (uint32_t i = 0; i < 2; i++)
        opt.n_host[i] = opt.n_file[i] = 100;
    opt.max_jobs = 8;
    opt.limits.chunk_max = 16;
    expect_none(&opt, true, 300); /* 39 blocks */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/allocs");
    TCase *tc = tcase_create("allocs");
    tcase_add_test(tc, preemption_by_computing_again_allocates_nothing);
    tcase_add_test(tc, preemption_by_swap_allocates_nothing);
    tcase_add_test(tc, sequences_longer_than_the_arena_allocate_nothing);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
