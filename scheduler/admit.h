/* The queue: which requests may start now; see admit.c. Thread: engine. */
#ifndef SCHEDULER_ADMIT_H
#define SCHEDULER_ADMIT_H

#include "scheduler/sched.h"

void admit_all(struct sched *s);
void admit_expire(struct sched *s); /* ends queued requests whose deadline has passed */

#endif
