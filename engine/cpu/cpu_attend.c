/* Keys, values and attention on the CPU: rotary embedding, writing to blocks, attention over block tables.
 *
 * Row maps and tiles are made once per step (cpu_attend_begin); a tile is a run of consecutive rows of one
 * sequence that share every key and value loaded. Runs on the engine thread and the workers. */
#include "engine/cpu/cpu_kv.h"
#include "engine/cpu/cpu_step.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* ---- keys and values ---- */

static void rope_angles(uint32_t pos, const double *inv_freq, float magnitude, uint32_t half,
                        float *cos_sin)
{
    for (uint32_t i = 0; i < half; i++) {
        double angle = (double)pos * inv_freq[i];
        cos_sin[i] = (float)cos(angle) * magnitude;
        cos_sin[half + i] = (float)sin(angle) * magnitude;
    }
}

void cpu_rope_angles(struct cpu_backend *be, uint32_t row)
{
    const struct cpu_model *m = be->m;
    float *cos_sin = be->cos_sin + (size_t)row * be->angles_width;
    rope_angles(be->row_pos[row], m->inv_freq, m->rope_magnitude, m->h.rope_dims / 2, cos_sin);
    if (m->inv_freq_local)
        rope_angles(be->row_pos[row], m->inv_freq_local, 1, m->h.rope_dims / 2,
                    cos_sin + m->h.rope_dims);
}

static void add_bias(const struct kernels *k, float *x, const float *bias, uint32_t n)
{
    if (bias)
        k->add(x, bias, n);
}

/* RMSNorm of each head, if the model has one. */
static void norm_heads(const struct cpu_backend *be, float *x, const float *weight,
                       uint32_t n_heads)
{
    const struct hparams *h = &be->m->h;
    for (uint32_t i = 0; weight && i < n_heads; i++, x += h->head_dim)
        be->k->rms_norm(x, weight, h->rms_eps, h->head_dim, x);
}

/* As described in layout.c: the quantised types hold rotated keys and values, so queries are rotated too, and
 * attention's sums are rotated back. */
static void rotate_heads(const struct cpu_backend *be, enum kv_dtype type, float *x,
                         uint32_t n_heads)
{
    const uint32_t dim = be->m->h.head_dim;
    for (uint32_t i = 0; kv_dtype_quantised(type) && i < n_heads; i++, x += dim)
        be->k->kv_rotate(x, dim);
}

static void rope_kv_item(void *ctx, uint32_t row, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    (void)worker;
    const struct hparams *h = &be->m->h;
    const struct cpu_layer *l = &be->m->layer[be->layer];
    const struct kv_layout *kv = &be->base.layout;
    float *q = be->qkv + (size_t)row * be->qkv_width;
    float *k = q + (size_t)h->n_heads * h->head_dim, *v = k + (size_t)h->n_kv_heads * h->head_dim;
    bool local = be->m->inv_freq_local && h->local[be->layer], neox = h->rope_kind == ROPE_NEOX;
    const float *angles = be->cos_sin + (size_t)row * be->angles_width + (local ? h->rope_dims : 0);
    if (!hparams_rotates(h, be->layer))
        angles = be->m->no_rotation;
    add_bias(be->k, q, l->q_bias, h->n_heads * h->head_dim);
    add_bias(be->k, k, l->k_bias, h->n_kv_heads * h->head_dim);
    add_bias(be->k, v, l->v_bias, h->n_kv_heads * h->head_dim);
    norm_heads(be, q, l->q_norm, h->n_heads);
    norm_heads(be, k, l->k_norm, h->n_kv_heads);
    for (uint32_t i = 0; i < h->n_heads; i++)
        be->k->rope(q + (size_t)i * h->head_dim, angles, h->head_dim, h->rope_dims, neox,
                    h->attn_scale);
    for (uint32_t i = 0; i < h->n_kv_heads; i++)
        be->k->rope(k + (size_t)i * h->head_dim, angles, h->head_dim, h->rope_dims, neox, 1);
    rotate_heads(be, kv->dtype_k, q, h->n_heads);
    rotate_heads(be, kv->dtype_k, k, h->n_kv_heads);
    rotate_heads(be, kv->dtype_v, v, h->n_kv_heads);
    uint32_t pos = be->row_pos[row];
    uint32_t group = kv->layer_group[be->layer];
    uint8_t *block =
        kv_block_ptr(be->base.kv, group, be->row_span[row]->table[group][pos / kv->n_slots]);
    for (uint32_t i = 0; i < h->n_kv_heads; i++) {
        uint8_t *unit = block + kv_unit_offset(kv, be->layer, i);
        if (!be->k->kv_store(kv, group, unit, pos % kv->n_slots, k + (size_t)i * h->head_dim,
                             v + (size_t)i * h->head_dim))
            be->row_spoilt[row] = true;
    }
}

void cpu_op_rope_kv(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    be->layer = layer;
    pool_run(be->pool, rope_kv_item, be, be->n_rows);
}

/* ---- attention ---- */

static void tiles_of_spans(struct cpu_backend *be)
{
    uint32_t most = attend_rows(be->m->h.n_heads / be->m->h.n_kv_heads);
    be->n_tiles = 0;
    for (uint32_t i = 0; i < be->b->n_spans; i++) {
        const struct batch_span *s = &be->b->span[i];
        for (uint32_t r = 0; r < s->n_rows; r += most) {
            uint32_t n = s->n_rows - r < most ? s->n_rows - r : most;
            be->tile[be->n_tiles++] = (struct attend_tile){.span = s,
                                                           .row0 = s->row0 + r,
                                                           .out0 = s->row0 + r,
                                                           .n_rows = n,
                                                           .pos0 = s->pos0 + r};
        }
    }
}

void cpu_op_only_outs(void *step)
{
    struct cpu_backend *be = step;
    const struct batch *b = be->b;
    for (uint32_t i = 0; i < b->n_outs; i++) {
        uint32_t row = b->out[i].row; /* ascending, so i <= row: moving up is safe */
        be->tile[i] = (struct attend_tile){.span = be->row_span[row],
                                           .row0 = row,
                                           .out0 = i,
                                           .n_rows = 1,
                                           .pos0 = be->row_pos[row]};
        if (i != row)
            memcpy(be->x + (size_t)i * be->embd_pad, be->x + (size_t)row * be->embd_pad,
                   be->embd_pad * sizeof(float));
    }
    be->n_tiles = b->n_outs;
    be->n_rows = b->n_outs;
}

static bool attention_fills_blocks(const struct hparams *h)
{
    return h->n_heads / h->n_kv_heads * h->head_dim % PACK_BLOCK == 0;
}

static void attention_item(void *ctx, uint32_t item, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    const struct hparams *h = &be->m->h;
    const struct attend_tile *t = &be->tile[item / h->n_kv_heads];
    uint32_t head = item % h->n_kv_heads, group = h->n_heads / h->n_kv_heads;
    uint32_t width = group * h->head_dim, column = head * width;
    const struct kv_layout *kv = &be->base.layout;
    uint32_t kv_group = kv->layer_group[be->layer];
    struct attend a = {.layout = kv,
                       .kv = &kv->group[kv_group],
                       .unit = kv_block_ptr(be->base.kv, kv_group, 0) +
                               kv_unit_offset(kv, be->layer, head),
                       .block_bytes = kv->group[kv_group].block_bytes,
                       .table = t->span->table[kv_group],
                       .softcap = h->attn_softcap,
                       .group = group,
                       .pos0 = t->pos0,
                       .n_rows = t->n_rows,
                       .q = be->qkv + (size_t)t->row0 * be->qkv_width + column,
                       .q_stride = be->qkv_width,
                       .out = be->attn + (size_t)t->out0 * be->attn_pad + column,
                       .out_stride = be->attn_pad,
                       .scratch = be->worker[worker].attend};
    cpu_stage_attend(be, t->span, head, &a);
    be->k->attend(&a);
    for (uint32_t r = 0; r < t->n_rows; r++)
        rotate_heads(be, kv->dtype_v, a.out + r * a.out_stride, group);
    if (!attention_fills_blocks(h))
        return;
    unsigned forms = act_forms_of(be, &be->m->layer[be->layer].attn_out);
    for (uint32_t r = 0; r < t->n_rows; r++)
        act_put(be->k, &be->attn_act, forms, t->out0 + r, column / PACK_BLOCK,
                a.out + r * a.out_stride, width);
}

static void attn_act_item(void *ctx, uint32_t row, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    (void)worker;
    act_put(be->k, &be->attn_act, act_forms_of(be, &be->m->layer[be->layer].attn_out), row, 0,
            be->attn + (size_t)row * be->attn_pad, be->attn_pad);
}

void cpu_op_attention(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    be->layer = layer;
    cpu_stage_layer(be);
    pool_run(be->pool, attention_item, be, be->n_tiles * be->m->h.n_kv_heads);
    if (!attention_fills_blocks(&be->m->h))
        pool_run(be->pool, attn_act_item, be, be->n_rows);
}

/* ---- the step ---- */

void cpu_attend_begin(struct cpu_backend *be)
{
    struct batch *b = be->b;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        struct batch_span *s = &b->span[i];
        DCHECK(s->n_rows >= 1 && s->row0 + s->n_rows <= b->n_rows);
        s->finite = true; /* until cpu_attend_end */
        s->lost = false;
        for (uint32_t r = 0; r < s->n_rows; r++) {
            be->row_pos[s->row0 + r] = s->pos0 + r;
            be->row_span[s->row0 + r] = s;
            be->row_spoilt[s->row0 + r] = false;
        }
    }
    tiles_of_spans(be);
    cpu_stage_begin(be);
}

void cpu_attend_end(struct cpu_backend *be)
{
    for (uint32_t row = 0; row < be->b->n_rows; row++) {
        if (be->row_spoilt[row])
            be->row_span[row]->finite = false;
    }
    cpu_stage_end(be);
}
