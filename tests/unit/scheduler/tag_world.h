/* Random operations on a scheduler over tiny pools, for test_tag_random.c and the planted faults.
 *
 * The reference is naive: each choice of each request stepped alone, by the tag of its own history. Every
 * token, reason, prompt logprob and end is compared as it arrives. */
#ifndef TESTS_SCHEDULER_TAG_WORLD_H
#define TESTS_SCHEDULER_TAG_WORLD_H

#include "base/log.h"
#include "config/metrics.h"
#include "kvpool/cache_int.h"
#include "tests/unit/random_ops.h"
#include "tests/unit/scheduler/rig.h"

enum { MAX_LIVE = 20, MAX_CHOICES = 5, N_FAMILIES = 4, N_TENANTS = 4 };

enum tag_count {
    DID_END,
    DID_HIT,
    DID_FORK,
    DID_SWAP,
    DID_RECOMPUTE,
    DID_LOAD,
    DID_STAGE,
    DID_LONGER_THAN_ARENA,
    DID_COPY_FAIL,
    DID_READ_FAIL,
    DID_STEP_FAIL,
    DID_NAN,
    DID_CANCEL,
    DID_TIMEOUT,
    DID_REFUSE,
    DID_RESERVE,
    DID_SQUEEZE,
    DID_CLEAR,
    DID_RELOAD,
    DID_DRAIN,
    DID_EVICT,
    DID_PAUSE,
    DID_SLIDE,
    N_TAG_COUNTS
};

static const char *const tag_names[N_TAG_COUNTS] = {"requests that ended well",
                                                    "hits",
                                                    "forks",
                                                    "swaps",
                                                    "preemptions by recompute",
                                                    "loads",
                                                    "steps with staged blocks",
                                                    "longer than the arena",
                                                    "failed copies",
                                                    "failed reads",
                                                    "failed steps",
                                                    "values not finite",
                                                    "cancels",
                                                    "timeouts",
                                                    "refusals",
                                                    "reserved requests",
                                                    "squeezes",
                                                    "clears",
                                                    "reloads",
                                                    "drains",
                                                    "evictions",
                                                    "paused for a full ring",
                                                    "windows slid"};

/* One choice stepped alone. */
struct lone {
    uint64_t chain; /* of the history so far */
    uint32_t n; /* tokens given out */
    enum finish_reason reason; /* not FINISH_NONE: it has ended */
    bool finished; /* EVENT_FINISH came */
};

struct live {
    struct request *r; /* NULL: free place */
    struct lone lone[MAX_CHOICES];
    bool cancelled, fresh_salt, nan_prompt;
    uint32_t n_prompt_events, n_injected;
    uint64_t prompt_chain; /* of the prompt tokens reported so far */
};

struct tag_world {
    struct random r;
    struct rig g;
    struct rig_options opt;
    struct metrics *metrics;
    struct live live[MAX_LIVE];
    struct kv_seq squatter; /* holds promises, so that others find less room */
    bool squeezes, squeezed; /* may be; is now */
    bool long_ones; /* many requests are longer than the arena */
    bool slow_readers; /* consumers read at random, not after each turn */
    uint32_t n_injected, n_salts;
    uint64_t inject_step;
    uint32_t n_submitted, n_ended;
    uint32_t max_context;
    uint32_t n_tenants; /* slots in use */
    uint8_t *was_free[KV_MAX_GROUPS];
    struct kv_stats before; /* counted already */
    uint64_t n_swapped, n_recomputed;
};

static inline bool tag_kv_finite(uint64_t chain)
{
    return chain % 4001 != 0;
}

static inline bool tag_logits_finite(uint64_t chain)
{
    return chain % 4003 != 0;
}

/* ---- tenants ---- */

static inline uint32_t cap_or_none(struct tag_world *w, uint32_t below)
{
    return one_in(&w->r, 2) ? 0 : 1 + draw(&w->r, below);
}

/* Weights and caps, as a key file that was read again. */
static inline void tag_tenants(struct tag_world *w)
{
    static struct tenant_set set;
    memset(&set, 0, sizeof(set));
    set.n = N_TENANTS;
    w->n_tenants = 1 + draw(&w->r, N_TENANTS);
    for (uint32_t i = 0; i < w->n_tenants; i++) {
        set.row[i] = (struct tenant_config){.generation = 1,
                                            .weight = 1 + draw(&w->r, 10),
                                            .priority = (int32_t)draw(&w->r, 5) - 4,
                                            .max_running = cap_or_none(w, 6),
                                            .max_queued = cap_or_none(w, 8),
                                            .max_queued_tokens = cap_or_none(w, 400)};
        snprintf(set.row[i].name, sizeof(set.row[i].name), "tenant %u", i);
        if (one_in(&w->r, 4))
            set.row[i].tokens_per_minute = 1000 + draw(&w->r, 100000);
    }
    tenants_apply(w->g.s->tenants, &set);
    w->g.s->epoch++; /* more may fit now */
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

static inline void tag_open(struct tag_world *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    random_init(&w->r, seed);
    struct random *r = &w->r;
    clock_fake(true, NS_PER_S);
    log_set_level(LOG_ERROR + 1); /* failed steps are the test's own */
    w->opt = rig_defaults();
    tag_pool(w);
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
    w->opt.limits.max_batch_tokens = w->opt.limits.max_running + draw(r, 64);
    w->opt.backend.max_outs = w->opt.limits.max_running + draw(r, 8);
    w->opt.fake.step_base_ns = draw(r, 3) * NS_PER_MS;
    w->opt.fake.step_row_ns = draw(r, 2) * NS_PER_MS / 4;
    w->opt.fake.kv_finite = tag_kv_finite;
    w->opt.fake.logits_finite = tag_logits_finite;
    w->opt.metrics = w->metrics = metrics_new(metrics_table, metrics_table_n);
    rig_init(&w->g, &w->opt);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        w->was_free[g] = mem_zalloc(w->opt.n_frames[g] + w->opt.n_host[g] + w->opt.n_file[g]);
    w->n_tenants = 1;
    if (one_in(r, 2))
        tag_tenants(w);
    struct kv_domain d = {.rope = "", .adapter = "", .salt = ""};
    kv_seq_init(w->g.s->kv, &w->squatter, 1, kv_root(w->g.s->kv, &d));
}

/* ---- submit ---- */

/* Promises to the squatter leave room for this request when it is alone: nobody else's is what the
 * scheduler knows of. */
static inline bool tag_fits_squeezed(const struct tag_world *w, const struct request *r)
{
    struct kv_need worst;
    struct err e;
    if (!w->squeezes ||
        !room_worst(w->g.s, r->n_prompt, r->max_tokens, r->n_choices, r->reserve, &worst, &e))
        return true;
    for (uint32_t g = 0; g < w->opt.n_groups; g++) {
        if (worst.n[g] > w->opt.n_frames[g] * 3 / 4)
            return false;
    }
    return true;
}

static inline void tag_prompt(struct tag_world *w, struct request *r)
{
    struct random *rnd = &w->r;
    uint32_t family = draw(rnd, N_FAMILIES), n_shared = draw(rnd, 60), n_own = draw(rnd, 12);
    if (one_in(rnd, 3))
        n_shared -= n_shared % w->opt.n_slots;
    if (one_in(rnd, w->long_ones ? 2 : 6))
        n_shared += draw(rnd, w->max_context - 60);
    if (one_in(rnd, 4)) {
        n_own += n_shared;
        n_shared = 0;
    }
    uint32_t n = n_shared + n_own ? n_shared + n_own : 1;
    r->prompt = mem_alloc(n * sizeof(int32_t));
    r->n_prompt = n;
    for (uint32_t i = 0; i < n; i++)
        r->prompt[i] = i < n_shared ? (int32_t)(random_mix(family * 1000003u + i) % w->opt.n_vocab)
                                    : (int32_t)draw(rnd, w->opt.n_vocab);
}

static inline bool tag_salt(struct tag_world *w, struct request *r)
{
    uint32_t kind = draw(&w->r, 8);
    if (kind < 5)
        return false;
    uint32_t salt = kind < 7 ? kind : 1000 + w->n_salts++;
    r->salt = mem_dup(&salt, sizeof(salt));
    r->n_salt_bytes = sizeof(salt);
    return kind == 7;
}

static inline struct request *tag_request(struct tag_world *w, bool *fresh_salt)
{
    struct random *rnd = &w->r;
    struct request *r = request_new(1u << 10);
    tag_prompt(w, r);
    *fresh_salt = tag_salt(w, r);
    r->max_tokens = draw(rnd, 40);
    if (one_in(rnd, 10))
        r->max_tokens = draw(rnd, w->max_context);
    r->n_choices = one_in(rnd, 4) ? 1 + draw(rnd, MAX_CHOICES) : 1;
    r->sampling.temperature = (float)draw(rnd, 2);
    r->sampling.seed = draw(rnd, 5);
    r->sampling.n_top = (int32_t)draw(rnd, 4) - 1;
    r->prompt_logprobs = one_in(rnd, 8);
    r->min_tokens = one_in(rnd, 4) ? draw(rnd, 20) : 0;
    r->n_stop_tokens = draw(rnd, 4);
    r->stop_tokens = mem_alloc(3 * sizeof(int32_t));
    for (uint32_t i = 0; i < r->n_stop_tokens; i++)
        r->stop_tokens[i] = (int32_t)draw(rnd, w->opt.n_vocab);
    if (one_in(rnd, 6))
        r->queue_deadline_ns = clock_ns() + draw(rnd, 400) * NS_PER_MS;
    if (one_in(rnd, 6))
        r->deadline_ns = clock_ns() + draw(rnd, 400) * NS_PER_MS;
    r->priority = one_in(rnd, 4) ? (int32_t)draw(rnd, 7) - 3 : 0;
    r->reserve = one_in(rnd, 8);
    r->tenant = draw(rnd, w->n_tenants);
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, request_ring_bytes(r, NULL) << draw(rnd, 3));
    return r;
}

/* Positions of the prompt that are computed whatever comes. */
static inline uint32_t computed_prompt(const struct request *r)
{
    if (r->max_tokens > 0)
        return r->n_prompt;
    return r->prompt_logprobs ? r->n_prompt - 1 : 0;
}

static inline void live_init(struct tag_world *w, struct live *l, struct request *r,
                             bool fresh_salt)
{
    bool pending = w->n_injected &&
                   fake_steps(w->g.be) == w->inject_step; /* a failure asked for and yet to come */
    *l = (struct live){.r = r, .n_injected = w->n_injected - pending, .fresh_salt = fresh_salt};
    uint64_t chain = fake_chain(NULL, 0);
    l->prompt_chain = fake_chain_next(chain, r->prompt[0]);
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        chain = fake_chain_next(chain, r->prompt[i]);
        l->nan_prompt |= i < computed_prompt(r) && !tag_kv_finite(chain);
        l->nan_prompt |= r->prompt_logprobs && i + 1 < r->n_prompt && !tag_logits_finite(chain);
    }
    for (uint32_t c = 0; c < r->n_choices; c++)
        l->lone[c] = (struct lone){.chain = chain};
}

static inline void tag_submit(struct tag_world *w)
{
    struct live *l = NULL;
    for (uint32_t i = 0; i < MAX_LIVE && !l; i++)
        l = w->live[i].r ? NULL : &w->live[i];
    if (!l)
        return;
    bool fresh_salt;
    struct request *r = tag_request(w, &fresh_salt);
    if (!tag_fits_squeezed(w, r)) {
        request_unref(r);
        return;
    }
    struct err e;
    uint32_t retry = 0, room = 0;
    enum status st = sched_submit(w->g.s, r, &retry, &e);
    TRACE(&w->r, "submit %u + %u, n %u, salt %u, reserve %d: %s", r->n_prompt, r->max_tokens,
          r->n_choices, r->n_salt_bytes, r->reserve, st == OK ? "ok" : e.text);
    bool fits = sched_room(w->g.s, r->n_prompt, r->n_choices, &room) && room >= r->max_tokens;
    if (st != OK) {
        random_count(DID_REFUSE);
        if (st == ERR_QUEUE_FULL)
            MUST(retry >= 1 && retry <= 60, "%u", retry);
        else if (st == ERR_CONTEXT_LENGTH)
            MUST(!fits || r->reserve || w->opt.limits.reserve == SCHED_RESERVE_MAX ||
                     w->opt.limits.preempt == SCHED_PREEMPT_NEVER,
                 "%s", e.text);
        else
            MUST(st == ERR_INVALID && r->n_choices > w->opt.limits.max_running, "%s", e.text);
        MUST(r->engine_part == NULL && atomic_load(&r->refs) == 1, "refs");
        request_unref(r);
        return;
    }
    MUST(fits || r->max_tokens == 0, "%u + %u, room %u", r->n_prompt, r->max_tokens, room);
    live_init(w, l, r, fresh_salt);
    w->n_submitted++;
    if (r->reserve)
        random_count(DID_RESERVE);
    if (r->n_choices > 1 && r->max_tokens > 0)
        random_count(DID_FORK);
    if (r->n_prompt + r->max_tokens > w->opt.n_slots * w->opt.n_frames[0] + 1)
        random_count(DID_LONGER_THAN_ARENA);
}

/* ---- what the consumer sees, against the reference ---- */

static inline bool lone_stops(const struct request *r, const struct lone *o, int32_t token)
{
    for (uint32_t i = 0; i < r->n_stop_tokens && o->n > r->min_tokens; i++) {
        if (r->stop_tokens[i] == token)
            return true;
    }
    return false;
}

/* The next token of a choice; -1: something is not finite. */
static inline int32_t lone_step(const struct tag_world *w, const struct request *r, struct lone *o,
                                uint32_t choice)
{
    if (!tag_kv_finite(o->chain) || !tag_logits_finite(o->chain))
        return -1;
    struct sample_job job = {.params = &r->sampling, .choice = choice, .given = -1};
    if (o->n < r->min_tokens) {
        job.ban = r->stop_tokens;
        job.n_ban = r->n_stop_tokens;
    }
    int32_t token = fake_chain_token(&job, o->chain, w->opt.n_vocab);
    o->chain = fake_chain_next(o->chain, token);
    o->n++;
    if (lone_stops(r, o, token))
        o->reason = FINISH_STOP;
    else if (o->n == r->max_tokens)
        o->reason = FINISH_LENGTH;
    return token;
}

/* Does a choice, stepped on from where it stands, come to something that is not finite? */
static inline bool lone_ends_in_nan(const struct tag_world *w, const struct request *r,
                                    struct lone o, uint32_t choice)
{
    while (o.reason == FINISH_NONE && o.n < r->max_tokens) {
        if (lone_step(w, r, &o, choice) < 0)
            return true;
    }
    return false;
}

static inline void check_end(struct tag_world *w, struct live *l, const struct event *ev)
{
    const struct request *r = l->r;
    bool nan = l->nan_prompt;
    uint32_t n_output = 0;
    for (uint32_t c = 0; c < r->n_choices; c++) {
        const struct lone *o = &l->lone[c];
        n_output += o->n;
        nan |= lone_ends_in_nan(w, r, *o, c);
        if (ev->status != OK)
            continue;
        MUST(o->finished && (r->max_tokens == 0 || o->reason != FINISH_NONE),
             "choice %u of %u, %u tokens", c, r->n_choices, o->n);
    }
    MUST(ev->n_output == n_output && ev->n_prompt == r->n_prompt, "%u, %u", ev->n_output,
         ev->n_prompt);
    MUST(ev->n_cached < r->n_prompt, "%u cached of %u", ev->n_cached, r->n_prompt);
    MUST(!l->fresh_salt || ev->n_cached == 0, "%u cached with a salt of its own", ev->n_cached);
    MUST(w->opt.prefix || ev->n_cached == 0, "%u cached without an index", ev->n_cached);
    const char *text = ev->n_text ? event_text(ev) : "";
    if (ev->status == OK) {
        MUST(!l->nan_prompt, "ended well with values that are not finite");
        MUST(l->n_prompt_events == (r->prompt_logprobs ? r->n_prompt - 1 : 0), "%u prompt events",
             l->n_prompt_events);
        random_count(DID_END);
        if (ev->n_cached)
            random_count(DID_HIT);
    } else if (ev->status == ERR_TIMEOUT) {
        MUST(r->queue_deadline_ns && n_output == 0, "%.*s", (int)ev->n_text, text);
        random_count(DID_TIMEOUT);
    } else if (ev->status == ERR_DEADLINE) {
        MUST(r->deadline_ns && n_output == 0, "%.*s", (int)ev->n_text, text);
        random_count(DID_TIMEOUT);
    } else if (ev->status == ERR_CANCELLED) {
        MUST(l->cancelled, "%.*s", (int)ev->n_text, text);
        random_count(DID_CANCEL);
    } else if (ev->status == ERR_NUMERIC) {
        MUST(nan, "%.*s", (int)ev->n_text, text);
        random_count(DID_NAN);
    } else {
        MUST(ev->status == ERR_INTERNAL && w->n_injected > l->n_injected, "%.*s", (int)ev->n_text,
             text);
    }
    w->n_ended++;
}

static inline void check_token(struct tag_world *w, struct live *l, const struct event *ev)
{
    struct lone *o = &l->lone[ev->choice];
    MUST(o->reason == FINISH_NONE && !o->finished, "choice %u: token after the end", ev->choice);
    MUST(o->n > 0 || !l->nan_prompt, "choice %u: token after a prompt that is not finite",
         ev->choice);
    uint64_t before = o->chain;
    int32_t token = lone_step(w, l->r, o, ev->choice);
    MUST(token == ev->token, "choice %u, token %u: %d instead of %d", ev->choice, o->n, ev->token,
         token);
    if (l->r->sampling.n_top >= 0)
        MUST(ev->logprob == fake_chain_logprob(before, token), "choice %u", ev->choice);
}

static inline void check_event(struct tag_world *w, struct live *l, const struct event *ev)
{
    MUST(ev->choice < l->r->n_choices, "%u", ev->choice);
    struct lone *o = &l->lone[ev->choice];
    if (ev->type == EVENT_TOKEN) {
        check_token(w, l, ev);
    } else if (ev->type == EVENT_PROMPT) {
        uint32_t at = ++l->n_prompt_events;
        MUST(at < l->r->n_prompt && ev->token == l->r->prompt[at], "prompt token %u", at);
        if (l->r->sampling.n_top >= 0)
            MUST(ev->logprob == fake_chain_logprob(l->prompt_chain, ev->token), "prompt token %u",
                 at);
        l->prompt_chain = fake_chain_next(l->prompt_chain, ev->token);
    } else if (ev->type == EVENT_FINISH) {
        MUST(!o->finished, "choice %u finished twice", ev->choice);
        MUST(ev->reason == (l->r->max_tokens ? o->reason : FINISH_LENGTH), "choice %u: %u, not %u",
             ev->choice, ev->reason, o->reason);
        o->finished = true;
    } else {
        MUST(ev->type == EVENT_END, "%u", ev->type);
        check_end(w, l, ev);
    }
}

/* Reads up to n events; a request that ended leaves. */
static inline void tag_read(struct tag_world *w, struct live *l, uint32_t n)
{
    uint32_t n_bytes;
    const struct event *ev;
    for (uint32_t i = 0; l->r && i < n && (ev = byte_ring_peek(&l->r->ring, &n_bytes)); i++) {
        bool ends = ev->type == EVENT_END;
        check_event(w, l, ev);
        byte_ring_pop(&l->r->ring);
        if (ends) {
            request_unref(l->r);
            l->r = NULL;
        }
    }
}

/* ---- after each operation ---- */

/* Wipes frames and slots that have become free since the last look. */
static inline void tag_poison_free(struct tag_world *w, uint32_t group)
{
    const struct kvc_group *g = &w->g.s->kv->group[group];
    for (uint32_t i = 0; i < g->n_frames + g->n_tier; i++) {
        bool is_free = i < g->n_frames ? g->frame_block[i] == KV_NO_BLOCK
                                       : g->slot_block[i - g->n_frames] == KV_NO_BLOCK;
        if (is_free && !w->was_free[group][i])
            fake_poison(w->g.be, group, i);
        w->was_free[group][i] = is_free;
    }
}

static inline void tag_audit(struct tag_world *w)
{
    sched_audit(w->g.s);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        tag_poison_free(w, g);
    MUST(fake_tag_mismatches(w->g.be) == 0, "%s", fake_mismatch(w->g.be));
}

static inline void count_up(uint64_t *before, uint64_t now, enum tag_count what)
{
    for (; *before < now; ++*before)
        random_count(what);
}

/* What this turn did. */
static inline void tag_count_turn(struct tag_world *w)
{
    const struct sched *s = w->g.s;
    struct kv_stats st;
    kv_cache_stats(s->kv, &st);
    count_up(&w->before.n_evicted, st.n_evicted, DID_EVICT);
    count_up(&w->before.n_loaded, st.n_loaded, DID_LOAD);
    count_up(&w->n_swapped, s->n_preempted[PREEMPT_SWAP], DID_SWAP);
    count_up(&w->n_recomputed, s->n_preempted[PREEMPT_RECOMPUTE], DID_RECOMPUTE);
    if (s->n_paused)
        random_count(DID_PAUSE);
    for (uint32_t i = 0; i < s->batch.n_spans; i++) {
        if (s->batch.span[i].n_staged)
            random_count(DID_STAGE);
        if (s->batch.span[i].lost)
            random_count(DID_READ_FAIL);
        if (w->opt.window[w->opt.n_groups - 1] &&
            s->batch.span[i].pos0 > w->opt.window[w->opt.n_groups - 1])
            random_count(DID_SLIDE);
    }
}

static inline void tag_close(struct tag_world *w)
{
    struct kv_need none = {{0}};
    kv_seq_claim_trim(w->g.s->kv, &w->squatter, &none);
    kv_seq_release(w->g.s->kv, &w->squatter);
    static const int zero[] = {METRIC_NUM_REQUESTS_RUNNING, METRIC_NUM_REQUESTS_WAITING,
                               METRIC_NUM_REQUESTS_SWAPPED, METRIC_KV_CACHE_USAGE,
                               METRIC_KV_BLOCKS_RESERVED};
    for (uint32_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
        MUST(metrics_value(w->metrics, zero[i], NULL) == 0, "gauge %u is %g", i,
             metrics_value(w->metrics, zero[i], NULL));
    kv_prefix_clear(w->g.s->kv);
    struct kv_stats st;
    kv_cache_stats(w->g.s->kv, &st);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        MUST(st.n_free[g] == st.n_frames[g] && st.n_promised[g] == 0 && st.n_slots_used[g] == 0,
             "group %u: %u of %u free, %u promised, %u slots in use", g, st.n_free[g],
             st.n_frames[g], st.n_promised[g], st.n_slots_used[g]);
    rig_release(&w->g);
    metrics_free(w->metrics);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        mem_free(w->was_free[g]);
}

/* ---- operations ---- */

static inline void op_cancel(struct tag_world *w)
{
    struct live *l = &w->live[draw(&w->r, MAX_LIVE)];
    if (!l->r)
        return;
    TRACE(&w->r, "cancel");
    l->cancelled = true;
    sched_cancel(w->g.s, l->r);
}

static inline void op_fail_step(struct tag_world *w)
{
    if (fake_steps(w->g.be) < w->inject_step + 8)
        return;
    w->inject_step = fake_steps(w->g.be);
    w->n_injected++;
    fake_fail_steps(w->g.be, 1);
    random_count(DID_STEP_FAIL);
}

static inline void op_fail_read(struct tag_world *w)
{
    fake_fail_reads(w->g.be, 1 + draw(&w->r, 2));
}

static inline void finish_copy(struct tag_world *w, bool may_fail)
{
    uint32_t n = fake_tier_flying(w->g.be);
    if (n == 0)
        return;
    bool ok = !may_fail || !one_in(&w->r, 30);
    fake_tier_finish(w->g.be, draw(&w->r, n), ok);
    if (!ok)
        random_count(DID_COPY_FAIL);
}

static inline void op_squeeze(struct tag_world *w)
{
    struct kv_cache *c = w->g.s->kv;
    struct kv_need none = {{0}}, some = {{0}};
    kv_seq_claim_trim(c, &w->squatter, &none);
    w->g.s->epoch++; /* there is more room than before */
    w->squeezed = false;
    if (one_in(&w->r, 2) || !w->squeezes)
        return;
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        some.n[g] = draw(&w->r, w->opt.n_frames[g] / 4 + 1);
    w->squeezed = kv_seq_claim(c, &w->squatter, &some);
    TRACE(&w->r, "squeeze by %u and %u: %d", some.n[0], some.n[1], w->squeezed);
    if (w->squeezed)
        random_count(DID_SQUEEZE);
}

static inline void op_clear(struct tag_world *w)
{
    kv_prefix_clear(w->g.s->kv);
    TRACE(&w->r, "clear");
    random_count(DID_CLEAR);
}

/* What fits was decided with the largest chunk where windows or sequences longer than the arena are. */
static inline void op_reload(struct tag_world *w)
{
    struct sched_limits *l = &w->g.s->limits;
    const struct sched_limits *first = &w->opt.limits;
    l->max_queued = draw(&w->r, 12);
    random_count(DID_RELOAD);
    if (one_in(&w->r, 3))
        tag_tenants(w);
    if (w->opt.window[0] || w->opt.window[1] || w->opt.max_jobs)
        return;
    l->chunk_max = 1 + draw(&w->r, 64);
    l->max_batch_tokens =
        l->max_running + draw(&w->r, first->max_batch_tokens - l->max_running + 1);
}

static inline bool turn(struct tag_world *w)
{
    uint64_t n_steps = fake_steps(w->g.be);
    bool any = sched_turn(w->g.s);
    TRACE(&w->r, "turn: %d, %u rows, %u spans, running %u, parked %u, copies %u", any,
          fake_steps(w->g.be) > n_steps ? w->g.s->batch.n_rows : 0, w->g.s->batch.n_spans,
          w->g.s->n_running, w->g.s->n_parked, fake_tier_flying(w->g.be));
    if (fake_steps(w->g.be) > n_steps)
        tag_count_turn(w);
    for (uint32_t i = 0; i < MAX_LIVE && !w->slow_readers; i++)
        tag_read(w, &w->live[i], UINT32_MAX);
    return any;
}

/* Readers read, copies end well: every request must come to its end, each within a bound. */
static inline void op_drain(struct tag_world *w)
{
    TRACE(&w->r, "drain");
    fake_fail_reads(w->g.be, 0);
    if (w->squeezed) {
        struct kv_need none = {{0}};
        kv_seq_claim_trim(w->g.s->kv, &w->squatter, &none);
        w->g.s->epoch++;
        w->squeezed = false;
    }
    uint64_t work = 100;
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        if (w->live[i].r)
            work += (uint64_t)w->live[i].r->n_choices *
                    (w->live[i].r->n_prompt + w->live[i].r->max_tokens);
    uint32_t n_live = 1;
    for (uint64_t n = 0; n_live > 0; n++) {
        MUST(n < 10 * work, "%u requests have not ended after %llu turns, work %llu", n_live,
             (unsigned long long)n, (unsigned long long)work);
        while (fake_tier_flying(w->g.be))
            finish_copy(w, false);
        turn(w);
        n_live = 0;
        for (uint32_t i = 0; i < MAX_LIVE; i++) {
            tag_read(w, &w->live[i], UINT32_MAX);
            n_live += w->live[i].r != NULL;
        }
        clock_fake_advance(NS_PER_MS);
        tag_audit(w);
    }
    uint32_t n_idle = 0;
    do { /* copies ahead of time go on for a while, a block each at most */
        MUST(n_idle++ < 1000, "copies go on for ever");
        while (fake_tier_flying(w->g.be))
            finish_copy(w, false);
        turn(w);
        tag_audit(w);
    } while (kv_jobs_open(w->g.s->kv) > 0);
    random_count(DID_DRAIN);
}

static inline void one_op(struct tag_world *w)
{
    uint32_t op = draw(&w->r, 1000);
    if (op < 120)
        tag_submit(w);
    else if (op < 128)
        op_cancel(w);
    else if (op < 131)
        op_fail_step(w);
    else if (op < 138)
        op_fail_read(w);
    else if (op < 150)
        clock_fake_advance(draw(&w->r, 20) * NS_PER_MS);
    else if (op < 155)
        op_squeeze(w);
    else if (op < 157)
        op_clear(w);
    else if (op < 160)
        op_reload(w);
    else if (op < 161)
        op_drain(w);
    else if (op < 300)
        tag_read(w, &w->live[draw(&w->r, MAX_LIVE)], 1 + draw(&w->r, 8));
    else if (op < 480)
        finish_copy(w, true);
    else
        turn(w);
}

/* One world from its seed to its end, with a fault planted in the cache (KVC_NO_FAULT: none). */
static inline void tag_run_world(struct tag_world *w, uint64_t seed, enum kvc_fault fault)
{
    tag_open(w, seed);
    w->g.s->kv->fault = fault;
    uint32_t n = 0;
    for (; random_next(&w->r, n); n++) {
        if (!random_skips(&w->r))
            one_op(w);
        tag_audit(w);
    }
    op_drain(w);
    MUST(w->n_ended == w->n_submitted, "%u of %u ended", w->n_ended, w->n_submitted);
    tag_close(w);
    __atomic_fetch_add(&random_counts->n_ops, n, __ATOMIC_RELAXED);
}

#endif
