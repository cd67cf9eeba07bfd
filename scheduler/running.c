/* The running batch: who is in it, how one leaves it; see sched.h. Thread: engine. */
#include "scheduler/sched.h"

#include <string.h>

#include "base/check.h"

static bool older(const struct seq *a, const struct seq *b)
{
    if (a->req->ticket != b->req->ticket)
        return a->req->ticket < b->req->ticket;
    return a->choice < b->choice;
}

void running_insert(struct sched *s, struct seq *q)
{
    CHECK(q->state == SEQ_LIVE && s->n_running < 2 * s->limits.max_running);
    uint32_t i = s->n_running++;
    for (; i > 0 && older(q, s->running[i - 1]); i--)
        s->running[i] = s->running[i - 1];
    s->running[i] = q;
}

void running_compact(struct sched *s)
{
    if (!s->has_ended)
        return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        if (s->running[i]->state == SEQ_LIVE)
            s->running[n++] = s->running[i];
    }
    s->n_running = n;
    s->has_ended = false;
}

static void release_seq(struct sched *s, struct seq *q)
{
    seq_finish(q, &s->pool);
    s->n_slots_held--;
    s->has_ended = true;
}

static void leave_active(struct sched *s, struct req *q)
{
    if (q->prev)
        q->prev->next = q->next;
    else
        s->active = q->next;
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
    req_set_state(q, REQ_DONE);
    gauges_end(s, q, e);
    note_end(s, q, e);
    emit_end(s, q, e);
}

void req_end_all(struct sched *s, const struct err *e)
{
    while (s->active)
        req_end(s, s->active, e);
    while (s->queue_head)
        req_end(s, s->queue_head, e);
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
    CHECKF(q->n_kv + q->n_fly <= q->n_tok && q->n_kv == q->table.n_retired &&
               q->n_kv + q->n_fly == q->table.n_tokens,
           "choice %u: n_kv %u, n_fly %u, n_tok %u, table %u", q->choice, q->n_kv, q->n_fly,
           q->n_tok, q->table.n_tokens);
    if (q->state == SEQ_LIVE && q->n_fly == 0)
        CHECKF(q->n_kv < q->n_tok, "choice %u runs with nothing to do", q->choice);
    CHECK(q->n_tok <= q->req->r->n_prompt + q->req->r->max_tokens && s->n_running > 0);
}

void sched_audit(struct sched *s)
{
    struct err e;
    CHECKF(kv_audit(&s->pool, &e) == OK, "%s", e.text);
    uint32_t n_queued = 0, n_held = 0, n_live = 0;
    for (const struct req *q = s->queue_head; q; q = q->next) {
        CHECK(q->state == REQ_QUEUED && !q->seq);
        n_queued++;
    }
    for (const struct req *q = s->active; q; q = q->next) {
        CHECK(q->state == REQ_RUNNING && q->n_live > 0);
        for (uint32_t i = 0; i < q->r->n_choices; i++) {
            const struct seq *seq = &q->seq[i];
            n_held += seq->state != SEQ_DONE;
            n_live += seq->state == SEQ_LIVE;
            if (seq->state == SEQ_LIVE)
                audit_seq(s, seq);
        }
    }
    CHECKF(n_queued == s->n_queued && n_held == s->n_slots_held, "queued %u/%u, held %u/%u",
           n_queued, s->n_queued, n_held, s->n_slots_held);
    CHECK(n_held <= s->limits.max_running);
    if (!s->has_ended) {
        CHECKF(n_live == s->n_running, "%u live sequences, %u in the batch", n_live, s->n_running);
        for (uint32_t i = 1; i < s->n_running; i++)
            CHECKF(older(s->running[i - 1], s->running[i]), "running batch out of order at %u", i);
    }
}
