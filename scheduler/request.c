/* struct request: what an HTTP thread and the engine thread share; see request.h. */
#include "scheduler/request.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/grammar/grammar.h"

struct request *request_new(uint32_t ring_bytes)
{
    /* The ring keeps its ends on cache lines of their own, more than malloc aligns to. */
    struct request *r = mem_aligned(_Alignof(struct request), sizeof(*r));
    CHECK(r);
    memset(r, 0, sizeof(*r));
    atomic_init(&r->refs, 1);
    byte_ring_init(&r->ring, ring_bytes);
    r->n_choices = 1;
    r->skip_special = true;
    r->sampling = (struct sampling_params){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_top = -1};
    return r;
}

void request_ref(struct request *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

void request_unref(struct request *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    byte_ring_release(&r->ring);
    mem_free(r->prompt);
    mem_free(r->bias);
    mem_free(r->allowed);
    mem_free(r->bad);
    mem_free(r->dry_breakers);
    mem_free(r->stop_text);
    mem_free(r->stop_tokens);
    grammar_unref(r->grammar);
    mem_free(r->salt);
    ledger_drop(&r->held);
    if (r->tenant_uses)
        atomic_fetch_sub(r->tenant_uses, 1);
    mem_free(r);
}
