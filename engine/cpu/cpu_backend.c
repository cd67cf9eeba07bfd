/* Fills backend_ops for the CPU; see cpu_backend.h. Engine thread. */
#include "engine/cpu/cpu_backend.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/cpu/cpu_kv.h"
#include "engine/cpu/cpu_step.h"
#include "engine/forward.h"

static uint32_t pad32(uint32_t n)
{
    return (n + PACK_BLOCK - 1) / PACK_BLOCK * PACK_BLOCK;
}

static enum status cpu_submit(struct backend *base, struct batch *b, uint64_t *ticket,
                              struct err *e)
{
    struct cpu_backend *be = (struct cpu_backend *)base;
    CHECK(be->n_flight < BACKEND_MAX_FLIGHT);
    CHECKF(b->n_rows <= base->limits.max_rows && b->n_outs <= base->limits.max_outs &&
               b->n_spans <= base->limits.max_spans,
           "batch of %u rows, %u spans, %u outputs", b->n_rows, b->n_spans, b->n_outs);
    (void)e;
    if (b->n_rows > 0) {
        cpu_step_begin(be, b);
        forward_step(&cpu_forward_ops, be, &be->m->h, b->n_outs);
        cpu_attend_end(be);
    }
    be->flight[be->n_flight++] = b;
    *ticket = be->n_collected + be->n_flight;
    return OK;
}

static enum status cpu_collect(struct backend *base, uint64_t ticket, struct batch **b,
                               struct err *e)
{
    struct cpu_backend *be = (struct cpu_backend *)base;
    (void)e;
    CHECKF(be->n_flight > 0 && ticket == be->n_collected + 1, "ticket %llu is not the oldest",
           (unsigned long long)ticket);
    *b = be->flight[0];
    be->flight[0] = be->flight[1];
    be->n_flight--;
    be->n_collected++;
    return OK;
}

static enum status cpu_copy_block(struct backend *base, uint32_t group, uint32_t src, uint32_t dst,
                                  struct err *e)
{
    (void)e;
    CHECK(group < base->kv->arena.n_groups);
    const struct kv_arena_group *g = &base->kv->arena.group[group];
    CHECK(src < g->n_frames + g->n_host && dst < g->n_frames);
    if (src != dst)
        memcpy(kv_block_ptr(base->kv, group, dst), kv_block_ptr(base->kv, group, src),
               g->block_bytes);
    return OK;
}

static void cpu_close(struct backend *base)
{
    struct cpu_backend *be = (struct cpu_backend *)base;
    for (uint32_t i = 0; i < pool_threads(be->pool); i++) {
        struct worker_scratch *ws = &be->worker[i];
        mem_free(ws->tile[0]);
        mem_free(ws->tile[1]);
        mem_free(ws->row);
        mem_free(ws->attend);
        sample_scratch_free(ws->sample);
    }
    mem_free(be->worker);
    cpu_stage_release(be);
    act_release(&be->embd_act);
    act_release(&be->attn_act);
    act_release(&be->ff_act);
    mem_free(be->x);
    mem_free(be->qkv);
    mem_free(be->attn);
    mem_free(be->cos_sin);
    mem_free(be->y);
    mem_free(be->logits);
    mem_free(be->row_pos);
    mem_free(be->row_spoilt);
    mem_free(be->row_span);
    mem_free(be->tile);
    mem_free(be);
}

static const struct backend_ops cpu_ops = {
    .submit = cpu_submit, .collect = cpu_collect, .copy_block = cpu_copy_block, .close = cpu_close};

void *cpu_scratch(struct cpu_backend *be, size_t alignment, size_t n, size_t elem_bytes)
{
    size_t n_bytes = mem_mul(n, elem_bytes);
    void *p = mem_aligned(alignment, n_bytes);
    if (p)
        memset(p, 0, n_bytes);
    else if (be->lacking_bytes == 0)
        be->lacking_bytes = n_bytes;
    return p;
}

static float *floats(struct cpu_backend *be, size_t rows, size_t width)
{
    return cpu_scratch(be, SCRATCH_ALIGN, mem_mul(rows, width), sizeof(float));
}

/* The forms in which the inputs of these matrices are needed, over all layers. */
static void init_acts(struct cpu_backend *be, uint32_t max_rows)
{
    const struct hparams *h = &be->m->h;
    unsigned embd = act_forms(be, (const struct packed *[]){&be->m->head}, 1);
    unsigned attn = 0, ff = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct cpu_layer *l = &be->m->layer[i];
        const struct packed *from_embd[] = {&l->q, &l->k, &l->v, &l->gate, &l->up};
        embd |= act_forms(be, from_embd, sizeof from_embd / sizeof from_embd[0]);
        attn |= act_forms(be, (const struct packed *[]){&l->attn_out}, 1);
        ff |= act_forms(be, (const struct packed *[]){&l->down}, 1);
    }
    act_init(be, &be->embd_act, embd, h->n_embd, max_rows);
    act_init(be, &be->attn_act, attn, h->n_heads * h->head_dim, max_rows);
    act_init(be, &be->ff_act, ff, h->n_ff, max_rows);
}

static void init_workers(struct cpu_backend *be)
{
    const struct hparams *h = &be->m->h;
    uint32_t group = h->n_heads / h->n_kv_heads;
    be->worker = mem_zalloc(mem_mul(pool_threads(be->pool), sizeof *be->worker));
    for (uint32_t i = 0; i < pool_threads(be->pool); i++) {
        struct worker_scratch *ws = &be->worker[i];
        ws->tile[0] = floats(be, TILE_TOKENS, CHUNK_ROWS);
        ws->tile[1] = floats(be, TILE_TOKENS, CHUNK_ROWS);
        ws->row = floats(be, 1, be->row_floats);
        ws->attend =
            floats(be, 1, attend_scratch_floats(group, h->head_dim, be->base.layout.n_slots));
        ws->sample = sample_scratch_new(be->base.n_vocab, be->k->row);
    }
}

static void init_scratch(struct cpu_backend *be)
{
    const struct hparams *h = &be->m->h;
    size_t rows = be->base.limits.max_rows, outs = be->base.limits.max_outs;
    be->x = floats(be, rows, be->embd_pad);
    be->qkv = floats(be, rows, be->qkv_width);
    be->attn = floats(be, rows, be->attn_pad);
    be->cos_sin = floats(be, rows, be->angles_width);
    if (h->features & ARCH_POST_NORM)
        be->y = floats(be, rows, be->embd_pad);
    be->logits = floats(be, outs < HEAD_ROWS ? outs : HEAD_ROWS, be->vocab_pad);
    be->row_pos = cpu_scratch(be, SCRATCH_ALIGN, rows, sizeof *be->row_pos);
    be->row_spoilt = cpu_scratch(be, SCRATCH_ALIGN, rows, sizeof *be->row_spoilt);
    be->row_span = cpu_scratch(be, SCRATCH_ALIGN, rows, sizeof *be->row_span);
    be->tile = cpu_scratch(be, SCRATCH_ALIGN, rows, sizeof *be->tile);
    init_acts(be, be->base.limits.max_rows);
    init_workers(be);
    cpu_stage_init(be);
}

enum status cpu_backend_new(const struct cpu_model *m, const struct kernels *k, struct pool *pool,
                            int activations, struct kv_store *kv, const struct kv_layout *layout,
                            struct backend_limits limits, struct backend **out, struct err *e)
{
    const struct hparams *h = &m->h;
    if (limits.max_rows == 0 || limits.max_spans == 0 || limits.max_outs == 0)
        return err_set(e, ERR_INVALID, "backend limits of %u rows, %u spans, %u outputs",
                       limits.max_rows, limits.max_spans, limits.max_outs);
    if ((uint64_t)limits.max_rows * h->n_kv_heads > POOL_MAX_ITEMS)
        return err_set(e, ERR_INVALID,
                       "sched.max_batch_tokens %u times %u KV heads is above %d items of work",
                       limits.max_rows, h->n_kv_heads, POOL_MAX_ITEMS);
    struct cpu_backend *be = mem_zalloc(sizeof *be);
    be->base = (struct backend){
        .ops = &cpu_ops, .layout = *layout, .kv = kv, .limits = limits, .n_vocab = h->n_vocab};
    be->m = m;
    be->k = k;
    be->pool = pool;
    be->activations = activations;
    be->embd_pad = pad32(h->n_embd);
    be->attn_pad = pad32(h->n_heads * h->head_dim);
    be->qkv_width = pad32((h->n_heads + 2 * h->n_kv_heads) * h->head_dim);
    be->row_floats = be->embd_pad;
    be->vocab_pad = pad32(h->n_vocab);
    be->angles_width = h->rope_dims * (m->inv_freq_local ? 2 : 1);
    init_scratch(be);
    if (be->lacking_bytes) {
        err_set(e, ERR_NO_MEMORY,
                "no memory for %zu bytes of scratch: sched.max_batch_tokens is %u, cpu.threads %u, "
                "spilled blocks read at once %u",
                be->lacking_bytes, limits.max_rows, pool_threads(pool), limits.max_staged);
        cpu_close(&be->base);
        return ERR_NO_MEMORY;
    }
    *out = &be->base;
    return OK;
}
