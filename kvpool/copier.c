/* The queue of copies and its thread; see copier.h.
 *
 * Places are used round robin, so cursors hold the whole state:
 *   n_answered <= n_pushed   the owner's
 *   n_done <= n_pushed       the thread's: jobs whose run has returned
 * A place is free again once its job was answered and run has returned: min(n_answered, n_done) of them.
 * */
#include "kvpool/copier.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/ring.h"
#include "base/thread.h"

enum ticket_state { TICKET_WAITING, TICKET_HELD, TICKET_DONE, TICKET_FAILED, TICKET_GIVEN_UP };

struct kv_ticket {
    atomic_int state; /* enum ticket_state */
    atomic_int note;
    uint64_t deadline_ns;
};

struct kv_copier {
    struct kv_copier_options o;
    struct kv_ticket *ticket; /* owns [max_jobs] */
    uint8_t *job; /* owns [max_jobs][job_bytes] */
    uint64_t n_answered; /* owner only */
    int note; /* owner only: number left by the job answered last */
    atomic_uint_fast64_t n_pushed; /* written by the owner */
    atomic_uint_fast64_t n_done; /* written by the thread */
    atomic_bool asleep; /* the thread waits or is about to wait */
    atomic_bool woken; /* wake was called, and the owner has not checked since */
    atomic_bool stopping;
    struct mpsc *event; /* owns; never holds an item: the thread sleeps on it */
    struct thread thread;
};

static struct kv_ticket *ticket_at(const struct kv_copier *c, uint64_t i)
{
    return &c->ticket[i % c->o.max_jobs];
}

static uint8_t *job_at(const struct kv_copier *c, uint64_t i)
{
    return c->job + (size_t)(i % c->o.max_jobs) * c->o.job_bytes;
}

static bool ticket_move(struct kv_ticket *t, int from, int to)
{
    return atomic_compare_exchange_strong(&t->state, &from, to);
}

bool kv_ticket_hold(struct kv_ticket *ticket)
{
    return ticket_move(ticket, TICKET_WAITING, TICKET_HELD);
}

void kv_ticket_let_go(struct kv_ticket *ticket)
{
    CHECK(ticket_move(ticket, TICKET_HELD, TICKET_WAITING));
}

void kv_ticket_note(struct kv_ticket *ticket, int note)
{
    atomic_store(&ticket->note, note);
}

int kv_copier_note(const struct kv_copier *c)
{
    return c->note;
}

static void ticket_end(struct kv_ticket *t, bool ok)
{
    int end = ok ? TICKET_DONE : TICKET_FAILED;
    if (!ticket_move(t, TICKET_HELD, end))
        ticket_move(t, TICKET_WAITING,
                    end); /* fails when the job was given up: it has been answered */
}

static bool step(struct kv_copier *c)
{
    uint64_t i = atomic_load(&c->n_done);
    if (i == atomic_load(&c->n_pushed))
        return false;
    struct kv_ticket *t = ticket_at(c, i);
    ticket_end(t, c->o.run(c->o.arg, job_at(c, i), t));
    atomic_store(&c->n_done, i + 1);
    if (c->o.wake && !atomic_exchange(&c->woken, true))
        c->o.wake(c->o.wake_arg);
    return true;
}

static void work(void *arg)
{
    struct kv_copier *c = arg;
    for (;;) {
        bool stopping = atomic_load(&c->stopping);
        if ((!stopping || c->o.drain) && step(c))
            continue;
        if (stopping)
            return;
        /* Sets the flag first and checks again: either the push sees the flag, or this check sees the push. */
        atomic_store(&c->asleep, true);
        if (atomic_load(&c->n_pushed) == atomic_load(&c->n_done) && !atomic_load(&c->stopping))
            mpsc_wait(c->event, -1);
        atomic_store(&c->asleep, false);
    }
}

enum status kv_copier_new(const struct kv_copier_options *o, struct kv_copier **out, struct err *e)
{
    CHECK(o->max_jobs >= 1 && o->job_bytes >= 1);
    struct kv_copier *c = mem_zalloc(sizeof(*c));
    c->o = *o;
    c->ticket = mem_zalloc(mem_mul(o->max_jobs, sizeof(*c->ticket)));
    c->job = mem_zalloc(mem_mul(o->max_jobs, o->job_bytes));
    enum status status = OK;
    if (o->threaded) {
        c->event = mpsc_new(1, e);
        status = c->event ? thread_start(&c->thread, o->name, work, c, e) : ERR_IO;
    }
    if (status != OK) {
        kv_copier_free(c);
        return status;
    }
    *out = c;
    return OK;
}

void kv_copier_stop(struct kv_copier *c)
{
    atomic_store(&c->stopping, true);
    if (c->event)
        mpsc_wake(c->event);
    thread_join(&c->thread);
    while (c->o.drain && step(c))
        continue;
    uint64_t n = atomic_load(&c->n_pushed);
    for (uint64_t i = atomic_load(&c->n_done); i < n; i++)
        ticket_end(ticket_at(c, i), false);
    atomic_store(&c->n_done, n);
}

void kv_copier_free(struct kv_copier *c)
{
    if (!c)
        return;
    kv_copier_stop(c);
    mpsc_free(c->event);
    mem_free(c->ticket);
    mem_free(c->job);
    mem_free(c);
}

/* Places that the thread has returned and the owner has answered. */
static uint64_t n_free_again(const struct kv_copier *c)
{
    uint64_t n_done = atomic_load(&c->n_done);
    return n_done < c->n_answered ? n_done : c->n_answered;
}

uint32_t kv_copier_room(const struct kv_copier *c)
{
    return c->o.max_jobs - (uint32_t)(atomic_load(&c->n_pushed) - n_free_again(c));
}

bool kv_copier_push(struct kv_copier *c, const void *job)
{
    uint64_t i = atomic_load(&c->n_pushed);
    CHECK(!atomic_load(&c->stopping));

    if (i - n_free_again(c) >= c->o.max_jobs)
        return false;
    struct kv_ticket *t = ticket_at(c, i);
    memcpy(job_at(c, i), job, c->o.job_bytes);
    t->deadline_ns = c->o.deadline_ns ? clock_ns() + c->o.deadline_ns : 0;
    atomic_store(&t->note, 0);
    atomic_store(&t->state, TICKET_WAITING);
    atomic_store(&c->n_pushed, i + 1);
    if (c->event && atomic_exchange(&c->asleep, false))
        mpsc_wake(c->event);
    return true;
}

uint64_t kv_copier_deadline_ns(const struct kv_copier *c)
{
    if (c->n_answered == atomic_load(&c->n_pushed))
        return 0;
    return ticket_at(c, c->n_answered)->deadline_ns;
}

bool kv_copier_pop(struct kv_copier *c, void *job, enum kv_copy_end *end)
{
    /* Cleared before n_done is read, so that a job done after that read wakes the owner again. */
    atomic_store(&c->woken, false);
    uint64_t i = c->n_answered;
    if (i == atomic_load(&c->n_pushed))
        return false;
    struct kv_ticket *t = ticket_at(c, i);
    if (i < atomic_load(&c->n_done)) {
        *end = atomic_load(&t->state) == TICKET_DONE ? KV_COPY_DONE : KV_COPY_FAILED;
    } else {
        if (!t->deadline_ns || clock_ns() < t->deadline_ns ||
            !ticket_move(t, TICKET_WAITING, TICKET_GIVEN_UP))
            return false;
        *end = KV_COPY_LATE;
    }
    memcpy(job, job_at(c, i), c->o.job_bytes);
    c->note = *end == KV_COPY_LATE ? 0 : atomic_load(&t->note);
    c->n_answered = i + 1;
    return true;
}

bool kv_copier_step(struct kv_copier *c)
{
    CHECK(!c->o.threaded);
    return step(c);
}
