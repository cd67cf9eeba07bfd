/* Tensor names -> pointer table with shape checks, and the full list of what is missing. */
#ifndef ENGINE_MODEL_WEIGHTS_H
#define ENGINE_MODEL_WEIGHTS_H

#include "base/buf.h"
#include "base/status.h"
#include "engine/model/gguf.h"
#include "engine/model/hparams.h"

struct layer_weights { /* all borrow from the gguf; comment: [dim[0], dim[1]] = [in, out] */
    const struct gguf_tensor *attn_norm; /* [n_embd] f32 */
    const struct gguf_tensor *q, *k, *v; /* [n_embd, n_heads*head_dim], [n_embd, n_kv*head_dim] */
    const struct gguf_tensor *q_bias, *k_bias, *v_bias; /* NULL for llama without biases */
    const struct gguf_tensor *q_norm, *k_norm; /* [head_dim] f32, or NULL */
    const struct gguf_tensor *attn_out; /* [n_heads*head_dim, n_embd] */
    const struct gguf_tensor *attn_post_norm, *ffn_post_norm; /* [n_embd] f32, or NULL */
    const struct gguf_tensor *ffn_norm; /* [n_embd] f32 */
    const struct gguf_tensor *gate, *up; /* [n_embd, n_ff] */
    const struct gguf_tensor *down; /* [n_ff, n_embd] */
};

/* Rows of fused tensors as tensors of their own: q, k, v, gate, up. */
enum { WEIGHTS_PARTS = 5 };

struct weights {
    const struct gguf_tensor *token_embd; /* [n_embd, n_vocab] */
    const struct gguf_tensor *output_norm; /* [n_embd] */
    const struct gguf_tensor *output; /* [n_embd, n_vocab]; = token_embd when tied */
    const struct gguf_tensor *rope_freqs; /* [rope_dims/2] or NULL */
    struct layer_weights *layer; /* owns [n_layers] */
    struct gguf_tensor *part; /* owns [n_layers][WEIGHTS_PARTS]; NULL without ARCH_FUSED_ROWS */
};

/* problems (owned by the caller, appended to): one line per missing, misshaped, unsupported or unused tensor (the first 500).
 * ERR_FORMAT when any line makes the model unservable (the first such one is in e). */
enum status weights_bind(const struct gguf *g, const struct hparams *h, struct weights *out,
                         struct buf *problems, struct err *e);
void weights_release(struct weights *w);

#endif
