/* The operations of forward.h on the CPU: each is one run of the pool over slices of its work.
 *
 * A matrix phase is cut into items of (128 rows) x (a few chunks of 32 outputs); an item computes tiles
 * of up to 64 rows x 32 outputs into its worker's scratch and finishes them there (residual sum,
 * SwiGLU and quantising, copy). No result depends on how items are cut: every output is summed along
 * its inputs in one order (kernels.h). Engine thread, workers inside. */
#include "engine/cpu/cpu_step.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* ---- activations ---- */

void act_init(struct act *a, unsigned forms, uint32_t n_in, uint32_t max_rows)
{
    *a = (struct act){.forms = forms, .n_blocks = (n_in + PACK_BLOCK - 1) / PACK_BLOCK};
    for (int f = 0; f < ACT_FORMS; f++) {
        if (!(forms >> f & 1))
            continue;
        a->stride[f] = mem_mul(a->n_blocks, act_block_bytes[f]);
        a->form[f] = mem_zalloc(mem_mul(max_rows, a->stride[f]));
    }
}

void act_release(struct act *a)
{
    for (int f = 0; f < ACT_FORMS; f++)
        mem_free(a->form[f]);
    *a = (struct act){0};
}

unsigned act_forms(int activations, const struct packed *const *w, uint32_t n)
{
    unsigned forms = 0;
    for (uint32_t i = 0; i < n; i++)
        forms |= 1u << kernels_form(w[i]->kind, activations);
    return forms;
}

/* Quantises n floats (a multiple of 32) into a row of a, from block0 on, in the forms asked for. */
static void act_put(const struct kernels *k, const struct act *a, unsigned forms, uint32_t row,
                    uint32_t block0, const float *x, uint32_t n)
{
    for (int f = 0; f < ACT_FORMS; f++)
        if (forms >> f & 1)
            k->quantise[f](x, n, a->form[f] + row * a->stride[f] + block0 * act_block_bytes[f]);
}

/* ---- matrix phases ---- */

struct phase;
/* Takes the finished tile: outputs [out0, out0 + n) of matrix `index` for rows [row0, row0 + n_rows);
 * tile is [n_rows][CHUNK_ROWS]. */
typedef void phase_finish(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                          uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0,
                          uint32_t n);

struct phase {
    struct cpu_backend *be;
    const struct act *act;
    const struct packed *w[MATRICES_A_PHASE];
    const struct packed *pair; /* a second matrix computed with w[0] (gate with up), or NULL */
    uint32_t n_matrices;
    uint32_t row0, n_rows; /* rows of act */
    uint32_t item_chunks; /* chunks of 32 outputs an item */
    uint32_t first_item[MATRICES_A_PHASE + 1]; /* within one block of rows */
    phase_finish *finish;
};

static void tile_compute(const struct phase *ph, const struct packed *w, uint32_t row0,
                         uint32_t n_rows, uint32_t group0, float *tile)
{
    const struct cpu_backend *be = ph->be;
    enum act_form form = kernels_form(w->kind, be->activations);
    kernel_matmul *matmul = be->k->matmul[w->kind][form];
    const uint8_t *act = ph->act->form[form] + row0 * ph->act->stride[form];
    uint32_t n_groups = w->n_groups - group0;
    if (n_groups > CHUNK_ROWS / PACK_ROWS)
        n_groups = CHUNK_ROWS / PACK_ROWS;
    else if (n_groups < CHUNK_ROWS / PACK_ROWS)
        memset(tile, 0, (size_t)n_rows * CHUNK_ROWS * sizeof *tile);
    matmul(w->data + group0 * w->group_bytes, w->group_bytes, n_groups, w->n_blocks, act,
           ph->act->stride[form], n_rows, tile, CHUNK_ROWS);
}

static void phase_item(void *ctx, uint32_t item, uint32_t worker)
{
    const struct phase *ph = ctx;
    struct worker_scratch *ws = &ph->be->worker[worker];
    uint32_t per_rows = ph->first_item[ph->n_matrices];
    uint32_t block_row = item / per_rows * ITEM_TOKENS, index = 0;
    item %= per_rows;
    while (item >= ph->first_item[index + 1])
        index++;
    const struct packed *w = ph->w[index];
    uint32_t chunk = (item - ph->first_item[index]) * ph->item_chunks;
    uint32_t row_end = block_row + ITEM_TOKENS < ph->n_rows ? block_row + ITEM_TOKENS : ph->n_rows;
    for (uint32_t c = 0; c < ph->item_chunks; c++) {
        uint32_t out0 = (chunk + c) * CHUNK_ROWS;
        if (out0 >= w->n_rows)
            return;
        uint32_t n = w->n_rows - out0 < CHUNK_ROWS ? w->n_rows - out0 : CHUNK_ROWS;
        for (uint32_t r = block_row; r < row_end; r += TILE_TOKENS) {
            uint32_t n_rows = row_end - r < TILE_TOKENS ? row_end - r : TILE_TOKENS;
            tile_compute(ph, w, ph->row0 + r, n_rows, out0 / PACK_ROWS, ws->tile[0]);
            if (ph->pair)
                tile_compute(ph, ph->pair, ph->row0 + r, n_rows, out0 / PACK_ROWS, ws->tile[1]);
            ph->finish(ph->be, ph, index, worker, ph->row0 + r, n_rows, out0, n);
        }
    }
}

static void phase_run(struct phase *ph)
{
    enum { ITEMS_A_THREAD = 16 };
    uint32_t n_chunks = 0, n_items = 0;
    for (uint32_t i = 0; i < ph->n_matrices; i++)
        n_chunks += (ph->w[i]->n_rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    ph->item_chunks = n_chunks / (pool_threads(ph->be->pool) * ITEMS_A_THREAD);
    if (ph->item_chunks < 1)
        ph->item_chunks = 1;
    for (uint32_t i = 0; i < ph->n_matrices; i++) {
        uint32_t chunks = (ph->w[i]->n_rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
        ph->first_item[i] = n_items;
        n_items += (chunks + ph->item_chunks - 1) / ph->item_chunks;
    }
    ph->first_item[ph->n_matrices] = n_items;
    uint32_t row_blocks = (ph->n_rows + ITEM_TOKENS - 1) / ITEM_TOKENS;
    pool_run(ph->be->pool, phase_item, ph, n_items * row_blocks);
}

/* ---- rows: embedding, norms ---- */

static void rope_angles(const struct cpu_model *m, uint32_t pos, float *cos_sin)
{
    uint32_t half = m->h.rope_dims / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = (double)pos * m->inv_freq[i];
        cos_sin[i] = (float)cos(angle) * m->rope_magnitude;
        cos_sin[half + i] = (float)sin(angle) * m->rope_magnitude;
    }
}

static void embed_item(void *ctx, uint32_t row, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    float *scratch = be->worker[worker].row;
    cpu_model_embedding(be->m, (uint32_t)be->b->token[row], scratch);
    memcpy(be->x + (size_t)row * be->embd_pad, scratch, be->m->h.n_embd * sizeof(float));
    rope_angles(be->m, be->row_pos[row], be->cos_sin + (size_t)row * be->m->h.rope_dims);
}

static void op_embed(void *step)
{
    struct cpu_backend *be = step;
    pool_run(be->pool, embed_item, be, be->n_rows);
}

struct norm_run {
    struct cpu_backend *be;
    const float *weight;
    unsigned forms; /* that the next matrices take */
};

static void norm_item(void *ctx, uint32_t row, uint32_t worker)
{
    const struct norm_run *run = ctx;
    struct cpu_backend *be = run->be;
    float *scratch = be->worker[worker].row;
    uint32_t n = be->m->h.n_embd;
    be->k->rms_norm(be->x + (size_t)row * be->embd_pad, run->weight, be->m->h.rms_eps, n, scratch);
    memset(scratch + n, 0, (be->embd_pad - n) * sizeof *scratch);
    act_put(be->k, &be->embd_act, run->forms, row, 0, scratch, be->embd_pad);
}

static void norm(struct cpu_backend *be, const float *weight, const struct packed *const *next,
                 uint32_t n_next)
{
    struct norm_run run = {
        .be = be, .weight = weight, .forms = act_forms(be->activations, next, n_next)};
    pool_run(be->pool, norm_item, &run, be->n_rows);
}

static void op_attn_norm(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    const struct cpu_layer *l = &be->m->layer[layer];
    norm(be, l->attn_norm, (const struct packed *[]){&l->q, &l->k, &l->v}, 3);
}

static void op_ffn_norm(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    const struct cpu_layer *l = &be->m->layer[layer];
    norm(be, l->ffn_norm, (const struct packed *[]){&l->gate, &l->up}, 2);
}

/* ---- q, k, v ---- */

static void finish_qkv(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                       uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0, uint32_t n)
{
    const float *tile = be->worker[worker].tile[0];
    uint32_t column = out0;
    for (uint32_t i = 0; i < index; i++)
        column += ph->w[i]->n_rows;
    for (uint32_t r = 0; r < n_rows; r++)
        memcpy(be->qkv + (size_t)(row0 + r) * be->qkv_width + column, tile + r * CHUNK_ROWS,
               n * sizeof *tile);
}

static void op_qkv(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    const struct cpu_layer *l = &be->m->layer[layer];
    struct phase ph = {.be = be,
                       .act = &be->embd_act,
                       .w = {&l->q, &l->k, &l->v},
                       .n_matrices = 3,
                       .n_rows = be->n_rows,
                       .finish = finish_qkv};
    phase_run(&ph);
}

static void add_bias(const struct kernels *k, float *x, const float *bias, uint32_t n)
{
    if (bias)
        k->add(x, bias, n);
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
    const float *angles = be->cos_sin + (size_t)row * h->rope_dims;
    bool neox = h->rope_kind == ROPE_NEOX;
    add_bias(be->k, q, l->q_bias, h->n_heads * h->head_dim);
    add_bias(be->k, k, l->k_bias, h->n_kv_heads * h->head_dim);
    add_bias(be->k, v, l->v_bias, h->n_kv_heads * h->head_dim);
    for (uint32_t i = 0; i < h->n_heads; i++)
        be->k->rope(q + (size_t)i * h->head_dim, angles, h->head_dim, h->rope_dims, neox,
                    h->attn_scale);
    uint32_t pos = be->row_pos[row];
    uint8_t *block = kv_block_ptr(be->base.arena, be->row_table[row][pos / kv->n_slots]);
    for (uint32_t i = 0; i < h->n_kv_heads; i++) {
        be->k->rope(k + (size_t)i * h->head_dim, angles, h->head_dim, h->rope_dims, neox, 1);
        be->k->kv_store(kv, block + kv_k_offset(kv, be->layer, i), pos % kv->n_slots,
                        k + (size_t)i * h->head_dim, v + (size_t)i * h->head_dim);
    }
}

static void op_rope_kv(void *step, uint32_t layer)
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
            be->tile[be->n_tiles++] = (struct attend_tile){.table = s->table,
                                                           .row0 = s->row0 + r,
                                                           .out0 = s->row0 + r,
                                                           .n_rows = n,
                                                           .pos0 = s->pos0 + r};
        }
    }
}

static void op_only_outs(void *step)
{
    struct cpu_backend *be = step;
    const struct batch *b = be->b;
    for (uint32_t i = 0; i < b->n_outs; i++) {
        uint32_t row = b->out[i].row; /* ascending, so i <= row: moving up is safe */
        be->tile[i] = (struct attend_tile){.table = be->row_table[row],
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

/* Forms that one matrix takes. */
static unsigned forms_of(const struct cpu_backend *be, const struct packed *w)
{
    return 1u << kernels_form(w->kind, be->activations);
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
    struct attend a = {.layout = &be->base.layout,
                       .arena = be->base.arena->base,
                       .table = t->table,
                       .layer = be->layer,
                       .kv_head = head,
                       .group = group,
                       .pos0 = t->pos0,
                       .n_rows = t->n_rows,
                       .q = be->qkv + (size_t)t->row0 * be->qkv_width + column,
                       .q_stride = be->qkv_width,
                       .out = be->attn + (size_t)t->out0 * be->attn_pad + column,
                       .out_stride = be->attn_pad,
                       .scratch = be->worker[worker].attend};
    be->k->attend(&a);
    if (!attention_fills_blocks(h))
        return;
    unsigned forms = forms_of(be, &be->m->layer[be->layer].attn_out);
    for (uint32_t r = 0; r < t->n_rows; r++)
        act_put(be->k, &be->attn_act, forms, t->out0 + r, column / PACK_BLOCK,
                a.out + r * a.out_stride, width);
}

static void attn_act_item(void *ctx, uint32_t row, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    (void)worker;
    act_put(be->k, &be->attn_act, forms_of(be, &be->m->layer[be->layer].attn_out), row, 0,
            be->attn + (size_t)row * be->attn_pad, be->attn_pad);
}

static void op_attention(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    be->layer = layer;
    pool_run(be->pool, attention_item, be, be->n_tiles * be->m->h.n_kv_heads);
    if (!attention_fills_blocks(&be->m->h))
        pool_run(be->pool, attn_act_item, be, be->n_rows);
}

/* ---- projections onto the residual ---- */

static void finish_residual(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                            uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0,
                            uint32_t n)
{
    (void)ph;
    (void)index;
    const float *tile = be->worker[worker].tile[0];
    for (uint32_t r = 0; r < n_rows; r++)
        be->k->add(be->x + (size_t)(row0 + r) * be->embd_pad + out0, tile + r * CHUNK_ROWS, n);
}

static void project(struct cpu_backend *be, const struct packed *w, const struct act *act)
{
    struct phase ph = {.be = be,
                       .act = act,
                       .w = {w},
                       .n_matrices = 1,
                       .n_rows = be->n_rows,
                       .finish = finish_residual};
    phase_run(&ph);
}

static void op_attn_out(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    project(be, &be->m->layer[layer].attn_out, &be->attn_act);
}

static void op_ffn_down(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    project(be, &be->m->layer[layer].down, &be->ff_act);
}

/* ---- gate and up ---- */

static void finish_gate_up(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                           uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0,
                           uint32_t n)
{
    (void)ph;
    (void)index;
    (void)n; /* outputs beyond the matrix are 0 in both tiles */
    float *gate = be->worker[worker].tile[0];
    be->k->swiglu(gate, be->worker[worker].tile[1], n_rows * CHUNK_ROWS, gate);
    unsigned forms = forms_of(be, &be->m->layer[be->layer].down);
    for (uint32_t r = 0; r < n_rows; r++)
        act_put(be->k, &be->ff_act, forms, row0 + r, out0 / PACK_BLOCK, gate + r * CHUNK_ROWS,
                CHUNK_ROWS);
}

static void op_ffn_gate_up(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    struct phase ph = {.be = be,
                       .act = &be->embd_act,
                       .w = {&be->m->layer[layer].gate},
                       .pair = &be->m->layer[layer].up,
                       .n_matrices = 1,
                       .n_rows = be->n_rows,
                       .finish = finish_gate_up};
    phase_run(&ph);
}

/* ---- logits and tokens ---- */

static void finish_logits(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                          uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0,
                          uint32_t n)
{
    (void)index;
    const float *tile = be->worker[worker].tile[0];
    for (uint32_t r = 0; r < n_rows; r++)
        memcpy(be->logits + (size_t)(row0 - ph->row0 + r) * be->vocab_pad + out0,
               tile + r * CHUNK_ROWS, n * sizeof *tile);
}

struct sample_run_ctx {
    struct cpu_backend *be;
    uint32_t out0;
};

static void sample_item(void *ctx, uint32_t item, uint32_t worker)
{
    const struct sample_run_ctx *run = ctx;
    struct cpu_backend *be = run->be;
    struct batch_out *out = &be->b->out[run->out0 + item];
    const float *logits = be->logits + (size_t)item * be->vocab_pad;
    if (out->logits)
        memcpy(out->logits, logits, be->base.n_vocab * sizeof *logits);
    if (out->job.params)
        sample_run(&out->job, logits, be->base.n_vocab, be->worker[worker].sample);
}

static void op_logits_and_sample(void *step)
{
    struct cpu_backend *be = step;
    norm(be, be->m->output_norm, (const struct packed *[]){&be->m->head}, 1);
    for (uint32_t out0 = 0; out0 < be->n_rows; out0 += HEAD_ROWS) {
        uint32_t n = be->n_rows - out0 < HEAD_ROWS ? be->n_rows - out0 : HEAD_ROWS;
        struct phase ph = {.be = be,
                           .act = &be->embd_act,
                           .w = {&be->m->head},
                           .n_matrices = 1,
                           .row0 = out0,
                           .n_rows = n,
                           .finish = finish_logits};
        phase_run(&ph);
        struct sample_run_ctx run = {be, out0};
        pool_run(be->pool, sample_item, &run, n);
    }
}

/* ---- the step ---- */

void cpu_step_begin(struct cpu_backend *be, struct batch *b)
{
    be->b = b;
    be->n_rows = b->n_rows;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct batch_span *s = &b->span[i];
        DCHECK(s->n_rows >= 1 && s->row0 + s->n_rows <= b->n_rows);
        for (uint32_t r = 0; r < s->n_rows; r++) {
            be->row_pos[s->row0 + r] = s->pos0 + r;
            be->row_table[s->row0 + r] = s->table;
        }
    }
    tiles_of_spans(be);
}

const struct forward_ops cpu_forward_ops = {
    .embed = op_embed,
    .attn_norm = op_attn_norm,
    .qkv = op_qkv,
    .rope_kv = op_rope_kv,
    .only_outs = op_only_outs,
    .attention = op_attention,
    .attn_out = op_attn_out,
    .ffn_norm = op_ffn_norm,
    .ffn_gate_up = op_ffn_gate_up,
    .ffn_down = op_ffn_down,
    .logits_and_sample = op_logits_and_sample,
};
