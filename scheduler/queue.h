/* Requests that wait; see queue.c. Thread: engine. */
#ifndef SCHEDULER_QUEUE_H
#define SCHEDULER_QUEUE_H

#include "scheduler/sched.h"

void queue_push(struct sched *s, struct req *q);
void queue_remove(struct sched *s, struct req *q); /* ends without running */
void queue_unlink(struct sched *s, struct req *q); /* the tenants know already */

#endif
