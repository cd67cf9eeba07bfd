/* Sizes of KV blocks; see layout.h.
 *
 * What a unit holds of one layer and head on the CPU, K first, V at + k_bytes (n = n_slots, d = head_dim):
 *   f16 bf16 f32  K: element [d][n];  V: element [n][d].
 *   q8            K: int8 [d][n], then f16 scale [ceil(d / 32)][n];
 *                 V: int8 [n][d], then f16 scale [ceil(d / 32)][n].
 *                 Value = int8 * scale of its 32 channels and slot. Both are rotated before (below).
 *   q4            K: byte [ceil(d / 2)][n]: low half channel 2i, high half 2i + 1;
 *                 V: byte [n][8 * ceil(d / 16)]: byte 8g + i has channel 16g + i low, 16g + 8 + i high;
 *                 then the scales as q8. Value = (half - 8) * scale.
 * In every type, no two slots share a byte, so that workers may fill slots of one block concurrently. Rotated:
 * an orthonormal Hadamard transform of every run of 2^k channels, the largest power of two that divides
 * d, which spreads outliers over all channels; scores do not change when the query is rotated too, and
 * a weighted sum of values is rotated back. */
#include "kvpool/layout.h"
#include "kvpool/kvpool_test.h"

#include <stdio.h>

#include "base/check.h"
#include "base/mem.h"

enum { LAYOUT_MIN_SLOTS = 8, LAYOUT_MAX_SLOTS = 64, LAYOUT_MAX_DIM = 65536, SCALE_BYTES = 2 };

static enum status check_dim(const char *name, uint32_t value, uint32_t most, struct err *e)
{
    if (value >= 1 && value <= most)
        return OK;
    return err_set(e, ERR_INVALID, "kv layout: %s %u is not in 1..%u", name, value, most);
}

static size_t scale_bytes(uint32_t head_dim, uint32_t n_slots)
{
    return (size_t)kv_scale_groups(head_dim) * n_slots * SCALE_BYTES;
}

static size_t k_bytes(enum kv_dtype d, uint32_t head_dim, uint32_t n_slots)
{
    if (d == KV_Q8)
        return (size_t)head_dim * n_slots + scale_bytes(head_dim, n_slots);
    if (d == KV_Q4)
        return (size_t)(head_dim + 1) / 2 * n_slots + scale_bytes(head_dim, n_slots);
    return (size_t)head_dim * n_slots * (d == KV_F32 ? 4 : 2);
}

static size_t v_bytes(enum kv_dtype d, uint32_t head_dim, uint32_t n_slots)
{
    if (d == KV_Q4)
        return (size_t)kv_q4_row_bytes(head_dim) * n_slots + scale_bytes(head_dim, n_slots);
    return k_bytes(d, head_dim, n_slots);
}

static bool same_shape(const struct kv_group *g, const struct kv_layer_shape *s)
{
    return g->window == s->window && g->n_kv_heads == s->n_kv_heads && g->head_dim == s->head_dim;
}

/* Adds a group of this shape; full attention comes first. */
static enum status add_group(struct kv_layout *l, const struct kv_layer_shape *s, struct err *e)
{
    if (l->n_groups == KV_MAX_GROUPS)
        return err_set(e, ERR_UNSUPPORTED,
                       "kv layout: more than %d shapes of layers (window, KV heads, head size)",
                       KV_MAX_GROUPS);
    uint32_t at = l->n_groups++;
    if (s->window == 0) {
        for (; at > 0 && l->group[at - 1].window != 0; at--)
            l->group[at] = l->group[at - 1];
    }
    l->group[at] = (struct kv_group){
        .window = s->window, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim};
    return OK;
}

static uint32_t find_group(const struct kv_layout *l, const struct kv_layer_shape *s)
{
    uint32_t g = 0;
    while (g < l->n_groups && !same_shape(&l->group[g], s))
        g++;
    return g;
}

static void size_group(struct kv_layout *l, struct kv_group *g)
{
    g->k_bytes = k_bytes(l->dtype_k, g->head_dim, l->n_slots);
    g->v_bytes = v_bytes(l->dtype_v, g->head_dim, l->n_slots);
    g->unit_bytes = (g->k_bytes + g->v_bytes + 31) & ~(size_t)31;
    g->layer_bytes = mem_mul(g->n_kv_heads, g->unit_bytes);
    g->block_bytes = (mem_mul(g->n_layers, g->layer_bytes) + 63) & ~(size_t)63;
    g->bytes_per_token = (double)g->n_layers * g->n_kv_heads * (double)(g->k_bytes + g->v_bytes) /
                         (double)l->n_slots;
}

static enum status check_shapes(const struct kv_layer_shape *shape, uint32_t n_layers,
                                uint32_t n_slots, struct err *e)
{
    if (check_dim("layers", n_layers, KV_MAX_LAYERS, e) != OK)
        return ERR_INVALID;
    for (uint32_t i = 0; i < n_layers; i++) {
        if (check_dim("kv heads", shape[i].n_kv_heads, LAYOUT_MAX_DIM, e) != OK ||
            check_dim("head size", shape[i].head_dim, LAYOUT_MAX_DIM, e) != OK)
            return ERR_INVALID;
    }
    if (n_slots < LAYOUT_MIN_SLOTS || n_slots > LAYOUT_MAX_SLOTS || n_slots % 8 != 0)
        return err_set(e, ERR_INVALID, "kv.block_tokens %u is not a multiple of 8 in %d..%d",
                       n_slots, LAYOUT_MIN_SLOTS, LAYOUT_MAX_SLOTS);
    return OK;
}

enum status kv_layout_init(struct kv_layout *l, const struct kv_layer_shape *shape,
                           uint32_t n_layers, uint32_t n_slots, enum kv_dtype dtype_k,
                           enum kv_dtype dtype_v, struct err *e)
{
    enum status st = check_shapes(shape, n_layers, n_slots, e);
    *l = (struct kv_layout){
        .n_layers = n_layers, .n_slots = n_slots, .dtype_k = dtype_k, .dtype_v = dtype_v};
    for (uint32_t i = 0; i < n_layers && st == OK; i++) {
        if (find_group(l, &shape[i]) == l->n_groups)
            st = add_group(l, &shape[i], e);
    }
    if (st != OK)
        return st;
    for (uint32_t i = 0; i < n_layers; i++) {
        uint32_t g = find_group(l, &shape[i]);
        l->layer_group[i] = (uint8_t)g;
        l->layer_index[i] = (uint16_t)l->group[g].n_layers++;
    }
    for (uint32_t g = 0; g < l->n_groups; g++)
        size_group(l, &l->group[g]);
    return OK;
}

enum status kv_layout_init_plain(struct kv_layout *l, uint32_t n_layers, uint32_t n_kv_heads,
                                 uint32_t head_dim, uint32_t n_slots, enum kv_dtype dtype,
                                 struct err *e)
{
    struct kv_layer_shape shape[KV_MAX_LAYERS];
    for (uint32_t i = 0; i < n_layers && i < KV_MAX_LAYERS; i++)
        shape[i] = (struct kv_layer_shape){.n_kv_heads = n_kv_heads, .head_dim = head_dim};
    return kv_layout_init(l, shape, n_layers, n_slots, dtype, dtype, e);
}

const char *kv_dtype_name(enum kv_dtype d)
{
    static const char *const name[KV_N_DTYPES] = {"f16", "bf16", "f32", "q8", "q4"};
    CHECK(d < KV_N_DTYPES);
    return name[d];
}

void kv_layout_dtypes(const struct kv_layout *l, char out[KV_DTYPES_CAP])
{
    if (l->dtype_k == l->dtype_v)
        snprintf(out, KV_DTYPES_CAP, "%s", kv_dtype_name(l->dtype_k));
    else
        snprintf(out, KV_DTYPES_CAP, "%s/%s", kv_dtype_name(l->dtype_k), kv_dtype_name(l->dtype_v));
}

double kv_layout_bytes_per_token(const struct kv_layout *l)
{
    double sum = 0;
    for (uint32_t g = 0; g < l->n_groups; g++)
        sum += l->group[g].bytes_per_token;
    return sum;
}
