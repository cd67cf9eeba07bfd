/* See conn.h. */
#include "server/http/conn.h"

#include "base/clock.h"
#include "server/http/loop.h"

void conn_timer(struct conn *c, enum timer_kind kind)
{
    timer_start(&c->loop->timers[kind], &c->timer, clock_ns());
}
