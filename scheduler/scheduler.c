/* The door: making a scheduler, and what other threads may call; see scheduler.h. */
#include "scheduler/scheduler.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "scheduler/copies.h"
#include "scheduler/disk.h"
#include "scheduler/gauges.h"
#include "scheduler/journal.h"
#include "scheduler/notes.h"
#include "scheduler/room.h"
#include "scheduler/sched.h"
#include "scheduler/step.h"

static enum status check_limits(const struct sched_limits *l, const struct backend_limits *b,
                                struct err *e)
{
    if (l->max_running < 1 || l->max_batch_tokens < 1 || l->chunk_max < 1 || l->step_target_ms < 1)
        return err_set(e, ERR_INVALID, "a limit of the scheduler is zero");
    if (l->max_context < 2)
        return err_set_field(e, ERR_INVALID, "limits.max_context", NULL,
                             "limits.max_context is %u, a prompt and its output need at least 2",
                             l->max_context);
    if (l->max_running > l->max_batch_tokens)
        return err_set_field(e, ERR_INVALID, "sched.max_running", NULL,
                             "sched.max_running is %u, above sched.max_batch_tokens %u",
                             l->max_running, l->max_batch_tokens);
    if (l->max_batch_tokens > b->max_rows || l->max_running > b->max_spans ||
        l->max_running > b->max_outs)
        return err_set(
            e, ERR_INVALID,
            "backend takes %u rows, %u spans, %u outputs; the scheduler wants %u, %u, %u",
            b->max_rows, b->max_spans, b->max_outs, l->max_batch_tokens, l->max_running,
            l->max_running);
    return OK;
}

static void alloc_step(struct sched *s)
{
    uint32_t n = s->limits.max_running;
    /* Between a request's end and running_compact its sequences stand beside their successors. */
    s->running.seq = mem_zalloc(mem_mul(2 * (size_t)n, sizeof(*s->running.seq)));
    s->step.span_seq = mem_zalloc(mem_mul(n, sizeof(*s->step.span_seq)));
    s->step.out_seq = mem_zalloc(mem_mul(s->max_outs, sizeof(*s->step.out_seq)));
    s->parked.seq = mem_zalloc(mem_mul(n, sizeof(*s->parked.seq)));
    s->step.copy = mem_zalloc(mem_mul(((size_t)n + 1) * KV_MAX_GROUPS, sizeof(*s->step.copy)));
    batch_init(&s->step.batch, s->limits.max_batch_tokens, n, s->max_outs);
    s->text_cap = s->tok ? 2 * detok_bound(s->tok) : 0;
    s->text = mem_alloc(s->text_cap);
    s->text_scanned = mem_alloc(s->text_cap + 2 * STOP_MAX_BYTES);
    s->gram = gram_scratch_new();
}

static void init_cache(struct sched *s)
{
    const struct sched_memory *m = &s->memory;
    struct kv_options o = {.layout = &s->layout,
                           .max_jobs = m->tier_ops ? m->max_jobs : 0,
                           .prefix = m->prefix,
                           .secret = {m->secret[0], m->secret[1]},
                           .key_bits = m->key_bits ? m->key_bits : 128};
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        const struct kv_arena_group *a = &m->arena->group[g];
        o.n_frames[g] = s->n_frames[g] = a->n_frames;
        o.n_host[g] = m->tier_ops ? a->n_host : 0;
        o.n_file[g] = m->tier_ops ? m->n_file[g] : 0;
        s->n_slots_total[g] = o.n_host[g] + o.n_file[g];
        s->n_blocks += a->n_frames;
        o.max_pending += a->n_frames;
    }
    s->kv = kv_cache_new(&o);
}

enum status sched_new(const struct sched_limits *limits, struct backend *be,
                      const struct sched_memory *memory, const struct tokenizer *tok,
                      struct metrics *metrics, struct sched **out, struct err *e)
{
    enum status st = check_limits(limits, &be->limits, e);
    if (st != OK)
        return st;
    uint32_t n_inbox = limits->max_queued + 2 * limits->max_running + 64;
    struct mpsc *inbox = mpsc_new(n_inbox, e);
    if (!inbox)
        return e ? e->status : ERR_NO_MEMORY;
    struct sched *s = mem_zalloc(sizeof(*s));
    s->limits = *limits;
    s->be = be;
    s->tok = tok;
    s->metrics = metrics;
    s->memory = *memory;
    s->layout = *memory->layout;
    s->max_outs = be->limits.max_outs < limits->max_batch_tokens ? be->limits.max_outs
                                                                 : limits->max_batch_tokens;
    s->door.inbox = inbox;
    s->epoch = 1;
    atomic_store(&s->door.n_open, limits->max_running);
    atomic_store(&s->door.heartbeat_ns, clock_ns());
    init_cache(s);
    st = disk_init(s, e);
    if (st != OK) {
        kv_cache_free(s->kv);
        mpsc_free(inbox);
        mem_free(s);
        return st;
    }
    if (!limits->tenants)
        s->own_tenants = tenants_new(SCHED_AGE_MS * NS_PER_MS, limits->max_running, 0, 0);
    s->tenants = limits->tenants ? limits->tenants : s->own_tenants;
    cost_init(&s->cost, limits->step_target_ms * NS_PER_MS, SCHED_PRIOR_ROWS);
    alloc_step(s);
    notes_init(s);
    gauges_init(s);
    gauges_publish(s);
    disk_gauges(s);
    *out = s;
    return OK;
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    CHECKF(atomic_load(&s->door.stopping), "sched_stop comes before sched_free");
    step_forget(s);
    journal_release(&s->journal);
    copies_done(s);
    disk_free(s);
    kv_cache_free(s->kv);
    tenants_free(s->own_tenants);
    batch_release(&s->step.batch);
    mpsc_free(s->door.inbox);
    mem_free(s->running.seq);
    mem_free(s->parked.seq);
    mem_free(s->step.span_seq);
    mem_free(s->step.out_seq);
    mem_free(s->step.copy);
    mem_free(s->text);
    mem_free(s->text_scanned);
    gram_scratch_free(s->gram);
    mem_free(s);
}

bool sched_room(const struct sched *s, uint32_t n_prompt, uint32_t n_choices, uint32_t *max_tokens)
{
    uint32_t limit = s->limits.max_context;
    struct kv_need worst;
    if (n_prompt < 1 || n_choices < 1 || n_prompt >= limit)
        return false;
    uint32_t low = 0, high = limit - n_prompt; /* low fits, or is 0 */
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (room_worst(s, n_prompt, mid, n_choices, false, &worst, NULL))
            low = mid;
        else
            high = mid - 1;
    }
    *max_tokens = low;
    return low > 0;
}

uint32_t sched_longest_prompt(const struct sched *s, const struct request *r)
{
    uint32_t limit = s->limits.max_context, low = 0, high = r->n_prompt; /* low fits, or is 0 */
    struct kv_need worst;
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (mid <= limit && r->max_tokens <= limit - mid &&
            room_worst(s, mid, r->max_tokens, r->n_choices, r->reserve, &worst, NULL))
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static enum status check_tokens(const struct sched *s, const struct request *r, struct err *e)
{
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= s->be->n_vocab)
            return err_set_field(e, ERR_INVALID, "prompt", NULL,
                                 "token %d at position %u of the prompt, the vocabulary has %u",
                                 r->prompt[i], i, s->be->n_vocab);
    }
    return OK;
}

/* What can never run is refused here, by limits that don't change. */
static enum status check_request(const struct sched *s, const struct request *r, struct err *e)
{
    if (r->n_prompt < 1)
        return err_set_field(e, ERR_INVALID, "prompt", NULL, "the prompt has no tokens");
    if (r->n_choices < 1 || r->n_choices > s->limits.max_running || r->n_choices > UINT16_MAX)
        return err_set_field(e, ERR_INVALID, "n", NULL, "n is %u, at most %u sequences run at once",
                             r->n_choices, s->limits.max_running);
    if (r->overflow_context && room_reserves(s, r->reserve))
        return err_set_field(e, ERR_INVALID, "overflow", NULL,
                             "\"overflow\" cannot be \"sinks\" where memory is reserved for the "
                             "whole answer");
    if (r->overflow_context &&
        (r->overflow_context < 4 * s->layout.n_slots || r->overflow_context <= r->n_prompt))
        return err_set_field(e, ERR_INVALID, "overflow", NULL,
                             "\"overflow\" needs a context of %u tokens and more than the prompt's "
                             "%u, it is %u",
                             4 * s->layout.n_slots, r->n_prompt, r->overflow_context);
    uint64_t n_positions =
        r->overflow_context ? req_history(r) : (uint64_t)r->n_prompt + r->max_tokens;
    if (n_positions > s->limits.max_context)
        return err_set_field(e, ERR_CONTEXT_LENGTH, "prompt", "context_length_exceeded",
                             "prompt of %u tokens and max_tokens %u need %llu positions, the limit "
                             "is %u",
                             r->n_prompt, r->max_tokens, (unsigned long long)n_positions,
                             s->limits.max_context);
    struct kv_need worst;
    if (!room_worst(s, r->n_prompt, req_history(r) - r->n_prompt, r->n_choices, r->reserve, &worst,
                    e))
        return ERR_CONTEXT_LENGTH;
    if (r->tenant >= TENANT_MAX)
        return err_set(e, ERR_INTERNAL, "tenant %u, there are %d", r->tenant, TENANT_MAX);
    uint32_t ring = request_ring_bytes(r, s->tok);
    if (r->ring.cap < ring)
        return err_set(e, ERR_INTERNAL, "event ring of %u bytes, the request needs %u", r->ring.cap,
                       ring);
    return check_tokens(s, r, e);
}

static enum status refuse_full(struct sched *s, uint32_t n_before, uint32_t *retry_s, struct err *e)
{
    gauges_rejected(s);
    *retry_s = tenants_retry_s(s->tenants, n_before);
    return err_set(e, ERR_QUEUE_FULL, "%u requests are waiting, the limit is %u", n_before,
                   s->limits.max_queued);
}

/* Past the tenants' gate; the door counts the request already. */
static enum status enter(struct sched *s, struct request *r, uint32_t n_before, uint32_t *retry_s,
                         struct err *e)
{
    const struct tenant_ask ask = {.tenant = r->tenant,
                                   .priority = r->priority,
                                   .n_tokens = r->n_prompt,
                                   .n_seqs = r->n_choices,
                                   .n_output = (uint64_t)r->max_tokens * r->n_choices,
                                   .n_open = atomic_load(&s->door.n_open),
                                   .now_ns = clock_ns(),
                                   .deadline_ns = r->deadline_ns,
                                   .prefill_ns_token = atomic_load(&s->door.prefill_ns) / 1e3};
    enum status st = tenant_enter(s->tenants, &ask, retry_s, e);
    if (st != OK) {
        gauges_rejected(s);
        return st;
    }
    struct req *q = req_new(r, s->tok);
    note_prints(s, q);
    q->reserves = room_reserves(s, r->reserve);
    if (mpsc_push(s->door.inbox, q))
        return OK;
    req_free(q);
    tenant_retract(s->tenants, &ask);
    return refuse_full(s, n_before, retry_s, e);
}

static enum status submit(struct sched *s, struct request *r, uint32_t *retry_s, struct err *e)
{
    struct sched_door *d = &s->door;
    uint32_t unused;
    retry_s = retry_s ? retry_s : &unused;
    if (atomic_load(&d->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    if (atomic_load(&d->broken))
        return err_set(e, ERR_INTERNAL, "the engine is broken: steps keep failing");
    enum status st = check_request(s, r, e);
    if (st != OK)
        return st;
    uint32_t n_before = atomic_fetch_add(&d->n_waiting, 1);
    if (n_before < s->limits.max_queued + atomic_load(&d->n_open) / r->n_choices)
        st = enter(s, r, n_before, retry_s, e);
    else
        st = refuse_full(s, n_before, retry_s, e);
    if (st != OK)
        atomic_fetch_sub(&d->n_waiting, 1);
    return st;
}

enum status sched_submit(struct sched *s, struct request *r, uint32_t *retry_s, struct err *e)
{
    atomic_fetch_add(&s->door.n_submitting, 1);
    enum status st = submit(s, r, retry_s, e);
    atomic_fetch_sub(&s->door.n_submitting, 1);
    return st;
}

void sched_cancel(struct sched *s, struct request *r)
{
    atomic_store(&r->cancelled, true);
    atomic_fetch_add(&s->door.n_cancels, 1);
    mpsc_wake(s->door.inbox);
}

void sched_resume(struct sched *s, struct request *r)
{
    (void)r; /* the planner looks at every ring before each step */
    mpsc_wake(s->door.inbox);
}

uint32_t sched_prefix_keys(const struct sched *s, const struct request *r, uint32_t n_tokens,
                           struct kv_key *keys)
{
    return kv_chain_keys(s->kv, req_root(s->kv, &s->memory.domain, r), r->prompt, n_tokens, keys);
}

void sched_wake(struct sched *s)
{
    mpsc_wake(s->door.inbox);
}

void sched_drain(struct sched *s)
{
    atomic_store(&s->door.draining, true);
}

void sched_stats(const struct sched *s, struct sched_stats *out)
{
    const struct sched_door *d = &s->door;
    *out = (struct sched_stats){
        .n_running = atomic_load(&d->n_running),
        .n_waiting = atomic_load(&d->n_waiting),
        .blocks_total = s->n_blocks,
        .blocks_free = atomic_load(&d->blocks_free),
        .slots_allocated = atomic_load(&d->slots_allocated),
        .slots_written = atomic_load(&d->slots_written),
        .n_steps = atomic_load(&d->n_steps),
        .heartbeat_ns = atomic_load(&d->heartbeat_ns),
        .idle = atomic_load(&d->idle),
        .broken = atomic_load(&d->broken),
    };
}
