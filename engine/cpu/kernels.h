/* The table of one instruction level: its formats and its functions, chosen once at start (levels.h).
 *
 * A level is a folder of engine/cpu/. c/ is the oracle (no intrinsics); other levels use its functions
 * where they have none of their own. Rule for every level: an output element is computed by the
 * same sequence of roundings regardless of the number of tokens, the tile and the thread, so
 * results never depend on the rest of the batch. */
#ifndef ENGINE_CPU_KERNELS_H
#define ENGINE_CPU_KERNELS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/cpu/packed.h"
#include "engine/sample/row_passes.h"
#include "kvpool/layout.h"

/* Limit of activation forms per level; each level defines its own. */
enum { KERNEL_FORMS = 3 };

/* n_groups consecutive row groups for n_tokens activations: out[t * out_stride + R * g + row],
 * R rows per group. */
typedef void kernel_matmul(const uint8_t *groups, size_t group_bytes, uint32_t n_groups,
                           uint32_t n_blocks, const uint8_t *act, size_t act_stride_bytes,
                           uint32_t n_tokens, float *out, size_t out_stride);
/* n (a multiple of 32) floats -> n/32 blocks. A NaN anywhere makes its block NaN. */
typedef void kernel_quantise(const float *x, uint32_t n, uint8_t *out);

enum { ATTEND_CHUNK_TOKENS = 256 };

/* Attention of n_rows consecutive positions of one sequence for the query heads of one KV head. */
struct attend {
    const struct kv_layout *layout;
    const struct kv_group *kv; /* of the layer */
    const uint8_t *unit; /* of the layer and head in block 0; block n's is at + n * block_bytes */
    size_t block_bytes;
    const uint32_t *table;
    /* Blocks numbered n_resident and above are in a staging buffer: entry staged[i] of the table is at
     * staged_unit + i * staged_bytes (laid out as unit). staged ascends; n_staged 0: none. */
    uint32_t n_resident, n_staged;
    const uint32_t *staged;
    const uint8_t *staged_unit;
    size_t staged_bytes;
    float softcap; /* scores become softcap * tanh(score / softcap); 0: they stay */
    uint32_t group; /* query heads of this KV head */
    uint32_t pos0; /* position of the first row; it sees attend_first()..pos0 */
    uint32_t n_rows; /* 1..attend_rows(group) */
    const float *q; /* first query head of the first row, already scaled; heads head_dim apart */
    size_t q_stride; /* floats from row to row */
    float *out; /* as q */
    size_t out_stride;
    float *scratch; /* attend_scratch_floats() */
};

/* Rows of one work item: about 48 query vectors share each K and V block. */
static inline uint32_t attend_rows(uint32_t group)
{
    return group >= 48 ? 1 : 48 / group;
}
/* Queries, two states (chunk and total: max, sum of up to 16 lanes, accumulator) per query vector, two blocks
 * of scores, the scales of a block's keys and values. */
static inline size_t attend_scratch_floats(uint32_t group, uint32_t head_dim, uint32_t n_slots)
{
    return (size_t)attend_rows(group) * group * (3 * (size_t)head_dim + 34) +
           (16 + 2 * (size_t)kv_scale_groups(head_dim)) * n_slots;
}
/* The lowest position that a row at pos sees. */
static inline uint32_t attend_first(uint32_t window, uint32_t pos)
{
    return window && pos >= window ? pos - window + 1 : 0;
}
/* Scores of the visible slots of a block. */
static inline void attend_cap(const struct attend *a, float *score, uint32_t low, uint32_t high)
{
    for (uint32_t t = low; a->softcap > 0 && t < high; t++)
        score[t] = a->softcap * tanhf(score[t] / a->softcap);
}
/* The unit of entry b of the table. */
static inline const uint8_t *attend_unit(const struct attend *a, uint32_t b)
{
    if (a->n_staged == 0 || a->table[b] < a->n_resident)
        return a->unit + (size_t)a->table[b] * a->block_bytes;
    uint32_t low = 0, high = a->n_staged; /* staged[low] <= b */
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (a->staged[mid] <= b)
            low = mid;
        else
            high = mid;
    }
    return a->staged_unit + low * a->staged_bytes;
}

/* The tanh form of GELU: sqrt(8 / pi), and the weight of the cube. */
#define GELU_SLOPE 1.5957691216057308f
#define GELU_CUBIC 0.044715f

struct kernels {
    const char *name;
    uint32_t revision; /* increase when results of equal inputs change: voids KV on disk */
    const struct pack_format *format; /* of weights */
    size_t act_bytes[KERNEL_FORMS]; /* of a block of 32 inputs; 0: the level has no such form */
    kernel_quantise *quantise[KERNEL_FORMS];
    /* The form in which a matrix takes its inputs under a setting of cpu.activations. */
    uint32_t (*form)(enum pack_kind kind, int activations_setting);
    /* Each [PACK_KINDS]; NULL where a kind never takes that form */
    kernel_matmul *const *matmul[KERNEL_FORMS];
    const struct row_passes *row; /* of sampling */
    /* out = x / sqrt(mean(x^2) + eps) * weight */
    void (*rms_norm)(const float *x, const float *weight, float eps, uint32_t n, float *out);
    /* out = gate * sigmoid(gate) * up; n a multiple of 8 */
    void (*swiglu)(const float *gate, const float *up, uint32_t n, float *out);
    /* out = gelu(gate) * up, gelu by its tanh form: g * sigmoid(sqrt(8 / pi) * (g + 0.044715 g^3)) */
    void (*geglu)(const float *gate, const float *up, uint32_t n, float *out);
    void (*add)(float *x, const float *y, uint32_t n); /* x += y */
    /* Rotates the first rope_dims of a head and scales all of it. cos_sin: rope_dims/2 cosines, then
     * as many sines. */
    void (*rope)(float *x, const float *cos_sin, uint32_t head_dim, uint32_t rope_dims, bool neox,
                 float scale);
    /* Stores one position of one head into a slot of a block's unit (kvpool/layout.h) of a layer group. False
     * when a stored value is not finite. Quantised types expect k (v) rotated. */
    bool (*kv_store)(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                     const float *k, const float *v);
    /* Rotates a head's vector as described in layout.c; it is its own inverse. */
    void (*kv_rotate)(float *x, uint32_t head_dim);
    void (*attend)(const struct attend *a);
};

#endif
