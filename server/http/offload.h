/* Preparation: threads that run handlers whose work is not trivially small (parsing, rendering, tokenising,
 * files, long answers), so that none of it happens on a loop. Keys take turns (server/turns.h) by their
 * weights and the processor time that their turns took; one key never holds all threads, so that a
 * rendering of seconds does not keep other keys waiting. */
#ifndef SERVER_HTTP_OFFLOAD_H
#define SERVER_HTTP_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct exchange;
struct loop;
struct offload;

/* prepared: an exchange's turn is over; called by its thread, with the exchange's loop. */
enum status offload_new(void (*prepared)(struct loop *l, struct exchange *ex), struct offload **out,
                        struct err *e);
/* What waits, and what comes, is answered with ERR_DRAINING from now on. */
void offload_stop(struct offload *o);
void offload_free(struct offload *o); /* NULL is fine; joins */

/* Any thread: the exchange, which is suspended, gets its turn, then `prepared`. */
void offload_push(struct offload *o, struct exchange *ex);
/* A new request: ERR_QUEUE_FULL when those of its key, or all, that wait here and in the scheduler are as
 * many as may wait. Then nothing was done. */
enum status offload_enter(struct offload *o, struct exchange *ex, struct err *e);
/* True: it waited, and no longer does: its thread may have it back at once. */
bool offload_forget(struct offload *o, struct exchange *ex);

#endif
