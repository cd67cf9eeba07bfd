/* Metrics: observe, change nothing; see gauges.c. Thread: engine, but for what says otherwise. */
#ifndef SCHEDULER_GAUGES_H
#define SCHEDULER_GAUGES_H

#include "scheduler/sched.h"

void gauges_init(struct sched *s);
void gauges_publish(struct sched *s); /* counts that other threads read; once a turn */
void gauges_step(struct sched *s, struct step *t); /* after a step */
/* A token at s->now_ns; q knows the times of those before it. */
void gauges_token(struct sched *s, struct step *t, const struct seq *q);
void gauges_end(struct sched *s, const struct req *q, const struct err *e);
void gauges_preempted(struct sched *s, enum preempt_how how);
void gauges_admitted(struct sched *s, const struct req *q);
void gauges_fetched(struct sched *s, uint32_t n_tokens); /* from the disk */
void gauges_rejected(struct sched *s); /* any thread: the queue was full */

#endif
