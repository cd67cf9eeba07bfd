/* GET /health, /ready, /version, /metrics. */
#include "server/api/api.h"

#include <stddef.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "config/ledger.h"
#include "config/metrics.h"
#include "server/exchange.h"
#include "server/server.h"
#include "server/service.h"

/* Longer than any step should take, short enough for an orchestrator to act on. */
enum { HEARTBEAT_LIMIT_S = 30 };

static double heartbeat_age_s(const struct sched_stats *st)
{
    uint64_t now = clock_ns();
    return now > st->heartbeat_ns ? (double)(now - st->heartbeat_ns) / (double)NS_PER_S : 0;
}

/* False, with the reason in e, when an engine thread is dead or stuck. */
static bool is_alive(const struct service *v, struct err *e)
{
    struct sched_stats st;
    sched_stats(v->sched, &st);
    if (st.broken) {
        err_set(e, ERR_INTERNAL, "the engine has failed");
        return false;
    }
    double age_s = heartbeat_age_s(&st);
    if (st.idle || age_s < HEARTBEAT_LIMIT_S)
        return true;
    err_set(e, ERR_INTERNAL, "the engine thread has not responded for %.0f s, the limit is %d s",
            age_s, HEARTBEAT_LIMIT_S);
    return false;
}

/* Not loaded yet is healthy. */
static bool all_alive(const struct server *srv, struct err *e)
{
    bool alive = true;
    if (server_phase(srv) == PHASE_LOADING)
        return true;
    for (uint32_t i = 0; i < srv->n_services && alive; i++)
        alive = is_alive(srv->service[i], e);
    return alive;
}

static double oldest_heartbeat_s(const struct server *srv)
{
    double most = 0;
    for (uint32_t i = 0; i < srv->n_services; i++) {
        struct sched_stats st;
        sched_stats(srv->service[i]->sched, &st);
        double age_s = heartbeat_age_s(&st);
        most = age_s > most ? age_s : most;
    }
    return most;
}

static void reply_unavailable(struct exchange *ex, int problem_id, const struct err *e)
{
    reply_problem(ex, problem_id, e);
    ex->reply.http = 503;
    if (!ex->reply.retry_after_s)
        ex->reply.retry_after_s = 1;
}

void api_health(struct exchange *ex)
{
    struct err e;
    if (!all_alive(ex->srv, &e)) {
        reply_unavailable(ex, ERR_INTERNAL, &e);
        return;
    }
    reply_json(ex, 200);
    buf_add_c(&ex->reply.body, "{\"status\":\"ok\"}");
}

void api_ready(struct exchange *ex)
{
    struct err e;
    enum phase phase = server_phase(ex->srv);
    if (phase == PHASE_LOADING) {
        err_set(&e, ERR_BUSY, "the model is loading");
        reply_unavailable(ex, ERR_BUSY, &e);
    } else if (phase == PHASE_DRAINING) {
        err_set(&e, ERR_DRAINING, "the server is shutting down");
        reply_unavailable(ex, ERR_DRAINING, &e);
    } else if (!all_alive(ex->srv, &e)) {
        reply_unavailable(ex, ERR_INTERNAL, &e);
    } else {
        reply_json(ex, 200);
        buf_add_c(&ex->reply.body, "{\"status\":\"ready\"}");
    }
}

void api_version(struct exchange *ex)
{
    reply_json(ex, 200);
    buf_printf(&ex->reply.body, "{\"version\":\"%s\"}", ex->srv->version);
}

/* What a row of the keys' metrics shows of a tenant. */
struct key_row {
    int id;
    const char *kind; /* second label, or NULL */
    size_t offset; /* of a uint64_t in struct tenant_view, else of a uint32_t */
    bool wide;
};

static void add_key_row(const struct server *srv, const struct policy *p, const struct key_row *row,
                        bool with_head, struct buf *out)
{
    bool first = with_head;
    for (uint32_t i = 0; i < p->n_tenants; i++) {
        char labels[TENANT_NAME_CAP + 32];
        struct tenant_view v;
        tenant_look(srv->auth.tenants, p->tenant[i].slot, &v);
        if (!v.weight)
            continue;
        const char *at = (const char *)&v + row->offset;
        double value = (double)(row->wide ? *(const uint64_t *)at : *(const uint32_t *)at);
        snprintf(labels, sizeof(labels), "%s%s%s", p->tenant[i].name, row->kind ? "\x1f" : "",
                 row->kind ? row->kind : "");
        metrics_render_value(srv->metrics, row->id, labels, value, first, out);
        first = false;
    }
}

static void add_key_memory(const struct exchange *ex, struct buf *out)
{
    const struct server *srv = ex->srv;
    const struct policy *p = ex->grant.policy;
    for (uint32_t i = 0; srv->ledger && i < p->n_tenants; i++)
        metrics_render_value(srv->metrics, METRIC_KEY_MEMORY, p->tenant[i].name,
                             (double)ledger_used_by_key(srv->ledger, p->tenant[i].slot), i == 0,
                             out);
}

static void add_client_memory(const struct server *srv, struct buf *out)
{
    if (!srv->ledger)
        return;
    metrics_set(srv->metrics, METRIC_CLIENT_MEMORY_LIMIT, NULL, (double)ledger_total(srv->ledger));
    for (uint32_t i = 0; i < N_LEDGER_KINDS; i++)
        metrics_render_value(srv->metrics, METRIC_CLIENT_MEMORY, ledger_kinds[i].name,
                             (double)ledger_used_by_kind(srv->ledger, i), i == 0, out);
    for (uint32_t i = 0; i < N_LEDGER_KINDS; i++)
        metrics_render_value(srv->metrics, METRIC_CLIENT_MEMORY_REFUSED, ledger_kinds[i].name,
                             (double)ledger_refusals(srv->ledger, i), i == 0, out);
}

/* As the asker's policy knows the keys: names may change with a reload. */
static void add_keys(const struct exchange *ex, struct buf *out)
{
    static const struct key_row rows[] = {
        {METRIC_KEY_REQUESTS_WAITING, NULL, offsetof(struct tenant_view, n_waiting), false},
        {METRIC_KEY_WAITING_TOKENS, NULL, offsetof(struct tenant_view, waiting_tokens), true},
        {METRIC_KEY_SEQUENCES_RUNNING, NULL, offsetof(struct tenant_view, n_running), false},
        {METRIC_KEY_REFUSED, NULL, offsetof(struct tenant_view, n_refused), true},
        {METRIC_KEY_TOKENS, "computed", offsetof(struct tenant_view, n_computed), true},
        {METRIC_KEY_TOKENS, "cached", offsetof(struct tenant_view, n_cached), true},
        {METRIC_KEY_TOKENS, "output", offsetof(struct tenant_view, n_output), true},
    };
    add_key_memory(ex, out);
    if (!ex->srv->auth.tenants)
        return;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        add_key_row(ex->srv, ex->grant.policy, &rows[i], !i || rows[i].id != rows[i - 1].id, out);
}

void api_metrics(struct exchange *ex)
{
    struct server *srv = ex->srv;
    if (server_phase(srv) != PHASE_LOADING)
        metrics_set(srv->metrics, METRIC_ENGINE_HEARTBEAT_AGE, NULL, oldest_heartbeat_s(srv));
    metrics_set(srv->metrics, METRIC_REQUESTS_PREPARING, NULL, atomic_load(&srv->n_preparing));
    reply_json(ex, 200);
    ex->reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    add_client_memory(srv, &ex->reply.body);
    metrics_render(srv->metrics, &ex->reply.body);
    add_keys(ex, &ex->reply.body);
}
