/* Random operations on a scheduler over tiny pools, for test_tag_random.c and the planted faults. Every
 * token, reason, prompt logprob and end is compared with the naive reference (tag_lone.h) as it arrives. Actions
 * of other threads happen at any time, also while a step is in flight (tag_meanwhile). */
#ifndef TESTS_SCHEDULER_TAG_WORLD_H
#define TESTS_SCHEDULER_TAG_WORLD_H

#include "scheduler/tenant_int.h"
#include "kvpool/kvpool_test.h"
#include "base/base_test.h"
#include "tests/unit/scheduler/tag_disk.h"
#include "tests/unit/scheduler/tag_progress.h"

/* ---- submit ---- */

/* Promises to the squatter leave room for this request when it is alone: nobody else's is what the
 * scheduler knows of. */
static inline bool tag_fits_squeezed(const struct tag_world *w, const struct request *r)
{
    struct kv_need worst;
    struct err e;
    if (!w->squeezes ||
        !room_worst(w->g.s, r->n_prompt, longest_output(r), r->n_choices, r->reserve, &worst, &e))
        return true;
    for (uint32_t g = 0; g < w->opt.n_groups; g++) {
        if (worst.n[g] > w->opt.n_frames[g] * 3 / 4)
            return false;
    }
    return true;
}

/* Some begin with a named prefix. */
static inline bool tag_named_prompt(struct tag_world *w, struct request *r)
{
    struct kv_named_prefix *p = NULL;
    struct err e;
    uint32_t n_own = 1 + draw(&w->r, 12);
    if (!w->named || !one_in(&w->r, 4) ||
        kv_named_get(w->named, (struct str){0}, name_text(draw(&w->r, N_NAMES)), &p, &e) != OK)
        return false;
    r->n_prompt = p->n_tokens + n_own;
    r->prompt = mem_alloc(r->n_prompt * sizeof(int32_t));
    memcpy(r->prompt, p->tokens, p->n_tokens * sizeof(int32_t));
    for (uint32_t i = p->n_tokens; i < r->n_prompt; i++)
        r->prompt[i] = (int32_t)draw(&w->r, w->opt.n_vocab);
    kv_named_prefix_free(p);
    random_count(DID_NAMED);
    return true;
}

static inline void tag_prompt(struct tag_world *w, struct request *r)
{
    struct random *rnd = &w->r;
    if (tag_named_prompt(w, r))
        return;
    uint32_t family = draw(rnd, N_FAMILIES), n_shared = draw(rnd, 60), n_own = draw(rnd, 12);
    if (one_in(rnd, 3))
        n_shared -= n_shared % w->opt.n_slots;
    if (one_in(rnd, w->long_ones ? 2 : 6))
        n_shared += draw(rnd, w->max_context - 60);
    if (one_in(rnd, 4)) {
        n_own += n_shared;
        n_shared = 0;
    }
    uint32_t n = n_shared + n_own ? n_shared + n_own : 1;
    r->prompt = mem_alloc(n * sizeof(int32_t));
    r->n_prompt = n;
    for (uint32_t i = 0; i < n; i++)
        r->prompt[i] = i < n_shared ? (int32_t)(random_mix(family * 1000003u + i) % w->opt.n_vocab)
                                    : (int32_t)draw(rnd, w->opt.n_vocab);
}

static inline bool tag_salt(struct tag_world *w, struct request *r)
{
    uint32_t kind = draw(&w->r, 8);
    if (kind < 5)
        return false;
    uint32_t salt = kind < 7 ? kind : 1000 + w->n_salts++;
    r->salt = mem_dup(&salt, sizeof(salt));
    r->n_salt_bytes = sizeof(salt);
    return kind == 7;
}

/* A context so small that the answer comes to its end several times; sometimes too small. */
static inline void tag_overflow(struct tag_world *w, struct request *r)
{
    struct random *rnd = &w->r;
    uint32_t n_slots = w->opt.n_slots, least = 4 * n_slots;
    if (!w->overflows || one_in(rnd, 4))
        return;
    if (least <= r->n_prompt)
        least = r->n_prompt + 1;
    r->overflow_context = least + draw(rnd, one_in(rnd, 2) ? 4 : 2 * n_slots) - one_in(rnd, 30);
    r->max_tokens = r->overflow_context - r->n_prompt + draw(rnd, 5 * n_slots);
    r->reserve &= one_in(rnd, 4);
    r->n_stop_tokens = one_in(rnd, 4) ? r->n_stop_tokens : 0;
}

/* Nothing is sampled: the prompt is computed for the prefix cache, sometimes to be named. */
static inline void tag_fill(struct tag_world *w, struct request *r, uint32_t *name)
{
    *name = 0;
    if (!one_in(&w->r, w->named ? 12 : 40))
        return;
    r->fill = true;
    r->max_tokens = 0;
    if (!w->named || r->n_salt_bytes || r->n_prompt < 2 || one_in(&w->r, 3))
        return;
    r->n_choices = 1;
    r->prompt_logprobs = false;
    *name = 1 + draw(&w->r, N_NAMES);
}

static inline struct request *tag_request(struct tag_world *w, bool *fresh_salt, uint32_t *name)
{
    struct random *rnd = &w->r;
    struct request *r = request_new(1u << 10);
    tag_prompt(w, r);
    *fresh_salt = tag_salt(w, r);
    r->max_tokens = draw(rnd, 40);
    if (one_in(rnd, 10))
        r->max_tokens = draw(rnd, w->max_context);
    r->n_choices = one_in(rnd, 4) ? 1 + draw(rnd, MAX_CHOICES) : 1;
    r->sampling.temperature = (float)draw(rnd, 2);
    r->sampling.seed = draw(rnd, 5);
    r->sampling.n_top = (int32_t)draw(rnd, 4) - 1;
    r->prompt_logprobs = one_in(rnd, 8);
    r->min_tokens = one_in(rnd, 4) ? draw(rnd, 20) : 0;
    r->n_stop_tokens = draw(rnd, 4);
    r->stop_tokens = mem_alloc(3 * sizeof(int32_t));
    for (uint32_t i = 0; i < r->n_stop_tokens; i++)
        r->stop_tokens[i] = (int32_t)draw(rnd, w->opt.n_vocab);
    if (one_in(rnd, 6))
        r->queue_deadline_ns = clock_ns() + draw(rnd, 400) * NS_PER_MS;
    if (one_in(rnd, 6))
        r->deadline_ns = clock_ns() + draw(rnd, 400) * NS_PER_MS;
    r->priority = one_in(rnd, 4) ? (int32_t)draw(rnd, 7) - 3 : 0;
    r->reserve = one_in(rnd, w->rushes ? 2 : 8);
    r->tenant = draw(rnd, w->n_tenants);
    tag_overflow(w, r);
    tag_fill(w, r, name);
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, request_ring_bytes(r, NULL) << draw(rnd, 3));
    return r;
}

static inline void live_init(struct tag_world *w, struct live *l, struct request *r,
                             bool fresh_salt, uint32_t name)
{
    bool pending = w->n_injected &&
                   fake_steps(w->g.be) == w->inject_step; /* a failure asked for and yet to come */
    l->r = r;
    l->n_injected = w->n_injected - pending;
    l->fresh_salt = fresh_salt;
    l->name = name;
    l->cancelled = false;
    l->n_prompt_events = l->n_still = 0;
    l->steps = l->most_still = 0;
    l->is_oldest = l->waits = false;
    l->prompt_chain = fake_chain(r->prompt, 1);
    l->nan_prompt = lone_init(&w->ref, r, l->lone);
}

/* Why a request may be refused, by what it is. */
static inline void check_refusal(struct tag_world *w, const struct request *r, enum status st,
                                 bool fits, uint32_t retry, const struct err *e)
{
    uint32_t cap = w->g.s->tenants->gate[r->tenant].max_running;
    bool promised = r->reserve || w->opt.limits.reserve == SCHED_RESERVE_MAX ||
                    w->opt.limits.preempt == SCHED_PREEMPT_NEVER;
    random_count(DID_REFUSE);
    if (st == ERR_QUEUE_FULL)
        MUST(retry >= 1 && retry <= 60, "%u", retry);
    else if (st == ERR_CONTEXT_LENGTH)
        MUST(!fits || promised, "%s", e->text);
    else
        MUST(st == ERR_INVALID &&
                 (r->n_choices > w->opt.limits.max_running || (cap && r->n_choices > cap) ||
                  (r->overflow_context && (promised || r->overflow_context < 4 * w->opt.n_slots ||
                                           r->overflow_context <= r->n_prompt))),
             "%s", e->text);
    MUST(r->engine_part == NULL && atomic_load(&r->refs) == 1, "refs");
}

static inline struct live *free_place(struct tag_world *w)
{
    for (uint32_t i = 0; i < MAX_LIVE; i++) {
        if (!w->live[i].r)
            return &w->live[i];
    }
    return NULL;
}

static inline void count_request(struct tag_world *w, const struct request *r)
{
    w->n_submitted++;
    if (r->reserve)
        random_count(DID_RESERVE);
    if (r->fill)
        random_count(DID_FILL);
    if (r->n_choices > 1 && r->max_tokens > 0)
        random_count(DID_FORK);
    if (longest_history(r) > w->opt.n_slots * w->opt.n_frames[0] + 1)
        random_count(DID_LONGER_THAN_ARENA);
    if (w->meanwhile)
        random_count(DID_LATE_SUBMIT);
}

static inline void tag_submit(struct tag_world *w)
{
    struct live *l = free_place(w);
    bool fresh_salt;
    if (!l)
        return;
    uint32_t name, retry = 0, room = 0;
    struct request *r = tag_request(w, &fresh_salt, &name);
    struct err e;
    if (!tag_fits_squeezed(w, r)) {
        request_unref(r);
        return;
    }
    enum status st = sched_submit(w->g.s, r, &retry, &e);
    TRACE(&w->r, "submit %u + %u, n %u, salt %u, reserve %d, overflow %u, fill %d: %s", r->n_prompt,
          r->max_tokens, r->n_choices, r->n_salt_bytes, r->reserve, r->overflow_context, r->fill,
          st == OK ? "ok" : e.text);
    bool fits = sched_room(w->g.s, r->n_prompt, r->n_choices, &room) && room >= longest_output(r);
    if (st != OK) {
        check_refusal(w, r, st, fits, retry, &e);
        request_unref(r);
        return;
    }
    MUST(fits || r->max_tokens == 0, "%u + %u, room %u", r->n_prompt, longest_output(r), room);
    live_init(w, l, r, fresh_salt, name);
    count_request(w, r);
}

/* ---- what the consumer sees, against the reference ---- */

static inline void check_end(struct tag_world *w, struct live *l, const struct event *ev)
{
    const struct request *r = l->r;
    bool nan = l->nan_prompt, overflowed = false;
    uint32_t n_output = 0;
    for (uint32_t c = 0; c < r->n_choices; c++) {
        const struct lone *o = &l->lone[c];
        n_output += o->n;
        nan |= lone_ends_in_nan(&w->ref, r, o, c);
        overflowed |= o->n_overflows > 0;
        if (ev->status != OK)
            continue;
        MUST(o->finished && (r->max_tokens == 0 || o->reason != FINISH_NONE),
             "choice %u of %u, %u tokens", c, r->n_choices, o->n);
    }
    MUST(ev->n_output == n_output && ev->n_prompt == r->n_prompt, "%u, %u", ev->n_output,
         ev->n_prompt);
    MUST(ev->n_cached < r->n_prompt, "%u cached of %u", ev->n_cached, r->n_prompt);
    MUST(!l->fresh_salt || ev->n_cached == 0, "%u cached with a salt of its own", ev->n_cached);
    MUST(w->opt.prefix || ev->n_cached == 0, "%u cached without an index", ev->n_cached);
    const char *text = ev->n_text ? event_text(ev) : "";
    if (ev->status == OK) {
        MUST(!l->nan_prompt, "ended well with values that are not finite");
        MUST(l->n_prompt_events == (r->prompt_logprobs ? r->n_prompt - 1 : 0), "%u prompt events",
             l->n_prompt_events);
        random_count(DID_END);
        if (ev->n_cached)
            random_count(DID_HIT);
        if (l->name && !w->stopping)
            name_keep(w, r, l->name - 1);
    } else if (ev->status == ERR_TIMEOUT) {
        MUST(r->queue_deadline_ns && n_output == 0, "%.*s", (int)ev->n_text, text);
        random_count(DID_TIMEOUT);
    } else if (ev->status == ERR_DEADLINE) {
        MUST(r->deadline_ns && n_output == 0, "%.*s", (int)ev->n_text, text);
        random_count(DID_TIMEOUT);
    } else if (ev->status == ERR_CANCELLED) {
        MUST(l->cancelled, "%.*s", (int)ev->n_text, text);
        random_count(DID_CANCEL);
        if (overflowed)
            random_count(DID_OVERFLOW_CANCEL);
    } else if (ev->status == ERR_NUMERIC) {
        MUST(nan, "%.*s", (int)ev->n_text, text);
        random_count(DID_NAN);
        if (overflowed)
            random_count(DID_OVERFLOW_NAN);
    } else if (ev->status == ERR_DRAINING) {
        MUST(w->stopping, "%.*s", (int)ev->n_text, text);
    } else {
        MUST(ev->status == ERR_INTERNAL && w->n_injected > l->n_injected, "%.*s", (int)ev->n_text,
             text);
    }
    w->n_ended++;
}

static inline void check_token(struct tag_world *w, struct live *l, const struct event *ev)
{
    struct lone *o = &l->lone[ev->choice];
    MUST(o->reason == FINISH_NONE && !o->finished, "choice %u: token after the end", ev->choice);
    MUST(o->n > 0 || !l->nan_prompt, "choice %u: token after a prompt that is not finite",
         ev->choice);
    uint64_t before = o->chain;
    uint32_t n_before = o->n_overflows;
    int32_t token = lone_step(&w->ref, l->r, o, ev->choice);
    MUST(token == ev->token, "choice %u, token %u: %d instead of %d", ev->choice, o->n, ev->token,
         token);
    if (l->r->sampling.n_top >= 0)
        MUST(ev->logprob == fake_chain_logprob(before, token), "choice %u", ev->choice);
    if (o->n_overflows == n_before)
        return;
    random_count(n_before > 0 ? DID_OVERFLOW_AGAIN : DID_OVERFLOW);
    if (l->r->n_choices > 1)
        random_count(DID_OVERFLOW_FORK);
}

static inline void check_event(struct tag_world *w, struct live *l, const struct event *ev)
{
    MUST(ev->choice < l->r->n_choices, "%u", ev->choice);
    struct lone *o = &l->lone[ev->choice];
    if (ev->type == EVENT_TOKEN) {
        check_token(w, l, ev);
    } else if (ev->type == EVENT_PROMPT) {
        uint32_t at = ++l->n_prompt_events;
        MUST(at < l->r->n_prompt && ev->token == l->r->prompt[at], "prompt token %u", at);
        if (l->r->sampling.n_top >= 0)
            MUST(ev->logprob == fake_chain_logprob(l->prompt_chain, ev->token), "prompt token %u",
                 at);
        l->prompt_chain = fake_chain_next(l->prompt_chain, ev->token);
    } else if (ev->type == EVENT_FINISH) {
        MUST(!o->finished, "choice %u finished twice", ev->choice);
        MUST(ev->reason == (l->r->max_tokens ? o->reason : FINISH_LENGTH), "choice %u: %u, not %u",
             ev->choice, ev->reason, o->reason);
        MUST(ev->n_dropped == o->n_dropped, "choice %u: %u dropped, not %u", ev->choice,
             ev->n_dropped, o->n_dropped);
        o->finished = true;
    } else {
        MUST(ev->type == EVENT_END, "%u", ev->type);
        check_end(w, l, ev);
    }
}

/* Reads up to n events; a request that ended leaves. */
static inline void tag_read(struct tag_world *w, struct live *l, uint32_t n)
{
    uint32_t n_bytes;
    const struct event *ev;
    for (uint32_t i = 0; l->r && i < n && (ev = byte_ring_peek(&l->r->ring, &n_bytes)); i++) {
        bool ends = ev->type == EVENT_END;
        if (w->meanwhile)
            random_count(DID_LATE_READ);
        check_event(w, l, ev);
        byte_ring_pop(&l->r->ring);
        if (ends) {
            request_unref(l->r);
            l->r = NULL;
        }
    }
}

/* ---- after each operation ---- */

/* Wipes frames and slots that have become free since the last look. */
static inline void tag_poison_free(struct tag_world *w, uint32_t group)
{
    const struct kvc_group *g = &w->g.s->kv->group[group];
    for (uint32_t i = 0; i < g->n_frames + g->n_tier; i++) {
        bool is_free = i < g->n_frames ? g->frame_block[i] == KV_NO_BLOCK
                                       : g->slot_block[i - g->n_frames] == KV_NO_BLOCK;
        if (is_free && !w->was_free[group][i])
            fake_poison(w->g.be, group, i, 1);
        w->was_free[group][i] = is_free;
    }
}

static inline void tag_audit(struct tag_world *w)
{
    sched_audit(w->g.s);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        tag_poison_free(w, g);
    disk_audit(w);
    MUST(fake_tag_mismatches(w->g.be) == 0, "%s", fake_mismatch(w->g.be));
}

static inline void count_up(uint64_t *before, uint64_t now, enum tag_count what)
{
    for (; *before < now; ++*before)
        random_count(what);
}

/* What happens to a sequence whose history was cut. */
static inline void count_overflowed(struct tag_world *w)
{
    const struct sched *s = w->g.s;
    bool preempts = s->n_preempted[0] + s->n_preempted[1] > w->n_swapped + w->n_recomputed;
    for (uint32_t i = 0; i < s->running.n; i++) {
        const struct seq *q = s->running.seq[i];
        if (q->n_dropped > 0 && q->kv.n_hit > 0 && q->step == s->step.batch.step)
            random_count(DID_OVERFLOW_HIT);
    }
    for (uint32_t i = 0; i < s->parked.n && preempts; i++) {
        const struct seq *q = s->parked.seq[i];
        if (q->n_dropped > 0 && q->n_preempted > 0)
            random_count(park_blocks(q) > 0 ? DID_OVERFLOW_SWAP : DID_OVERFLOW_RECOMPUTE);
    }
}

/* What this turn did. */
static inline void tag_count_turn(struct tag_world *w)
{
    const struct sched *s = w->g.s;
    struct kv_stats st;
    kv_cache_stats(s->kv, &st);
    count_up(&w->before.n_evicted, st.n_evicted, DID_EVICT);
    count_up(&w->before.n_loaded, st.n_loaded, DID_LOAD);
    count_overflowed(w);
    count_up(&w->n_swapped, s->n_preempted[PREEMPT_SWAP], DID_SWAP);
    count_up(&w->n_recomputed, s->n_preempted[PREEMPT_RECOMPUTE], DID_RECOMPUTE);
    if (s->step.n_paused)
        random_count(DID_PAUSE);
    if (s->n_failed_steps > 0 && w->opt.fake.runs_late)
        random_count(DID_LATE_FAIL);
    for (uint32_t i = 0; i < s->step.batch.n_spans; i++) {
        if (s->step.batch.span[i].n_staged)
            random_count(DID_STAGE);
        if (s->step.batch.span[i].lost)
            random_count(DID_READ_FAIL);
        if (w->opt.window[w->opt.n_groups - 1] &&
            s->step.batch.span[i].pos0 > w->opt.window[w->opt.n_groups - 1])
            random_count(DID_SLIDE);
    }
}

/* ---- operations ---- */

static inline void op_cancel(struct tag_world *w)
{
    struct live *l = &w->live[draw(&w->r, MAX_LIVE)];
    if (!l->r)
        return;
    TRACE(&w->r, "cancel");
    const struct req *q = l->r->engine_part;
    if (q && q->state == REQ_RUNNING && q->seq[0].state == SEQ_FETCHING)
        random_count(DID_DISK_CANCEL);
    if (w->meanwhile)
        random_count(DID_LATE_CANCEL);
    l->cancel_turn = l->cancelled ? l->cancel_turn : w->n_turns;
    l->cancelled = true;
    sched_cancel(w->g.s, l->r);
}

static inline void op_fail_step(struct tag_world *w)
{
    if (fake_steps(w->g.be) < w->inject_step + 8)
        return;
    w->inject_step = fake_steps(w->g.be);
    w->n_injected++;
    fake_fail_steps(w->g.be, 1);
    random_count(DID_STEP_FAIL);
}

static inline void op_fail_read(struct tag_world *w)
{
    fake_fail_reads(w->g.be, 1 + draw(&w->r, 2));
}

static inline void finish_copy(struct tag_world *w, bool may_fail)
{
    uint32_t n = fake_tier_flying(w->g.be);
    if (n == 0)
        return;
    bool ok = !may_fail || !one_in(&w->r, w->copies_fail);
    fake_tier_finish(w->g.be, draw(&w->r, n), ok);
    if (w->meanwhile)
        random_count(DID_LATE_COPY);
    if (ok)
        return;
    random_count(DID_COPY_FAIL);
    for (uint32_t i = 0; i < w->g.s->parked.n; i++) {
        if (w->g.s->parked.seq[i]->n_dropped > 0 && park_blocks(w->g.s->parked.seq[i]) > 0)
            random_count(DID_OVERFLOW_COPY_FAIL);
    }
    for (uint32_t i = 0; i < w->g.s->running.n; i++) {
        if (w->g.s->running.seq[i]->n_dropped > 0 && w->g.s->running.seq[i]->kv.n_loading > 0)
            random_count(DID_OVERFLOW_COPY_FAIL);
    }
}

static inline void op_squeeze(struct tag_world *w)
{
    struct kv_cache *c = w->g.s->kv;
    struct kv_need none = {{0}}, some = {{0}};
    kv_seq_claim_trim(c, &w->squatter, &none);
    w->g.s->epoch++; /* there is more room than before */
    w->squeezed = false;
    if (one_in(&w->r, 2) || !w->squeezes)
        return;
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        some.n[g] = draw(&w->r, w->opt.n_frames[g] / 4 + 1);
    w->squeezed = kv_seq_claim(c, &w->squatter, &some);
    TRACE(&w->r, "squeeze by %u and %u: %d", some.n[0], some.n[1], w->squeezed);
    if (w->squeezed)
        random_count(w->meanwhile ? DID_LATE_SQUEEZE : DID_SQUEEZE);
}

static inline void op_clear(struct tag_world *w)
{
    kv_prefix_clear(w->g.s->kv);
    TRACE(&w->r, "clear");
    random_count(w->meanwhile ? DID_LATE_CLEAR : DID_CLEAR);
}

static inline void late_reload(struct tag_world *w)
{
    tag_tenants(w);
    random_count(DID_LATE_RELOAD);
}

/* What fits was decided with the largest chunk where windows or sequences longer than the arena are. */
static inline void op_reload(struct tag_world *w)
{
    struct sched_limits *l = &w->g.s->limits;
    const struct sched_limits *first = &w->opt.limits;
    l->max_queued = draw(&w->r, 12);
    random_count(DID_RELOAD);
    if (one_in(&w->r, 3))
        tag_tenants(w);
    if (w->opt.window[0] || w->opt.window[1] || w->opt.max_jobs)
        return;
    l->chunk_max = 1 + draw(&w->r, 64);
    l->max_batch_tokens =
        l->max_running + draw(&w->r, first->max_batch_tokens - l->max_running + 1);
}

static inline void asked(struct sched_ask *a, void *arg)
{
    struct tag_world *w = arg;
    w->asks = false;
    if (a->status == ERR_DRAINING && w->stopping)
        return;
    MUST(a->status == OK && a->audited && a->audit_error.status == OK, "%s", a->audit_error.text);
    MUST(a->n == (a->n_all < N_VIEWS ? a->n_all : N_VIEWS), "%u of %llu", a->n,
         (unsigned long long)a->n_all);
    for (uint32_t i = 0; i < a->n; i++)
        MUST(w->view[i].n_kv <= w->view[i].n_tokens, "sequence %u", i);
    random_count(DID_ASK);
}

/* A question of another thread. */
static inline void op_ask(struct tag_world *w)
{
    if (w->asks)
        return;
    w->ask = (struct sched_ask){.kind = ASK_SEQUENCES,
                                .cap = N_VIEWS,
                                .audit = true,
                                .item.seq = w->view,
                                .done = asked,
                                .arg = w};
    w->asks = true;
    sched_ask(w->g.s, &w->ask);
}

/* The sampler sees prompt and answer, whatever was cut out of what is computed. */
static inline void check_outputs(void *arg, const struct batch *b)
{
    const struct tag_world *w = arg;
    for (uint32_t i = 0; i < b->n_outs; i++) {
        const struct sample_job *job = &b->out[i].job;
        const struct seq *q = w->g.s->step.out_seq[i];
        const struct request *r = q->req->r;
        if (job->given >= 0)
            continue;
        MUST(job->n_history == r->n_prompt + q->n_out && job->n_prompt == r->n_prompt &&
                 memcmp(job->history, r->prompt, r->n_prompt * sizeof(int32_t)) == 0,
             "choice %u: %u tokens", q->choice, job->n_history);
    }
}

/* What threads other than the engine's do while a step is out, and what the cache's books allow then. */
static inline void tag_meanwhile(void *arg)
{
    struct tag_world *w = arg;
    if (w->opt.fake.runs_late)
        random_count(DID_LATE_RUN);
    if (w->settles || !one_in(&w->r, 3))
        return;
    w->meanwhile = true;
    for (uint32_t n = 1 + draw(&w->r, 4); n > 0; n--) {
        uint32_t op = draw(&w->r, 100);
        if (op < 20)
            tag_submit(w);
        else if (op < 25)
            op_cancel(w);
        else if (op < 50)
            tag_read(w, &w->live[draw(&w->r, MAX_LIVE)], 1 + draw(&w->r, 8));
        else if (op < 75)
            finish_copy(w, true);
        else if (op < 90)
            disk_step(w);
        else if (op < 94)
            op_squeeze(w);
        else if (op < 95)
            op_clear(w);
        else if (op < 96)
            late_reload(w);
        else if (op < 98)
            op_ask(w);
        else
            clock_fake_advance(draw(&w->r, 4) * NS_PER_MS);
    }
    w->meanwhile = false;
    if (one_in(&w->r, 4))
        tag_audit(w);
}

static inline bool turn(struct tag_world *w)
{
    uint64_t n_steps = fake_steps(w->g.be);
    w->n_turns++;
    w->n_tickets = w->g.s->n_tickets;
    bool any = sched_turn(w->g.s);
    TRACE(&w->r, "turn: %d, %u rows, %u spans, running %u, parked %u, copies %u", any,
          fake_steps(w->g.be) > n_steps ? w->g.s->step.batch.n_rows : 0, w->g.s->step.batch.n_spans,
          w->g.s->running.n, w->g.s->parked.n, fake_tier_flying(w->g.be));
    if (fake_steps(w->g.be) > n_steps)
        tag_count_turn(w);
    check_cancels(w);
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        look_at_progress(w, &w->live[i], fake_steps(w->g.be) > n_steps);
    for (uint32_t i = 0; i < MAX_LIVE && !w->slow_readers; i++)
        tag_read(w, &w->live[i], UINT32_MAX);
    return any;
}

/* Readers read, copies end well: every request must come to its end, each within a bound. */
static inline void op_drain(struct tag_world *w)
{
    TRACE(&w->r, "drain");
    w->settles = true;
    fake_fail_reads(w->g.be, 0);
    if (w->squeezed) {
        struct kv_need none = {{0}};
        kv_seq_claim_trim(w->g.s->kv, &w->squatter, &none);
        w->g.s->epoch++;
        w->squeezed = false;
    }
    uint64_t work = 100;
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        if (w->live[i].r)
            work += work_of(w->live[i].r, 3);
    uint32_t n_live = 1;
    for (uint64_t n = 0; n_live > 0; n++) {
        MUST(n < 10 * work, "%u requests have not ended after %llu turns, work %llu", n_live,
             (unsigned long long)n, (unsigned long long)work);
        while (fake_tier_flying(w->g.be))
            finish_copy(w, false);
        disk_step(w);
        turn(w);
        n_live = 0;
        for (uint32_t i = 0; i < MAX_LIVE; i++) {
            tag_read(w, &w->live[i], UINT32_MAX);
            n_live += w->live[i].r != NULL;
        }
        clock_fake_advance(NS_PER_MS);
        tag_audit(w);
    }
    uint32_t n_idle = 0;
    do { /* copies ahead of time go on for a while, a block each at most */
        MUST(n_idle++ < 1000, "copies go on for ever");
        while (fake_tier_flying(w->g.be))
            finish_copy(w, false);
        turn(w);
        tag_audit(w);
    } while (kv_jobs_open(w->g.s->kv) > 0);
    w->settles = false;
    random_count(DID_DRAIN);
}

/* ---- the end of a scheduler ---- */

static inline void check_gauges(struct tag_world *w)
{
    static const int zero[] = {METRIC_NUM_REQUESTS_RUNNING, METRIC_NUM_REQUESTS_WAITING,
                               METRIC_NUM_REQUESTS_SWAPPED, METRIC_KV_CACHE_USAGE,
                               METRIC_KV_BLOCKS_RESERVED};
    for (uint32_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
        MUST(metrics_value(w->metrics, zero[i], NULL) == 0, "gauge %u is %g", i,
             metrics_value(w->metrics, zero[i], NULL));
}

/* Whatever is under way: every request ends, nothing is left. */
static inline void tag_stop(struct tag_world *w)
{
    struct kv_need none = {{0}};
    struct kv_stats st;
    TRACE(&w->r, "stop");
    w->stopping = true;
    kv_seq_claim_trim(w->g.s->kv, &w->squatter, &none);
    kv_seq_release(w->g.s->kv, &w->squatter);
    sched_stop(w->g.s);
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        tag_read(w, &w->live[i], UINT32_MAX);
    MUST(w->n_ended == w->n_submitted && !w->asks, "%u of %u ended", w->n_ended, w->n_submitted);
    while (fake_tier_flying(w->g.be))
        finish_copy(w, true);
    copies_done(w->g.s);
    kv_prefix_clear(w->g.s->kv);
    kv_cache_stats(w->g.s->kv, &st);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        MUST(st.n_free[g] == st.n_frames[g] && st.n_promised[g] == 0 && st.n_slots_used[g] == 0,
             "group %u: %u of %u free, %u promised, %u slots in use", g, st.n_free[g],
             st.n_frames[g], st.n_promised[g], st.n_slots_used[g]);
    gauges_publish(w->g.s);
    check_gauges(w);
    MUST(fake_tag_mismatches(w->g.be) == 0, "%s", fake_mismatch(w->g.be));
    if (w->g.disk)
        disk_spread_times(w->g.disk);
    w->opt.fake.first_step = fake_steps(w->g.be) + 1;
    rig_release(&w->g);
}

/* Another one goes on, with the folder of the disk if there is one. */
static inline void op_restart(struct tag_world *w)
{
    if (!one_in(&w->r, w->named ? 2 : 8))
        return;
    tag_stop(w);
    names_restart(w);
    w->inject_step = 0;
    tag_start(w);
    random_count(DID_RESTART);
}

static inline void tag_close(struct tag_world *w)
{
    tag_stop(w);
    kv_named_close(w->named);
    metrics_free(w->metrics);
    for (uint32_t g = 0; g < w->opt.n_groups; g++)
        mem_free(w->was_free[g]);
}

static inline void one_op(struct tag_world *w)
{
    uint32_t op = draw(&w->r, 1000);
    if (op < 100 || (w->rushes && op >= 700 && op < 900))
        tag_submit(w);
    else if (op < 118)
        disk_step(w);
    else if (op < 119)
        op_ask(w);
    else if (op < 120)
        op_restart(w);
    else if (op < 128)
        op_cancel(w);
    else if (op < 131)
        op_fail_step(w);
    else if (op < 138)
        op_fail_read(w);
    else if (op < 150)
        clock_fake_advance(draw(&w->r, 20) * NS_PER_MS);
    else if (op < 155)
        op_squeeze(w);
    else if (op < 157)
        op_clear(w);
    else if (op < 160)
        op_reload(w);
    else if (op < 161)
        op_drain(w);
    else if (op < 167 && w->damages)
        disk_damage(w);
    else if (op < 169 && w->named)
        name_delete(w, draw(&w->r, N_NAMES));
    else if (op < 300)
        tag_read(w, &w->live[draw(&w->r, MAX_LIVE)], 1 + draw(&w->r, 8));
    else if (op < 480)
        finish_copy(w, true);
    else
        turn(w);
}

/* One world from its seed to its end, with a fault planted (0: none). */
static inline void tag_run_world(struct tag_world *w, uint64_t seed, uint32_t fault)
{
    tag_open(w, seed, fault);
    uint32_t n = 0;
    for (; random_next(&w->r, n); n++) {
        if (!random_skips(&w->r))
            one_op(w);
        tag_audit(w);
    }
    op_drain(w);
    MUST(w->n_ended == w->n_submitted, "%u of %u ended", w->n_ended, w->n_submitted);
    check_gauges(w);
    tag_close(w);
    __atomic_fetch_add(&random_counts->n_ops, n, __ATOMIC_RELAXED);
}

#endif
