/* Shared by the tests of random operations: number of operations, seed, trace.
 *
 * A run is a number of worlds of RANDOM_WORLD_OPS operations each, one per process; world i has the seed
 * MILLRACE_RANDOM_SEED + i. Every operation draws from its own (seed, number), so that a failure can be
 * examined by itself:
 *   MILLRACE_RANDOM_SEED=<seed> MILLRACE_RANDOM_OPS=1 MILLRACE_RANDOM_TRACE=<first op to print>
 *   MILLRACE_RANDOM_STOP=<op>   ends the world before that operation
 *   MILLRACE_RANDOM_SKIP=<from>-<to>,...   skips these operations (tests/unit/shrink_random.py
 *                               finds the most that can be skipped while it still fails)
 *   MILLRACE_RANDOM_FAULT=<number>   plants a fault (enum kvc_fault; after its last, enum sched_fault),
 *                               to see how it is detected
 * MILLRACE_RANDOM_OPS sets the number of operations of the run. */
#ifndef TESTS_UNIT_RANDOM_OPS_H
#define TESTS_UNIT_RANDOM_OPS_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "tests/unit/run_suite.h"

enum {
    RANDOM_WORLD_OPS = 5000,
    RANDOM_FULL_WORLDS = 20, /* fewer are a look at single worlds: no planted faults, no counts */
    RANDOM_MAX_COUNTS = 80
};

struct random {
    uint64_t seed, state;
    uint32_t op; /* number of the operation that runs */
    uint32_t n_ops, stop, trace;
    uint8_t skip[RANDOM_WORLD_OPS]; /* operations that are left out */
};

/* Counted over all worlds: what a run has really met. */
struct random_counts {
    const char *name[RANDOM_MAX_COUNTS]; /* of main, before any world */
    uint64_t n[RANDOM_MAX_COUNTS];
    uint64_t n_ops;
};

static struct random *random_now; /* whose seed a failed check prints */
static struct random_counts *random_counts; /* shared by the processes of all worlds */

static inline uint64_t random_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint32_t draw(struct random *r, uint32_t below)
{
    r->state = random_mix(r->state);
    return (uint32_t)((r->state >> 32) * below >> 32);
}

static inline bool one_in(struct random *r, uint32_t n)
{
    return draw(r, n) == 0;
}

static inline void random_dump(void *arg)
{
    (void)arg;
    if (random_now)
        fprintf(stderr, "world of seed %llu, operation %u\n", (unsigned long long)random_now->seed,
                random_now->op);
}

static inline void random_init(struct random *r, uint64_t seed)
{
    *r = (struct random){.seed = seed, .state = random_mix(seed)};
    r->n_ops = RANDOM_WORLD_OPS;
    r->stop = (uint32_t)random_env("MILLRACE_RANDOM_STOP", UINT32_MAX);
    r->trace = (uint32_t)random_env("MILLRACE_RANDOM_TRACE", UINT32_MAX);
    const char *skip = getenv("MILLRACE_RANDOM_SKIP");
    uint32_t from, to;
    for (int n; skip && sscanf(skip, "%u-%u%n", &from, &to, &n) == 2; skip += n + (skip[n] == ','))
        for (uint32_t i = from; i <= to && i < RANDOM_WORLD_OPS; i++)
            r->skip[i] = 1;
    if (!random_now)
        check_add_dump(random_dump, NULL);
    random_now = r;
}

/* The next operation's number and randomness; false at the end. */
static inline bool random_next(struct random *r, uint32_t op)
{
    r->op = op;
    r->state = random_mix(r->seed * 0x100000001b3ull + op + 1);
    return op < r->n_ops && op < r->stop;
}

static inline bool random_skips(const struct random *r)
{
    return r->op < RANDOM_WORLD_OPS && r->skip[r->op];
}

#define TRACE(r, ...)                                                                              \
    do {                                                                                           \
        if ((r)->op >= (r)->trace) {                                                               \
            printf("%u: ", (r)->op);                                                               \
            printf(__VA_ARGS__);                                                                   \
            putchar('\n');                                                                         \
            fflush(stdout);                                                                        \
        }                                                                                          \
    } while (0)

static bool random_hides_failure; /* a world with a planted fault: it only ends */

__attribute__((noreturn, format(printf, 2, 3))) static inline void
random_fail(const char *condition, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (random_hides_failure)
        _exit(1);
    ck_abort_msg("seed %llu, operation %u: %s: %s", (unsigned long long)random_now->seed,
                 random_now->op, condition, text);
    abort();
}

/* A claim about a world; the message says how to come back to it. */
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            random_fail(#condition, __VA_ARGS__);                                                  \
    } while (0)

/* Runs a world in a process of its own; true when it failed, in whatever way. */
static inline bool random_world_fails(void (*world)(void *arg), void *arg)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        random_hides_failure = true;
        world(arg);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status != 0;
}

static inline void random_counts_open(const char *const *names, uint32_t n)
{
    random_counts = mmap(NULL, sizeof(*random_counts), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(random_counts != MAP_FAILED && n <= RANDOM_MAX_COUNTS);
    for (uint32_t i = 0; i < n; i++)
        random_counts->name[i] = names[i];
}

static inline void random_add(uint32_t i, uint64_t n)
{
    __atomic_fetch_add(&random_counts->n[i], n, __ATOMIC_RELAXED);
}

static inline void random_count(uint32_t i)
{
    random_add(i, 1);
}

static inline uint32_t random_worlds(uint64_t n_ops_default)
{
    uint64_t n = random_env("MILLRACE_RANDOM_OPS", n_ops_default);
    return (uint32_t)((n + RANDOM_WORLD_OPS - 1) / RANDOM_WORLD_OPS);
}

static inline void random_counts_print(const char *what)
{
    printf("%s: %llu operations from seed %llu on\n", what,
           (unsigned long long)random_counts->n_ops,
           (unsigned long long)random_env("MILLRACE_RANDOM_SEED", 1));
    for (uint32_t i = 0; i < RANDOM_MAX_COUNTS && random_counts->name[i]; i++)
        printf("  %-28s %12llu\n", random_counts->name[i], (unsigned long long)random_counts->n[i]);
}

#endif
