/* Where a key or a value lies inside a KV block: the only address arithmetic for KV.
 *
 * A block holds n_slots (16) token positions of every layer, one contiguous blob ("block-major"), so
 * that sharing, swapping and copying are one copy a block. Inside, per layer and KV head:
 *   K: d-major   [head_dim][n_slots]   (no horizontal sums when scoring 16 keys at once)
 *   V: token-major [n_slots][head_dim] (broadcast-FMA when summing values)
 * i.e. offset(layer, head) = (layer * n_kv_heads + head) * unit_bytes, K first, then V.
 * Thread: any (read-only after init). Later: groups of layers with own windows and head sizes. */
#ifndef KVPOOL_LAYOUT_H
#define KVPOOL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum kv_dtype { KV_F16, KV_F32 };

struct kv_layout {
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_slots; /* token positions a block (kv.block_tokens) */
    enum kv_dtype dtype;
    uint32_t elem_bytes;
    size_t half_bytes; /* K (or V) of one layer and head: head_dim * n_slots * elem_bytes */
    size_t unit_bytes; /* K and V of one layer and head: 2 * half_bytes */
    size_t block_bytes; /* n_layers * n_kv_heads * unit_bytes, rounded up to 64 */
    size_t bytes_per_token; /* 2 * n_layers * n_kv_heads * head_dim * elem_bytes, exact */
};

/* Errors: ERR_INVALID with the value and the bound (n_slots 8..64 and a multiple of 8, dims >= 1). */
enum status kv_layout_init(struct kv_layout *l, uint32_t n_layers, uint32_t n_kv_heads,
                           uint32_t head_dim, uint32_t n_slots, enum kv_dtype dtype, struct err *e);

static inline size_t kv_k_offset(const struct kv_layout *l, uint32_t layer, uint32_t kv_head)
{
    return ((size_t)layer * l->n_kv_heads + kv_head) * l->unit_bytes;
}

static inline size_t kv_v_offset(const struct kv_layout *l, uint32_t layer, uint32_t kv_head)
{
    return kv_k_offset(l, layer, kv_head) + l->half_bytes;
}

#endif
