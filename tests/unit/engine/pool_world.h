/* A KV cache, a fake backend and sequences driven by random operations, for test_tag_pool.c and the
 * planted faults. The reference is naive: each sequence's own token history (the fake's tags prove that
 * exactly its KV is read) and the set of prefixes that have been published. */
#ifndef TESTS_ENGINE_POOL_WORLD_H
#define TESTS_ENGINE_POOL_WORLD_H

#include <string.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "engine/fake/fake.h"
#include "kvpool/cache.h"
#include "kvpool/cache_int.h"
#include "tests/unit/random_ops.h"

enum { MAX_SEQS = 12, MAX_HISTORY = 512, N_FAMILIES = 4, N_SALTS = 2, VOCAB = 50, MAX_CHUNK = 40 };
enum { SEEN_CAP = 1 << 15 };

enum count {
    DID_STEP,
    DID_TWO_STEPS,
    DID_COPY,
    DID_HIT,
    DID_HIT_WINDOW,
    DID_SHARE,
    DID_FORK,
    DID_PARK,
    DID_UNPARK_LOAD,
    DID_SPILL,
    DID_PAGE_OUT,
    DID_STAGED,
    DID_HOST_READ,
    DID_COPY_FAIL,
    DID_LOST,
    DID_STEP_FAIL,
    DID_NAN,
    DID_NO_ROOM,
    DID_CLEAR,
    DID_CLAIM,
    DID_EVICT,
    DID_SLIDE,
    DID_DROP_WITH_COPIES,
    DID_LARGER_THAN_ARENA,
    N_COUNTS
};

struct line {
    bool live; /* kv is initialised */
    struct kv_seq kv;
    uint32_t salt;
    int32_t history[MAX_HISTORY];
    uint32_t n_history, n_max; /* tokens known; most it may come to have */
    uint32_t n_fly; /* rows of the step that is open */
    bool nan; /* a NaN was seen: it may only be dropped */
};

enum step_state { STEP_NONE, STEP_GROWN, STEP_SUBMITTED };

/* A step from its growths to its end; it may run when it is collected only. */
struct pool_step {
    enum step_state state;
    struct batch batch;
    struct kv_copy copy[64];
    uint32_t n_copies;
    uint32_t line[MAX_SEQS]; /* whose span */
    uint64_t ticket;
    bool failed;
};

struct pool_world {
    struct random r;
    bool audits; /* false: tags alone are to find what is wrong */
    struct kv_layout layout;
    struct kv_arena arena;
    struct kv_options opt;
    struct kv_cache *c;
    struct backend *be;
    struct kv_key root[N_SALTS];
    struct line line[MAX_SEQS];
    struct pool_step step[BACKEND_MAX_FLIGHT]; /* a ring; see step_at */
    uint32_t first_step, n_steps;
    uint32_t n_injected;
    uint64_t published[SEEN_CAP]; /* hash set: mix(salt, tag of a block's last position) */
    uint8_t *was_free[KV_MAX_GROUPS]; /* [frames and slots] */
    uint64_t n_evicted;
};

static struct pool_world w; /* one a process */

/* ---- naive knowledge of what may be hit ---- */

static inline uint64_t published_key(uint32_t salt, uint64_t chain)
{
    uint64_t key = random_mix(chain + salt);
    return key ? key : 1;
}

static inline bool was_published(uint32_t salt, uint64_t chain)
{
    uint64_t key = published_key(salt, chain);
    for (uint32_t i = (uint32_t)key % SEEN_CAP; w.published[i]; i = (i + 1) % SEEN_CAP) {
        if (w.published[i] == key)
            return true;
    }
    return false;
}

static inline void note_published(uint32_t salt, uint64_t chain)
{
    uint64_t key = published_key(salt, chain);
    uint32_t i = (uint32_t)key % SEEN_CAP;
    for (; w.published[i]; i = (i + 1) % SEEN_CAP) {
        if (w.published[i] == key)
            return;
    }
    w.published[i] = key;
}

/* ---- making it ---- */

static inline void world_layout(void)
{
    struct random *r = &w.r;
    static const uint32_t slots[] = {8, 8, 16};
    w.layout = (struct kv_layout){.n_layers = 2, .n_groups = 1, .n_slots = slots[draw(r, 3)]};
    uint32_t kind = draw(r, 4), n_slots = w.layout.n_slots;
    uint32_t edge = 1 + draw(r, 3), window = edge * n_slots - 1 + draw(r, 4);
    if (one_in(r, 4))
        window = 2 + draw(r, 3 * n_slots);
    if (kind == 1)
        w.layout.group[0].window = window;
    if (kind >= 2) {
        w.layout.n_groups = 2;
        w.layout.group[1].window = window;
        w.layout.layer_group[1] = 1;
    }
    for (uint32_t g = 0; g < w.layout.n_groups; g++) {
        w.layout.group[g].n_layers = 1;
        w.layout.group[g].block_bytes = 64;
    }
}

static inline bool never_nan(uint64_t chain)
{
    return chain % 1500 != 0;
}

static inline void world_open(uint64_t seed)
{
    memset(&w, 0, sizeof(w));
    random_init(&w.r, seed);
    struct random *r = &w.r;
    world_layout();
    struct kv_options *o = &w.opt;
    bool has_host = one_in(r, 2), has_file = one_in(r, 2);
    *o = (struct kv_options){.layout = &w.layout, .max_pending = 16, .prefix = !one_in(r, 6)};
    o->max_jobs = 1 + draw(r, 6);
    o->key_bits = one_in(r, 2) ? 8 : 128;
    o->secret[0] = random_mix(seed);
    w.arena = (struct kv_arena){.n_groups = w.layout.n_groups};
    struct fake_options fake = {.n_vocab = VOCAB, .kv_finite = never_nan, .tier_waits = true};
    fake.max_jobs = o->max_jobs;
    fake.runs_late = seed % 2;
    for (uint32_t g = 0; g < w.layout.n_groups; g++) {
        o->n_frames[g] = 8 + draw(r, 40);
        o->n_host[g] = has_host ? 1 + draw(r, 30) : 0;
        o->n_file[g] = has_file ? 1 + draw(r, 30) : 0;
        w.arena.group[g] = (struct kv_arena_group){
            .block_bytes = 64, .n_frames = o->n_frames[g], .n_host = o->n_host[g]};
        fake.n_file[g] = o->n_file[g];
        w.was_free[g] = mem_zalloc(o->n_frames[g] + o->n_host[g] + o->n_file[g]);
    }
    struct err e;
    struct backend_limits limits = {
        .max_rows = 4096, .max_spans = MAX_SEQS, .max_outs = MAX_SEQS, .max_staged = 4096};
    ck_assert_int_eq(fake_backend_new(&w.arena, &w.layout, limits, &fake, &w.be, &e), OK);
    w.c = kv_cache_new(o);
    for (uint32_t i = 0; i < N_SALTS; i++) {
        struct kv_domain d = {.rope = "", .adapter = "", .salt = i ? "b" : "", .n_salt_bytes = i};
        w.root[i] = kv_root(w.c, &d);
    }
    for (uint32_t i = 0; i < BACKEND_MAX_FLIGHT; i++)
        batch_init(&w.step[i].batch, 4096, MAX_SEQS, MAX_SEQS);
}

/* ---- sight ---- */

static inline uint32_t first_seen(uint32_t group, uint32_t n_tokens)
{
    uint32_t window = w.layout.group[group].window;
    return window && n_tokens + 1 > window ? (n_tokens + 1 - window) / w.layout.n_slots : 0;
}

/* Wipes frames and slots that have become free since the last look. */
static inline void poison_free(uint32_t group)
{
    const struct kvc_group *g = &w.c->group[group];
    for (uint32_t i = 0; i < g->n_frames + g->n_tier; i++) {
        bool is_free = i < g->n_frames ? g->frame_block[i] == KV_NO_BLOCK
                                       : g->slot_block[i - g->n_frames] == KV_NO_BLOCK;
        if (is_free && !w.was_free[group][i])
            fake_poison(w.be, group, i, 1);
        w.was_free[group][i] = is_free;
    }
}

static inline void world_close(void)
{
    kv_cache_free(w.c);
    for (uint32_t i = 0; i < BACKEND_MAX_FLIGHT; i++)
        batch_release(&w.step[i].batch);
    w.be->ops->close(w.be);
    for (uint32_t g = 0; g < w.layout.n_groups; g++)
        mem_free(w.was_free[g]);
}

static const char *const names[N_COUNTS] = {"steps",
                                            "two steps in flight",
                                            "tail copies",
                                            "hits",
                                            "hits in window groups",
                                            "blocks shared by a hit",
                                            "forks",
                                            "parks",
                                            "unparks with loads",
                                            "spills",
                                            "pages out",
                                            "spans with staged blocks",
                                            "blocks read in the RAM tier",
                                            "failed copies",
                                            "sequences lost",
                                            "failed steps",
                                            "values not finite",
                                            "growths refused",
                                            "clears",
                                            "claims",
                                            "evictions",
                                            "windows slid",
                                            "drops with copies in flight",
                                            "longer than the arena"};

static inline struct line *any_line(bool live)
{
    uint32_t at = draw(&w.r, MAX_SEQS);
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        struct line *l = &w.line[(at + i) % MAX_SEQS];
        if (l->live == live)
            return l;
    }
    return NULL;
}

static inline uint32_t number(const struct line *l)
{
    return (uint32_t)(l - w.line);
}

/* Token i of a family of prompts with equal beginnings. */
static inline int32_t family_token(uint32_t family, uint32_t i)
{
    return (int32_t)(random_mix(family * 1000003u + i) % VOCAB);
}

static inline void extend(struct line *l, uint32_t n)
{
    CHECK(n <= MAX_HISTORY);
    for (; l->n_history < n; l->n_history++)
        l->history[l->n_history] = (int32_t)draw(&w.r, VOCAB);
}

/* ---- operations ---- */

static inline void adopt(struct line *l)
{
    uint32_t n_max = l->n_history ? l->n_history - 1 : 0;
    uint32_t match = kv_match(w.c, w.root[l->salt], l->history, n_max);
    uint32_t n = kv_seq_adopt(w.c, &l->kv, l->history, n_max);
    TRACE(&w.r, "line %u adopts %u of %u, match %u", number(l), n, n_max, match);
    MUST(n <= match && n % w.layout.n_slots == 0 && n <= n_max, "%u of %u, match %u", n, n_max,
         match);
    MUST(n == l->kv.n_hit && n == l->kv.n_tokens && n == l->kv.n_retired, "%u", n);
    MUST(n == 0 || w.opt.prefix, "hit without an index");
    uint64_t chain = fake_chain(NULL, 0);
    for (uint32_t i = 0; i < n; i++) {
        chain = fake_chain_next(chain, l->history[i]);
        MUST((i + 1) % w.layout.n_slots || was_published(l->salt, chain), "position %u of %u", i,
             n);
    }
    if (n > 0) {
        random_count(DID_HIT);
        if (w.layout.group[w.layout.n_groups - 1].window)
            random_count(DID_HIT_WINDOW);
        for (uint32_t i = 0; i < MAX_SEQS; i++)
            if (&w.line[i] != l && w.line[i].live && w.line[i].kv.t[0].n > 0 && l->kv.t[0].n > 0 &&
                w.line[i].kv.t[0].block[0] == l->kv.t[0].block[0])
                random_count(DID_SHARE);
    }
}

static inline void op_start(void)
{
    struct line *l = any_line(false);
    if (!l)
        return;
    struct random *r = &w.r;
    memset(l, 0, sizeof(*l));
    l->live = true;
    l->salt = one_in(r, 4);
    uint32_t n_shared = draw(r, 80), n_own = draw(r, 30), family = draw(r, N_FAMILIES);
    if (one_in(r, 3))
        n_shared -= n_shared % w.layout.n_slots;
    if (one_in(r, 8))
        n_shared += draw(r, 250);
    if (one_in(r, 3))
        n_own = 0;
    for (; l->n_history < n_shared; l->n_history++)
        l->history[l->n_history] = family_token(family, l->n_history);
    extend(l, n_shared + n_own);
    extend(l, 1);
    l->n_max = l->n_history + draw(r, 60);
    TRACE(r, "line %u starts: salt %u, family %u, %u + %u tokens, most %u", number(l), l->salt,
          family, n_shared, n_own, l->n_max);
    kv_seq_init(w.c, &l->kv, l->n_max, w.root[l->salt]);
    if (!one_in(r, 8))
        adopt(l);
    if (one_in(r, 3))
        kv_pending_add(w.c, &l->kv, l->history, l->n_history);
}

static inline bool in_step(const struct line *l)
{
    return l->n_fly > 0;
}

static inline void drop(struct line *l)
{
    TRACE(&w.r, "line %u drops", number(l));
    if (kv_jobs_open(w.c))
        random_count(DID_DROP_WITH_COPIES);
    kv_seq_drop(w.c, &l->kv);
}

static inline void op_drop(void)
{
    struct line *l = any_line(true);
    if (!l || in_step(l))
        return;
    drop(l);
    kv_seq_release(w.c, &l->kv);
    l->live = false;
}

static inline void op_fork(void)
{
    struct line *parent = any_line(true), *child = any_line(false);
    if (!parent || !child || in_step(parent) || parent->kv.n_loading || parent->kv.lost ||
        parent->nan)
        return;
    *child = *parent;
    memset(&child->kv, 0, sizeof(child->kv));
    child->n_history = parent->kv.n_tokens;
    kv_seq_init(w.c, &child->kv, child->n_max, w.root[child->salt]);
    kv_seq_fork(w.c, &parent->kv, &child->kv);
    TRACE(&w.r, "line %u forks into %u at %u", number(parent), number(child), parent->kv.n_tokens);
    random_count(DID_FORK);
}

/* ---- the step, in three operations: grow, submit, retire ---- */

/* Oldest first. Only the last may be grown and not submitted: the order of growths is that of steps. */
static inline struct pool_step *step_at(uint32_t i)
{
    return &w.step[(w.first_step + i) % BACKEND_MAX_FLIGHT];
}

static inline void add_span(struct pool_step *st, struct line *l, uint32_t n_rows)
{
    struct batch *b = &st->batch;
    uint32_t i = b->n_spans++, pos0 = l->kv.n_tokens - n_rows;
    b->span[i] = (struct batch_span){.row0 = b->n_rows, .n_rows = n_rows, .pos0 = pos0};
    for (uint32_t k = 0; k < n_rows; k++)
        b->token[b->n_rows + k] = l->history[pos0 + k];
    static const struct sampling_params greedy;
    b->out[b->n_outs++] = (struct batch_out){
        .row = b->n_rows + n_rows - 1,
        .job = {.params = &greedy, .history = l->history, .n_history = pos0 + n_rows, .given = -1}};
    b->n_rows += n_rows;
    l->n_fly = n_rows;
    st->line[i] = number(l);
}

/* Somebody gives his blocks away, so that the world doesn't come to a halt. */
static inline void make_room(void)
{
    struct line *l = any_line(true);
    if (!l || l->n_fly > 0)
        return;
    if (l->kv.runs && one_in(&w.r, 2)) {
        kv_seq_park(w.c, &l->kv);
        kv_seq_spill(w.c, &l->kv, 40);
    } else {
        drop(l);
        kv_seq_release(w.c, &l->kv);
        l->live = false;
    }
}

static inline void grow(struct pool_step *st, struct line *l)
{
    uint32_t n_rows = one_in(&w.r, 3) ? 1 + draw(&w.r, MAX_CHUNK) : 1;
    if (n_rows > l->n_max - l->kv.n_tokens)
        n_rows = l->n_max - l->kv.n_tokens;
    if (n_rows == 0 || l->nan || !kv_seq_resident(&l->kv))
        return;
    extend(l, l->kv.n_tokens + n_rows);
    struct kv_need need = kv_seq_need(w.c, &l->kv, n_rows);
    bool fits = true;
    for (uint32_t g = 0; g < w.layout.n_groups; g++) {
        uint32_t claim = l->kv.claim.n[g];
        fits &= need.n[g] <= claim || need.n[g] - claim <= kv_room(w.c, g);
    }
    w.c->fault_tokens = l->history;
    bool ok = kv_seq_grow(w.c, &l->kv, n_rows, st->copy, &st->n_copies);
    TRACE(&w.r, "line %u grows by %u to %u: %d", number(l), n_rows, l->kv.n_tokens, ok);
    MUST(ok || !fits, "line %u, %u rows: refused although there is room", number(l), n_rows);
    if (ok) {
        add_span(st, l, n_rows);
        return;
    }
    random_count(DID_NO_ROOM);
    if (one_in(&w.r, 3))
        make_room();
}

static inline void op_grow(void)
{
    if (w.n_steps == BACKEND_MAX_FLIGHT ||
        (w.n_steps > 0 && step_at(w.n_steps - 1)->state == STEP_GROWN))
        return;
    struct pool_step *st = step_at(w.n_steps);
    batch_clear(&st->batch);
    st->n_copies = 0;
    uint32_t at = draw(&w.r, MAX_SEQS), most = 1 + draw(&w.r, MAX_SEQS);
    for (uint32_t i = 0; i < MAX_SEQS && st->batch.n_spans < most; i++) {
        struct line *l = &w.line[(at + i) % MAX_SEQS];
        if (l->live && !in_step(l))
            grow(st, l);
    }
    st->state = STEP_GROWN;
    w.n_steps += st->batch.n_rows > 0;
}

static inline void fill_tables(struct batch_span *s, const struct line *l)
{
    uint32_t n_slots = w.layout.n_slots;
    for (uint32_t g = 0; g < w.layout.n_groups; g++)
        s->table[g] = l->kv.t[g].phys;
    uint32_t file = w.opt.n_frames[0] + w.opt.n_host[0];
    for (uint32_t i = first_seen(0, s->pos0); i * n_slots < s->pos0 + s->n_rows; i++) {
        s->n_staged += s->table[0][i] >= file;
        if (s->table[0][i] >= w.opt.n_frames[0] && s->table[0][i] < file)
            random_count(DID_HOST_READ);
    }
    if (s->n_staged)
        random_count(DID_STAGED);
    if (s->pos0 > w.opt.n_frames[0] * n_slots)
        random_count(DID_LARGER_THAN_ARENA);
}

static inline void op_submit(void)
{
    if (w.n_steps == 0 || step_at(w.n_steps - 1)->state != STEP_GROWN)
        return;
    struct pool_step *st = step_at(w.n_steps - 1);
    struct err e;
    for (uint32_t i = 0; i < st->n_copies; i++) {
        ck_assert_int_eq(
            w.be->ops->copy_block(w.be, st->copy[i].group, st->copy[i].src, st->copy[i].dst, &e),
            OK);
        random_count(DID_COPY);
    }
    for (uint32_t i = 0; i < st->batch.n_spans; i++)
        fill_tables(&st->batch.span[i], &w.line[st->line[i]]);
    if (one_in(&w.r, 30)) {
        fake_fail_steps(w.be, 1);
        random_count(DID_STEP_FAIL);
    }
    st->failed = w.be->ops->submit(w.be, &st->batch, &st->ticket, &e) != OK;
    st->state = STEP_SUBMITTED;
    if (w.n_steps == 2)
        random_count(DID_TWO_STEPS);
    random_count(DID_STEP);
    TRACE(&w.r, "step of %u rows, %u spans, %u copies%s", st->batch.n_rows, st->batch.n_spans,
          st->n_copies, st->failed ? " fails" : "");
}

static inline void retire(struct line *l, const struct batch_span *s, bool failed)
{
    uint32_t first = l->kv.t[w.layout.n_groups - 1].first;
    l->n_fly = 0;
    if (failed) {
        kv_seq_undo(w.c, &l->kv);
        return;
    }
    bool publishes = l->kv.publishes;
    kv_seq_retire(w.c, &l->kv, l->history, s->finite);
    if (!s->finite) {
        random_count(DID_NAN);
        l->nan = true;
    } else if (publishes) {
        uint64_t chain = fake_chain(NULL, 0);
        for (uint32_t i = 0; i < l->kv.n_retired; i++) {
            chain = fake_chain_next(chain, l->history[i]);
            if ((i + 1) % w.layout.n_slots == 0)
                note_published(l->salt, chain);
        }
    }
    if (l->kv.t[w.layout.n_groups - 1].first > first)
        random_count(DID_SLIDE);
}

static inline void op_retire(void)
{
    struct batch *done;
    struct err e;
    struct pool_step *st = step_at(0);
    if (w.n_steps == 0 || st->state != STEP_SUBMITTED)
        return;
    if (!st->failed)
        st->failed = w.be->ops->collect(w.be, st->ticket, &done, &e) != OK;
    TRACE(&w.r, "retires%s", st->failed ? " by undo" : "");
    for (uint32_t i = 0; i < st->batch.n_spans; i++)
        retire(&w.line[st->line[i]], &st->batch.span[i], st->failed);
    w.first_step = (w.first_step + 1) % BACKEND_MAX_FLIGHT;
    w.n_steps--;
}

/* ---- tiers ---- */

static inline void op_park(void)
{
    struct line *l = any_line(true);
    if (!l || in_step(l) || !l->kv.runs)
        return;
    TRACE(&w.r, "line %u parks", number(l));
    kv_seq_park(w.c, &l->kv);
    random_count(DID_PARK);
}

static inline void op_unpark(void)
{
    struct line *l = any_line(true);
    if (!l || l->kv.runs || l->kv.lost)
        return;
    uint32_t n_paged = one_in(&w.r, 3) ? draw(&w.r, 40) : 0;
    struct kv_need absent = kv_seq_absent_paged(w.c, &l->kv, n_paged);
    bool fits = true;
    for (uint32_t g = 0; g < w.layout.n_groups; g++)
        fits &= absent.n[g] <= kv_room(w.c, g) + l->kv.claim.n[g];
    bool ok = kv_seq_unpark_paged(w.c, &l->kv, n_paged);
    TRACE(&w.r, "line %u unparks, %u paged: %d, %u loads", number(l), n_paged, ok, l->kv.n_loading);
    MUST(ok == fits, "needs %u and %u, room %u", absent.n[0], absent.n[1], kv_room(w.c, 0));
    if (ok && l->kv.n_loading)
        random_count(DID_UNPARK_LOAD);
}

static inline void op_spill(void)
{
    struct line *l = any_line(true);
    if (!l || in_step(l) || l->kv.lost)
        return;
    uint32_t n = kv_seq_spill(w.c, &l->kv, 1 + draw(&w.r, 20));
    TRACE(&w.r, "line %u spills %u", number(l), n);
    if (n)
        random_count(DID_SPILL);
}

static inline void op_page_out(void)
{
    struct line *l = any_line(true);
    if (!l || in_step(l) || !kv_seq_resident(&l->kv))
        return;
    uint32_t n = kv_seq_page_out(w.c, &l->kv, 1 + draw(&w.r, 20));
    TRACE(&w.r, "line %u pages out %u", number(l), n);
    if (n)
        random_count(DID_PAGE_OUT);
}

static inline void op_push(void)
{
    struct kv_job job;
    for (uint32_t n = 1 + draw(&w.r, 4); n > 0 && kv_job_next(w.c, &job); n--) {
        TRACE(&w.r, "copy %llu: group %u, frame %u, slot %u, %s", (unsigned long long)job.id,
              job.group, job.frame, job.slot, job.load ? "load" : "spill");
        MUST(fake_tier_push(w.be, &job), "more jobs than max_jobs");
    }
}

static inline void op_finish(void)
{
    uint32_t n = fake_tier_flying(w.be);
    if (n == 0)
        return;
    bool ok = !one_in(&w.r, 25);
    fake_tier_finish(w.be, draw(&w.r, n), ok);
    if (!ok)
        random_count(DID_COPY_FAIL);
}

static inline void op_pop(void)
{
    struct kv_done done;
    for (uint32_t n = 1 + draw(&w.r, 4); n > 0 && fake_tier_pop(w.be, &done); n--) {
        TRACE(&w.r, "copy %llu done: %d", (unsigned long long)done.job.id, done.ok);
        kv_job_done(w.c, &done.job, done.ok);
    }
}

/* A sequence whose copy failed is dropped and starts again. */
static inline void op_recover(void)
{
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        struct line *l = &w.line[i];
        if (!l->live || !(l->kv.lost || l->nan) || in_step(l))
            continue;
        if (l->kv.lost)
            random_count(DID_LOST);
        drop(l);
        if (l->nan) {
            kv_seq_release(w.c, &l->kv);
            l->live = false;
        } else {
            adopt(l);
        }
    }
}

/* ---- the rest ---- */

static inline void op_clear(void)
{
    kv_prefix_clear(w.c);
    TRACE(&w.r, "clear");
    if (w.n_steps ==
        0) { /* nobody holds what is left in the index; what lives may come to be hit again */
        random_count(DID_CLEAR);
    }
}

static inline void op_claim(void)
{
    struct line *l = any_line(true);
    if (!l || l->kv.lost)
        return;
    struct kv_need need = {{0}};
    bool fits = true;
    for (uint32_t g = 0; g < w.layout.n_groups; g++) {
        need.n[g] = draw(&w.r, 6);
        fits &= need.n[g] <= kv_room(w.c, g);
    }
    if (one_in(&w.r, 2)) {
        kv_seq_claim_trim(w.c, &l->kv, &need);
        return;
    }
    bool ok = kv_seq_claim(w.c, &l->kv, &need);
    TRACE(&w.r, "line %u claims %u and %u: %d", number(l), need.n[0], need.n[1], ok);
    MUST(ok == fits, "%u and %u", need.n[0], need.n[1]);
    if (ok)
        random_count(DID_CLAIM);
}

static inline void op_pending(void)
{
    struct line *l = any_line(true);
    if (!l)
        return;
    if (one_in(&w.r, 2))
        kv_pending_end(w.c, &l->kv);
    else
        kv_pending(w.c, w.root[l->salt], l->history, l->n_history);
}

/* ---- after each operation ---- */

static inline void audit(void)
{
    struct err e;
    if (w.audits)
        MUST(kv_cache_audit(w.c, &e) == OK, "%s", e.text);
    for (uint32_t g = 0; g < w.layout.n_groups; g++)
        poison_free(g);
    MUST(fake_tag_mismatches(w.be) == 0, "%s", fake_mismatch(w.be));
    struct kv_stats st;
    kv_cache_stats(w.c, &st);
    for (; w.n_evicted < st.n_evicted; w.n_evicted++)
        random_count(DID_EVICT);
}

static inline void one_op(void)
{
    static const struct {
        void (*run)(void);
        uint32_t weight;
    } ops[] = {{op_start, 14},  {op_drop, 10},   {op_fork, 4},    {op_grow, 40},   {op_submit, 40},
               {op_retire, 40}, {op_park, 5},    {op_unpark, 14}, {op_spill, 8},   {op_page_out, 6},
               {op_push, 16},   {op_finish, 24}, {op_pop, 16},    {op_recover, 6}, {op_clear, 1},
               {op_claim, 2},   {op_pending, 2}};
    uint32_t total = 0, at;
    for (uint32_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        total += ops[i].weight;
    at = draw(&w.r, total);
    for (uint32_t i = 0;; i++) {
        if (at < ops[i].weight) {
            ops[i].run();
            return;
        }
        at -= ops[i].weight;
    }
}

/* Everything ends; what is left is a cache of blocks that nobody holds. */
static inline void close_world(void)
{
    op_submit();
    while (w.n_steps > 0)
        op_retire();
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        if (w.line[i].live) {
            kv_seq_drop(w.c, &w.line[i].kv);
            kv_seq_release(w.c, &w.line[i].kv);
            w.line[i].live = false;
        }
    }
    audit();
    struct kv_done done;
    struct kv_job job;
    while (kv_jobs_open(w.c) > 0) {
        while (kv_job_next(w.c, &job))
            MUST(fake_tier_push(w.be, &job), "more jobs than max_jobs");
        while (fake_tier_flying(w.be))
            fake_tier_finish(w.be, 0, true);
        MUST(fake_tier_pop(w.be, &done), "%u jobs open, none in the tier", kv_jobs_open(w.c));
        kv_job_done(w.c, &done.job, done.ok);
        audit();
    }
    kv_prefix_clear(w.c);
    audit();
    struct kv_stats st;
    kv_cache_stats(w.c, &st);
    for (uint32_t g = 0; g < w.layout.n_groups; g++)
        MUST(st.n_free[g] == st.n_frames[g] && st.n_cached[g] == 0 && st.n_promised[g] == 0 &&
                 st.n_slots_used[g] == 0,
             "group %u: %u of %u free", g, st.n_free[g], st.n_frames[g]);
    world_close();
}

/* One world from its seed to its end, with a fault planted in the cache (KVC_NO_FAULT: none). */
static inline void run_world(uint64_t seed, enum kvc_fault fault, bool audits)
{
    world_open(seed);
    w.c->fault = fault;
    w.audits = audits;
    uint32_t n = 0;
    for (; random_next(&w.r, n); n++) {
        if (!random_skips(&w.r))
            one_op();
        audit();
    }
    close_world();
    __atomic_fetch_add(&random_counts->n_ops, n, __ATOMIC_RELAXED);
}

#endif
