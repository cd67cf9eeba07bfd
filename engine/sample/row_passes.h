/* The passes of row.c that compute on every element, for one vector width. All widths give the same
 * bits: lane-wise IEEE operations without fused ones, and sums over eight lanes in one fixed order.
 * The caller that makes a sampler's scratch chooses one. Any thread. */
#ifndef ENGINE_SAMPLE_ROW_PASSES_H
#define ENGINE_SAMPLE_ROW_PASSES_H

#include <stdbool.h>
#include <stdint.h>

/* 2^r for |r| <= 1/2 as a polynomial of degree 6 with 2^0 = 1 exactly, highest power first: our own
 * minimax fit, off by less than 2e-8. */
#define ROW_EXP2_HIGHEST 1.5353357594e-4f
#define ROW_EXP2_REST(X)                                                                           \
    X(1.3398876181e-3f)                                                                            \
    X(9.6184378490e-3f)                                                                            \
    X(5.5503323674e-2f)                                                                            \
    X(2.4022647738e-1f)                                                                            \
    X(6.9314718246e-1f)                                                                            \
    X(1.0f)

struct row_passes {
    /* Maxima of whole blocks; false when a value in them was not <= FLT_MAX. */
    bool (*scan)(const float *x, uint32_t n_blocks, float *block_max);
    /* Sum of 2^((x - max) * s) over one block. */
    float (*block_sum)(const float *block, float max, float s);
    /* p[i] = 2^((x[i] - max) * s), x <= max; under 2^-126 it is 0. */
    void (*exp)(const float *x, uint32_t n, float max, float s, float *p);
};

extern const struct row_passes row_passes_plain;

#endif
