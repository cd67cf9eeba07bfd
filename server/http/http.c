/* libmicrohttpd's callbacks; see http.h.
 *
 * A request: first call (begin: framing, route, key, limits) -> body calls -> last call (advance: the
 * handler runs, here or in preparation, see offload.h) -> an answer, or work for the scheduler. While the
 * scheduler works the connection is suspended; afterwards libmicrohttpd calls again and the answer is
 * queued, or its content reader ends the stream. */
#include "server/http/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "config/metrics.h"
#include "server/http/access.h"
#include "server/http/admit.h"
#include "server/http/body.h"
#include "server/exchange.h"
#include "server/api/format.h"
#include "server/http/gate.h"
#include "server/http/headers.h"
#include "server/http/refusal.h"
#include "server/api/job.h"
#include "server/limits.h"
#include "server/http/offload.h"
#include "server/http/origin.h"
#include "server/question.h"
#include "server/http/routes.h"
#include "server/server.h"
#include "server/service.h"
#include "server/http/stream.h"

/* ---- answers ---- */

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
    if (*value && MHD_add_response_header(r, name, value) != MHD_YES)
        log_warn("cannot add the response header %s", name);
}

/* Answers a preflight for any header the browser asks about: keys travel in headers, not cookies. A
 * list too long to be repeated gets the wildcard, which does not cover authorization. */
static void add_preflight(struct MHD_Response *r, const struct conn *c)
{
    struct str asked = header_value(c, "Access-Control-Request-Headers");
    char headers[ECHO_MAX_BYTES + 1] = "authorization, content-type, x-api-key, x-request-id";
    if (asked.len > ECHO_MAX_BYTES)
        snprintf(headers, sizeof(headers), "*, authorization");
    else if (asked.len)
        snprintf(headers, sizeof(headers), "%.*s", (int)asked.len, asked.ptr);
    add_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    add_header(r, "Access-Control-Allow-Headers", headers);
    add_header(r, "Access-Control-Max-Age", "86400");
    add_header(r, "Vary", "Access-Control-Request-Headers");
}

/* A stream's head goes out before anything is computed: what is known is the time until now. */
static void add_timing(struct MHD_Response *r, const struct exchange *ex)
{
    struct buf value = {0};
    if (!ex->job)
        return;
    if (ex->job->stream)
        buf_printf(&value, "prepare;dur=%.3f",
                   (double)(clock_ns() - ex->start_ns) / (double)NS_PER_MS);
    else if (ex->job->n_ended)
        format_server_timing(&value, &ex->job->timing);
    add_header(r, "Server-Timing", value.len ? value.ptr : "");
    buf_release(&value);
}

static bool allowed_page(const struct exchange *ex)
{
    enum origin o =
        origin_of(ex->srv->set, header_value(ex->conn, "Origin"), header_value(ex->conn, "Host"));
    return o == ORIGIN_NAMED || o == ORIGIN_BY_STAR;
}

static void add_allowed_origin(struct MHD_Response *r, const struct exchange *ex)
{
    const struct settings *set = ex->srv->set;
    struct str given = header_value(ex->conn, "Origin");
    char origin[300]; /* one that is named: no longer than an option's item can be */
    if (!set->server_cors_origin.n)
        return;
    bool star = origin_star(set);
    if (!star)
        add_header(r, "Vary", "Origin");
    if (!star && (!allowed_page(ex) || given.len >= sizeof(origin)))
        return;
    snprintf(origin, sizeof(origin), "%.*s", star ? 1 : (int)given.len, star ? "*" : given.ptr);
    add_header(r, "Access-Control-Allow-Origin", origin);
    add_header(r, "Access-Control-Expose-Headers",
               "x-request-id, x-ignored-params, retry-after, server-timing");
}

static void add_common_headers(struct MHD_Response *r, struct exchange *ex)
{
    add_allowed_origin(r, ex);
    add_header(r, "X-Request-Id", ex->id);
    add_timing(r, ex);
    if (ex->ignored.len)
        add_header(r, "X-Ignored-Params", ex->ignored.ptr);
    if (ex->close || server_phase(ex->srv) == PHASE_DRAINING)
        add_header(r, "Connection", "close");
}

static enum MHD_Result send_reply(struct exchange *ex)
{
    struct reply *reply = &ex->reply;
    char number[16];
    question_free(ex->question); /* the answer is made */
    ex->question = NULL;
    reply_hold(ex);
    size_t n = reply->body.len;
    timer_stop(&ex->conn->timer); /* the request's deadlines end where the answer begins */
    ex->n_sent = n;
    struct MHD_Response *r =
        MHD_create_response_from_buffer_with_free_callback(n, buf_take(&reply->body), mem_free);
    if (!r)
        return MHD_NO;
    if (n)
        add_header(r, "Content-Type",
                   reply->content_type ? reply->content_type : "application/json");
    if (reply->retry_after_s) {
        snprintf(number, sizeof(number), "%u", reply->retry_after_s);
        add_header(r, "Retry-After", number);
    }
    add_header(r, "Allow", reply->allow);
    if (reply->http == 204 && (origin_star(ex->srv->set) || allowed_page(ex)))
        add_preflight(r, ex->conn);
    if (reply->http == 401)
        add_header(r, "WWW-Authenticate", "Bearer");
    add_common_headers(r, ex);
    ex->queued = true;
    enum MHD_Result result = MHD_queue_response(ex->conn->mhd, (unsigned)reply->http, r);
    MHD_destroy_response(r);
    return result;
}

/* Content reader: called once when the head is out, and once more when the stream has ended. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct exchange *ex = cls;
    (void)pos;
    (void)buf;
    (void)max;
    if (ex->stream_ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (ex->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    MHD_suspend_connection(ex->conn->mhd);
    loop_watch(ex->conn);
    ex->streaming = true;
    conn_timer(ex->conn, TIMER_PING);
    loop_pend(ex->conn);
    return 0;
}

static enum MHD_Result send_stream_head(struct exchange *ex)
{
    enum { BLOCK_BYTES = 64 }; /* the reader never hands out data */
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, ex, NULL);
    if (!r)
        return MHD_NO;
    add_header(r, "Content-Type", "text/event-stream; charset=utf-8");
    add_header(r, "Cache-Control", "no-cache");
    add_header(r, "X-Accel-Buffering", "no");
    add_common_headers(r, ex);
    ex->queued = true;
    ex->reply.http = 200;
    enum MHD_Result result = MHD_queue_response(ex->conn->mhd, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return result;
}

/* ---- first call ---- */

/* The client's id when it is short and plain, else one of ours. */
static void set_request_id(struct exchange *ex)
{
    struct str given = header_value(ex->conn, "X-Request-Id");
    bool plain = given.len > 0 && given.len < REQUEST_ID_CAP;
    for (size_t i = 0; plain && i < given.len; i++)
        plain = given.ptr[i] > ' ' && given.ptr[i] < 127;
    if (plain)
        snprintf(ex->id, sizeof(ex->id), "%.*s", (int)given.len, given.ptr);
    else
        exchange_new_id(ex->srv, ex->id);
}

/* Refused, and its body follows. Many clients read no answer before they have sent all, and closing on
 * them loses it: the body is read to its end, and the connection lives on. One that is far too large is
 * answered before it comes, and then discarded; one that waits for 100 Continue does not come. */
static enum MHD_Result refuse_with_body(struct exchange *ex, const struct body_framing *f)
{
    uint64_t most = ex->srv->set->server_max_body;
    if (f->expects_continue && ex->http11) {
        ex->close = true;
        return send_reply(ex);
    }
    if (f->sized && f->length > SWALLOW_FACTOR * most)
        refusal_now(ex->conn, ERR_TOO_LARGE, NULL);
    return MHD_YES;
}

static enum MHD_Result begin(struct conn *c, const char *url, const char *method,
                             const char *version, void **ctx)
{
    struct exchange *ex = mem_zalloc(sizeof(*ex));
    *ctx = ex;
    c->ex = ex;
    c->n_begun++;
    CHECK(c->n_begun <= c->framing.n_heads); /* the library read what the gate has not seen */
    ex->srv = c->loop->srv;
    ex->service = ex->srv->service[0];
    ex->conn = c;
    ex->held = (struct ledger_hold){.ledger = ex->srv->ledger, .key = LEDGER_NOBODY};
    ex->start_ns = clock_ns();
    ex->http11 = strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
    ex->head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    ex->method_label = method_label(method_of(method));
    snprintf(ex->path, sizeof(ex->path), "%s", url);
    ex->anthropic = header_value(c, "anthropic-version").ptr != NULL;
    set_request_id(ex);
    conn_timer(c, TIMER_BODY);

    const struct body_framing f = header_framing(c);
    ex->n_announced = f.sized ? f.length : UINT64_MAX;
    admit(ex, url, method, &f);
    return ex->reply.set && (f.sized || f.chunked) ? refuse_with_body(ex, &f) : MHD_YES;
}

/* ---- body ---- */

static enum MHD_Result take_body(struct exchange *ex, const char *data, size_t n)
{
    uint64_t most = ex->srv->set->server_max_body;
    if (!ex->reply.set && ex->body.len + n > most) {
        struct err e;
        ex->n_swallowed = ex->body.len;
        body_release(ex);
        err_set(&e, ERR_TOO_LARGE, "the body has more than the limit of %llu bytes",
                (unsigned long long)most);
        reply_err(ex, &e);
    }
    if (!ex->reply.set) {
        struct err e;
        ex->n_swallowed = ex->body.len;
        if (body_add(ex, data, n, &e) == OK)
            return MHD_YES;
        reply_err(ex, &e);
    }
    ex->n_swallowed += n;
    if (ex->n_swallowed > SWALLOW_FACTOR * most)
        refusal_now(ex->conn, ERR_TOO_LARGE, NULL);
    return MHD_YES;
}

/* ---- last call, and again after each resume ---- */

static void suspend(struct exchange *ex)
{
    MHD_suspend_connection(ex->conn->mhd);
    loop_watch(ex->conn);
}

static enum MHD_Result start_job(struct exchange *ex)
{
    struct err e = {0};
    uint32_t retry_after_s = 0;
    ex->stage = STAGE_RUNNING;
    if (job_submit(ex->job, loop_wake, ex->conn->loop, &retry_after_s, &e)) {
        ex->reply.retry_after_s = retry_after_s;
        job_refuse(ex->job, &e);
        return send_reply(ex);
    }
    ex->job->running = true;
    atomic_fetch_add_explicit(&ex->conn->loop->n_jobs, 1, memory_order_relaxed);
    body_release(ex);
    if (ex->job->stream)
        return send_stream_head(ex);
    suspend(ex);
    return MHD_YES;
}

/* The table of named prefixes is locked while a file is written, and grammars are compiled. */
static bool needs_turn(struct exchange *ex)
{
    const char *label = ex->route->label;
    if (strcmp(label, "prefixes") == 0 || strcmp(label, "grammar") == 0)
        return true;
    if (!ex->route->body)
        return false;
    return body_may_be_large(ex) || ex->conn->loop->n_bodies++ >= LOOP_BODIES;
}

/* Engine thread. */
static void question_answered(struct sched_ask *a, void *arg)
{
    struct exchange *ex = ((struct question *)arg)->ex;
    (void)a;
    offload_push(ex->srv->offload, ex);
}

static enum MHD_Result wait_turn(struct exchange *ex)
{
    struct err e;
    if (offload_enter(ex->srv->offload, ex, &e)) {
        reply_err(ex, &e);
        return send_reply(ex);
    }
    ex->stage = STAGE_OFFLOAD;
    suspend(ex);
    return MHD_YES;
}

static void ask_question(struct question *q)
{
    q->ask.done = question_answered;
    q->ask.arg = q;
    sched_ask(q->ex->service->sched, &q->ask);
}

static enum MHD_Result advance(struct exchange *ex)
{
    timer_stop(&ex->conn->timer);
    if (ex->gone)
        return MHD_NO;
    if (ex->stage == STAGE_READING && !ex->reply.set) {
        if (needs_turn(ex))
            return wait_turn(ex);
        ex->route->handle(ex);
        ex->stage = STAGE_PREPARED;
        if (ex->question && !ex->reply.set) {
            ex->stage = STAGE_ASKED;
            suspend(ex);
            ask_question(ex->question);
            return MHD_YES;
        }
    }
    if (ex->question && !ex->reply.set)
        ex->route->handle(ex);
    if (ex->reply.set)
        return send_reply(ex);
    if (ex->stage == STAGE_PREPARED && ex->job)
        return start_job(ex);
    return MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **ctx)
{
    (void)cls;
    struct exchange *ex = *ctx;
    if (!ex) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        return begin(info->socket_context, url, method, version, ctx);
    }
    if (ex->conn->deaf) {
        bool more = *n_upload > 0;
        *n_upload = 0;
        return more ? MHD_YES : MHD_NO;
    }
    if (*n_upload) {
        enum MHD_Result result = take_body(ex, upload, *n_upload);
        *n_upload = 0;
        return result;
    }
    return ex->queued ? MHD_YES : advance(ex);
}

/* ---- events from elsewhere, while suspended ---- */

void http_prepared(struct exchange *ex)
{
    ex->stage = STAGE_PREPARED;
    loop_resume(ex->conn);
}

static void end_by_hangup(struct exchange *ex, const char *end)
{
    ex->gone = true;
    ex->end = end;
    if (ex->stage == STAGE_OFFLOAD || ex->stage == STAGE_ASKED) {
        if (offload_forget(ex->srv->offload, ex))
            http_prepared(ex);
        return; /* else another thread has it, and http_prepared comes */
    }
    job_cancel(ex->job, ERR_CANCELLED, "the client is gone");
    loop_resume(ex->conn);
}

static void pump_stream(struct exchange *ex)
{
    struct conn *c = ex->conn;
    uint64_t before = ex->n_sent;
    size_t stash_before = ex->stash.len - ex->stash_at;
    switch (stream_pump(ex, c->fd, &c->loop->out)) {
    case STREAM_OPEN:
        if (ex->n_sent != before || stash_before)
            conn_timer(c, TIMER_PING);
        break;
    case STREAM_BLOCKED:
        if (!stash_before || ex->stash.len - ex->stash_at != stash_before)
            conn_timer(c, TIMER_SLOW);
        break;
    case STREAM_ENDED:
        ex->stream_ended = true;
        loop_resume(c);
        break;
    case STREAM_BROKEN:
        end_by_hangup(ex, "client_gone");
        break;
    }
}

void http_pump(struct exchange *ex)
{
    if (!ex->suspended || ex->stage != STAGE_RUNNING || ex->gone)
        return;
    struct job *j = ex->job;
    if (ex->streaming) {
        pump_stream(ex);
        return;
    }
    if (j->stream)
        return;
    job_take(j, NULL, 0);
    if (!j->done)
        return;
    if (j->n_kept > LOOP_ANSWER_BYTES || (j->api == API_PREFIXES && !j->error.status)) {
        ex->stage = STAGE_OFFLOAD; /* the answer is made there */
        offload_push(ex->srv->offload, ex);
        return;
    }
    job_reply(j);
    loop_resume(ex->conn);
}

void http_pending(struct conn *c)
{
    if (c->ex)
        http_pump(c->ex);
    else
        refusal_when_answered(c);
}

void http_hangup(struct conn *c)
{
    if (!c->ex->gone)
        end_by_hangup(c->ex, "client_gone");
}

/* The time for a head or a body is over. */
static void late(struct conn *c)
{
    struct err e;
    if (c->deaf || (!c->ex && framing_idle(&c->framing))) {
        refusal_end(c);
        return;
    }
    err_set(&e, ERR_INVALID, "the request took too long to arrive");
    refusal_now(c, HTTP_SLOW_REQUEST, &e);
    if (c->ex)
        c->ex->end = "deadline";
}

void http_expired(struct conn *c, enum timer_kind kind)
{
    struct exchange *ex = c->ex;
    switch (kind) {
    case TIMER_HEAD:
    case TIMER_BODY:
        late(c);
        break;
    case TIMER_IDLE:
        shutdown(c->fd, SHUT_RDWR);
        c->loop->run_mhd = true;
        break;
    case TIMER_PING:
        if (!ex || !ex->streaming || !ex->suspended)
            break;
        if (stream_ping(ex, c->fd, &c->loop->out) == STREAM_BROKEN)
            end_by_hangup(ex, "client_gone");
        else
            conn_timer(c, ex->stash.len ? TIMER_SLOW : TIMER_PING);
        break;
    case TIMER_SLOW:
        if (ex && ex->suspended)
            end_by_hangup(ex, "slow_client");
        break;
    case N_TIMERS:
        break;
    }
}

void http_abort(struct exchange *ex)
{
    if (ex->stage != STAGE_RUNNING || ex->gone || ex->job->done)
        return;
    job_cancel(ex->job, ERR_DRAINING, "the server is shutting down");
    ex->end = "drain";
    http_pump(ex);
}

/* ---- the end of requests and connections ---- */

static void on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                         enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)mhd;
    struct exchange *ex = *ctx;
    if (!ex)
        return;
    struct conn *c = ex->conn;
    *ctx = NULL;
    bool told_all = code == MHD_REQUEST_TERMINATED_COMPLETED_OK || ex->stream_ended;
    if (!ex->end && !told_all)
        ex->end = code == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED ? "deadline" : "client_gone";
    if (ex->job && ex->job->submitted && ex->end && strcmp(ex->end, "drain") != 0)
        metrics_add(ex->srv->metrics, METRIC_CLIENT_DISCONNECTS, NULL, 1);
    access_done(ex);
    if (ex->job && ex->job->running) {
        ex->job->running = false;
        atomic_fetch_sub_explicit(&c->loop->n_jobs, 1, memory_order_release);
    }
    job_free(ex->job);
    question_free(ex->question);
    exchange_release(ex);
    mem_free(ex);
    c->ex = NULL;
    c->n_completed++;
    if (c->framing.why)
        loop_pend(c);
    if (!c->deaf)
        conn_timer(c, framing_idle(&c->framing) ? TIMER_IDLE : TIMER_HEAD);
}

static void set_ip(struct conn *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, c->ip, sizeof(c->ip));
    else if (a && a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, c->ip, sizeof(c->ip));
}

static void conn_started(struct loop *l, struct MHD_Connection *mhd, void **context)
{
    struct conn *c = mem_zalloc(sizeof(*c));
    *context = c;
    c->watch.kind = WATCH_CONN;
    c->loop = l;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->next = l->conns;
    if (c->next)
        c->next->prev = c;
    l->conns = c;
    set_ip(c);
    ledger_add(&l->held, LEDGER_CONNECTIONS, CONNECTION_BYTES);
    gate_add(c);
    atomic_fetch_add_explicit(&l->srv->n_connections, 1, memory_order_relaxed);
    conn_timer(c, TIMER_HEAD);
}

static void conn_closed(struct loop *l, struct conn *c)
{
    timer_stop(&c->timer);
    gate_remove(c);
    for (struct conn **p = &l->pending; *p; p = &(*p)->next_pending) {
        if (*p == c) {
            *p = c->next_pending;
            break;
        }
    }
    if (c->prev)
        c->prev->next = c->next;
    else
        l->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    mem_free(c);
    ledger_give(&l->held, LEDGER_CONNECTIONS, CONNECTION_BYTES);
    atomic_fetch_sub_explicit(&l->srv->n_connections, 1, memory_order_relaxed);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct loop *l = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_started(l, mhd, context);
    else if (*context)
        conn_closed(l, *context);
}

static void on_log(void *cls, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void on_log(void *cls, const char *format, va_list args)
{
    (void)cls;
    char text[256];
    vsnprintf(text, sizeof(text), format, args);
    text[strcspn(text, "\r\n")] = 0;
    log_debug("libmicrohttpd: %s", text);
}

enum status http_start_daemon(struct loop *l, struct err *e)
{
    enum { SPARE_CONNECTIONS = 64 };
    const struct settings *set = l->srv->set;
    unsigned idle_s = (unsigned)((set->server_idle_timeout + 999) / 1000);
    l->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | (MHD_ALLOW_SUSPEND_RESUME & ~MHD_USE_ITC) |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, l, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_POOL_BYTES, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)set->server_max_connections + SPARE_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        idle_s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, l, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!l->mhd)
        return err_set(e, ERR_IO, "cannot start libmicrohttpd");
    l->mhd_fd = MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    return OK;
}

void http_stop_daemon(struct loop *l)
{
    if (l->mhd)
        MHD_stop_daemon(l->mhd);
    l->mhd = NULL;
}
