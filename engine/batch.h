/* One ragged step: flat arrays that the planner fills and a backend computes.
 *
 * Row = one token. A span = the consecutive rows of one sequence (1 row in decode, a chunk of the prompt in
 * prefill). Row i of a span has position pos0 + i; its key and value are written to slot (pos % n_slots) of
 * block table[g][pos / n_slots] in every layer group g (kvpool/layout.h); it attends to positions
 * max(0, pos - window + 1)..pos of its layer's group through that table.
 * All capacities are fixed at start (batch_init); nothing is allocated per step. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sample/sampler.h"
#include "kvpool/layout.h"

struct batch_span {
    uint32_t row0; /* first row */
    uint32_t n_rows; /* >= 1 */
    uint32_t pos0; /* KV length of the sequence before this step */
    /* Per layer group: entry i is the physical block of positions [i * n_slots, (i + 1) * n_slots), numbered as
     * in kvpool/arena.h. Covers pos0 + n_rows positions; entries wholly below a group's window are never
     * read. Borrows. */
    const uint32_t *table[KV_MAX_GROUPS];
    uint32_t
        n_staged; /* entries of group 0 that are slots of the spill file: staged, read layer by layer */
    bool finite; /* result: the K and V written by this span are finite; false ends the sequence */
    bool lost; /* result: a staged block could not be read; nothing written by this span is valid */
};

/* A row that needs logits. Rows ascend; a row appears at most once. */
struct batch_out {
    uint32_t row;
    struct sample_job job;
    float *logits; /* test hook: if not NULL, the backend copies the row's n_vocab logits here */
};

struct batch {
    uint64_t step; /* id, ascending */
    uint32_t n_rows, n_spans, n_outs;
    uint32_t cap_rows, cap_spans, cap_outs;
    int32_t *token; /* owns [cap_rows] */
    struct batch_span *span; /* owns [cap_spans] */
    struct batch_out *out; /* owns [cap_outs] */
};

void batch_init(struct batch *b, uint32_t cap_rows, uint32_t cap_spans, uint32_t cap_outs);
void batch_release(struct batch *b);
static inline void batch_clear(struct batch *b)
{
    b->n_rows = b->n_spans = b->n_outs = 0;
}

#endif
