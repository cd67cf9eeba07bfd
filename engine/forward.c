/* The layer loop; see forward.h. */
#include "engine/forward.h"

void forward_step(const struct forward_ops *ops, void *step, uint32_t n_layers, uint32_t n_outs)
{
    ops->embed(step);
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        ops->attn_norm(step, layer);
        ops->qkv(step, layer);
        ops->rope_kv(step, layer);
        if (layer + 1 == n_layers) {
            /* Beyond the last keys and values nothing reads a row that has no logits. */
            if (n_outs == 0)
                return;
            ops->only_outs(step);
        }
        ops->attention(step, layer);
        ops->attn_out(step, layer);
        ops->ffn_norm(step, layer);
        ops->ffn_gate_up(step, layer);
        ops->ffn_down(step, layer);
    }
    ops->logits_and_sample(step);
}
