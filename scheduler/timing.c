/* The stopwatch of a request; see timing.h. */
#include "scheduler/timing.h"

#include <string.h>

/* Times may stand still, or (arrival is taken by another thread) lie a little behind. */
static void spend(struct stopwatch *w, enum timing_part part, uint64_t until_ns)
{
    if (until_ns <= w->mark_ns)
        return;
    w->spent.ns[part] += until_ns - w->mark_ns;
    w->mark_ns = until_ns;
}

void stopwatch_start(struct stopwatch *w, uint64_t arrive_ns)
{
    memset(w, 0, sizeof(*w));
    w->mark_ns = arrive_ns;
    w->part = TIMING_queue;
}

void stopwatch_turn(struct stopwatch *w, enum timing_part part, uint64_t now_ns)
{
    spend(w, w->part, now_ns);
    w->part = part;
}

void stopwatch_step(struct stopwatch *w, uint64_t step, uint64_t begin_ns, uint64_t end_ns,
                    bool has_token)
{
    enum timing_part own = has_token ? TIMING_decode : TIMING_prefill;
    if (w->step == step && step)
        return;
    bool consecutive = w->step && w->step + 1 == step && w->part == TIMING_wait;
    spend(w, consecutive ? own : w->part, begin_ns);
    spend(w, own, end_ns);
    w->part = TIMING_wait;
    w->step = step;
}

struct request_timing stopwatch_end(struct stopwatch *w, uint64_t now_ns)
{
    spend(w, w->part, now_ns);
    return w->spent;
}
