/* Copies between frames and tiers; see copies.c. Thread: engine. */
#ifndef SCHEDULER_COPIES_H
#define SCHEDULER_COPIES_H

#include "scheduler/sched.h"

void copies_done(struct sched *s); /* takes finished ones */
void copies_start(struct sched *s); /* hands the tier what waits */
uint32_t copies_spill(struct sched *s, struct seq *q, uint32_t n_most); /* queues copies */
/* Blocks of q that each step reads from the spill file. */
void staged_count(const struct sched *s, struct seq *q);
/* After the turn's room was given out: one that comes now may take part, unless the step would read more
 * from the spill file than the backend can. */
void staged_grant(struct sched *s, struct seq *q);

#endif
