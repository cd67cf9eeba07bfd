/* How many blocks things take; see room.c. Thread: engine, but for what says otherwise. */
#ifndef SCHEDULER_ROOM_H
#define SCHEDULER_ROOM_H

#include "scheduler/sched.h"

/* Blocks that a request comes to hold at most, all choices, in each group. False: it can never run, for
 * the reason in e. Any thread. */
bool room_worst(const struct sched *s, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_choices,
                bool reserves, struct kv_need *worst, struct err *e);
/* Is a request's worst case promised to it at the start: the request asked for it, or nothing may be preempted? Any
 * thread. */
bool room_reserves(const struct sched *s, bool asked);
/* Larger than the arena: cold blocks are read from the tiers in each step. Any thread. */
bool room_oversize(const struct sched *s, uint32_t n_positions);
/* After a fork: hands each choice its part of what was promised to the first for all of them. */
void room_split_claim(struct sched *s, struct req *q);
/* Frames that q takes from now on until it holds n_positions, beyond those promised to it. */
struct kv_need room_growth(const struct sched *s, const struct seq *q, uint32_t n_positions);
/* What the running sequences will likely take within SCHED_HORIZON rows. */
struct kv_need room_horizon(const struct sched *s);
/* Frames that a request whose worst case is promised to it comes to keep from others at most. */
struct kv_need room_promised(const struct sched *s, const struct request *r,
                             const struct kv_need *worst);
/* May q's worst case be promised to it, `claim` of it yet to be set aside? Those that run came before it:
 * while q runs they must find room for each of their rows, and should q hold its promise for longer, each
 * of them must still fit alone beside all promises. */
bool room_may_promise(const struct sched *s, const struct req *q, const struct kv_need *worst,
                      const struct kv_need *claim);
/* Positions that q likely holds n_rows rows from now. */
uint32_t room_positions(const struct sched *s, const struct seq *q, uint32_t n_rows);
bool room_covers(const struct sched *s, const struct kv_need *a, const struct kv_need *b);
struct kv_need room_add(struct kv_need a, struct kv_need b);
/* Frames kept free when sequences are let in: high = after a preemption. */
struct kv_need room_watermark(const struct sched *s, bool high);
void lengths_add(struct lengths *l, uint32_t n_out);
uint32_t lengths_quantile(const struct lengths *l, double part); /* 0: nothing known */

#endif
