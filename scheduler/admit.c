/* The queue: which requests may start now. Thread: engine.
 *
 * scheduler/tenant.h gives the requests in the order in which they are to be served. One starts when its
 * sequences fit into max_running and there is room: for its prompt less what the prefix cache has, for
 * what those that run will likely take soon, and a little more (sched.reserve). What running sequences
 * lack later is made by parking the youngest (memory.c). A request that wants its worst case promised
 * waits until that leaves those that run already what they still need. Nobody is let in while a sequence
 * is parked or stands still for want of a block, or room is tight after that.
 *
 * The first that doesn't fit may be passed by others SCHED_BYPASS_MAX times, then the door closes until
 * it fits: nothing waits for ever, since what runs ends and what can never fit was refused. One whose
 * next block another sequence is computing waits for it, and holds up no other request.
 *
 * A request that didn't fit is looked at again only when something has changed (sched.epoch). */
#include "scheduler/admit.h"

#include "base/check.h"
#include "scheduler/copies.h"
#include "scheduler/disk.h"
#include "scheduler/gauges.h"
#include "scheduler/park.h"
#include "scheduler/queue.h"
#include "scheduler/room.h"
#include "scheduler/running.h"

enum look { LOOK_STARTED, LOOK_FULL, LOOK_SHARES };

void admit_expire(struct sched *s)
{
    struct tenant_item *it;
    while ((it = tenant_expired(s->tenants, s->now_ns)) != NULL) {
        struct req *q = (struct req *)it;
        struct err e;
        bool late = q->r->deadline_ns && q->r->deadline_ns <= s->now_ns;
        err_set(&e, late ? ERR_DEADLINE : ERR_TIMEOUT,
                "waited %llu ms in the queue%s, %u other requests were in it",
                (unsigned long long)((s->now_ns - q->queued_ns) / NS_PER_MS),
                late ? " until its deadline" : "", tenants_n_queued(s->tenants) - 1);
        req_end(s, q, &e);
    }
}

/* Without output: has its prompt rows to be computed at all? */
static bool computes(const struct sched *s, const struct request *r)
{
    return r->prompt_logprobs || (r->fill && s->memory.prefix);
}

static void start(struct sched *s, struct req *q)
{
    struct seq *first = &q->seq[0];
    tenant_start(s->tenants, &q->item, s->now_ns);
    queue_unlink(s, q);
    req_set_state(q, REQ_RUNNING);
    q->ticket = s->n_tickets++;
    q->n_cached = first->n_high = first->n_kv;
    q->admitted_ns = s->now_ns;
    stopwatch_turn(&q->watch, first->kv.n_loading ? TIMING_swap : TIMING_wait, s->now_ns);
    tenant_charge(s->tenants, q->r->tenant, 0, q->n_cached, 0);
    gauges_admitted(s, q);
    s->running.n_held += q->r->n_choices;
    q->next = s->running.reqs;
    if (s->running.reqs)
        s->running.reqs->prev = q;
    s->running.reqs = q;
    if (q->r->max_tokens == 0 && (first->n_tok == 0 || !computes(s, q->r))) {
        for (uint32_t i = 0; i < q->r->n_choices; i++)
            running_finish(s, &q->seq[i], FINISH_LENGTH, -1, -1);
        return;
    }
    first->state = SEQ_LIVE;
    staged_grant(s, first);
    if (first->n_tok == 0)
        req_fork(q, s->kv);
    else if (s->memory.prefix && !q->r->prompt_logprobs)
        kv_pending_add(s->kv, &first->kv, q->r->prompt, q->r->n_prompt);
    if (first->n_tok == 0 && q->reserves)
        room_split_claim(s, q);
    if (!q->r->fill)
        disk_save(s, q, first->kv.n_hit);
    if (disk_fetches(s, q))
        return;
    for (uint32_t i = 0; i < q->r->n_choices; i++) {
        if (q->seq[i].state == SEQ_LIVE)
            running_insert(s, &q->seq[i]);
    }
}

/* Takes what the prefix cache has of the prompt. At least one row is left to compute, and a prompt whose
 * rows are all to be reported has to compute them all. */
static void adopt(struct sched *s, struct req *q)
{
    struct seq *first = &q->seq[0];
    if (s->memory.prefix && !q->r->prompt_logprobs && first->n_tok > 1)
        first->n_kv = kv_seq_adopt(s->kv, &first->kv, q->r->prompt, first->n_tok - 1);
}

/* Frames that the request will likely take soon, all choices. */
static struct kv_need own_need(const struct sched *s, const struct req *q)
{
    const struct seq *first = &q->seq[0];
    uint32_t n_rows = s->limits.reserve == SCHED_RESERVE_QUANTILE ? SCHED_HORIZON : 1;
    struct kv_need need = room_growth(s, first, room_positions(s, first, n_rows));
    for (uint32_t g = 0; g < s->layout.n_groups && q->r->n_choices > 1; g++)
        need.n[g] += (q->r->n_choices - 1) * (1 + n_rows / s->layout.n_slots);
    return need;
}

/* Room for the request, those that run being cared for. */
static bool has_room(struct sched *s, const struct req *q)
{
    struct kv_need need = room_add(kv_seq_absent(s->kv, &q->seq[0].kv), own_need(s, q));
    if (!s->running.reqs)
        return true; /* it fits alone, by room_worst */
    return room_covers(s, &need, &s->horizon);
}

static bool claim(struct sched *s, struct req *q)
{
    struct kv_need worst;
    struct err e;
    struct seq *first = &q->seq[0];
    if (!q->reserves)
        return true;
    CHECKF(room_worst(s, q->r->n_prompt, q->r->max_tokens, q->r->n_choices, true, &worst, &e), "%s",
           e.text);
    struct kv_need rest = worst;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint32_t held = first->kv.t[g].n - first->kv.t[g].first;
        rest.n[g] -= rest.n[g] < held ? rest.n[g] : held;
    }
    if (!room_may_promise(s, q, &worst, &rest) || !kv_seq_claim(s->kv, &first->kv, &rest))
        return false;
    q->promised = room_promised(s, q->r, &worst);
    return true;
}

static enum look look(struct sched *s, struct req *q)
{
    struct seq *first;
    if (q->r->n_choices > s->limits.max_running - s->running.n_held)
        return LOOK_FULL;
    q->look_epoch = s->epoch;
    if (!q->seq)
        req_prepare(q, s->kv, s->tok, req_root(s->kv, &s->memory.domain, q->r));
    first = &q->seq[0];
    q->shares = s->memory.prefix && !q->r->prompt_logprobs && first->n_tok > 1 &&
                kv_pending(s->kv, q->root, q->r->prompt, first->n_tok - 1);
    if (q->shares)
        return LOOK_SHARES;
    adopt(s, q);
    if (has_room(s, q) && kv_seq_unpark_paged(s->kv, &first->kv, park_paged(s, first)) &&
        claim(s, q)) {
        start(s, q);
        return LOOK_STARTED;
    }
    kv_seq_drop(s->kv, &first->kv);
    first->n_kv = 0;
    return LOOK_FULL;
}

static bool seen_full(const struct sched *s, const struct req *q)
{
    return q->look_epoch == s->epoch && !q->shares;
}

/* A pass over the queue in order of service. */
static void admit_pass(struct sched *s)
{
    uint32_t n_started = 0, n_looks = 0, n_scanned = 0;
    struct req *head = NULL;
    s->horizon = room_add(room_horizon(s), room_watermark(s, false));
    for (struct tenant_item *it = tenant_first(s->tenants, s->now_ns); it;
         it = tenant_next(s->tenants)) {
        struct req *q = (struct req *)it;
        enum look found = LOOK_FULL;
        if (q->shares && (q->look_epoch == s->epoch || ++n_looks > SCHED_SHARE_LOOKS))
            continue;
        if (!seen_full(s, q))
            found = look(s, q);
        if (found == LOOK_STARTED) {
            if (head)
                head->n_bypassed++;
            n_started++;
            s->horizon = room_add(s->horizon, own_need(s, q));
        } else if (found == LOOK_FULL && !head) {
            head = q;
        }
        if (n_started == SCHED_ADMIT_MAX ||
            (head && (head->n_bypassed >= SCHED_BYPASS_MAX || ++n_scanned > SCHED_BYPASS_SCAN)))
            break;
    }
}

/* Nothing runs and no copy is out, so that the first must have fitted: it was checked at the door. */
static void refuse_stuck(struct sched *s)
{
    struct tenant_item *it = tenant_first(s->tenants, s->now_ns);
    struct err e;
    if (!it)
        return;
    err_set(&e, ERR_INTERNAL, "the request does not fit into an empty pool");
    req_end(s, (struct req *)it, &e);
}

static void tell_place(struct tenant_item *it, uint32_t place)
{
    struct req *q = (struct req *)it;
    atomic_store_explicit(&q->r->queue_position, place, memory_order_relaxed);
}

void admit_all(struct sched *s)
{
    uint32_t n_queued = tenants_n_queued(s->tenants);
    bool changed = s->seen.epoch != s->epoch || s->seen.arrivals != s->n_arrivals;
    bool all_move = s->parked.n == 0 && s->running.n_stalled == 0 && !s->tight && !s->preempts;
    if (n_queued > 0 && changed && (all_move || PLANTED(s, SCHED_FAULT_PASSED))) {
        uint64_t n_before = s->n_tickets;
        s->seen.epoch = s->epoch;
        s->seen.arrivals = s->n_arrivals;
        admit_pass(s);
        n_queued = tenants_n_queued(s->tenants);
        if (s->n_tickets > n_before)
            s->seen.epoch = 0; /* there may be more */
        if (n_queued > 0 && !s->running.reqs && s->n_tickets == n_before &&
            kv_jobs_open(s->kv) == 0)
            refuse_stuck(s);
    }
    tenants_tell_places(s->tenants, s->now_ns, SCHED_BYPASS_SCAN, tell_place);
    atomic_store(&s->door.n_open, n_queued ? 0 : s->limits.max_running - s->running.n_held);
}
