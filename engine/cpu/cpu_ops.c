/* The operations of forward.h on the CPU: each is one run of the pool over slices of its work.
 *
 * A matrix phase is cut into items of (128 rows) x (a few chunks of 32 outputs); an item computes tiles
 * of up to 64 rows x 32 outputs into its worker's scratch and finishes them there (residual sum,
 * SwiGLU and quantising, copy). No result depends on how items are cut: every output is summed along
 * its inputs in one order (kernels.h). Runs on the engine thread and the workers. */
#include "engine/cpu/cpu_step.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* ---- activations ---- */

void act_init(struct cpu_backend *be, struct act *a, unsigned forms, uint32_t n_in,
              uint32_t max_rows)
{
    *a = (struct act){.forms = forms, .n_blocks = (n_in + PACK_BLOCK - 1) / PACK_BLOCK};
    for (int f = 0; f < KERNEL_FORMS; f++) {
        if (!(forms >> f & 1))
            continue;
        a->stride[f] = mem_mul(a->n_blocks, be->k->act_bytes[f]);
        a->form[f] = cpu_scratch(be, SCRATCH_ALIGN, max_rows, a->stride[f]);
    }
}

void act_release(struct act *a)
{
    for (int f = 0; f < KERNEL_FORMS; f++)
        mem_free(a->form[f]);
    *a = (struct act){0};
}

unsigned act_forms(const struct cpu_backend *be, const struct packed *const *w, uint32_t n)
{
    unsigned forms = 0;
    for (uint32_t i = 0; i < n; i++)
        forms |= act_forms_of(be, w[i]);
    return forms;
}

unsigned act_forms_of(const struct cpu_backend *be, const struct packed *w)
{
    return 1u << be->k->form(w->kind, be->activations);
}

void act_put(const struct kernels *k, const struct act *a, unsigned forms, uint32_t row,
             uint32_t block0, const float *x, uint32_t n)
{
    for (int f = 0; f < KERNEL_FORMS; f++)
        if (forms >> f & 1)
            k->quantise[f](x, n, a->form[f] + row * a->stride[f] + block0 * k->act_bytes[f]);
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
    uint32_t item_chunks; /* chunks of 32 outputs per item */
    uint32_t first_item[MATRICES_A_PHASE + 1]; /* within one block of rows */
    phase_finish *finish;
};

static void tile_compute(const struct phase *ph, const struct packed *w, uint32_t row0,
                         uint32_t n_rows, uint32_t group0, float *tile)
{
    const struct cpu_backend *be = ph->be;
    uint32_t form = be->k->form(w->kind, be->activations);
    kernel_matmul *matmul = be->k->matmul[form][w->kind];
    const uint8_t *act = ph->act->form[form] + row0 * ph->act->stride[form];
    uint32_t n_groups = w->n_groups - group0, of_chunk = CHUNK_ROWS / w->format->rows;
    if (n_groups > of_chunk)
        n_groups = of_chunk;
    else if (n_groups < of_chunk)
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
            tile_compute(ph, w, ph->row0 + r, n_rows, out0 / w->format->rows, ws->tile[0]);
            if (ph->pair)
                tile_compute(ph, ph->pair, ph->row0 + r, n_rows, out0 / w->format->rows,
                             ws->tile[1]);
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

static void embed_item(void *ctx, uint32_t row, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    float *scratch = be->worker[worker].row;
    cpu_model_embedding(be->m, (uint32_t)be->b->token[row], scratch);
    memcpy(be->x + (size_t)row * be->embd_pad, scratch, be->m->h.n_embd * sizeof(float));
    cpu_rope_angles(be, row);
}

static void op_embed(void *step)
{
    struct cpu_backend *be = step;
    pool_run(be->pool, embed_item, be, be->n_rows);
}

struct norm_run {
    struct cpu_backend *be;
    const float *weight;
    unsigned forms; /* the forms that the next matrices take */
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
    struct norm_run run = {.be = be, .weight = weight, .forms = act_forms(be, next, n_next)};
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

/* ---- projections onto the residual ---- */

static void finish_plain(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                         uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0, uint32_t n)
{
    (void)ph;
    (void)index;
    const float *tile = be->worker[worker].tile[0];
    for (uint32_t r = 0; r < n_rows; r++)
        memcpy(be->y + (size_t)(row0 + r) * be->embd_pad + out0, tile + r * CHUNK_ROWS,
               n * sizeof *tile);
}

static void scale_tile(float *tile, uint32_t n_rows, float factor)
{
    if (factor == 1)
        return;
    for (uint32_t i = 0; i < n_rows * CHUNK_ROWS; i++)
        tile[i] *= factor;
}

static void cap_tile(float *tile, uint32_t n_rows, float cap)
{
    for (uint32_t i = 0; cap > 0 && i < n_rows * CHUNK_ROWS; i++)
        tile[i] = cap * tanhf(tile[i] / cap);
}

static void finish_residual(struct cpu_backend *be, const struct phase *ph, uint32_t index,
                            uint32_t worker, uint32_t row0, uint32_t n_rows, uint32_t out0,
                            uint32_t n)
{
    (void)ph;
    (void)index;
    float *tile = be->worker[worker].tile[0];
    scale_tile(tile, n_rows, be->m->h.residual_scale);
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
                       .finish = be->y ? finish_plain : finish_residual};
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

struct post_norm_run {
    struct cpu_backend *be;
    const float *weight;
};

static void post_norm_item(void *ctx, uint32_t row, uint32_t worker)
{
    const struct post_norm_run *run = ctx;
    struct cpu_backend *be = run->be;
    float *scratch = be->worker[worker].row;
    uint32_t n = be->m->h.n_embd;
    be->k->rms_norm(be->y + (size_t)row * be->embd_pad, run->weight, be->m->h.rms_eps, n, scratch);
    be->k->add(be->x + (size_t)row * be->embd_pad, scratch, n);
}

static void post_norm(struct cpu_backend *be, const float *weight)
{
    struct post_norm_run run = {be, weight};
    pool_run(be->pool, post_norm_item, &run, be->n_rows);
}

static void op_attn_post_norm(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    post_norm(be, be->m->layer[layer].attn_post_norm);
}

static void op_ffn_post_norm(void *step, uint32_t layer)
{
    struct cpu_backend *be = step;
    post_norm(be, be->m->layer[layer].ffn_post_norm);
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
    if (be->m->h.features & ARCH_GELU)
        be->k->geglu(gate, be->worker[worker].tile[1], n_rows * CHUNK_ROWS, gate);
    else
        be->k->swiglu(gate, be->worker[worker].tile[1], n_rows * CHUNK_ROWS, gate);
    unsigned forms = act_forms_of(be, &be->m->layer[be->layer].down);
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
    float *tile = be->worker[worker].tile[0];
    scale_tile(tile, n_rows, be->m->h.logit_scale);
    cap_tile(tile, n_rows, be->m->h.logit_softcap);
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
    cpu_attend_begin(be);
}

const struct forward_ops cpu_forward_ops = {
    .embed = op_embed,
    .attn_norm = op_attn_norm,
    .qkv = op_qkv,
    .rope_kv = cpu_op_rope_kv,
    .only_outs = cpu_op_only_outs,
    .attention = cpu_op_attention,
    .attn_out = op_attn_out,
    .attn_post_norm = op_attn_post_norm,
    .ffn_norm = op_ffn_norm,
    .ffn_gate_up = op_ffn_gate_up,
    .ffn_down = op_ffn_down,
    .ffn_post_norm = op_ffn_post_norm,
    .logits_and_sample = op_logits_and_sample,
};
