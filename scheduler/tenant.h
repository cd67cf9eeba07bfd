/* Which request is served next: a queue for each tenant (a key, or several keys of one name), virtual token
 * counters between them, priority classes above them, caps and bounds for each.
 *
 * Order of service:
 *   1. class: the request's priority (lower first), one better for each age_ns it has waited, but never
 *      better than the best priority that waits: ageing brings a request up to the others, not past
 *      them, so that a flood of old requests gains nothing over a light tenant's new one;
 *   2. within a class the tenant with the smallest virtual counter. It grows by what the tenant is
 *      served, (PROMPT * computed + CACHED * cached prompt tokens + OUTPUT * output tokens) / weight. A
 *      tenant whose queue was empty is lifted to the least counter among those that wait: being idle
 *      saves nothing up. The difference between two tenants that both wait stays bounded (virtual
 *      token counters, Sheng et al. 2024);
 *   3. within a tenant: priority and age in one number, fixed when it is queued,
 *          queued + priority * age_ns + min(deadline - queued, age_ns - 1)
 *      (no deadline counts as a far one), then the ticket: of two that arrive together the class
 *      decides, then the nearer deadline; and nothing is passed by what comes (difference of
 *      priorities + 1) * age_ns later. Every wait is bounded.
 *
 * Two sides. The *gate* (functions that say "any thread") is atomics only: HTTP threads ask it before
 * a request goes to the engine thread. All else belongs to the engine thread. Time is handed in; after
 * tenants_new nothing allocates. One pick is O(tenants that wait), a change O(log n). */
#ifndef SCHEDULER_TENANT_H
#define SCHEDULER_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/order.h"

enum {
    TENANT_MAX = 512, /* slots: tenants of the key file and those before it that still run */
    TENANT_NAME_CAP = 48,
    TENANT_WEIGHT_MAX = 1000,
    TENANT_PRIORITY_MAX = 31, /* priorities beyond -31..31 count as these */
    TENANT_CLASSES = 2 * TENANT_PRIORITY_MAX + 1,
    TENANT_RETRY_MAX_S = 60,
    TENANT_PLACES_MS = 100, /* the shortest server.heartbeat, which reports the place */
    /* Cost of a token, in eighths of a computed prompt token. An output token takes a row of a step
     * like a prompt token and reads all of its KV alone; a cached one is nearly free. */
    TENANT_COST_CACHED = 1,
    TENANT_COST_PROMPT = 8,
    TENANT_COST_OUTPUT = 16
};

/* One tenant as the key file describes it; 0 of a cap: none. */
struct tenant_config {
    char name[TENANT_NAME_CAP]; /* shown in metrics and debug; never a key */
    uint32_t generation; /* changes when the slot goes to another tenant */
    uint32_t weight; /* 1..TENANT_WEIGHT_MAX; 0: slot not in use */
    int32_t priority; /* best priority that its requests can have */
    uint32_t max_running; /* sequences */
    uint32_t max_queued; /* requests */
    uint64_t max_queued_tokens; /* prompt tokens */
    uint64_t tokens_per_minute; /* prompt and output tokens */
};

struct tenant_set {
    uint32_t n; /* slots 0..n-1 may be in use; slot 0 is "default" */
    struct tenant_config row[TENANT_MAX];
};

/* What a queued request brings; lies inside the scheduler's struct. Filled before tenant_put. */
struct tenant_item {
    struct order_link order, expiry; /* the table's own */
    uint64_t ticket; /* unique, in order of arrival */
    uint64_t queued_ns;
    uint64_t deadline_ns; /* its first token is wanted by then; 0: none */
    uint64_t expire_ns; /* tenant_expired gives it then; 0: never */
    int32_t priority; /* as asked; the tenant's own bounds it */
    uint32_t n_tokens; /* of the prompt: the number that tenant_enter got */
    uint32_t n_seqs; /* places in the running set */
    uint32_t tenant; /* slot */
    uint32_t class_index; /* the table's own */
};

struct tenants; /* fields in tenant_int.h, for tenant*.c and their tests */

/* age_ns: see above. n_slots: sequences that run at once; a tenant leaves n_spare of them (at most a
 * quarter) to others while more than one is configured. max_queued_tokens: of all tenants together, 0
 * none. Slot 0 is in use, weight 1, no caps. */
struct tenants *tenants_new(uint64_t age_ns, uint32_t n_slots, uint32_t n_spare,
                            uint64_t max_queued_tokens);
void tenants_free(struct tenants *t); /* NULL is fine; nothing is queued */
/* New weights and caps; what is queued or runs goes on. Engine thread, between two scans. */
void tenants_apply(struct tenants *t, const struct tenant_set *set);
/* The same from another thread, one at a time: takes over set (mem_alloc'ed). Bounds and rates hold at
 * once, weights and caps with the engine thread's next tenants_poll; the newest wins. */
void tenants_publish(struct tenants *t, struct tenant_set *set);
bool tenants_poll(struct tenants *t); /* engine thread, at the start of a turn; true: applied */

/* ---- gate: any thread ---- */
struct tenant_ask {
    uint32_t tenant;
    int32_t priority;
    uint32_t n_tokens; /* of the prompt */
    uint32_t n_seqs; /* choices: places in the running set */
    uint64_t n_output; /* most output tokens of all choices */
    uint32_t n_open; /* sequences that could start at once: not counted as waiting */
    uint64_t now_ns;
    uint64_t deadline_ns; /* 0: none */
    double prefill_ns_token; /* measured; 0: not known yet */
};
/* Counts the request as waiting; every OK is followed by tenant_put, or by tenant_retract if it never
 * comes to the engine thread. ERR_INVALID with the field n: it has more choices than the tenant may ever
 * run at once. ERR_QUEUE_FULL and *retry_s otherwise, with the code key_queue_full, queue_full,
 * tokens_per_minute or deadline_unreachable. */
enum status tenant_enter(struct tenants *t, const struct tenant_ask *ask, uint32_t *retry_s,
                         struct err *e);
void tenant_refused(struct tenants *t,
                    uint32_t tenant); /* counts one that was turned away earlier */
void tenant_retract(struct tenants *t, const struct tenant_ask *ask);
/* Prompt tokens that would be computed before those of such a request, if all stays as it is. */
uint64_t tenants_tokens_ahead(const struct tenants *t, uint32_t tenant, int32_t priority,
                              uint32_t n_tokens);
/* Seconds until n_ahead departures at the measured rate of all tenants: 1..TENANT_RETRY_MAX_S. */
uint32_t tenants_retry_s(const struct tenants *t, uint32_t n_ahead);

/* ---- the queue: engine thread ---- */
void tenant_put(struct tenants *t, struct tenant_item *it);
/* Out of the queue without running: cancelled, expired, refused. */
void tenant_take(struct tenants *t, struct tenant_item *it, uint64_t now_ns);
/* Out of the queue and running: its n_seqs count against max_running until tenant_stop. The caller
 * charges what it brings with tenant_charge. */
void tenant_start(struct tenants *t, struct tenant_item *it, uint64_t now_ns);
void tenant_stop(struct tenants *t, uint32_t tenant, uint32_t n_seqs);
void tenant_charge(struct tenants *t, uint32_t tenant, uint64_t n_computed, uint64_t n_cached,
                   uint64_t n_output);
/* Output tokens that were asked for and not made: back to tokens_per_minute. */
void tenant_refund(struct tenants *t, uint32_t tenant, uint64_t n_tokens);

/* The request to be served first whose tenant is below its cap; NULL: none. Then, with tenant_next,
 * those after it as if each one before had been served. The caller may start or take what was given out
 * (or anything else) between two calls. */
struct tenant_item *tenant_first(struct tenants *t, uint64_t now_ns);
struct tenant_item *tenant_next(struct tenants *t);
/* Calls tell for the first n_most of all that wait, in order of service whether their tenant is at its
 * cap or not, with their places from 1 on. Once a turn: does nothing while the queue is the same as at
 * the last time, or that is less than TENANT_PLACES_MS ago. Ends a scan. */
void tenants_tell_places(struct tenants *t, uint64_t now_ns, uint32_t n_most,
                         void (*tell)(struct tenant_item *it, uint32_t place));
/* A queued request whose expire_ns has passed, earliest first; NULL: none. The caller takes it. */
struct tenant_item *tenant_expired(const struct tenants *t, uint64_t now_ns);
uint64_t tenants_next_expiry(const struct tenants *t); /* 0: none */
uint32_t tenants_n_queued(const struct tenants *t);

/* Virtual counter: what the tenant was served, weighed. For victims (largest first) and for the order
 * of prompt chunks (smallest first). */
uint64_t tenant_counter(const struct tenants *t, uint32_t tenant);

/* Any thread; each number by itself is right, together they may be of two moments. */
struct tenant_view {
    uint32_t weight; /* 0: the slot is not in use */
    uint32_t n_waiting, n_running; /* requests, sequences */
    uint64_t waiting_tokens, counter;
    uint64_t n_computed, n_cached, n_output; /* charged since the tenant is in its slot */
    uint64_t n_refused; /* by tenant_enter */
};
void tenant_look(const struct tenants *t, uint32_t tenant, struct tenant_view *v);
void tenants_audit(const struct tenants *t); /* CHECKs every count and order, O(all) */

#endif
