/* The layer loop; see forward.h. */
#include "engine/forward.h"

void forward_step(const struct forward_ops *ops, void *step, const struct hparams *h,
                  uint32_t n_outs)
{
    bool post_norm = h->features & ARCH_POST_NORM;
    ops->embed(step);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        ops->attn_norm(step, layer);
        ops->qkv(step, layer);
        ops->rope_kv(step, layer);
        if (layer + 1 == h->n_layers) {
            /* After the last layer's keys and values, rows without logits are no longer needed. */
            if (n_outs == 0)
                return;
            ops->only_outs(step);
        }
        ops->attention(step, layer);
        ops->attn_out(step, layer);
        if (post_norm)
            ops->attn_post_norm(step, layer);
        ops->ffn_norm(step, layer);
        ops->ffn_gate_up(step, layer);
        ops->ffn_down(step, layer);
        if (post_norm)
            ops->ffn_post_norm(step, layer);
    }
    ops->logits_and_sample(step);
}
