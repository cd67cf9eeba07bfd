/* Layer shapes from hyperparameters; see kv_shape.h. */
#include "engine/kv_shape.h"

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
