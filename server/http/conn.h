/* One connection of a loop. Belongs to the loop's thread. */
#ifndef SERVER_HTTP_CONN_H
#define SERVER_HTTP_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "server/http/framing.h"
#include "server/http/timers.h"

struct MHD_Connection;
struct exchange;
struct loop;

enum watch_kind { WATCH_MHD, WATCH_LISTEN, WATCH_EVENT, WATCH_CONN };

/* First member of what epoll's data.ptr points to. */
struct watch {
    enum watch_kind kind;
};

struct conn {
    struct watch watch;
    struct loop *loop;
    struct MHD_Connection *mhd; /* borrows; ends with the CLOSED notification */
    struct exchange *ex; /* the request in progress, NULL between two */
    struct conn *prev, *next; /* all connections of the loop */
    struct conn *next_pending; /* of those that loop_pend was called for */
    struct timer timer; /* of the phase it is in */
    int fd;
    bool deaf; /* answered past libmicrohttpd: what comes is discarded, see refusal.h */
    bool ended; /* and the other side is done */
    bool pending; /* in loop.pending: once, however often something calls for it */
    uint32_t n_begun, n_completed; /* requests that libmicrohttpd read, and that are over */
    char ip[46];
    struct framing framing; /* what was read, see gate.h */
};

/* Phases with a deadline; a list of timers each. */
enum timer_kind { TIMER_HEAD, TIMER_BODY, TIMER_IDLE, TIMER_PING, TIMER_SLOW, N_TIMERS };

void conn_timer(struct conn *c, enum timer_kind kind); /* (re)starts the timer of its phase */

#endif
