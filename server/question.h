/* A question of an exchange to the engine thread: the handler makes it, http.c suspends the connection
 * and asks, the engine thread fills it, then the handler runs once more, on a thread of preparation, and
 * formats the answer. No loop waits meanwhile. */
#ifndef SERVER_QUESTION_H
#define SERVER_QUESTION_H

#include "scheduler/snapshot.h"

struct exchange;

struct question {
    struct sched_ask ask;
    struct exchange *ex; /* borrows */
    /* With ask answered: fills ex->reply. */
    void (*format)(struct question *q);
};

/* Room for n_items of the kind; becomes ex->question. NULL: no memory for it, ex->reply says so. */
struct question *question_new(struct exchange *ex, enum sched_ask_kind kind, uint32_t n_items,
                              void (*format)(struct question *q));
void question_free(struct question *q); /* NULL is fine; not while the engine thread has it */
/* For the first line of a handler: false when there is no question yet. */
bool question_reply(struct question *q);

#endif
