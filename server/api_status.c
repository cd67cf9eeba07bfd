/* GET /health, /ready, /version, /metrics. */
#include "server/api.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "config/metrics.h"
#include "server/exchange.h"
#include "server/server.h"

/* Longer than any step should take, short enough for an orchestrator to act on. */
enum { HEARTBEAT_LIMIT_S = 30 };

static double heartbeat_age_s(const struct sched_stats *st)
{
    uint64_t now = clock_ns();
    return now > st->heartbeat_ns ? (double)(now - st->heartbeat_ns) / (double)NS_PER_S : 0;
}

/* False, with the reason in e, when the engine thread is dead or stuck. Not loaded yet is healthy. */
static bool engine_alive(const struct server *srv, struct err *e)
{
    if (server_phase(srv) == PHASE_LOADING)
        return true;
    struct sched_stats st;
    sched_stats(srv->model.sched, &st);
    if (st.broken) {
        err_set(e, ERR_INTERNAL, "the engine has failed");
        return false;
    }
    double age_s = heartbeat_age_s(&st);
    if (st.idle || age_s < HEARTBEAT_LIMIT_S)
        return true;
    err_set(e, ERR_INTERNAL, "the engine thread has shown no life for %.0f s, the limit is %d s",
            age_s, HEARTBEAT_LIMIT_S);
    return false;
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
    if (!engine_alive(ex->srv, &e)) {
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
    } else if (!engine_alive(ex->srv, &e)) {
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

void api_metrics(struct exchange *ex)
{
    struct server *srv = ex->srv;
    if (server_phase(srv) != PHASE_LOADING) {
        struct sched_stats st;
        sched_stats(srv->model.sched, &st);
        metrics_set(srv->metrics, METRIC_ENGINE_HEARTBEAT_AGE, NULL, heartbeat_age_s(&st));
    }
    reply_json(ex, 200);
    ex->reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_render(srv->metrics, &ex->reply.body);
}
