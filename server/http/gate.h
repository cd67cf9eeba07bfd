/* What libmicrohttpd reads from its sockets passes through here: each byte is checked (framing.h) before
 * the library sees it, and what is refused never reaches it.
 *
 * The library has no hook for that in 0.9.75. It reads with recv(), which gate.c defines for the whole
 * program: on the loop's connections it checks, elsewhere it is the system's. That a head was checked is
 * a CHECK in http.c, so that a library that reads in another way fails at once, and closed.
 * Thread: the loop's. */
#ifndef SERVER_HTTP_GATE_H
#define SERVER_HTTP_GATE_H

struct conn;
struct loop;

void gate_enter(struct loop *l); /* this thread runs l */
void gate_add(struct conn *c); /* from now on its reads are checked */
void gate_remove(struct conn *c);
void gate_release(struct loop *l);

#endif
