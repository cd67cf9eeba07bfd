/* Allocates and frees the memory of a batch; see batch.h. */
#include "engine/batch.h"

#include "base/mem.h"

void batch_init(struct batch *b, uint32_t cap_rows, uint32_t cap_spans, uint32_t cap_outs)
{
    *b = (struct batch){.cap_rows = cap_rows, .cap_spans = cap_spans, .cap_outs = cap_outs};
    b->token = mem_zalloc(mem_mul(cap_rows, sizeof *b->token));
    b->span = mem_zalloc(mem_mul(cap_spans, sizeof *b->span));
    b->out = mem_zalloc(mem_mul(cap_outs, sizeof *b->out));
}

void batch_release(struct batch *b)
{
    mem_free(b->token);
    mem_free(b->span);
    mem_free(b->out);
    *b = (struct batch){0};
}
