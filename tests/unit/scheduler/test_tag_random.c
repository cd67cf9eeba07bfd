/* Random operations on a scheduler over tiny pools against a naive reference that steps every choice
 * alone: submit, cancel, read or leave rings full, turn, end copies late, out of order, badly, fail steps
 * and reads, squeeze, clear the index, change limits. After every operation the scheduler and the cache
 * are audited, free frames and slots are poisoned, and no tag may be wrong. Now and then everything must
 * come to its end within a bound. */
#include "tests/unit/scheduler/tag_world.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
enum { N_OPS = 20000 }; /* one thread: nothing for that sanitizer to see */
#else
enum { N_OPS = 1000000 };
#endif

static struct tag_world w;

static void op_cancel(void)
{
    struct live *l = &w.live[draw(&w.r, MAX_LIVE)];
    if (!l->r)
        return;
    TRACE(&w.r, "cancel");
    l->cancelled = true;
    sched_cancel(w.g.s, l->r);
}

static void op_fail_step(void)
{
    if (fake_steps(w.g.be) < w.inject_step + 8)
        return;
    w.inject_step = fake_steps(w.g.be);
    w.n_injected++;
    fake_fail_steps(w.g.be, 1);
    random_count(DID_STEP_FAIL);
}

static void op_fail_read(void)
{
    fake_fail_reads(w.g.be, draw(&w.r, 2));
    random_count(DID_READ_FAIL);
}

static void finish_copy(bool may_fail)
{
    uint32_t n = fake_tier_flying(w.g.be);
    if (n == 0)
        return;
    bool ok = !may_fail || !one_in(&w.r, 30);
    fake_tier_finish(w.g.be, draw(&w.r, n), ok);
    if (!ok)
        random_count(DID_COPY_FAIL);
}

static void op_squeeze(void)
{
    struct kv_cache *c = w.g.s->kv;
    struct kv_need none = {{0}}, some = {{0}};
    kv_seq_claim_trim(c, &w.squatter, &none);
    w.g.s->epoch++; /* there is more room than before */
    w.squeezed = false;
    if (one_in(&w.r, 2) || !w.squeezes)
        return;
    for (uint32_t g = 0; g < w.opt.n_groups; g++)
        some.n[g] = draw(&w.r, w.opt.n_frames[g] / 4 + 1);
    w.squeezed = kv_seq_claim(c, &w.squatter, &some);
    TRACE(&w.r, "squeeze by %u and %u: %d", some.n[0], some.n[1], w.squeezed);
    if (w.squeezed)
        random_count(DID_SQUEEZE);
}

static void op_clear(void)
{
    kv_prefix_clear(w.g.s->kv);
    TRACE(&w.r, "clear");
    random_count(DID_CLEAR);
}

/* What fits was decided with the largest chunk where windows or sequences longer than the arena are. */
static void op_reload(void)
{
    struct sched_limits *l = &w.g.s->limits;
    const struct sched_limits *first = &w.opt.limits;
    l->max_queued = draw(&w.r, 12);
    random_count(DID_RELOAD);
    if (w.opt.window[0] || w.opt.window[1] || w.opt.max_jobs)
        return;
    l->chunk_max = 1 + draw(&w.r, 64);
    l->max_batch_tokens = l->max_running + draw(&w.r, first->max_batch_tokens - l->max_running + 1);
}

static void audit(void)
{
    tag_audit(&w);
}

static bool turn(void)
{
    uint64_t n_steps = fake_steps(w.g.be);
    bool any = sched_turn(w.g.s);
    TRACE(&w.r, "turn: %d, %u rows, %u spans, running %u, parked %u, copies %u", any,
          fake_steps(w.g.be) > n_steps ? w.g.s->batch.n_rows : 0, w.g.s->batch.n_spans,
          w.g.s->n_running, w.g.s->n_parked, fake_tier_flying(w.g.be));
    if (fake_steps(w.g.be) > n_steps)
        tag_count_turn(&w);
    return any;
}

/* Readers read, copies end well: every request must come to its end, each within a bound. */
static void op_drain(void)
{
    TRACE(&w.r, "drain");
    fake_fail_reads(w.g.be, 0);
    if (w.squeezed) {
        struct kv_need none = {{0}};
        kv_seq_claim_trim(w.g.s->kv, &w.squatter, &none);
        w.g.s->epoch++;
        w.squeezed = false;
    }
    uint64_t work = 100;
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        if (w.live[i].r)
            work += (uint64_t)w.live[i].r->n_choices *
                    (w.live[i].r->n_prompt + w.live[i].r->max_tokens);
    uint32_t n_live = 1;
    for (uint64_t n = 0; n_live > 0; n++) {
        MUST(n < 10 * work, "%u requests have not ended after %llu turns, work %llu", n_live,
             (unsigned long long)n, (unsigned long long)work);
        while (fake_tier_flying(w.g.be))
            finish_copy(false);
        turn();
        n_live = 0;
        for (uint32_t i = 0; i < MAX_LIVE; i++) {
            tag_read(&w, &w.live[i], UINT32_MAX);
            n_live += w.live[i].r != NULL;
        }
        clock_fake_advance(NS_PER_MS);
        audit();
    }
    uint32_t n_idle = 0;
    do { /* copies ahead of time go on for a while, a block each at most */
        MUST(n_idle++ < 1000, "copies go on for ever");
        while (fake_tier_flying(w.g.be))
            finish_copy(false);
        turn();
        audit();
    } while (fake_tier_flying(w.g.be));
    random_count(DID_DRAIN);
}

static void one_op(void)
{
    uint32_t op = draw(&w.r, 1000);
    if (op < 150)
        tag_submit(&w);
    else if (op < 165)
        op_cancel();
    else if (op < 168)
        op_fail_step();
    else if (op < 170)
        op_fail_read();
    else if (op < 190)
        clock_fake_advance(draw(&w.r, 20) * NS_PER_MS);
    else if (op < 195)
        op_squeeze();
    else if (op < 197)
        op_clear();
    else if (op < 200)
        op_reload();
    else if (op < 201)
        op_drain();
    else if (op < 500)
        tag_read(&w, &w.live[draw(&w.r, MAX_LIVE)], 1 + draw(&w.r, 8));
    else if (op < 650)
        finish_copy(true);
    else
        turn();
}

START_TEST(any_order_of_operations_gives_each_request_its_own_tokens_once)
{
    tag_open(&w, random_env("MILLRACE_RANDOM_SEED", 1) + (uint64_t)_i);
    uint32_t n = 0;
    for (; random_next(&w.r, n); n++) {
        if (!random_skips(&w.r))
            one_op();
        audit();
    }
    op_drain();
    MUST(w.n_ended == w.n_submitted && w.n_ok > 0, "%u of %u ended", w.n_ended, w.n_submitted);
    tag_close(&w);
    __atomic_fetch_add(&random_counts->n_ops, n, __ATOMIC_RELAXED);
}
END_TEST

START_TEST(the_run_has_met_everything)
{
    if (random_counts->n_ops < 100000)
        return; /* a look at single worlds */
    for (uint32_t i = 0; i < N_TAG_COUNTS; i++)
        ck_assert_msg(random_counts->n[i] > 0, "no world has met: %s", tag_names[i]);
}
END_TEST

int main(void)
{
    random_counts_open(tag_names, N_TAG_COUNTS);
    Suite *suite = suite_create("scheduler/tag_random");
    TCase *tc = tcase_create("random");
    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, any_order_of_operations_gives_each_request_its_own_tokens_once, 0,
                        (int)random_worlds(N_OPS));
    tcase_add_test(tc, the_run_has_met_everything);
    suite_add_tcase(suite, tc);
    int rc = run_suite(suite);
    random_counts_print("tag_random");
    return rc;
}
