/* A world of random operations: its state, its counters, its construction; see tag_world.h. */
#ifndef TESTS_SCHEDULER_TAG_STATE_H
#define TESTS_SCHEDULER_TAG_STATE_H

#include "base/log.h"
#include "config/metrics.h"
#include "kvpool/cache_int.h"
#include "kvpool/disk_int.h"
#include "kvpool/named.h"
#include "tests/unit/scheduler/rig.h"
#include "tests/unit/scheduler/tag_lone.h"

enum { MAX_LIVE = 20, N_FAMILIES = 4, N_TENANTS = 4, N_NAMES = 3, MAX_KEYS = 128, N_VIEWS = 8 };

/* X(id, what) */
#define TAG_COUNTS(X)                                                                              \
    X(END, "requests that ended well")                                                             \
    X(HIT, "hits")                                                                                 \
    X(FORK, "forks")                                                                               \
    X(SWAP, "swaps")                                                                               \
    X(RECOMPUTE, "preemptions by recompute")                                                       \
    X(LOAD, "loads")                                                                               \
    X(STAGE, "steps with staged blocks")                                                           \
    X(LONGER_THAN_ARENA, "longer than the arena")                                                  \
    X(COPY_FAIL, "failed copies")                                                                  \
    X(READ_FAIL, "failed reads")                                                                   \
    X(STEP_FAIL, "failed steps")                                                                   \
    X(NAN, "values not finite")                                                                    \
    X(CANCEL, "cancels")                                                                           \
    X(TIMEOUT, "timeouts")                                                                         \
    X(REFUSE, "refusals")                                                                          \
    X(RESERVE, "reserved requests")                                                                \
    X(SQUEEZE, "squeezes")                                                                         \
    X(CLEAR, "clears")                                                                             \
    X(RELOAD, "reloads")                                                                           \
    X(DRAIN, "drains")                                                                             \
    X(EVICT, "evictions")                                                                          \
    X(PAUSE, "paused for a full ring")                                                             \
    X(SLIDE, "windows slid")                                                                       \
    X(RESTART, "stops with all under way")                                                         \
    X(OVERFLOW, "overflows")                                                                       \
    X(OVERFLOW_AGAIN, "overflows after the first")                                                 \
    X(OVERFLOW_FORK, "overflows of several choices")                                               \
    X(OVERFLOW_HIT, "overflows with a hit after")                                                  \
    X(OVERFLOW_CANCEL, "overflows, then a cancel")                                                 \
    X(OVERFLOW_NAN, "overflows, then not finite")                                                  \
    X(OVERFLOW_SWAP, "overflows, then a swap")                                                     \
    X(OVERFLOW_RECOMPUTE, "overflows, then a recompute")                                           \
    X(OVERFLOW_COPY_FAIL, "overflows, then a failed copy")                                         \
    X(LATE_RUN, "steps that ran when collected")                                                   \
    X(LATE_FAIL, "steps that failed when collected")                                               \
    X(LATE_SUBMIT, "submits within a step")                                                        \
    X(LATE_CANCEL, "cancels within a step")                                                        \
    X(LATE_COPY, "copies ended within a step")                                                     \
    X(LATE_READ, "events read within a step")                                                      \
    X(LATE_SQUEEZE, "squeezes within a step")                                                      \
    X(LATE_CLEAR, "clears within a step")                                                          \
    X(LATE_RELOAD, "reloads within a step")                                                        \
    X(ASK, "questions answered")                                                                   \
    X(FILL, "prompts only filled")                                                                 \
    X(NAMED, "prefixes by name")                                                                   \
    X(PIN, "prefixes pinned")                                                                      \
    X(UNPIN, "prefixes let go")                                                                    \
    X(PIN_HELD, "disk evictions beside pins")                                                      \
    X(DISK_PUT, "blocks to the disk")                                                              \
    X(DISK_GET, "blocks from the disk")                                                            \
    X(DISK_EVICT, "disk evictions")                                                                \
    X(DISK_BAD, "damaged disk blocks found")                                                       \
    X(DISK_LATE, "answers of the disk too late")                                                   \
    X(DISK_CANCEL, "cancels within a fetch")                                                       \
    X(WATCH, "looks at the oldest request")                                                        \
    X(WATCH_OTHERS, "looks at younger ones that stand still")                                      \
    X(WATCH_PROMISED, "looks at the oldest beside promises")                                       \
    X(WATCH_WAITS, "looks at ones that wait for a copy or a reader")

enum tag_count {
#define X(id, what) DID_##id,
    TAG_COUNTS(X)
#undef X
        N_TAG_COUNTS
};

static const char *const tag_names[N_TAG_COUNTS] = {
#define X(id, what) what,
    TAG_COUNTS(X)
#undef X
};

struct live {
    struct request *r; /* NULL: free place */
    struct lone lone[MAX_CHOICES];
    bool cancelled, fresh_salt, nan_prompt;
    uint64_t cancel_turn; /* the last turn that had begun when it was cancelled */
    uint32_t name; /* the prefix it was to fill, from 1 on; 0: none */
    uint32_t n_prompt_events, n_injected;
    uint64_t prompt_chain; /* of the prompt tokens reported so far */
    uint64_t steps; /* the last steps that its choices had rows in, summed up */
    uint32_t n_still; /* looks since they changed, or since it is the oldest */
    bool is_oldest, waits; /* as of the last look; for frames */
    uint64_t most_still; /* looks that others' work allows, as of then */
};

/* A named prefix whose blocks the disk is to keep. */
struct tag_name {
    struct kv_key key[MAX_KEYS];
    uint32_t n_keys, version;
    bool pinned; /* the engine thread has done so */
    bool seen[KV_MAX_GROUPS][MAX_KEYS]; /* on the disk */
};

struct tag_world {
    struct random r;
    struct rig g;
    struct rig_options opt;
    struct lone_world ref;
    struct metrics *metrics;
    uint32_t fault; /* of enum kvc_fault, or KVC_N_FAULTS - 1 + one of enum sched_fault */
    struct live live[MAX_LIVE];
    struct kv_seq squatter; /* holds promises, so that others find less room */
    bool squeezes, squeezed; /* may be; is now */
    bool long_ones; /* many requests are longer than the arena */
    bool overflows; /* many requests go on beyond their context */
    bool rushes; /* requests come one after the other, many with their worst case promised */
    uint32_t copies_fail; /* one in so many */
    bool slow_readers; /* consumers read at random, not after each turn */
    bool meanwhile; /* a step is out */
    bool settles; /* nothing new comes, copies end well */
    bool stopping; /* sched_stop was called */
    uint32_t n_injected, n_salts;
    uint64_t inject_step, n_turns, n_tickets; /* of the scheduler, before this turn */
    uint32_t n_submitted, n_ended;
    uint32_t max_context;
    uint32_t n_tenants; /* slots in use */
    uint8_t *was_free[KV_MAX_GROUPS];
    struct kv_stats before; /* counted already */
    uint64_t n_swapped, n_recomputed;
    struct sched_ask ask;
    bool asks; /* ask is under way */
    struct seq_view view[N_VIEWS];
    /* with a disk */
    char folder[80];
    struct kv_named *named; /* in memory: outlives the scheduler as files would */
    struct tag_name name[N_NAMES];
    uint32_t n_pin_asks; /* changes of pins under way */
    struct kv_disk_stats disk_before;
    bool damages; /* bits of files flip */
};

static const char *tag_folder; /* of the folders of all worlds; main makes and removes it */

/* ---- tenants ---- */

static inline uint32_t cap_or_none(struct tag_world *w, uint32_t below)
{
    return one_in(&w->r, 2) ? 0 : 1 + draw(&w->r, below);
}

/* Weights and caps, as a key file that was read again. */
static inline void tag_tenants(struct tag_world *w)
{
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    set->n = N_TENANTS;
    w->n_tenants = 1 + draw(&w->r, N_TENANTS);
    for (uint32_t i = 0; i < w->n_tenants; i++) {
        set->row[i] = (struct tenant_config){.generation = 1,
                                             .weight = 1 + draw(&w->r, 10),
                                             .priority = (int32_t)draw(&w->r, 5) - 4,
                                             .max_running = cap_or_none(w, 6),
                                             .max_queued = cap_or_none(w, 8),
                                             .max_queued_tokens = cap_or_none(w, 400)};
        snprintf(set->row[i].name, sizeof(set->row[i].name), "tenant %u", i);
        if (w->rushes && one_in(&w->r, 2))
            set->row[i].weight = TENANT_WEIGHT_MAX;
        if (one_in(&w->r, 4))
            set->row[i].tokens_per_minute = 1000 + draw(&w->r, 100000);
    }
    tenants_publish(w->g.s->tenants, set);
}

/* ---- making it ---- */

static inline void tag_pool(struct tag_world *w)
{
    struct random *r = &w->r;
    struct rig_options *o = &w->opt;
    static const uint32_t slots[] = {4, 8, 16};
    o->n_slots = slots[draw(r, 3)];
    o->n_groups = 1;
    uint32_t kind = draw(r, 5), window = (1 + draw(r, 3)) * o->n_slots - 1 + draw(r, 3);
    if (one_in(r, 4))
        window = 2 + draw(r, 3 * o->n_slots);
    if (kind == 4)
        o->window[0] = window;
    if (kind >= 2 && kind < 4) {
        o->n_groups = 2;
        o->window[1] = window;
    }
    bool has_host = one_in(r, 3), has_file = one_in(r, 2);
    for (uint32_t g = 0; g < o->n_groups; g++) {
        o->n_frames[g] = 8 + draw(r, 56);
        o->n_host[g] = has_host ? 1 + draw(r, 40) : 0;
        o->n_file[g] = has_file ? 1 + draw(r, 60) : 0;
    }
    o->max_jobs = has_host || has_file ? 1 + draw(r, 8) : 0;
    o->prefix = !one_in(r, 5);
    o->key_bits = one_in(r, 2) ? 8 : 128;
    o->fake.tier_waits = !one_in(r, 8);
    if (one_in(r, 2))
        o->fake.tier_costs = (struct kv_tier_costs){0.5, 5, 2};
}

/* Some worlds have a disk: no spill file then (engine/fake/fake.h), and whole keys. */
static inline void tag_disk_options(struct tag_world *w)
{
    struct random *r = &w->r;
    struct rig_options *o = &w->opt;
    if (!one_in(r, 6))
        return;
    for (uint32_t g = 0; g < o->n_groups; g++)
        o->n_file[g] = 0;
    o->max_jobs = o->n_host[0] ? o->max_jobs : 0;
    o->prefix = true;
    o->key_bits = 128;
    snprintf(w->folder, sizeof(w->folder), "%s/%llu-%d", tag_folder, (unsigned long long)r->seed,
             (int)getpid());
    o->disk = w->folder;
    o->disk_bytes = (uint64_t)(8 + draw(r, 60)) * o->n_groups * DISK_UNIT_BYTES;
    o->disk_deadline_ns = one_in(r, 2) ? (10 + draw(r, 200)) * NS_PER_MS : 0;
    w->damages = one_in(r, 2);
    struct err e;
    ck_assert_msg(kv_named_open(&(struct kv_named_options){.path = ""}, &w->named, &e) == OK, "%s",
                  e.text);
    o->named = w->named;
}

static inline void tag_meanwhile(void *arg);
static inline void check_outputs(void *arg, const struct batch *b);

/* A scheduler and what belongs to it: at the start, and after each stop. */
static inline void tag_start(struct tag_world *w)
{
    rig_init(&w->g, &w->opt);
    fake_set_meanwhile(w->g.be, tag_meanwhile, w);
    fake_set_watch(w->g.be, check_outputs, w);
    w->g.s->kv->fault = w->fault < KVC_N_FAULTS ? (enum kvc_fault)w->fault : KVC_NO_FAULT;
    w->g.s->fault =
        w->fault < KVC_N_FAULTS ? SCHED_NO_FAULT : (enum sched_fault)(w->fault - KVC_N_FAULTS + 1);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        memset(w->was_free[g], 0, w->opt.n_frames[g] + w->opt.n_host[g] + w->opt.n_file[g]);
    w->n_tenants = 1;
    if (one_in(&w->r, 2))
        tag_tenants(w);
    w->before = (struct kv_stats){0};
    w->disk_before = (struct kv_disk_stats){0};
    w->n_swapped = w->n_recomputed = 0;
    w->squeezed = w->stopping = false;
    struct kv_domain d = {.rope = "", .adapter = "", .salt = ""};
    kv_seq_init(w->g.s->kv, &w->squatter, 1, kv_root(w->g.s->kv, &d));
}

/* Some worlds have answers that go on beyond their context, often with few frames for them. */
static inline void tag_overflow_options(struct tag_world *w)
{
    struct random *r = &w->r;
    struct rig_options *o = &w->opt;
    w->overflows = !w->long_ones && one_in(r, 2);
    if (!w->overflows || one_in(r, 3))
        return;
    for (uint32_t g = 0; g < o->n_groups; g++) {
        o->n_frames[g] = 8 + draw(r, 12);
        o->n_host[g] += 10 + draw(r, 20);
    }
    o->max_jobs += o->max_jobs ? 0 : 1 + draw(r, 8);
    o->limits.max_running = 6 + draw(r, 8);
    o->limits.reserve = SCHED_RESERVE_NONE;
    o->limits.preempt = (enum sched_preempt)draw(r, 3);
}

/* Some worlds are small and never empty: whoever came first must go on all the same. */
static inline void tag_rush_options(struct tag_world *w)
{
    struct random *r = &w->r;
    struct rig_options *o = &w->opt;
    w->rushes = !w->long_ones && one_in(r, 3);
    if (!w->rushes)
        return;
    w->squeezes = false;
    for (uint32_t g = 0; g < o->n_groups; g++)
        o->n_frames[g] = 10 + draw(r, 24);
    o->limits.max_running = 4 + draw(r, 12);
    o->limits.max_queued = 8 + draw(r, 12);
    if (one_in(r, 2)) {
        o->limits.reserve = SCHED_RESERVE_QUANTILE;
        o->limits.preempt = (enum sched_preempt)draw(r, 3);
    }
}

static inline void tag_open(struct tag_world *w, uint64_t seed, uint32_t fault)
{
    memset(w, 0, sizeof(*w));
    w->fault = fault;
    random_init(&w->r, seed);
    struct random *r = &w->r;
    clock_fake(true, NS_PER_S);
    log_set_level(LOG_ERROR + 1); /* failed steps are the test's own */
    w->opt = rig_defaults();
    tag_pool(w);
    tag_disk_options(w);
    w->opt.n_vocab = 20 + draw(r, 60);
    w->squeezes = one_in(r, 3);
    w->slow_readers = one_in(r, 4);
    w->max_context = 64 + draw(r, 64);
    if (one_in(r, 3))
        w->max_context = 64 + draw(r, 400);
    w->opt.limits = (struct sched_limits){.max_running = 1 + draw(r, 16),
                                          .max_queued = draw(r, 12),
                                          .chunk_max = 1 + draw(r, 64),
                                          .step_target_ms = 1 + draw(r, 20),
                                          .max_context = w->max_context,
                                          .reserve = (enum sched_reserve)draw(r, 2),
                                          .preempt = (enum sched_preempt)draw(r, 3)};
    if (one_in(r, 8))
        w->opt.limits.reserve = SCHED_RESERVE_MAX;
    if (one_in(r, 10))
        w->opt.limits.preempt = SCHED_PREEMPT_NEVER;
    if (one_in(r, 2)) { /* little room for many */
        for (uint32_t g = 0; g < w->opt.n_groups; g++)
            w->opt.n_frames[g] = 8 + draw(r, 24);
        w->opt.limits.max_running = 6 + draw(r, 12);
        w->opt.limits.reserve = SCHED_RESERVE_NONE;
    }
    w->long_ones = w->opt.n_file[0] && !w->opt.window[0] && one_in(r, 2);
    if (w->long_ones) { /* frames for a chunk and some more, slots for the rest */
        w->opt.n_slots = 4;
        w->opt.n_frames[0] = 14 + draw(r, 20);
        w->opt.n_file[0] += 60;
        w->opt.limits.chunk_max = 1 + draw(r, 16);
        w->opt.limits.max_context = w->max_context = 200 + draw(r, 200);
    }
    w->copies_fail = one_in(r, 3) ? 6 : 40;
    tag_overflow_options(w);
    tag_rush_options(w);
    w->opt.limits.journal_bytes = one_in(r, 4) ? 1 << 14 : 0;
    w->opt.fake.runs_late = one_in(r, 2);
    w->opt.limits.max_batch_tokens = w->opt.limits.max_running + draw(r, w->rushes ? 6 : 64);
    w->opt.backend.max_outs = w->opt.limits.max_running + draw(r, 8);
    w->opt.fake.step_base_ns = draw(r, 3) * NS_PER_MS;
    w->opt.fake.step_row_ns = draw(r, 2) * NS_PER_MS / 4;
    w->opt.fake.kv_finite = tag_kv_finite;
    w->opt.fake.logits_finite = tag_logits_finite;
    w->opt.metrics = w->metrics = metrics_new(metrics_table, metrics_table_n);
    w->ref = (struct lone_world){w->opt.n_slots, w->opt.n_vocab, w->opt.prefix};
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        w->was_free[g] = mem_alloc(w->opt.n_frames[g] + w->opt.n_host[g] + w->opt.n_file[g]);
    tag_start(w);
}

#endif
