/* Runs the same requests through the scheduler and a real model under schedules drawn from seeds, and
 * checks that each gets the tokens and the bits of logits that it gets alone.
 *
 *   schedules MODEL KV_DTYPE SEED N [POOL]      POOL: small (default) or large
 *
 * Reference: each request alone, an arena that holds all, no prefix cache, whole prompts at once.
 * Schedules SEED to SEED + N - 1: other numbers of running sequences, rows and chunk sizes, cache on or
 * off, arenas that hold a part, sequences forced out every few turns, each way of preemption, no tier,
 * RAM, file or both with the tiers' own threads, copies that fail, requests that are cancelled. Frames
 * without an owner are filled with NaN after each turn, so that reading one is detected.
 *
 * One line per schedule: its parameters and counts of what happened in it, as name=value
 * (tests/py/test_schedules.py checks the counts). Ends with status 1 after the first schedule that differs; the
 * line before names request, choice and token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kvpool/kvpool_test.h"
#include "base/clock.h"
#include "base/mem.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "kvpool/tier.h"
#include "scheduler/park.h"
#include "scheduler/sched.h"
#include "scheduler/snapshot.h"

enum {
    MAX_REQUESTS = 64,
    MAX_PROMPT = 700,
    MAX_SHORT = 70, /* prompt tokens of most requests */
    MAX_OUT = 24,
    MAX_LONG_OUT = 6, /* output tokens of requests with long prompts */
    MAX_N = 2,
    MAX_SEQS = 64, /* running sequences */
    MAX_CHUNK = 256,
    MAX_ROWS = MAX_CHUNK + MAX_SEQS,
    REFERENCE_FRAMES = 128, /* hold any request, both choices */
    MAX_JOBS = 8,
    N_TEXTS = 3, /* prompts begin like one of these */
    FORCED_MOST = 2, /* times that a sequence is forced out */
    N_STUCK = 10000 /* turns in a row without anything to do */
};

/* ---- randomness ---- */

static uint64_t rng;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t draw(uint32_t below)
{
    rng += 0x9e3779b97f4a7c15u;
    return (uint32_t)(mix(rng) >> 32) % below;
}

static bool one_in(uint32_t n)
{
    return draw(n) == 0;
}

/* 1 to most, small ones as likely as large ones. */
static uint32_t draw_scaled(uint32_t most)
{
    uint32_t n = 1 + draw(most);
    return 1 + draw(n);
}

/* ---- what requests are, and what they got ---- */

static struct {
    uint32_t n; /* requests */
    uint32_t n_long; /* of them with prompts up to MAX_PROMPT */
} pool;

struct choice_log {
    uint32_t n;
    int32_t token[MAX_OUT];
    uint64_t hash[MAX_OUT]; /* of the logits that gave the token */
    uint64_t scored; /* hash over the logits of the prompt's rows, of requests that report them */
};

struct outcome {
    bool cancelled;
    struct choice_log choice[MAX_N];
};

static struct outcome reference[MAX_REQUESTS], seen[MAX_REQUESTS];

static uint64_t hash_row(uint64_t h, const float *logits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof(bits));
        h = (h ^ bits) * 0x100000001b3ull;
    }
    return h;
}

static bool is_long(uint32_t id)
{
    return id % (pool.n / pool.n_long) == 0;
}

static void fill_prompt(struct request *r, uint32_t n_vocab)
{
    bool is_long_one = is_long((uint32_t)r->id);
    uint32_t n_shared = is_long_one ? r->n_prompt - draw(r->n_prompt / 3)
                        : one_in(4) ? 0
                                    : draw(r->n_prompt + 1);
    uint64_t text = mix(is_long_one ? 1 : 1 + draw(N_TEXTS)), own = mix(1000 + r->id);
    r->prompt = mem_alloc(r->n_prompt * sizeof(int32_t));
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = (int32_t)(mix((i < n_shared ? text : own) + i) % n_vocab);
}

/* The same for a given number in every run. */
static struct request *make_request(uint32_t id, uint32_t n_vocab)
{
    struct request *r = request_new(1u << 14);
    rng = mix(id + 1);
    r->id = id;
    r->n_prompt = is_long(id) ? MAX_PROMPT - draw(MAX_PROMPT / 3) : 1 + draw(MAX_SHORT);
    fill_prompt(r, n_vocab);
    r->max_tokens = 1 + draw(is_long(id) ? MAX_LONG_OUT : one_in(2) ? MAX_OUT / 4 : MAX_OUT);
    r->n_choices = 1 + one_in(3);
    r->ignore_eos = true;
    r->prompt_logprobs = !is_long(id) && one_in(12);
    r->sampling.temperature = one_in(2) ? 0.8f : 0;
    r->sampling.top_p = one_in(3) ? 0.9f : 1;
    r->sampling.seed = id;
    r->sampling.repetition_penalty = one_in(3) ? 1.2f : 1;
    r->sampling.presence_penalty = one_in(4) ? 0.5f : 0;
    r->sampling.frequency_penalty = one_in(4) ? 0.3f : 0;
    r->sampling.n_top = r->prompt_logprobs ? 0 : -1;
    return r;
}

/* ---- a schedule ---- */

enum tiers { TIERS_NONE, TIERS_RAM, TIERS_FILE, TIERS_BOTH };
static const char *const tiers_name[] = {"none", "ram", "file", "both"};
static const char *const preempt_name[] = {"auto", "swap", "recompute", "never"};
static const char *const reserve_name[] = {"quantile", "none", "max"};

struct schedule {
    struct sched_limits limits;
    bool prefix;
    bool varies; /* rows and chunk sizes differ from turn to turn */
    bool fails; /* some copies and reads of the tiers do */
    bool salts, cancels, reserves, priorities;
    bool wipes; /* frames of nobody */
    bool crowd; /* all short requests, an arena that holds two or three */
    bool oversize; /* the longest request is larger than the arena */
    uint32_t force_every; /* turns; 0: never */
    enum tiers tiers;
    uint32_t n_requests;
    struct request *request[MAX_REQUESTS]; /* in order of arrival */
    uint32_t n_frames[KV_MAX_GROUPS], n_host[KV_MAX_GROUPS], n_file[KV_MAX_GROUPS];
};

static uint32_t blocks_for(const struct kv_layout *l, uint32_t n_positions)
{
    return (n_positions + l->n_slots - 1) / l->n_slots;
}

/* Blocks of a group that the largest request needs, one choice. */
static uint32_t largest(const struct schedule *d, const struct kv_layout *l, uint32_t g)
{
    uint32_t most = 0, window = l->group[g].window;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        uint32_t n = req_positions(d->request[i]);
        most = n > most ? n : most;
    }
    most = blocks_for(l, most);
    uint32_t held = blocks_for(l, window + d->limits.chunk_max) + 1;
    return window && held < most ? held : most;
}

static void split_slots(struct schedule *d, uint32_t g, uint32_t n)
{
    uint32_t n_host = d->tiers == TIERS_RAM    ? n
                      : d->tiers == TIERS_FILE ? 0
                                               : 1 + n / 4 + draw(n / 4 + 1);
    d->n_host[g] = n_host;
    d->n_file[g] = d->tiers == TIERS_RAM ? 0 : n > n_host ? n - n_host : 1;
}

/* Sizes at which the largest request just fits, or does so with its cold blocks in the tiers. */
static void draw_memory(struct schedule *d, const struct kv_layout *l)
{
    uint32_t kept = blocks_for(l, d->limits.chunk_max) + 3;
    bool promises = d->limits.reserve == SCHED_RESERVE_MAX;
    for (uint32_t g = 0; g < l->n_groups; g++) {
        uint32_t need = largest(d, l, g);
        d->n_frames[g] = (promises ? 3 * need : need) + 1 + draw(need / 4 + 1);
        if (d->tiers != TIERS_NONE)
            split_slots(d, g, 1 + need / 2 + draw(need + 1));
    }
    uint32_t need = largest(d, l, 0);
    d->oversize = d->oversize && d->tiers != TIERS_NONE && !promises && need > kept + 1 &&
                  l->group[0].window == 0;
    if (d->oversize) {
        d->n_frames[0] = kept + 1 + draw((need - kept + 1) / 2);
        split_slots(d, 0, need + kept - d->n_frames[0] + 2 + draw(need));
    }
}

static void draw_limits(struct schedule *d, uint32_t seed)
{
    d->limits = (struct sched_limits){
        .max_running = d->crowd    ? 4 + draw(MAX_SEQS - 3)
                       : one_in(2) ? 1 + draw(12)
                                   : 1 + draw(MAX_SEQS),
        .max_queued = MAX_REQUESTS,
        .chunk_max = draw_scaled(MAX_CHUNK),
        .step_target_ms = one_in(2) ? 200 : 1 + draw(50),
        .max_context = 2048,
        .reserve = d->crowd        ? SCHED_RESERVE_NONE
                   : seed % 7 == 6 ? SCHED_RESERVE_MAX
                   : one_in(2)     ? SCHED_RESERVE_NONE
                                   : SCHED_RESERVE_QUANTILE,
        .preempt = (enum sched_preempt)((seed + seed / 4) % 3),
    };
    d->limits.max_batch_tokens = d->limits.max_running + draw_scaled(MAX_CHUNK);
}

/* Some of all requests in any order, at least one long; of a crowd all the others. */
static void draw_requests(struct schedule *d, uint32_t n_vocab)
{
    uint32_t order[MAX_REQUESTS], n_most = d->crowd || one_in(3) ? pool.n : pool.n / 2;
    uint64_t kept;
    d->n_requests = 0;
    for (uint32_t i = 0; i < pool.n; i++)
        order[i] = i;
    for (uint32_t i = pool.n; i > 1; i--) {
        uint32_t k = draw(i), id = order[k];
        order[k] = order[i - 1];
        order[i - 1] = id;
    }
    bool any_long = false;
    for (uint32_t i = 0; i < pool.n && (d->n_requests < n_most || !any_long); i++) {
        kept = rng;
        struct request *r = make_request(order[i], n_vocab);
        rng = kept;
        if (r->n_choices > d->limits.max_running || (d->crowd && is_long(order[i]))) {
            request_unref(r);
            continue;
        }
        any_long |= is_long(order[i]);
        d->request[d->n_requests++] = r;
    }
}

static void draw_company(struct schedule *d)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        struct request *r = d->request[i];
        if (d->salts && one_in(2)) {
            r->salt = mem_zalloc(1);
            r->salt[0] = (char)('a' + draw(2));
            r->n_salt_bytes = 1;
        }
        r->reserve = d->reserves && one_in(4);
        r->priority = d->priorities ? (int32_t)draw(3) : 0;
    }
}

static void draw_schedule(struct schedule *d, uint32_t seed, const struct kv_layout *l,
                          uint32_t n_vocab)
{
    *d = (struct schedule){.wipes = true, .crowd = seed % 3 == 1};
    rng = mix(seed + 77777);
    draw_limits(d, seed);
    d->tiers = (enum tiers)(seed % 4);
    d->prefix = seed % 5 != 4;
    d->varies = d->limits.reserve != SCHED_RESERVE_MAX && one_in(2);
    d->reserves = !d->varies && !d->crowd && one_in(3);
    d->fails = d->tiers != TIERS_NONE && one_in(4);
    d->salts = one_in(4);
    d->cancels = one_in(3);
    d->priorities = one_in(3);
    d->oversize = one_in(2) || d->tiers == TIERS_FILE;
    d->force_every = one_in(4) ? 0 : 2 + draw(d->crowd ? 40 : 12);
    draw_requests(d, n_vocab);
    draw_company(d);
    draw_memory(d, l);
}

/* ---- the world that it runs in ---- */

static struct kv_layout layout;
static struct kv_store *store;
static void *wiping; /* owns: a block of NaN */
static struct kv_tier *tier;
static struct backend *be;
static const struct backend_ops *inner;
static struct backend_ops wrapped;
static struct sched *sched;
static float *logits; /* owns [MAX_SEQS * n_vocab] */
static bool *wiped[KV_MAX_GROUPS]; /* own [n_frames]: filled with NaN and not used since */

/* What happened. */
static struct {
    uint64_t n_forced, n_staged, n_copied_tails, n_cancelled, n_cached, n_longest_hit;
    uint64_t n_ram, n_file; /* copies to and from slots of the tiers */
} did;

/* Asks for the logits of every output row. */
static enum status submit(struct backend *b, struct batch *batch, uint64_t *ticket, struct err *e)
{
    CHECK(batch->n_outs <= MAX_SEQS);
    for (uint32_t i = 0; i < batch->n_outs; i++)
        batch->out[i].logits = logits + (size_t)i * b->n_vocab;
    for (uint32_t i = 0; i < batch->n_spans; i++)
        did.n_staged += batch->span[i].n_staged;
    return inner->submit(b, batch, ticket, e);
}

static bool is_lost(const struct batch *batch, uint32_t row)
{
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const struct batch_span *span = &batch->span[i];
        if (row - span->row0 < span->n_rows)
            return span->lost;
    }
    return true;
}

static void log_row(struct backend *b, const struct seq *q, const struct batch_out *o)
{
    struct choice_log *l = &seen[q->req->r->id].choice[q->choice];
    if (o->job.given >= 0) {
        l->scored = hash_row(l->scored, o->logits, b->n_vocab);
        return;
    }
    CHECK(q->n_out < MAX_OUT);
    l->hash[q->n_out] = hash_row(1, o->logits, b->n_vocab);
}

static enum status collect(struct backend *b, uint64_t ticket, struct batch **batch, struct err *e)
{
    enum status st = inner->collect(b, ticket, batch, e);
    for (uint32_t i = 0; st == OK && i < (*batch)->n_outs; i++) {
        if (!is_lost(*batch, (*batch)->out[i].row))
            log_row(b, sched->step.out_seq[i], &(*batch)->out[i]);
    }
    return st;
}

static enum status copy_block(struct backend *b, uint32_t group, uint32_t src, uint32_t dst,
                              struct err *e)
{
    did.n_copied_tails++;
    return inner->copy_block(b, group, src, dst, e);
}

static uint32_t tier_room(void *arg)
{
    return kv_tier_room(arg);
}

static bool tier_push(void *arg, const struct kv_job *job)
{
    *(job->slot < store->arena.group[job->group].n_host ? &did.n_ram : &did.n_file) += 1;
    return kv_tier_push(arg, job);
}

static bool tier_pop(void *arg, struct kv_done *done)
{
    return kv_tier_pop(arg, done);
}

static struct kv_tier_costs tier_costs(void *arg)
{
    return kv_tier_costs(arg);
}

static const struct sched_tier_ops tier_ops = {tier_room, tier_push, tier_pop, tier_costs};

static void wake(void *arg)
{
    (void)arg;
    sched_wake(sched); /* copies come from a scheduler only */
}

static void open_tier(const struct schedule *d)
{
    struct err e;
    struct kv_tier_options o = {.store = store,
                                .layout = &layout,
                                .path = d->tiers == TIERS_RAM ? "" : ".",
                                .max_jobs = MAX_JOBS,
                                .threaded = true,
                                .wake = wake};
    if (d->tiers == TIERS_NONE)
        return;
    memcpy(o.n_file, d->n_file, sizeof(o.n_file));
    CHECKF(kv_tier_open(&o, &tier, &e) == OK, "%s", e.text);
}

static void open_world(const struct schedule *d, struct engine *en)
{
    struct err e;
    struct backend_limits limits = {MAX_ROWS, MAX_SEQS, MAX_SEQS, d->n_file[0]};
    CHECKF(engine_kv_store(en, &layout, d->n_frames, d->n_host, &store, &e) == OK, "%s", e.text);
    open_tier(d);
    CHECKF(engine_backend(en, store, &layout, limits, &be, &e) == OK, "%s", e.text);
    be->tier = tier;
    struct sched_memory memory = {.layout = &layout,
                                  .arena = &store->arena,
                                  .tier_ops = tier ? &tier_ops : NULL,
                                  .tier = tier,
                                  .max_jobs = tier ? MAX_JOBS : 0,
                                  .prefix = d->prefix,
                                  .secret = {1, 2},
                                  .domain = {.rope = "", .adapter = "", .salt = ""}};
    memcpy(memory.n_file, d->n_file, sizeof(memory.n_file));
    CHECKF(sched_new(&d->limits, be, &memory, engine_tokenizer(en), NULL, &sched, &e) == OK, "%s",
           e.text);
    inner = be->ops;
    wrapped = *inner;
    wrapped.submit = submit;
    wrapped.collect = collect;
    wrapped.copy_block = copy_block;
    be->ops = &wrapped;
    logits = mem_alloc((size_t)MAX_SEQS * be->n_vocab * sizeof(float));
    size_t n_block = 0;
    for (uint32_t g = 0; g < layout.n_groups; g++) {
        wiped[g] = mem_zalloc(d->n_frames[g]);
        n_block = layout.group[g].block_bytes > n_block ? layout.group[g].block_bytes : n_block;
    }
    wiping = memset(mem_alloc(n_block), 0xff, n_block);
}

static void close_world(void)
{
    sched_stop(sched);
    if (tier)
        kv_tier_stop(tier);
    sched_free(sched);
    inner->close(be);
    kv_tier_close(tier);
    tier = NULL;
    kv_store_close(store);
    mem_free(wiping);
    mem_free(logits);
    for (uint32_t g = 0; g < layout.n_groups; g++)
        mem_free(wiped[g]);
}

/* ---- a run ---- */

static void send(struct request *r)
{
    struct err e;
    enum status st = sched_submit(sched, r, NULL, &e);
    if (st == ERR_CONTEXT_LENGTH && r->reserve) { /* fits, but not with its worst case promised */
        r->reserve = false;
        st = sched_submit(sched, r, NULL, &e);
    }
    CHECKF(st == OK, "request %llu: %s", (unsigned long long)r->id, e.text);
}

static bool read_events(struct request *r)
{
    uint32_t n;
    const struct event *ev;
    struct outcome *o = &seen[r->id];
    bool ended = false;
    while ((ev = byte_ring_peek(&r->ring, &n)) != NULL) {
        struct choice_log *l = &o->choice[ev->choice];
        if (ev->type == EVENT_TOKEN && ev->token >= 0)
            l->token[l->n++] = ev->token;
        if (ev->type == EVENT_END) {
            o->cancelled = ev->status == ERR_CANCELLED && atomic_load(&r->cancelled);
            CHECKF(ev->status == OK || o->cancelled, "request %llu: %.*s",
                   (unsigned long long)r->id, (int)ev->n_text, event_text(ev));
            did.n_cancelled += o->cancelled;
            did.n_cached += ev->n_cached;
            did.n_longest_hit = ev->n_cached > did.n_longest_hit ? ev->n_cached : did.n_longest_hit;
            ended = true;
        }
        byte_ring_pop(&r->ring);
    }
    return ended;
}

/* Any running sequence, now and then the oldest, that this was not done to often. */
static void force_out(void)
{
    if (sched->running.n == 0)
        return;
    uint32_t first = sched->running.n > 1 && !one_in(8);
    struct seq *q = sched->running.seq[first + draw(sched->running.n - first)];
    if (q->req->reserves || !kv_seq_resident(&q->kv) || q->n_preempted >= FORCED_MOST ||
        q->n_kv == 0)
        return;
    sched->now_ns = clock_ns();
    park_seq(sched, q);
    did.n_forced++;
}

static void wipe_free_frames(void)
{
    struct err e;
    for (uint32_t g = 0; g < layout.n_groups; g++) {
        for (uint32_t i = 0; i < store->arena.group[g].n_frames; i++) {
            bool is_free = kv_frame_is_free(sched->kv, g, i);
            if (is_free && !wiped[g][i])
                CHECKF(kv_store_write(store, g, i, wiping, &e) == OK, "%s", e.text);
            wiped[g][i] = is_free;
        }
    }
}

static void disturb(const struct schedule *d, uint32_t turn, uint32_t n_sent)
{
    if (d->varies) {
        uint32_t n_beyond = d->limits.max_batch_tokens - d->limits.max_running;
        sched->limits.chunk_max = 1 + draw(d->limits.chunk_max);
        sched->limits.max_batch_tokens = d->limits.max_running + 1 + draw(n_beyond);
    }
    if (d->force_every && turn % d->force_every == 0)
        force_out();
    if (d->fails && one_in(10)) {
        kv_tier_fail(tier, 1);
        kv_tier_fail_reads(tier, draw(2));
    }
    if (d->cancels && n_sent > 0 && one_in(40)) {
        struct request *r = d->request[draw(n_sent)];
        if (r)
            sched_cancel(sched, r);
    }
}

static void run(struct schedule *d, bool alone)
{
    uint32_t n_sent = 0, n_ended = 0, n_idle = 0;
    for (uint32_t turn = 1; n_ended < d->n_requests; turn++) {
        uint32_t n_more = alone ? n_sent == n_ended : one_in(3) ? draw(6) : 0;
        sched->limits = d->limits; /* what a request may come to hold is reckoned with these */
        for (; n_more > 0 && n_sent < d->n_requests; n_more--)
            send(d->request[n_sent++]);
        disturb(d, turn, n_sent);
        if (sched_turn(sched)) {
            n_idle = 0;
        } else if (n_sent == d->n_requests) {
            CHECKF(++n_idle < N_STUCK, "nothing moves: %u running, %u parked, %u requests to go",
                   sched->running.n, sched->parked.n, d->n_requests - n_ended);
            mpsc_wait(sched->door.inbox, 1);
        }
        if (d->wipes)
            wipe_free_frames();
        for (uint32_t i = 0; i < n_sent; i++) {
            if (!d->request[i] || !read_events(d->request[i]))
                continue;
            request_unref(d->request[i]);
            d->request[i] = NULL;
            n_ended++;
        }
    }
}

/* ---- the verdict ---- */

static bool same_choice(uint32_t seed, uint32_t id, uint32_t c)
{
    const struct choice_log *a = &reference[id].choice[c], *b = &seen[id].choice[c];
    bool all = !seen[id].cancelled;
    for (uint32_t i = 0; i < a->n && (all || i < b->n); i++) {
        if (i < b->n && a->token[i] == b->token[i] && a->hash[i] == b->hash[i])
            continue;
        printf(
            "seed=%u request=%u choice=%u token=%u of %u: alone %d logits %016llx, here %d logits "
            "%016llx\n",
            seed, id, c, i, b->n, a->token[i], (unsigned long long)a->hash[i], b->token[i],
            (unsigned long long)b->hash[i]);
        return false;
    }
    if (all && a->scored != b->scored)
        printf("seed=%u request=%u: the prompt's logits differ\n", seed, id);
    return b->n <= a->n && (!all || a->scored == b->scored);
}

static bool same(uint32_t seed, const bool *took_part)
{
    bool ok = true;
    for (uint32_t id = 0; id < pool.n; id++) {
        for (uint32_t c = 0; took_part[id] && c < MAX_N; c++)
            ok &= same_choice(seed, id, c);
    }
    return ok;
}

static void print_run(const struct schedule *d, uint32_t seed, bool ok)
{
    struct kv_stats st;
    kv_cache_stats(sched->kv, &st);
    printf("seed=%u crowd=%d requests=%u running=%u rows=%u chunk=%u varies=%d cache=%d tiers=%s "
           "preempt=%s "
           "reserve=%s every=%u frames=%u+%u ram=%u+%u file=%u+%u oversize=%d fails=%d salts=%d",
           seed, d->crowd, d->n_requests, d->limits.max_running, d->limits.max_batch_tokens,
           d->limits.chunk_max, d->varies, d->prefix, tiers_name[d->tiers],
           preempt_name[d->limits.preempt], reserve_name[d->limits.reserve], d->force_every,
           d->n_frames[0], d->n_frames[1], d->n_host[0], d->n_host[1], d->n_file[0], d->n_file[1],
           d->oversize, d->fails, d->salts);
    printf(" steps=%llu forced=%llu swapped=%llu recomputed=%llu hit_tokens=%llu cached=%llu "
           "longest_hit=%llu evicted=%llu staged=%llu ram_copies=%llu file_copies=%llu "
           "failed_copies=%llu copied_tails=%llu cancelled=%llu ok=%d\n",
           (unsigned long long)sched->n_planned, (unsigned long long)did.n_forced,
           (unsigned long long)sched->n_preempted[PREEMPT_SWAP],
           (unsigned long long)sched->n_preempted[PREEMPT_RECOMPUTE],
           (unsigned long long)st.n_hit_tokens, (unsigned long long)did.n_cached,
           (unsigned long long)did.n_longest_hit, (unsigned long long)st.n_evicted,
           (unsigned long long)did.n_staged, (unsigned long long)did.n_ram,
           (unsigned long long)did.n_file, (unsigned long long)st.n_failed,
           (unsigned long long)did.n_copied_tails, (unsigned long long)did.n_cancelled, ok);
    fflush(stdout);
}

static bool run_schedule(struct engine *en, uint32_t seed)
{
    struct schedule d;
    bool took_part[MAX_REQUESTS] = {false};
    draw_schedule(&d, seed, &layout, engine_info(en)->n_vocab);
    for (uint32_t i = 0; i < d.n_requests; i++)
        took_part[d.request[i]->id] = true;
    memset(seen, 0, sizeof(seen));
    memset(&did, 0, sizeof(did));
    open_world(&d, en);
    run(&d, false);
    bool ok = same(seed, took_part);
    print_run(&d, seed, ok);
    close_world();
    return ok;
}

static void run_reference(struct engine *en)
{
    struct schedule d = {.limits = {.max_running = MAX_N,
                                    .max_queued = MAX_REQUESTS,
                                    .max_batch_tokens = MAX_ROWS,
                                    .chunk_max = MAX_ROWS,
                                    .step_target_ms = 60000,
                                    .max_context = 2048},
                         .n_requests = pool.n,
                         .n_frames = {REFERENCE_FRAMES, REFERENCE_FRAMES}};
    for (uint32_t i = 0; i < pool.n; i++)
        d.request[i] = make_request(i, engine_info(en)->n_vocab);
    open_world(&d, en);
    run(&d, true);
    memcpy(reference, seen, sizeof(reference));
    close_world();
}

int main(int argc, char **argv)
{
    struct settings set;
    struct engine *en;
    struct err e;
    if (argc < 5) {
        fprintf(stderr, "schedules MODEL KV_DTYPE SEED N [small|large]\n");
        return 2;
    }
    bool large = argc > 5 && strcmp(argv[5], "large") == 0;
    pool.n = large ? 64 : 16;
    pool.n_long = large ? 8 : 2;
    settings_init(&set);
    CHECKF(settings_set(&set, "kv.dtype", argv[2], &e) == OK, "%s", e.text);
    CHECKF(engine_open(argv[1], &set, &en, &e) == OK, "%s", e.text);
    CHECKF(engine_kv_layout(en, &set, &layout, &e) == OK, "%s", e.text);
    run_reference(en);
    bool ok = true;
    uint32_t seed = (uint32_t)atoi(argv[3]);
    for (int i = 0; i < atoi(argv[4]) && ok; i++)
        ok = run_schedule(en, seed + (uint32_t)i);
    engine_close(en);
    settings_release(&set);
    return ok ? 0 : 1;
}
