/* Threads, mutexes, and what the machine grants the process: affinity and the cgroup's CPU quota.
 * The only user of pthread.h outside base/ring.c and engine/cpu/pool.c. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct thread {
    pthread_t id;
    bool running;
};

struct mutex {
    pthread_mutex_t m;
};

struct cond {
    pthread_cond_t c;
};

/* name: at most 15 bytes. Signals are blocked in the new thread. */
enum status thread_start(struct thread *t, const char *name, void (*fn)(void *), void *arg,
                         struct err *e);
void thread_join(struct thread *t);

void mutex_init(struct mutex *m);
void mutex_release(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);
void cond_init(struct cond *c);
void cond_release(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m); /* may wake spuriously */
void cond_broadcast(struct cond *c);

/* Logical CPUs that this process may use: min(affinity mask, cgroup v1/v2 quota rounded up), >= 1. */
int thread_cpu_count(void);
/* In bytes: the cgroup's memory limit (v1 or v2, the innermost that is set) or total RAM, whichever is less. */
uint64_t thread_memory_limit(void);

#endif
