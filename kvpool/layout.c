/* Sizes of KV blocks; see layout.h. */
#include "kvpool/layout.h"

#include "base/mem.h"

enum { LAYOUT_MIN_SLOTS = 8, LAYOUT_MAX_SLOTS = 64, LAYOUT_MAX_DIM = 65536 };

static enum status check_dim(const char *name, uint32_t value, struct err *e)
{
    if (value >= 1 && value <= LAYOUT_MAX_DIM)
        return OK;
    return err_set(e, ERR_INVALID, "kv layout: %s %u is not in 1..%d", name, value, LAYOUT_MAX_DIM);
}

enum status kv_layout_init(struct kv_layout *l, uint32_t n_layers, uint32_t n_kv_heads,
                           uint32_t head_dim, uint32_t n_slots, enum kv_dtype dtype, struct err *e)
{
    if (check_dim("layers", n_layers, e) != OK || check_dim("kv heads", n_kv_heads, e) != OK ||
        check_dim("head size", head_dim, e) != OK)
        return ERR_INVALID;
    if (n_slots < LAYOUT_MIN_SLOTS || n_slots > LAYOUT_MAX_SLOTS || n_slots % 8 != 0)
        return err_set(e, ERR_INVALID, "kv.block_tokens %u is not a multiple of 8 in %d..%d",
                       n_slots, LAYOUT_MIN_SLOTS, LAYOUT_MAX_SLOTS);
    *l = (struct kv_layout){.n_layers = n_layers,
                            .n_kv_heads = n_kv_heads,
                            .head_dim = head_dim,
                            .n_slots = n_slots,
                            .dtype = dtype,
                            .elem_bytes = dtype == KV_F32 ? 4 : 2};
    l->half_bytes = mem_mul(mem_mul(head_dim, n_slots), l->elem_bytes);
    l->unit_bytes = mem_mul(2, l->half_bytes);
    size_t heads = mem_mul(n_layers, n_kv_heads);
    l->block_bytes = (mem_mul(heads, l->unit_bytes) + 63) & ~(size_t)63;
    l->bytes_per_token = mem_mul(heads, 2 * (size_t)head_dim * l->elem_bytes);
    return OK;
}
