/* The queue: who may start now. Thread: engine.
 *
 * A request starts when its sequences fit into max_running and its worst case of blocks is available,
 * which is then promised to it: a running request never lacks a block. The head of the queue that
 * doesn't fit may be passed by smaller ones SCHED_BYPASS_MAX times, then the door closes until it
 * fits: nothing waits for ever, since what runs ends and what can never fit was refused. */
#include "scheduler/sched.h"

#include "base/check.h"

void queue_push(struct sched *s, struct req *q)
{
    req_set_state(q, REQ_QUEUED);
    q->ticket = s->n_tickets++;
    q->queued_ns = s->now_ns;
    stopwatch_start(&q->watch, q->r->arrive_ns ? q->r->arrive_ns : s->now_ns);
    q->prev = s->queue_tail;
    q->next = NULL;
    if (s->queue_tail)
        s->queue_tail->next = q;
    else
        s->queue_head = q;
    s->queue_tail = q;
    s->n_queued++;
    note_submit(s, q);
    uint64_t deadline = q->r->queue_deadline_ns;
    if (deadline && (!s->next_deadline_ns || deadline < s->next_deadline_ns))
        s->next_deadline_ns = deadline;
}

/* Learns how fast the queue drains: the time between two departures while others wait. */
static void note_departure(struct sched *s)
{
    if (s->was_waiting) {
        uint64_t mean = s->door.drain_ns, took = s->now_ns - s->last_depart_ns;
        s->door.drain_ns = mean ? mean - mean / 8 + took / 8 : took;
    }
    s->last_depart_ns = s->now_ns;
    s->was_waiting = s->n_queued > 0;
}

void queue_remove(struct sched *s, struct req *q)
{
    if (q->prev)
        q->prev->next = q->next;
    else
        s->queue_head = q->next;
    if (q->next)
        q->next->prev = q->prev;
    else
        s->queue_tail = q->prev;
    q->prev = q->next = NULL;
    s->n_queued--;
    atomic_fetch_sub(&s->door.n_waiting, 1);
    note_departure(s);
}

void admit_expire(struct sched *s)
{
    if (!s->next_deadline_ns || s->now_ns < s->next_deadline_ns)
        return;
    s->next_deadline_ns = 0;
    struct req *next;
    for (struct req *q = s->queue_head; q; q = next) {
        next = q->next;
        uint64_t deadline = q->r->queue_deadline_ns;
        if (!deadline)
            continue;
        if (deadline <= s->now_ns) {
            struct err e;
            err_set(&e, ERR_TIMEOUT, "waited %llu ms in the queue, %u requests were before it",
                    (unsigned long long)((s->now_ns - q->queued_ns) / NS_PER_MS), s->n_queued - 1);
            req_end(s, q, &e);
        } else if (!s->next_deadline_ns || deadline < s->next_deadline_ns) {
            s->next_deadline_ns = deadline;
        }
    }
}

static void start(struct sched *s, struct req *q)
{
    queue_remove(s, q);
    req_set_state(q, REQ_RUNNING);
    req_admit(q, &s->pool, s->tok);
    q->admitted_ns = s->now_ns;
    stopwatch_turn(&q->watch, TIMING_wait, s->now_ns);
    s->n_slots_held += q->r->n_choices;
    q->next = s->active;
    if (s->active)
        s->active->prev = q;
    s->active = q;
    if (q->seq[0].n_kv == q->seq[0].n_tok || (q->r->max_tokens == 0 && !q->r->prompt_logprobs)) {
        for (uint32_t i = 0; i < q->r->n_choices; i++)
            running_finish(s, &q->seq[i], FINISH_LENGTH, -1, -1);
        return;
    }
    for (uint32_t i = 0; i < q->r->n_choices; i++) {
        if (q->seq[i].state == SEQ_LIVE)
            running_insert(s, &q->seq[i]);
    }
}

static bool try_start(struct sched *s, struct req *q)
{
    if (q->r->n_choices > s->limits.max_running - s->n_slots_held ||
        !kv_claim_try(&s->pool, &q->claim, q->blocks_worst))
        return false;
    start(s, q);
    return true;
}

/* Starts smaller requests behind a head that doesn't fit. */
static void bypass(struct sched *s, struct req *head, uint32_t n_most)
{
    struct req *next, *q = head->next;
    for (uint32_t i = 0; q && i < SCHED_BYPASS_SCAN && n_most > 0; i++, q = next) {
        next = q->next;
        if (head->n_bypassed >= SCHED_BYPASS_MAX)
            return;
        if (try_start(s, q)) {
            head->n_bypassed++;
            n_most--;
        }
    }
}

void admit_all(struct sched *s)
{
    uint32_t n_left = SCHED_ADMIT_MAX;
    while (s->queue_head && n_left > 0 && try_start(s, s->queue_head))
        n_left--;
    if (s->queue_head && n_left > 0)
        bypass(s, s->queue_head, n_left);
    CHECKF(!s->queue_head || s->active || n_left == 0, "request %s fits no empty pool",
           s->queue_head->r->name);
    atomic_store(&s->door.n_open, s->queue_head ? 0 : s->limits.max_running - s->n_slots_held);
}
