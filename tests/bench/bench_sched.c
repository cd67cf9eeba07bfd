/* Cost of the scheduler itself, without a model. Only prints; no time fails it.
 *
 *   bench_sched [steps]
 *
 * For 64, 256 and 1,024 running sequences that decode: time of planning a step (with its blocks), of
 * retiring it (tokens to events), and of a whole turn with waking; mean and 99th percentile. Then the
 * cost of admitting and ending one request. The backend answers at once. CPU time of the thread, so that
 * other load on the machine does not count. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "scheduler/emit.h"
#include "scheduler/plan.h"
#include "scheduler/retire.h"
#include "scheduler/running.h"
#include "scheduler/sched.h"
#include "scheduler/snapshot.h"
#include "tests/bench/bench_times.h"

enum { PROMPT = 100, MAX_OUT = 4000, MAX_STEPS = 3000 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct batch *in_flight;

static enum status submit(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e)
{
    (void)be, (void)e;
    *ticket = 0;
    for (uint32_t i = 0; i < b->n_outs; i++)
        b->out[i].job.token = 7;
    in_flight = b;
    return OK;
}

static enum status collect(struct backend *be, uint64_t ticket, struct batch **b, struct err *e)
{
    (void)be, (void)ticket, (void)e;
    *b = in_flight;
    return OK;
}

static enum status copy_block(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                              struct err *e)
{
    (void)be, (void)group, (void)src, (void)dst, (void)e;
    return OK;
}

static void close_nothing(struct backend *be)
{
    (void)be;
}

static const struct backend_ops ops = {submit, collect, copy_block, close_nothing};

static struct sched *make(struct backend *be, struct kv_arena *arena, uint32_t n_running)
{
    struct sched_limits limits = {.max_running = n_running,
                                  .max_queued = n_running,
                                  .max_batch_tokens = 2 * n_running + 512,
                                  .chunk_max = 512,
                                  .step_target_ms = 200,
                                  .max_context = 8192};
    struct kv_layout layout = {.n_layers = 1, .n_groups = 1, .n_slots = 16};
    struct sched *s;
    struct err e;
    *arena = (struct kv_arena){.n_groups = 1,
                               .group = {{.block_bytes = 64, .n_frames = n_running * 300}}};
    *be = (struct backend){
        .ops = &ops, .layout = layout, .limits = {8192, 8192, 8192, 0}, .n_vocab = 100};
    const struct sched_memory memory = {.layout = &layout,
                                        .arena = arena,
                                        .prefix = true,
                                        .secret = {1, 2},
                                        .domain = {.rope = "", .adapter = "", .salt = ""}};
    CHECKF(sched_new(&limits, be, &memory, NULL, NULL, &s, &e) == OK, "%s", e.text);
    return s;
}

static struct request *make_request(uint32_t n_prompt, uint32_t max_tokens)
{
    struct request *r = request_new(1u << 12);
    r->prompt = mem_zalloc(n_prompt * sizeof(int32_t));
    r->n_prompt = n_prompt;
    r->max_tokens = max_tokens;
    return r;
}

static void read_all(struct request *r)
{
    uint32_t n;
    while (byte_ring_peek(&r->ring, &n))
        byte_ring_pop(&r->ring);
}

static void bench_decode(uint32_t n_running, uint32_t n_steps)
{
    struct backend be;
    struct kv_arena arena;
    struct sched *s = make(&be, &arena, n_running);
    struct request **r = mem_alloc(n_running * sizeof(struct request *));
    static uint64_t plan[MAX_STEPS], retire[MAX_STEPS], turn[MAX_STEPS];
    struct err e;
    for (uint32_t i = 0; i < n_running; i++) {
        r[i] = make_request(PROMPT, MAX_OUT);
        CHECK(sched_submit(s, r[i], NULL, &e) == OK);
    }
    while (s->running.n < n_running || s->step.n_prompt_rows > 0) {
        sched_turn(s);
        for (uint32_t i = 0; i < n_running; i++)
            read_all(r[i]);
    }
    for (uint32_t k = 0; k < n_steps; k++) {
        uint64_t t0 = now_ns();
        plan_step(s, &s->step);
        uint64_t t1 = now_ns();
        submit(&be, &s->step.batch, &(uint64_t){0}, &e);
        uint64_t t2 = now_ns();
        s->now_ns = t2;
        retire_step(s, &s->step);
        emit_wake(s);
        uint64_t t3 = now_ns();
        plan[k] = t1 - t0;
        retire[k] = t3 - t2;
        CHECK(s->step.batch.n_rows == n_running);
        for (uint32_t i = 0; i < n_running; i++)
            read_all(r[i]);
        t0 = now_ns();
        sched_turn(s);
        turn[k] = now_ns() - t0;
        for (uint32_t i = 0; i < n_running; i++)
            read_all(r[i]);
    }
    printf("%u running sequences, %u steps\n", n_running, n_steps);
    print_times("plan", plan, n_steps);
    print_times("retire", retire, n_steps);
    print_times("turn", turn, n_steps);
    sched_stop(s);
    for (uint32_t i = 0; i < n_running; i++)
        request_unref(r[i]);
    mem_free(r);
    sched_free(s);
}

/* One prompt of 1,024 tokens in, one token out: all of the scheduler's work for it. */
static void bench_request(uint32_t n)
{
    struct backend be;
    struct kv_arena arena;
    struct sched *s = make(&be, &arena, 64);
    static uint64_t took[MAX_STEPS];
    struct err e;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = make_request(1024, 1);
        uint64_t t0 = now_ns();
        CHECK(sched_submit(s, r, NULL, &e) == OK);
        while (s->queue || s->running.reqs || i + 1 > s->n_tickets)
            sched_turn(s);
        took[i] = now_ns() - t0;
        request_unref(r);
    }
    printf("one request of 1,024 prompt tokens and 1 output token (submit to end)\n");
    print_times("request", took, n);
    sched_stop(s);
    sched_free(s);
}

int main(int argc, char **argv)
{
    uint32_t n_steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    if (n_steps < 1 || n_steps > MAX_STEPS / 2)
        n_steps = 1000;
    bench_decode(64, n_steps);
    bench_decode(256, n_steps);
    bench_decode(1024, n_steps);
    bench_request(n_steps);
    return 0;
}
