/* Metadata -> struct hparams; see hparams.h. Anything that the layer loop does not compute is refused by
 * name: a model served without one of its features gives plausible, wrong answers. */
#include "engine/model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const struct arch {
    const char *name;
    enum rope_kind rope_kind;
    unsigned features;
    uint32_t global_every;
    double local_rope_base;
    uint32_t width_scaled_layers;
    uint32_t unrotated_every;
} archs[] = {
#define ARCH(...) {__VA_ARGS__},
#include "engine/model/arch.def"
#undef ARCH
};

enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

static const struct arch *arch_find(struct str name)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (str_eq_c(name, archs[i].name))
            return &archs[i];
    return NULL;
}

bool hparams_supported(struct str architecture)
{
    return arch_find(architecture) != NULL;
}

struct source {
    const struct gguf *g;
    const struct arch *arch;
    struct err *e;
};

enum { KEY_CAP = 96 };

static const char *key_of(const struct source *s, const char *suffix, char *key)
{
    snprintf(key, KEY_CAP, "%s.%s", s->arch->name, suffix);
    return key;
}

static bool has(const struct source *s, const char *suffix)
{
    char key[KEY_CAP];
    return gguf_find(s->g, key_of(s, suffix, key)) != NULL;
}

/* ---- numbers ---- */

/* A whole number, or an array of equal whole numbers (one per layer). */
static enum status read_whole(const struct source *s, const char *key, uint64_t *out)
{
    const struct gguf_value *v = gguf_find(s->g, key);
    if (v->type != GGUF_ARRAY || v->elem_type == GGUF_STRING || v->n == 0) {
        if (!gguf_u64(s->g, key, out))
            return err_set(s->e, ERR_FORMAT, "%s is not a whole number of at least 0", key);
        return OK;
    }
    int64_t first = gguf_array_i64(v, 0);
    for (uint64_t i = 1; i < v->n; i++)
        if (gguf_array_i64(v, i) != first)
            return err_set(s->e, ERR_UNSUPPORTED,
                           "%s differs between layers (%lld and %lld): that is not supported", key,
                           (long long)first, (long long)gguf_array_i64(v, i));
    if (first < 0)
        return err_set(s->e, ERR_FORMAT, "%s is not a whole number of at least 0", key);
    *out = (uint64_t)first;
    return OK;
}

static enum status read_u32(const struct source *s, const char *suffix, uint32_t min, uint32_t max,
                            uint32_t *out)
{
    char key[KEY_CAP];
    uint64_t v = 0;
    if (!gguf_find(s->g, key_of(s, suffix, key)))
        return err_set(s->e, ERR_FORMAT, "%s is missing", key);
    enum status st = read_whole(s, key, &v);
    if (st)
        return st;
    if (v < min || v > max)
        return err_set(s->e, ERR_FORMAT, "%s is %llu, must be %u to %u", key, (unsigned long long)v,
                       min, max);
    *out = (uint32_t)v;
    return OK;
}

static enum status read_u32_or(const struct source *s, const char *suffix, uint32_t min,
                               uint32_t max, uint32_t otherwise, uint32_t *out)
{
    *out = otherwise;
    return has(s, suffix) ? read_u32(s, suffix, min, max, out) : OK;
}

/* A finite number in [min, max]. */
static enum status read_f32(const struct source *s, const char *suffix, double min, double max,
                            float *out)
{
    char key[KEY_CAP];
    double v = 0;
    if (!gguf_find(s->g, key_of(s, suffix, key)))
        return err_set(s->e, ERR_FORMAT, "%s is missing", key);
    if (!gguf_f64(s->g, key, &v))
        return err_set(s->e, ERR_FORMAT, "%s is not a number", key);
    if (!(v >= min && v <= max))
        return err_set(s->e, ERR_FORMAT, "%s is %g, must be %g to %g", key, v, min, max);
    *out = (float)v;
    return OK;
}

static enum status read_f32_or(const struct source *s, const char *suffix, double min, double max,
                               float otherwise, float *out)
{
    *out = otherwise;
    return has(s, suffix) ? read_f32(s, suffix, min, max, out) : OK;
}

/* ---- features that the layer loop lacks ---- */

/* Keys that may be present only with one of two neutral values, except in architectures that have the feature. */
static const struct neutral {
    const char *suffix;
    double a, b;
    const char *what;
    unsigned feature; /* 0: no architecture here has it */
} neutrals[] = {
    {"expert_count", 0, 0, "mixture of experts", 0},
    {"attention.clamp_kqv", 0, 0, "clamping of queries, keys and values", 0},
    {"attn_logit_softcapping", 0, 0, "soft capping of attention scores", ARCH_SOFT_CAPS},
    {"final_logit_softcapping", 0, 0, "soft capping of logits", ARCH_SOFT_CAPS},
    {"attention.max_alibi_bias", 0, 0, "alibi", 0},
    {"logit_scale", 0, 1, "scaled logits", ARCH_SCALES},
    {"residual_scale", 0, 1, "scaled residuals", ARCH_SCALES},
    {"embedding_scale", 0, 1, "scaled embeddings", ARCH_SCALES},
    {"rope.scaling.yarn_log_multiplier", 0, 0, "yarn log multiplier", 0},
    {"nextn_predict_layers", 0, 0, "next-token prediction layers", 0},
};

static enum status refuse_features(const struct source *s, const struct hparams *h)
{
    char key[KEY_CAP];
    double v;
    bool flag;
    for (size_t i = 0; i < sizeof(neutrals) / sizeof(neutrals[0]); i++) {
        const struct neutral *n = &neutrals[i];
        if (!has(s, n->suffix) || (h->features & n->feature))
            continue;
        if (!gguf_f64(s->g, key_of(s, n->suffix, key), &v) || (v != n->a && v != n->b))
            return err_set(s->e, ERR_UNSUPPORTED, "%s is not supported (%s)", n->what, key);
    }
    if (gguf_bool(s->g, key_of(s, "attention.causal", key), &flag) && !flag)
        return err_set(s->e, ERR_UNSUPPORTED, "attention that is not causal is not supported (%s)",
                       key);
    if (gguf_bool(s->g, key_of(s, "use_parallel_residual", key), &flag) && flag)
        return err_set(s->e, ERR_UNSUPPORTED, "parallel residuals are not supported (%s)", key);
    if (!(h->features & (ARCH_LOCAL_LAYERS | ARCH_ALL_WINDOWED)) &&
        has(s, "attention.sliding_window") &&
        (!gguf_f64(s->g, key_of(s, "attention.sliding_window", key), &v) ||
         (v != 0 && v < h->n_ctx_train)))
        return err_set(s->e, ERR_UNSUPPORTED, "sliding-window attention is not supported (%s)",
                       key);
    if (has(s, "rope.dimension_sections"))
        return err_set(s->e, ERR_UNSUPPORTED, "rope in sections is not supported (%s)",
                       key_of(s, "rope.dimension_sections", key));
    return OK;
}

/* ---- shape ---- */

static enum status read_head_dim(const struct source *s, struct hparams *h)
{
    uint32_t v_dim = 0;
    enum status st = OK;
    if (has(s, "attention.key_length"))
        st = read_u32(s, "attention.key_length", HPARAMS_MIN_HEAD_DIM, HPARAMS_MAX_HEAD_DIM,
                      &h->head_dim);
    else if (h->n_embd % h->n_heads)
        return err_set(s->e, ERR_FORMAT, "embedding length %u is not a multiple of %u heads",
                       h->n_embd, h->n_heads);
    else
        h->head_dim = h->n_embd / h->n_heads;
    if (!st)
        st = read_u32_or(s, "attention.value_length", 1, UINT32_MAX, h->head_dim, &v_dim);
    if (st)
        return st;
    if (h->head_dim < HPARAMS_MIN_HEAD_DIM || h->head_dim > HPARAMS_MAX_HEAD_DIM || h->head_dim % 2)
        return err_set(s->e, ERR_FORMAT, "head size %u is not an even number from %d to %d",
                       h->head_dim, HPARAMS_MIN_HEAD_DIM, HPARAMS_MAX_HEAD_DIM);
    if (v_dim != h->head_dim)
        return err_set(s->e, ERR_UNSUPPORTED,
                       "key length %u and value length %u differ: that is not supported",
                       h->head_dim, v_dim);
    return OK;
}

/* Scores are scaled by the inverse square root of this. */
static double default_query_scalar(const struct source *s, const struct hparams *h)
{
    bool by_width = s->arch->width_scaled_layers && h->n_layers == s->arch->width_scaled_layers;
    return by_width ? (double)h->n_embd / h->n_heads : h->head_dim;
}

static enum status read_shape(const struct source *s, struct hparams *h)
{
    enum status st = read_u32(s, "block_count", 1, HPARAMS_MAX_LAYERS, &h->n_layers);
    if (!st)
        st = read_u32(s, "context_length", 1, HPARAMS_MAX_CTX, &h->n_ctx_train);
    if (!st)
        st = read_u32(s, "embedding_length", 1, HPARAMS_MAX_EMBD, &h->n_embd);
    if (!st)
        st = read_u32(s, "feed_forward_length", 1, HPARAMS_MAX_FF, &h->n_ff);
    if (!st)
        st = read_u32(s, "attention.head_count", 1, HPARAMS_MAX_HEADS, &h->n_heads);
    if (!st)
        st = read_u32_or(s, "attention.head_count_kv", 1, HPARAMS_MAX_HEADS, h->n_heads,
                         &h->n_kv_heads);
    if (!st && h->n_heads % h->n_kv_heads)
        return err_set(s->e, ERR_FORMAT, "%u heads are not a multiple of %u kv heads", h->n_heads,
                       h->n_kv_heads);
    if (!st)
        st = read_head_dim(s, h);
    if (!st)
        st = read_f32(s, "attention.layer_norm_rms_epsilon", 1e-12, 0.1, &h->rms_eps);
    if (!st)
        st = read_f32_or(s, "attention.scale", 0, 1e4, 0, &h->attn_scale);
    if (!st && h->attn_scale == 0) /* 0 stands for the usual value */
        h->attn_scale = (float)(1.0 / sqrt(default_query_scalar(s, h)));
    h->embd_scale = h->features & ARCH_SCALED_EMBEDDINGS ? sqrtf((float)h->n_embd) : 1;
    return st;
}

/* Granite's factors; files divide logits by theirs. */
static enum status read_scales(const struct source *s, struct hparams *h)
{
    float divisor = 1;
    h->residual_scale = h->logit_scale = 1;
    if (!(h->features & ARCH_SCALES))
        return OK;
    enum status st = read_f32_or(s, "embedding_scale", 1e-6, 1e6, 1, &h->embd_scale);
    if (!st)
        st = read_f32_or(s, "residual_scale", 1e-6, 1e6, 1, &h->residual_scale);
    if (!st)
        st = read_f32_or(s, "logit_scale", 1e-6, 1e6, 1, &divisor);
    h->logit_scale = 1 / divisor;
    return st;
}

/* The caps of all models of the kind, where a file leaves them out. */
static enum status read_soft_caps(const struct source *s, struct hparams *h)
{
    if (!(h->features & ARCH_SOFT_CAPS))
        return OK;
    enum status st = read_f32_or(s, "attn_logit_softcapping", 0, 1e6, 50, &h->attn_softcap);
    return st ? st : read_f32_or(s, "final_logit_softcapping", 0, 1e6, 30, &h->logit_softcap);
}

/* ---- local layers ---- */

/* The pattern as a number (every n-th layer is global, 0: none is local) or one flag per layer. */
static enum status read_pattern(const struct source *s, struct hparams *h)
{
    static const char suffix[] = "attention.sliding_window_pattern";
    char key[KEY_CAP];
    uint32_t every = s->arch->global_every;
    const struct gguf_value *v = gguf_find(s->g, key_of(s, suffix, key));
    if (v && v->type == GGUF_ARRAY && v->elem_type == GGUF_BOOL) {
        if (v->n != h->n_layers)
            return err_set(s->e, ERR_FORMAT,
                           "%s has %llu elements, must be one for each of %u layers", key,
                           (unsigned long long)v->n, h->n_layers);
        for (uint32_t i = 0; i < h->n_layers; i++)
            h->local[i] = v->data[i] != 0;
        return OK;
    }
    enum status st = read_u32_or(s, suffix, 0, HPARAMS_MAX_LAYERS, every, &every);
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->local[i] = every > 0 && (i + 1) % every != 0;
    return st;
}

static enum status read_common_window(const struct source *s, struct hparams *h)
{
    enum status st = read_u32_or(s, "attention.sliding_window", 0, HPARAMS_MAX_CTX, 0, &h->window);
    if (h->window >= h->n_ctx_train)
        h->window = 0;
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->local[i] = h->window > 0;
    return st;
}

static enum status read_local_layers(const struct source *s, struct hparams *h)
{
    if (h->features & ARCH_ALL_WINDOWED)
        return read_common_window(s, h);
    if (!(h->features & ARCH_LOCAL_LAYERS))
        return OK;
    enum status st = read_u32(s, "attention.sliding_window", 0, HPARAMS_MAX_CTX, &h->window);
    if (!st)
        st = read_f32_or(s, "rope.freq_base_swa", 1.000001, 1e12, (float)s->arch->local_rope_base,
                         &h->rope_base_local);
    return st ? st : read_pattern(s, h);
}

/* The output matrix decides how many tokens there are; every other count must agree. */
static enum status read_vocab(const struct source *s, struct hparams *h)
{
    const struct gguf_tensor *embd = gguf_tensor_find(s->g, "token_embd.weight");
    const struct gguf_value *tokens = gguf_find(s->g, "tokenizer.ggml.tokens");
    uint64_t n_tokens = tokens && tokens->type == GGUF_ARRAY ? tokens->n : 0;
    uint32_t declared = 0;
    enum status st = read_u32_or(s, "vocab_size", 1, UINT32_MAX, 0, &declared);
    if (st)
        return st;
    uint64_t n = embd ? embd->dim[1] : declared ? declared : n_tokens;
    if (n < 1 || n > HPARAMS_MAX_VOCAB)
        return err_set(s->e, ERR_FORMAT, "vocabulary of %llu tokens, must be 1 to %d",
                       (unsigned long long)n, HPARAMS_MAX_VOCAB);
    if (declared && declared != n)
        return err_set(s->e, ERR_FORMAT, "%s.vocab_size is %u but token_embd.weight has %llu rows",
                       s->arch->name, declared, (unsigned long long)n);
    if (n_tokens && n_tokens != n)
        return err_set(s->e, ERR_FORMAT, "the tokenizer has %llu tokens but the model %llu",
                       (unsigned long long)n_tokens, (unsigned long long)n);
    h->n_vocab = (uint32_t)n;
    h->tied_embeddings = gguf_tensor_find(s->g, "output.weight") == NULL;
    return OK;
}

/* ---- rope ---- */

static const struct scaling_name {
    const char *name;
    enum rope_scaling scaling;
} scaling_names[] = {
    {"none", ROPE_SCALING_NONE},
    {"linear", ROPE_SCALING_LINEAR},
    {"llama3", ROPE_SCALING_LLAMA3},
    {"yarn", ROPE_SCALING_YARN},
};

static enum status read_scaling_kind(const struct source *s, struct hparams *h)
{
    char key[KEY_CAP], printed[64];
    struct str name;
    h->scaling = ROPE_SCALING_NONE;
    if (!has(s, "rope.scaling.type")) {
        if (has(s, "rope.scale_linear")) /* spelling of early files */
            h->scaling = ROPE_SCALING_LINEAR;
        else if (has(s, "rope.scaling.factor"))
            return err_set(s->e, ERR_FORMAT, "%s is present without its kind (rope.scaling.type)",
                           key_of(s, "rope.scaling.factor", key));
        return OK;
    }
    if (!gguf_string(s->g, key_of(s, "rope.scaling.type", key), &name))
        return err_set(s->e, ERR_FORMAT, "%s is not a string", key);
    for (size_t i = 0; i < sizeof(scaling_names) / sizeof(scaling_names[0]); i++) {
        if (!str_eq_c(name, scaling_names[i].name))
            continue;
        h->scaling = scaling_names[i].scaling;
        return OK;
    }
    return err_set(s->e, ERR_UNSUPPORTED, "rope scaling kind '%s' is not supported",
                   gguf_printable(name, printed, sizeof(printed)));
}

static enum status read_yarn(const struct source *s, struct hparams *h)
{
    enum status st = read_f32_or(s, "rope.scaling.yarn_ext_factor", 0, 1, 1, &h->yarn_ext_factor);
    if (!st)
        st = read_f32_or(s, "rope.scaling.yarn_beta_fast", 0.001, 1e6, 32, &h->yarn_beta_fast);
    if (!st)
        st = read_f32_or(s, "rope.scaling.yarn_beta_slow", 0.001, 1e6, 1, &h->yarn_beta_slow);
    if (!st)
        st = read_f32_or(s, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, h->scaling_attn_factor,
                         &h->scaling_attn_factor);
    return st;
}

static enum status read_llama3(const struct source *s, struct hparams *h)
{
    enum status st = read_f32_or(s, "rope.scaling.low_freq_factor", 1e-3, 1e6, 1, &h->llama3_low);
    if (!st)
        st = read_f32_or(s, "rope.scaling.high_freq_factor", 1e-3, 1e6, 4, &h->llama3_high);
    if (!st && !(h->llama3_high > h->llama3_low))
        return err_set(s->e, ERR_FORMAT, "rope high_freq_factor %g is not above low_freq_factor %g",
                       (double)h->llama3_high, (double)h->llama3_low);
    return st;
}

static enum status read_scaling(const struct source *s, struct hparams *h)
{
    h->scaling_factor = h->scaling_attn_factor = 1;
    enum status st = read_scaling_kind(s, h);
    if (!st)
        st = read_u32_or(s, "rope.scaling.original_context_length", 1, HPARAMS_MAX_CTX,
                         h->n_ctx_train, &h->scaling_orig_ctx);
    if (st)
        return st;
    bool factors = gguf_tensor_find(s->g, "rope_freqs.weight") != NULL;
    if (h->scaling == ROPE_SCALING_NONE) {
        /* Files of Llama 3.1 and later name no kind: the tensor of divisors is all of the scaling. */
        if (factors)
            h->scaling = ROPE_SCALING_LLAMA3;
        return OK;
    }
    if (!has(s, "rope.scaling.type"))
        return read_f32(s, "rope.scale_linear", 1e-3, 1e6, &h->scaling_factor);
    if (!(h->scaling == ROPE_SCALING_LLAMA3 && factors && !has(s, "rope.scaling.factor")))
        st = read_f32(s, "rope.scaling.factor", h->scaling == ROPE_SCALING_LINEAR ? 1e-3 : 1, 1e6,
                      &h->scaling_factor);
    if (!st)
        st = read_f32_or(s, "rope.scaling.attn_factor", 1e-3, 1e3, 1, &h->scaling_attn_factor);
    if (!st && h->scaling == ROPE_SCALING_YARN)
        st = read_yarn(s, h);
    if (!st && h->scaling == ROPE_SCALING_LLAMA3)
        st = read_llama3(s, h);
    return st;
}

static enum status read_rope(const struct source *s, struct hparams *h)
{
    enum status st =
        read_u32_or(s, "rope.dimension_count", 2, h->head_dim, h->head_dim, &h->rope_dims);
    if (!st && h->rope_dims % 2)
        return err_set(s->e, ERR_FORMAT, "%s.rope.dimension_count is %u, must be even",
                       s->arch->name, h->rope_dims);
    if (!st)
        st = read_f32_or(s, "rope.freq_base", 1.000001, 1e12, 10000, &h->rope_base);
    char key[KEY_CAP];
    bool rotates = true; /* Granite's files may say that no layer does */
    h->unrotated_every = s->arch->unrotated_every;
    if ((h->features & ARCH_SCALES) &&
        gguf_bool(s->g, key_of(s, "rope.scaling.finetuned", key), &rotates) && !rotates)
        h->unrotated_every = 1;
    return st ? st : read_scaling(s, h);
}

/* ---- sampling defaults ---- */

/* Exclusive minimum when above is set. Out of range: absent, with a warning. */
static float read_sampling(const struct gguf *g, const char *key, double min, double max,
                           bool above)
{
    double v;
    if (!gguf_find(g, key))
        return NAN;
    if (gguf_f64(g, key, &v) && v >= min && v <= max && !(above && v == min))
        return (float)v;
    log_warn("%s of the model file is not a number from %g to %g: ignored", key, min, max);
    return NAN;
}

static void read_sampling_defaults(const struct gguf *g, struct hparams *h)
{
    h->sampling_temperature = read_sampling(g, "general.sampling.temp", 0, 100, false);
    h->sampling_top_p = read_sampling(g, "general.sampling.top_p", 0, 1, true);
    h->sampling_min_p = read_sampling(g, "general.sampling.min_p", 0, 1, false);
    float top_k = read_sampling(g, "general.sampling.top_k", 0, HPARAMS_MAX_VOCAB, false);
    h->sampling_top_k = isnan(top_k) ? -1 : (int32_t)top_k;
}

static const struct {
    const char *name, *lacks;
} unserved[] = {
#define UNSERVED(name, lacks) {name, lacks},
#include "engine/model/unserved.def"
#undef UNSERVED
};

/* With what the engine lacks, or with all that it serves. */
static enum status refuse_architecture(struct str name, const char *printed, struct err *e)
{
    char served[256] = "";
    for (size_t i = 0; i < sizeof(unserved) / sizeof(unserved[0]); i++)
        if (str_eq_c(name, unserved[i].name))
            return err_set(e, ERR_UNSUPPORTED,
                           "architecture '%s' is not supported yet: it needs %s", printed,
                           unserved[i].lacks);
    for (size_t i = 0; i < N_ARCHS; i++) {
        size_t n = strlen(served);
        snprintf(served + n, sizeof(served) - n, "%s%s", i ? ", " : "", archs[i].name);
    }
    return err_set(e, ERR_UNSUPPORTED, "architecture '%s' is not supported yet; those that are: %s",
                   printed, served);
}

enum status hparams_read(const struct gguf *g, struct hparams *out, struct err *e)
{
    struct str name;
    if (!gguf_string(g, "general.architecture", &name))
        return err_set(e, ERR_FORMAT, "general.architecture is missing");
    const struct arch *arch = arch_find(name);
    char printed[sizeof(out->architecture)];
    gguf_printable(name, printed, sizeof(printed));
    if (!arch)
        return refuse_architecture(name, printed, e);
    struct hparams h = {.rope_kind = arch->rope_kind, .features = arch->features};
    struct source s = {g, arch, e};
    snprintf(h.architecture, sizeof(h.architecture), "%s", arch->name);
    enum status st = read_shape(&s, &h);
    if (!st)
        st = read_scales(&s, &h);
    if (!st)
        st = read_soft_caps(&s, &h);
    if (!st)
        st = refuse_features(&s, &h);
    if (!st)
        st = read_local_layers(&s, &h);
    if (!st)
        st = read_vocab(&s, &h);
    if (!st)
        st = read_rope(&s, &h);
    if (st)
        return st;
    read_sampling_defaults(g, &h);
    *out = h;
    return OK;
}

/* ---- rope frequencies ---- */

#define TWO_PI 6.283185307179586

static double llama3_scaled(const struct hparams *h, double freq)
{
    double wave = TWO_PI / freq;
    double turns = h->scaling_orig_ctx / wave; /* full turns within the original context */
    if (turns > h->llama3_high)
        return freq;
    if (turns < h->llama3_low)
        return freq / h->scaling_factor;
    double keep = (turns - h->llama3_low) / ((double)h->llama3_high - h->llama3_low);
    return (1 - keep) * freq / h->scaling_factor + keep * freq;
}

/* Pair index (a real number) whose frequency makes `turns` full turns in the original context. */
static double yarn_pair_of(const struct hparams *h, double turns)
{
    return h->rope_dims * log(h->scaling_orig_ctx / (turns * TWO_PI)) / (2 * log(h->rope_base));
}

static double yarn_scaled(const struct hparams *h, uint32_t i, double freq)
{
    double low = fmax(0, floor(yarn_pair_of(h, h->yarn_beta_fast)));
    double high = fmin(h->rope_dims - 1, ceil(yarn_pair_of(h, h->yarn_beta_slow)));
    double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
    double keep = (1 - ramp) * h->yarn_ext_factor;
    return freq / h->scaling_factor * (1 - keep) + freq * keep;
}

void hparams_rope_freqs(const struct hparams *h, const float *freq_factors, double *inv_freq,
                        float *magnitude)
{
    *magnitude = 1;
    for (uint32_t i = 0; i < h->rope_dims / 2; i++) {
        double freq = pow(h->rope_base, -2.0 * i / h->rope_dims);
        if (freq_factors)
            freq /= freq_factors[i];
        if (h->scaling == ROPE_SCALING_LINEAR)
            freq /= h->scaling_factor;
        else if (h->scaling == ROPE_SCALING_LLAMA3 && !freq_factors)
            freq = llama3_scaled(h, freq);
        else if (h->scaling == ROPE_SCALING_YARN)
            freq = yarn_scaled(h, i, freq);
        inv_freq[i] = freq;
    }
    if (h->scaling == ROPE_SCALING_YARN && h->yarn_ext_factor != 0)
        *magnitude = (float)(h->scaling_attn_factor * (1 + 0.1 * log(h->scaling_factor)));
}

void hparams_rope_freqs_local(const struct hparams *h, double *inv_freq)
{
    for (uint32_t i = 0; i < h->rope_dims / 2; i++)
        inv_freq[i] = pow(h->rope_base_local, -2.0 * i / h->rope_dims);
}
