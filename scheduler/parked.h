/* Sequences whose blocks were taken away; see parked.c. Thread: engine. */
#ifndef SCHEDULER_PARKED_H
#define SCHEDULER_PARKED_H

#include "scheduler/sched.h"

void parked_insert(struct sched *s, struct seq *q);
void parked_remove(struct sched *s, struct seq *q);

#endif
