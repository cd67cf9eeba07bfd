/* One HTTP loop: a thread with its own epoll, listening socket and libmicrohttpd daemon (external
 * epoll mode). It accepts, wakes streams, watches suspended sockets for hang-ups and runs deadlines.
 *
 * Why not libmicrohttpd's own threads: there each wake of a suspended connection walks the list of all
 * suspended ones, and at most 11 connections are accepted a pass. Here the library parses requests and
 * writes heads; the events of a stream are written by this loop while the connection stays suspended.
 *
 * Other threads only touch: loop_wake (engine), loop_prepared (preparation), loop_poke and the atomics. */
#ifndef SERVER_HTTP_LOOP_H
#define SERVER_HTTP_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/ledger.h"
#include "base/status.h"
#include "base/thread.h"
#include "scheduler/request.h"
#include "server/http/conn.h"

struct MHD_Connection;
struct MHD_Daemon;
struct exchange;
struct server;

struct loop {
    struct server *srv; /* borrows */
    struct watch watch_mhd, watch_listen, watch_event;
    int epoll_fd, event_fd, listen_fd, mhd_fd;
    int spare_fd; /* closed to accept and refuse one connection when descriptors run out */
    struct MHD_Daemon *mhd;
    struct thread thread;
    _Atomic(struct request *) woken; /* newest first; each holds a reference */
    _Atomic(struct exchange *) prepared; /* newest first */
    struct request *to_pump; /* taken from woken, oldest first */
    struct conn *pending;
    struct conn *conns;
    struct conn **by_fd; /* owns [n_by_fd]; see gate.h */
    size_t n_by_fd;
    atomic_uint n_conns;
    atomic_uint n_jobs; /* requests being answered */
    atomic_bool cutting, draining, stopping;
    bool accepting, listen_paused;
    bool were_cut, told_to_stop; /* done already */
    uint64_t kill_ns; /* while stopping: connections are cut then */
    uint64_t looked_ns; /* when prompts that take long were last looked at */
    bool run_mhd; /* the daemon has work that its epoll does not show */
    uint32_t n_bodies; /* prepared on the loop in this turn */
    struct timer_list timers[N_TIMERS];
    struct buf out; /* scratch: events being formatted */
    struct ledger_hold held; /* memory of its connections */
};

/* Takes over listen_fd, also when it fails. */
enum status loop_new(struct server *srv, int listen_fd, struct loop **out, struct err *e);
enum status loop_start(struct loop *l, struct err *e);
void loop_poke(struct loop *l); /* any thread: one more turn */
void loop_join(struct loop *l);
void loop_free(struct loop *l); /* not started, or joined */

/* Engine thread: a request of this loop has events. */
void loop_wake(struct request *r, void *loop);
/* A thread of preparation: the handler has run. */
void loop_prepared(struct loop *l, struct exchange *ex);

/* ---- for http.c and stream.c, loop thread ---- */
/* The connection was just suspended: watches its socket for hang-ups and room to write. */
void loop_watch(struct conn *c);
/* Stops watching, hands the connection back to libmicrohttpd. */
void loop_resume(struct conn *c);
void loop_pend(struct conn *c); /* http_pending is called at the end of this turn */

#endif
