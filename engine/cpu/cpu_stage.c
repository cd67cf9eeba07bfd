/* Blocks of a batch that are only in the spill file: before a layer's attention, their slices of that layer
 * are read into a buffer in parallel, where attention finds them (struct attend). Blocks in the RAM
 * tier need no staging: they are read in place.
 *
 * A read covers the slice rounded out to KV_TIER_ALIGN, as direct I/O requires. A failed read affects only its
 * own span. Runs on the engine thread and the workers. */
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/cpu/cpu_step.h"
#include "kvpool/tier.h"

static size_t align_up(size_t n)
{
    return (n + KV_TIER_ALIGN - 1) / KV_TIER_ALIGN * KV_TIER_ALIGN;
}

void cpu_stage_init(struct cpu_backend *be)
{
    struct cpu_stage *st = &be->stage;
    uint32_t n = be->base.limits.max_staged;
    *st = (struct cpu_stage){0};
    if (n == 0)
        return;
    st->slice_bytes = align_up(be->base.layout.group[0].layer_bytes) + KV_TIER_ALIGN;
    uint32_t n_spans = be->base.limits.max_spans;
    st->buffer = cpu_scratch(be, KV_TIER_ALIGN, n, st->slice_bytes);
    st->entry = cpu_scratch(be, SCRATCH_ALIGN, n, sizeof *st->entry);
    st->file_slot = cpu_scratch(be, SCRATCH_ALIGN, n, sizeof *st->file_slot);
    st->span = cpu_scratch(be, SCRATCH_ALIGN, n, sizeof *st->span);
    st->failed = cpu_scratch(be, SCRATCH_ALIGN, n, sizeof *st->failed);
    st->span_first = cpu_scratch(be, SCRATCH_ALIGN, n_spans, sizeof *st->span_first);
    st->span_n = cpu_scratch(be, SCRATCH_ALIGN, n_spans, sizeof *st->span_n);
}

void cpu_stage_release(struct cpu_backend *be)
{
    struct cpu_stage *st = &be->stage;
    mem_free(st->buffer);
    mem_free(st->entry);
    mem_free(st->file_slot);
    mem_free(st->span);
    mem_free(st->failed);
    mem_free(st->span_first);
    mem_free(st->span_n);
    *st = (struct cpu_stage){0};
}

/* Entries of the span's table that one of its rows sees and that have no address. */
static uint32_t find_staged(struct cpu_backend *be, struct batch_span *s)
{
    struct cpu_stage *st = &be->stage;
    const struct kv_layout *kv = &be->base.layout;
    const struct kv_arena_group *g = &be->base.kv->arena.group[0];
    uint32_t n_resident = g->n_frames + g->n_host, first = st->n;
    uint32_t end = (s->pos0 + s->n_rows + kv->n_slots - 1) / kv->n_slots;
    for (uint32_t i = attend_first(kv->group[0].window, s->pos0) / kv->n_slots; i < end; i++) {
        if (s->table[0][i] < n_resident)
            continue;
        CHECKF(st->n < be->base.limits.max_staged && st->n - first < s->n_staged,
               "entry %u of a table is block %u: more than %u staged blocks", i, s->table[0][i],
               s->n_staged);
        st->entry[st->n] = i;
        st->file_slot[st->n] = s->table[0][i] - n_resident;
        st->span[st->n] = s;
        st->failed[st->n++] = false;
    }
    return st->n - first;
}

void cpu_stage_begin(struct cpu_backend *be)
{
    struct cpu_stage *st = &be->stage;
    st->n = 0;
    st->offset = 0;
    for (uint32_t i = 0; i < be->b->n_spans; i++) {
        struct batch_span *s = &be->b->span[i];
        CHECK(s->n_staged == 0 || st->buffer);
        if (!st->buffer)
            continue;
        st->span_first[i] = st->n;
        st->span_n[i] = s->n_staged > 0 ? find_staged(be, s) : 0;
    }
    CHECK(st->n == 0 || be->base.tier);
}

static void read_item(void *ctx, uint32_t item, uint32_t worker)
{
    struct cpu_backend *be = ctx;
    struct cpu_stage *st = &be->stage;
    (void)worker;
    if (st->failed[item])
        return;
    struct err e;
    size_t at = kv_unit_offset(&be->base.layout, be->layer, 0),
           from = at / KV_TIER_ALIGN * KV_TIER_ALIGN;
    size_t n = align_up(at + be->base.layout.group[0].layer_bytes) - from;
    st->failed[item] = kv_tier_read(be->base.tier, 0, st->file_slot[item], from, n,
                                    st->buffer + item * st->slice_bytes, &e) != OK;
    if (st->failed[item])
        log_error("a sequence is lost: %s", e.text);
}

void cpu_stage_layer(struct cpu_backend *be)
{
    struct cpu_stage *st = &be->stage;
    if (st->n == 0 || be->base.layout.layer_group[be->layer] != 0)
        return;
    st->offset = kv_unit_offset(&be->base.layout, be->layer, 0) % KV_TIER_ALIGN;
    pool_run(be->pool, read_item, be, st->n);
}

void cpu_stage_end(struct cpu_backend *be)
{
    for (uint32_t i = 0; i < be->stage.n; i++) {
        if (be->stage.failed[i])
            be->stage.span[i]->lost = true;
    }
}

void cpu_stage_attend(const struct cpu_backend *be, const struct batch_span *s, uint32_t kv_head,
                      struct attend *a)
{
    const struct cpu_stage *st = &be->stage;
    const struct kv_arena_group *g = &be->base.kv->arena.group[0];
    uint32_t i = (uint32_t)(s - be->b->span);
    if (s->n_staged == 0 || st->span_n[i] == 0 || be->base.layout.layer_group[be->layer] != 0)
        return;
    a->n_resident = g->n_frames + g->n_host;
    a->n_staged = st->span_n[i];
    a->staged = st->entry + st->span_first[i];
    a->staged_unit =
        st->buffer + st->span_first[i] * st->slice_bytes + st->offset + kv_head * a->kv->unit_bytes;
    a->staged_bytes = st->slice_bytes;
}
