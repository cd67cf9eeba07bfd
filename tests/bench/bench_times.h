/* Prints statistics of a series of times, for the benchmarks in C. */
#ifndef TESTS_BENCH_BENCH_TIMES_H
#define TESTS_BENCH_BENCH_TIMES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Mean, median and p99 of ns[n], which is sorted by it; n >= 1. */
static inline void print_times(const char *what, uint64_t *ns, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += ns[i];
    qsort(ns, n, sizeof(*ns), by_value);
    printf("  %-40s mean %8.2f us   p50 %8.2f   p99 %8.2f\n", what, (double)sum / n / 1e3,
           (double)ns[n / 2] / 1e3, (double)ns[n * 99 / 100] / 1e3);
}

#endif
