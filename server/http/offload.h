/* A thread that runs handlers of large bodies, so that parsing and tokenising them never holds up a
 * loop. */
#ifndef SERVER_HTTP_OFFLOAD_H
#define SERVER_HTTP_OFFLOAD_H

#include <stdbool.h>

#include "base/status.h"

struct exchange;
struct offload;

enum status offload_new(struct offload **out, struct err *e);
void offload_free(struct offload *o); /* runs what is queued, joins */
/* False when its queue is full: the caller runs the handler itself. */
bool offload_push(struct offload *o, struct exchange *ex);

#endif
