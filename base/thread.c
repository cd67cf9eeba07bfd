/* Threads, mutexes, and the CPUs and memory granted to the process; see thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/check.h"
#include "base/mem.h"

struct start {
    void (*fn)(void *arg);
    void *arg;
};

static void *run(void *arg)
{
    struct start s = *(struct start *)arg;
    mem_free(arg);
    s.fn(s.arg);
    return NULL;
}

/* The default, set by the main thread's stack limit (ulimit -s) or by another libc, may be far smaller.
 * Only pages that are touched use memory. */
enum { STACK_BYTES = 8 << 20 };

/* Signals go to the thread that expects them, except those raised by a thread's own instruction: if these were
 * blocked, their handlers could not run. */
static void block_signals(sigset_t *old)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        sigdelset(&set, own[i]);
    pthread_sigmask(SIG_SETMASK, &set, old);
}

static int start(pthread_t *id, struct start *s)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return rc;
    rc = pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (!rc)
        rc = pthread_create(id, &attr, run, s);
    pthread_attr_destroy(&attr);
    return rc;
}

enum status thread_start(struct thread *t, const char *name, void (*fn)(void *), void *arg,
                         struct err *e)
{
    sigset_t old;
    struct start *s = mem_alloc(sizeof(*s));
    *s = (struct start){fn, arg};
    block_signals(&old); /* the new thread inherits the mask */
    int rc = start(&t->id, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        mem_free(s);
        t->running = false;
        return err_set(e, ERR_IO, "cannot start thread '%s': %s", name, strerror(rc));
    }
    t->running = true;
    pthread_setname_np(t->id, name);
    return OK;
}

void thread_join(struct thread *t)
{
    if (!t->running)
        return;
    CHECK(pthread_join(t->id, NULL) == 0);
    t->running = false;
}

void mutex_init(struct mutex *m)
{
    CHECK(pthread_mutex_init(&m->m, NULL) == 0);
}

void mutex_release(struct mutex *m)
{
    CHECK(pthread_mutex_destroy(&m->m) == 0);
}

void mutex_lock(struct mutex *m)
{
    CHECK(pthread_mutex_lock(&m->m) == 0);
}

void mutex_unlock(struct mutex *m)
{
    CHECK(pthread_mutex_unlock(&m->m) == 0);
}

void cond_init(struct cond *c)
{
    CHECK(pthread_cond_init(&c->c, NULL) == 0);
}

void cond_release(struct cond *c)
{
    CHECK(pthread_cond_destroy(&c->c) == 0);
}

void cond_wait(struct cond *c, struct mutex *m)
{
    CHECK(pthread_cond_wait(&c->c, &m->m) == 0);
}

void cond_broadcast(struct cond *c)
{
    CHECK(pthread_cond_broadcast(&c->c) == 0);
}

/* 1 when the kernel has more CPUs than the largest mask tried here. */
static int affinity_count(void)
{
    for (int n = 1024; n <= 1 << 20; n *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        if (!set)
            return 1;
        size_t size = CPU_ALLOC_SIZE((size_t)n);
        CPU_ZERO_S(size, set);
        int rc = sched_getaffinity(0, size, set);
        int error = errno;
        int count = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (rc == 0)
            return count > 0 ? count : 1;
        if (error != EINVAL)
            return 1;
    }
    return 1;
}

int thread_cpu_count(void)
{
    int n = affinity_count();
    int quota = cgroup_cpu_quota("");
    return quota && quota < n ? quota : n;
}

uint64_t thread_memory_limit(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t total = (uint64_t)(pages > 0 ? pages : 0) * (uint64_t)page_bytes;
    uint64_t limit = cgroup_memory_limit("");
    return limit < total ? limit : total;
}
