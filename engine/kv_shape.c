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

static enum kv_dtype dtype_of(int setting)
{
    static const enum kv_dtype of[] = {[SET_KV_F16] = KV_F16,
                                       [SET_KV_BF16] = KV_BF16,
                                       [SET_KV_F32] = KV_F32,
                                       [SET_KV_Q8] = KV_Q8,
                                       [SET_KV_Q4] = KV_Q4};
    return of[setting];
}

enum status kv_layout_of_settings(const struct device *d, const struct hparams *h,
                                  const struct settings *s, struct kv_layout *out, struct err *e)
{
    int k = s->kv_dtype_k == SET_KV_AUTO ? s->kv_dtype : s->kv_dtype_k - 1;
    int v = s->kv_dtype_v == SET_KV_AUTO ? s->kv_dtype : s->kv_dtype_v - 1;
    return d->kv_layout(h, (uint32_t)s->kv_block_tokens, dtype_of(k), dtype_of(v), out, e);
}
