/* What the simulated scheduler stands on; see sim_int.h.
 *
 * A sampled token is what the trace's prints say of its place, the stop token where the request really
 * ended: so that later prompts hit what earlier answers left. */
#include "scheduler/sim/sim_int.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "scheduler/cost.h"

/* Where the journal has none: of a memcpy, and of a local disk's direct writes and reads. */
#define RAM_NS_BYTE 0.25
#define WRITE_NS_BYTE 2.9
#define READ_NS_BYTE 0.5

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(x >> 32);
}

int32_t sim_token(const struct sim_trace *t, uint32_t request, uint32_t block_tokens, uint32_t pos)
{
    const struct sim_request *q = &t->request[request];
    uint32_t block = pos / block_tokens, x;
    if (t->config.block_tokens)
        block = pos / t->config.block_tokens; /* the prints' own, whatever is simulated */
    if (block < q->n_prints)
        x = mix(t->print[q->first_print + block], pos);
    else
        x = mix(0x5eed0000u ^ request, pos);
    return 1 + (int32_t)(x % (SIM_VOCAB - 1));
}

/* ---- backend ---- */

static double step_ns(const struct sim_world *w, const struct batch *b)
{
    double kv = 0, staged = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        kv += (double)cost_kv_read(b->span[i].pos0, b->span[i].n_rows);
        staged += b->span[i].n_staged;
    }
    return w->cost.base_ns + w->cost.row_ns * b->n_rows + w->cost.kv_ns * kv +
           staged * (double)w->layout.group[0].block_bytes * w->read_ns_byte;
}

static int32_t next_token(const struct sim_world *w, const struct sample_job *job)
{
    uint32_t i = (uint32_t)job->params->seed, n_out = job->n_history - job->n_prompt;
    const struct sim_request *q = &w->trace->request[i];
    if (n_out + 1 >= q->n_output)
        return SIM_STOP_TOKEN;
    int32_t token = sim_token(w->trace, i, w->layout.n_slots, job->n_history);
    return job->choice == 0 ? token
                            : 1 + (int32_t)(mix((uint32_t)token, job->choice) % (SIM_VOCAB - 1));
}

static enum status submit(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e)
{
    struct sim_world *w = (struct sim_world *)be;
    (void)e;
    for (uint32_t i = 0; i < b->n_outs; i++)
        b->out[i].job.token = next_token(w, &b->out[i].job);
    uint64_t ns = (uint64_t)step_ns(w, b);
    w->n_steps++;
    w->n_rows += b->n_rows;
    w->busy_ns += ns;
    clock_fake_advance(ns ? ns : 1);
    w->in_flight = b;
    *ticket = w->n_steps;
    return OK;
}

static enum status collect(struct backend *be, uint64_t ticket, struct batch **b, struct err *e)
{
    struct sim_world *w = (struct sim_world *)be;
    (void)ticket, (void)e;
    *b = w->in_flight;
    w->in_flight = NULL;
    return OK;
}

static enum status copy_block(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                              struct err *e)
{
    const struct sim_world *w = (const struct sim_world *)be;
    (void)src, (void)dst, (void)e;
    clock_fake_advance((uint64_t)(w->ram_ns_byte * (double)w->layout.group[group].block_bytes));
    return OK;
}

static void close_nothing(struct backend *be)
{
    (void)be;
}

static const struct backend_ops backend_ops = {submit, collect, copy_block, close_nothing};

/* ---- tier ---- */

static uint32_t tier_room(void *tier)
{
    return SIM_JOBS - ((const struct sim_world *)tier)->n_copies;
}

static bool tier_push(void *tier, const struct kv_job *job)
{
    struct sim_world *w = tier;
    if (w->n_copies == SIM_JOBS)
        return false;
    bool ram = job->slot < w->arena.group[job->group].n_host;
    double ns_byte = ram ? w->ram_ns_byte : job->load ? w->read_ns_byte : w->write_ns_byte;
    double ns = ns_byte * (double)w->layout.group[job->group].block_bytes;
    uint64_t now = clock_ns();
    w->channel_ns = (now > w->channel_ns ? now : w->channel_ns) + (uint64_t)ns + 1;
    w->copy[(w->copy_head + w->n_copies++) % SIM_JOBS] =
        (struct sim_copy){.job = *job, .end_ns = w->channel_ns};
    return true;
}

static bool tier_pop(void *tier, struct kv_done *done)
{
    struct sim_world *w = tier;
    const struct sim_copy *c = &w->copy[w->copy_head];
    if (w->n_copies == 0 || c->end_ns > clock_ns())
        return false;
    *done = (struct kv_done){.job = c->job, .ok = true};
    w->copy_head = (w->copy_head + 1) % SIM_JOBS;
    w->n_copies--;
    return true;
}

static struct kv_tier_costs tier_costs(void *tier)
{
    const struct sim_world *w = tier;
    return (struct kv_tier_costs){.ram_ns_byte = w->ram_ns_byte,
                                  .file_write_ns_byte = w->write_ns_byte,
                                  .file_read_ns_byte = w->read_ns_byte};
}

static const struct sched_tier_ops tier_ops = {tier_room, tier_push, tier_pop, tier_costs};

uint64_t sim_world_next_ns(const struct sim_world *w)
{
    return w->n_copies ? w->copy[w->copy_head].end_ns : 0;
}

/* ---- life ---- */

static double ns_of(uint32_t ps, double otherwise)
{
    return ps ? ps / 1000.0 : otherwise;
}

void sim_world_init(struct sim_world *w, const struct sim_trace *t, const struct sim_options *o)
{
    const struct journal_config *c = &o->config;
    uint32_t n_tier = 0;
    memset(w, 0, sizeof(*w));
    w->trace = t;
    w->cost = o->cost;
    w->ram_ns_byte = ns_of(c->ram_ps_byte, RAM_NS_BYTE);
    w->write_ns_byte = ns_of(c->write_ps_byte, WRITE_NS_BYTE);
    w->read_ns_byte = ns_of(c->read_ps_byte, READ_NS_BYTE);
    w->layout.n_layers = w->layout.n_groups = w->arena.n_groups = c->n_groups;
    w->layout.n_slots = c->block_tokens;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        w->layout.layer_group[g] = (uint8_t)g;
        w->layout.group[g] = (struct kv_group){.n_layers = 1,
                                               .window = c->group[g].window,
                                               .block_bytes = (size_t)c->group[g].block_bytes};
        w->arena.group[g] = (struct kv_arena_group){.block_bytes = (size_t)c->group[g].block_bytes,
                                                    .n_frames = c->group[g].n_frames,
                                                    .n_host = c->group[g].n_host};
        w->memory.n_file[g] = c->group[g].n_file;
        n_tier += c->group[g].n_host + c->group[g].n_file;
    }
    w->memory.layout = &w->layout;
    w->memory.arena = &w->arena;
    w->memory.tier_ops = n_tier ? &tier_ops : NULL;
    w->memory.tier = w;
    w->memory.max_jobs = n_tier ? SIM_JOBS : 0;
    w->memory.prefix = c->prefix != 0;
    w->memory.domain = (struct kv_domain){.rope = "", .adapter = "", .salt = ""};
    w->be = (struct backend){
        .ops = &backend_ops,
        .layout = w->layout,
        .limits = {.max_rows = c->max_batch_tokens,
                   .max_spans = c->max_running,
                   .max_outs = c->max_batch_tokens,
                   .max_staged = UINT32_MAX / 2},
        .n_vocab = SIM_VOCAB,
    };
}
