/* A scheduler over the fake backend, driven by hand on a fake clock. Included by one test file each. */
#ifndef TESTS_SCHEDULER_RIG_H
#define TESTS_SCHEDULER_RIG_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/fake/fake.h"
#include "scheduler/sched.h"
#include "tests/unit/run_suite.h"

struct rig {
    struct kv_arena arena; /* no bytes: the fake keeps its own slots */
    struct kv_layout layout;
    struct backend *be;
    struct sched *s;
};

struct rig_options {
    uint32_t n_blocks, n_slots, n_vocab;
    struct sched_limits limits;
    struct fake_options fake;
    struct backend_limits backend;
    const struct tokenizer *tok;
    struct metrics *metrics;
};

static inline struct rig_options rig_defaults(void)
{
    return (struct rig_options){
        .n_blocks = 4096,
        .n_slots = 16,
        .n_vocab = 1000,
        .limits = {.max_running = 64,
                   .max_queued = 1024,
                   .max_batch_tokens = 512,
                   .chunk_max = 256,
                   .step_target_ms = 200,
                   .max_context = 8192},
        .backend = {.max_rows = 4096, .max_spans = 4096, .max_outs = 4096},
    };
}

static inline void rig_init(struct rig *g, const struct rig_options *o)
{
    struct err e;
    memset(g, 0, sizeof(*g));
    g->arena =
        (struct kv_arena){.n_groups = 1, .group = {{.block_bytes = 64, .n_frames = o->n_blocks}}};
    g->layout = (struct kv_layout){.n_layers = 1, .n_groups = 1, .n_slots = o->n_slots};
    struct fake_options fake = o->fake;
    fake.n_vocab = o->n_vocab;
    ck_assert_int_eq(fake_backend_new(&g->arena, &g->layout, o->backend, &fake, &g->be, &e), OK);
    ck_assert_msg(
        sched_new(&o->limits, g->be, &g->arena, &g->layout, o->tok, o->metrics, &g->s, &e) == OK,
        "%s", e.text);
}

/* Everything must have been given back. */
static inline void rig_release(struct rig *g)
{
    sched_stop(g->s);
    ck_assert_uint_eq(fake_tag_mismatches(g->be), 0);
    struct sched_stats st;
    sched_stats(g->s, &st);
    ck_assert_uint_eq(st.n_running, 0);
    ck_assert_uint_eq(st.n_waiting, 0);
    ck_assert_uint_eq(st.blocks_free, st.blocks_total);
    sched_free(g->s);
    g->be->ops->close(g->be);
}

static inline struct request *rig_request(const struct rig *g, const int32_t *prompt,
                                          uint32_t n_prompt, uint32_t max_tokens)
{
    (void)g;
    struct request *r = request_new(1u << 16);
    r->prompt = mem_dup(prompt, n_prompt * sizeof(int32_t));
    r->n_prompt = n_prompt;
    r->max_tokens = max_tokens;
    r->sampling.temperature = 0;
    return r;
}

/* A prompt of n tokens that no other seed gives. */
static inline struct request *rig_random(const struct rig *g, uint32_t seed, uint32_t n_prompt,
                                         uint32_t max_tokens)
{
    int32_t *prompt = mem_alloc(n_prompt * sizeof(int32_t));
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)((seed * 2654435761u + i * 40503u + (i * seed) % 7u) % g->be->n_vocab);
    struct request *r = rig_request(g, prompt, n_prompt, max_tokens);
    mem_free(prompt);
    return r;
}

static inline void rig_submit(struct rig *g, struct request *r)
{
    struct err e;
    uint32_t retry = 0;
    enum status st = sched_submit(g->s, r, &retry, &e);
    ck_assert_msg(st == OK, "%s", e.text);
}

/* What a consumer has read of one request. */
struct seen {
    int32_t *token; /* owns: of all choices, [choice * cap + i] */
    uint32_t cap;
    uint32_t n_token[64];
    enum finish_reason reason[64];
    int32_t stop_token[64];
    uint32_t n_prompt_events;
    uint32_t n_finish, n_end;
    enum status status;
    char error[ERR_TEXT_CAP + 1];
    struct event end;
};

static inline void seen_init(struct seen *o, const struct request *r)
{
    memset(o, 0, sizeof(*o));
    o->cap = r->max_tokens + 1;
    o->token = mem_zalloc((size_t)o->cap * r->n_choices * sizeof(int32_t));
}

static inline void seen_release(struct seen *o)
{
    mem_free(o->token);
}

static inline void seen_event(struct seen *o, const struct event *ev)
{
    EXPECT(o->n_end == 0);
    EXPECT(ev->choice < 64);
    if (ev->type == EVENT_TOKEN) {
        EXPECT(o->reason[ev->choice] == FINISH_NONE);
        EXPECT(o->n_token[ev->choice] < o->cap);
        o->token[ev->choice * o->cap + o->n_token[ev->choice]++] = ev->token;
    } else if (ev->type == EVENT_PROMPT) {
        o->n_prompt_events++;
    } else if (ev->type == EVENT_FINISH) {
        EXPECT(o->reason[ev->choice] == FINISH_NONE);
        o->reason[ev->choice] = ev->reason;
        o->stop_token[ev->choice] = ev->stop_token;
        o->n_finish++;
    } else {
        EXPECT(ev->type == EVENT_END);
        o->n_end++;
        o->status = ev->status;
        o->end = *ev;
        memcpy(o->error, event_text(ev), ev->n_text);
    }
}

/* Takes at most n events; returns how many there were. */
static inline uint32_t seen_read(struct seen *o, struct request *r, uint32_t n)
{
    uint32_t i = 0, n_bytes;
    const struct event *ev;
    for (; i < n && (ev = byte_ring_peek(&r->ring, &n_bytes)) != NULL; i++) {
        EXPECT(n_bytes >= sizeof(*ev));
        seen_event(o, ev);
        byte_ring_pop(&r->ring);
    }
    return i;
}

/* Turns until the scheduler has nothing to do. */
static inline void rig_run(struct rig *g)
{
    while (sched_turn(g->s))
        ;
}

#endif
