/* State of the scheduler, for the files of this folder only (and their tests); what changes it stands in
 * each file's own header.
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
#include "scheduler/scheduler.h"
#include "scheduler/seq.h"
#include "scheduler/journal.h"
#include "scheduler/tenant.h"

enum {
    SCHED_BYPASS_MAX = 16, /* smaller requests that may pass the head of the queue */
    SCHED_BYPASS_SCAN = 64, /* requests behind a head that doesn't fit that are looked at */
    SCHED_SHARE_LOOKS =
        16, /* requests per turn that check again whether the shared blocks are there */
    SCHED_ADMIT_MAX = 64, /* admissions per turn: each allocates */
    SCHED_MIN_CHUNK = 16, /* prefill rows that go in whatever the cost model says */
    SCHED_PRIOR_ROWS = 64, /* rows that are taken to fill the step target at first */
    SCHED_BROKEN_AFTER = 3, /* failed steps in a row */
    SCHED_STILL_STEPS = 16, /* so long others' prompts may keep the oldest one from its rows */
    SCHED_RETRY_MAX_S = 60,
    SCHED_IDLE_MS = 1000, /* longest sleep: the heartbeat's period */
    SCHED_HORIZON = 32, /* rows ahead that admission keeps room for, per running sequence */
    SCHED_RESUME_ROWS = 64, /* rows that a parked sequence finds room for when it comes back */
    SCHED_SPILL_TURN = 8, /* blocks per turn that are copied to a tier ahead of time */
    SCHED_PAGE_TURN =
        8, /* blocks that a sequence larger than the arena pages out beyond its need */
    SCHED_PREEMPT_MOST =
        2, /* a sequence preempted this often is a victim only when no other is left */
    SCHED_NEARLY_DONE = 8, /* the same for one with this few tokens to go */
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

enum {
    SCHED_SAVES = 16, /* prompts whose blocks are on their way to the disk; more are left out */
    SCHED_SAVE_BUFFERS = 8 /* blocks that are being written */
};

/* A prompt whose blocks go to the disk, also when its request has ended. */
struct sched_save {
    struct request *r; /* a reference */
    struct kv_key root;
    uint32_t n_tokens;
    struct kv_save at;
};

/* Engine thread's. */
struct sched_disk {
    struct kv_shelf shelf; /* disk NULL: there is none, or it has stopped */
    struct kv_saver *saver; /* owns */
    struct req *fetching; /* whose first sequence is SEQ_FETCHING */
    uint32_t n_fetching;
    struct sched_save save[SCHED_SAVES]; /* in order of arrival */
    uint32_t n_saves;
    uint64_t n_bytes[2]; /* read, written */
    struct kv_disk_stats seen; /* what the metrics stand at */
};

/* One step: what plan fills, the backend runs and retire applies. Owns its arrays. One is in flight at a time:
 * step.c collects it right after its submit. */
struct step {
    struct batch batch;
    struct seq **span_seq; /* [max_running]: whose span */
    struct seq **out_seq; /* [max_outs] */
    struct kv_copy *copy; /* [(max_running + 1) * KV_MAX_GROUPS]: to be made before it runs */
    uint32_t n_copies;
    uint64_t begin_ns; /* sched.now_ns is its end while it retires */
    uint64_t kv_read; /* KV positions that its rows read */
    uint32_t n_paused; /* sequences that were left out for a full ring */
    uint32_t n_decodes; /* sequences that lacked one row */
    uint32_t n_prompt_rows; /* rows of spans that don't decode */
    uint32_t n_prompt_new; /* prompt tokens computed for the first time */
    uint32_t n_again; /* rows computed again */
    uint32_t n_tokens; /* sampled */
    uint64_t gap_ns; /* time between tokens of n_gaps sequences, not yet in the histogram */
    uint32_t n_gaps;
};

/* Requests that were admitted, and those of their sequences that have a part in steps. */
struct running {
    struct req *reqs; /* in no order */
    struct seq **seq; /* owns [2 * max_running]: SEQ_LIVE ones, oldest request first */
    uint32_t n;
    bool has_ended; /* seq holds some that are done */
    uint32_t n_held; /* of max_running: all sequences of reqs not yet done */
    uint32_t n_stalled; /* of seq, those that this turn's room doesn't cover */
};

struct parked {
    struct seq **seq; /* owns [max_running]: SEQ_PARKED ones, oldest first */
    uint32_t n;
};

/* Between frames and the tiers. */
struct copies {
    uint32_t n_out; /* handed to the tier */
    bool has_lost; /* one failed: a running sequence may have lost a block */
    uint64_t n_bytes[2]; /* to the tiers, back */
    uint32_t staged_left; /* blocks that this turn's step may still read from the spill file */
};

/* What was there at the last look, to find out what has changed. */
struct last_seen {
    uint32_t cancels;
    uint64_t epoch, arrivals; /* of the last pass over the queue */
    uint32_t room[KV_MAX_GROUPS];
    uint64_t n_preempted; /* in the journal */
    uint64_t bytes[2]; /* copied, in the metrics */
    struct kv_stats kv; /* in the metrics */
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
    struct req *queue; /* queued requests, in no order */
    uint64_t n_arrivals, n_tickets;
    struct running running;
    struct parked parked;
    struct copies copies;
    struct sched_disk disk;
    struct step step;
    uint64_t n_planned; /* steps so far: the number of the last one */
    struct cost cost;
    struct lengths lengths;

    /* the turn */
    uint64_t now_ns;
    uint64_t epoch; /* grows when what did not fit may fit now; from 1 on */
    bool tight; /* from a preemption until room is ample again: no request is admitted */
    bool preempts; /* this turn has parked a sequence */
    bool moved; /* this turn a sequence was parked, came back, or a copy ended */
    struct kv_need next_need; /* frames that this turn's rows can take */
    struct kv_need horizon; /* while admitting: what running sequences will likely take soon */
    struct req *dirty; /* whose consumers are to be woken */
    uint32_t n_failed_steps;
    double prefill_ns, prefill_rows; /* decayed sums over steps with prompt rows */

    /* what observers have counted */
    struct {
        uint64_t n_queries, n_query_tokens, n_hit_tokens;
    } prefix; /* once per admission, however often its prompt was looked up */
    uint64_t n_preempted[2]; /* by enum preempt_how */
    struct last_seen seen;
    struct journal journal;
    uint64_t noted_ns; /* end of the last step, while there is no pause */

    enum sched_fault fault;
    char *text; /* owns: scratch of retire */
    char *text_scanned; /* owns: the same */
    struct gram_scratch *gram; /* owns: the same */
    uint32_t text_cap;
};

enum preempt_how { PREEMPT_SWAP, PREEMPT_RECOMPUTE };

#endif
