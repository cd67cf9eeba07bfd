/* Answers questions about the scheduler between two steps; see snapshot.h. */
#include "scheduler/snapshot.h"

#include <stdio.h>
#include <string.h>

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
    return q->step == s->batch.step ? VIEW_RUNNING : VIEW_WAITING;
}

static void view_seq(struct sched *s, struct seq_view *v, const struct seq *q)
{
    v->choice = q->choice;
    v->state = state_of(s, q);
    v->n_tokens = q->n_tok;
    v->n_kv = q->n_kv;
    v->n_output = q->n_out;
    v->n_blocks[VIEW_TIER_ARENA] = q->table.n;
    for (uint32_t i = 0; i < q->table.n; i++)
        v->n_shared += s->pool.block[q->table.block[i]].ref > 1;
    v->idle_ns = q->used_ns && s->now_ns > q->used_ns ? s->now_ns - q->used_ns : 0;
}

static void view_sequences(struct sched *s, struct sched_ask *a)
{
    for (const struct req *q = s->active; q; q = q->next) {
        for (uint32_t i = 0; i < q->r->n_choices; i++) {
            if (q->seq[i].state != SEQ_DONE && takes(a))
                view_seq(s, next_seq(s, a, q), &q->seq[i]);
        }
    }
    for (const struct req *q = s->queue_head; q; q = q->next) {
        if (takes(a))
            next_seq(s, a, q)->state = VIEW_QUEUED;
    }
}

/* ---- blocks ---- */

static void view_blocks(struct sched *s, struct sched_ask *a)
{
    static const char *const names[KV_N_STATES] = {"free", "open", "sealed", "ready"};
    for (uint32_t i = 0; i < s->pool.n_blocks; i++) {
        const struct kv_block *b = &s->pool.block[i];
        if (b->state == KV_FREE || !takes(a))
            continue;
        a->item.block[a->n++] = (struct block_view){
            .block = i,
            .state = names[b->state],
            .tier = VIEW_TIER_ARENA,
            .place = i,
            .n_refs = b->ref,
            .n_pins = b->pin,
            .n_filled = b->filled,
        };
    }
}

/* ---- totals ---- */

static void view_totals(struct sched *s, struct sched_view *v)
{
    const struct kv_layout *l = &s->be->layout;
    memset(v, 0, sizeof(*v));
    v->n_running = s->n_slots_held;
    v->n_queued = s->n_queued;
    v->n_steps = s->door.n_steps;
    v->now_ns = s->now_ns;
    v->block_tokens = s->pool.n_slots;
    v->n_groups = 1;
    v->group[0] = (struct kv_view_group){
        .window = l->group[0].window,
        .block_bytes = (uint32_t)l->group[0].block_bytes,
        .n_frames = s->pool.n_blocks,
        .n_free = s->pool.n_free,
        .n_promised = s->pool.n_promised,
    };
    v->slots_allocated = (uint64_t)(s->pool.n_blocks - s->pool.n_free) * s->pool.n_slots;
    v->slots_written = s->pool.n_written;
    v->journal = s->journal.config;
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
        kv_audit(&s->pool, &a->audit_error);
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
    }
}

void snapshot_answer(struct sched *s)
{
    struct sched_ask *a = atomic_load_explicit(&s->door.asks, memory_order_relaxed);
    if (!a)
        return;
    a = atomic_exchange_explicit(&s->door.asks, NULL, memory_order_acquire);
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
