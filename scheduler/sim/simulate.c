/* The simulated run: submits when arrivals are due, turns the scheduler by hand, reads what comes; see
 * simulate.h. */
#include "scheduler/sim/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "scheduler/sim/sim_int.h"
#include "scheduler/snapshot.h"
#include "scheduler/tenant.h"

#define START_NS NS_PER_S
#define TENANT_AGE_NS (30 * NS_PER_S)

/* A request in the scheduler. */
struct live {
    struct sim *sim;
    uint32_t index;
    struct request *r; /* a reference; NULL when it is over */
    uint64_t *last_ns; /* owns [n_choices]: its last token */
    bool has_token;
};

struct sim {
    const struct sim_trace *t;
    const struct sim_options *o;
    struct sim_result *out;
    struct sim_world w;
    struct tenants *tenants;
    struct sched *s;
    struct live *live; /* owns [n_requests] */
    uint32_t *cancel; /* owns: indexes, by time */
    uint32_t n_cancels, next_cancel, next_submit, n_open;
    struct request *woken; /* linked by wake_next */
    double sum_running, sum_used, sum_ns;
};

/* ---- times ---- */

static uint64_t arrival_ns(const struct sim *m, uint32_t i)
{
    return START_NS + (uint64_t)((double)m->t->request[i].at_ns / m->o->rate);
}

/* A client's patience does not change with the rate. */
static uint64_t cancel_ns(const struct sim *m, uint32_t i)
{
    return arrival_ns(m, i) + m->t->request[i].cancel_ns;
}

static void move_to(uint64_t ns)
{
    uint64_t now = clock_ns();
    if (ns > now)
        clock_fake_advance(ns - now);
}

/* ---- submits and cancels ---- */

/* Engine thread of a server; here the same thread. */
static void on_wake(struct request *r, void *arg)
{
    struct sim *m = arg;
    if (atomic_exchange(&r->wake_queued, true))
        return;
    r->wake_next = m->woken;
    m->woken = r;
}

static struct request *request_of(struct sim *m, uint32_t i)
{
    static int32_t stop[] = {SIM_STOP_TOKEN};
    const struct sim_request *q = &m->t->request[i];
    struct request *r = request_new(4096);
    r->id = i + 1;
    r->arrive_ns = arrival_ns(m, i);
    r->n_prompt = q->n_prompt;
    r->prompt = mem_alloc(mem_mul(q->n_prompt, sizeof(int32_t)));
    for (uint32_t k = 0; k < q->n_prompt; k++)
        r->prompt[k] = sim_token(m->t, i, m->o->config.block_tokens, k);
    r->n_choices = q->n_choices;
    r->max_tokens = q->max_tokens;
    r->tenant = q->tenant % TENANT_MAX;
    r->priority = q->priority;
    r->sampling.seed = i;
    r->n_stop_tokens = 1;
    r->stop_tokens = mem_dup(stop, sizeof(stop));
    r->wake = on_wake;
    r->wake_arg = m;
    r->owner = &m->live[i];
    uint32_t ring = 2 * request_ring_bytes(r, NULL);
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, ring);
    return r;
}

static void submit_one(struct sim *m, uint32_t i)
{
    struct err e;
    uint32_t retry = 0;
    struct request *r = request_of(m, i);
    enum status st = sched_submit(m->s, r, &retry, &e);
    if (st == OK) {
        struct live *l = &m->live[i];
        l->r = r;
        l->last_ns = mem_zalloc(mem_mul(r->n_choices, sizeof(*l->last_ns)));
        m->n_open++;
        return;
    }
    request_unref(r);
    if (st == ERR_QUEUE_FULL)
        m->out->n_refused++;
    else
        m->out->n_failed++;
}

static void do_arrivals(struct sim *m, uint64_t now)
{
    while (m->next_submit < m->t->n_requests && arrival_ns(m, m->next_submit) <= now)
        submit_one(m, m->next_submit++);
    while (m->next_cancel < m->n_cancels && cancel_ns(m, m->cancel[m->next_cancel]) <= now) {
        struct live *l = &m->live[m->cancel[m->next_cancel++]];
        if (l->r)
            sched_cancel(m->s, l->r);
    }
}

/* ---- events ---- */

static void on_token(struct sim *m, struct live *l, const struct event *ev, uint64_t now)
{
    if (ev->token < 0)
        return;
    if (!l->has_token)
        sim_times_add(&m->out->first_token, now - arrival_ns(m, l->index));
    if (l->last_ns[ev->choice])
        sim_times_add(&m->out->gap, now - l->last_ns[ev->choice]);
    l->has_token = true;
    l->last_ns[ev->choice] = now;
}

static void on_end(struct sim *m, struct live *l, const struct event *ev, uint64_t now)
{
    struct sim_result *out = m->out;
    sim_times_add(&out->queue, ev->timing.ns[TIMING_queue]);
    if (ev->status == OK) {
        out->n_finished++;
        out->n_prompt_tokens += ev->n_prompt;
        out->n_output_tokens += ev->n_output;
    } else if (ev->status == ERR_CANCELLED) {
        out->n_cancelled++;
    } else {
        out->n_failed++;
    }
    out->span_ns = now - START_NS;
    m->n_open--;
    mem_free(l->last_ns);
    l->last_ns = NULL;
}

static void read_events(struct sim *m)
{
    uint64_t now = clock_ns();
    while (m->woken) {
        struct request *r = m->woken;
        struct live *l = r->owner;
        const struct event *ev;
        uint32_t n;
        bool ended = false;
        m->woken = r->wake_next;
        atomic_store(&r->wake_queued, false);
        while (!ended && (ev = byte_ring_peek(&r->ring, &n))) {
            if (ev->type == EVENT_TOKEN)
                on_token(m, l, ev, now);
            ended = ev->type == EVENT_END;
            if (ended)
                on_end(m, l, ev, now);
            byte_ring_pop(&r->ring);
        }
        if (ended) {
            l->r = NULL;
            request_unref(r);
        }
    }
}

/* ---- the loop ---- */

/* Time-weighted use of the arena and of the batch, between two looks. */
static void note_use(struct sim *m, uint64_t took_ns)
{
    struct sched_stats st;
    sched_stats(m->s, &st);
    uint32_t used = st.blocks_total - st.blocks_free;
    m->sum_running += (double)st.n_running * (double)took_ns;
    m->sum_used += (double)used / st.blocks_total * (double)took_ns;
    m->sum_ns += (double)took_ns;
    m->out->peak_running =
        st.n_running > m->out->peak_running ? st.n_running : m->out->peak_running;
    m->out->peak_used = used > m->out->peak_used ? used : m->out->peak_used;
}

static void earliest(uint64_t *least, uint64_t ns)
{
    if (ns && (!*least || ns < *least))
        *least = ns;
}

/* 0: nothing will happen by itself. */
static uint64_t next_event_ns(const struct sim *m)
{
    uint64_t ns = sim_world_next_ns(&m->w);
    if (m->next_submit < m->t->n_requests)
        earliest(&ns, arrival_ns(m, m->next_submit));
    if (m->next_cancel < m->n_cancels)
        earliest(&ns, cancel_ns(m, m->cancel[m->next_cancel]));
    return ns;
}

static enum status run(struct sim *m, struct err *e)
{
    enum { IDLE_TURNS = 4 }; /* without anything done, before time is moved on by itself */
    uint32_t n_idle = 0;
    while (m->next_submit < m->t->n_requests || m->n_open > 0) {
        uint64_t before = clock_ns();
        do_arrivals(m, before);
        bool any = sched_turn(m->s);
        read_events(m);
        note_use(m, clock_ns() - before);
        n_idle = any ? 0 : n_idle + 1;
        if (any)
            continue;
        uint64_t next = next_event_ns(m);
        if (next > clock_ns()) {
            move_to(next);
            note_use(m, clock_ns() - before);
        } else if (!next && n_idle >= IDLE_TURNS) {
            return err_set(e, ERR_INTERNAL, "%u requests wait and nothing goes on", m->n_open);
        }
    }
    return OK;
}

/* ---- life ---- */

static int by_cancel(const void *a, const void *b, void *sim)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint64_t at_x = cancel_ns(sim, x), at_y = cancel_ns(sim, y);
    if (at_x != at_y)
        return at_x < at_y ? -1 : 1;
    return (x > y) - (x < y);
}

static void list_cancels(struct sim *m)
{
    m->cancel = mem_alloc(mem_mul(m->t->n_requests, sizeof(*m->cancel)));
    for (uint32_t i = 0; i < m->t->n_requests; i++) {
        if (m->t->request[i].cancel_ns)
            m->cancel[m->n_cancels++] = i;
    }
    qsort_r(m->cancel, m->n_cancels, sizeof(*m->cancel), by_cancel, m);
}

/* Every tenant of the trace, with equal weights. */
static struct tenants *make_tenants(const struct sim *m)
{
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    struct tenants *t = tenants_new(TENANT_AGE_NS, m->o->config.max_running, 0, 0);
    set->n = 1;
    for (uint32_t i = 0; i < m->t->n_requests; i++) {
        uint32_t slot = m->t->request[i].tenant % TENANT_MAX;
        set->n = slot + 1 > set->n ? slot + 1 : set->n;
    }
    for (uint32_t i = 0; i < set->n; i++)
        set->row[i].weight = 1;
    tenants_apply(t, set);
    mem_free(set);
    return t;
}

/* A journal may come from anywhere: what the books are sized by is bounded. */
static enum status check(const struct sim *m, struct err *e)
{
    enum { MAX_BLOCKS = 1 << 26, MAX_ROWS = 1 << 16, MAX_QUEUED = 1 << 24 };
    const struct journal_config *c = &m->o->config;
    bool fine = c->block_tokens >= 8 && c->block_tokens <= 64 && c->block_tokens % 8 == 0 &&
                c->n_groups >= 1 && c->n_groups <= KV_MAX_GROUPS && c->max_running >= 1 &&
                c->max_running <= MAX_ROWS && c->max_batch_tokens <= MAX_ROWS &&
                c->max_queued <= MAX_QUEUED && c->reserve <= SCHED_RESERVE_MAX &&
                c->preempt <= SCHED_PREEMPT_NEVER;
    for (uint32_t g = 0; fine && g < c->n_groups; g++) {
        const struct journal_group *k = &c->group[g];
        fine = k->n_frames >= 1 && k->n_frames <= MAX_BLOCKS && k->n_host <= MAX_BLOCKS &&
               k->n_file <= MAX_BLOCKS && k->block_bytes <= 1u << 30;
    }
    return fine ? OK
                : err_set(e, ERR_INVALID, "the limits or block counts of the load are not valid");
}

static enum status start(struct sim *m, struct err *e)
{
    if (check(m, e) != OK)
        return ERR_INVALID;
    const struct journal_config *c = &m->o->config;
    struct sched_limits limits = {.max_running = c->max_running,
                                  .max_queued = c->max_queued,
                                  .max_batch_tokens = c->max_batch_tokens,
                                  .chunk_max = c->chunk_max,
                                  .step_target_ms = c->step_target_ms,
                                  .max_context = c->max_context,
                                  .reserve = (enum sched_reserve)c->reserve,
                                  .preempt = (enum sched_preempt)c->preempt};
    sim_world_init(&m->w, m->t, m->o);
    m->live = mem_zalloc(mem_mul(m->t->n_requests, sizeof(*m->live)));
    for (uint32_t i = 0; i < m->t->n_requests; i++)
        m->live[i] = (struct live){.sim = m, .index = i};
    list_cancels(m);
    m->tenants = make_tenants(m);
    limits.tenants = m->tenants;
    return sched_new(&limits, &m->w.be, &m->w.memory, NULL, NULL, &m->s, e);
}

static void ignore(struct sched_ask *a, void *arg)
{
    (void)a, (void)arg;
}

static void take_counts(struct sim *m)
{
    struct sim_result *out = m->out;
    struct seq_view none;
    struct sched_ask ask = {.kind = ASK_SEQUENCES, .item.seq = &none, .done = ignore};
    sched_ask(m->s, &ask);
    sched_turn(m->s);
    const struct sched_view *v = &ask.view;
    out->n_steps = m->w.n_steps;
    out->n_rows = m->w.n_rows;
    out->busy_ns = m->w.busy_ns;
    out->n_preempted = v->n_preempted;
    out->n_query_tokens = v->n_query_tokens;
    out->n_hit_tokens = v->n_hit_tokens;
    out->n_spilled = v->n_spilled;
    out->n_loaded = v->n_loaded;
    out->n_evicted = v->n_evicted;
    if (m->sum_ns > 0) {
        out->mean_running = m->sum_running / m->sum_ns;
        out->mean_used = m->sum_used / m->sum_ns;
    }
}

/* Copies that are still out come home before the books are closed. */
static void stop(struct sim *m)
{
    if (m->s) {
        for (uint64_t ns; (ns = sim_world_next_ns(&m->w)) != 0;) {
            move_to(ns);
            sched_turn(m->s);
        }
        sched_stop(m->s);
        read_events(m);
        sched_free(m->s);
    }
    for (uint32_t i = 0; m->live && i < m->t->n_requests; i++)
        mem_free(m->live[i].last_ns);
    tenants_free(m->tenants);
    mem_free(m->live);
    mem_free(m->cancel);
}

enum status sim_run(const struct sim_trace *t, const struct sim_options *o, struct sim_result *out,
                    struct err *e)
{
    struct sim *m = mem_zalloc(sizeof(*m));
    m->t = t;
    m->o = o;
    m->out = out;
    memset(out, 0, sizeof(*out));
    out->n_requests = t->n_requests;
    clock_fake(true, START_NS);
    enum status st = start(m, e);
    if (st == OK)
        st = run(m, e);
    if (st == OK)
        take_counts(m);
    stop(m);
    clock_fake(false, 0);
    mem_free(m);
    return st;
}
