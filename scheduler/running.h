/* The running batch, the end of requests; see running.c. Thread: engine. */
#ifndef SCHEDULER_RUNNING_H
#define SCHEDULER_RUNNING_H

#include "scheduler/sched.h"

void running_insert(struct sched *s, struct seq *q);
/* A choice of a running request ends: blocks free; the request ends with its last choice. */
void running_finish(struct sched *s, struct seq *q, enum finish_reason reason, int stop_index,
                    int32_t stop_token);
/* Ends a queued or running request now: EVENT_END with e (NULL: OK), blocks free. */
void req_end(struct sched *s, struct req *q, const struct err *e);
/* Ends q if its client has gone. */
bool running_end_cancelled(struct sched *s, struct req *q);
void req_end_all(struct sched *s, const struct err *e);
void running_compact(struct sched *s); /* takes out what is done; before emit_wake frees it */
void sched_audit(struct sched *s); /* CHECKs every invariant of scheduler and pool, O(all) */

#endif
