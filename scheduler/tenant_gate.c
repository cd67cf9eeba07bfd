/* What HTTP threads ask before a request goes to the engine thread; see tenant.h. Atomics only.
 *
 * Counts are raised first and looked at after, and taken back on a refusal: two that enter at once may
 * both be refused at the last place, none gets past a bound. */
#include "scheduler/tenant_int.h"

#include <stddef.h>

#include "base/check.h"
#include "base/clock.h"

static const uint64_t minute_ns = 60 * NS_PER_S;

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint32_t seconds(uint64_t ns)
{
    uint64_t s = ns / NS_PER_S + (ns % NS_PER_S != 0);
    if (s < 1)
        return 1;
    return s < TENANT_RETRY_MAX_S ? (uint32_t)s : TENANT_RETRY_MAX_S;
}

static uint32_t retry_s(uint64_t drain_ns, uint32_t n_ahead)
{
    uint64_t ns;
    if (__builtin_mul_overflow(drain_ns, (uint64_t)n_ahead, &ns))
        return TENANT_RETRY_MAX_S;
    return seconds(ns);
}

uint32_t tenants_retry_s(const struct tenants *t, uint32_t n_ahead)
{
    return retry_s(t->drain_ns, n_ahead);
}

uint64_t tenants_waiting_tokens(const struct tenants *t)
{
    return t->waiting_tokens;
}

static uint32_t class_of(const struct tenant_gate *g, int32_t priority)
{
    int32_t best = g->priority;
    return tenant_class(priority > best ? priority : best);
}

/* Tokens of better or equal classes, and of every other tenant no more than its weight gives it while
 * this tenant gets its own. */
uint64_t tenants_tokens_ahead(const struct tenants *t, uint32_t tenant, int32_t priority,
                              uint32_t n_tokens)
{
    const struct tenant_gate *g = &t->gate[tenant];
    uint64_t own = g->waiting_tokens, by_class = 0, sum = own;
    uint32_t weight = g->weight ? g->weight : 1, n_rows = t->n_rows;
    for (uint32_t c = 0; c <= class_of(g, priority); c++)
        by_class += t->class_tokens[c];
    for (uint32_t i = 0; i < n_rows; i++) {
        if (i != tenant)
            sum +=
                min_u64(t->gate[i].waiting_tokens, (own + n_tokens) * t->gate[i].weight / weight);
    }
    return min_u64(sum, by_class);
}

static enum status check_deadline(const struct tenants *t, const struct tenant_ask *a,
                                  uint32_t *retry, struct err *e)
{
    if (!a->deadline_ns || !(a->prefill_ns_token > 0))
        return OK;
    uint64_t n_ahead = tenants_tokens_ahead(t, a->tenant, a->priority, a->n_tokens);
    double takes = (double)(n_ahead + a->n_tokens) * a->prefill_ns_token;
    double left = a->deadline_ns > a->now_ns ? (double)(a->deadline_ns - a->now_ns) : 0;
    if (takes <= left)
        return OK;
    double late = takes - left;
    *retry = seconds(late < 1e18 ? (uint64_t)late : UINT64_MAX);
    return err_set_field(e, ERR_QUEUE_FULL, "deadline_ms", "deadline_unreachable",
                         "the first token would take about %.0f ms (%llu prompt tokens are ahead), "
                         "the deadline is in %.0f ms",
                         takes / (double)NS_PER_MS, (unsigned long long)n_ahead,
                         left / (double)NS_PER_MS);
}

/* Takes tokens from the minute's allowance: each moves paid_ns on by a minute / tokens_per_minute. More
 * than a minute holds goes through when all before is paid for. */
static enum status take_rate(struct tenant_gate *g, const struct tenant_ask *a, uint32_t *retry,
                             struct err *e)
{
    uint64_t limit = g->tokens_per_minute, n = a->n_tokens + a->n_output;
    if (!limit)
        return OK;
    double add = (double)n * (double)minute_ns / (double)limit;
    uint64_t add_ns = add < 1e18 ? (uint64_t)add : (uint64_t)1e18;
    uint_fast64_t paid = g->paid_ns, next;
    do {
        uint64_t from = paid > a->now_ns ? paid : a->now_ns;
        uint64_t ahead = from - a->now_ns, needs = min_u64(add_ns, minute_ns);
        if (ahead + needs > minute_ns) {
            *retry = seconds(ahead + needs - minute_ns);
            return err_set_field(e, ERR_QUEUE_FULL, NULL, "tokens_per_minute",
                                 "%llu prompt and output tokens are asked for, this key's limit of "
                                 "%llu tokens per minute is used up",
                                 (unsigned long long)n, (unsigned long long)limit);
        }
        next = from + add_ns;
    } while (!atomic_compare_exchange_weak(&g->paid_ns, &paid, next));
    return OK;
}

/* More choices than may ever run at once would have to pass the cap, or wait for ever. */
static enum status check_width(const struct tenant_gate *g, const struct tenant_ask *a,
                               struct err *e)
{
    uint32_t cap = g->max_running;
    if (!cap || a->n_seqs <= cap)
        return OK;
    return err_set_field(e, ERR_INVALID, "n", "out_of_range",
                         "n is %u, at most %u sequences of this key run at once (max_running)",
                         a->n_seqs, cap);
}

/* With nothing before it a request goes through the token bounds whatever its size. */
static enum status check_bounds(const struct tenants *t, const struct tenant_gate *g,
                                const struct tenant_ask *a, uint32_t n_before, uint64_t own_before,
                                uint64_t all_before, uint32_t *retry, struct err *e)
{
    uint32_t cap = g->max_running, running = g->n_running, open = a->n_open;
    if (cap && open > (cap > running ? cap - running : 0))
        open = cap > running ? cap - running : 0;
    open /= a->n_seqs; /* requests like this one that could start at once */
    *retry = retry_s(g->drain_ns, n_before);
    if (g->max_queued && n_before >= (uint64_t)g->max_queued + open)
        return err_set_field(e, ERR_QUEUE_FULL, NULL, "key_queue_full",
                             "%u requests of this key are waiting, its limit is %u", n_before,
                             g->max_queued);
    if (g->max_queued_tokens && own_before && own_before + a->n_tokens > g->max_queued_tokens)
        return err_set_field(
            e, ERR_QUEUE_FULL, NULL, "key_queue_full",
            "%llu prompt tokens of this key are waiting, %u more exceed its limit of "
            "%llu",
            (unsigned long long)own_before, a->n_tokens, (unsigned long long)g->max_queued_tokens);
    *retry = retry_s(t->drain_ns, t->n_waiting);
    if (t->max_queued_tokens && all_before && all_before + a->n_tokens > t->max_queued_tokens)
        return err_set(
            e, ERR_QUEUE_FULL, "%llu prompt tokens are waiting, %u more exceed the limit of %llu",
            (unsigned long long)all_before, a->n_tokens, (unsigned long long)t->max_queued_tokens);
    return OK;
}

/* By the priority as asked, which doesn't change while a tenant's own may. */
void tenant_uncount(struct tenants *t, uint32_t tenant, int32_t priority, uint32_t n_tokens)
{
    struct tenant_gate *g = &t->gate[tenant];
    atomic_fetch_sub(&g->n_waiting, 1);
    atomic_fetch_sub(&g->waiting_tokens, n_tokens);
    atomic_fetch_sub(&t->n_waiting, 1);
    atomic_fetch_sub(&t->waiting_tokens, n_tokens);
    atomic_fetch_sub(&t->class_tokens[tenant_class(priority)], n_tokens);
}

enum status tenant_enter(struct tenants *t, const struct tenant_ask *a, uint32_t *retry_after_s,
                         struct err *e)
{
    struct tenant_gate *g = &t->gate[a->tenant];
    uint32_t retry = 0;
    CHECK(a->n_seqs > 0);
    enum status st = check_width(g, a, e);
    if (!st)
        st = check_deadline(t, a, &retry, e);
    if (!st) {
        uint32_t n_before = atomic_fetch_add(&g->n_waiting, 1);
        uint64_t own = atomic_fetch_add(&g->waiting_tokens, a->n_tokens);
        uint64_t all = atomic_fetch_add(&t->waiting_tokens, a->n_tokens);
        atomic_fetch_add(&t->n_waiting, 1);
        atomic_fetch_add(&t->class_tokens[tenant_class(a->priority)], a->n_tokens);
        st = check_bounds(t, g, a, n_before, own, all, &retry, e);
        if (!st)
            st = take_rate(g, a, &retry, e);
        if (st)
            tenant_uncount(t, a->tenant, a->priority, a->n_tokens);
    }
    if (st)
        atomic_fetch_add(&g->n_refused, 1);
    if (st && retry_after_s)
        *retry_after_s = retry;
    return st;
}

void tenant_refused(struct tenants *t, uint32_t tenant)
{
    atomic_fetch_add(&t->gate[tenant].n_refused, 1);
}

void tenant_retract(struct tenants *t, const struct tenant_ask *a)
{
    tenant_uncount(t, a->tenant, a->priority, a->n_tokens);
    tenant_refund(t, a->tenant, a->n_tokens + a->n_output);
}

void tenant_refund(struct tenants *t, uint32_t tenant, uint64_t n_tokens)
{
    struct tenant_gate *g = &t->gate[tenant];
    uint64_t limit = g->tokens_per_minute;
    if (!limit)
        return;
    double back = (double)n_tokens * (double)minute_ns / (double)limit;
    uint64_t back_ns = back < 1e18 ? (uint64_t)back : (uint64_t)1e18;
    uint_fast64_t paid = g->paid_ns;
    while (!atomic_compare_exchange_weak(&g->paid_ns, &paid, paid - min_u64(paid, back_ns)))
        ;
}
