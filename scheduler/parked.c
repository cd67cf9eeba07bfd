/* The list of parked sequences, oldest first. Thread: engine. */
#include "scheduler/parked.h"

#include <string.h>

#include "base/check.h"

void parked_insert(struct sched *s, struct seq *q)
{
    CHECK(s->parked.n < s->limits.max_running);
    uint32_t i = s->parked.n++;
    for (; i > 0 && seq_older(q, s->parked.seq[i - 1]); i--)
        s->parked.seq[i] = s->parked.seq[i - 1];
    s->parked.seq[i] = q;
    q->state = SEQ_PARKED;
}

void parked_remove(struct sched *s, struct seq *q)
{
    uint32_t i = 0;
    while (i < s->parked.n && s->parked.seq[i] != q)
        i++;
    CHECK(i < s->parked.n);
    s->parked.n--;
    memmove(s->parked.seq + i, s->parked.seq + i + 1, (s->parked.n - i) * sizeof(*s->parked.seq));
}
