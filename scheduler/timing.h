/* Where the time of one request goes: a stopwatch that always runs for exactly one part, so that the
 * parts sum to the wall time. The caller hands in times; no clock in here. Thread: engine. */
#ifndef SCHEDULER_TIMING_H
#define SCHEDULER_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/request.h"

struct stopwatch {
    struct request_timing spent;
    uint64_t mark_ns; /* all time before is in `spent` */
    uint64_t step; /* the last step that the request had rows in */
    enum timing_part part; /* what the time since mark_ns counts as, unless a step knows better */
};

/* arrive_ns: the first part is TIMING_queue. */
void stopwatch_start(struct stopwatch *w, uint64_t arrive_ns);
/* From now on the time counts as `part`: TIMING_wait when it may run, TIMING_swap when it is parked or
 * on its way back, TIMING_queue when it was sent back to the queue. */
void stopwatch_turn(struct stopwatch *w, enum timing_part part, uint64_t now_ns);
/* It had rows in step number `step`, which ran from begin_ns to end_ns. has_token: its first token was
 * there before. What lies between two of its consecutive steps belongs to the later one; a step that
 * it was left out of is waiting. More calls for one step (several choices) count once. */
void stopwatch_step(struct stopwatch *w, uint64_t step, uint64_t begin_ns, uint64_t end_ns,
                    bool has_token);
/* Everything up to now_ns. */
struct request_timing stopwatch_end(struct stopwatch *w, uint64_t now_ns);

#endif
