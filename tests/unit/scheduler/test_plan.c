/* The content of a step: decode first, prefill oldest first, the budget, the cost model, paused rings.
 * Every test watches the batches that reach the backend. */
#include "scheduler/plan.h"
#include "scheduler/retire.h"
#include "tests/unit/scheduler/rig.h"

enum { MAX_REQUESTS = 64 };

/* A step as the backend got it, judged against the scheduler's own books. */
struct watch {
    struct rig *g;
    uint64_t n_steps;
    bool free_rings; /* no consumer stalls: every decoding sequence must be in */
    uint32_t most_rows;
};

static bool in_batch(const struct sched *s, const struct seq *q)
{
    for (uint32_t i = 0; i < s->step.batch.n_spans; i++) {
        if (s->step.span_seq[i] == q)
            return true;
    }
    return false;
}

static void check_step(void *arg, const struct batch *b)
{
    struct watch *w = arg;
    struct sched *s = w->g->s;
    uint32_t n_prefill = 0, n_prefilling = 0;
    w->n_steps++;
    for (uint32_t i = 0; i < s->running.n; i++) {
        const struct seq *q = s->running.seq[i];
        if (!seq_decodes(q)) {
            n_prefilling++;
            continue;
        }
        if (w->free_rings)
            ck_assert_msg(in_batch(s, q), "step %llu leaves out a decoding sequence",
                          (unsigned long long)b->step);
    }
    for (uint32_t i = 0; i < b->n_spans; i++) {
        if (seq_decodes(s->step.span_seq[i])) {
            ck_assert_uint_eq(b->span[i].n_rows, 1);
            ck_assert_msg(n_prefill == 0, "decode rows come first");
        } else {
            n_prefill += b->span[i].n_rows;
            ck_assert_uint_le(b->span[i].n_rows, s->limits.chunk_max);
        }
    }
    ck_assert_uint_le(b->n_rows, s->limits.max_batch_tokens);
    if (w->free_rings && n_prefilling > 0)
        ck_assert_msg(n_prefill > 0, "a prompt makes no progress in step %llu",
                      (unsigned long long)b->step);
    bool alone = s->running.n == 1 && tenants_n_queued(s->tenants) == 0;
    if (!alone && n_prefill > SCHED_MIN_CHUNK)
        ck_assert_msg(
            cost_step_ns(&s->cost, b->n_rows, s->step.kv_read) <= s->cost.target_ns * 1.001,
            "step %llu of %u rows is planned to take %.1f ms", (unsigned long long)b->step,
            b->n_rows, cost_step_ns(&s->cost, b->n_rows, s->step.kv_read) / 1e6);
    if (b->n_rows > w->most_rows)
        w->most_rows = b->n_rows;
}

static void rig_watched(struct rig *g, struct rig_options *o, struct watch *w)
{
    clock_fake(true, 1000);
    rig_init(g, o);
    *w = (struct watch){.g = g, .free_rings = true};
    fake_set_watch(g->be, check_step, w);
}

START_TEST(a_17th_request_is_prefilled_while_16_decode_in_every_step)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.fake.step_base_ns = 20 * NS_PER_MS;
    opt.fake.step_row_ns = 2 * NS_PER_MS;
    struct watch w;
    rig_watched(&g, &opt, &w);
    struct request *r[17];
    struct seen o[17];
    for (int i = 0; i < 17; i++) {
        r[i] = rig_random(&g, (uint32_t)i + 1, i < 16 ? 8 : 512, i < 16 ? 400 : 4);
        seen_init(&o[i], r[i]);
        if (i < 16)
            rig_submit(&g, r[i]);
    }
    while (o[15].n_token[0] < 4) {
        sched_turn(g.s);
        for (int i = 0; i < 16; i++)
            seen_read(&o[i], r[i], UINT32_MAX);
    }
    rig_submit(&g, r[16]);
    uint64_t worst = 0;
    uint32_t n_turns = 0;
    while (o[16].n_token[0] == 0) {
        uint32_t before[16];
        for (int i = 0; i < 16; i++)
            before[i] = o[i].n_token[0];
        uint64_t t0 = clock_ns();
        sched_turn(g.s);
        uint64_t took = clock_ns() - t0;
        worst = took > worst ? took : worst;
        n_turns++;
        for (int i = 0; i < 16; i++) {
            seen_read(&o[i], r[i], UINT32_MAX);
            ck_assert_uint_eq(o[i].n_token[0], before[i] + 1);
        }
        seen_read(&o[16], r[16], UINT32_MAX);
    }
    ck_assert_uint_gt(n_turns, 4);
    ck_assert_uint_lt(n_turns, 20);
    ck_assert_uint_le(worst, 300 * NS_PER_MS);
    for (int i = 0; i < 17; i++) {
        sched_cancel(g.s, r[i]);
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    rig_release(&g);
}
END_TEST

START_TEST(thirty_two_at_once_get_first_tokens_one_after_the_other)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.fake.step_base_ns = 10 * NS_PER_MS;
    opt.fake.step_row_ns = 2 * NS_PER_MS;
    struct watch w;
    rig_watched(&g, &opt, &w);
    struct request *r[32];
    struct seen o[32];
    uint64_t first_step[32] = {0};
    for (uint32_t i = 0; i < 32; i++) {
        r[i] = rig_random(&g, i + 1, 64, 64);
        seen_init(&o[i], r[i]);
        rig_submit(&g, r[i]);
    }
    while (sched_turn(g.s)) {
        ck_assert_uint_eq(g.s->step.n_paused, 0); /* waiting for its turn is no slow reader */
        for (uint32_t i = 0; i < 32; i++) {
            seen_read(&o[i], r[i], UINT32_MAX);
            if (o[i].n_token[0] && !first_step[i])
                first_step[i] = w.n_steps;
        }
    }
    uint32_t n_distinct = 1;
    ck_assert_uint_le(first_step[0], 2);
    for (uint32_t i = 1; i < 32; i++) {
        ck_assert_uint_ge(first_step[i], first_step[i - 1]);
        n_distinct += first_step[i] != first_step[i - 1];
        ck_assert_uint_eq(o[i].n_token[0], 64);
    }
    ck_assert_uint_ge(n_distinct, 16);
    for (uint32_t i = 0; i < 32; i++) {
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    rig_release(&g);
}
END_TEST

START_TEST(random_loads_keep_the_budget_and_every_decode_row)
{
    srand((unsigned)_i + 1);
    struct rig g;
    struct rig_options opt = rig_defaults();
    static const uint32_t batch[] = {8, 16, 64, 512};
    opt.limits.max_batch_tokens = batch[_i % 4];
    opt.limits.max_running = 8;
    opt.limits.chunk_max = 1u << (_i % 7);
    opt.limits.step_target_ms = 20;
    opt.fake.step_base_ns = (uint64_t)(rand() % 10) * NS_PER_MS;
    opt.fake.step_row_ns = (uint64_t)(rand() % 1000) * 1000 + 1000;
    opt.fake.step_kv_ns = (uint64_t)(rand() % 3) * 500;
    opt.backend.max_outs = 8 + (uint32_t)rand() % 8;
    struct watch w;
    rig_watched(&g, &opt, &w);
    struct request *r[MAX_REQUESTS];
    struct seen o[MAX_REQUESTS];
    uint32_t n = 0;
    while (n < MAX_REQUESTS) {
        if (rand() % 4 == 0) {
            r[n] = rig_random(&g, n + 1, 1 + (uint32_t)rand() % 200, (uint32_t)rand() % 40);
            r[n]->n_choices = 1 + (uint32_t)(rand() % 5 == 0) * (uint32_t)(rand() % 4);
            r[n]->prompt_logprobs = rand() % 3 == 0;
            seen_init(&o[n], r[n]);
            rig_submit(&g, r[n++]);
        }
        sched_turn(g.s);
        for (uint32_t i = 0; i < n; i++)
            seen_read(&o[i], r[i], UINT32_MAX);
    }
    while (sched_turn(g.s)) {
        for (uint32_t i = 0; i < n; i++)
            seen_read(&o[i], r[i], UINT32_MAX);
    }
    for (uint32_t i = 0; i < n; i++) {
        seen_read(&o[i], r[i], UINT32_MAX);
        ck_assert_uint_eq(o[i].n_end, 1);
        ck_assert_int_eq(o[i].status, OK);
        ck_assert_uint_eq(o[i].n_finish, r[i]->n_choices);
        ck_assert_uint_eq(o[i].n_prompt_events, r[i]->prompt_logprobs ? r[i]->n_prompt - 1 : 0);
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    ck_assert_uint_gt(w.most_rows, 1);
    rig_release(&g);
}
END_TEST

START_TEST(a_request_alone_fills_the_batch_whatever_the_target)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.fake.step_row_ns = 10 * NS_PER_MS;
    struct watch w;
    rig_watched(&g, &opt, &w);
    struct request *r = rig_random(&g, 1, 1000, 2);
    struct seen o;
    seen_init(&o, r);
    rig_submit(&g, r);
    for (int i = 0; i < 4; i++)
        sched_turn(g.s);
    seen_read(&o, r, UINT32_MAX);
    ck_assert_uint_eq(o.n_token[0], 1); /* 256 + 256 + 256 + 232 rows */
    ck_assert_uint_eq(w.most_rows, 256);
    rig_run(&g);
    seen_release(&o);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(a_full_ring_pauses_its_own_sequence_only)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct watch w;
    rig_watched(&g, &opt, &w);
    w.free_rings = false;
    struct request *r[2];
    struct seen o[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = rig_random(&g, i + 1, 10, 800);
        byte_ring_release(&r[i]->ring);
        byte_ring_init(&r[i]->ring, 1u << 13);
        seen_init(&o[i], r[i]);
        rig_submit(&g, r[i]);
    }
    while (o[1].n_end == 0) { /* only the second one is read */
        ck_assert(sched_turn(g.s));
        seen_read(&o[1], r[1], UINT32_MAX);
    }
    ck_assert_uint_eq(o[1].n_token[0], 800);
    ck_assert(!sched_turn(g.s)); /* the first waits for its consumer; no spinning */
    struct sched_stats st;
    sched_stats(g.s, &st);
    ck_assert_uint_eq(st.n_running, 1);
    while (o[0].n_end == 0) {
        ck_assert_uint_gt(seen_read(&o[0], r[0], UINT32_MAX), 0);
        sched_resume(g.s, r[0]);
        rig_run(&g);
    }
    ck_assert_uint_eq(o[0].n_token[0], 800);
    for (uint32_t i = 0; i < 2; i++) {
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    rig_release(&g);
}
END_TEST

START_TEST(scored_prompts_keep_within_the_outputs_and_the_ring)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.backend.max_outs = 64;
    struct watch w;
    rig_watched(&g, &opt, &w);
    w.free_rings = false;
    struct request *r = rig_random(&g, 5, 700, 3);
    r->prompt_logprobs = true;
    r->sampling.n_top = 20;
    struct seen o;
    seen_init(&o, r);
    rig_submit(&g, r);
    uint32_t n = 1, n_bytes;
    while (o.n_end == 0) {
        rig_run(&g);
        const struct event *ev;
        while ((ev = byte_ring_peek(&r->ring, &n_bytes)) != NULL) {
            if (ev->type == EVENT_PROMPT) {
                ck_assert_int_eq(ev->token, r->prompt[n]);
                ck_assert_float_eq(ev->logprob, fake_logprob(r->prompt, n, r->prompt[n]));
                ck_assert_uint_eq(ev->n_top, 20);
                n++;
            }
            seen_event(&o, ev);
            byte_ring_pop(&r->ring);
        }
    }
    ck_assert_uint_eq(n, 700);
    ck_assert_uint_le(w.most_rows, 64);
    ck_assert_uint_eq(o.n_token[0], 3);
    seen_release(&o);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(a_choice_without_room_for_its_row_leaves_the_ring_to_the_others)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 10, 50);
    r->n_choices = 2;
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, request_ring_bytes(r, NULL));
    struct seen o;
    seen_init(&o, r);
    rig_submit(&g, r);
    for (uint32_t i = 0; i < 6; i++) {
        sched_turn(g.s);
        seen_read(&o, r, UINT32_MAX);
    }
    ck_assert_uint_eq(g.s->running.n, 2);
    const struct req *q = g.s->running.seq[0]->req;
    while (byte_ring_room(&r->ring) >= 2 * q->token_bytes + q->end_bytes)
        sched_turn(g.s);
    while (byte_ring_room(&r->ring) < q->token_bytes + q->end_bytes)
        ck_assert_uint_eq(seen_read(&o, r, 1), 1);
    ck_assert_uint_lt(byte_ring_room(&r->ring), 2 * q->token_bytes + q->end_bytes);
    g.s->running.seq[0]->granted = 0;
    g.s->running.seq[1]->granted = UINT32_MAX;
    plan_step(g.s, &g.s->step);
    ck_assert_uint_eq(g.s->step.batch.n_spans, 1);
    ck_assert_ptr_eq(g.s->step.span_seq[0], g.s->running.seq[1]);
    retire_failed(g.s, &g.s->step, &(struct err){.status = ERR_INTERNAL});
    while (o.n_end == 0) {
        sched_turn(g.s);
        seen_read(&o, r, UINT32_MAX);
    }
    seen_release(&o);
    request_unref(r);
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/plan");
    TCase *tc = tcase_create("plan");
    tcase_add_test(tc, a_17th_request_is_prefilled_while_16_decode_in_every_step);
    tcase_add_test(tc, thirty_two_at_once_get_first_tokens_one_after_the_other);
    tcase_add_loop_test(tc, random_loads_keep_the_budget_and_every_decode_row, 0, 16);
    tcase_add_test(tc, a_request_alone_fills_the_batch_whatever_the_target);
    tcase_add_test(tc, a_full_ring_pauses_its_own_sequence_only);
    tcase_add_test(tc, scored_prompts_keep_within_the_outputs_and_the_ring);
    tcase_add_test(tc, a_choice_without_room_for_its_row_leaves_the_ring_to_the_others);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
