/* A table of tenants, and shorthands to fill and serve it. */
#ifndef TESTS_UNIT_SCHEDULER_TENANT_RIG_H
#define TESTS_UNIT_SCHEDULER_TENANT_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/run_suite.h"
#include "base/clock.h"
#include "base/mem.h"
#include "scheduler/tenant_int.h"

enum { AGE_S = 10, SLOTS = 16 };

static struct tenants *table;
static struct tenant_set set;
static uint64_t n_tickets, now;

/* n tenants t0.. of weight 1 without caps. */
static inline void setup(uint32_t n)
{
    memset(&set, 0, sizeof(set));
    set.n = n;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(set.row[i].name, sizeof(set.row[i].name), "t%u", i);
        set.row[i].weight = 1;
        set.row[i].generation = i + 1;
        set.row[i].priority = -TENANT_PRIORITY_MAX;
    }
    n_tickets = 0;
    now = 1000 * NS_PER_S;
    table = tenants_new(AGE_S * NS_PER_S, SLOTS, 4, 0);
    tenants_apply(table, &set);
}

static inline enum status enter(uint32_t tenant, uint32_t n_tokens, uint32_t *retry_s,
                                struct err *e)
{
    const struct tenant_ask ask = {
        .tenant = tenant, .n_tokens = n_tokens, .n_seqs = 1, .now_ns = now};
    return tenant_enter(table, &ask, retry_s, e);
}

static inline struct tenant_item *put_full(struct tenant_item like)
{
    struct tenant_item *it = mem_zalloc(sizeof(*it));
    const struct tenant_ask ask = {.tenant = like.tenant,
                                   .priority = like.priority,
                                   .n_tokens = like.n_tokens,
                                   .n_seqs = like.n_seqs ? like.n_seqs : 1,
                                   .now_ns = now};
    *it = like;
    it->ticket = n_tickets++;
    it->queued_ns = now;
    it->n_seqs = ask.n_seqs;
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    tenant_put(table, it);
    return it;
}

static inline struct tenant_item *put(uint32_t tenant, uint32_t n_tokens)
{
    return put_full((struct tenant_item){.tenant = tenant, .n_tokens = n_tokens});
}

static inline void drop(struct tenant_item *it)
{
    tenant_take(table, it, now);
    mem_free(it);
}

/* Starts and charges what comes first; its tenant, or -1. */
static inline int serve(void)
{
    struct tenant_item *it = tenant_first(table, now);
    if (!it)
        return -1;
    uint32_t tenant = it->tenant;
    tenant_start(table, it, now);
    tenant_charge(table, tenant, it->n_tokens, 0, 0);
    mem_free(it);
    return (int)tenant;
}

static inline void finish(void)
{
    struct tenant_item *it;
    tenants_audit(table);
    while ((it = tenant_first(table, now)))
        drop(it);
    while (table->n_queued)
        for (uint32_t i = 0; i < TENANT_MAX; i++)
            if (table->tenant[i].queue.first)
                drop((struct tenant_item *)(void *)table->tenant[i].queue.first);
    tenants_audit(table);
    ck_assert_uint_eq(tenants_waiting_tokens(table), 0);
    tenants_free(table);
}

#endif
