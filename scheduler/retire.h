/* What becomes of a step's results; see retire.c. Thread: engine. */
#ifndef SCHEDULER_RETIRE_H
#define SCHEDULER_RETIRE_H

#include "scheduler/sched.h"

void retire_step(struct sched *s, struct step *t); /* after a step that succeeded */
void retire_failed(struct sched *s, const struct step *t,
                   const struct err *e); /* ends the requests of the step */

#endif
