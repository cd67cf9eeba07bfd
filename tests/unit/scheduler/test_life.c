/* How requests are admitted, held, refused, cancelled and ended, and that nothing is left afterwards. */
#include <stdio.h>

#include "base/log.h"
#include "base/base_test.h"
#include "config/metrics.h"
#include "tests/unit/scheduler/rig.h"

static struct seen one_end(struct rig *g, struct request *r)
{
    struct seen o;
    seen_init(&o, r);
    rig_run(g);
    seen_read(&o, r, UINT32_MAX);
    ck_assert_uint_eq(o.n_end, 1);
    seen_release(&o);
    return o;
}

START_TEST(what_can_never_fit_is_refused_with_both_numbers)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 20;
    opt.limits.max_context = 400;
    rig_init(&g, &opt);
    struct err e;
    uint32_t retry, room;
    struct request *r = rig_random(&g, 1, 300, 101);
    ck_assert_int_eq(sched_submit(g.s, r, &retry, &e), ERR_CONTEXT_LENGTH);
    ck_assert_str_eq(e.text,
                     "prompt of 300 tokens and max_tokens 101 need 401 positions, the limit "
                     "is 400");
    ck_assert_str_eq(e.code, "context_length_exceeded");
    r->max_tokens = 22; /* 300 + 22 - 1 positions: 21 blocks */
    ck_assert_int_eq(sched_submit(g.s, r, &retry, &e), ERR_CONTEXT_LENGTH);
    ck_assert_str_eq(e.text, "prompt of 300 tokens, max_tokens 22 and n 1 need 21 KV blocks of 16 "
                             "tokens, there are 20");
    ck_assert(sched_room(g.s, 300, 1, &room));
    ck_assert_uint_eq(room, 21);
    ck_assert_uint_eq(sched_longest_prompt(g.s, r), 299);
    r->max_tokens = 21;
    ck_assert_uint_eq(sched_longest_prompt(g.s, r), 300);
    rig_submit(&g, r);
    ck_assert_int_eq(one_end(&g, r).status, OK);
    ck_assert(!sched_room(g.s, 400, 1, &room));
    ck_assert(!sched_room(g.s, 0, 1, &room));
    ck_assert(sched_room(g.s, 399, 1, &room) == false); /* 25 blocks for the prompt alone */
    ck_assert(sched_room(g.s, 100, 2, &room));
    ck_assert_uint_eq(room, 221); /* 20 blocks for one choice at a time */
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(broken_requests_are_refused)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.max_running = 4;
    rig_init(&g, &opt);
    struct err e;
    struct request *r = rig_random(&g, 1, 3, 5);
    r->n_choices = 5;
    ck_assert_int_eq(sched_submit(g.s, r, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "n is 5, at most 4 sequences run at once");
    r->n_choices = 1;
    r->prompt[1] = 1000;
    ck_assert_int_eq(sched_submit(g.s, r, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "token 1000 at position 1 of the prompt, the vocabulary has 1000");
    r->n_prompt = 0;
    ck_assert_int_eq(sched_submit(g.s, r, NULL, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "the prompt has no tokens");
    request_unref(r);
    r = rig_random(&g, 1, 3, 5);
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, 512);
    ck_assert_int_eq(sched_submit(g.s, r, NULL, &e), ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(e.text, "event ring of 512 bytes, the request needs"));
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(limits_that_contradict_each_other_are_refused)
{
    struct rig_options opt = rig_defaults();
    struct kv_arena arena = {.n_groups = 1, .group = {{.block_bytes = 64, .n_frames = 4}}};
    struct kv_layout layout = {.n_groups = 1, .n_slots = 16};
    struct sched_memory memory = {.layout = &layout, .arena = &arena};
    struct fake_options fake = {.n_vocab = 10};
    struct backend *be;
    struct sched *s;
    struct err e;
    ck_assert_int_eq(fake_backend_new(&arena, &layout, opt.backend, &fake, &be, &e), OK);
    opt.limits.max_batch_tokens = 32;
    ck_assert_int_eq(sched_new(&opt.limits, be, &memory, NULL, NULL, &s, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "sched.max_running is 64, above sched.max_batch_tokens 32");
    opt.limits.max_batch_tokens = 5000;
    ck_assert_int_eq(sched_new(&opt.limits, be, &memory, NULL, NULL, &s, &e), ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "backend takes 4096 rows"));
    opt.limits.chunk_max = 0;
    ck_assert_int_eq(sched_new(&opt.limits, be, &memory, NULL, NULL, &s, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "a limit of the scheduler is zero");
    opt = rig_defaults();
    opt.limits.max_context = 1;
    ck_assert_int_eq(sched_new(&opt.limits, be, &memory, NULL, NULL, &s, &e), ERR_INVALID);
    ck_assert_str_eq(e.param, "limits.max_context");
    be->ops->close(be);
}
END_TEST

START_TEST(a_full_queue_refuses_and_says_when_to_come_again)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.max_running = 2;
    opt.limits.max_queued = 3;
    opt.fake.step_base_ns = NS_PER_S;
    clock_fake(true, 1);
    rig_init(&g, &opt);
    struct request *r[20];
    struct err e;
    uint32_t retry = 0, n = 0;
    for (; n < 5; n++) { /* two of them go straight on */
        r[n] = rig_random(&g, n + 1, 4, 4);
        rig_submit(&g, r[n]);
    }
    r[5] = rig_random(&g, 9, 4, 4);
    ck_assert_int_eq(sched_submit(g.s, r[5], &retry, &e), ERR_QUEUE_FULL);
    ck_assert_uint_eq(retry, 1);
    sched_turn(g.s);
    ck_assert_int_eq(sched_submit(g.s, r[5], &retry, &e), ERR_QUEUE_FULL);
    ck_assert_str_eq(e.text, "3 requests are waiting, the limit is 3");
    for (int i = 0; i < 9; i++) /* two requests leave the queue, 4 s apart by pairs */
        sched_turn(g.s);
    uint32_t waits = 0;
    struct request *more[8];
    while (sched_submit(g.s, more[waits] = rig_random(&g, 50 + waits, 4, 4), &retry, &e) == OK)
        waits++;
    ck_assert_uint_ge(retry, 4);
    ck_assert_uint_le(retry, 60);
    request_unref(more[waits]);
    rig_run(&g);
    for (uint32_t i = 0; i < 6; i++)
        request_unref(r[i]);
    for (uint32_t i = 0; i < waits; i++)
        request_unref(more[i]);
    rig_release(&g);
}
END_TEST

START_TEST(a_request_that_waits_past_its_deadline_times_out)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.max_running = 1;
    clock_fake(true, NS_PER_S);
    rig_init(&g, &opt);
    struct request *first = rig_random(&g, 1, 4, 50), *late = rig_random(&g, 2, 4, 4);
    late->queue_deadline_ns = clock_ns() + 100 * NS_PER_MS;
    rig_submit(&g, first);
    rig_submit(&g, late);
    sched_turn(g.s);
    clock_fake_advance(99 * NS_PER_MS);
    sched_turn(g.s);
    uint32_t n;
    ck_assert_ptr_null(byte_ring_peek(&late->ring, &n));
    clock_fake_advance(NS_PER_MS);
    sched_turn(g.s);
    const struct event *ev = byte_ring_peek(&late->ring, &n);
    ck_assert_ptr_nonnull(ev);
    ck_assert_int_eq(ev->type, EVENT_END);
    ck_assert_int_eq(ev->status, ERR_TIMEOUT);
    ck_assert_int_eq(strncmp(event_text(ev), "waited 100 ms in the queue", 26), 0);
    ck_assert_int_eq(one_end(&g, first).status, OK);
    request_unref(first);
    request_unref(late);
    rig_release(&g);
}
END_TEST

START_TEST(cancel_takes_effect_within_one_step_in_every_state)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.max_running = 2;
    rig_init(&g, &opt);
    struct request *decoding = rig_random(&g, 1, 4, 500), *prefilling = rig_random(&g, 2, 2000, 9);
    struct request *queued = rig_random(&g, 3, 4, 9), *inbox = rig_random(&g, 4, 4, 9);
    struct request *all[] = {decoding, prefilling, queued, inbox};
    rig_submit(&g, decoding);
    rig_submit(&g, prefilling);
    rig_submit(&g, queued);
    sched_turn(g.s);
    sched_turn(g.s);
    rig_submit(&g, inbox);
    uint64_t n_steps = fake_steps(g.be);
    for (int i = 0; i < 4; i++) {
        sched_cancel(g.s, all[i]);
        sched_cancel(g.s, all[i]);
    }
    sched_turn(g.s);
    ck_assert_uint_eq(fake_steps(g.be), n_steps);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(one_end(&g, all[i]).status, ERR_CANCELLED);
        request_unref(all[i]);
    }
    struct sched_stats st;
    sched_stats(g.s, &st);
    ck_assert_uint_eq(st.blocks_free, st.blocks_total);
    rig_release(&g);
}
END_TEST

START_TEST(a_cancel_before_the_submit_counts)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 4, 9);
    sched_cancel(g.s, r);
    sched_turn(g.s);
    rig_submit(&g, r);
    ck_assert_int_eq(one_end(&g, r).status, ERR_CANCELLED);
    ck_assert_uint_eq(fake_steps(g.be), 0);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(prompt_tokens_count_once_however_many_choices)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct metrics *m = metrics_new(metrics_table, metrics_table_n);
    opt.metrics = m;
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 50, 9);
    r->n_choices = 3;
    rig_submit(&g, r);
    rig_run(&g);
    ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS, NULL), 50);
    ck_assert_double_eq(metrics_value(m, METRIC_GENERATION_TOKENS, NULL), 27);
    request_unref(r);
    rig_release(&g);
    metrics_free(m);
}
END_TEST

/* As vLLM counts: all tokens of the prompt, the cached ones beside. */
START_TEST(prompt_tokens_count_with_those_from_the_cache)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct metrics *m = metrics_new(metrics_table, metrics_table_n);
    opt.metrics = m;
    opt.prefix = true;
    rig_init(&g, &opt);
    for (uint32_t i = 1; i <= 3; i++) {
        struct request *r = rig_random(&g, 1, 50, 9); /* the same prompt */
        rig_submit(&g, r);
        rig_run(&g);
        request_unref(r);
        ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS, NULL), 50 * i);
        ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS_CACHED, NULL), 48 * (i - 1));
        ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS_COMPUTED, NULL),
                            50 + 2 * (i - 1));
    }
    rig_release(&g);
    metrics_free(m);
}
END_TEST

START_TEST(a_request_without_output_counts_its_prompt_too)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct metrics *m = metrics_new(metrics_table, metrics_table_n);
    opt.metrics = m;
    opt.prefix = true;
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 33, 0);
    r->fill = true; /* its last token is none of the prefix */
    rig_submit(&g, r);
    rig_run(&g);
    request_unref(r);
    ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS, NULL), 32);
    ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS_COMPUTED, NULL), 32);
    rig_release(&g);
    metrics_free(m);
}
END_TEST

START_TEST(cancelled_while_queued_means_never_computed)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct metrics *m = metrics_new(metrics_table, metrics_table_n);
    opt.metrics = m;
    opt.limits.max_running = 1;
    rig_init(&g, &opt);
    struct request *r[50];
    for (uint32_t i = 0; i < 50; i++) {
        r[i] = rig_random(&g, i + 1, 30, 4);
        rig_submit(&g, r[i]);
    }
    sched_turn(g.s);
    for (uint32_t i = 1; i < 50; i++)
        sched_cancel(g.s, r[i]);
    rig_run(&g);
    ck_assert_double_eq(metrics_value(m, METRIC_PROMPT_TOKENS_COMPUTED, NULL), 30);
    ck_assert_double_eq(metrics_value(m, METRIC_GENERATION_TOKENS, NULL), 4);
    ck_assert_double_eq(metrics_value(m, METRIC_NUM_REQUESTS_WAITING, NULL), 0);
    ck_assert_double_eq(metrics_value(m, METRIC_REQUEST_SUCCESS, "abort"), 49);
    ck_assert_double_eq(metrics_value(m, METRIC_REQUEST_SUCCESS, "length"), 1);
    for (uint32_t i = 0; i < 50; i++)
        request_unref(r[i]);
    rig_release(&g);
    metrics_free(m);
}
END_TEST

START_TEST(two_thousand_requests_with_random_cancels_leave_nothing)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct metrics *m = metrics_new(metrics_table, metrics_table_n);
    opt.metrics = m;
    opt.n_blocks = 128;
    opt.limits.max_running = 16;
    rig_init(&g, &opt);
    enum { N = 2000, WINDOW = 40 };
    struct request *r[WINDOW] = {0};
    struct seen o[WINDOW];
    uint32_t n = 0, n_cancelled = 0, n_ended = 0;
    srand(7);
    while (n_ended < N) {
        for (uint32_t i = 0; i < WINDOW; i++) {
            if (!r[i] && n < N) {
                r[i] = rig_random(&g, ++n, 1 + (uint32_t)rand() % 50, 1 + (uint32_t)rand() % 30);
                r[i]->n_choices = rand() % 8 ? 1 : 3;
                seen_init(&o[i], r[i]);
                rig_submit(&g, r[i]);
            }
            if (r[i] && rand() % 60 == 0)
                sched_cancel(g.s, r[i]);
        }
        sched_turn(g.s);
        for (uint32_t i = 0; i < WINDOW; i++) {
            if (!r[i])
                continue;
            seen_read(&o[i], r[i], UINT32_MAX);
            if (!o[i].n_end)
                continue;
            n_ended++;
            n_cancelled += o[i].status == ERR_CANCELLED;
            seen_release(&o[i]);
            request_unref(r[i]);
            r[i] = NULL;
        }
    }
    sched_turn(g.s);
    ck_assert_uint_gt(n_cancelled, 200);
    ck_assert_uint_lt(n_cancelled, 1800);
    ck_assert_double_eq(metrics_value(m, METRIC_NUM_REQUESTS_RUNNING, NULL), 0);
    ck_assert_double_eq(metrics_value(m, METRIC_NUM_REQUESTS_WAITING, NULL), 0);
    ck_assert_double_eq(metrics_value(m, METRIC_KV_CACHE_USAGE, NULL), 0);
    ck_assert_double_eq(metrics_value(m, METRIC_KV_BLOCKS_FREE, NULL), 128);
    ck_assert_double_eq(metrics_value(m, METRIC_KV_BLOCKS_RESERVED, NULL), 0);
    rig_release(&g);
    metrics_free(m);
}
END_TEST

START_TEST(a_big_request_is_passed_a_bounded_number_of_times)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 32;
    opt.limits.reserve = SCHED_RESERVE_MAX;
    rig_init(&g, &opt);
    struct request *holder = rig_random(&g, 1, 16, 300), *big = rig_random(&g, 2, 400, 100);
    rig_submit(&g, holder); /* 20 of 32 blocks */
    rig_submit(&g, big); /* needs 32 */
    struct request *small[40];
    struct seen o[40], ob;
    seen_init(&ob, big);
    for (uint32_t i = 0; i < 40; i++) {
        small[i] = rig_random(&g, i + 10, 10, 5);
        seen_init(&o[i], small[i]);
        rig_submit(&g, small[i]);
    }
    uint32_t n_before = 0;
    while (ob.n_token[0] == 0) {
        ck_assert(sched_turn(g.s));
        seen_read(&ob, big, UINT32_MAX);
    }
    for (uint32_t i = 0; i < 40; i++) {
        seen_read(&o[i], small[i], UINT32_MAX);
        n_before += o[i].n_end;
    }
    ck_assert_uint_eq(n_before, SCHED_BYPASS_MAX);
    rig_run(&g);
    for (uint32_t i = 0; i < 40; i++) {
        seen_read(&o[i], small[i], UINT32_MAX);
        ck_assert_uint_eq(o[i].n_end, 1);
        seen_release(&o[i]);
        request_unref(small[i]);
    }
    seen_release(&ob);
    request_unref(holder);
    request_unref(big);
    rig_release(&g);
}
END_TEST

static int32_t nan_for_marked(void *arg, const struct sample_job *job)
{
    (void)arg;
    if (job->history[0] >= 998 && job->n_history == 8)
        return job->history[0] == 998 ? SAMPLE_ALL_BANNED : SAMPLE_BAD_LOGITS;
    return fake_next_token(job->history, job->n_history, 900);
}

START_TEST(a_row_that_is_not_finite_ends_its_own_request_only)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.fake.script = nan_for_marked;
    rig_init(&g, &opt);
    struct request *good = rig_random(&g, 1, 5, 20), *bad = rig_random(&g, 2, 5, 20);
    good->prompt[0] = 0;
    bad->prompt[0] = 999;
    rig_submit(&g, good);
    rig_submit(&g, bad);
    rig_run(&g);
    struct seen ob = one_end(&g, bad);
    ck_assert_int_eq(ob.status, ERR_NUMERIC);
    ck_assert_str_eq(ob.error, "logits at position 8 of choice 0 are not finite");
    ck_assert_uint_eq(ob.n_token[0], 3);
    struct seen og = one_end(&g, good);
    ck_assert_int_eq(og.status, OK);
    ck_assert_uint_eq(og.n_token[0], 20);
    request_unref(good);
    request_unref(bad);
    rig_release(&g);
}
END_TEST

START_TEST(a_row_where_every_token_is_banned_ends_its_own_request_only)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.fake.script = nan_for_marked;
    rig_init(&g, &opt);
    struct request *good = rig_random(&g, 1, 5, 20), *bad = rig_random(&g, 2, 5, 20);
    good->prompt[0] = 0;
    bad->prompt[0] = 998;
    rig_submit(&g, good);
    rig_submit(&g, bad);
    rig_run(&g);
    struct seen ob = one_end(&g, bad);
    ck_assert_int_eq(ob.status, ERR_INVALID);
    ck_assert_str_eq(ob.error,
                     "every token is banned at position 8 of choice 0 (logit_bias, min_tokens)");
    ck_assert_uint_eq(ob.n_token[0], 3);
    struct seen og = one_end(&g, good);
    ck_assert_int_eq(og.status, OK);
    ck_assert_uint_eq(og.n_token[0], 20);
    request_unref(good);
    request_unref(bad);
    rig_release(&g);
}
END_TEST

START_TEST(a_failed_step_ends_its_requests_and_the_next_ones_live)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r[3];
    for (uint32_t i = 0; i < 3; i++)
        r[i] = rig_random(&g, i + 1, 5, 20);
    rig_submit(&g, r[0]);
    rig_submit(&g, r[1]);
    sched_turn(g.s);
    fake_fail_steps(g.be, 1);
    sched_turn(g.s);
    rig_submit(&g, r[2]);
    ck_assert_int_eq(one_end(&g, r[0]).status, ERR_INTERNAL);
    ck_assert_int_eq(one_end(&g, r[1]).status, ERR_INTERNAL);
    ck_assert_int_eq(one_end(&g, r[2]).status, OK);
    struct sched_stats st;
    sched_stats(g.s, &st);
    ck_assert(!st.broken);
    for (uint32_t i = 0; i < 3; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

START_TEST(steps_that_keep_failing_break_the_engine_and_end_everything)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.max_running = 1;
    rig_init(&g, &opt);
    fake_fail_steps(g.be, UINT32_MAX);
    struct request *r[6];
    for (uint32_t i = 0; i < 6; i++) {
        r[i] = rig_random(&g, i + 1, 5, 20);
        rig_submit(&g, r[i]);
    }
    rig_run(&g);
    ck_assert_uint_eq(fake_steps(g.be), SCHED_BROKEN_AFTER);
    struct sched_stats st;
    struct err e;
    sched_stats(g.s, &st);
    ck_assert(st.broken);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(one_end(&g, r[i]).status, ERR_INTERNAL);
    ck_assert_int_eq(sched_submit(g.s, r[0], NULL, &e), ERR_INTERNAL);
    ck_assert_str_eq(e.text, "the engine is broken: steps keep failing");
    for (uint32_t i = 0; i < 6; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

START_TEST(drain_refuses_new_requests_and_stop_ends_the_others)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.max_running = 1;
    rig_init(&g, &opt);
    struct request *r[3];
    struct err e;
    for (uint32_t i = 0; i < 3; i++)
        r[i] = rig_random(&g, i + 1, 5, 20);
    rig_submit(&g, r[0]);
    rig_submit(&g, r[1]);
    sched_turn(g.s);
    sched_turn(g.s);
    sched_drain(g.s);
    ck_assert_int_eq(sched_submit(g.s, r[2], NULL, &e), ERR_DRAINING);
    ck_assert_str_eq(e.text, "the server is shutting down");
    sched_stop(g.s);
    struct seen o;
    seen_init(&o, r[0]);
    seen_read(&o, r[0], UINT32_MAX);
    ck_assert_int_eq(o.status, ERR_DRAINING);
    ck_assert_uint_eq(o.n_token[0], 2);
    seen_release(&o);
    seen_init(&o, r[1]);
    seen_read(&o, r[1], UINT32_MAX);
    ck_assert_int_eq(o.status, ERR_DRAINING);
    seen_release(&o);
    for (uint32_t i = 0; i < 3; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

START_TEST(a_stop_token_ends_a_choice_and_is_banned_before_min_tokens)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.n_vocab = 6;
    rig_init(&g, &opt);
    for (uint32_t seed = 1; seed < 30; seed++) {
        struct request *r = rig_random(&g, seed, 5, 40);
        r->min_tokens = seed % 12;
        r->n_stop_tokens = 2;
        r->stop_tokens = mem_zalloc(2 * sizeof(int32_t));
        r->stop_tokens[0] = 4;
        rig_submit(&g, r);
        struct seen o;
        seen_init(&o, r);
        rig_run(&g);
        seen_read(&o, r, UINT32_MAX);
        uint32_t n = o.n_token[0];
        for (uint32_t i = 0; i + 1 < n; i++)
            ck_assert(o.token[i] != 4 && o.token[i] != 0);
        if (o.reason[0] == FINISH_STOP) {
            ck_assert_uint_gt(n, r->min_tokens);
            ck_assert(o.token[n - 1] == 4 || o.token[n - 1] == 0);
            ck_assert_int_eq(o.stop_token[0], o.token[n - 1]);
        } else {
            ck_assert_uint_eq(n, 40);
        }
        seen_release(&o);
        request_unref(r);
    }
    rig_release(&g);
}
END_TEST

START_TEST(max_tokens_zero_scores_the_prompt_and_ends)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    for (uint32_t i = 0; i < 12; i++) {
        static const uint32_t lengths[] = {1, 2, 16, 17, 40, 300};
        struct request *r = rig_random(&g, i + 1, lengths[i % 6], 0);
        r->prompt_logprobs = true;
        r->sampling.n_top = 0;
        r->n_choices = 1 + i / 6;
        rig_submit(&g, r);
        struct seen o;
        seen_init(&o, r);
        rig_run(&g);
        seen_read(&o, r, UINT32_MAX);
        ck_assert_int_eq(o.status, OK);
        ck_assert_uint_eq(o.n_prompt_events, r->n_prompt - 1);
        ck_assert_uint_eq(o.n_finish, r->n_choices);
        ck_assert_int_eq(o.reason[0], FINISH_LENGTH);
        seen_release(&o);
        request_unref(r);
    }
    rig_release(&g);
}
END_TEST

static void count_wake(struct request *r, void *arg)
{
    (void)r;
    ++*(uint32_t *)arg;
}

START_TEST(a_consumer_is_woken_once_a_step)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 5, 10);
    uint32_t n_wakes = 0, n_turns = 0;
    r->n_choices = 4;
    r->sampling.temperature = 1;
    r->wake = count_wake;
    r->wake_arg = &n_wakes;
    rig_submit(&g, r);
    while (sched_turn(g.s)) {
        n_turns++;
        ck_assert_uint_le(n_wakes, n_turns);
    }
    ck_assert_uint_eq(n_wakes, 10);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(steps_allocate_nothing)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.metrics = metrics_new(metrics_table, metrics_table_n);
    rig_init(&g, &opt);
    struct request *r[9];
    for (uint32_t i = 0; i < 9; i++) {
        r[i] = rig_random(&g, i + 1, i ? 40 : 900, 60);
        r[i]->n_choices = 1 + i % 3;
        r[i]->sampling.n_top = 5;
        r[i]->prompt_logprobs = i == 4;
        rig_submit(&g, r[i]);
    }
    sched_turn(g.s); /* admits all: the only allocations on this thread */
    ck_assert_uint_eq(tenants_n_queued(g.s->tenants), 0);
    uint64_t before = mem_thread_allocs();
    uint32_t n = 0;
    while (g.s->running.n && sched_turn(g.s)) {
        uint32_t n_bytes;
        for (uint32_t i = 0; i < 9; i++) {
            while (byte_ring_peek(&r[i]->ring, &n_bytes))
                byte_ring_pop(&r[i]->ring);
        }
        n += g.s->running.reqs != NULL;
        if (g.s->running.reqs)
            ck_assert_uint_eq(mem_thread_allocs(), before);
    }
    ck_assert_uint_gt(n, 50);
    for (uint32_t i = 0; i < 9; i++)
        request_unref(r[i]);
    rig_release(&g);
    metrics_free(opt.metrics);
}
END_TEST

/* Prompt and output lengths of 32 requests: short questions, chats, long documents. With 64 of them
 * running, the mean length of a live sequence is 441 tokens. */
static const uint16_t mix[32][2] = {
    {28, 190},  {45, 320},  {61, 250},  {77, 410},  {90, 128},  {102, 370}, {118, 505}, {133, 212},
    {150, 288}, {167, 460}, {181, 96},  {199, 340}, {214, 530}, {230, 177}, {251, 299}, {266, 420},
    {280, 150}, {301, 380}, {322, 244}, {340, 610}, {365, 133}, {390, 275}, {415, 350}, {440, 198},
    {470, 420}, {505, 160}, {540, 310}, {590, 225}, {650, 390}, {720, 140}, {700, 260}, {820, 300},
};

START_TEST(internal_waste_is_at_most_two_percent_at_mean_live_length_441)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    enum { N = 192, RUNNING = 64 };
    struct request *r[N];
    for (uint32_t i = 0; i < N; i++) {
        const uint16_t *m = mix[(i * 7) % 32];
        r[i] = rig_random(&g, i + 1, m[0], m[1]);
        byte_ring_release(&r[i]->ring);
        byte_ring_init(&r[i]->ring, 1u << 17); /* nobody reads */
        rig_submit(&g, r[i]);
    }
    uint64_t n_allocated = 0, n_written = 0, n_live = 0;
    while (sched_turn(g.s)) {
        struct sched_stats st;
        sched_stats(g.s, &st);
        if (st.n_running < RUNNING)
            continue;
        n_allocated += st.slots_allocated;
        n_written += st.slots_written;
        n_live += st.n_running;
    }
    double mean = (double)n_written / (double)n_live;
    double waste = 1 - (double)n_written / (double)n_allocated;
    printf("mean live length %.1f tokens, internal waste %.2f %%\n", mean, waste * 100);
    ck_assert_double_ge(mean, 436);
    ck_assert_double_le(mean, 446);
    ck_assert_double_le(waste, 0.02);
    ck_assert_double_ge(waste, 0.01); /* 7.5 of 16 slots of each tail */
    for (uint32_t i = 0; i < N; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

int main(void)
{
    log_set_level(LOG_ERROR + 1); /* failed steps are the tests' own */
    Suite *suite = suite_create("scheduler/life");
    TCase *tc = tcase_create("life");
    tcase_add_test(tc, what_can_never_fit_is_refused_with_both_numbers);
    tcase_add_test(tc, broken_requests_are_refused);
    tcase_add_test(tc, limits_that_contradict_each_other_are_refused);
    tcase_add_test(tc, a_full_queue_refuses_and_says_when_to_come_again);
    tcase_add_test(tc, a_request_that_waits_past_its_deadline_times_out);
    tcase_add_test(tc, cancel_takes_effect_within_one_step_in_every_state);
    tcase_add_test(tc, a_cancel_before_the_submit_counts);
    tcase_add_test(tc, prompt_tokens_count_once_however_many_choices);
    tcase_add_test(tc, prompt_tokens_count_with_those_from_the_cache);
    tcase_add_test(tc, a_request_without_output_counts_its_prompt_too);
    tcase_add_test(tc, cancelled_while_queued_means_never_computed);
    tcase_add_test(tc, two_thousand_requests_with_random_cancels_leave_nothing);
    tcase_add_test(tc, a_big_request_is_passed_a_bounded_number_of_times);
    tcase_add_test(tc, a_row_that_is_not_finite_ends_its_own_request_only);
    tcase_add_test(tc, a_row_where_every_token_is_banned_ends_its_own_request_only);
    tcase_add_test(tc, a_failed_step_ends_its_requests_and_the_next_ones_live);
    tcase_add_test(tc, steps_that_keep_failing_break_the_engine_and_end_everything);
    tcase_add_test(tc, drain_refuses_new_requests_and_stop_ends_the_others);
    tcase_add_test(tc, a_stop_token_ends_a_choice_and_is_banned_before_min_tokens);
    tcase_add_test(tc, max_tokens_zero_scores_the_prompt_and_ends);
    tcase_add_test(tc, a_consumer_is_woken_once_a_step);
    tcase_add_test(tc, steps_allocate_nothing);
    tcase_add_test(tc, internal_waste_is_at_most_two_percent_at_mean_live_length_441);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
