/* Preempting sequences and bringing them back; see park.c. Thread: engine. */
#ifndef SCHEDULER_PARK_H
#define SCHEDULER_PARK_H

#include "scheduler/sched.h"

uint32_t park_blocks(const struct seq *q); /* that it holds, all groups */
/* Of its blocks, those that stay in the tiers while it runs: 0 unless it is larger than the arena. */
uint32_t park_paged(const struct sched *s, const struct seq *q);
/* Takes the blocks of a running sequence away. */
void park_seq(struct sched *s, struct seq *q);
void park_drop(struct sched *s, struct seq *q); /* a parked one holds nothing any more */
/* overflow=sinks: cuts the middle out of a full history and lets the rest be computed anew. */
void park_overflow(struct sched *s, struct seq *q);
void park_resume(struct sched *s); /* lets parked ones come back while there is room */

#endif
