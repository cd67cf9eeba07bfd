/* The model as a loop over layers, written once for all architectures in terms of a table of operations that
 * a device implements. Called by a backend's submit, on the engine thread. */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H

#include "engine/model/hparams.h"

/* step: the device's state of the running batch. */
struct forward_ops {
    void (*embed)(void *step); /* rows of token embeddings -> residual */
    void (*attn_norm)(void *step, uint32_t layer); /* residual -> input of q, k, v */
    void (*qkv)(void *step, uint32_t layer); /* q, k, v */
    void (*rope_kv)(void *step,
                    uint32_t layer); /* norm and rotate q and k, write k and v to blocks */
    void (*only_outs)(void *step); /* from here on, only rows with logits */
    void (*attention)(void *step, uint32_t layer); /* over block tables */
    /* Projections: added to the residual or, with ARCH_POST_NORM, written to the input of the next op. */
    void (*attn_out)(void *step, uint32_t layer);
    void (*attn_post_norm)(void *step, uint32_t layer); /* residual += norm(projection) */
    void (*ffn_norm)(void *step, uint32_t layer);
    void (*ffn_gate_up)(void *step, uint32_t layer); /* silu(gate) * up, or gelu */
    void (*ffn_down)(void *step, uint32_t layer);
    void (*ffn_post_norm)(void *step, uint32_t layer); /* residual += norm(projection) */
    void (*logits_and_sample)(void *step); /* final norm, head, tokens */
};

void forward_step(const struct forward_ops *ops, void *step, const struct hparams *h,
                  uint32_t n_outs);

#endif
