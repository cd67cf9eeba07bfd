/* Journals and access logs with any content: reads them, and simulates those that are small. */
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/mem.h"
#include "scheduler/sim/simulate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_REQUESTS = 8, MOST_TOKENS = 256, MOST_BLOCKS = 256, MOST_ROWS = 64 };

static void check_trace(const struct sim_trace *t)
{
    uint64_t last_ns = 0;
    CHECK(t->n_requests > 0 && t->span_ns == t->request[t->n_requests - 1].at_ns);
    for (uint32_t i = 0; i < t->n_requests; i++) {
        const struct sim_request *q = &t->request[i];
        CHECK(q->at_ns >= last_ns && q->n_prompt >= 1 && q->n_choices >= 1);
        CHECK(q->n_output <= (q->max_tokens ? q->max_tokens : 1));
        CHECK(q->first_print + (uint64_t)q->n_prints <= t->n_prints);
        last_ns = q->at_ns;
    }
    CHECK(t->cost.base_ns >= 0 && t->cost.row_ns >= 0 && t->cost.kv_ns >= 0);
}

static bool is_small(const struct sim_trace *t)
{
    const struct journal_config *c = &t->config;
    bool small = t->n_requests <= MOST_REQUESTS && c->max_running <= MOST_ROWS &&
                 c->max_batch_tokens <= MOST_ROWS && c->max_queued <= MOST_ROWS;
    for (uint32_t i = 0; i < t->n_requests && small; i++)
        small = t->request[i].n_prompt <= MOST_TOKENS && t->request[i].max_tokens <= MOST_TOKENS &&
                t->request[i].n_choices <= MOST_ROWS;
    for (uint32_t g = 0; g < c->n_groups && small; g++)
        small = c->group[g].n_frames <= MOST_BLOCKS && c->group[g].n_host <= MOST_BLOCKS &&
                c->group[g].n_file <= MOST_BLOCKS;
    return small;
}

/* Whatever the limits are, what was accepted ends. */
static void run(const struct sim_trace *t)
{
    struct sim_options o = {.config = t->config, .cost = {1e6, 1e4, 1}, .rate = 1};
    struct sim_result *r = mem_alloc(sizeof(*r));
    struct err e;
    if (sim_run(t, &o, r, &e) == OK)
        CHECK(r->n_finished + r->n_refused + r->n_cancelled + r->n_failed == t->n_requests);
    else
        CHECKF(e.status == ERR_INVALID, "%s", e.text);
    mem_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sim_trace t;
    struct err e;
    if (sim_trace_read(&t, (struct str){(const char *)data, size}, &e) != OK)
        return 0;
    check_trace(&t);
    if (is_small(&t))
        run(&t);
    sim_trace_release(&t);
    return 0;
}
