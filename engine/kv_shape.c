/* Layer shapes from hyperparameters; see kv_shape.h. */
#include "engine/kv_shape.h"

#include "config/settings.h"

enum status kv_layout_of_model(const struct hparams *h, uint32_t n_slots, enum kv_dtype dtype_k,
                               enum kv_dtype dtype_v, struct kv_layout *out, struct err *e)
{
    struct kv_layer_shape shape[KV_MAX_LAYERS];
    for (uint32_t i = 0; i < h->n_layers && i < KV_MAX_LAYERS; i++)
        shape[i] = (struct kv_layer_shape){.window = h->local[i] ? h->window : 0,
                                           .n_kv_heads = h->n_kv_heads,
                                           .head_dim = h->head_dim};
    return kv_layout_init(out, shape, h->n_layers, n_slots, dtype_k, dtype_v, e);
}

/* By value of one of the three options. */
#define TYPES_OF(option)                                                                           \
    {                                                                                              \
        [SET_##option##_F16] = KV_F16, [SET_##option##_BF16] = KV_BF16,                            \
        [SET_##option##_F32] = KV_F32, [SET_##option##_Q8] = KV_Q8, [SET_##option##_Q4] = KV_Q4    \
    }
static const enum kv_dtype both[] = TYPES_OF(KV), keys[] = TYPES_OF(K), values[] = TYPES_OF(V);

enum status kv_layout_of_settings(const struct device *d, const struct hparams *h,
                                  const struct settings *s, struct kv_layout *out, struct err *e)
{
    enum kv_dtype k = s->kv_dtype_k == SET_K_AUTO ? both[s->kv_dtype] : keys[s->kv_dtype_k];
    enum kv_dtype v = s->kv_dtype_v == SET_V_AUTO ? both[s->kv_dtype] : values[s->kv_dtype_v];
    return d->kv_layout(h, (uint32_t)s->kv_block_tokens, k, v, out, e);
}
