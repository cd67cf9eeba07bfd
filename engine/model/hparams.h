/* Hyperparameters from the metadata, validated: everything the layer loop needs to know.
 * Called by weights, the forward pass, engine.c and inspect.c at load; read-only afterwards. */
#ifndef ENGINE_MODEL_HPARAMS_H
#define ENGINE_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/model/gguf.h"

enum rope_kind { ROPE_NORMAL /* rotate neighbours (2i, 2i+1) */, ROPE_NEOX /* half-split */ };
enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_YARN
};

/* Features of an architecture that not all of them have (arch.def). */
enum arch_feature {
    ARCH_SCALED_EMBEDDINGS = 1, /* embeddings times sqrt(n_embd) */
    ARCH_QK_NORM = 2, /* RMSNorm of each head of q and k before they rotate */
    ARCH_POST_NORM = 4, /* RMSNorm of what attention and feed-forward add to the residual */
    ARCH_GELU = 8, /* gate by GELU (tanh form) instead of SiLU */
    ARCH_LOCAL_LAYERS = 16, /* layers of a window and a RoPE base of their own */
    ARCH_FUSED_ROWS =
        32, /* one tensor holds the rows of q, k and v, another those of gate and up */
    ARCH_ALL_WINDOWED = 64, /* every layer has the window that the file names, if it names one */
    ARCH_SCALES = 128, /* factors of embeddings, residual sums and logits (Granite) */
    ARCH_SOFT_CAPS = 256 /* scores and logits bent below a cap by tanh (Gemma 2) */
};

/* Upper bounds: far above real models, low enough that their products cannot overflow. */
enum {
    HPARAMS_MAX_LAYERS = 1024,
    HPARAMS_MAX_EMBD = 65536,
    HPARAMS_MAX_FF = 1 << 18,
    HPARAMS_MAX_HEADS = 1024,
    HPARAMS_MIN_HEAD_DIM = 8,
    HPARAMS_MAX_HEAD_DIM = 512,
    HPARAMS_MAX_CTX = 1 << 24,
    HPARAMS_MAX_VOCAB = 1 << 22
};

struct hparams {
    char architecture[32];
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads;
    uint32_t head_dim; /* K and V (key_length == value_length required) */
    uint32_t rope_dims; /* rotated part of a head, even, <= head_dim */
    uint32_t n_ctx_train;
    uint32_t n_vocab;
    float rms_eps;
    float attn_scale; /* 1/sqrt(head_dim), or attention.scale where the file has one */
    unsigned features; /* of enum arch_feature */
    float embd_scale; /* 1 without ARCH_SCALED_EMBEDDINGS and ARCH_SCALES */
    float residual_scale; /* of what attention and feed-forward add; 1 without ARCH_SCALES */
    float attn_softcap, logit_softcap; /* 0 without ARCH_SOFT_CAPS */
    float logit_scale; /* factor of the logits; 1 without ARCH_SCALES */
    bool local[HPARAMS_MAX_LAYERS]; /* layers with the window; with ARCH_LOCAL_LAYERS they rotate by
                                     * rope_base_local, unscaled */
    uint32_t unrotated_every; /* layers n-1, 2n-1, ... are not rotated; 0: all are */
    uint32_t window; /* positions a local layer sees, the row itself counted; 0 = all */
    enum rope_kind rope_kind;
    float rope_base, rope_base_local;
    enum rope_scaling scaling;
    float scaling_factor, scaling_attn_factor;
    uint32_t scaling_orig_ctx;
    float yarn_beta_fast, yarn_beta_slow, yarn_ext_factor;
    /* llama3 scaling comes as a tensor rope_freqs.weight of divisors [rope_dims/2], or by these four. */
    float llama3_low, llama3_high;
    bool tied_embeddings; /* no output.weight */
    float sampling_temperature, sampling_top_p, sampling_min_p; /* NaN when absent */
    int32_t sampling_top_k; /* -1 when absent */
};

/* ERR_UNSUPPORTED: another architecture or scaling kind (named); ERR_FORMAT: missing or impossible
 * values with both numbers. Sampling values outside their range are ignored with a warning. */
enum status hparams_read(const struct gguf *g, struct hparams *out, struct err *e);

static inline bool hparams_rotates(const struct hparams *h, uint32_t layer)
{
    return h->unrotated_every == 0 || (layer + 1) % h->unrotated_every != 0;
}

/* True when the architecture is a row of arch.def. */
bool hparams_supported(struct str architecture);

/* inv_freq[rope_dims/2] in f64 and the magnitude factor for cos/sin, for the scaling kind.
 * freq_factors: the values of rope_freqs.weight [rope_dims/2], or NULL.
 *   none    base^(-2i/rope_dims), over the factor of i
 *   linear  the same over scaling_factor (Position Interpolation)
 *   llama3  long waves over scaling_factor, short ones kept, a ramp between (Llama 3.1); factors from
 *           the file replace all of it
 *   yarn    a ramp over the pair index between kept and divided frequencies, magnitude
 *           1 + 0.1 ln(scaling_factor) (Peng et al. 2023, "NTK-by-parts") */
void hparams_rope_freqs(const struct hparams *h, const float *freq_factors, double *inv_freq,
                        float *magnitude);
/* The same for local layers: rope_base_local, never scaled. */
void hparams_rope_freqs_local(const struct hparams *h, double *inv_freq);

#endif
