/* Tensor directory -> pointers by role; see weights.h.
 *
 * One table names every tensor of the architecture with its shape; binding walks it, so
 * missing, misshaped and unused tensors all come from the same list. */
#include "engine/model/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum dim {
    DIM_NONE,
    DIM_EMBD,
    DIM_FF,
    DIM_Q,
    DIM_KV,
    DIM_HEAD,
    DIM_VOCAB,
    DIM_ROPE_HALF,
    DIM_QKV,
    DIM_GATE_UP
};

enum tensor_flag {
    NEEDED = 1,
    OPTIONAL = 0,
    MUST_BE_F32 = 2 /* vectors: used as stored in the file */
};

struct role {
    const char *name; /* without the prefix blk.N. for tensors of a layer */
    size_t offset; /* of the pointer in struct layer_weights or struct weights */
    enum dim dim0, dim1;
    unsigned flags;
    unsigned feature; /* only architectures with this feature have it; 0: all */
    unsigned unless; /* architectures with this feature do not have it; 0: all have it */
};

#define LAYER(member) offsetof(struct layer_weights, member)
#define MODEL(member) offsetof(struct weights, member)

static const struct role layer_roles[] = {
    {"attn_norm.weight", LAYER(attn_norm), DIM_EMBD, DIM_NONE, NEEDED | MUST_BE_F32, 0, 0},
    {"attn_q.weight", LAYER(q), DIM_EMBD, DIM_Q, NEEDED, 0, ARCH_FUSED_ROWS},
    {"attn_k.weight", LAYER(k), DIM_EMBD, DIM_KV, NEEDED, 0, ARCH_FUSED_ROWS},
    {"attn_v.weight", LAYER(v), DIM_EMBD, DIM_KV, NEEDED, 0, ARCH_FUSED_ROWS},
    {"attn_qkv.weight", LAYER(q), DIM_EMBD, DIM_QKV, NEEDED, ARCH_FUSED_ROWS, 0},
    {"attn_q.bias", LAYER(q_bias), DIM_Q, DIM_NONE, OPTIONAL | MUST_BE_F32, 0, 0},
    {"attn_k.bias", LAYER(k_bias), DIM_KV, DIM_NONE, OPTIONAL | MUST_BE_F32, 0, 0},
    {"attn_v.bias", LAYER(v_bias), DIM_KV, DIM_NONE, OPTIONAL | MUST_BE_F32, 0, 0},
    {"attn_q_norm.weight", LAYER(q_norm), DIM_HEAD, DIM_NONE, NEEDED | MUST_BE_F32, ARCH_QK_NORM,
     0},
    {"attn_k_norm.weight", LAYER(k_norm), DIM_HEAD, DIM_NONE, NEEDED | MUST_BE_F32, ARCH_QK_NORM,
     0},
    {"attn_output.weight", LAYER(attn_out), DIM_Q, DIM_EMBD, NEEDED, 0, 0},
    {"post_attention_norm.weight", LAYER(attn_post_norm), DIM_EMBD, DIM_NONE, NEEDED | MUST_BE_F32,
     ARCH_POST_NORM, 0},
    {"ffn_norm.weight", LAYER(ffn_norm), DIM_EMBD, DIM_NONE, NEEDED | MUST_BE_F32, 0, 0},
    {"ffn_gate.weight", LAYER(gate), DIM_EMBD, DIM_FF, NEEDED, 0, ARCH_FUSED_ROWS},
    {"ffn_up.weight", LAYER(up), DIM_EMBD, DIM_FF, NEEDED, 0, ARCH_FUSED_ROWS},
    {"ffn_up.weight", LAYER(gate), DIM_EMBD, DIM_GATE_UP, NEEDED, ARCH_FUSED_ROWS, 0},
    {"ffn_down.weight", LAYER(down), DIM_FF, DIM_EMBD, NEEDED, 0, 0},
    {"post_ffw_norm.weight", LAYER(ffn_post_norm), DIM_EMBD, DIM_NONE, NEEDED | MUST_BE_F32,
     ARCH_POST_NORM, 0},
};

static const struct role model_roles[] = {
    {"token_embd.weight", MODEL(token_embd), DIM_EMBD, DIM_VOCAB, NEEDED, 0, 0},
    {"output_norm.weight", MODEL(output_norm), DIM_EMBD, DIM_NONE, NEEDED | MUST_BE_F32, 0, 0},
    {"output.weight", MODEL(output), DIM_EMBD, DIM_VOCAB, OPTIONAL, 0, 0},
    {"rope_freqs.weight", MODEL(rope_freqs), DIM_ROPE_HALF, DIM_NONE, OPTIONAL | MUST_BE_F32, 0, 0},
};

enum {
    N_LAYER_ROLES = sizeof(layer_roles) / sizeof(layer_roles[0]),
    N_MODEL_ROLES = sizeof(model_roles) / sizeof(model_roles[0]),
    NAME_CAP = 96
};

struct binder {
    const struct gguf *g;
    const struct hparams *h;
    struct buf *problems;
    struct err *e;
    enum status status;
    uint32_t n_problems;
    bool *used; /* [n_tensors] */
};

enum { MAX_LISTED = 500 };

/* Adds the line to the list; the first fatal one becomes the error. */
__attribute__((format(printf, 3, 4))) static void problem(struct binder *b, bool fatal,
                                                          const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (b->n_problems++ < MAX_LISTED)
        buf_printf(b->problems, "%s\n", line);
    if (fatal && !b->status)
        b->status = err_set(b->e, ERR_FORMAT, "%s", line);
}

static uint64_t dim_of(const struct hparams *h, enum dim dim)
{
    switch (dim) {
    case DIM_EMBD:
        return h->n_embd;
    case DIM_FF:
        return h->n_ff;
    case DIM_Q:
        return (uint64_t)h->n_heads * h->head_dim;
    case DIM_KV:
        return (uint64_t)h->n_kv_heads * h->head_dim;
    case DIM_HEAD:
        return h->head_dim;
    case DIM_VOCAB:
        return h->n_vocab;
    case DIM_ROPE_HALF:
        return h->rope_dims / 2;
    case DIM_QKV:
        return ((uint64_t)h->n_heads + 2 * (uint64_t)h->n_kv_heads) * h->head_dim;
    case DIM_GATE_UP:
        return 2 * (uint64_t)h->n_ff;
    case DIM_NONE:
        break;
    }
    return 1;
}

static void check_tensor(struct binder *b, const struct gguf_tensor *t, const struct role *role,
                         const char *name)
{
    uint64_t want0 = dim_of(b->h, role->dim0), want1 = dim_of(b->h, role->dim1);
    if (t->dim[0] != want0 || t->dim[1] != want1 || t->dim[2] != 1 || t->dim[3] != 1)
        problem(b, true,
                "tensor %s has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                "], must be [%" PRIu64 ", %" PRIu64 "]",
                name, t->dim[0], t->dim[1], t->dim[2], t->dim[3], want0, want1);
    if (!quant_supported(t->type))
        problem(b, true, "tensor %s has type %s (%u), which is not supported", name,
                quant_name(t->type), (unsigned)t->type);
    else if ((role->flags & MUST_BE_F32) && t->type != QUANT_F32)
        problem(b, true, "tensor %s has type %s, must be F32", name, quant_name(t->type));
}

static void bind_role(struct binder *b, const struct role *role, const char *name, void *base)
{
    if ((role->feature && !(b->h->features & role->feature)) || (b->h->features & role->unless))
        return;
    const struct gguf_tensor *t = gguf_tensor_find(b->g, name);
    const struct gguf_tensor **slot =
        (const struct gguf_tensor **)(void *)((char *)base + role->offset);
    *slot = t;
    if (!t) {
        if (role->flags & NEEDED)
            problem(b, true, "tensor %s is missing", name);
        return;
    }
    b->used[t - b->g->tensor] = true;
    check_tensor(b, t, role, name);
}

/* Divisors of frequencies: a zero or a NaN would reach every position. */
static void check_rope_freqs(struct binder *b, const struct gguf_tensor *t)
{
    if (!t || t->type != QUANT_F32 || t->dim[0] != dim_of(b->h, DIM_ROPE_HALF))
        return;
    for (uint64_t i = 0; i < t->dim[0]; i++) {
        float f;
        memcpy(&f, t->data + 4 * i, 4);
        if (!(f > 0 && isfinite(f))) {
            problem(b, true, "tensor rope_freqs.weight holds %g at %" PRIu64 ", must be above 0",
                    (double)f, i);
            return;
        }
    }
}

/* Early converters stored the rotation table, which is recomputed here. Any other tensor without
 * a role would change what the model computes. */
static bool harmless(struct str name)
{
    struct str suffix = STR_LIT(".attn_rot_embd.weight");
    return name.len > suffix.len &&
           memcmp(name.ptr + name.len - suffix.len, suffix.ptr, suffix.len) == 0;
}

static void list_unused(struct binder *b)
{
    char name[NAME_CAP];
    for (uint64_t i = 0; i < b->g->n_tensors; i++) {
        const struct gguf_tensor *t = &b->g->tensor[i];
        if (!b->used[i])
            problem(b, !harmless(t->name), "tensor %s is not used by architecture %s",
                    gguf_printable(t->name, name, sizeof(name)), b->h->architecture);
    }
}

/* The next n rows of a fused tensor, from row *at on. */
static const struct gguf_tensor *take_rows(const struct gguf_tensor *t, uint64_t *at, uint64_t n,
                                           struct gguf_tensor *part)
{
    size_t row_bytes = quant_row_bytes(t->type, t->dim[0]);
    *part = *t;
    part->dim[1] = n;
    part->data = t->data + *at * row_bytes;
    part->n_bytes = n * row_bytes;
    *at += n;
    return part;
}

static void split_fused(const struct hparams *h, struct layer_weights *l, struct gguf_tensor *part)
{
    const struct gguf_tensor *qkv = l->q, *gate_up = l->gate;
    uint64_t at = 0;
    l->q = take_rows(qkv, &at, dim_of(h, DIM_Q), &part[0]);
    l->k = take_rows(qkv, &at, dim_of(h, DIM_KV), &part[1]);
    l->v = take_rows(qkv, &at, dim_of(h, DIM_KV), &part[2]);
    at = 0;
    l->gate = take_rows(gate_up, &at, h->n_ff, &part[3]);
    l->up = take_rows(gate_up, &at, h->n_ff, &part[4]);
}

static void bind_all(struct binder *b, struct weights *w)
{
    char name[NAME_CAP];
    for (size_t i = 0; i < N_MODEL_ROLES; i++)
        bind_role(b, &model_roles[i], model_roles[i].name, w);
    if (!w->output)
        w->output = w->token_embd;
    check_rope_freqs(b, w->rope_freqs);
    for (uint32_t layer = 0; layer < b->h->n_layers; layer++) {
        for (size_t i = 0; i < N_LAYER_ROLES; i++) {
            snprintf(name, sizeof(name), "blk.%u.%s", layer, layer_roles[i].name);
            bind_role(b, &layer_roles[i], name, &w->layer[layer]);
        }
    }
    list_unused(b);
}

enum status weights_bind(const struct gguf *g, const struct hparams *h, struct weights *out,
                         struct buf *problems, struct err *e)
{
    struct weights w = {.layer = mem_zalloc(mem_mul(h->n_layers, sizeof(*w.layer)))};
    struct binder b = {
        .g = g, .h = h, .problems = problems, .e = e, .used = mem_zalloc((size_t)g->n_tensors)};
    if (g->n_tensors == 0)
        problem(&b, true, "the file holds no tensors (a vocabulary only)");
    else
        bind_all(&b, &w);
    if (b.n_problems > MAX_LISTED)
        buf_printf(problems, "and %u more\n", b.n_problems - MAX_LISTED);
    mem_free(b.used);
    if (!b.status && (h->features & ARCH_FUSED_ROWS)) {
        w.part = mem_zalloc(mem_mul(mem_mul(h->n_layers, WEIGHTS_PARTS), sizeof(*w.part)));
        for (uint32_t i = 0; i < h->n_layers; i++)
            split_fused(h, &w.layer[i], &w.part[i * WEIGHTS_PARTS]);
    }
    if (b.status) {
        weights_release(&w);
        return b.status;
    }
    *out = w;
    return OK;
}

void weights_release(struct weights *w)
{
    mem_free(w->layer);
    mem_free(w->part);
    *w = (struct weights){0};
}
