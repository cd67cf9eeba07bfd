/* Requests that wait: the list of them all beside the tenants' queues. Thread: engine. */
#include "scheduler/queue.h"

#include "scheduler/notes.h"

void queue_push(struct sched *s, struct req *q)
{
    req_set_state(q, REQ_QUEUED);
    q->queued_ns = s->now_ns;
    stopwatch_start(&q->watch, q->r->arrive_ns ? q->r->arrive_ns : s->now_ns);
    q->item.ticket = s->n_arrivals++;
    q->item.queued_ns = s->now_ns;
    q->item.deadline_ns = q->r->deadline_ns;
    q->item.expire_ns = ns_earlier(q->r->queue_deadline_ns, q->r->deadline_ns);
    q->item.priority = q->r->priority;
    q->item.n_tokens = q->r->n_prompt;
    q->item.n_seqs = q->r->n_choices;
    q->item.tenant = q->r->tenant;
    tenant_put(s->tenants, &q->item);
    q->prev = NULL;
    q->next = s->queue;
    if (s->queue)
        s->queue->prev = q;
    s->queue = q;
    note_submit(s, q);
}

void queue_unlink(struct sched *s, struct req *q)
{
    if (q->prev)
        q->prev->next = q->next;
    else
        s->queue = q->next;
    if (q->next)
        q->next->prev = q->prev;
    q->prev = q->next = NULL;
    atomic_store_explicit(&q->r->queue_position, 0, memory_order_relaxed);
    atomic_fetch_sub(&s->door.n_waiting, 1);
}

void queue_remove(struct sched *s, struct req *q)
{
    tenant_take(s->tenants, &q->item, s->now_ns);
    queue_unlink(s, q);
    if (q->seq)
        req_unprepare(q, s->kv);
}
