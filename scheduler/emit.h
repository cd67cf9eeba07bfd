/* Events for consumers; see emit.c. Thread: engine. */
#ifndef SCHEDULER_EMIT_H
#define SCHEDULER_EMIT_H

#include "scheduler/sched.h"

void emit_token(struct sched *s, struct seq *q, const struct sample_job *job, const char *text,
                uint32_t n_text, enum finish_reason reason);
void emit_prompt(struct sched *s, struct req *q, const struct sample_job *job);
void emit_finish(struct sched *s, struct seq *q, enum finish_reason reason, int stop_index,
                 int32_t stop_token);
void emit_end(struct sched *s, struct req *q, const struct err *e);
void emit_wake(struct sched *s); /* wakes each consumer once and frees requests that ended */

#endif
