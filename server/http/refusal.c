/* Answers past libmicrohttpd; see refusal.h. */
#include "server/http/refusal.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "server/http/access.h"
#include "server/exchange.h"
#include "server/limits.h"
#include "server/http/loop.h"
#include "server/server.h"

static void add_date(struct buf *out)
{
    char text[40];
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) && strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm))
        buf_printf(out, "Date: %s\r\n", text);
}

/* r: with its body. id: "" for none. head: the body is announced only. */
static void send_reply(int fd, const struct reply *r, const char *id, bool head)
{
    struct buf out = {0};
    buf_printf(&out, "HTTP/1.1 %d %s\r\n", r->http, MHD_get_reason_phrase_for((unsigned)r->http));
    add_date(&out);
    buf_printf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", r->body.len);
    if (*id)
        buf_printf(&out, "X-Request-Id: %s\r\n", id);
    if (r->retry_after_s)
        buf_printf(&out, "Retry-After: %u\r\n", r->retry_after_s);
    if (*r->allow)
        buf_printf(&out, "Allow: %s\r\n", r->allow);
    if (r->http == 401)
        buf_add_c(&out, "WWW-Authenticate: Bearer\r\n");
    buf_add_c(&out, "Connection: close\r\n\r\n");
    if (!head)
        buf_add(&out, r->body.ptr, r->body.len);
    if (send(fd, out.ptr, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_debug("an answer was not sent: %s", strerror(errno));
    buf_release(&out);
}

static void set_problem(struct reply *r, int problem_id, const struct err *e)
{
    const struct problem *p = problem_find(problem_id);
    r->http = p->http;
    r->retry_after_s = p->retry_after_s;
    buf_clear(&r->body);
    problem_add_json(&r->body, p, e, "");
}

static void answer_exchange(struct exchange *ex, int problem_id, const struct err *e)
{
    if (!ex->reply.set)
        reply_problem(ex, problem_id, e);
    send_reply(ex->conn->fd, &ex->reply, ex->id, ex->head);
    ex->n_sent = ex->reply.body.len;
    ex->queued = true;
    ex->end = "refused";
}

static void answer_bytes(struct conn *c, int problem_id, const struct err *e)
{
    struct reply r = {0};
    char id[REQUEST_ID_CAP];
    exchange_new_id(c->loop->srv, id);
    set_problem(&r, problem_id, e);
    send_reply(c->fd, &r, id, c->framing.head_method);
    access_refused(c, id, r.http, e->text);
    buf_release(&r.body);
}

void refusal_now(struct conn *c, int problem_id, const struct err *e)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (c->deaf)
        return;
    if (c->ex)
        answer_exchange(c->ex, problem_id, e);
    else
        answer_bytes(c, problem_id, e);
    shutdown(c->fd, SHUT_WR);
    c->deaf = true;
    conn_timer(c, TIMER_BODY);
    if (epoll_ctl(c->loop->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) < 0)
        refusal_end(c);
}

void refusal_when_answered(struct conn *c)
{
    struct err e;
    const struct framing *f = &c->framing;
    if (!f->why || c->n_completed < f->n_requests)
        return;
    err_set(&e, ERR_INVALID, "%s", f->why);
    if (f->problem == HTTP_HEAD)
        err_set(&e, ERR_INVALID, "%s, at most %d bytes are allowed", f->why, HEAD_MAX_BYTES);
    refusal_now(c, f->problem, &e);
}

void refusal_end(struct conn *c)
{
    c->ended = true;
    epoll_ctl(c->loop->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR); /* also an event for libmicrohttpd, which then lets go of it */
    c->loop->run_mhd = true;
}

void refusal_discard(struct conn *c)
{
    enum { MOST_BYTES = 1 << 20 }; /* a turn; the loop has others to serve */
    /* MSG_TRUNC: TCP throws the bytes away without a copy. */
    ssize_t k = recvfrom(c->fd, NULL, MOST_BYTES, MSG_TRUNC | MSG_DONTWAIT, NULL, NULL);
    if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
        refusal_end(c);
}

void refusal_of_socket(int fd)
{
    enum { MOST_READS = 16 };
    char unread[4096];
    struct reply r = {0};
    struct err e;
    err_set(&e, ERR_BUSY, "too many connections are open");
    set_problem(&r, HTTP_CONNECTIONS, &e);
    send_reply(fd, &r, "", false);
    buf_release(&r.body);
    shutdown(fd, SHUT_WR);
    /* Unread bytes would turn the close into a reset that can overtake the answer; a client that goes
     * on sending may not hold the loop. */
    for (int i = 0; i < MOST_READS && recv(fd, unread, sizeof(unread), MSG_DONTWAIT) > 0; i++)
        continue;
    close(fd);
}
