/* The running batch: which sequences are in it, how they leave it; see sched.h. Thread: engine. */
#include "scheduler/running.h"

#include <string.h>

#include "base/check.h"
#include "scheduler/emit.h"
#include "scheduler/gauges.h"
#include "scheduler/notes.h"
#include "scheduler/parked.h"
#include "scheduler/queue.h"
#include "scheduler/room.h"

void running_insert(struct sched *s, struct seq *q)
{
    CHECK(q->state == SEQ_LIVE && s->running.n < 2 * s->limits.max_running);
    uint32_t i = s->running.n++;
    for (; i > 0 && seq_older(q, s->running.seq[i - 1]); i--)
        s->running.seq[i] = s->running.seq[i - 1];
    s->running.seq[i] = q;
    q->since_step = s->n_planned;
}

void running_compact(struct sched *s)
{
    if (!s->running.has_ended)
        return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->running.n; i++) {
        if (s->running.seq[i]->state == SEQ_LIVE)
            s->running.seq[n++] = s->running.seq[i];
    }
    s->running.n = n;
    s->running.has_ended = false;
}

static void release_seq(struct sched *s, struct seq *q)
{
    if (q->state == SEQ_PARKED)
        parked_remove(s, q);
    if (q->n_out > 0)
        lengths_add(&s->lengths, q->n_out);
    seq_finish(q, s->kv);
    tenant_stop(s->tenants, q->req->r->tenant, 1);
    s->running.n_held--;
    s->running.has_ended = true;
    s->epoch++;
}

static void leave_active(struct sched *s, struct req *q)
{
    if (q->prev)
        q->prev->next = q->next;
    else
        s->running.reqs = q->next;
    if (q->next)
        q->next->prev = q->prev;
    q->prev = q->next = NULL;
}

void req_end(struct sched *s, struct req *q, const struct err *e)
{
    if (q->state == REQ_QUEUED) {
        queue_remove(s, q);
    } else {
        for (uint32_t i = 0; i < q->r->n_choices; i++) {
            if (q->seq[i].state != SEQ_DONE)
                release_seq(s, &q->seq[i]);
        }
        leave_active(s, q);
    }
    uint64_t n_asked = (uint64_t)q->r->max_tokens * q->r->n_choices;
    tenant_refund(s->tenants, q->r->tenant, n_asked - q->n_output);
    req_set_state(q, REQ_DONE);
    gauges_end(s, q, e);
    note_end(s, q, e);
    emit_end(s, q, e);
}

bool running_end_cancelled(struct sched *s, struct req *q)
{
    if (!atomic_load(&q->r->cancelled))
        return false;
    struct err e;
    note_cancel(s, q);
    err_set(&e, ERR_CANCELLED, "cancelled");
    req_end(s, q, &e);
    return true;
}

void req_end_all(struct sched *s, const struct err *e)
{
    while (s->running.reqs)
        req_end(s, s->running.reqs, e);
    while (s->queue)
        req_end(s, s->queue, e);
}

void running_finish(struct sched *s, struct seq *q, enum finish_reason reason, int stop_index,
                    int32_t stop_token)
{
    struct req *req = q->req;
    req->reason = reason;
    emit_finish(s, q, reason, stop_index, stop_token);
    release_seq(s, q);
    if (req->n_live == 0)
        req_end(s, req, NULL);
}

static void audit_seq(const struct sched *s, const struct seq *q)
{
    const struct kv_seq *kv = &q->kv;
    CHECKF(q->n_kv + q->n_fly <= q->n_tok && q->n_kv == kv->n_retired &&
               q->n_kv + q->n_fly == kv->n_tokens,
           "choice %u: n_kv %u, n_fly %u, n_tok %u, its blocks hold %u", q->choice, q->n_kv,
           q->n_fly, q->n_tok, kv->n_tokens);
    if (q->n_fly == 0)
        CHECKF(q->n_kv < q->n_tok, "choice %u runs with nothing to do", q->choice);
    CHECK(q->n_tok <= q->req->r->n_prompt + q->req->r->max_tokens);
    CHECK(kv->runs == (q->state == SEQ_LIVE));
    CHECKF(q->n_staged <= s->be->limits.max_staged, "%u staged blocks, the backend takes %u",
           q->n_staged, s->be->limits.max_staged);
}

static void audit_active(const struct sched *s)
{
    uint32_t n_held = 0, n_live = 0, n_parked = 0;
    for (const struct req *q = s->running.reqs; q; q = q->next) {
        CHECK(q->state == REQ_RUNNING && q->n_live > 0);
        for (uint32_t i = 0; i < q->r->n_choices; i++) {
            const struct seq *seq = &q->seq[i];
            n_held += seq->state != SEQ_DONE;
            n_live += seq->state == SEQ_LIVE;
            n_parked += seq->state == SEQ_PARKED;
            if (seq->state == SEQ_LIVE || seq->state == SEQ_PARKED)
                audit_seq(s, seq);
        }
    }
    CHECKF(n_held == s->running.n_held && n_parked == s->parked.n, "held %u/%u, parked %u/%u",
           n_held, s->running.n_held, n_parked, s->parked.n);
    CHECK(n_held <= s->limits.max_running);
    for (uint32_t i = 1; i < s->parked.n; i++)
        CHECKF(seq_older(s->parked.seq[i - 1], s->parked.seq[i]), "parked out of order at %u", i);
    if (s->running.has_ended)
        return;
    CHECKF(n_live == s->running.n, "%u live sequences, %u in the batch", n_live, s->running.n);
    for (uint32_t i = 1; i < s->running.n; i++)
        CHECKF(seq_older(s->running.seq[i - 1], s->running.seq[i]),
               "running batch out of order at %u", i);
}

void sched_audit(struct sched *s)
{
    struct err e;
    uint32_t n_queued = 0;
    CHECKF(kv_cache_audit(s->kv, &e) == OK, "%s", e.text);
    tenants_audit(s->tenants);
    for (const struct req *q = s->queue; q; q = q->next) {
        CHECK(q->state == REQ_QUEUED);
        n_queued++;
    }
    CHECKF(n_queued == tenants_n_queued(s->tenants), "queued %u, counted %u", n_queued,
           tenants_n_queued(s->tenants));
    audit_active(s);
}
