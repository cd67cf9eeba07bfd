/* Sequences that gave their blocks away for others, and how they come back. Thread: engine.
 *
 * Parked by swap: every block gets a copy in a tier; a frame whose copy is done is available to any sequence,
 * and comes back by a load. Parked by recompute: it holds nothing and computes again, less what the
 * prefix cache still has. What it emitted before stays emitted: rows are computed up to its last token
 * and only the one after that is sampled, from the same history and the same place of the random
 * stream. They come back oldest first, before any request is admitted. */
#include "scheduler/park.h"

#include <string.h>

#include "base/check.h"
#include "scheduler/copies.h"
#include "scheduler/gauges.h"
#include "scheduler/parked.h"
#include "scheduler/room.h"
#include "scheduler/running.h"

uint32_t park_blocks(const struct seq *q)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        n += q->kv.t[g].n - q->kv.t[g].first;
    return n;
}

/* ns to write what has no copy yet and to read everything back. Unknown costs count as nothing: trying
 * is how they become known. */
static double swap_ns(const struct sched *s, const struct seq *q)
{
    struct kv_tier_costs c = s->memory.tier_ops->costs(s->memory.tier);
    double ns = 0;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        const struct kv_table *t = &q->kv.t[g];
        bool ram = s->memory.arena->group[g].n_host > 0;
        double bytes = (double)s->layout.group[g].block_bytes;
        double out = ram ? c.ram_ns_byte : c.file_write_ns_byte;
        double in = ram ? c.ram_ns_byte : c.file_read_ns_byte;
        ns += bytes * ((double)(t->n - (t->n_clean > t->first ? t->n_clean : t->first)) * out +
                       (double)(t->n - t->first) * in);
    }
    return ns;
}

static double recompute_ns(const struct sched *s, const struct seq *q)
{
    return s->cost.row_ns * q->n_kv + s->cost.kv_ns * (double)cost_kv_read(0, q->n_kv);
}

static bool swaps(const struct sched *s, const struct seq *q)
{
    if (!s->memory.tier_ops || s->limits.preempt == SCHED_PREEMPT_RECOMPUTE || q->kv.lost)
        return false;
    return s->limits.preempt == SCHED_PREEMPT_SWAP || swap_ns(s, q) <= recompute_ns(s, q);
}

void park_drop(struct sched *s, struct seq *q)
{
    kv_seq_drop(s->kv, &q->kv);
    q->n_kv = 0;
    q->n_staged = 0;
    s->epoch++;
}

/* Queues copies of everything; what finds no slot means that the sequence computes again. */
static bool swap_out(struct sched *s, struct seq *q)
{
    copies_spill(s, q, UINT32_MAX);
    return kv_seq_dirty(s->kv, &q->kv) == 0;
}

/* q, parked in the books, leaves the running ones. */
static void leave_running(struct sched *s, struct seq *q)
{
    q->look_epoch = 0;
    s->epoch++;
    s->moved = true;
    s->running.has_ended = true; /* running_compact takes it out */
    parked_insert(s, q);
}

void park_seq(struct sched *s, struct seq *q)
{
    CHECK(q->state == SEQ_LIVE && q->n_fly == 0);
    bool by_swap = swaps(s, q);
    kv_seq_park(s->kv, &q->kv);
    if (by_swap && !swap_out(s, q))
        by_swap = false;
    if (!by_swap)
        park_drop(s, q);
    q->n_preempted++;
    q->req->n_preempted++;
    leave_running(s, q);
    running_compact(s);
    stopwatch_turn(&q->req->watch, TIMING_swap, s->now_ns);
    gauges_preempted(s, by_swap ? PREEMPT_SWAP : PREEMPT_RECOMPUTE);
}

/* The first block stays (attention leans on the first tokens, whatever they say), and of the rest the
 * later half; what is kept computes again from position 0, as a fresh history would, so that the answer
 * is that of a request with these tokens. Amortised, a token more is computed for each that is sampled. */
void park_overflow(struct sched *s, struct seq *q)
{
    uint32_t n_first = s->layout.n_slots, n_last = (q->n_tok - n_first) / 2;
    n_last += PLANTED(s, SCHED_FAULT_SINKS_LONG);
    uint32_t n_cut = q->n_tok - n_first - n_last;
    uint32_t from = n_first + n_cut - PLANTED(s, SCHED_FAULT_SINKS_EARLY);
    CHECK(q->state == SEQ_LIVE && q->n_fly == 0);
    memmove(q->tokens + n_first, q->tokens + from, n_last * sizeof(int32_t));
    q->n_tok -= n_cut;
    q->n_dropped += n_cut;
    kv_seq_park(s->kv, &q->kv);
    park_drop(s, q);
    leave_running(s, q);
}

uint32_t park_paged(const struct sched *s, const struct seq *q)
{
    uint32_t most = s->n_frames[0] / 2;
    if (!room_oversize(s, req_positions(q->req->r)) || q->kv.t[0].n <= most)
        return 0;
    return q->kv.t[0].n - most;
}

/* Prompt positions count as read from the cache only if no step has read anything else before. */
static void adopt_again(struct sched *s, struct seq *q)
{
    if (!s->memory.prefix || (q->req->r->prompt_logprobs && !q->forked && q->n_out == 0) ||
        q->n_tok < 2)
        return;
    q->n_kv = kv_seq_adopt(s->kv, &q->kv, q->tokens, q->n_tok - 1);
    if (!q->req->first_scheduled_ns && q->choice == 0)
        q->req->n_cached = q->n_kv;
}

static bool comes_back(struct sched *s, struct seq *q, bool oldest)
{
    if (park_blocks(q) == 0)
        adopt_again(s, q);
    uint32_t n_paged = park_paged(s, q);
    struct kv_need need = kv_seq_absent_paged(s->kv, &q->kv, n_paged);
    uint32_t n_rows = SCHED_RESUME_ROWS << (q->n_preempted < 4 ? q->n_preempted : 4);
    struct kv_need grow = room_growth(s, q, room_positions(s, q, n_rows));
    struct kv_need rest = {{0}};
    if (!oldest)
        rest = room_add(room_add(grow, s->next_need), room_watermark(s, true));
    if (!room_covers(s, &need, &rest) || !kv_seq_unpark_paged(s->kv, &q->kv, n_paged))
        return false;
    s->next_need = room_add(s->next_need, grow);
    return true;
}

void park_resume(struct sched *s)
{
    while (s->parked.n > 0) {
        struct seq *q = s->parked.seq[0];
        bool oldest = s->running.n == 0 || seq_older(q, s->running.seq[0]);
        if (q->look_epoch == s->epoch || (s->preempts && !oldest))
            return;
        bool held = park_blocks(q) > 0;
        if (!comes_back(s, q, oldest)) {
            if (!held && park_blocks(q) > 0) {
                kv_seq_drop(s->kv, &q->kv);
                q->n_kv = 0;
            }
            q->look_epoch = s->epoch;
            return;
        }
        parked_remove(s, q);
        q->state = SEQ_LIVE;
        staged_grant(s, q);
        running_insert(s, q);
        s->moved = true;
    }
}
