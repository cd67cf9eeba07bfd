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

/* What the engine thread did for a call so far, its prompts together. */
struct progress {
    uint64_t n_prompt, n_computed, n_output, n_choices;
    uint64_t first_scheduled_ns, first_token_ns;
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* The requests' own counts: a client that leaves, or a drain, ends a call before its last event. */
static struct progress progress_of(const struct job *j)
{
    struct progress p = {.n_choices = (uint64_t)j->n * j->n_prompts};
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        const struct request *r = j->prompt[i].req;
        if (!r)
            continue;
        const struct request_progress *at = &r->progress;
        p.n_prompt += r->n_prompt;
        p.n_computed += atomic_load_explicit(&at->n_computed, memory_order_relaxed);
        p.n_output += atomic_load_explicit(&at->n_output, memory_order_relaxed);
        p.first_scheduled_ns =
            earlier(p.first_scheduled_ns,
                    atomic_load_explicit(&at->first_scheduled_ns, memory_order_relaxed));
        p.first_token_ns = earlier(p.first_token_ns,
                                   atomic_load_explicit(&at->first_token_ns, memory_order_relaxed));
    }
    return p;
}

/* Output tokens a second behind the first of each choice; 0: there are none. */
static double decode_rate(const struct progress *p, uint64_t now_ns)
{
    double ms = p->first_token_ns ? ms_between(p->first_token_ns, now_ns) : 0;
    return p->n_output > p->n_choices && ms > 0 ? (double)(p->n_output - p->n_choices) * 1e3 / ms
                                                : 0;
}

static void log_job(const struct exchange *ex, const char *path, uint64_t now_ns)
{
    const struct job *j = ex->job;
    const struct progress p = progress_of(j);
    double queue_ms = p.first_scheduled_ns ? ms_between(ex->start_ns, p.first_scheduled_ns) : 0;
    double first_ms = p.first_token_ns ? ms_between(ex->start_ns, p.first_token_ns) : 0;
    log_info("request id=%s ip=%s %s %s status=%d bytes=%llu ms=%.1f queue_ms=%.1f ttft_ms=%.1f "
             "tokens_in=%llu tokens_out=%llu tok_s=%.1f n=%u max_tokens=%u stream=%d end=%s",
             ex->id, ex->conn->ip, ex->method_label, path, status_of(ex),
             (unsigned long long)ex->n_sent, ms_between(ex->start_ns, now_ns), queue_ms, first_ms,
             (unsigned long long)p.n_prompt, (unsigned long long)p.n_output,
             decode_rate(&p, now_ns), j->n * j->n_prompts,
             j->n_prompts && j->prompt[0].req ? j->prompt[0].req->max_tokens : 0, j->stream,
             ex->end           ? ex->end
             : j->error.status ? "error"
                               : "ok");
}

void access_progress(struct exchange *ex, uint64_t now_ns)
{
    enum { EVERY_S = 5 };
    if (ex->stage != STAGE_RUNNING) /* before it, another thread may be making the job */
        return;
    const struct job *j = ex->job;
    if (!j->running || now_ns < ex->progress_ns + EVERY_S * NS_PER_S)
        return;
    const struct progress p = progress_of(j);
    if (!p.first_scheduled_ns || p.first_token_ns ||
        now_ns < p.first_scheduled_ns + EVERY_S * NS_PER_S)
        return;
    ex->progress_ns = now_ns;
    log_info("prompt id=%s: %llu of %llu tokens after %.0f s", ex->id,
             (unsigned long long)p.n_computed, (unsigned long long)p.n_prompt,
             ms_between(p.first_scheduled_ns, now_ns) / 1e3);
}

/* Probes come every few seconds for as long as the server lives. */
static bool is_probe(const struct exchange *ex)
{
    return ex->route && ex->route->needs == NEEDS_NOTHING;
}

void access_done(const struct exchange *ex)
{
    char labels[64], path[sizeof(ex->path)];
    const char *handler = ex->route ? ex->route->label : "none";
    uint64_t now_ns = clock_ns();
    double total_ms = ms_between(ex->start_ns, now_ns);
    snprintf(labels, sizeof(labels), "%s\x1f%d\x1f%s", ex->method_label, status_of(ex), handler);
    metrics_add(ex->srv->metrics, METRIC_HTTP_REQUESTS, labels, 1);
    metrics_observe(ex->srv->metrics, METRIC_HTTP_REQUEST_DURATION, handler, total_ms / 1e3);
    if (!ex->srv->set->log_access)
        return;
    clean_path(ex->path, path, sizeof(path));
    if (ex->job)
        log_job(ex, path, now_ns);
    else if (ex->route && !ex->route->body && (ex->reply.http < 400 || is_probe(ex)))
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
