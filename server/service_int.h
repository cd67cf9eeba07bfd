/* Parts of a service, for service.c. Thread: the loader's. */
#ifndef SERVER_SERVICE_INT_H
#define SERVER_SERVICE_INT_H

#include "server/service.h"

/* wanted_context: prompt and output tokens of a request; the KV blocks may hold less (v->kv.plan). */
enum status service_open_kv(struct service *v, uint32_t wanted_context, struct err *e);
/* The scheduler's part of it. */
enum status service_sched_memory(struct service *v, struct sched_memory *out, struct err *e);

#endif
