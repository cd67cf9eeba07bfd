/* The engine thread. One turn: drain the inbox -> take finished copies -> end what was cancelled or waited
 * too long -> make room -> admit -> plan -> run -> retire -> wake the consumers. It sleeps on the inbox's eventfd when no sequence
 * can move, at most SCHED_IDLE_MS, so that the heartbeat goes on. */
#include "scheduler/step.h"

#include <sched.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/admit.h"
#include "scheduler/copies.h"
#include "scheduler/disk.h"
#include "scheduler/emit.h"
#include "scheduler/gauges.h"
#include "scheduler/memory.h"
#include "scheduler/notes.h"
#include "scheduler/plan.h"
#include "scheduler/queue.h"
#include "scheduler/retire.h"
#include "scheduler/running.h"
#include "scheduler/snapshot.h"

static bool end_if_cancelled(struct sched *s, struct req *q)
{
    return atomic_load(&q->r->cancelled) && !disk_delays_end(q) && running_end_cancelled(s, q);
}

static bool drain_inbox(struct sched *s)
{
    bool any = false;
    for (struct req *q; (q = mpsc_pop(s->door.inbox)); any = true) {
        queue_push(s, q);
        end_if_cancelled(s, q); /* the flag may be older than the submit */
    }
    return any;
}

/* The counter is bumped after the flag is set: a flag that isn't seen now comes with a new count. */
static bool end_cancelled(struct sched *s, uint32_t n_cancels)
{
    if (n_cancels == s->seen.cancels)
        return false;
    s->seen.cancels = n_cancels;
    bool any = false;
    struct req *next;
    for (struct req *q = s->queue; q; q = next) {
        next = q->next;
        any |= end_if_cancelled(s, q);
    }
    for (struct req *q = s->running.reqs; q; q = next) {
        next = q->next;
        any |= end_if_cancelled(s, q);
    }
    return any;
}

static enum status run_step(struct sched *s, struct step *t, struct err *e)
{
    const struct backend_ops *ops = s->be->ops;
    enum status st = OK;
    uint64_t ticket = 0;
    for (uint32_t i = 0; i < t->n_copies && st == OK; i++)
        st = ops->copy_block(s->be, t->copy[i].group, t->copy[i].src, t->copy[i].dst, e);
    if (st == OK)
        st = ops->submit(s->be, &t->batch, &ticket, e);
    struct batch *done = NULL;
    if (st == OK)
        st = ops->collect(s->be, ticket, &done, e);
    CHECK(st != OK || done == &t->batch);
    return st;
}

static void note_failure(struct sched *s, const struct step *t, const struct err *e)
{
    log_error("step %llu failed: %s", (unsigned long long)t->batch.step, e->text);
    if (++s->n_failed_steps < SCHED_BROKEN_AFTER)
        return;
    log_error("%u steps in a row failed: no more requests are accepted", s->n_failed_steps);
    atomic_store(&s->door.broken, true);
    disk_stop(s);
    req_end_all(s, e);
}

/* Time of a step for each of its prompt rows, as it comes out with all that runs beside: what early
 * rejection reckons with. Decays by an eighth a step with prompts. */
static void note_prefill(struct sched *s, const struct step *t)
{
    if (t->n_prompt_rows == 0)
        return;
    s->prefill_ns += (double)(s->now_ns - t->begin_ns) - s->prefill_ns / 8;
    s->prefill_rows += (double)t->n_prompt_rows - s->prefill_rows / 8;
    atomic_store_explicit(&s->door.prefill_ns, (uint64_t)(s->prefill_ns / s->prefill_rows * 1e3),
                          memory_order_relaxed);
}

static void run(struct sched *s, struct step *t)
{
    struct err e;
    t->begin_ns = s->now_ns = clock_ns();
    t->n_tokens = 0;
    enum status st = run_step(s, t, &e);
    s->now_ns = clock_ns();
    note_step(s, t);
    if (st == OK) {
        s->n_failed_steps = 0;
        cost_observe(&s->cost, t->batch.n_rows, t->kv_read, s->now_ns - t->begin_ns);
        note_prefill(s, t);
        retire_step(s, t);
    } else {
        t->n_prompt_rows = t->n_prompt_new = t->n_again = 0;
        retire_failed(s, t, &e);
        note_failure(s, t, &e);
    }
    atomic_fetch_add_explicit(&s->door.n_steps, 1, memory_order_relaxed);
    gauges_step(s, t);
}

bool sched_turn(struct sched *s)
{
    s->now_ns = clock_ns();
    atomic_store_explicit(&s->door.heartbeat_ns, s->now_ns, memory_order_relaxed);
    uint32_t n_cancels = atomic_load(&s->door.n_cancels);
    s->moved = false;
    if (tenants_poll(s->tenants))
        s->epoch++;
    bool any = drain_inbox(s);
    copies_done(s);
    disk_turn(s);
    any |= end_cancelled(s, n_cancels);
    admit_expire(s);
    running_compact(s);
    memory_turn(s);
    admit_all(s);
    running_compact(s);
    copies_start(s);
    plan_step(s, &s->step);
    if (s->step.batch.n_rows > 0) {
        run(s, &s->step);
        running_compact(s);
        any = true;
    } else {
        note_idle(s);
    }
#ifdef MILLRACE_EXPENSIVE_CHECKS
    sched_audit(s);
#endif
    gauges_publish(s);
    disk_gauges(s);
    snapshot_answer(s);
    emit_wake(s);
    return any || s->moved;
}

/* Until the next queued deadline, at most SCHED_IDLE_MS. */
static int idle_ms(const struct sched *s)
{
    uint64_t now = clock_ns();
    uint64_t next_ns = tenants_next_expiry(s->tenants);
    if (!next_ns)
        return SCHED_IDLE_MS;
    if (next_ns <= now)
        return 0;
    uint64_t ms = (next_ns - now) / NS_PER_MS + 1;
    return ms < SCHED_IDLE_MS ? (int)ms : SCHED_IDLE_MS;
}

static void engine_thread(void *arg)
{
    struct sched *s = arg;
    while (!atomic_load(&s->door.stopping)) {
        if (sched_turn(s))
            continue;
        atomic_store(&s->door.idle, true);
        mpsc_wait(s->door.inbox, idle_ms(s));
        atomic_store(&s->door.idle, false);
    }
}

static struct sched *dumped; /* whose ledger a failed check prints */

static void dump_ledger(void *arg)
{
    (void)arg;
    struct buf text = {0};
    if (!dumped)
        return;
    buf_printf(&text, "step %llu: %u rows, %u sequences running, %u parked, %u requests queued\n",
               (unsigned long long)dumped->step.batch.step, dumped->step.batch.n_rows,
               dumped->running.n, dumped->parked.n, tenants_n_queued(dumped->tenants));
    kv_cache_dump(dumped->kv, &text);
    if (write(STDERR_FILENO, text.ptr, text.len) < 0)
        return;
    buf_release(&text);
}

void step_forget(const struct sched *s)
{
    if (dumped == s)
        dumped = NULL;
}

enum status sched_start(struct sched *s, struct err *e)
{
    static bool has_hook;
    if (!has_hook)
        check_add_dump(dump_ledger, NULL);
    has_hook = true;
    dumped = s;
    return thread_start(&s->thread, "engine", engine_thread, s, e);
}

void sched_stop(struct sched *s)
{
    struct sched_door *d = &s->door;
    if (atomic_exchange(&d->stopping, true))
        return;
    atomic_store(&d->draining, true);
    mpsc_wake(d->inbox);
    if (s->thread.running)
        thread_join(&s->thread);
    /* Who is inside sched_submit either saw `draining` or has its request in the inbox soon. */
    while (atomic_load(&d->n_submitting) > 0)
        sched_yield();
    struct err e;
    err_set(&e, ERR_DRAINING, "the server is shutting down");
    s->now_ns = clock_ns();
    drain_inbox(s);
    disk_stop(s);
    req_end_all(s, &e);
    running_compact(s);
    gauges_publish(s);
    disk_gauges(s);
    snapshot_answer(s);
    emit_wake(s);
}
