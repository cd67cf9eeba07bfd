/* Copies between frames and the tiers, and what steps read from the spill file. Thread: engine. */
#include "scheduler/copies.h"

#include "base/check.h"

static bool has_tier(const struct sched *s)
{
    return s->memory.tier_ops != NULL;
}

void copies_done(struct sched *s)
{
    struct kv_done done;
    if (!has_tier(s))
        return;
    while (s->memory.tier_ops->pop(s->memory.tier, &done)) {
        kv_job_done(s->kv, &done.job, done.ok);
        if (done.ok)
            s->copies.n_bytes[done.job.load] += s->layout.group[done.job.group].block_bytes;
        s->copies.n_out--;
        s->copies.has_lost |= !done.ok;
        s->moved = true;
        s->epoch++;
    }
}

void copies_start(struct sched *s)
{
    const struct sched_tier_ops *ops = s->memory.tier_ops;
    struct kv_job job;
    if (!has_tier(s))
        return;
    while (ops->room(s->memory.tier) > 0 && kv_job_next(s->kv, &job)) {
        CHECK(ops->push(s->memory.tier, &job));
        s->copies.n_out++;
    }
}

uint32_t copies_spill(struct sched *s, struct seq *q, uint32_t n_most)
{
    uint32_t n = kv_seq_spill(s->kv, &q->kv, n_most);
    s->moved |= n > 0;
    return n;
}

void staged_count(const struct sched *s, struct seq *q)
{
    const struct kv_table *t = &q->kv.t[0];
    uint32_t in_memory = s->n_frames[0] + s->memory.arena->group[0].n_host;
    q->n_staged = 0;
    for (uint32_t i = t->first; i < t->n && q->n_staged < t->n_paged; i++)
        q->n_staged += t->phys[i] >= in_memory;
}

void staged_grant(struct sched *s, struct seq *q)
{
    staged_count(s, q);
    q->granted = q->n_staged <= s->copies.staged_left ? UINT32_MAX : 0;
    if (q->granted > 0)
        s->copies.staged_left -= q->n_staged;
}
