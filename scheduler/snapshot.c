/* Answers questions about the scheduler between two steps; see snapshot.h. */
#include "scheduler/snapshot.h"

#include <stdio.h>
#include <string.h>

#include "scheduler/disk.h"
#include "scheduler/journal.h"
#include "scheduler/notes.h"
#include "scheduler/sched.h"

const char *view_state_name(enum view_state state)
{
    static const char *const names[N_VIEW_STATES] = {
#define X(id, name, what) [VIEW_##id] = name,
        VIEW_STATES(X)
#undef X
    };
    return names[state];
}

const char *view_tier_name(enum view_tier t)
{
    static const char *const names[N_VIEW_TIERS] = {
#define X(id, name) [VIEW_TIER_##id] = name,
        VIEW_TIERS(X)
#undef X
    };
    return names[t];
}

/* ---- sequences ---- */

/* True when the item is wanted: counts it either way. */
static bool takes(struct sched_ask *a)
{
    uint64_t at = a->n_all++;
    return at >= a->from && a->n < a->cap;
}

static struct seq_view *next_seq(struct sched *s, struct sched_ask *a, const struct req *q)
{
    const struct request *r = q->r;
    struct seq_view *v = &a->item.seq[a->n++];
    struct stopwatch so_far = q->watch;
    memset(v, 0, sizeof(*v));
    snprintf(v->name, sizeof(v->name), "%s", r->name);
    v->n_choices = r->n_choices;
    v->n_prompt = r->n_prompt;
    v->max_tokens = r->max_tokens;
    v->n_tokens = r->n_prompt;
    v->priority = r->priority;
    v->tenant = r->tenant;
    v->timing = stopwatch_end(&so_far, s->now_ns);
    return v;
}

static enum view_state state_of(const struct sched *s, const struct seq *q)
{
    if (q->state == SEQ_IDLE)
        return VIEW_FORKING;
    if (q->state == SEQ_PARKED)
        return VIEW_PARKED;
    if (q->state == SEQ_FETCHING || q->kv.n_loading > 0)
        return VIEW_LOADING;
    return q->step == s->n_planned ? VIEW_RUNNING : VIEW_WAITING;
}

/* Where the bytes are. With a frame and a slot both: the frame, the copy is only spare. */
static enum view_tier tier_of(const struct sched *s, uint32_t g, const struct kv_block_look *b)
{
    if (b->moving)
        return VIEW_TIER_MOVING;
    if (b->frame != KV_NO_BLOCK)
        return VIEW_TIER_ARENA;
    return b->slot < s->memory.arena->group[g].n_host ? VIEW_TIER_RAM : VIEW_TIER_FILE;
}

static void view_table(const struct sched *s, struct seq_view *v, uint32_t g,
                       const struct kv_table *t)
{
    struct kv_block_look b;
    for (uint32_t i = t->first; i < t->n; i++) {
        if (!kv_block_look(s->kv, g, t->block[i], &b))
            continue;
        v->n_blocks[tier_of(s, g, &b)]++;
        v->n_shared += b.n_refs > 1;
    }
}

static void view_seq(struct sched *s, struct seq_view *v, const struct seq *q)
{
    v->choice = q->choice;
    v->state = state_of(s, q);
    v->n_tokens = q->n_tok;
    v->n_kv = q->n_kv;
    v->n_output = q->n_out;
    v->n_cached = q->req->n_cached;
    v->n_preempted = q->n_preempted;
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        view_table(s, v, g, &q->kv.t[g]);
    v->idle_ns = q->used_ns && s->now_ns > q->used_ns ? s->now_ns - q->used_ns : 0;
}

static bool is_asked_for(const struct sched_ask *a, const struct req *q)
{
    return !a->one_tenant || q->r->tenant == a->tenant;
}

static void view_sequences(struct sched *s, struct sched_ask *a)
{
    uint32_t n_live = 0, n_parked = 0, n_queued = 0;
    for (const struct req *q = s->running.reqs; q; q = q->next) {
        for (uint32_t i = 0; i < q->r->n_choices && is_asked_for(a, q); i++) {
            if (q->seq[i].state == SEQ_DONE)
                continue;
            n_live++;
            n_parked += q->seq[i].state == SEQ_PARKED;
            if (takes(a))
                view_seq(s, next_seq(s, a, q), &q->seq[i]);
        }
    }
    for (const struct req *q = s->queue; q; q = q->next) {
        if (!is_asked_for(a, q))
            continue;
        n_queued++;
        if (takes(a))
            next_seq(s, a, q)->state = VIEW_QUEUED;
    }
    if (!a->one_tenant)
        return;
    a->view.n_running = n_live - n_parked;
    a->view.n_parked = n_parked;
    a->view.n_queued = n_queued;
}

/* ---- blocks ---- */

static void view_block(const struct sched *s, struct block_view *v, uint32_t g, uint32_t i,
                       const struct kv_block_look *b)
{
    *v = (struct block_view){
        .group = g,
        .block = i,
        .state = b->state,
        .tier = tier_of(s, g, b),
        .place = b->frame != KV_NO_BLOCK ? b->frame : b->slot,
        .clean = b->frame != KV_NO_BLOCK && b->slot != KV_NO_BLOCK && !b->moving,
        .n_refs = b->n_refs,
        .n_pins = b->n_pins,
        .n_filled = b->n_filled,
        .n_hits = b->n_hits,
    };
}

static void view_blocks(struct sched *s, struct sched_ask *a)
{
    struct kv_block_look b;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        for (uint32_t i = 0; i < kv_blocks(s->kv, g); i++) {
            if (kv_block_look(s->kv, g, i, &b) && takes(a))
                view_block(s, &a->item.block[a->n++], g, i, &b);
        }
    }
}

/* ---- totals ---- */

static void view_totals(struct sched *s, struct sched_view *v)
{
    struct kv_stats st;
    kv_cache_stats(s->kv, &st);
    *v = (struct sched_view){
        .n_running = s->running.n_held - s->parked.n,
        .n_queued = tenants_n_queued(s->tenants),
        .n_parked = s->parked.n,
        .n_jobs = kv_jobs_open(s->kv),
        .n_steps = s->door.n_steps,
        .now_ns = s->now_ns,
        .n_groups = s->layout.n_groups,
        .block_tokens = s->layout.n_slots,
        .slots_allocated = st.slots_allocated,
        .slots_written = st.slots_written,
        .n_queries = s->prefix.n_queries,
        .n_query_tokens = s->prefix.n_query_tokens,
        .n_hit_tokens = s->prefix.n_hit_tokens,
        .n_evicted = st.n_evicted,
        .n_spilled = st.n_spilled,
        .n_loaded = st.n_loaded,
        .n_failed = st.n_failed,
        .n_preempted = s->n_preempted[PREEMPT_SWAP] + s->n_preempted[PREEMPT_RECOMPUTE],
        .journal = s->journal.config,
    };
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        v->group[g] = (struct kv_view_group){
            .window = s->layout.group[g].window,
            .block_bytes = (uint32_t)s->layout.group[g].block_bytes,
            .n_frames = st.n_frames[g],
            .n_free = st.n_free[g],
            .n_cached = st.n_cached[g],
            .n_promised = st.n_promised[g],
            .n_slots = st.n_slots_total[g],
            .n_slots_used = st.n_slots_used[g],
        };
    }
    note_costs(s, &v->journal);
}

static void answer(struct sched *s, struct sched_ask *a)
{
    a->n = 0;
    a->n_all = 0;
    a->status = OK;
    view_totals(s, &a->view);
    if (a->audit) {
        a->audited = true;
        a->audit_error = (struct err){0};
        kv_cache_audit(s->kv, &a->audit_error);
    }
    switch (a->kind) {
    case ASK_SEQUENCES:
        view_sequences(s, a);
        break;
    case ASK_BLOCKS:
        view_blocks(s, a);
        break;
    case ASK_JOURNAL:
        a->n = journal_copy(&s->journal, a->from, a->item.record, a->cap, &a->n_all);
        break;
    case ASK_PINS:
        disk_pins(s, a->item.key, a->n_pin, a->n_unpin);
        break;
    }
}

/* Oldest first: pins of one prefix come in the order of its changes. */
static struct sched_ask *in_order(struct sched_ask *newest)
{
    struct sched_ask *first = NULL;
    while (newest) {
        struct sched_ask *next = newest->next;
        newest->next = first;
        first = newest;
        newest = next;
    }
    return first;
}

void snapshot_answer(struct sched *s)
{
    struct sched_ask *a = atomic_load_explicit(&s->door.asks, memory_order_relaxed);
    if (!a)
        return;
    a = in_order(atomic_exchange_explicit(&s->door.asks, NULL, memory_order_acquire));
    while (a) {
        struct sched_ask *next = a->next;
        answer(s, a);
        a->done(a, a->arg);
        a = next;
    }
}

/* ---- any thread ---- */

static void refuse(struct sched_ask *a)
{
    a->n = 0;
    a->n_all = 0;
    a->status = ERR_DRAINING;
    a->done(a, a->arg);
}

void sched_ask(struct sched *s, struct sched_ask *a)
{
    struct sched_door *d = &s->door;
    /* sched_stop waits for those inside before it answers for the last time. */
    atomic_fetch_add(&d->n_submitting, 1);
    bool ends = atomic_load(&d->stopping);
    if (!ends) {
        a->next = atomic_load_explicit(&d->asks, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&d->asks, &a->next, a, memory_order_release,
                                                      memory_order_relaxed))
            continue;
        mpsc_wake(d->inbox);
    }
    atomic_fetch_sub(&d->n_submitting, 1);
    if (ends)
        refuse(a);
}
