/* The scheduler's door. sched_submit, sched_cancel and sched_stats may be called from any thread; the
 * rest from the main thread. Everything else in this folder runs on the one engine thread. */
#ifndef SCHEDULER_SCHEDULER_H
#define SCHEDULER_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/metrics.h"
#include "base/status.h"
#include "engine/backend.h"
#include "engine/text/text.h"
#include "kvpool/cache.h"
#include "kvpool/disk.h"
#include "kvpool/store.h"
#include "kvpool/tier.h"
#include "scheduler/request.h"

struct settings;
struct sched;
struct tenants;

/* How much room a request must find before it starts. */
enum sched_reserve {
    SCHED_RESERVE_QUANTILE, /* its prompt, and what those that run will soon take, by lengths seen */
    SCHED_RESERVE_NONE, /* its prompt */
    SCHED_RESERVE_MAX /* its worst case, promised: nothing is ever preempted */
};

/* What happens to a sequence whose blocks others need. */
enum sched_preempt {
    SCHED_PREEMPT_AUTO, /* the cheaper one by measured costs */
    SCHED_PREEMPT_SWAP, /* its blocks go to a tier; computed again only when the tiers are full */
    SCHED_PREEMPT_RECOMPUTE,
    SCHED_PREEMPT_NEVER /* as SCHED_RESERVE_MAX */
};

struct sched_limits {
    uint32_t max_running; /* sequences in a batch */
    uint32_t max_queued; /* requests waiting */
    uint32_t max_batch_tokens; /* rows per step */
    uint32_t chunk_max; /* prefill rows of one sequence per step */
    uint32_t step_target_ms;
    uint32_t max_context; /* prompt + output of one sequence */
    struct tenants *tenants; /* borrows; NULL: one tenant of the scheduler's own */
    uint64_t journal_bytes; /* ring of the step journal; 0: none */
    enum sched_reserve reserve;
    enum sched_preempt preempt;
};

/* Where copies between frames and slots go: kvpool/tier.h in the server, engine/fake in tests. Every job
 * that push took comes out of pop exactly once; both are called by the engine thread only. */
struct sched_tier_ops {
    uint32_t (*room)(void *tier); /* pushes that would succeed now: asked before kv_job_next */
    bool (*push)(void *tier, const struct kv_job *job); /* false: no room now */
    bool (*pop)(void *tier, struct kv_done *done);
    struct kv_tier_costs (*costs)(void *tier);
};

/* The memory that the scheduler hands out. */
struct sched_memory {
    const struct kv_layout *layout; /* borrows */
    const struct kv_arena *arena; /* borrows: frames and RAM slots */
    uint32_t n_file[KV_MAX_GROUPS]; /* slots of the spill file */
    const struct sched_tier_ops *tier_ops; /* NULL: no tier; then there are no slots */
    void *tier; /* first argument of tier_ops */
    uint32_t max_jobs; /* copies in flight at most; 0 without a tier */
    bool prefix; /* prefix.enabled */
    uint32_t key_bits; /* 0: all 128; tests cut prefix keys to force collisions */
    uint64_t secret[2]; /* of the prefix keys */
    struct kv_disk *disk; /* borrows; NULL: no disk prefix cache */
    struct kv_store *store; /* borrows; with a disk: where the blocks are */
    struct kv_domain domain; /* all but the salt, which each request brings */
};

struct sched_stats {
    uint32_t n_running, n_waiting; /* sequences running; requests waiting */
    uint32_t blocks_total, blocks_free;
    uint64_t slots_allocated,
        slots_written; /* of blocks in use: the difference is internal waste */
    uint64_t n_steps;
    uint64_t heartbeat_ns; /* clock_ns() of the engine thread's last turn */
    bool idle; /* asleep because nothing is to be done */
    bool broken; /* backend failed for good */
};

/* tok may be NULL for the fake backend (text of a token is then "<id>"-free: none). */
enum status sched_new(const struct sched_limits *limits, struct backend *be,
                      const struct sched_memory *memory, const struct tokenizer *tok,
                      struct metrics *metrics, struct sched **out, struct err *e);
enum status sched_start(struct sched *s, struct err *e); /* starts the engine thread */
void sched_stop(struct sched *s); /* cancels what runs, ends every request with EVENT_END, joins */
void sched_free(struct sched *s);

/* Takes a reference of its own. Errors, nothing kept: ERR_CONTEXT_LENGTH (can never fit, both numbers
 * in the text), ERR_QUEUE_FULL (limit and value; *retry_after_s from the measured drain rate),
 * ERR_DRAINING after sched_drain. */
enum status sched_submit(struct sched *s, struct request *r, uint32_t *retry_after_s,
                         struct err *e);
/* Idempotent; takes effect within one step; EVENT_END(ERR_CANCELLED) follows. */
void sched_cancel(struct sched *s, struct request *r);
/* The consumer made room in r's ring after it was full: lets a paused sequence go on. */
void sched_resume(struct sched *s, struct request *r);
void sched_drain(struct sched *s); /* refuse new requests from now on */
/* Largest max_tokens that a prompt of n_prompt tokens and n_choices may ask for: the room that
 * max_context and the pool leave. False when not even one token fits. Any thread. */
bool sched_room(const struct sched *s, uint32_t n_prompt, uint32_t n_choices, uint32_t *max_tokens);
/* The longest prompt, at most r's own, with which r could run: its other fields stay. 0: none. */
uint32_t sched_longest_prompt(const struct sched *s, const struct request *r);
void sched_stats(const struct sched *s, struct sched_stats *out);

/* Keys of the full blocks of r's first n_tokens prompt tokens: keys[n_tokens / n_slots]. Returns how many.
 * Any thread. */
uint32_t sched_prefix_keys(const struct sched *s, const struct request *r, uint32_t n_tokens,
                           struct kv_key *keys);

/* Any thread: ends the engine thread's sleep; what a tier calls when a copy is done. */
void sched_wake(struct sched *s);

/* Tests drive the engine thread's loop by hand (no sched_start): one turn = drain inbox, plan, run,
 * retire. Returns true when something was done. */
bool sched_turn(struct sched *s);

#endif
