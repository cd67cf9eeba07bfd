/* The end of a request in log and metrics; see access.h. */
#include "server/http/access.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/metrics.h"
#include "server/exchange.h"
#include "server/api/job.h"
#include "server/http/loop.h"
#include "server/http/routes.h"
#include "server/server.h"

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)NS_PER_MS : 0;
}

/* Paths come from clients: what could break a log line becomes '?'. */
static void clean_path(const char *path, char *out, size_t cap)
{
    size_t n = 0;
    for (; path[n] && n + 1 < cap; n++)
        out[n] = path[n] > ' ' && path[n] < 127 && path[n] != '"' ? path[n] : '?';
    out[n] = 0;
}

/* 499: the client left before there was an answer (as nginx logs it). */
static int status_of(const struct exchange *ex)
{
    enum { CLIENT_CLOSED_REQUEST = 499 };
    return ex->queued ? ex->reply.http : CLIENT_CLOSED_REQUEST;
}

static void log_job(const struct exchange *ex, const char *path, double total_ms)
{
    const struct job *j = ex->job;
    double queue_ms = j->first_scheduled_ns ? ms_between(ex->start_ns, j->first_scheduled_ns) : 0;
    double first_ms = j->first_token_ns ? ms_between(ex->start_ns, j->first_token_ns) : 0;
    log_info("request id=%s ip=%s %s %s status=%d bytes=%llu ms=%.1f queue_ms=%.1f ttft_ms=%.1f "
             "tokens_in=%llu tokens_out=%llu n=%u max_tokens=%u stream=%d end=%s",
             ex->id, ex->conn->ip, ex->method_label, path, status_of(ex),
             (unsigned long long)ex->n_sent, total_ms, queue_ms, first_ms,
             (unsigned long long)j->n_prompt_tokens, (unsigned long long)j->n_output_tokens,
             j->n * j->n_prompts,
             j->n_prompts && j->prompt[0].req ? j->prompt[0].req->max_tokens : 0, j->stream,
             ex->end           ? ex->end
             : j->error.status ? "error"
                               : "ok");
}

void access_done(const struct exchange *ex)
{
    char labels[64], path[sizeof(ex->path)];
    const char *handler = ex->route ? ex->route->label : "none";
    double total_ms = ms_between(ex->start_ns, clock_ns());
    snprintf(labels, sizeof(labels), "%s\x1f%d\x1f%s", ex->method_label, status_of(ex), handler);
    metrics_add(ex->srv->metrics, METRIC_HTTP_REQUESTS, labels, 1);
    metrics_observe(ex->srv->metrics, METRIC_HTTP_REQUEST_DURATION, handler, total_ms / 1e3);
    if (!ex->srv->set->log_access)
        return;
    clean_path(ex->path, path, sizeof(path));
    if (ex->job)
        log_job(ex, path, total_ms);
    else if (ex->route && !ex->route->body && ex->reply.http < 400)
        log_debug("request id=%s ip=%s %s %s status=%d bytes=%llu ms=%.1f", ex->id, ex->conn->ip,
                  ex->method_label, path, status_of(ex), (unsigned long long)ex->n_sent, total_ms);
    else
        log_info("request id=%s ip=%s %s %s status=%d bytes=%llu ms=%.1f end=%s", ex->id,
                 ex->conn->ip, ex->method_label, path, status_of(ex),
                 (unsigned long long)ex->n_sent, total_ms, ex->end ? ex->end : "ok");
}

void access_refused(const struct conn *c, const char *id, int http, const char *why)
{
    const struct server *srv = c->loop->srv;
    char labels[64];
    snprintf(labels, sizeof(labels), "%s\x1f%d\x1f%s", method_label(METHOD_OTHER), http, "none");
    metrics_add(srv->metrics, METRIC_HTTP_REQUESTS, labels, 1);
    if (srv->set->log_access)
        log_info("request id=%s ip=%s status=%d end=refused: %s", id, c->ip, http, why);
}
