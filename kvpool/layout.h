/* Sizes of KV blocks, and the position of keys and values inside one on the CPU (`order` names it; a device
 * with another order has its own arithmetic, and the same sizes or others).
 *
 * Layers with equal (window, KV heads, head size) form a group; each group has its own blocks. A
 * block holds n_slots (16) token positions of every layer of its group in one contiguous piece
 * ("block-major"), so that sharing, swapping and copying take one copy per block. Inside, per layer of the
 * group and KV head, there is a unit of K then V:
 *   K: d-major   [head_dim][n_slots]   (no horizontal sums when scoring 16 keys at once)
 *   V: token-major [n_slots][head_dim] (broadcast-FMA when summing values)
 * Quantised types store their elements in the same order, then the scales (layout.c documents them).
 * Thread: any (read-only after init). */
#ifndef KVPOOL_LAYOUT_H
#define KVPOOL_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum kv_dtype { KV_F16, KV_BF16, KV_F32, KV_Q8, KV_Q4, KV_N_DTYPES };

enum { KV_MAX_GROUPS = 2, KV_MAX_LAYERS = 512, KV_SCALE_CHANNELS = 32 /* a scale of q8 and q4 */ };

/* A model's description of one layer. window: positions that a row sees, including its own (a key is visible
 * when key > query - window); 0 = all. */
struct kv_layer_shape {
    uint32_t window;
    uint32_t n_kv_heads;
    uint32_t head_dim;
};

struct kv_group {
    uint32_t n_layers;
    uint32_t window; /* 0 = all */
    uint32_t n_kv_heads;
    uint32_t head_dim;
    size_t k_bytes, v_bytes; /* K (V) of one layer and head in a block, including scales */
    size_t unit_bytes; /* k_bytes + v_bytes, rounded up to 32 */
    size_t layer_bytes; /* n_kv_heads * unit_bytes */
    size_t block_bytes; /* n_layers * layer_bytes, rounded up to 64 */
    double bytes_per_token; /* exact, before rounding up, including scales */
};

/* The name of the order of elements inside a block, which the device chooses: blocks of equal sizes and types
 * are interchangeable only under equal names. Files carry it. */
enum { KV_ORDER_CAP = 16 };

struct kv_layout {
    char order[KV_ORDER_CAP]; /* padded with NUL */
    uint32_t n_layers, n_groups;
    uint32_t n_slots; /* token positions per block (kv.block_tokens) */
    enum kv_dtype dtype_k, dtype_v;
    struct kv_group group[KV_MAX_GROUPS]; /* the full-attention group first when there is one */
    uint8_t layer_group[KV_MAX_LAYERS]; /* group of a model layer */
    uint16_t layer_index[KV_MAX_LAYERS]; /* its index within the group */
};

/* shape[n_layers]. Errors: ERR_INVALID with the value and the bound (n_slots 8..64 and a multiple of 8,
 * dims >= 1, layers <= KV_MAX_LAYERS); ERR_UNSUPPORTED for more than KV_MAX_GROUPS shapes. */
enum status kv_layout_init(struct kv_layout *l, const struct kv_layer_shape *shape,
                           uint32_t n_layers, uint32_t n_slots, enum kv_dtype dtype_k,
                           enum kv_dtype dtype_v, struct err *e);
const char *kv_dtype_name(enum kv_dtype d);
/* Scaled whole numbers, written rotated (layout.c). */
static inline bool kv_dtype_quantised(enum kv_dtype d)
{
    return d == KV_Q8 || d == KV_Q4;
}
/* The names of the types: one name when K and V are of the same type, else "K/V". */
enum { KV_DTYPES_CAP = 16 };
void kv_layout_dtypes(const struct kv_layout *l, char out[KV_DTYPES_CAP]);
double kv_layout_bytes_per_token(const struct kv_layout *l); /* all groups */

/* Scales of one slot and head in the quantised types. */
static inline uint32_t kv_scale_groups(uint32_t head_dim)
{
    return (head_dim + KV_SCALE_CHANNELS - 1) / KV_SCALE_CHANNELS;
}

/* Bytes of one slot's q4 values: 8 for every 16 channels. */
static inline uint32_t kv_q4_row_bytes(uint32_t head_dim)
{
    return (head_dim + 15) / 16 * 8;
}

/* Offset of a model layer's unit inside a block of that layer's group; V at + k_bytes. */
static inline size_t kv_unit_offset(const struct kv_layout *l, uint32_t layer, uint32_t kv_head)
{
    const struct kv_group *g = &l->group[l->layer_group[layer]];
    return l->layer_index[layer] * g->layer_bytes + kv_head * g->unit_bytes;
}

#endif
