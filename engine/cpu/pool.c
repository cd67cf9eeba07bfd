/* Workers; see pool.h.
 *
 * Invariants: (1) fn and ctx change only while no item is open, so a thread that has claimed an item may read
 * them; (2) `ticket` packs the item count and the next item, so one compare-and-swap both checks and
 * claims; (3) a run has ended when `done` equals its item count, and every claimed item adds exactly one
 * to it; (4) a sleeper announces itself before its last check, and a waker checks for sleepers after it has
 * changed the state, both sequentially consistent: no wake is lost. */
#include "engine/cpu/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/thread.h"

enum { SPIN_NS = 40000, ITEM_BITS = 20 };

struct pool {
    _Alignas(64) _Atomic uint64_t ticket; /* generation : item count : next item */
    _Alignas(64) _Atomic uint32_t done;
    _Alignas(64) _Atomic uint32_t epoch; /* counts runs; workers sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t caller_sleeps;
    _Atomic bool stop;
    pool_fn *fn;
    void *ctx;
    uint32_t n_threads;
    uint32_t spins; /* number of pauses that last about SPIN_NS */
    bool pin;
    struct pool_worker {
        struct pool *pool;
        struct thread thread;
        uint32_t index;
    } * worker; /* owns [n_threads]; 0 is the caller and has no thread */
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static uint64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* not clock_ns(): tests may freeze that */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The minimum of a few readings: being descheduled during one must not shorten every spin. */
static uint32_t spins_of(uint64_t span_ns)
{
    enum { PAUSES = 1000, READINGS = 5 };
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < READINGS; r++) {
        uint64_t start = real_ns();
        for (int i = 0; i < PAUSES; i++)
            relax();
        uint64_t took = real_ns() - start;
        if (took < least)
            least = took;
    }
    return (uint32_t)(span_ns * PAUSES / (least + 1)) + 1;
}

static uint32_t ticket_items(uint64_t ticket)
{
    return (uint32_t)(ticket >> ITEM_BITS) & POOL_MAX_ITEMS;
}

static uint32_t ticket_next(uint64_t ticket)
{
    return (uint32_t)ticket & POOL_MAX_ITEMS;
}

static bool open_item(uint64_t ticket)
{
    return ticket_next(ticket) < ticket_items(ticket);
}

/* Claims and runs one item; false when none is open. */
static bool run_one(struct pool *p, uint32_t worker)
{
    uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    do {
        if (!open_item(ticket))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket + 1,
                                                    memory_order_acq_rel, memory_order_acquire));
    p->fn(p->ctx, ticket_next(ticket), worker);
    if (atomic_fetch_add(&p->done, 1) + 1 == ticket_items(ticket) && atomic_load(&p->caller_sleeps))
        futex_wake_all(&p->done);
    return true;
}

static void worker_wait(struct pool *p)
{
    for (uint32_t i = 0; i < p->spins; i++) {
        if (open_item(atomic_load_explicit(&p->ticket, memory_order_relaxed)) ||
            atomic_load_explicit(&p->stop, memory_order_relaxed))
            return;
        relax();
    }
    uint32_t epoch = atomic_load(&p->epoch);
    atomic_fetch_add(&p->sleepers, 1);
    if (!open_item(atomic_load(&p->ticket)) && !atomic_load(&p->stop))
        futex_wait(&p->epoch, epoch);
    atomic_fetch_sub(&p->sleepers, 1);
}

static void pin_to(uint32_t index)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0)
        return;
    uint32_t want = index % (uint32_t)CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || want-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

static void worker_main(void *arg)
{
    struct pool_worker *w = arg;
    struct pool *p = w->pool;
    if (p->pin)
        pin_to(w->index);
    while (!atomic_load_explicit(&p->stop, memory_order_acquire))
        if (!run_one(p, w->index))
            worker_wait(p);
}

enum status pool_new(uint32_t n_threads, bool pin, struct pool **out, struct err *e)
{
    CHECKF(n_threads >= 1 && n_threads <= POOL_MAX_THREADS, "%u threads", n_threads);
    struct pool *p = mem_aligned(64, sizeof *p);
    if (!p)
        return err_set(e, ERR_NO_MEMORY, "no memory for the worker pool");
    *p = (struct pool){.n_threads = n_threads, .spins = spins_of(SPIN_NS), .pin = pin};
    p->worker = mem_zalloc(mem_mul(n_threads, sizeof *p->worker));
    for (uint32_t i = 1; i < n_threads; i++) {
        char name[16];
        snprintf(name, sizeof name, "compute-%u", i);
        p->worker[i].pool = p;
        p->worker[i].index = i;
        enum status s = thread_start(&p->worker[i].thread, name, worker_main, &p->worker[i], e);
        if (s != OK) {
            pool_free(p);
            return s;
        }
    }
    *out = p;
    return OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake_all(&p->epoch);
    for (uint32_t i = 1; i < p->n_threads; i++)
        if (p->worker[i].thread.running)
            thread_join(&p->worker[i].thread);
    mem_free(p->worker);
    mem_free(p);
}

uint32_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

static void caller_wait(struct pool *p, uint32_t n_items)
{
    for (uint32_t i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) == n_items)
            return;
        relax();
    }
    atomic_store(&p->caller_sleeps, 1);
    uint32_t done;
    while ((done = atomic_load(&p->done)) != n_items)
        futex_wait(&p->done, done);
    atomic_store(&p->caller_sleeps, 0);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx, uint32_t n_items)
{
    CHECKF(n_items <= POOL_MAX_ITEMS, "%u items", n_items);
    if (p->n_threads == 1 || n_items <= 1) {
        for (uint32_t i = 0; i < n_items; i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    uint64_t generation =
        (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 2 * ITEM_BITS) + 1;
    atomic_store(&p->ticket, generation << 2 * ITEM_BITS | (uint64_t)n_items << ITEM_BITS);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers) > 0)
        futex_wake_all(&p->epoch);
    while (run_one(p, 0))
        ;
    caller_wait(p, n_items);
}
