/* Passes over one row of logits, for sampler.c only.
 *
 * A row is treated as blocks of 64. The maximum of each block is kept: most of a row is far below
 * anything that a filter keeps, so one comparison skips a whole block. All arithmetic is IEEE in a
 * fixed order, four lanes wide, so results do not depend on the machine or the compiler. */
#ifndef ENGINE_SAMPLE_ROW_H
#define ENGINE_SAMPLE_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sample/row_passes.h"

enum { ROW_BLOCK = 64 };

static inline uint32_t row_n_blocks(uint32_t n)
{
    return (n + ROW_BLOCK - 1) / ROW_BLOCK;
}

/* Fills block_max[row_n_blocks(n)] and *max; false when the row holds NaN or +Inf. */
bool row_scan(const struct row_passes *pass, const float *x, uint32_t n, float *block_max,
              float *max);
/* Lowest index that holds max. */
uint32_t row_find(const float *x, uint32_t n, const float *block_max, float max);
/* Sum of exp((x - max) * inv_t). max is finite. */
double row_softmax(const struct row_passes *pass, const float *x, uint32_t n,
                   const float *block_max, float max, float inv_t);

/* Exact draw from the softmax by rejection. Blocks near the maximum are summed; for each other block,
 * 64 times its highest term bounds the sum from above; only when a draw lands there is one of its elements
 * computed and accepted with its share of the bound. The acceptance rate is at least 1 in 64
 * and near 1 on rows with a few high logits, where few elements need an exponential.
 * row_envelope fills block_p and before ([blocks] each), returns the total of sums and bounds. */
double row_envelope(const struct row_passes *pass, const float *x, uint32_t n,
                    const float *block_max, float max, float inv_t, float *block_p, double *before);
/* One attempt with four random words: an index, or n when rejected. */
uint32_t row_try(const struct row_passes *pass, const float *x, uint32_t n, const float *block_max,
                 float max, float inv_t, const float *block_p, const double *before, double total,
                 const uint32_t word[4]);
/* In [0, 1), 53 bits of the first two words. */
static inline double row_uniform(const uint32_t word[4])
{
    return (double)(((uint64_t)word[0] << 32 | word[1]) >> 11) * 0x1p-53;
}

/* All indices with x >= threshold (and above -Inf), ascending, with their logits; returns how many.
 * id and value have room for n + 1. */
uint32_t row_collect(const float *x, uint32_t n, const float *block_max, float threshold,
                     uint32_t *id, float *value);
/* A value that at least k (>= 1) elements of the row reach; -Inf when k is large. */
float row_floor_of_top(const float *block_max, uint32_t n_blocks, uint32_t k);

/* Where the running weight of values, taken from the highest down, reaches target. weight NULL: each
 * counts 1. *above: weight of all values above the returned one. n >= 1, target > 0. */
float select_boundary(const float *value, const float *weight, uint32_t n, double target,
                      double *above);

/* exp for x <= 0: p[i] = exp((x[i] - max) * inv_t); under 2^-126 counts as 0. */
void row_exp(const struct row_passes *pass, const float *x, uint32_t n, float max, float inv_t,
             float *p);
/* Natural logarithm of a normal positive number, to about 1e-15. */
double row_log(double x);

#endif
