/* Room for the rows of a turn; see memory.c. Thread: engine. */
#ifndef SCHEDULER_MEMORY_H
#define SCHEDULER_MEMORY_H

#include "scheduler/sched.h"

/* Marks the sequences that have room for their next rows; parks sequences, youngest first, until the others have; brings
 * parked ones back; spills cold blocks ahead of time. */
void memory_turn(struct sched *s);

#endif
