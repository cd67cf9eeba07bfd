/* Monotonic time in ns. Tests can freeze and advance it. Thread: any. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

uint64_t clock_ns(void); /* monotonic, or the fake time when that is on */
uint64_t clock_thread_ns(void); /* processor time used by the calling thread */
int64_t clock_unix_s(void); /* wall clock, seconds since 1970 */
void clock_fake(bool on, uint64_t start_ns);
void clock_fake_advance(uint64_t delta_ns);

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

/* The earlier of two times; 0 means none. */
static inline uint64_t ns_earlier(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

#endif
