/* Random operations on tiny pools against a naive reference that steps every request alone.
 *
 * Each loop is one seed: submit (random lengths, n, stops, seeds, scores), cancel, read or leave rings
 * full, let deadlines pass, fail steps, make rows not finite, turn. After every operation the whole
 * scheduler and pool are audited and every free block is poisoned. At the end each request has got
 * exactly its own tokens, one EVENT_FINISH a choice, one EVENT_END, and nothing is left. */
#include "base/log.h"
#include "tests/unit/scheduler/rig.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
enum { N_SEEDS = 10 }; /* one thread: nothing for that sanitizer to see */
#else
enum { N_SEEDS = 110 };
#endif
enum { N_OPS = 2000, MAX_LIVE = 24, MAX_CHOICES = 5 };

struct live {
    struct request *r; /* NULL: free place */
    struct seen seen;
    bool cancelled;
    uint32_t n_injected; /* failed steps before it was submitted */
};

struct world {
    struct rig g;
    struct rig_options opt;
    struct live live[MAX_LIVE];
    uint32_t rng, n_injected;
    uint64_t inject_step;
    uint32_t n_ok, n_submitted, n_ended;
};

static uint32_t draw(struct world *w, uint32_t below)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 17;
    w->rng ^= w->rng << 5;
    return w->rng % below;
}

/* One history in 700 gives a row that is not finite. */
static int32_t script(void *arg, const struct sample_job *job)
{
    int32_t token = fake_job_token(job, *(uint32_t *)arg);
    return fake_next_token(job->history, job->n_history, 700) == 0 ? -1 : token;
}

static struct request *random_request(struct world *w)
{
    uint32_t n_prompt = 1 + draw(w, 60), max_tokens = draw(w, 40);
    struct request *r = rig_random(&w->g, draw(w, 1000000), n_prompt, max_tokens);
    if (draw(w, 3) == 0) /* a family of prompts with equal beginnings */
        for (uint32_t i = 0; i < n_prompt / 2; i++)
            r->prompt[i] = (int32_t)(i % 7);
    r->n_choices = draw(w, 4) == 0 ? 1 + draw(w, MAX_CHOICES) : 1;
    r->sampling.temperature = (float)draw(w, 2);
    r->sampling.seed = draw(w, 5);
    r->sampling.n_top = (int32_t)draw(w, 4) - 1;
    r->prompt_logprobs = draw(w, 6) == 0;
    r->min_tokens = draw(w, 4) == 0 ? draw(w, 20) : 0;
    r->n_stop_tokens = draw(w, 4);
    r->stop_tokens = mem_alloc(3 * sizeof(int32_t));
    for (uint32_t i = 0; i < r->n_stop_tokens; i++)
        r->stop_tokens[i] = (int32_t)draw(w, w->opt.n_vocab);
    if (draw(w, 5) == 0)
        r->queue_deadline_ns = clock_ns() + draw(w, 100) * NS_PER_MS;
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, request_ring_bytes(r, NULL) << draw(w, 3));
    return r;
}

static void op_submit(struct world *w)
{
    struct live *l = NULL;
    for (uint32_t i = 0; i < MAX_LIVE && !l; i++)
        l = w->live[i].r ? NULL : &w->live[i];
    if (!l)
        return;
    struct request *r = random_request(w);
    struct err e;
    uint32_t retry = 0, room = 0;
    enum status st = sched_submit(w->g.s, r, &retry, &e);
    bool fits = sched_room(w->g.s, r->n_prompt, r->n_choices, &room) && room >= r->max_tokens;
    if (st != OK) {
        if (st == ERR_QUEUE_FULL)
            ck_assert(retry >= 1 && retry <= 60);
        else if (st == ERR_CONTEXT_LENGTH)
            ck_assert(!fits);
        else
            ck_assert(st == ERR_INVALID && r->n_choices > w->opt.limits.max_running);
        ck_assert(r->engine_part == NULL && atomic_load(&r->refs) == 1);
        request_unref(r);
        return;
    }
    ck_assert(fits || r->max_tokens == 0);
    bool pending = w->n_injected &&
                   fake_steps(w->g.be) == w->inject_step; /* a failure asked for and yet to come */
    *l = (struct live){.r = r, .n_injected = w->n_injected - pending};
    seen_init(&l->seen, r);
    w->n_submitted++;
}

/* The reference: what the choice gives when nobody else is there. False: a row is not finite. */
static bool expect_choice(struct world *w, const struct live *l, uint32_t choice, bool whole)
{
    const struct request *r = l->r;
    int32_t h[128];
    memcpy(h, r->prompt, r->n_prompt * sizeof(int32_t));
    uint32_t n = 0;
    enum finish_reason reason = FINISH_NONE;
    while (reason == FINISH_NONE && n < r->max_tokens) {
        struct sample_job job = {.params = &r->sampling,
                                 .history = h,
                                 .choice = choice,
                                 .n_history = r->n_prompt + n,
                                 .given = -1};
        if (n < r->min_tokens) {
            job.ban = r->stop_tokens;
            job.n_ban = r->n_stop_tokens;
        }
        int32_t token = script(&w->opt.n_vocab, &job);
        if (token < 0)
            return false;
        h[r->n_prompt + n] = token;
        if (n < l->seen.n_token[choice])
            EXPECT(l->seen.token[choice * l->seen.cap + n] == token);
        n++;
        for (uint32_t i = 0; i < r->n_stop_tokens && n > r->min_tokens; i++)
            reason = r->stop_tokens[i] == token ? FINISH_STOP : reason;
    }
    if (reason == FINISH_NONE)
        reason = FINISH_LENGTH;
    ck_assert_uint_le(l->seen.n_token[choice], n);
    if (whole) {
        ck_assert_uint_eq(l->seen.n_token[choice], n);
        ck_assert_int_eq(l->seen.reason[choice], reason);
    }
    return true;
}

static void expect_end(struct world *w, struct live *l)
{
    const struct request *r = l->r;
    enum status st = l->seen.status;
    bool finite = true;
    uint32_t n_output = 0;
    ck_assert_uint_eq(l->seen.n_end, 1);
    for (uint32_t c = 0; c < r->n_choices; c++) {
        finite &= expect_choice(w, l, c, st == OK);
        n_output += l->seen.n_token[c];
    }
    ck_assert_uint_eq(l->seen.end.n_output, n_output);
    ck_assert_uint_eq(l->seen.end.n_prompt, r->n_prompt);
    if (st == OK) {
        ck_assert(finite);
        ck_assert_uint_eq(l->seen.n_finish, r->n_choices);
        ck_assert_uint_eq(l->seen.n_prompt_events, r->prompt_logprobs ? r->n_prompt - 1 : 0);
        w->n_ok++;
    } else if (st == ERR_TIMEOUT) {
        ck_assert(r->queue_deadline_ns && n_output == 0);
    } else if (st == ERR_CANCELLED) {
        ck_assert(l->cancelled);
    } else if (st == ERR_NUMERIC) {
        ck_assert(!finite);
    } else {
        ck_assert(st == ERR_INTERNAL && w->n_injected > l->n_injected);
    }
    w->n_ended++;
}

/* Reads up to n events of one place; a request that ended is judged and leaves. */
static void read_some(struct world *w, struct live *l, uint32_t n)
{
    uint32_t n_bytes;
    const struct event *ev;
    for (uint32_t i = 0; l->r && i < n && (ev = byte_ring_peek(&l->r->ring, &n_bytes)); i++) {
        if (ev->type == EVENT_PROMPT && l->r->sampling.n_top >= 0) {
            uint32_t at = l->seen.n_prompt_events + 1;
            ck_assert_int_eq(ev->token, l->r->prompt[at]);
            ck_assert_float_eq(ev->logprob, fake_logprob(l->r->prompt, at, ev->token));
        }
        seen_event(&l->seen, ev);
        byte_ring_pop(&l->r->ring);
        if (l->seen.n_end == 0)
            continue;
        expect_end(w, l);
        seen_release(&l->seen);
        request_unref(l->r);
        l->r = NULL;
    }
}

static void op_cancel(struct world *w)
{
    struct live *l = &w->live[draw(w, MAX_LIVE)];
    if (!l->r)
        return;
    l->cancelled = true;
    sched_cancel(w->g.s, l->r);
}

static void op_fail(struct world *w)
{
    if (fake_steps(w->g.be) < w->inject_step + 8)
        return;
    w->inject_step = fake_steps(w->g.be);
    w->n_injected++;
    fake_fail_steps(w->g.be, 1);
}

static void audit(struct world *w)
{
    struct kv_pool *p = &w->g.s->pool;
    sched_audit(w->g.s);
    for (uint32_t i = p->free_head; i != KV_NO_BLOCK; i = p->block[i].next_free)
        fake_poison(w->g.be, i);
    EXPECT(fake_tag_mismatches(w->g.be) == 0);
}

static void one_op(struct world *w)
{
    uint32_t op = draw(w, 1000);
    if (op < 150)
        op_submit(w);
    else if (op < 170)
        op_cancel(w);
    else if (op < 175)
        op_fail(w);
    else if (op < 200)
        clock_fake_advance(draw(w, 20) * NS_PER_MS);
    else if (op < 600)
        read_some(w, &w->live[draw(w, MAX_LIVE)], 1 + draw(w, 8));
    else
        sched_turn(w->g.s);
    audit(w);
}

static void world_init(struct world *w, uint32_t seed)
{
    memset(w, 0, sizeof(*w));
    w->rng = seed * 2654435761u + 1;
    clock_fake(true, NS_PER_S);
    log_set_level(LOG_ERROR + 1); /* failed steps are the test's own */
    w->opt = rig_defaults();
    static const uint32_t slots[] = {4, 8, 16};
    w->opt.n_blocks = 8 + draw(w, 57);
    w->opt.n_slots = slots[draw(w, 3)];
    w->opt.n_vocab = 20 + draw(w, 60);
    w->opt.limits = (struct sched_limits){.max_running = 1 + draw(w, 16),
                                          .max_queued = draw(w, 12),
                                          .chunk_max = 1 + draw(w, 64),
                                          .step_target_ms = 1 + draw(w, 20),
                                          .max_context = 64 + draw(w, 64)};
    w->opt.limits.max_batch_tokens = w->opt.limits.max_running + draw(w, 64);
    w->opt.backend.max_outs = w->opt.limits.max_running + draw(w, 8);
    w->opt.fake.step_base_ns = draw(w, 3) * NS_PER_MS;
    w->opt.fake.step_row_ns = draw(w, 2) * NS_PER_MS / 4;
    w->opt.fake.script = script;
    w->opt.fake.script_arg = &w->opt.n_vocab;
    rig_init(&w->g, &w->opt);
}

START_TEST(any_order_of_operations_gives_each_request_its_own_tokens_once)
{
    static struct world w;
    world_init(&w, (uint32_t)_i + 1);
    for (uint32_t i = 0; i < N_OPS; i++)
        one_op(&w);
    for (uint32_t n_idle = 0; n_idle < 3;) {
        bool any = sched_turn(w.g.s);
        for (uint32_t i = 0; i < MAX_LIVE; i++)
            read_some(&w, &w.live[i], UINT32_MAX);
        audit(&w);
        n_idle = any ? 0 : n_idle + 1;
    }
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        ck_assert_msg(!w.live[i].r, "a request never ended");
    ck_assert_uint_eq(w.n_ended, w.n_submitted);
    ck_assert_uint_gt(w.n_ok, 0);
    ck_assert_uint_eq(w.g.s->pool.n_promised, 0);
    rig_release(&w.g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/random");
    TCase *tc = tcase_create("random");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, any_order_of_operations_gives_each_request_its_own_tokens_once, 0,
                        N_SEEDS);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
