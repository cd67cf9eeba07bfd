/* The turn of a loop; see loop.h. */
#include "server/http/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "server/http/access.h"
#include "server/exchange.h"
#include "server/http/gate.h"
#include "server/http/http.h"
#include "server/http/refusal.h"
#include "server/limits.h"
#include "server/api/job.h"
#include "server/server.h"

enum {
    MAX_EVENTS = 256,
    ACCEPT_BURST = 512, /* connections taken in a turn */
    PUMP_BURST = 1024, /* streams served in a turn */
    MAX_WAIT_MS = 1000,
    STOP_GRACE_MS = 2000 /* for answers to leave once everything was asked to end */
};

/* ---- other threads ---- */

void loop_poke(struct loop *l)
{
    uint64_t one = 1;
    while (write(l->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

void loop_wake(struct request *r, void *loop)
{
    struct loop *l = loop;
    if (atomic_exchange_explicit(&r->wake_queued, true, memory_order_acq_rel))
        return;
    request_ref(r);
    struct request *head = atomic_load_explicit(&l->woken, memory_order_relaxed);
    do
        r->wake_next = head;
    while (!atomic_compare_exchange_weak_explicit(&l->woken, &head, r, memory_order_release,
                                                  memory_order_relaxed));
    if (!head)
        loop_poke(l);
}

void loop_prepared(struct loop *l, struct exchange *ex)
{
    struct exchange *head = atomic_load_explicit(&l->prepared, memory_order_relaxed);
    do
        ex->next = head;
    while (!atomic_compare_exchange_weak_explicit(&l->prepared, &head, ex, memory_order_release,
                                                  memory_order_relaxed));
    loop_poke(l);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* ---- connections ---- */

void loop_watch(struct conn *c)
{
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLOUT | EPOLLET, .data.ptr = c};
    c->ex->suspended = true;
    if (epoll_ctl(c->loop->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) < 0)
        log_warn("cannot watch a connection: %s", strerror(errno));
}

void loop_resume(struct conn *c)
{
    epoll_ctl(c->loop->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    timer_stop(&c->timer);
    c->ex->suspended = false;
    c->loop->run_mhd = true;
    MHD_resume_connection(c->mhd);
}

void loop_pend(struct conn *c)
{
    if (c->pending)
        return;
    c->pending = true;
    c->next_pending = c->loop->pending;
    c->loop->pending = c;
}

static void open_spare(struct loop *l)
{
    if (l->spare_fd < 0)
        l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Out of descriptors: the spare one lets the server answer the client instead of leaving it in the backlog. Another
 * thread may be quicker to take its place. */
static bool refuse_one(struct loop *l)
{
    close_fd(l->spare_fd);
    l->spare_fd = -1;
    int fd = accept4(l->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        refusal_of_socket(fd);
    open_spare(l);
    return fd >= 0;
}

/* Without descriptors and without the spare one nothing can be done about who waits in the backlog: looked
 * at again in the next turn. */
static void watch_listen(struct loop *l, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.ptr = &l->watch_listen};
    l->listen_paused = !on;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->listen_fd, &ev);
}

/* Asked before a connection is made, so that it can be refused with an answer; counted when libmicrohttpd
 * has made it. */
static bool has_room(struct loop *l)
{
    const struct server *srv = l->srv;
    if (atomic_load_explicit(&srv->n_connections, memory_order_relaxed) >=
        srv->set->server_max_connections)
        return false;
    struct ledger_hold one = {.ledger = srv->ledger, .key = LEDGER_NOBODY};
    enum status status = ledger_take(&one, LEDGER_CONNECTIONS, CONNECTION_BYTES, NULL);
    ledger_drop(&one);
    return status == OK;
}

static void accept_all(struct loop *l)
{
    open_spare(l);
    for (int i = 0; i < ACCEPT_BURST; i++) {
        struct sockaddr_storage addr;
        socklen_t n = sizeof(addr);
        int fd = accept4(l->listen_fd, (struct sockaddr *)&addr, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if (refuse_one(l))
                continue;
            watch_listen(l, false);
        }
        if (fd < 0)
            return;
        if (!has_room(l))
            refusal_of_socket(fd);
        else
            MHD_add_connection(l->mhd, fd, (struct sockaddr *)&addr, n);
        l->run_mhd = true;
    }
}

static void stop_accepting(struct loop *l)
{
    if (!l->accepting)
        return;
    l->accepting = false;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->listen_fd, NULL);
    close(l->listen_fd);
    l->listen_fd = -1;
}

/* ---- the parts of a turn ---- */

static void take_prepared(struct loop *l)
{
    struct exchange *ex = atomic_exchange_explicit(&l->prepared, NULL, memory_order_acquire);
    while (ex) {
        struct exchange *next = ex->next;
        http_prepared(ex);
        ex = next;
    }
}

static void append_woken(struct loop *l)
{
    struct request *newest = atomic_exchange_explicit(&l->woken, NULL, memory_order_acquire);
    struct request *oldest = NULL, **end = &l->to_pump;
    while (newest) {
        struct request *next = newest->wake_next;
        newest->wake_next = oldest;
        oldest = newest;
        newest = next;
    }
    while (*end)
        end = &(*end)->wake_next;
    *end = oldest;
}

static void pump_woken(struct loop *l)
{
    append_woken(l);
    for (int i = 0; i < PUMP_BURST && l->to_pump; i++) {
        struct request *r = l->to_pump;
        l->to_pump = r->wake_next;
        /* Exchanged, not stored: a plain store may become visible after the look into the ring below,
         * and the engine, which still sees the flag, would not wake us for what it pushed between. */
        atomic_exchange_explicit(&r->wake_queued, false, memory_order_acq_rel);
        struct job *j = r->owner;
        if (j)
            http_pump(j->ex);
        request_unref(r);
    }
}

static void pump_pending(struct loop *l)
{
    while (l->pending) {
        struct conn *c = l->pending;
        l->pending = c->next_pending;
        c->pending = false;
        http_pending(c);
    }
}

static void on_conn(struct conn *c, uint32_t events)
{
    if (c->deaf)
        refusal_discard(c);
    if (c->deaf || !c->ex || !c->ex->suspended)
        return;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        http_hangup(c);
    else if (events & EPOLLOUT)
        http_pump(c->ex);
}

static void on_event(struct loop *l, const struct epoll_event *ev)
{
    uint64_t count;
    switch (((struct watch *)ev->data.ptr)->kind) {
    case WATCH_MHD:
        l->run_mhd = true;
        break;
    case WATCH_LISTEN:
        accept_all(l);
        break;
    case WATCH_EVENT:
        if (read(l->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
            log_warn("cannot read an eventfd: %s", strerror(errno));
        break;
    case WATCH_CONN:
        on_conn(ev->data.ptr, ev->events);
        break;
    }
}

static struct conn *conn_of_timer(struct timer *t)
{
    return (struct conn *)((char *)t - offsetof(struct conn, timer));
}

static void expire(struct loop *l)
{
    uint64_t now = clock_ns();
    for (int kind = 0; kind < N_TIMERS; kind++) {
        struct timer *t;
        while ((t = timer_take_expired(&l->timers[kind], now)))
            http_expired(conn_of_timer(t), (enum timer_kind)kind);
    }
}

/* Prompts that take long: how far they are. */
static void look_at_prompts(struct loop *l)
{
    uint64_t now = clock_ns();
    if (!l->srv->set->log_access || now < l->looked_ns + MAX_WAIT_MS * NS_PER_MS)
        return;
    l->looked_ns = now;
    for (struct conn *c = l->conns; c; c = c->next)
        if (c->ex)
            access_progress(c->ex, now);
}

static int wait_ms(struct loop *l)
{
    if (l->run_mhd || l->to_pump || l->pending)
        return 0;
    uint64_t now = clock_ns(), next = now + MAX_WAIT_MS * NS_PER_MS;
    for (int kind = 0; kind < N_TIMERS; kind++)
        if (timer_next_ns(&l->timers[kind]) < next)
            next = timer_next_ns(&l->timers[kind]);
    if (l->kill_ns && l->kill_ns < next)
        next = l->kill_ns;
    uint64_t ms = next <= now ? 0 : (next - now + NS_PER_MS - 1) / NS_PER_MS;
    MHD_UNSIGNED_LONG_LONG mhd_ms;
    if (MHD_get_timeout(l->mhd, &mhd_ms) == MHD_YES && mhd_ms < ms)
        ms = mhd_ms;
    return (int)ms;
}

/* Draining: no new connections, and those between two requests are closed, unless bytes of a
 * request wait to be read: that one gets its answer. */
static void drain(struct loop *l)
{
    stop_accepting(l);
    for (struct conn *c = l->conns; c; c = c->next) {
        int n_unread = 0;
        bool between = !c->ex && framing_idle(&c->framing) && c->n_completed == c->n_begun;
        if (between && !c->deaf && ioctl(c->fd, FIONREAD, &n_unread) == 0 && n_unread == 0)
            shutdown(c->fd, SHUT_RDWR);
    }
    l->run_mhd = true;
}

/* Running requests end with an error. */
static void cut(struct loop *l)
{
    if (l->were_cut)
        return;
    l->were_cut = true;
    for (struct conn *c = l->conns; c; c = c->next)
        if (c->ex && !c->deaf)
            http_abort(c->ex);
}

/* Stopping: every answer ends now; what has not left after the grace is cut. */
static void stop(struct loop *l)
{
    uint64_t now = clock_ns();
    if (!l->told_to_stop) {
        l->told_to_stop = true;
        l->kill_ns = now + STOP_GRACE_MS * NS_PER_MS;
        for (struct conn *c = l->conns; c; c = c->next) {
            if (c->deaf)
                refusal_end(c);
            else if (c->ex)
                http_abort(c->ex);
        }
    } else if (now >= l->kill_ns) {
        l->kill_ns = now + STOP_GRACE_MS * NS_PER_MS;
        for (struct conn *c = l->conns; c; c = c->next)
            shutdown(c->fd, SHUT_RDWR);
    }
}

static void turn(struct loop *l)
{
    struct epoll_event ev[MAX_EVENTS];
    int n = epoll_wait(l->epoll_fd, ev, MAX_EVENTS, wait_ms(l));
    if (l->listen_paused && l->accepting)
        watch_listen(l, true);
    for (int i = 0; i < n; i++)
        on_event(l, &ev[i]);
    l->n_bodies = 0;
    take_prepared(l);
    pump_woken(l);
    expire(l);
    look_at_prompts(l);
    if (atomic_load_explicit(&l->cutting, memory_order_acquire))
        cut(l);
    if (atomic_load_explicit(&l->draining, memory_order_acquire))
        drain(l);
    if (atomic_load_explicit(&l->stopping, memory_order_acquire))
        stop(l);
    MHD_UNSIGNED_LONG_LONG ms;
    if (l->run_mhd || (MHD_get_timeout(l->mhd, &ms) == MHD_YES && ms == 0)) {
        l->run_mhd = false;
        MHD_run(l->mhd);
    }
    pump_pending(l);
}

static void loop_main(void *arg)
{
    struct loop *l = arg;
    gate_enter(l);
    while (!atomic_load_explicit(&l->stopping, memory_order_acquire) || l->conns || l->to_pump)
        turn(l);
    stop_accepting(l);
}

/* ---- life ---- */

static enum status add_watch(struct loop *l, int fd, struct watch *w, enum watch_kind kind,
                             struct err *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = w};
    w->kind = kind;
    if (fd < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return err_set(e, ERR_IO, "cannot set up an HTTP loop: %s", strerror(errno));
    return OK;
}

static void init_timers(struct loop *l)
{
    const struct settings *set = l->srv->set;
    const int64_t ms[N_TIMERS] = {
        [TIMER_HEAD] = set->server_header_timeout,      [TIMER_BODY] = set->server_body_timeout,
        [TIMER_IDLE] = set->server_idle_timeout,        [TIMER_PING] = set->server_heartbeat,
        [TIMER_SLOW] = set->server_slow_client_timeout,
    };
    for (int i = 0; i < N_TIMERS; i++)
        timer_list_init(&l->timers[i], (uint64_t)ms[i] * NS_PER_MS);
}

enum status loop_new(struct server *srv, int listen_fd, struct loop **out, struct err *e)
{
    struct loop *l = mem_zalloc(sizeof(*l));
    *out = l;
    l->srv = srv;
    l->held = (struct ledger_hold){.ledger = srv->ledger, .key = LEDGER_NOBODY};
    l->listen_fd = listen_fd;
    l->accepting = true;
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->spare_fd = -1;
    open_spare(l);
    init_timers(l);
    enum status status = http_start_daemon(l, e);
    if (!status)
        status = add_watch(l, l->mhd_fd, &l->watch_mhd, WATCH_MHD, e);
    if (!status)
        status = add_watch(l, l->event_fd, &l->watch_event, WATCH_EVENT, e);
    if (!status)
        status = add_watch(l, l->listen_fd, &l->watch_listen, WATCH_LISTEN, e);
    return status;
}

enum status loop_start(struct loop *l, struct err *e)
{
    return thread_start(&l->thread, "http", loop_main, l, e);
}

void loop_join(struct loop *l)
{
    if (l->thread.running)
        thread_join(&l->thread);
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    append_woken(l);
    while (l->to_pump) {
        struct request *r = l->to_pump;
        l->to_pump = r->wake_next;
        request_unref(r);
    }
    http_stop_daemon(l);
    gate_release(l);
    close_fd(l->listen_fd);
    close_fd(l->event_fd);
    close_fd(l->epoll_fd);
    close_fd(l->spare_fd);
    buf_release(&l->out);
    mem_free(l);
}
