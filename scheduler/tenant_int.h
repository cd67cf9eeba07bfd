/* State of struct tenants; see tenant.h. */
#ifndef SCHEDULER_TENANT_INT_H
#define SCHEDULER_TENANT_INT_H

#include "scheduler/tenant.h"

/* What any thread may touch, a tenant. Caps are copies of the configuration. */
struct tenant_gate {
    atomic_uint weight, max_running, max_queued, generation;
    atomic_uint_fast64_t max_queued_tokens, tokens_per_minute;
    atomic_int priority;
    atomic_uint n_waiting; /* requests from tenant_enter to the end of their wait */
    atomic_uint_fast64_t waiting_tokens;
    atomic_uint n_running; /* sequences */
    atomic_uint_fast64_t
        counter; /* virtual; like the next three written by the engine thread alone */
    atomic_uint_fast64_t n_computed, n_cached, n_output;
    atomic_uint_fast64_t n_refused;
    atomic_uint_fast64_t drain_ns; /* mean time between two departures while others wait */
    /* Rate limit: the time at which all tokens taken so far are paid for; at most a minute ahead. */
    atomic_uint_fast64_t paid_ns;
};

struct tenant {
    struct tenant_config config;
    struct order queue; /* by the number of tenant.h, point 3 */
    uint32_t n_queued;
    uint64_t queued_tokens;
    uint32_t n_running;
    uint32_t backlog_at; /* place in tenants.backlog while n_queued > 0 */
    uint64_t last_depart_ns;
    bool was_waiting; /* at last_depart_ns */
    /* The scan: where it stands, and what it has given out of this tenant and was not started. */
    uint64_t scan;
    struct order_link *scan_at;
    uint64_t scan_cost;
};

struct tenants {
    /* immutable after tenants_new */
    uint64_t age_ns;
    uint32_t n_slots, n_spare;
    uint64_t max_queued_tokens;

    /* gate */
    _Atomic(struct tenant_set *) published; /* owns; NULL: nothing new */
    atomic_uint n_rows; /* slots that may be in use */
    atomic_uint n_used; /* tenants configured */
    atomic_uint n_waiting;
    atomic_uint_fast64_t waiting_tokens, drain_ns;
    atomic_uint_fast64_t class_tokens[TENANT_CLASSES]; /* waiting prompt tokens a priority */
    struct tenant_gate gate[TENANT_MAX];

    /* engine thread */
    struct tenant tenant[TENANT_MAX];
    uint32_t backlog[TENANT_MAX]; /* slots with something queued, in no order */
    uint32_t n_backlog;
    uint32_t n_queued;
    struct order expiry;
    uint32_t class_n[TENANT_CLASSES]; /* queued requests a priority */
    uint64_t class_mask; /* bit c: class_n[c] > 0 */
    uint64_t last_counter; /* of the tenant whose queue ran empty last */
    uint64_t last_depart_ns;
    bool was_waiting;
    uint64_t scan, scan_now_ns;
    struct tenant_item *scan_last;
    bool scan_all; /* caps don't count */
    uint64_t told_ns; /* the last tenants_tell_places */
    bool told; /* nothing was queued or left since */
};

/* 0..TENANT_CLASSES-1, lower is better. */
static inline uint32_t tenant_class(int32_t priority)
{
    if (priority < -TENANT_PRIORITY_MAX)
        return 0;
    if (priority > TENANT_PRIORITY_MAX)
        return TENANT_CLASSES - 1;
    return (uint32_t)(priority + TENANT_PRIORITY_MAX);
}

/* The end of a wait: takes back what tenant_enter counted. */
void tenant_uncount(struct tenants *t, uint32_t tenant, int32_t priority, uint32_t n_tokens);

/* ---- what only tests call ---- */
uint64_t tenants_waiting_tokens(const struct tenants *t);
bool tenant_at_cap(const struct tenants *t, uint32_t tenant); /* no further sequence may start */

#endif
