/* The list of parked sequences, oldest first. Thread: engine. */
#include "scheduler/parked.h"

#include <string.h>

#include "base/check.h"

void parked_insert(struct sched *s, struct seq *q)
{
    CHECK(s->n_parked < s->limits.max_running);
    uint32_t i = s->n_parked++;
    for (; i > 0 && seq_older(q, s->parked[i - 1]); i--)
        s->parked[i] = s->parked[i - 1];
    s->parked[i] = q;
    q->state = SEQ_PARKED;
}

void parked_remove(struct sched *s, struct seq *q)
{
    uint32_t i = 0;
    while (i < s->n_parked && s->parked[i] != q)
        i++;
    CHECK(i < s->n_parked);
    s->n_parked--;
    memmove(s->parked + i, s->parked + i + 1, (s->n_parked - i) * sizeof(*s->parked));
}
