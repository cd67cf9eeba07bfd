/* Which rows of which sequences run in a step; see plan.c. Thread: engine. */
#ifndef SCHEDULER_PLAN_H
#define SCHEDULER_PLAN_H

#include "scheduler/sched.h"

/* Fills batch, span_seq, out_seq and copy from the running sequences. No clock, no allocation. */
void plan_step(struct sched *s, struct step *t);

#endif
