/* State of the scheduler, for the files of this folder only (and their tests).
 *
 * Other threads touch the inbox and the atomics of `door`; everything else belongs to the engine
 * thread. A turn (step.c): drain the inbox, end what was cancelled or is too late, admit, plan, run,
 * retire, wake consumers. */
#ifndef SCHEDULER_SCHED_H
#define SCHEDULER_SCHED_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/thread.h"
#include "scheduler/cost.h"
#include "scheduler/scheduler.h"
#include "scheduler/seq.h"
#include "scheduler/snapshot.h"

enum {
    SCHED_BYPASS_MAX = 16, /* smaller requests that may pass the head of the queue */
    SCHED_BYPASS_SCAN = 64, /* requests behind a head that doesn't fit that are looked at */
    SCHED_ADMIT_MAX = 64, /* admissions a turn: each allocates */
    SCHED_MIN_CHUNK = 16, /* prefill rows that go in whatever the cost model says */
    SCHED_PRIOR_ROWS = 64, /* rows that are taken to fill the step target at first */
    SCHED_BROKEN_AFTER = 3, /* failed steps in a row */
    SCHED_RETRY_MAX_S = 60,
    SCHED_IDLE_MS = 1000 /* longest sleep: the heartbeat's period */
};

/* What any thread may touch. */
struct sched_door {
    struct mpsc *inbox; /* struct req, from sched_submit */
    atomic_uint n_waiting; /* requests in the inbox and in the queue */
    atomic_uint n_open; /* sequences that the last turn left room for; 0 while any waits */
    atomic_uint n_submitting; /* threads inside sched_submit */
    atomic_uint n_cancels; /* bumped by sched_cancel after it set a flag */
    _Atomic(struct sched_ask *) asks; /* newest first; see snapshot.h */
    atomic_uint_fast64_t drain_ns; /* mean time between two departures from the queue */
    atomic_bool draining, stopping, broken, idle;
    atomic_uint n_running, blocks_free;
    atomic_uint_fast64_t n_steps, heartbeat_ns, slots_allocated, slots_written;
};

struct sched {
    /* immutable after sched_new */
    struct sched_limits limits;
    struct backend *be; /* borrows */
    const struct tokenizer *tok; /* borrows, or NULL */
    struct metrics *metrics; /* borrows, or NULL */
    uint32_t max_outs;
    uint64_t target_ns;
    uint64_t print_secret; /* of the journal's fingerprints */
    struct thread thread;

    struct sched_door door;

    /* engine thread */
    struct kv_pool pool;
    struct req *queue_head, *queue_tail; /* in order of arrival */
    struct req *active; /* running requests, in no order */
    uint64_t next_deadline_ns; /* no queued request's deadline is earlier; 0 = none */
    uint32_t seen_cancels;
    uint64_t n_tickets;
    uint32_t n_queued;
    struct seq **running; /* owns [max_running]: SEQ_LIVE ones, oldest request first */
    uint32_t n_running;
    bool has_ended; /* running holds sequences that are done */
    uint32_t n_paused; /* sequences that the last plan left out for a full ring */
    uint32_t n_slots_held; /* of max_running: all sequences of running requests not yet done */
    struct req *dirty;
    uint64_t last_depart_ns;
    bool was_waiting; /* at last_depart_ns */
    uint32_t n_failed_steps;
    struct journal journal;

    /* the step */
    uint64_t now_ns;
    struct batch batch;
    uint64_t step_ns; /* when the step began; now_ns is its end while it retires */
    uint64_t kv_read; /* KV positions that its rows read */
    uint32_t n_prompt_rows;
    uint32_t n_step_tokens; /* tokens sampled */
    uint64_t gap_ns; /* time between tokens of n_gaps sequences, not yet in the histogram */
    uint32_t n_gaps;
    struct seq **span_seq; /* owns [max_running]: whose span */
    struct seq **out_seq; /* owns [max_outs] */
    struct kv_copy *copy; /* owns [max_running] */
    uint32_t n_copies;
    struct cost cost;
    char *text; /* owns: scratch of retire */
    char *text_scanned; /* owns: the same */
    uint32_t text_cap;
};

/* ---- admit.c ---- */
void queue_push(struct sched *s, struct req *q);
void queue_remove(struct sched *s, struct req *q);
void admit_all(struct sched *s);
void admit_expire(struct sched *s); /* ends queued requests whose deadline has passed */

/* ---- plan.c ---- */
/* Fills batch, span_seq, out_seq and copy from the running sequences. No clock, no allocation. */
void plan_step(struct sched *s);

/* ---- running.c ---- */
void running_insert(struct sched *s, struct seq *q);
/* A choice of a running request ends: blocks free; the request ends with its last choice. */
void running_finish(struct sched *s, struct seq *q, enum finish_reason reason, int stop_index,
                    int32_t stop_token);
/* Ends a queued or running request now: EVENT_END with e (NULL: OK), blocks free. */
void req_end(struct sched *s, struct req *q, const struct err *e);
void req_end_all(struct sched *s, const struct err *e);
void running_compact(struct sched *s); /* takes out what is done; before emit_wake frees it */
void sched_audit(struct sched *s); /* CHECKs every invariant of scheduler and pool, O(all) */

/* ---- retire.c ---- */
void retire_step(struct sched *s); /* after a step that succeeded */
void retire_failed(struct sched *s, const struct err *e); /* ends the requests of the step */

/* ---- step.c ---- */
void step_forget(const struct sched *s); /* s is about to go: no more dumps of it */

/* ---- snapshot.c ---- */
void snapshot_answer(struct sched *s); /* between two steps: answers every question that waits */

/* ---- notes.c ---- */
void notes_init(struct sched *s);
void note_prints(const struct sched *s, struct req *q); /* any thread, before q enters the inbox */
void note_submit(struct sched *s, const struct req *q);
void note_cancel(struct sched *s, const struct req *q);
void note_step(struct sched *s); /* now_ns is its end */
void note_end(struct sched *s, const struct req *q, const struct err *e);

/* ---- emit.c ---- */
void emit_token(struct sched *s, struct seq *q, const struct sample_job *job, const char *text,
                uint32_t n_text, enum finish_reason reason);
void emit_prompt(struct sched *s, struct req *q, const struct sample_job *job);
void emit_finish(struct sched *s, struct seq *q, enum finish_reason reason, int stop_index,
                 int32_t stop_token);
void emit_end(struct sched *s, struct req *q, const struct err *e);
void emit_wake(struct sched *s); /* wakes each consumer once and frees requests that ended */

/* ---- gauges.c ---- */
void gauges_init(struct sched *s);
void gauges_publish(struct sched *s); /* counts that other threads read; once a turn */
void gauges_step(struct sched *s); /* after a step */
void gauges_token(struct sched *s, struct seq *q);
void gauges_end(struct sched *s, const struct req *q, const struct err *e);
void gauges_rejected(struct sched *s); /* any thread: the queue was full */

#endif
