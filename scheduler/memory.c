/* Room for the rows of this turn, and the copies that make it. Thread: engine.
 *
 * Running sequences get room oldest first. When it doesn't reach for all, the youngest are parked (never
 * the oldest of all) until it does; frames that are still being copied are waited for, while those that
 * have room go on. So the oldest always moves; it fits alone, by admission; by induction all end. One
 * that is larger than the arena goes on, when it is alone, by paging out its own cold blocks.
 *
 * When free frames run low, full blocks of the youngest sequences are copied to a tier ahead of time:
 * parking them is then only a change of numbers. */
#include "scheduler/memory.h"

#include "base/check.h"
#include "scheduler/copies.h"
#include "scheduler/park.h"
#include "scheduler/room.h"
#include "scheduler/running.h"

/* ---- which sequences have room ---- */

/* Rows that q may have in this turn, as far as is known before planning. */
static uint32_t next_rows(const struct sched *s, const struct seq *q, uint32_t *left)
{
    uint32_t n = q->n_tok - q->n_kv;
    n = n < s->limits.chunk_max ? n : s->limits.chunk_max;
    n = n < *left ? n : *left;
    *left -= n;
    return n;
}

static struct kv_need rows_need(const struct sched *s, const struct seq *q, uint32_t n_rows)
{
    struct kv_need need = {{0}};
    if (n_rows == 0)
        return need;
    need = kv_seq_need(s->kv, &q->kv, n_rows);
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint32_t promised = q->kv.claim.n[g];
        need.n[g] -= need.n[g] < promised ? need.n[g] : promised;
    }
    return need;
}

/* No look at each sequence when room is ample: a decoding one takes at most a block in each group, a
 * chunk one more than its rows fill. */
static bool ample(struct sched *s)
{
    struct kv_need most = {{0}}, none = {{0}};
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        most.n[g] = 2 * s->running.n + s->limits.max_batch_tokens / s->layout.n_slots + 1;
    if (s->parked.n > 0 || !room_covers(s, &most, &none))
        return false;
    for (uint32_t i = 0; i < s->running.n; i++) {
        if (s->running.seq[i]->n_staged > 0)
            return false;
        s->running.seq[i]->granted = kv_seq_resident(&s->running.seq[i]->kv) ? UINT32_MAX : 0;
    }
    s->next_need = most;
    s->running.n_stalled = 0;
    s->copies.staged_left = s->be->limits.max_staged;
    return true;
}

static bool oldest_is_parked(const struct sched *s)
{
    return s->parked.n > 0 && (s->running.n == 0 || seq_older(s->parked.seq[0], s->running.seq[0]));
}

/* What the oldest of all takes when it is parked: it comes back whatever others lack. */
static struct kv_need oldest_need(const struct sched *s)
{
    struct kv_need need = {{0}};
    if (!oldest_is_parked(s))
        return need;
    const struct seq *q = s->parked.seq[0];
    need =
        room_add(kv_seq_absent_paged(s->kv, &q->kv, park_paged(s, q)), room_growth(s, q, q->n_tok));
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        need.n[g] = need.n[g] < s->n_frames[g] ? need.n[g] : s->n_frames[g];
    return need;
}

static bool is_none(const struct kv_need *need)
{
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
        if (need->n[g] > 0)
            return false;
    }
    return true;
}

/* Rows that q's own promise covers, when room doesn't reach for n_rows: blocks that it shared and that
 * slid out of its window may be missing from the promise, until whoever holds them lets them go. */
static uint32_t promised_rows(const struct sched *s, const struct seq *q, uint32_t n_rows)
{
    if (!q->req->reserves)
        return 0;
    for (; n_rows > 0; n_rows /= 2) {
        struct kv_need need = rows_need(s, q, n_rows);
        if (is_none(&need))
            break;
    }
    return n_rows;
}

/* Marks the sequences that have room. *want: frames for all of them together. */
static bool grant(struct sched *s, struct kv_need *want)
{
    uint32_t left = s->limits.max_batch_tokens;
    struct kv_need sum = oldest_need(s), none = {{0}};
    bool all = room_covers(s, &sum, &none);
    *want = sum;
    s->running.n_stalled = 0;
    s->copies.staged_left = s->be->limits.max_staged;
    for (uint32_t i = 0; i < s->running.n; i++) {
        struct seq *q = s->running.seq[i];
        q->granted = 0;
        if (!kv_seq_resident(&q->kv) || q->n_staged > s->copies.staged_left)
            continue;
        uint32_t n_rows = next_rows(s, q, &left);
        struct kv_need need = rows_need(s, q, n_rows);
        *want = room_add(*want, need);
        /* What an older one waits for is not for a younger one to take. */
        bool covered = s->running.n_stalled > 0 ? is_none(&need) : room_covers(s, &sum, &need);
        if (covered)
            sum = room_add(sum, need);
        else
            s->running.n_stalled++;
        q->granted = covered ? UINT32_MAX : promised_rows(s, q, n_rows);
        if (q->granted > 0)
            s->copies.staged_left -= q->n_staged;
    }
    s->next_need = *want;
    return all && s->running.n_stalled == 0;
}

/* Frames that will be free when the copies of parked sequences are done. */
static bool comes_free(const struct sched *s, const struct kv_need *want)
{
    struct kv_need coming = {{0}};
    if (s->copies.n_out == 0 && kv_jobs_open(s->kv) == 0)
        return false;
    for (uint32_t i = 0; i < s->parked.n; i++)
        coming = room_add(coming, kv_seq_private(s->kv, &s->parked.seq[i]->kv));
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        if (want->n[g] > (uint64_t)kv_room(s->kv, g) + coming.n[g])
            return false;
    }
    return true;
}

/* ---- which sequence to park ---- */

struct victim {
    bool paused;
    uint32_t class_index; /* of its priority, no better than its key's */
    uint32_t tenant;
    uint64_t served; /* of its tenant */
    bool fresh; /* neither preempted often nor nearly done */
};

static struct victim victim_of(const struct sched *s, const struct seq *q)
{
    const struct request *r = q->req->r;
    return (struct victim){.paused = q->paused,
                           .class_index = q->req->item.class_index,
                           .tenant = r->tenant,
                           .served = tenant_counter(s->tenants, r->tenant),
                           .fresh = q->n_preempted < SCHED_PREEMPT_MOST &&
                                    r->max_tokens - q->n_out > SCHED_NEARLY_DONE};
}

/* a is to be parked rather than the older b. */
static bool rather(const struct victim *a, const struct victim *b)
{
    if (a->paused != b->paused)
        return a->paused;
    if (a->class_index != b->class_index)
        return a->class_index > b->class_index;
    if (a->fresh != b->fresh)
        return a->fresh;
    return a->tenant == b->tenant || a->served >= b->served;
}

/* The oldest of all, those whose worst case was promised and those on their way back stay. */
static struct seq *pick_victim(const struct sched *s)
{
    struct seq *best = NULL;
    struct victim best_is = {0};
    for (uint32_t i = oldest_is_parked(s) ? 0 : 1; i < s->running.n; i++) {
        struct seq *q = s->running.seq[i];
        if (q->req->reserves || !kv_seq_resident(&q->kv))
            continue;
        struct victim is = victim_of(s, q);
        if (!best || rather(&is, &best_is)) {
            best = q;
            best_is = is;
        }
    }
    return best;
}

/* ---- when no sequence is left to park ---- */

/* Cold blocks of the one sequence that runs make place for its next ones. */
static bool page_out(struct sched *s, struct seq *q, const struct kv_need *want)
{
    uint32_t room = kv_room(s->kv, 0);
    uint32_t n = (want->n[0] > room ? want->n[0] - room : 0) + SCHED_PAGE_TURN;
    if (!room_oversize(s, req_positions(q->req->r)))
        return false;
    if (kv_seq_page_out(s->kv, &q->kv, n) > 0) {
        staged_count(s, q);
        return true;
    }
    copies_spill(s, q, 2 * n);
    return false;
}

static bool drop_youngest_parked(struct sched *s)
{
    for (uint32_t i = s->parked.n; i > (oldest_is_parked(s) ? 1u : 0u); i--) {
        struct seq *q = s->parked.seq[i - 1];
        if (park_blocks(q) == 0)
            continue;
        park_drop(s, q);
        return true;
    }
    return false;
}

static void end_stuck(struct sched *s, struct seq *q)
{
    struct err e;
    err_set(&e, ERR_INTERNAL, "no KV block is available for choice %u at position %u", q->choice,
            q->n_kv);
    req_end(s, q->req, &e);
    running_compact(s);
}

/* The oldest has no room although all others are parked. False: it waits for copies. */
static bool unstick(struct sched *s, const struct kv_need *want)
{
    struct seq *q = oldest_is_parked(s) ? s->parked.seq[0]
                    : s->running.n      ? s->running.seq[0]
                                        : NULL;
    if (!q || q->granted || (q->state == SEQ_LIVE && !kv_seq_resident(&q->kv)))
        return false;
    if (q->state == SEQ_LIVE && page_out(s, q, want))
        return true;
    if (kv_jobs_open(s->kv) > 0 || s->disk.n_fetching > 0)
        return false;
    struct seq *last = NULL;
    for (uint32_t i = 0; i < s->running.n; i++) {
        struct seq *other = s->running.seq[i];
        if (other == q || !other->req->reserves)
            continue;
        if (other->granted > 0)
            return false; /* it ends in a finite time */
        last = other;
    }
    if (drop_youngest_parked(s))
        return true;
    if (last) { /* its promise has shrunk to nothing and it holds what the oldest needs */
        kv_seq_claim_trim(s->kv, &last->kv, &(struct kv_need){{0}});
        park_seq(s, last);
        return true;
    }
    end_stuck(s, q);
    return true;
}

static void make_room(struct sched *s)
{
    struct kv_need want;
    while (!grant(s, &want)) {
        if (comes_free(s, &want))
            return;
        struct seq *q = pick_victim(s);
        if (!q && unstick(s, &want))
            continue;
        if (!q)
            return;
        park_seq(s, q);
        s->preempts = s->tight = true;
    }
}

/* ---- ahead of time ---- */

static void spill_ahead(struct sched *s)
{
    uint32_t room = kv_room(s->kv, 0), left = SCHED_SPILL_TURN;
    uint32_t low = s->n_frames[0] / 8 + s->running.n;
    if (!s->memory.tier_ops || s->limits.preempt == SCHED_PREEMPT_RECOMPUTE || room >= low ||
        kv_jobs_open(s->kv) >= s->memory.max_jobs)
        return;
    uint32_t clean = 0; /* blocks of those looked at: parking them would give as many frames */
    for (uint32_t i = s->running.n; i > 0 && left > 0 && clean < 2 * low; i--) {
        struct seq *q = s->running.seq[i - 1];
        if (q->req->reserves || !kv_seq_resident(&q->kv))
            continue;
        left -= copies_spill(s, q, left);
        clean += q->kv.t[0].n - q->kv.t[0].first;
    }
}

/* After a copy failed: a sequence that lost a block recomputes, and so does one that would wait forever for frames
 * that were to come free. */
static void drop_lost(struct sched *s)
{
    s->copies.has_lost = false;
    for (uint32_t i = s->parked.n; i > 0; i--) {
        if (kv_seq_dirty(s->kv, &s->parked.seq[i - 1]->kv) > 0)
            park_drop(s, s->parked.seq[i - 1]);
    }
    for (uint32_t i = s->running.n; i > 0; i--) {
        if (s->running.seq[i - 1]->kv.lost)
            park_seq(s, s->running.seq[i - 1]);
    }
}

/* Frames become free without a notification: windows slide, cached blocks get copies. */
static void watch_room(struct sched *s)
{
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint32_t room = kv_room(s->kv, g);
        if (room > s->seen.room[g])
            s->epoch++;
        s->seen.room[g] = room;
    }
}

static void loosen(struct sched *s)
{
    struct kv_need high = room_watermark(s, true), none = {{0}};
    if (!s->tight || s->parked.n > 0 || (s->running.n > 0 && !room_covers(s, &high, &none)))
        return;
    s->tight = false;
    s->epoch++;
}

void memory_turn(struct sched *s)
{
    s->preempts = false;
    if (s->copies.has_lost)
        drop_lost(s);
    watch_room(s);
    if (!ample(s))
        make_room(s);
    park_resume(s);
    loosen(s);
    spill_ahead(s);
}
