/* Every admitted request of a random world makes progress within a bounded number of steps of others; see
 * tag_world.h. */
#ifndef TESTS_SCHEDULER_TAG_PROGRESS_H
#define TESTS_SCHEDULER_TAG_PROGRESS_H

#include "tests/unit/scheduler/tag_state.h"

/* Turns without a row that the oldest request may see, and steps that others may beyond the rows that those
 * running could still take when they stood still. */
enum { MOST_STILL = SCHED_STILL_STEPS + 8 };

/* Its consumer's ring may be too full for a row of every choice. */
static inline bool waits_for_reader(const struct req *q)
{
    uint32_t n = q->end_bytes + q->r->n_choices * q->token_bytes;
    return byte_ring_room(&q->r->ring) < n + (q->r->prompt_logprobs ? q->prompt_bytes : 0);
}

/* Copies under way or answers of the disk may be what it waits for: the test ends them when it likes. */
static inline bool waits_for_copy(const struct tag_world *w)
{
    return kv_jobs_open(w->g.s->kv) > 0 || w->g.s->disk.n_fetching > 0;
}

static inline uint64_t work_of(const struct request *r, uint32_t n_times)
{
    return (uint64_t)r->n_choices * (r->n_prompt + n_times * r->max_tokens);
}

/* Rows that those that run can take at most. */
static inline uint64_t work_of_running(const struct tag_world *w)
{
    uint64_t n = 0;
    for (const struct req *q = w->g.s->running.reqs; q; q = q->next)
        n += work_of(q->r, 1 + (q->r->overflow_context > 0));
    return n;
}

static inline const struct req *oldest_of(const struct tag_world *w)
{
    const struct req *oldest = NULL;
    for (const struct req *q = w->g.s->running.reqs; q; q = q->next)
        if (!oldest || q->ticket < oldest->ticket)
            oldest = q;
    return oldest;
}

static inline bool promises_run(const struct tag_world *w)
{
    for (const struct req *q = w->g.s->running.reqs; q; q = q->next)
        if (q->reserves)
            return true;
    return false;
}

/* Every choice of it lacks frames: parked, or left out of the last step. */
static inline bool waits_for_frames(const struct req *q)
{
    for (uint32_t i = 0; i < q->r->n_choices; i++) {
        const struct seq *s = &q->seq[i];
        bool left_out = s->state == SEQ_LIVE && !s->granted && kv_seq_resident(&s->kv) &&
                        s->n_staged == 0; /* what the backend can read at once is another limit */
        if (!left_out && s->state != SEQ_PARKED && s->state != SEQ_IDLE && s->state != SEQ_DONE)
            return false;
    }
    return true;
}

/* Nobody is admitted past one that waits for frames, before a turn and after it. */
static inline void look_at_passing(const struct tag_world *w, struct live *l, const struct req *q,
                                   bool moved)
{
    bool waits = waits_for_frames(q);
    MUST(!waits || moved || !l->waits || w->g.s->n_tickets == w->n_tickets,
         "ticket %llu waits for frames, %llu requests are admitted past it",
         (unsigned long long)q->ticket, (unsigned long long)(w->g.s->n_tickets - w->n_tickets));
    l->waits = waits;
}

/* Every admitted request goes on: the oldest at once, the others when those before them have ended, which
 * what came after them must not delay. */
static inline void look_at_progress(struct tag_world *w, struct live *l, bool stepped)
{
    const struct req *q = l->r ? l->r->engine_part : NULL, *oldest = oldest_of(w);
    uint64_t steps = 0;
    if (!q || q->state != REQ_RUNNING)
        return;
    for (uint32_t i = 0; i < l->r->n_choices; i++)
        steps += q->seq[i].step;
    look_at_passing(w, l, q, steps != l->steps);
    if (!l->most_still || steps != l->steps || w->squeezed || (q == oldest && !l->is_oldest)) {
        l->steps = steps;
        l->is_oldest = q == oldest;
        l->n_still = 0;
        l->most_still = MOST_STILL + (q == oldest ? 0 : work_of_running(w));
    } else if (waits_for_copy(w) || waits_for_reader(q)) {
        random_count(DID_WATCH_WAITS);
        return;
    }
    l->n_still += q == oldest || stepped;
    if (l->n_still > 0)
        random_count(q != oldest       ? DID_WATCH_OTHERS
                     : promises_run(w) ? DID_WATCH_PROMISED
                                       : DID_WATCH);
    MUST(l->n_still <= l->most_still, "ticket %llu, the oldest is %llu",
         (unsigned long long)q->ticket, (unsigned long long)oldest->ticket);
}

/* A cancel that came before the turn began has had its effect, unless the disk must answer first. */
static inline void check_cancels(struct tag_world *w)
{
    for (uint32_t i = 0; i < MAX_LIVE; i++) {
        const struct live *l = &w->live[i];
        const struct req *q = l->r && l->cancelled ? l->r->engine_part : NULL;
        MUST(!q || l->cancel_turn == w->n_turns ||
                 (q->state == REQ_RUNNING && q->seq[0].state == SEQ_FETCHING),
             "a request goes on after a cancel, state %d", q->state);
    }
}

#endif
