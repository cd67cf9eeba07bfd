/* Answers that libmicrohttpd cannot give: written straight to the socket, in one piece. Afterwards the
 * connection is deaf: what still comes is discarded for as long as server.body_timeout, because a close
 * on unread bytes is a reset, which can overtake the answer. Thread: the loop's. */
#ifndef SERVER_HTTP_REFUSAL_H
#define SERVER_HTTP_REFUSAL_H

#include <stdint.h>

#include "base/status.h"

struct conn;

/* Answers with a problem (errors.h), or with the reply that the exchange has already, and closes. */
void refusal_now(struct conn *c, int problem_id, const struct err *e);
/* The framing is broken: answers so, once the requests in front are answered. */
void refusal_when_answered(struct conn *c);
/* Events of a deaf connection's socket. */
void refusal_discard(struct conn *c);
/* No more waiting for the other side. */
void refusal_end(struct conn *c);
/* Refuses a freshly accepted socket with 503 and closes it. */
void refusal_of_socket(int fd);

#endif
