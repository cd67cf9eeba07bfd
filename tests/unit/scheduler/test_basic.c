/* One request after another through the fake backend: tokens, ends, forks, errors. */
#include "tests/unit/scheduler/rig.h"

/* Steps the reference by hand: the history alone, no batch, no blocks. */
static void expect_greedy(const struct rig *g, const struct request *r, const struct seen *o,
                          uint32_t choice)
{
    int32_t *h = mem_alloc((r->n_prompt + r->max_tokens + 1) * sizeof(int32_t));
    memcpy(h, r->prompt, r->n_prompt * sizeof(int32_t));
    for (uint32_t i = 0; i < o->n_token[choice]; i++) {
        h[r->n_prompt + i] = fake_next_token(h, r->n_prompt + i, g->be->n_vocab);
        ck_assert_int_eq(o->token[choice * o->cap + i], h[r->n_prompt + i]);
    }
    mem_free(h);
}

START_TEST(a_request_gets_its_tokens_one_finish_and_one_end)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 40, 33);
    struct seen o;
    seen_init(&o, r);
    rig_submit(&g, r);
    rig_run(&g);
    seen_read(&o, r, UINT32_MAX);
    ck_assert_uint_eq(o.n_token[0], 33);
    ck_assert_int_eq(o.reason[0], FINISH_LENGTH);
    ck_assert_uint_eq(o.n_finish, 1);
    ck_assert_uint_eq(o.n_end, 1);
    ck_assert_int_eq(o.status, OK);
    ck_assert_uint_eq(o.end.n_prompt, 40);
    ck_assert_uint_eq(o.end.n_output, 33);
    expect_greedy(&g, r, &o, 0);
    seen_release(&o);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(choices_share_the_prompt_and_equal_separate_runs)
{
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 18, 31, 32, 33, 100};
    uint32_t n_prompt = lengths[_i];
    for (uint32_t n = 1; n <= 8; n++) {
        struct rig g;
        struct rig_options opt = rig_defaults();
        rig_init(&g, &opt);
        struct request *r = rig_random(&g, n, n_prompt, 20);
        struct seen o;
        r->n_choices = n;
        r->sampling.temperature = 1;
        r->sampling.seed = 77;
        seen_init(&o, r);
        rig_submit(&g, r);
        rig_run(&g);
        seen_read(&o, r, UINT32_MAX);
        ck_assert_uint_eq(o.n_finish, n);
        for (uint32_t c = 0; c < n; c++) {
            int32_t h[200];
            memcpy(h, r->prompt, n_prompt * sizeof(int32_t));
            ck_assert_uint_eq(o.n_token[c], 20);
            for (uint32_t i = 0; i < 20; i++) {
                struct sample_job job = {
                    .params = &r->sampling, .history = h, .n_history = n_prompt + i, .choice = c};
                h[n_prompt + i] = fake_job_token(&job, g.be->n_vocab);
                ck_assert_int_eq(o.token[c * o.cap + i], h[n_prompt + i]);
            }
        }
        seen_release(&o);
        request_unref(r);
        rig_release(&g);
    }
}
END_TEST

START_TEST(eight_choices_hold_the_full_blocks_of_the_prompt_once)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 150, 3);
    r->n_choices = 8;
    rig_submit(&g, r);
    ck_assert(sched_turn(g.s)); /* 149 tokens: 9 full blocks and 5 slots */
    ck_assert(sched_turn(g.s)); /* each choice computes the last one and samples */
    struct sched_stats st;
    sched_stats(g.s, &st);
    ck_assert_uint_eq(st.blocks_total - st.blocks_free, 9 + 8);
    ck_assert_uint_eq(st.slots_written, 9 * 16 + 8 * 6);
    rig_run(&g);
    request_unref(r);
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/basic");
    TCase *tc = tcase_create("basic");
    tcase_add_test(tc, a_request_gets_its_tokens_one_finish_and_one_end);
    tcase_add_loop_test(tc, choices_share_the_prompt_and_equal_separate_runs, 0, 10);
    tcase_add_test(tc, eight_choices_hold_the_full_blocks_of_the_prompt_once);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
