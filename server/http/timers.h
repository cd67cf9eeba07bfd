/* Deadlines of one loop: a list per duration, so that starting, moving and expiring are O(1).
 * A timer is in at most one list. Thread: the loop's. */
#ifndef SERVER_HTTP_TIMERS_H
#define SERVER_HTTP_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
    struct timer *prev, *next; /* NULL while stopped */
    uint64_t deadline_ns;
};

struct timer_list {
    struct timer ends; /* ring: next is the earliest */
    uint64_t duration_ns;
};

void timer_list_init(struct timer_list *l, uint64_t duration_ns);
/* (Re)starts t in l: it expires duration_ns from now. */
void timer_start(struct timer_list *l, struct timer *t, uint64_t now_ns);
void timer_stop(struct timer *t);
static inline bool timer_runs(const struct timer *t)
{
    return t->next != NULL;
}
/* The earliest timer that is due, stopped; NULL when none is. */
struct timer *timer_take_expired(struct timer_list *l, uint64_t now_ns);
/* Earliest deadline, UINT64_MAX when the list is empty. */
uint64_t timer_next_ns(const struct timer_list *l);

#endif
