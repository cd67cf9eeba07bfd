/* The parts of a request's time: they sum to the wall time, and each part is what its name says. */
#include "tests/unit/scheduler/rig.h"

enum { STEP_NS = 1000, START_NS = 500000 };

static uint64_t sum(const struct request_timing *t)
{
    uint64_t ns = 0;
    for (int i = 0; i < N_TIMING_PARTS; i++)
        ns += t->ns[i];
    return ns;
}

START_TEST(parts_follow_turns_and_steps)
{
    struct stopwatch w;
    stopwatch_start(&w, 100);
    stopwatch_turn(&w, TIMING_wait, 130); /* queue 30 */
    stopwatch_step(&w, 5, 135, 145, false); /* wait 5, prefill 10 */
    stopwatch_step(&w, 6, 147, 157, false); /* prefill 12: consecutive */
    stopwatch_step(&w, 6, 147, 157, true); /* another choice of the same step */
    stopwatch_step(&w, 8, 180, 190, true); /* step 7 without it: wait 23, decode 10 */
    stopwatch_turn(&w, TIMING_swap, 191); /* wait 1 */
    stopwatch_step(&w, 9, 200, 210, true); /* swap 9, decode 10 */
    struct request_timing t = stopwatch_end(&w, 214); /* wait 4 */
    ck_assert_uint_eq(t.ns[TIMING_queue], 30);
    ck_assert_uint_eq(t.ns[TIMING_prefill], 22);
    ck_assert_uint_eq(t.ns[TIMING_wait], 33);
    ck_assert_uint_eq(t.ns[TIMING_decode], 20);
    ck_assert_uint_eq(t.ns[TIMING_swap], 9);
    ck_assert_uint_eq(sum(&t), 114);
}
END_TEST

START_TEST(a_clock_that_lies_behind_takes_nothing_away)
{
    struct stopwatch w;
    stopwatch_start(&w, 100);
    stopwatch_turn(&w, TIMING_wait, 90);
    stopwatch_step(&w, 1, 95, 99, false);
    struct request_timing t = stopwatch_end(&w, 98);
    ck_assert_uint_eq(sum(&t), 0);
}
END_TEST

static struct rig_options timed_rig(void)
{
    struct rig_options opt = rig_defaults();
    opt.fake.step_base_ns = STEP_NS;
    opt.limits.chunk_max = 10;
    opt.limits.max_batch_tokens = 64;
    clock_fake(true, START_NS);
    return opt;
}

START_TEST(a_request_alone_prefills_and_decodes)
{
    struct rig g;
    struct rig_options opt = timed_rig();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 35, 7);
    struct seen o;
    r->arrive_ns = START_NS - 300;
    seen_init(&o, r);
    rig_submit(&g, r);
    rig_run(&g);
    seen_read(&o, r, UINT32_MAX);
    ck_assert_uint_eq(o.end.timing.ns[TIMING_queue], 300);
    ck_assert_uint_eq(o.end.timing.ns[TIMING_prefill], 4 * STEP_NS);
    ck_assert_uint_eq(o.end.timing.ns[TIMING_decode], 6 * STEP_NS);
    ck_assert_uint_eq(o.end.timing.ns[TIMING_wait], 0);
    ck_assert_uint_eq(o.end.timing.ns[TIMING_swap], 0);
    seen_release(&o);
    request_unref(r);
    rig_release(&g);
}
END_TEST

/* max_batch_tokens goes to the older prompt first: the younger one is left out of its steps. */
START_TEST(a_prompt_behind_another_waits_for_it)
{
    struct rig g;
    struct rig_options opt = timed_rig();
    opt.limits.chunk_max = 64;
    opt.limits.step_target_ms = 1000;
    rig_init(&g, &opt);
    struct request *r[2];
    struct seen o[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = rig_random(&g, i + 1, 256, 1);
        r[i]->arrive_ns = START_NS;
        seen_init(&o[i], r[i]);
        rig_submit(&g, r[i]);
    }
    rig_run(&g);
    for (uint32_t i = 0; i < 2; i++)
        seen_read(&o[i], r[i], UINT32_MAX);
    ck_assert_uint_eq(o[0].end.timing.ns[TIMING_wait], 0);
    ck_assert_uint_eq(o[0].end.timing.ns[TIMING_prefill], 4 * STEP_NS);
    ck_assert_uint_eq(o[1].end.timing.ns[TIMING_wait], 4 * STEP_NS);
    ck_assert_uint_eq(o[1].end.timing.ns[TIMING_prefill], 4 * STEP_NS);
    for (uint32_t i = 0; i < 2; i++) {
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    rig_release(&g);
}
END_TEST

START_TEST(parts_sum_to_the_wall_time_of_every_request)
{
    enum { N = 40 };
    struct rig g;
    struct rig_options opt = timed_rig();
    opt.fake.step_row_ns = 17;
    opt.fake.step_kv_ns = 3;
    opt.n_blocks = 60;
    opt.limits.max_running = 6;
    rig_init(&g, &opt);
    struct request *r[N];
    struct seen o[N];
    uint64_t ended[N] = {0};
    for (uint32_t i = 0; i < N; i++) {
        r[i] = rig_random(&g, i + 1, 1 + i * 7 % 90, 1 + i * 5 % 60);
        r[i]->n_choices = 1 + i % 3;
        r[i]->sampling.temperature = 1;
        r[i]->arrive_ns = clock_ns();
        seen_init(&o[i], r[i]);
        rig_submit(&g, r[i]);
        sched_turn(g.s);
        clock_fake_advance(111);
    }
    for (bool any = true; any;) {
        any = sched_turn(g.s);
        uint64_t now = clock_ns();
        for (uint32_t i = 0; i < N; i++) {
            seen_read(&o[i], r[i], UINT32_MAX);
            if (o[i].n_end && !ended[i])
                ended[i] = now;
        }
    }
    uint64_t waited = 0;
    for (uint32_t i = 0; i < N; i++) {
        EXPECT(o[i].n_end == 1);
        EXPECT(sum(&o[i].end.timing) <= ended[i] - r[i]->arrive_ns);
        EXPECT(o[i].end.timing.ns[TIMING_queue] + r[i]->arrive_ns <= o[i].end.first_scheduled_ns);
        EXPECT(o[i].end.timing.ns[TIMING_prefill] >= STEP_NS);
        /* The first tokens' end of the loop above is read late: the sum tells when it ended. */
        EXPECT(sum(&o[i].end.timing) + r[i]->arrive_ns >= o[i].end.first_token_ns);
        waited += o[i].end.timing.ns[TIMING_queue];
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    ck_assert_uint_gt(waited, 0);
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timing");
    TCase *t = tcase_create("timing");
    tcase_add_test(t, parts_follow_turns_and_steps);
    tcase_add_test(t, a_clock_that_lies_behind_takes_nothing_away);
    tcase_add_test(t, a_request_alone_prefills_and_decodes);
    tcase_add_test(t, a_prompt_behind_another_waits_for_it);
    tcase_add_test(t, parts_sum_to_the_wall_time_of_every_request);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
