/* Random operations on the KV cache's books against a naive reference.
 *
 * "Memory" is an array of numbers, one per token slot of every frame and tier slot. A step writes
 * into the slot of position p a tag, a hash of (root, group, tokens[0..p]), and every step reads all
 * positions that its rows can see through the tables and compares: a wrong block, an early reuse, a
 * missed copy or a stale hit reads another tag. Copies between frames and slots run in two halves at
 * random times; free frames and slots are poisoned. After each operation all invariants are audited.
 *
 * The length of every hit is compared with a search over all blocks by tag, which does not use keys. */
#ifndef TESTS_UNIT_KVPOOL_CACHE_MODEL_H
#define TESTS_UNIT_KVPOOL_CACHE_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "kvpool/cache_int.h"

enum {
    MODEL_SEQS = 10,
    MODEL_TOKENS = 160,
    MODEL_JOBS = 6,
    MODEL_ROOTS = 2,
    MODEL_FAMILIES = 3,
    MODEL_MAX_PLACES = 128,
    MODEL_MAX_SLOTS = 8,
    MODEL_EPISODE = 1500 /* operations on one cache */
};

struct model_seq {
    struct kv_seq s;
    bool used;
    int32_t tokens[MODEL_TOKENS];
    uint64_t tag[MODEL_TOKENS]; /* of tokens[0..p] and the root */
    uint32_t root;
    uint32_t goal; /* positions it wants */
    bool reserved; /* a claim covers all it will ever hold, and nobody shares it */
    bool stepped; /* the growth in flight has run */
    struct kv_copy copy[KV_MAX_GROUPS];
    uint32_t n_copies;
    uint32_t pend_to; /* announced blocks: up to this one, from n_published on */
};

struct model_job {
    struct kv_job job;
    bool used, half;
};

struct model {
    struct kv_cache *c;
    struct kv_layout layout;
    struct kv_options options;
    struct kv_key root[MODEL_ROOTS];
    struct model_seq seq[MODEL_SEQS];
    struct model_job job[MODEL_JOBS];
    uint64_t memory[KV_MAX_GROUPS][MODEL_MAX_PLACES][MODEL_MAX_SLOTS];
    bool poisoned[KV_MAX_GROUPS][MODEL_MAX_PLACES];
    uint64_t rng;
    uint64_t seed;
    uint64_t n_ops; /* done in all */
    bool audits;
    enum kvc_fault fault;
    /* What happened, so that a test can say that it covered something. */
    uint64_t n_grown, n_hits, n_hit_tokens, n_copies, n_loads, n_spills, n_failed, n_paged,
        n_slides, n_undone, n_pending, n_lost, n_evicted;
};

static const char *model_doing = "";

__attribute__((noreturn, format(printf, 2, 3))) static void model_fail(const struct model *m,
                                                                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("seed %llu, operation %llu (%s): ", (unsigned long long)m->seed,
           (unsigned long long)m->n_ops, model_doing);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    struct buf b = {0};
    if (m->fault == KVC_NO_FAULT) {
        kv_cache_dump(m->c, &b);
        fwrite(b.ptr, 1, b.len, stdout);
    }
    fflush(stdout);
    _Exit(3);
}

#define MODEL_EXPECT(m, condition)                                                                 \
    do {                                                                                           \
        if (!(condition))                                                                          \
            model_fail(m, "%s:%d: %s", __FILE__, __LINE__, #condition);                            \
    } while (0)

/* ---- chance ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ 0x9e3779b97f4a7c15u) + b * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t below(struct model *m, uint32_t n)
{
    m->rng += 0x9e3779b97f4a7c15u;
    return (uint32_t)((mix(m->rng, 1) >> 32) * n >> 32);
}

static bool chance(struct model *m, uint32_t percent)
{
    return below(m, 100) < percent;
}

/* ---- memory ---- */

static uint64_t want_tag(const struct model_seq *q, uint32_t group, uint32_t p)
{
    return mix(q->tag[p], 1000 + group);
}

static void poison_free(struct model *m)
{
    for (uint32_t k = 0; k < m->c->n_groups; k++) {
        const struct kvc_group *g = &m->c->group[k];
        for (uint32_t i = 0; i < g->n_frames + g->n_tier; i++) {
            bool is_free = (i < g->n_frames ? g->frame_block[i] : g->slot_block[i - g->n_frames]) ==
                           KV_NO_BLOCK;
            if (is_free && !m->poisoned[k][i])
                memset(m->memory[k][i], 0xee, sizeof(m->memory[k][i]));
            m->poisoned[k][i] = is_free;
        }
    }
}

static void copy_part(struct model *m, uint32_t group, uint32_t to, uint32_t from, uint32_t begin,
                      uint32_t end)
{
    for (uint32_t i = begin; i < end; i++)
        m->memory[group][to][i] = m->memory[group][from][i];
}

/* All positions that rows of the growth in flight (or a next row) see. */
static void check_visible(struct model *m, const struct model_seq *q)
{
    const struct kv_seq *s = &q->s;
    uint32_t n_slots = m->c->n_slots;
    for (uint32_t k = 0; k < m->c->n_groups; k++) {
        uint32_t w = m->layout.group[k].window;
        uint32_t from = w == 0 || s->n_retired < w ? 0 : s->n_retired - w + 1;
        for (uint32_t p = from; p < s->n_tokens; p++) {
            uint32_t phys = s->t[k].phys[p / n_slots];
            if (phys >= MODEL_MAX_PLACES)
                model_fail(m, "position %u of group %u has no place", p, k);
            if (m->memory[k][phys][p % n_slots] != want_tag(q, k, p))
                model_fail(m, "position %u of group %u (place %u) holds something else", p, k,
                           phys);
        }
    }
}

/* ---- the naive look for a hit ---- */

static bool block_known(const struct model *m, uint32_t k, uint64_t last_tag)
{
    const struct kvc_group *g = &m->c->group[k];
    for (uint32_t i = 0; i < g->n_blocks; i++) {
        const struct kvc_block *b = &g->block[i];
        if (!b->indexed)
            continue;
        uint32_t place = b->frame == KV_NO_BLOCK || kvc_loads(b) ? g->n_frames + b->slot : b->frame;
        if (m->memory[k][place][m->c->n_slots - 1] == last_tag)
            return true;
    }
    return false;
}

static uint32_t naive_match(const struct model *m, const struct model_seq *q, uint32_t n_max)
{
    uint32_t n_slots = m->c->n_slots, best = 0;
    bool known[KV_MAX_GROUPS][MODEL_TOKENS];
    for (uint32_t i = 0; i < n_max / n_slots && m->options.prefix; i++) {
        for (uint32_t k = 0; k < m->c->n_groups; k++)
            known[k][i] = block_known(m, k, want_tag(q, k, (i + 1) * n_slots - 1));
        uint32_t n = (i + 1) * n_slots;
        bool all = true;
        for (uint32_t k = 0; k < m->c->n_groups; k++) {
            uint32_t w = m->layout.group[k].window;
            for (uint32_t p = w == 0 || n + 1 <= w ? 0 : n + 1 - w; p < n; p++)
                all = all && known[k][p / n_slots];
        }
        best = all ? n : best;
    }
    return best;
}

static bool naive_pending(const struct model *m, const struct model_seq *q, uint32_t n_max)
{
    uint32_t n = naive_match(m, q, n_max), n_slots = m->c->n_slots;
    uint32_t last = n + n_slots - 1;
    if (last >= n_max)
        return false;
    for (uint32_t i = 0; i < MODEL_SEQS; i++) {
        const struct model_seq *o = &m->seq[i];
        if (o->used && n / n_slots < o->pend_to && n / n_slots >= o->s.n_published &&
            o->tag[last] == q->tag[last])
            return true;
    }
    return false;
}

/* ---- operations; each leaves the cache fit for an audit ---- */

static void fill_tokens(struct model *m, struct model_seq *q, uint32_t from)
{
    uint32_t family = below(m, MODEL_FAMILIES), split = from + below(m, MODEL_TOKENS);
    for (uint32_t p = from; p < MODEL_TOKENS; p++) {
        bool shared = p < split;
        q->tokens[p] = (int32_t)(shared ? mix(family, p / 5) % 7 : below(m, 3));
    }
    for (uint32_t p = from; p < MODEL_TOKENS; p++)
        q->tag[p] = mix(p > 0 ? q->tag[p - 1] : q->root, (uint32_t)q->tokens[p]);
}

static struct model_seq *unused(struct model *m)
{
    for (uint32_t i = 0; i < MODEL_SEQS; i++) {
        if (!m->seq[i].used)
            return &m->seq[i];
    }
    return NULL;
}

static uint32_t count_pending(const struct model *m, const struct model_seq *q)
{
    uint32_t n = 0;
    for (uint32_t i = q->s.pend_head; i != KV_NO_BLOCK; i = m->c->pend[i].seq_next)
        n++;
    return n;
}

static void op_new(struct model *m, struct model_seq *q)
{
    memset(q, 0, sizeof(*q));
    q->used = true;
    q->root = below(m, MODEL_ROOTS);
    fill_tokens(m, q, 0);
    q->goal = 1 + below(m, chance(m, 70) ? MODEL_TOKENS / 3 : MODEL_TOKENS);
    kv_seq_init(m->c, &q->s, MODEL_TOKENS, m->root[q->root]);
    uint32_t n_max = q->goal - 1;
    MODEL_EXPECT(m, kv_pending(m->c, q->s.root, q->tokens, n_max) == naive_pending(m, q, n_max));
    uint32_t n = kv_match(m->c, q->s.root, q->tokens, n_max);
    if (n != naive_match(m, q, n_max))
        model_fail(m, "a hit of %u positions instead of %u", n, naive_match(m, q, n_max));
    uint32_t n_hit = kv_seq_adopt(m->c, &q->s, q->tokens, n_max);
    MODEL_EXPECT(m, n_hit <= n && n_hit % m->c->n_slots == 0);
    MODEL_EXPECT(m, n_hit == n || m->c->group[0].n_promised + m->c->group[1].n_promised > 0);
    m->n_hits += n_hit > 0;
    m->n_hit_tokens += n_hit;
    if (chance(m, 50)) {
        kv_pending_add(m->c, &q->s, q->tokens, q->goal);
        q->pend_to = q->s.n_published + count_pending(m, q);
        m->n_pending += count_pending(m, q);
    }
    struct kv_need need = kv_need_of(m->c, q->goal, 8);
    if (chance(m, 15))
        q->reserved = kv_seq_claim(m->c, &q->s, &need) && !m->options.prefix;
}

static void op_unpark(struct model *m, struct model_seq *q)
{
    if (q->s.runs || q->s.lost)
        return;
    uint32_t n_paged = chance(m, 40) ? below(m, 20) : 0, before[KV_MAX_GROUPS];
    struct kv_need need = kv_seq_absent_paged(m->c, &q->s, n_paged);
    bool fits = true;
    for (uint32_t k = 0; k < m->c->n_groups; k++) {
        before[k] = kv_room(m->c, k) + q->s.claim.n[k];
        fits = fits && need.n[k] <= before[k];
    }
    MODEL_EXPECT(m, kv_seq_unpark_paged(m->c, &q->s, n_paged) == fits);
    for (uint32_t k = 0; fits && k < m->c->n_groups; k++)
        MODEL_EXPECT(m, kv_room(m->c, k) + q->s.claim.n[k] + need.n[k] == before[k]);
    m->n_paged += q->s.t[0].n_paged;
}

static void op_drop(struct model *m, struct model_seq *q)
{
    if (q->s.n_retired < q->s.n_tokens)
        return;
    if (q->s.runs && kv_seq_resident(&q->s))
        check_visible(m, q);
    m->n_lost += q->s.lost;
    struct kv_need private = kv_seq_private(m->c, &q->s);
    uint32_t before[KV_MAX_GROUPS];
    for (uint32_t k = 0; k < m->c->n_groups; k++)
        before[k] = kvc_avail(&m->c->group[k]);
    kv_seq_drop(m->c, &q->s);
    for (uint32_t k = 0; k < m->c->n_groups && m->fault == KVC_NO_FAULT; k++)
        MODEL_EXPECT(m, kvc_avail(&m->c->group[k]) == before[k] + private.n[k]);
    kv_seq_release(m->c, &q->s);
    q->used = false;
}

static void op_park(struct model *m, struct model_seq *q)
{
    if (q->s.n_retired < q->s.n_tokens)
        return;
    kv_seq_park(m->c, &q->s);
    q->pend_to = 0;
    q->reserved = false;
    bool all = chance(m, 50);
    if (!all && chance(m, 50))
        return;
    kv_seq_spill(m->c, &q->s, all ? UINT32_MAX : below(m, 6));
    if (all && kv_seq_dirty(m->c, &q->s) > 0)
        MODEL_EXPECT(m, kv_slots_free(m->c, 0) == 0 ||
                            (m->c->n_groups > 1 && kv_slots_free(m->c, 1) == 0));
}

static void op_grow(struct model *m, struct model_seq *q)
{
    uint32_t rows = 1 + below(m, chance(m, 30) ? 24 : 4), before[KV_MAX_GROUPS];
    if (!kv_seq_resident(&q->s) || q->s.n_retired < q->s.n_tokens || q->s.n_tokens == MODEL_TOKENS)
        return;
    if (rows > MODEL_TOKENS - q->s.n_tokens)
        rows = MODEL_TOKENS - q->s.n_tokens;
    struct kv_need need = kv_seq_need(m->c, &q->s, rows);
    bool fits = true;
    for (uint32_t k = 0; k < m->c->n_groups; k++) {
        before[k] = kv_room(m->c, k) + q->s.claim.n[k];
        fits = fits && need.n[k] <= before[k];
    }
    q->n_copies = 0;
    q->stepped = false;
    m->c->fault_tokens = q->tokens;
    MODEL_EXPECT(m, kv_seq_grow(m->c, &q->s, rows, q->copy, &q->n_copies) == fits);
    MODEL_EXPECT(m, fits || !q->reserved || rows > 8 || q->s.n_tokens + rows > q->goal);
    struct kv_need most = kv_need_of(m->c, q->s.n_tokens, rows);
    for (uint32_t k = 0; k < m->c->n_groups; k++)
        MODEL_EXPECT(m, q->s.t[k].n - q->s.t[k].first <= most.n[k]);
    for (uint32_t k = 0; fits && m->fault == KVC_NO_FAULT && k < m->c->n_groups; k++)
        MODEL_EXPECT(m, kv_room(m->c, k) + q->s.claim.n[k] + need.n[k] == before[k]);
    m->n_copies += q->n_copies;
    m->n_grown += fits;
    if (!fits && chance(m, 30))
        op_park(m, q);
    else if (!fits && chance(m, 30))
        op_drop(m, q);
}

static void run_copies(struct model *m, struct model_seq *q)
{
    for (uint32_t i = 0; i < q->n_copies; i++)
        copy_part(m, q->copy[i].group, q->copy[i].dst, q->copy[i].src, 0, m->c->n_slots);
    q->n_copies = 0;
}

/* The backend's part: copies, then K and V of the new rows, then attention. */
static void op_step(struct model *m, struct model_seq *q)
{
    if (q->stepped || q->s.n_retired == q->s.n_tokens)
        return;
    run_copies(m, q);
    for (uint32_t k = 0; k < m->c->n_groups; k++) {
        for (uint32_t p = q->s.n_retired; p < q->s.n_tokens; p++) {
            uint32_t phys = q->s.t[k].phys[p / m->c->n_slots];
            MODEL_EXPECT(m, phys < m->c->group[k].n_frames);
            m->memory[k][phys][p % m->c->n_slots] = want_tag(q, k, p);
        }
    }
    check_visible(m, q);
    q->stepped = true;
}

static void op_retire(struct model *m, struct model_seq *q)
{
    if (!q->stepped)
        return;
    check_visible(m, q);
    bool finite = !chance(m, 1);
    uint32_t first = q->s.t[m->c->n_groups - 1].first;
    kv_seq_retire(m->c, &q->s, q->tokens, finite);
    m->n_slides += q->s.t[m->c->n_groups - 1].first - first;
    if (!finite)
        q->pend_to = 0;
    q->stepped = false;
    check_visible(m, q);
}

static void op_undo(struct model *m, struct model_seq *q)
{
    if (q->s.n_retired == q->s.n_tokens)
        return;
    run_copies(m, q);
    kv_seq_undo(m->c, &q->s);
    q->stepped = false;
    m->n_undone++;
    check_visible(m, q);
}

static void op_fork(struct model *m, struct model_seq *q)
{
    struct model_seq *child = unused(m);
    if (!child || q->s.lost || q->s.n_loading > 0 || q->s.n_retired < q->s.n_tokens)
        return;
    memset(child, 0, sizeof(*child));
    child->used = true;
    child->root = q->root;
    memcpy(child->tokens, q->tokens, sizeof(q->tokens));
    memcpy(child->tag, q->tag, sizeof(q->tag));
    child->goal = q->goal;
    q->reserved = false;
    fill_tokens(m, child, q->s.n_tokens);
    kv_seq_init(m->c, &child->s, MODEL_TOKENS, m->root[child->root]);
    kv_seq_fork(m->c, &q->s, &child->s);
}

static void op_page_out(struct model *m, struct model_seq *q)
{
    if (!q->s.runs || q->s.n_retired < q->s.n_tokens)
        return;
    m->n_paged += kv_seq_page_out(m->c, &q->s, 1 + below(m, 6));
}

static void copy_job(struct model *m, const struct model_job *j, uint32_t begin, uint32_t end)
{
    uint32_t slot = m->c->group[j->job.group].n_frames + j->job.slot;
    copy_part(m, j->job.group, j->job.load ? j->job.frame : slot, j->job.load ? slot : j->job.frame,
              begin, end);
}

static void step_job(struct model *m, struct model_job *j)
{
    uint32_t n_slots = m->c->n_slots;
    if (!j->used) {
        *j = (struct model_job){0};
        j->used = kv_job_next(m->c, &j->job);
        return;
    }
    if (!j->half && chance(m, 50)) {
        copy_job(m, j, 0, n_slots / 2);
        j->half = true;
        return;
    }
    bool ok = !chance(m, 6);
    copy_job(m, j, j->half ? n_slots / 2 : 0, n_slots);
    if (!ok) {
        uint32_t place =
            j->job.load ? j->job.frame : m->c->group[j->job.group].n_frames + j->job.slot;
        memset(m->memory[j->job.group][place], 0xdd, sizeof(m->memory[0][0]));
    }
    kv_job_done(m->c, &j->job, ok);
    j->used = false;
    m->n_loads += ok && j->job.load;
    m->n_spills += ok && !j->job.load;
    m->n_failed += !ok;
}

static void op_job(struct model *m)
{
    step_job(m, &m->job[below(m, MODEL_JOBS)]);
}

/* When nothing else happens, copies come to an end. */
static void op_drain(struct model *m)
{
    uint32_t n = 0, n_most = 8;
    for (uint32_t k = 0; k < m->c->n_groups; k++)
        n_most += 6 * m->c->group[k].n_blocks;
    for (bool idle = false; !idle; n++) {
        if (n > n_most)
            model_fail(m, "copies go on for ever");
        idle = true;
        for (uint32_t i = 0; i < MODEL_JOBS; i++) {
            idle = idle && !m->job[i].used;
            step_job(m, &m->job[i]);
            idle = idle && !m->job[i].used;
        }
    }
    MODEL_EXPECT(m, kv_jobs_open(m->c) == 0);
}

static void op_claim(struct model *m, struct model_seq *q)
{
    q->reserved = false;
    struct kv_need need = {{below(m, 4), below(m, 4)}};
    if (chance(m, 50))
        kv_seq_claim(m->c, &q->s, &need);
    else
        kv_seq_claim_trim(m->c, &q->s, &need);
}

struct model_choice {
    uint32_t percent;
    const char *name;
    void (*run)(struct model *, struct model_seq *);
};

static void op_spill(struct model *m, struct model_seq *q)
{
    kv_seq_spill(m->c, &q->s, below(m, 8));
}

static void op_pending_end(struct model *m, struct model_seq *q)
{
    kv_pending_end(m->c, &q->s);
    q->pend_to = 0;
}

static void op_on_seq(struct model *m, struct model_seq *q)
{
    static const struct model_choice flies[] = {{45, "step", op_step},
                                                {40, "retire", op_retire},
                                                {4, "undo", op_undo},
                                                {6, "spill", op_spill},
                                                {5, "claim", op_claim}};
    static const struct model_choice runs[] = {{70, "grow", op_grow},
                                               {7, "fork", op_fork},
                                               {7, "park", op_park},
                                               {7, "page out", op_page_out},
                                               {6, "spill", op_spill},
                                               {2, "claim", op_claim},
                                               {1, "pending end", op_pending_end}};
    static const struct model_choice parked[] = {{60, "unpark", op_unpark},
                                                 {25, "spill", op_spill},
                                                 {5, "fork", op_fork},
                                                 {10, "claim", op_claim}};
    const struct model_choice *o = !q->s.runs                       ? parked
                                   : q->s.n_retired < q->s.n_tokens ? flies
                                                                    : runs;
    uint32_t what = below(m, 100);
    for (; what >= o->percent; o++)
        what -= o->percent;
    model_doing = o->name;
    o->run(m, q);
}

static void model_audit(struct model *m)
{
    struct err e;
    if (m->audits && kv_cache_audit(m->c, &e) != OK)
        model_fail(m, "%s", e.text);
    poison_free(m);
    for (uint32_t i = 0; i < MODEL_SEQS; i++) {
        struct model_seq *q = &m->seq[i];
        if (q->used && q->s.lost && q->pend_to > 0)
            q->pend_to = 0;
    }
}

static void model_op(struct model *m)
{
    uint32_t what = below(m, 1000);
    struct model_seq *q = &m->seq[below(m, MODEL_SEQS)];
    m->n_ops++;
    if (what < 2) {
        model_doing = "drain";
        op_drain(m);
    } else if (what < 160) {
        model_doing = "job";
        op_job(m);
    } else if (what < 161) {
        model_doing = "clear";
        kv_prefix_clear(m->c);
    } else if (q->used && (q->s.lost || q->s.n_tokens >= q->goal || what < 170)) {
        model_doing = "drop";
        op_step(m, q);
        op_retire(m, q);
        op_drop(m, q);
    } else if (q->used) {
        op_on_seq(m, q);
    } else if (chance(m, 25)) {
        model_doing = "new";
        op_new(m, q);
    }
    model_audit(m);
}

/* ---- a cache's life ---- */

static uint32_t random_window(struct model *m, uint32_t n_slots)
{
    uint32_t windows[] = {
        1,           2,           n_slots - 1,     n_slots,         n_slots + 1,
        n_slots + 2, n_slots + 3, 2 * n_slots + 1, 2 * n_slots + 2, 5 * n_slots - 1};
    return windows[below(m, sizeof(windows) / sizeof(windows[0]))];
}

static void model_begin(struct model *m)
{
    struct kv_layout *l = &m->layout;
    struct kv_options *o = &m->options;
    *l = (struct kv_layout){.n_layers = 2, .n_slots = 2 + 2 * below(m, 4)};
    l->n_groups = chance(m, 60) ? 2 : 1;
    if (l->n_groups == 2 || chance(m, 40))
        l->group[l->n_groups - 1].window = random_window(m, l->n_slots);
    *o = (struct kv_options){.layout = l,
                             .max_jobs = 1 + below(m, MODEL_JOBS),
                             .max_pending = chance(m, 50) ? 200 : below(m, 20),
                             .prefix = !chance(m, 8),
                             .secret = {m->rng, 5},
                             .key_bits = chance(m, 50)   ? 8
                                         : chance(m, 50) ? 2
                                                         : 128};
    for (uint32_t k = 0; k < l->n_groups; k++) {
        o->n_frames[k] = 6 + below(m, 40);
        o->n_host[k] = chance(m, 60) ? below(m, 20) : 0;
        o->n_file[k] = chance(m, 60) ? below(m, 20) : 0;
    }
    m->c = kv_cache_new(o);
    m->c->fault = m->fault;
    for (uint32_t i = 0; i < MODEL_ROOTS; i++) {
        struct kv_domain d = {.rope = "", .adapter = "", .salt = i ? "b" : "a", .n_salt_bytes = 1};
        m->root[i] = kv_root(m->c, &d);
    }
    memset(m->poisoned, 0, sizeof(m->poisoned));
    poison_free(m);
}

/* Everything ends; then every frame can be had and every slot is free or evictable. */
static void model_end(struct model *m)
{
    model_doing = "end";
    for (uint32_t i = 0; i < MODEL_SEQS; i++) {
        struct model_seq *q = &m->seq[i];
        if (!q->used)
            continue;
        op_step(m, q);
        op_retire(m, q);
        op_drop(m, q);
        model_audit(m);
    }
    for (uint32_t i = 0; i < MODEL_JOBS; i++) {
        if (m->job[i].used)
            kv_job_done(m->c, &m->job[i].job, true);
        m->job[i].used = false;
        model_audit(m);
    }
    MODEL_EXPECT(m, kv_jobs_open(m->c) == 0);
    for (uint32_t k = 0; k < m->c->n_groups && m->fault == KVC_NO_FAULT; k++) {
        MODEL_EXPECT(m, kv_room(m->c, k) == kv_frames(m->c, k));
        MODEL_EXPECT(m, kv_slots_free(m->c, k) == m->c->group[k].n_tier);
    }
    kv_prefix_clear(m->c);
    model_audit(m);
    for (uint32_t k = 0; k < m->c->n_groups && m->fault == KVC_NO_FAULT; k++)
        MODEL_EXPECT(m, m->c->group[k].n_free_frames == kv_frames(m->c, k));
    m->n_evicted += m->c->n_evicted;
    kv_cache_free(m->c);
    m->c = NULL;
}

static void model_run(struct model *m, uint64_t seed, uint64_t n_ops)
{
    m->seed = seed;
    m->rng = mix(seed, 77);
    while (m->n_ops < n_ops) {
        model_begin(m);
        for (uint32_t i = 0; i < MODEL_EPISODE && m->n_ops < n_ops; i++)
            model_op(m);
        model_end(m);
    }
}

#endif
