/* The engine thread; see step.c. Thread: engine. */
#ifndef SCHEDULER_STEP_H
#define SCHEDULER_STEP_H

#include "scheduler/sched.h"

void step_forget(const struct sched *s); /* s is about to go: no more dumps of it */

#endif
