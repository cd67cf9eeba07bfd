/* A scheduler over the fake backend, driven by hand on a fake clock. Included by one test file each. */
#ifndef TESTS_SCHEDULER_RIG_H
#define TESTS_SCHEDULER_RIG_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kvpool/kvpool_test.h"
#include "base/mem.h"
#include "engine/fake/fake.h"
#include "scheduler/copies.h"
#include "scheduler/gauges.h"
#include "scheduler/park.h"
#include "scheduler/room.h"
#include "scheduler/running.h"
#include "scheduler/snapshot.h"
#include "tests/unit/run_suite.h"

struct rig {
    struct kv_arena arena;
    struct kv_layout layout;
    struct backend *be;
    struct kv_disk *disk;
    struct sched *s;
};

struct rig_options {
    uint32_t n_blocks, n_slots, n_vocab; /* n_blocks: frames of each group */
    uint32_t n_groups; /* 0: one */
    uint32_t window[KV_MAX_GROUPS], n_frames[KV_MAX_GROUPS]; /* n_frames 0: n_blocks */
    uint32_t n_host[KV_MAX_GROUPS], n_file[KV_MAX_GROUPS]; /* slots of the tiers */
    bool prefix;
    const char *disk; /* folder of a disk prefix cache without a thread, or NULL */
    uint64_t disk_bytes, disk_deadline_ns;
    const struct kv_named *named; /* whose blocks are pinned there, or NULL */
    uint32_t key_bits, max_jobs;
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
        .backend = {.max_rows = 4096, .max_spans = 4096, .max_outs = 4096, .max_staged = 4096},
    };
}

static inline uint32_t rig_tier_room(void *tier)
{
    return fake_tier_room(tier);
}

static inline bool rig_tier_push(void *tier, const struct kv_job *job)
{
    return fake_tier_push(tier, job);
}

static inline bool rig_tier_pop(void *tier, struct kv_done *done)
{
    return fake_tier_pop(tier, done);
}

static inline struct kv_tier_costs rig_tier_costs(void *tier)
{
    return fake_tier_costs(tier);
}

static const struct sched_tier_ops rig_tier_ops = {rig_tier_room, rig_tier_push, rig_tier_pop,
                                                   rig_tier_costs};

/* Layers of a kind each in a group; sizes matter to nobody here. */
static inline void rig_memory(struct rig *g, const struct rig_options *o, struct fake_options *fake)
{
    uint32_t n_groups = o->n_groups ? o->n_groups : 1;
    size_t block_bytes = (size_t)o->n_slots * FAKE_SLOT_BYTES;
    g->arena = (struct kv_arena){.n_groups = n_groups};
    g->layout =
        (struct kv_layout){.n_layers = n_groups, .n_groups = n_groups, .n_slots = o->n_slots};
    for (uint32_t i = 0; i < n_groups; i++) {
        g->layout.group[i] = (struct kv_group){.n_layers = 1,
                                               .window = o->window[i],
                                               .n_kv_heads = 1,
                                               .head_dim = 1,
                                               .layer_bytes = block_bytes,
                                               .block_bytes = block_bytes};
        g->layout.layer_group[i] = (uint8_t)i;
        g->arena.group[i] =
            (struct kv_arena_group){.block_bytes = block_bytes,
                                    .n_frames = o->n_frames[i] ? o->n_frames[i] : o->n_blocks,
                                    .n_host = o->n_host[i]};
        fake->n_file[i] = o->n_file[i];
    }
    fake->n_vocab = o->n_vocab;
    fake->max_jobs = o->max_jobs;
}

static inline void rig_disk(struct rig *g, const struct rig_options *o, struct sched_memory *memory)
{
    struct err e;
    const struct kv_disk_options disk = {.layout = &g->layout,
                                         .store = g->be->kv,
                                         .path = o->disk,
                                         .max_bytes = o->disk_bytes,
                                         .named = o->named,
                                         .deadline_ns = o->disk_deadline_ns,
                                         .max_jobs = 8};
    if (!o->disk)
        return;
    ck_assert_msg(kv_disk_open(&disk, &g->disk, &e) == OK, "%s", e.text);
    kv_disk_secret(g->disk, memory->secret);
    memory->disk = g->disk;
    memory->store = g->be->kv;
}

static inline void rig_init(struct rig *g, const struct rig_options *o)
{
    struct err e;
    memset(g, 0, sizeof(*g));
    struct fake_options fake = o->fake;
    rig_memory(g, o, &fake);
    ck_assert_int_eq(fake_backend_new(&g->arena, &g->layout, o->backend, &fake, &g->be, &e), OK);
    struct sched_memory memory = {.layout = &g->layout,
                                  .arena = &g->arena,
                                  .tier_ops = o->max_jobs ? &rig_tier_ops : NULL,
                                  .tier = g->be,
                                  .max_jobs = o->max_jobs,
                                  .prefix = o->prefix,
                                  .key_bits = o->key_bits,
                                  .secret = {1, 2},
                                  .domain = {.rope = "", .adapter = "", .salt = ""}};
    rig_disk(g, o, &memory);
    memcpy(memory.n_file, o->n_file, sizeof(memory.n_file));
    ck_assert_msg(sched_new(&o->limits, g->be, &memory, o->tok, o->metrics, &g->s, &e) == OK, "%s",
                  e.text);
}

static inline bool rig_disk_step(const struct rig *g)
{
    return g->disk && kv_disk_step(g->disk);
}

/* Everything must have been given back. */
static inline void rig_release(struct rig *g)
{
    sched_stop(g->s);
    ck_assert_msg(fake_tag_mismatches(g->be) == 0, "%s", fake_mismatch(g->be));
    struct sched_stats st;
    sched_stats(g->s, &st);
    ck_assert_uint_eq(st.n_running, 0);
    ck_assert_uint_eq(st.n_waiting, 0);
    ck_assert_uint_eq(st.blocks_free, st.blocks_total);
    sched_free(g->s);
    kv_disk_close(g->disk);
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
