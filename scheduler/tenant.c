/* Queues, virtual counters, the order of service; see tenant.h. Thread: engine. */
#include "scheduler/tenant_int.h"

#include <stddef.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"

/* A counter's unit: so small that rounding by the weight loses nothing that counts, so large that 2^43
 * weight-1 tokens fit. */
static const uint64_t counter_unit = 1u << 16;

static struct tenant_item *item_of(struct order_link *l)
{
    return (struct tenant_item *)(void *)l; /* order is the first member */
}

static struct tenant_item *item_of_expiry(struct order_link *l)
{
    return (struct tenant_item *)(void *)((char *)l - offsetof(struct tenant_item, expiry));
}

/* ---- life and configuration ---- */

static void set_gate(struct tenant_gate *g, const struct tenant_config *c)
{
    g->weight = c->weight;
    g->priority = c->priority;
    g->max_running = c->max_running;
    g->max_queued = c->max_queued;
    g->max_queued_tokens = c->max_queued_tokens;
    g->tokens_per_minute = c->tokens_per_minute;
}

struct tenants *tenants_new(uint64_t age_ns, uint32_t n_slots, uint32_t n_spare,
                            uint64_t max_queued_tokens)
{
    CHECK(age_ns > 0 && n_slots > 0);
    struct tenants *t = mem_zalloc(sizeof(*t));
    t->age_ns = age_ns;
    t->n_slots = n_slots;
    t->n_spare = n_spare < n_slots / 4 ? n_spare : n_slots / 4;
    t->max_queued_tokens = max_queued_tokens;
    struct tenant_config *c = &t->tenant[0].config;
    *c = (struct tenant_config){.name = "default", .weight = 1, .priority = -TENANT_PRIORITY_MAX};
    set_gate(&t->gate[0], c);
    t->n_rows = t->n_used = 1;
    return t;
}

void tenants_free(struct tenants *t)
{
    if (!t)
        return;
    CHECKF(t->n_queued == 0, "%u requests are still queued", t->n_queued);
    mem_free(atomic_load(&t->published));
    mem_free(t);
}

static uint32_t weight_of(const struct tenant *x)
{
    return x->config.weight ? x->config.weight : 1;
}

static const struct tenant_config no_config;

static const struct tenant_config *row_of(const struct tenant_set *set, uint32_t i)
{
    return i < set->n && set->row[i].weight ? &set->row[i] : &no_config;
}

/* The gate's part of a configuration, on the thread that brings it: holds from the next tenant_enter
 * on, though the engine thread may sleep. */
static void apply_gate(struct tenants *t, const struct tenant_set *set)
{
    uint32_t n_used = 0;
    CHECK(set->n >= 1 && set->n <= TENANT_MAX);
    for (uint32_t i = 0; i < TENANT_MAX; i++) {
        const struct tenant_config *c = row_of(set, i);
        struct tenant_gate *g = &t->gate[i];
        CHECKF(c->weight <= TENANT_WEIGHT_MAX, "weight %u", c->weight);
        if (c->weight && c->generation != g->generation) {
            g->generation = c->generation;
            g->paid_ns = g->n_refused = 0;
        }
        set_gate(g, c);
        n_used += c->weight > 0;
    }
    t->n_used = n_used;
    if (set->n > t->n_rows)
        t->n_rows = set->n;
}

/* The queue's part. The counters of a slot start over for another tenant: it owes nothing and is owed
 * nothing. */
static void apply_queue(struct tenants *t, const struct tenant_set *set)
{
    for (uint32_t i = 0; i < TENANT_MAX; i++) {
        const struct tenant_config *c = row_of(set, i);
        struct tenant *x = &t->tenant[i];
        struct tenant_gate *g = &t->gate[i];
        if (c->weight && c->generation != x->config.generation) {
            g->n_computed = g->n_cached = g->n_output = 0;
            g->counter = t->last_counter;
            g->drain_ns = 0;
        }
        /* A slot out of use stays the same tenant's while something of it still runs. */
        if (c->weight)
            x->config = *c;
        else
            x->config.weight = 0;
    }
}

void tenants_apply(struct tenants *t, const struct tenant_set *set)
{
    apply_gate(t, set);
    apply_queue(t, set);
}

void tenants_publish(struct tenants *t, struct tenant_set *set)
{
    apply_gate(t, set);
    mem_free(atomic_exchange(&t->published, set));
}

bool tenants_poll(struct tenants *t)
{
    if (!atomic_load_explicit(&t->published, memory_order_relaxed))
        return false;
    struct tenant_set *set = atomic_exchange(&t->published, NULL);
    if (!set)
        return false;
    apply_queue(t, set);
    mem_free(set);
    return true;
}

/* ---- the queue ---- */

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

static uint64_t service_number(const struct tenants *t, const struct tenant_item *it)
{
    uint64_t wait = t->age_ns - 1;
    if (it->deadline_ns && it->deadline_ns <= it->queued_ns)
        wait = 0;
    else if (it->deadline_ns && it->deadline_ns - it->queued_ns < wait)
        wait = it->deadline_ns - it->queued_ns;
    return add_capped(add_capped(it->queued_ns, it->class_index * t->age_ns), wait);
}

/* Being idle saves nothing up: a tenant that comes back starts where those are that wait. */
static void lift(const struct tenants *t, struct tenant_gate *x)
{
    uint64_t least = t->last_counter;
    for (uint32_t i = 0; i < t->n_backlog; i++) {
        uint64_t c = t->gate[t->backlog[i]].counter;
        if (i == 0 || c < least)
            least = c;
    }
    if (x->counter < least)
        x->counter = least;
}

void tenant_put(struct tenants *t, struct tenant_item *it)
{
    CHECK(it->tenant < TENANT_MAX && it->n_seqs > 0);
    struct tenant *x = &t->tenant[it->tenant];
    int32_t best = x->config.priority;
    it->class_index = tenant_class(it->priority > best ? it->priority : best);
    if (x->n_queued == 0) {
        lift(t, &t->gate[it->tenant]);
        x->backlog_at = t->n_backlog;
        t->backlog[t->n_backlog++] = it->tenant;
    }
    order_insert(&x->queue, &it->order, service_number(t, it), it->ticket);
    it->expiry = (struct order_link){0};
    if (it->expire_ns)
        order_insert(&t->expiry, &it->expiry, it->expire_ns, it->ticket);
    t->told = false;
    x->n_queued++;
    x->queued_tokens += it->n_tokens;
    t->n_queued++;
    t->class_n[it->class_index]++;
    t->class_mask |= 1ull << it->class_index;
}

/* Learns how fast a queue drains: the time between two departures while others wait. */
static void note_departure(atomic_uint_fast64_t *drain_ns, uint64_t *last_ns, bool *was_waiting,
                           uint64_t now_ns, bool others_wait)
{
    if (*was_waiting) {
        uint64_t mean = *drain_ns, took = now_ns > *last_ns ? now_ns - *last_ns : 0;
        *drain_ns = mean ? mean - mean / 8 + took / 8 : took;
    }
    *last_ns = now_ns;
    *was_waiting = others_wait;
}

void tenant_take(struct tenants *t, struct tenant_item *it, uint64_t now_ns)
{
    struct tenant *x = &t->tenant[it->tenant];
    if (x->scan_at == &it->order)
        x->scan_at = order_next(&it->order);
    if (t->scan_last == it)
        t->scan_last = NULL;
    order_remove(&x->queue, &it->order);
    if (order_holds(&it->expiry))
        order_remove(&t->expiry, &it->expiry);
    t->told = false;
    x->queued_tokens -= it->n_tokens;
    t->n_queued--;
    if (--t->class_n[it->class_index] == 0)
        t->class_mask &= ~(1ull << it->class_index);
    if (--x->n_queued == 0) {
        uint32_t last = t->backlog[--t->n_backlog];
        t->backlog[x->backlog_at] = last;
        t->tenant[last].backlog_at = x->backlog_at;
        t->last_counter = t->gate[it->tenant].counter;
    }
    tenant_uncount(t, it->tenant, it->priority, it->n_tokens);
    note_departure(&t->gate[it->tenant].drain_ns, &x->last_depart_ns, &x->was_waiting, now_ns,
                   x->n_queued > 0);
    note_departure(&t->drain_ns, &t->last_depart_ns, &t->was_waiting, now_ns, t->n_queued > 0);
}

static uint64_t cost_of(const struct tenant *x, uint64_t n_computed, uint64_t n_cached,
                        uint64_t n_output)
{
    uint64_t eighths = n_computed * TENANT_COST_PROMPT + n_cached * TENANT_COST_CACHED +
                       n_output * TENANT_COST_OUTPUT;
    return eighths * counter_unit / weight_of(x);
}

void tenant_start(struct tenants *t, struct tenant_item *it, uint64_t now_ns)
{
    struct tenant *x = &t->tenant[it->tenant];
    if (t->scan_last == it)
        x->scan_cost -= cost_of(x, it->n_tokens, 0, 0); /* the real charge takes its place */
    tenant_take(t, it, now_ns);
    x->n_running += it->n_seqs;
    t->gate[it->tenant].n_running = x->n_running;
}

void tenant_stop(struct tenants *t, uint32_t tenant, uint32_t n_seqs)
{
    struct tenant *x = &t->tenant[tenant];
    CHECKF(n_seqs <= x->n_running, "%u sequences stop, %u run", n_seqs, x->n_running);
    x->n_running -= n_seqs;
    t->gate[tenant].n_running = x->n_running;
}

/* Only this thread writes them: no locked add is needed. */
static void add(atomic_uint_fast64_t *x, uint64_t by)
{
    uint64_t old = atomic_load_explicit(x, memory_order_relaxed);
    atomic_store_explicit(x, old + by, memory_order_relaxed);
}

void tenant_charge(struct tenants *t, uint32_t tenant, uint64_t n_computed, uint64_t n_cached,
                   uint64_t n_output)
{
    struct tenant_gate *g = &t->gate[tenant];
    add(&g->counter, cost_of(&t->tenant[tenant], n_computed, n_cached, n_output));
    add(&g->n_computed, n_computed);
    add(&g->n_cached, n_cached);
    add(&g->n_output, n_output);
}

uint64_t tenant_counter(const struct tenants *t, uint32_t tenant)
{
    return t->gate[tenant].counter;
}

/* ---- which request is next ---- */

static bool may_start(const struct tenants *t, const struct tenant *x, uint32_t n_seqs)
{
    uint32_t cap = x->config.weight ? x->config.max_running : 0;
    uint32_t share = t->n_used > 1 ? t->n_slots - t->n_spare : t->n_slots;
    if (!cap || cap > share)
        cap = share;
    /* A lone request wider than a cap that was lowered still gets its turn. */
    return x->n_running == 0 || x->n_running + n_seqs <= cap;
}

bool tenant_at_cap(const struct tenants *t, uint32_t tenant)
{
    return !may_start(t, &t->tenant[tenant], 1);
}

/* The item's class now: see tenant.h, point 1. */
static uint32_t aged_class(const struct tenants *t, const struct tenant_item *it, uint32_t best)
{
    uint64_t waited = t->scan_now_ns > it->queued_ns ? t->scan_now_ns - it->queued_ns : 0;
    uint64_t steps = waited / t->age_ns;
    uint32_t room = it->class_index - best;
    return steps < room ? it->class_index - (uint32_t)steps : best;
}

struct candidate {
    struct tenant_item *it;
    uint32_t class_index;
    uint64_t counter;
    uint32_t n_running, n_queued;
};

static bool better(const struct candidate *a, const struct candidate *b)
{
    if (a->class_index != b->class_index)
        return a->class_index < b->class_index;
    if (a->counter != b->counter)
        return a->counter < b->counter;
    /* Equal counters: mostly one that was just lifted, so the one that has less now goes first. */
    if (a->n_running != b->n_running)
        return a->n_running < b->n_running;
    if (a->n_queued != b->n_queued)
        return a->n_queued < b->n_queued;
    return a->it->ticket < b->it->ticket;
}

struct tenant_item *tenant_next(struct tenants *t)
{
    struct candidate best = {0};
    uint32_t best_class = t->class_mask ? (uint32_t)__builtin_ctzll(t->class_mask) : 0;
    for (uint32_t i = 0; i < t->n_backlog; i++) {
        struct tenant *x = &t->tenant[t->backlog[i]];
        if (x->scan != t->scan) {
            x->scan = t->scan;
            x->scan_at = x->queue.first;
            x->scan_cost = 0;
        }
        if (!x->scan_at)
            continue;
        struct candidate c = {.it = item_of(x->scan_at),
                              .counter = t->gate[t->backlog[i]].counter + x->scan_cost,
                              .n_running = x->n_running,
                              .n_queued = x->n_queued};
        if (!t->scan_all && !may_start(t, x, c.it->n_seqs))
            continue;
        c.class_index = aged_class(t, c.it, best_class);
        if (!best.it || better(&c, &best))
            best = c;
    }
    t->scan_last = best.it;
    if (best.it) {
        struct tenant *x = &t->tenant[best.it->tenant];
        x->scan_at = order_next(x->scan_at);
        x->scan_cost += cost_of(x, best.it->n_tokens, 0, 0);
    }
    return best.it;
}

struct tenant_item *tenant_first(struct tenants *t, uint64_t now_ns)
{
    t->scan++;
    t->scan_now_ns = now_ns;
    t->scan_all = false;
    return tenant_next(t);
}

void tenants_tell_places(struct tenants *t, uint64_t now_ns, uint32_t n_most,
                         void (*tell)(struct tenant_item *it, uint32_t place))
{
    if (t->told || now_ns - t->told_ns < TENANT_PLACES_MS * NS_PER_MS)
        return;
    t->told = true;
    t->told_ns = now_ns;
    t->scan++;
    t->scan_now_ns = now_ns;
    t->scan_all = true;
    struct tenant_item *it;
    for (uint32_t place = 1; place <= n_most && (it = tenant_next(t)); place++)
        tell(it, place);
}

struct tenant_item *tenant_expired(const struct tenants *t, uint64_t now_ns)
{
    struct order_link *l = t->expiry.first;
    return l && l->key <= now_ns ? item_of_expiry(l) : NULL;
}

uint64_t tenants_next_expiry(const struct tenants *t)
{
    return t->expiry.first ? t->expiry.first->key : 0;
}

uint32_t tenants_n_queued(const struct tenants *t)
{
    return t->n_queued;
}

/* ---- sight ---- */

void tenant_look(const struct tenants *t, uint32_t tenant, struct tenant_view *v)
{
    const struct tenant_gate *g = &t->gate[tenant];
    *v = (struct tenant_view){
        .weight = g->weight,
        .n_waiting = g->n_waiting,
        .n_running = g->n_running,
        .waiting_tokens = g->waiting_tokens,
        .counter = g->counter,
        .n_computed = g->n_computed,
        .n_cached = g->n_cached,
        .n_output = g->n_output,
        .n_refused = g->n_refused,
    };
}

static void audit_queue(const struct tenants *t, uint32_t i, uint32_t class_n[TENANT_CLASSES],
                        uint32_t *n_expiry)
{
    const struct tenant *x = &t->tenant[i];
    const struct order_link *before = NULL;
    uint32_t n = 0;
    uint64_t n_tokens = 0;
    for (struct order_link *l = x->queue.first; l; before = l, l = order_next(l)) {
        const struct tenant_item *it = item_of(l);
        CHECKF(it->tenant == i, "a request of tenant %u in the queue of %u", it->tenant, i);
        CHECKF(!before || before->key < l->key ||
                   (before->key == l->key && before->ticket < l->ticket),
               "queue of tenant %u is out of order at ticket %llu", i,
               (unsigned long long)it->ticket);
        n++;
        n_tokens += it->n_tokens;
        class_n[it->class_index]++;
        *n_expiry += it->expire_ns != 0;
    }
    CHECKF(n == x->n_queued && n_tokens == x->queued_tokens,
           "tenant %u queues %u requests of %llu tokens, counted %u and %llu", i, n,
           (unsigned long long)n_tokens, x->n_queued, (unsigned long long)x->queued_tokens);
    CHECKF(n == 0 || (x->backlog_at < t->n_backlog && t->backlog[x->backlog_at] == i),
           "tenant %u waits and is not in the backlog", i);
    CHECKF(t->gate[i].n_waiting >= n && t->gate[i].waiting_tokens >= n_tokens &&
               t->gate[i].n_running == x->n_running,
           "the gate of tenant %u counts less than its queue", i);
}

void tenants_audit(const struct tenants *t)
{
    uint32_t class_n[TENANT_CLASSES] = {0}, n = 0, n_backlog = 0, n_expiry = 0;
    for (uint32_t i = 0; i < t->n_rows; i++) {
        audit_queue(t, i, class_n, &n_expiry);
        n += t->tenant[i].n_queued;
        n_backlog += t->tenant[i].n_queued > 0;
    }
    CHECKF(n == t->n_queued && n_backlog == t->n_backlog, "%u queued in %u tenants, counted %u, %u",
           n, n_backlog, t->n_queued, t->n_backlog);
    for (uint32_t c = 0; c < TENANT_CLASSES; c++)
        CHECKF(class_n[c] == t->class_n[c] && (class_n[c] > 0) == ((t->class_mask >> c) & 1),
               "class %u has %u requests, counted %u", c, class_n[c], t->class_n[c]);
    for (const struct order_link *l = t->expiry.first; l; l = order_next(l))
        n_expiry--;
    CHECKF(n_expiry == 0, "the list of expiries has %d requests too many", -(int)n_expiry);
}
