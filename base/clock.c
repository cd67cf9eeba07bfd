/* Monotonic time, which tests can fake; see clock.h. */
#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

static atomic_bool is_fake;
static atomic_uint_fast64_t fake_ns;

uint64_t clock_ns(void)
{
    if (is_fake)
        return fake_ns;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

int64_t clock_unix_s(void)
{
    return time(NULL);
}

void clock_fake(bool on, uint64_t start_ns)
{
    fake_ns = start_ns;
    is_fake = on;
}

void clock_fake_advance(uint64_t delta_ns)
{
    fake_ns += delta_ns;
}
