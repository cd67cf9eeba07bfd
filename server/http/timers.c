/* Deadlines; see timers.h. */
#include "server/http/timers.h"

void timer_list_init(struct timer_list *l, uint64_t duration_ns)
{
    l->ends.prev = l->ends.next = &l->ends;
    l->duration_ns = duration_ns;
}

void timer_stop(struct timer *t)
{
    if (!t->next)
        return;
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->prev = t->next = NULL;
}

void timer_start(struct timer_list *l, struct timer *t, uint64_t now_ns)
{
    timer_stop(t);
    t->deadline_ns = now_ns + l->duration_ns;
    t->prev = l->ends.prev;
    t->next = &l->ends;
    t->prev->next = t;
    l->ends.prev = t;
}

struct timer *timer_take_expired(struct timer_list *l, uint64_t now_ns)
{
    struct timer *t = l->ends.next;
    if (t == &l->ends || t->deadline_ns > now_ns)
        return NULL;
    timer_stop(t);
    return t;
}

uint64_t timer_next_ns(const struct timer_list *l)
{
    return l->ends.next == &l->ends ? UINT64_MAX : l->ends.next->deadline_ns;
}
