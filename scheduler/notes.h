/* What is written into the step journal; see notes.c. Thread: engine, but for what says otherwise. */
#ifndef SCHEDULER_NOTES_H
#define SCHEDULER_NOTES_H

#include "scheduler/sched.h"

void notes_init(struct sched *s);
void note_prints(const struct sched *s, struct req *q); /* any thread, before q enters the inbox */
void note_submit(struct sched *s, const struct req *q);
void note_cancel(struct sched *s, const struct req *q);
void note_idle(struct sched *s); /* a turn without a step */
void note_step(struct sched *s, const struct step *t); /* now_ns is its end */
void note_costs(const struct sched *s, struct journal_config *c); /* of copies, as measured */
void note_end(struct sched *s, const struct req *q, const struct err *e);

#endif
