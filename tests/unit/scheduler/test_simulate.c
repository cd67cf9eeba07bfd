/* The simulator: reading journals and access logs, and that its runs equal the scheduler's. */
#include <stdio.h>

#include "base/buf.h"
#include "scheduler/sim/simulate.h"
#include "tests/unit/scheduler/rig.h"

/* ---- a load written by hand ---- */

static struct journal_config config_of(uint32_t n_frames)
{
    return (struct journal_config){.max_running = 16,
                                   .max_queued = 1000,
                                   .max_batch_tokens = 128,
                                   .chunk_max = 64,
                                   .step_target_ms = 200,
                                   .max_context = 2048,
                                   .block_tokens = 16,
                                   .n_groups = 1,
                                   .group = {{.n_frames = n_frames, .block_bytes = 4096}},
                                   .prefix = true};
}

static void add_submit(struct buf *out, uint32_t id, uint64_t at_ns, uint32_t n_prompt,
                       uint32_t max_tokens)
{
    struct journal_record r = {
        .kind = JOURNAL_SUBMIT, .at_ns = at_ns, .request = id, .n_choices = 1};
    r.u.submit.n_prompt = n_prompt;
    r.u.submit.max_tokens = max_tokens;
    journal_write(out, &r);
}

static void add_prints(struct buf *out, uint32_t id, const uint32_t *print, uint32_t n)
{
    struct journal_record r = {.kind = JOURNAL_PROMPT, .request = id};
    for (uint32_t i = 0; i < n; i++)
        r.u.print[i] = print[i];
    journal_write(out, &r);
}

static void add_end(struct buf *out, uint32_t id, uint32_t n_output)
{
    struct journal_record r = {.kind = JOURNAL_END, .request = id};
    r.u.end.n_output = n_output;
    journal_write(out, &r);
}

static void add_cancel(struct buf *out, uint32_t id, uint64_t at_ns)
{
    struct journal_record r = {.kind = JOURNAL_CANCEL, .request = id, .at_ns = at_ns};
    journal_write(out, &r);
}

static struct sim_trace read_trace(const struct buf *text)
{
    struct sim_trace t;
    struct err e;
    enum status st = sim_trace_read(&t, buf_str(text), &e);
    ck_assert_msg(st == OK, "%s", e.text);
    return t;
}

static struct sim_result *run(const struct sim_trace *t, const struct sim_options *o)
{
    struct sim_result *out = mem_zalloc(sizeof(*out));
    struct err e;
    enum status st = sim_run(t, o, out, &e);
    ck_assert_msg(st == OK, "%s", e.text);
    return out;
}

static struct sim_options options_of(const struct sim_trace *t)
{
    return (struct sim_options){
        .config = t->config, .cost = {.base_ns = 1e6, .row_ns = 1e5, .kv_ns = 10}, .rate = 1};
}

START_TEST(one_request_takes_the_steps_that_the_cost_says)
{
    struct buf text = {0};
    struct journal_config c = config_of(200);
    journal_write_config(&text, &c);
    add_submit(&text, 7, 5000, 100, 50);
    add_end(&text, 7, 10);
    struct sim_trace t = read_trace(&text);
    struct sim_options o = options_of(&t);
    o.cost.kv_ns = 0;
    struct sim_result *r = run(&t, &o);
    ck_assert_uint_eq(r->n_finished, 1);
    ck_assert_uint_eq(r->n_output_tokens, 10);
    ck_assert_uint_eq(r->n_steps, 2 + 9); /* chunks of 64 and 36 */
    ck_assert_uint_eq(r->n_rows, 100 + 9);
    uint64_t first = 2 * 1000000 + 100 * 100000, gap = 1100000;
    ck_assert_uint_eq(r->first_token.max_ns, first);
    ck_assert_uint_eq(r->gap.max_ns, gap);
    ck_assert_uint_eq(r->gap.n, 9);
    ck_assert_uint_eq(r->span_ns, first + 9 * gap);
    mem_free(r);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

/* Many requests that come together, in pools too small for them. */
static void add_load(struct buf *text, uint32_t n, uint32_t n_frames)
{
    struct journal_config c = config_of(n_frames);
    journal_write_config(text, &c);
    for (uint32_t i = 0; i < n; i++)
        add_submit(text, 100 + i, 1000000ull * i * 3, 40 + i * 37 % 400, 200);
    for (uint32_t i = 0; i < n; i++)
        add_end(text, 100 + i, 30 + i * 53 % 170);
}

START_TEST(every_request_ends_with_its_own_length_however_small_the_pool)
{
    struct buf text = {0};
    uint64_t n_tokens = 0;
    add_load(&text, 40, 1000);
    struct sim_trace t = read_trace(&text);
    for (uint32_t i = 0; i < 40; i++)
        n_tokens += t.request[i].n_output;
    uint64_t slower = 0;
    static const uint32_t frames[] = {1000, 200, 60, 45}; /* 41 hold the longest */
    for (uint32_t host = 0; host < 2; host++) {
        for (uint32_t i = 0; i < 4; i++) {
            struct sim_options o = options_of(&t);
            o.config.group[0].n_frames = frames[i];
            o.config.group[0].n_host = host * 400;
            struct sim_result *r = run(&t, &o);
            ck_assert_uint_eq(r->n_finished, 40);
            ck_assert_uint_eq(r->n_output_tokens, n_tokens);
            ck_assert_uint_le(r->peak_used, frames[i]);
            slower += r->first_token.max_ns;
            if (i == 0)
                ck_assert_uint_eq(r->n_preempted, 0);
            mem_free(r);
        }
    }
    ck_assert_uint_gt(slower, 0);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

START_TEST(the_same_trace_gives_the_same_result)
{
    struct buf text = {0};
    add_load(&text, 60, 60);
    struct sim_trace t = read_trace(&text), again = read_trace(&text);
    struct sim_options o = options_of(&t);
    struct sim_result *a = run(&t, &o), *b = run(&again, &o);
    ck_assert_int_eq(memcmp(a, b, sizeof(*a)), 0);
    o.cost.row_ns *= 1.01;
    struct sim_result *c = run(&t, &o);
    ck_assert_int_ne(memcmp(a, c, sizeof(*a)), 0);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    sim_trace_release(&t);
    sim_trace_release(&again);
    buf_release(&text);
}
END_TEST

START_TEST(a_faster_machine_and_slower_arrivals_shorten_the_wait)
{
    struct buf text = {0};
    add_load(&text, 60, 400);
    struct sim_trace t = read_trace(&text);
    struct sim_options o = options_of(&t);
    struct sim_result *base = run(&t, &o);
    o.cost = (struct sim_cost){o.cost.base_ns / 4, o.cost.row_ns / 4, o.cost.kv_ns / 4};
    struct sim_result *fast = run(&t, &o);
    o = options_of(&t);
    o.rate = 0.01;
    struct sim_result *calm = run(&t, &o);
    ck_assert_uint_lt(sim_times_quantile(&fast->first_token, 0.9),
                      sim_times_quantile(&base->first_token, 0.9));
    ck_assert_uint_lt(sim_times_quantile(&calm->first_token, 0.9),
                      sim_times_quantile(&base->first_token, 0.9));
    ck_assert_uint_eq(calm->queue.max_ns, 0);
    mem_free(base);
    mem_free(fast);
    mem_free(calm);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

START_TEST(equal_prints_are_prefix_hits_and_outputs_are_hit_too)
{
    static const uint32_t a[] = {11, 12, 13, 14, 15, 16}, b[] = {11, 12, 99, 98, 97, 96};
    struct buf text = {0};
    struct journal_config c = config_of(400);
    journal_write_config(&text, &c);
    add_submit(&text, 1, 0, 64, 40); /* 4 blocks of prompt, 2 of output */
    add_prints(&text, 1, a, 4);
    add_end(&text, 1, 33);
    add_prints(&text, 1, a + 4, 2);
    add_submit(&text, 2, 10000000000, 100, 10); /* begins with the first one's prompt and answer */
    add_prints(&text, 2, a, 6);
    add_end(&text, 2, 5);
    add_submit(&text, 3, 20000000000, 100, 10); /* shares two blocks */
    add_prints(&text, 3, b, 6);
    add_end(&text, 3, 5);
    struct sim_trace t = read_trace(&text);
    ck_assert_uint_eq(t.request[0].n_prints, 6);
    struct sim_options o = options_of(&t);
    struct sim_result *r = run(&t, &o);
    ck_assert_uint_eq(r->n_finished, 3);
    ck_assert_uint_eq(r->n_hit_tokens, 96 + 32);
    mem_free(r);
    o.config.prefix = false;
    r = run(&t, &o);
    ck_assert_uint_eq(r->n_hit_tokens, 0);
    mem_free(r);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

START_TEST(cancels_come_after_the_same_time)
{
    struct buf text = {0};
    struct journal_config c = config_of(400);
    journal_write_config(&text, &c);
    add_submit(&text, 1, 1000, 64, 1000);
    add_cancel(&text, 1, 1000 + 50000000);
    add_submit(&text, 2, 1000, 64, 20);
    add_end(&text, 2, 20);
    struct sim_trace t = read_trace(&text);
    ck_assert_uint_eq(t.request[0].cancel_ns, 50000000);
    struct sim_options o = options_of(&t);
    struct sim_result *r = run(&t, &o);
    ck_assert_uint_eq(r->n_cancelled, 1);
    ck_assert_uint_eq(r->n_finished, 1);
    ck_assert_uint_ge(r->span_ns, 50000000);
    ck_assert_uint_lt(r->span_ns, 53000000);
    mem_free(r);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

START_TEST(a_full_queue_refuses_and_what_never_fits_fails)
{
    struct buf text = {0};
    struct journal_config c = config_of(20);
    c.max_queued = 2;
    c.max_running = 1;
    journal_write_config(&text, &c);
    for (uint32_t i = 0; i < 10; i++)
        add_submit(&text, i + 1, 1000, 100, 20);
    add_submit(&text, 99, 1000, 1000, 20); /* 20 blocks hold 320 */
    struct sim_trace t = read_trace(&text);
    struct sim_options o = options_of(&t);
    struct sim_result *r = run(&t, &o);
    ck_assert_uint_eq(r->n_failed, 1);
    ck_assert_uint_ge(r->n_refused, 6);
    ck_assert_uint_eq(r->n_failed + r->n_refused + r->n_finished, 11);
    mem_free(r);
    o.config.max_batch_tokens = 0;
    struct err e;
    r = mem_zalloc(sizeof(*r));
    ck_assert_int_eq(sim_run(&t, &o, r, &e), ERR_INVALID);
    mem_free(r);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

/* The journal of a real run of the scheduler gives the run's own times back. */
START_TEST(a_recorded_run_simulates_to_the_times_it_had)
{
    enum { N = 50 };
    struct rig g;
    struct rig_options opt = rig_defaults();
    clock_fake(true, 1000000000);
    opt.fake.step_base_ns = 2000000;
    opt.fake.step_row_ns = 50000;
    opt.fake.step_kv_ns = 40;
    opt.limits.journal_bytes = 1 << 22;
    opt.limits.max_running = 8;
    opt.n_blocks = 300;
    rig_init(&g, &opt);
    struct request *r[N];
    struct seen o[N];
    uint64_t ttft = 0;
    for (uint32_t i = 0; i < N; i++) {
        r[i] = rig_random(&g, i / 3, 30 + i * 41 % 300, 1 + i * 29 % 80);
        r[i]->id = i + 1;
        r[i]->arrive_ns = clock_ns();
        seen_init(&o[i], r[i]);
        rig_submit(&g, r[i]);
        sched_turn(g.s);
        for (uint32_t k = 0; k <= i; k++)
            seen_read(&o[k], r[k], UINT32_MAX);
    }
    for (bool any = true; any;) {
        any = sched_turn(g.s);
        for (uint32_t k = 0; k < N; k++)
            any |= seen_read(&o[k], r[k], UINT32_MAX) > 0;
    }
    struct buf text = {0};
    journal_write_config(&text, &g.s->journal.config);
    for (uint64_t i = 0; i < g.s->journal.n; i++)
        journal_write(&text, &g.s->journal.ring[i]);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t first = o[i].end.first_token_ns - r[i]->arrive_ns;
        ttft = first > ttft ? first : ttft;
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    rig_release(&g);

    struct sim_trace t = read_trace(&text);
    ck_assert_uint_eq(t.n_requests, N);
    ck_assert_double_eq_tol(t.cost.base_ns, 2000000, 2000000 * 0.01);
    ck_assert_double_eq_tol(t.cost.row_ns, 50000, 50000 * 0.01);
    ck_assert_double_eq_tol(t.cost.kv_ns, 40, 40 * 0.01);
    ck_assert_uint_eq(t.first_token->max_ns, ttft);
    struct sim_options so = {.config = t.config, .cost = {2000000, 50000, 40}, .rate = 1};
    struct sim_result *s = run(&t, &so);
    ck_assert_uint_eq(s->n_finished, N);
    /* Arrivals fall at the ends of steps there and here: every step is the same. */
    ck_assert_uint_eq(s->first_token.max_ns, ttft);
    ck_assert_int_eq(memcmp(&s->first_token, t.first_token, sizeof(s->first_token)), 0);
    ck_assert_uint_eq(s->n_steps, t.n_steps);
    mem_free(s);
    sim_trace_release(&t);
    buf_release(&text);
}
END_TEST

/* ---- access logs ---- */

START_TEST(access_lines_of_both_forms_are_read)
{
    static const char log[] =
        "2026-11-30T10:00:01.000Z info  serving\n"
        "2026-11-30T10:00:02.500Z info  request id=a ip=1.2.3.4 POST /v1/completions status=200 "
        "bytes=10 ms=1500.0 queue_ms=100.0 ttft_ms=300.0 tokens_in=100 tokens_out=41 stream=1 "
        "end=ok n=1 max_tokens=60\n"
        "{\"time\":\"2026-11-30T10:00:03.000Z\",\"level\":\"info\",\"message\":\"request id=b "
        "ip=::1 "
        "POST /v1/chat/completions status=200 bytes=10 ms=1000.0 queue_ms=0.0 ttft_ms=200.0 "
        "tokens_in=50 tokens_out=20 stream=0 end=ok\"}\n"
        "2026-11-30T10:00:04.000Z info  request id=c ip=1.2.3.4 GET /v1/models status=200 ms=1.0\n";
    struct sim_trace t;
    struct err e;
    ck_assert_msg(sim_trace_read(&t, STR_LIT(log), &e) == OK, "%s", e.text);
    ck_assert_uint_eq(t.n_requests, 2);
    ck_assert_uint_eq(t.n_skipped, 2);
    ck_assert_uint_eq(t.config.block_tokens, 0);
    ck_assert_uint_eq(t.request[0].at_ns, 0);
    ck_assert_uint_eq(t.request[1].at_ns, 1000000000);
    ck_assert_uint_eq(t.request[0].n_prompt, 100);
    ck_assert_uint_eq(t.request[0].n_output, 41);
    ck_assert_uint_eq(t.request[0].max_tokens, 60);
    ck_assert_uint_eq(t.request[1].max_tokens, 20);
    ck_assert_uint_eq(t.first_token->max_ns, 300000000);
    /* rows: 2 ms and 4 ms a token; tokens: 30 ms and 42.1 ms */
    ck_assert_double_eq_tol(t.cost.row_ns, 4e6, 1);
    ck_assert_double_eq_tol(t.cost.base_ns + t.cost.row_ns, 800e6 / 19, 1);
    sim_trace_release(&t);
}
END_TEST

START_TEST(times_that_no_clock_holds_are_as_if_not_there)
{
    static const char log[] =
        "2026-11-30T10:00:02.500Z info  request id=a ip=1.2.3.4 POST /v1/completions status=200 "
        "bytes=10 ms=1500.0 queue_ms=99999999999999999999999999999999.0 "
        "ttft_ms=99999999999999.0 tokens_in=100 tokens_out=41 stream=1 end=ok\n"
        "2026-11-30T10:00:03.500Z info  request id=b ip=1.2.3.4 POST /v1/completions status=200 "
        "bytes=10 ms=99999999999999.0 queue_ms=1.0 ttft_ms=2.0 tokens_in=100 tokens_out=41\n";
    struct sim_trace t;
    struct err e;
    ck_assert_msg(sim_trace_read(&t, STR_LIT(log), &e) == OK, "%s", e.text);
    ck_assert_uint_eq(t.n_requests, 1);
    ck_assert_uint_eq(t.n_skipped, 1);
    ck_assert_uint_eq(t.queue->max_ns, 0);
    ck_assert_uint_eq(t.first_token->n, 0);
    sim_trace_release(&t);
}
END_TEST

START_TEST(what_holds_no_request_is_refused)
{
    static const char *const bad[] = {
        "",
        "hello\nworld\n",
        "{\"kind\":\"config\",\"n_groups\":1,\"groups\":[{}]}\n",
        "{\"kind\":\"submit\",\"n_choices\":1,\"n_prompt\":0,\"max_tokens\":5}\n",
        "{\"kind\":\"submit\",\"n_choices\":1,\"n_prompt\":4000000000,\"max_tokens\":5}\n",
        "{\"kind\":\"submit\",\"n_choices\":1,\"n_prompt\":5,\"max_tokens\":5}\nnonsense\n",
        "2026-11-30T10:00:02.500Z info  request id=a ms=x tokens_in=5 tokens_out=5\n",
        "T request id=a ms=1 tokens_in=5 tokens_out=5\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct sim_trace t;
        struct err e;
        ck_assert_msg(sim_trace_read(&t, str_of(bad[i]), &e) == ERR_FORMAT, "%s", bad[i]);
    }
}
END_TEST

START_TEST(quantiles_are_within_a_sixtieth)
{
    struct sim_times *t = mem_zalloc(sizeof(*t));
    for (uint64_t ns = 1; ns <= 1000000; ns += 7)
        sim_times_add(t, ns * 1000);
    for (int p = 1; p < 100; p++) {
        double want = p / 100.0 * 1e9, got = (double)sim_times_quantile(t, p / 100.0);
        EXPECT(got > want * 0.984 && got < want * 1.016);
    }
    ck_assert_uint_eq(sim_times_quantile(t, 1), t->max_ns);
    memset(t, 0, sizeof(*t));
    ck_assert_uint_eq(sim_times_quantile(t, 0.5), 0);
    sim_times_add(t, UINT64_MAX);
    ck_assert_uint_gt(sim_times_quantile(t, 0.5), 1ull << 63);
    mem_free(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("simulate");
    TCase *t = tcase_create("simulate");
    tcase_add_test(t, one_request_takes_the_steps_that_the_cost_says);
    tcase_add_test(t, every_request_ends_with_its_own_length_however_small_the_pool);
    tcase_add_test(t, the_same_trace_gives_the_same_result);
    tcase_add_test(t, a_faster_machine_and_slower_arrivals_shorten_the_wait);
    tcase_add_test(t, equal_prints_are_prefix_hits_and_outputs_are_hit_too);
    tcase_add_test(t, cancels_come_after_the_same_time);
    tcase_add_test(t, a_full_queue_refuses_and_what_never_fits_fails);
    tcase_add_test(t, a_recorded_run_simulates_to_the_times_it_had);
    tcase_add_test(t, access_lines_of_both_forms_are_read);
    tcase_add_test(t, times_that_no_clock_holds_are_as_if_not_there);
    tcase_add_test(t, what_holds_no_request_is_refused);
    tcase_add_test(t, quantiles_are_within_a_sixtieth);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
