/* Fork-join workers for the slices of one operation.
 *
 * The caller publishes items 0..n-1; the caller and the workers claim them one by one from an atomic counter.
 * The call returns when all items are done, without waiting for every worker to take part: a worker that is not
 * scheduled delays only the item it holds. A waiting thread spins for a bounded time, then sleeps on a futex, so
 * an idle pool uses no processor time, and other processes get the core of a waiting thread.
 * Thread: pool_run by one thread at a time (the engine thread; the loader before it). */
#ifndef ENGINE_CPU_POOL_H
#define ENGINE_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { POOL_MAX_THREADS = 1024, POOL_MAX_ITEMS = (1 << 20) - 1 };

struct pool;

/* worker: 0 for the caller of pool_run, otherwise 1..n_threads-1. */
typedef void pool_fn(void *ctx, uint32_t item, uint32_t worker);

/* n_threads counts the caller too, 1..POOL_MAX_THREADS. pin: worker i stays on the i-th processor of
 * the affinity mask. */
enum status pool_new(uint32_t n_threads, bool pin, struct pool **out, struct err *e);
void pool_free(struct pool *p);
uint32_t pool_threads(const struct pool *p);
/* n_items is at most POOL_MAX_ITEMS. Writes by the items are visible after the return. */
void pool_run(struct pool *p, pool_fn *fn, void *ctx, uint32_t n_items);

#endif
