/* libmicrohttpd's callbacks: from request bytes to a handler's answer, for one loop.
 * Thread: the loop's. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include "server/http/loop.h"

enum status http_start_daemon(struct loop *l, struct err *e);
void http_stop_daemon(struct loop *l); /* no connection may be left */

/* Preparation has run the handler. */
void http_prepared(struct exchange *ex);
/* Events are there, or there is room to write: moves the exchange on. */
void http_pump(struct exchange *ex);
/* The client hung up while the connection was suspended. */
void http_hangup(struct conn *c);
/* The connection's timer of this kind is due. */
void http_expired(struct conn *c, enum timer_kind kind);
/* Ends the request with a "shutting down" error. */
void http_abort(struct exchange *ex);
/* Of a connection that loop_pend was called for. */
void http_pending(struct conn *c);

#endif
