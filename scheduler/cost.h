/* How long a step takes, learnt while serving: t = a + b * rows + c * kv_read, in ns.
 *
 * Least squares over decayed moments, kept apart per power of two of the row count: a long time of
 * pure decoding (few rows) doesn't forget what prefill steps (many rows) cost. A weak prior keeps the
 * first steps small. Machines waver: a plan aims as far below its target as 95 of 100 long steps need
 * to stay within it. Thread: engine. No clock in here: times are handed in. */
#ifndef SCHEDULER_COST_H
#define SCHEDULER_COST_H

#include <stdint.h>

enum { COST_BUCKETS = 17, COST_TERMS = 3 };

struct cost {
    struct {
        double xx[COST_TERMS][COST_TERMS]; /* decayed sums of x x', x = (1, rows, kv_read) scaled */
        double xy[COST_TERMS];
    } bucket[COST_BUCKETS];
    double prior[COST_TERMS];
    double base_ns, row_ns, kv_ns; /* a, b, c */
    double target_ns; /* of a step */
    double over; /* 95 of 100 long steps took at most so much times what was foreseen: 1 to 1.5 */
};

/* prior_rows: rows that are taken to fill target_ns before anything is known. */
void cost_init(struct cost *c, uint64_t target_ns, uint32_t prior_rows);
void cost_observe(struct cost *c, uint32_t n_rows, uint64_t kv_read, uint64_t took_ns);
/* What a plan may foresee for a step, so that it seldom takes more than its target. */
double cost_budget_ns(const struct cost *c);
double cost_step_ns(const struct cost *c, uint32_t n_rows, uint64_t kv_read);
/* Rows of one chunk that starts at position pos and fits into left_ns; may be 0. */
uint32_t cost_rows(const struct cost *c, double left_ns, uint32_t pos);
/* KV positions that n_rows rows starting at pos read. */
static inline uint64_t cost_kv_read(uint32_t pos, uint32_t n_rows)
{
    return (uint64_t)n_rows * pos + (uint64_t)n_rows * (n_rows + 1ull) / 2;
}

#endif
