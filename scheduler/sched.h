/* State of the scheduler, for the files of this folder only (and their tests).
 *
 * Other threads touch the inbox, the atomics of `door` and the gate of `tenants`; everything else
 * belongs to the engine thread. A turn (step.c): drain the inbox, take finished copies, end what was
 * cancelled or is too late, make room, admit, plan, run, retire, wake consumers. */
#ifndef SCHEDULER_SCHED_H
#define SCHEDULER_SCHED_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/thread.h"
#include "scheduler/cost.h"
#include "scheduler/disk.h"
#include "scheduler/scheduler.h"
#include "scheduler/seq.h"
#include "scheduler/snapshot.h"
#include "scheduler/tenant.h"

enum {
    SCHED_BYPASS_MAX = 16, /* smaller requests that may pass the head of the queue */
    SCHED_BYPASS_SCAN = 64, /* requests behind a head that doesn't fit that are looked at */
    SCHED_SHARE_LOOKS =
        16, /* requests a turn that look again whether the shared blocks are there */
    SCHED_ADMIT_MAX = 64, /* admissions a turn: each allocates */
    SCHED_MIN_CHUNK = 16, /* prefill rows that go in whatever the cost model says */
    SCHED_PRIOR_ROWS = 64, /* rows that are taken to fill the step target at first */
    SCHED_BROKEN_AFTER = 3, /* failed steps in a row */
    SCHED_STILL_STEPS = 16, /* so long others' prompts may keep the oldest one from its rows */
    SCHED_RETRY_MAX_S = 60,
    SCHED_IDLE_MS = 1000, /* longest sleep: the heartbeat's period */
    SCHED_HORIZON = 32, /* rows ahead that admission keeps room for, per running sequence */
    SCHED_RESUME_ROWS = 64, /* rows that a parked sequence finds room for when it comes back */
    SCHED_SPILL_TURN = 8, /* blocks a turn that are copied to a tier ahead of time */
    SCHED_PAGE_TURN =
        8, /* blocks that a sequence larger than the arena pages out beyond its need */
    SCHED_PREEMPT_MOST =
        2, /* who was preempted so often is a victim only when nobody else is left */
    SCHED_NEARLY_DONE = 8, /* the same for who has so few tokens to go */
    SCHED_AGE_MS = 30000, /* a queued request rises one priority class in this time */
    SCHED_LENGTHS = 24 /* buckets of output lengths, powers of two halved once */
};

/* Faults that tests of the tests plant. */
enum sched_fault {
    SCHED_NO_FAULT,
    SCHED_FAULT_SINKS_LONG, /* an overflow keeps one token too many */
    SCHED_FAULT_SINKS_EARLY, /* what an overflow keeps begins one token too early */
    SCHED_FAULT_GREEDY, /* a promise takes all the room there is, whatever those that run need */
    SCHED_FAULT_PASSED, /* requests are admitted while others stand still or are parked */
    SCHED_FAULT_SERVED, /* prompts go by what their tenants were served alone */
    SCHED_N_FAULTS
};

/* Output lengths of requests that ended: what a running one will likely still take. */
struct lengths {
    double weight[SCHED_LENGTHS]; /* decayed counts */
    double sum;
};

/* What any thread may touch. */
struct sched_door {
    struct mpsc *inbox; /* struct req, from sched_submit */
    atomic_uint n_waiting; /* requests in the inbox and in the queue */
    atomic_uint n_open; /* sequences that the last turn left room for; 0 while any waits */
    atomic_uint n_submitting; /* threads inside sched_submit */
    atomic_uint n_cancels; /* bumped by sched_cancel after it set a flag */
    atomic_uint_fast64_t prefill_ns; /* a thousand prompt tokens, measured; 0: not known yet */
    _Atomic(struct sched_ask *) asks; /* newest first; see snapshot.h */
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
    uint64_t print_secret; /* of the journal's fingerprints */
    struct thread thread;

    struct sched_door door;

    /* engine thread */
    struct kv_cache *kv;
    struct kv_layout layout;
    struct sched_memory memory;
    uint32_t n_blocks; /* frames of all groups */
    uint32_t n_frames[KV_MAX_GROUPS], n_slots_total[KV_MAX_GROUPS]; /* arena; both tiers */
    struct tenants
        *tenants; /* the queue, and the gate before it; limits.tenants or `own_tenants` */
    struct tenants *own_tenants; /* owns, or NULL */
    struct req *active; /* running requests, in no order */
    struct req *queue; /* queued requests, in no order */
    uint32_t seen_cancels;
    uint64_t n_arrivals, n_tickets;
    struct seq **running; /* owns [max_running]: SEQ_LIVE ones, oldest request first */
    uint32_t n_running;
    bool has_ended; /* running holds sequences that are done */
    uint32_t n_paused; /* sequences that the last plan left out for a full ring */
    uint32_t n_decodes; /* sequences that lacked one row */
    uint32_t n_slots_held; /* of max_running: all sequences of running requests not yet done */
    struct seq **parked; /* owns [max_running]: SEQ_PARKED ones, oldest first */
    uint32_t n_parked;
    uint64_t epoch; /* grows when what did not fit may fit now; from 1 on */
    bool tight; /* from a preemption until room is ample again: nobody is admitted */
    bool preempts; /* this turn has parked somebody */
    bool moved; /* this turn a sequence was parked, came back, or a copy ended */
    uint32_t n_stalled; /* running sequences that this turn's room doesn't cover */
    uint32_t staged_left; /* blocks that this turn's step may still read from the spill file */
    struct sched_disk disk;
    bool has_lost; /* a copy failed: a running sequence may have lost a block */
    uint32_t n_copies_out; /* copies handed to the tier */
    uint64_t n_bytes[2], seen_bytes[2]; /* copied to and from the tiers; of them in the metrics */
    uint32_t last_room[KV_MAX_GROUPS];
    struct kv_need next_need; /* frames that this turn's rows can take */
    struct kv_need horizon; /* while admitting: what running sequences will likely take soon */
    uint64_t seen_epoch, seen_arrivals; /* epoch and n_arrivals of the last pass over the queue */
    struct lengths lengths;
    struct {
        uint64_t n_queries, n_query_tokens, n_hit_tokens;
    } prefix; /* once an admission, however often its prompt was looked up */
    uint64_t n_preempted[2]; /* by enum preempt_how */
    uint64_t noted; /* of them in the journal */
    struct kv_stats seen; /* what the counters in the metrics stand at */
    struct req *dirty;
    uint32_t n_failed_steps;
    struct journal journal;
    uint64_t noted_ns; /* end of the last step, while there is no pause */

    /* the step */
    uint64_t now_ns;
    struct batch batch;
    uint64_t step_ns; /* when the step began; now_ns is its end while it retires */
    uint64_t kv_read; /* KV positions that its rows read */
    uint32_t n_prompt_rows; /* rows of spans that don't decode */
    uint32_t n_prompt_new; /* prompt tokens computed for the first time */
    uint32_t n_again; /* rows computed again */
    uint32_t n_step_tokens; /* tokens sampled */
    uint64_t gap_ns; /* time between tokens of n_gaps sequences, not yet in the histogram */
    uint32_t n_gaps;
    struct seq **span_seq; /* owns [max_running]: whose span */
    struct seq **out_seq; /* owns [max_outs] */
    struct kv_copy *copy; /* owns [(max_running + 1) * KV_MAX_GROUPS] */
    uint32_t n_copies;
    double prefill_ns, prefill_rows; /* decayed sums over steps with prompt rows */
    struct cost cost;
    enum sched_fault fault;
    char *text; /* owns: scratch of retire */
    char *text_scanned; /* owns: the same */
    uint32_t text_cap;
};

enum preempt_how { PREEMPT_SWAP, PREEMPT_RECOMPUTE };

/* ---- scheduler.c ---- */
struct kv_key sched_root(const struct sched *s, const struct request *r); /* any thread */

/* ---- admit.c ---- */
void queue_push(struct sched *s, struct req *q);
void queue_remove(struct sched *s, struct req *q);
void admit_all(struct sched *s);
void admit_expire(struct sched *s); /* ends queued requests whose deadline has passed */

/* ---- room.c ---- */
/* Blocks that a request comes to hold at most, all choices, in each group. False: it can never run, for
 * the reason in e. Any thread. */
bool room_worst(const struct sched *s, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_choices,
                bool reserves, struct kv_need *worst, struct err *e);
/* Is a request's worst case promised to it at the start: it asked so, or nobody may be preempted? Any
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

/* ---- memory.c ---- */
/* Marks who has room for its next rows; parks sequences, youngest first, until the others have; brings
 * parked ones back; spills cold blocks ahead of time. */
void memory_turn(struct sched *s);
void memory_copies_done(struct sched *s);
void memory_copies_start(struct sched *s);
uint32_t memory_spill(struct sched *s, struct seq *q, uint32_t n_most); /* queues copies */
/* After the turn's room was given out: one that comes now may take part, unless the step would read more
 * from the spill file than the backend can. */
void memory_grant_late(struct sched *s, struct seq *q);
void memory_count_staged(const struct sched *s, struct seq *q);

/* ---- park.c ---- */
void park_insert(struct sched *s, struct seq *q);
void park_remove(struct sched *s, struct seq *q);
uint32_t park_blocks(const struct seq *q); /* that it holds, all groups */
/* Of its blocks, those that stay in the tiers while it runs: 0 unless it is larger than the arena. */
uint32_t park_paged(const struct sched *s, const struct seq *q);
/* Takes the blocks of a running sequence away. */
void park_seq(struct sched *s, struct seq *q);
void park_drop(struct sched *s, struct seq *q); /* a parked one holds nothing any more */
/* overflow=sinks: cuts the middle out of a full history and lets the rest be computed anew. */
void park_overflow(struct sched *s, struct seq *q);
void park_resume(struct sched *s); /* lets parked ones come back while there is room */

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
bool req_end_if_cancelled(struct sched *s, struct req *q);
void step_forget(const struct sched *s); /* s is about to go: no more dumps of it */

/* ---- snapshot.c ---- */
void snapshot_answer(struct sched *s); /* between two steps: answers every question that waits */

/* ---- notes.c ---- */
void notes_init(struct sched *s);
void note_prints(const struct sched *s, struct req *q); /* any thread, before q enters the inbox */
void note_submit(struct sched *s, const struct req *q);
void note_cancel(struct sched *s, const struct req *q);
void note_idle(struct sched *s); /* a turn without a step */
void note_step(struct sched *s); /* now_ns is its end */
void note_costs(const struct sched *s, struct journal_config *c); /* of copies, as measured */
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
void gauges_preempted(struct sched *s, enum preempt_how how);
void gauges_admitted(struct sched *s, const struct req *q);
void gauges_fetched(struct sched *s, const struct req *q, uint32_t n_tokens); /* from the disk */
void gauges_rejected(struct sched *s); /* any thread: the queue was full */

#endif
