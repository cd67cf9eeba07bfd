/* Questions to the engine thread: what the scheduler holds, without a lock.
 *
 * The asker brings the memory for the answer; the engine thread fills it between two steps and calls
 * done. Nothing is allocated there, and what one question costs is bounded by its cap (but for an audit,
 * which walks everything). */
#ifndef SCHEDULER_SNAPSHOT_H
#define SCHEDULER_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/cache.h"
#include "kvpool/layout.h"
#include "scheduler/journal.h"
#include "scheduler/request.h"

struct sched;

/* What a sequence is doing. X(id, name, what) */
#define VIEW_STATES(X)                                                                             \
    X(QUEUED, "queued", "not admitted yet")                                                        \
    X(RUNNING, "running", "had rows in the last step")                                             \
    X(WAITING, "waiting", "admitted, left out of the last step")                                   \
    X(FORKING, "forking", "waits until the first choice has computed the prompt")                  \
    X(PARKED, "parked", "preempted: its blocks may lie in a tier")                                 \
    X(LOADING, "loading", "its blocks are on their way back")

enum view_state {
#define X(id, name, what) VIEW_##id,
    VIEW_STATES(X)
#undef X
        N_VIEW_STATES
};
const char *view_state_name(enum view_state s);

/* Where the bytes of a block are: a frame of the arena, the RAM tier, the spill file, or on the way. */
#define VIEW_TIERS(X) X(ARENA, "arena") X(RAM, "ram") X(FILE, "file") X(MOVING, "moving")

enum view_tier {
#define X(id, name) VIEW_TIER_##id,
    VIEW_TIERS(X)
#undef X
        N_VIEW_TIERS
};
const char *view_tier_name(enum view_tier t);

/* One sequence; a queued request, whose sequences do not exist yet, is one row. */
struct seq_view {
    char name[80]; /* request id */
    uint32_t tenant; /* slot */
    uint32_t choice, n_choices;
    int32_t priority;
    enum view_state state;
    uint32_t n_prompt, max_tokens;
    uint32_t n_tokens; /* prompt and output so far */
    uint32_t n_kv; /* of them with KV */
    uint32_t n_cached; /* of them read from the prefix cache */
    uint32_t n_output;
    uint32_t n_preempted;
    uint32_t n_blocks[N_VIEW_TIERS]; /* of all groups */
    uint32_t n_shared; /* of them held by others too */
    uint64_t idle_ns; /* since its blocks were last read or written by a step: their age */
    struct request_timing timing; /* so far */
};

/* One block. */
struct block_view {
    uint32_t group, block;
    const char *state; /* static */
    enum view_tier tier;
    uint32_t place; /* frame or slot */
    bool clean; /* a frame that has a copy in a tier */
    uint32_t n_refs, n_pins, n_filled;
    uint64_t n_hits;
};

struct kv_view_group {
    uint32_t window, block_bytes;
    uint32_t n_frames, n_free, n_cached, n_promised;
    uint32_t n_slots, n_slots_used; /* of both tiers */
};

struct sched_view {
    uint32_t n_running, n_queued, n_parked; /* sequences, requests, sequences */
    uint32_t n_jobs; /* copies in flight */
    uint64_t n_steps, now_ns;
    uint32_t n_groups, block_tokens;
    struct kv_view_group group[KV_MAX_GROUPS];
    uint64_t slots_allocated, slots_written; /* token slots of held blocks of group 0 */
    uint64_t n_queries, n_query_tokens, n_hit_tokens, n_evicted, n_spilled, n_loaded, n_failed;
    uint64_t n_preempted;
    struct journal_config journal;
};

enum sched_ask_kind {
    ASK_SEQUENCES,
    ASK_BLOCKS,
    ASK_JOURNAL,
    ASK_PINS /* no question: blocks of the disk prefix cache are pinned, then others are let go */
};

struct sched_ask {
    enum sched_ask_kind kind;
    uint64_t from; /* items to leave out before the first */
    uint32_t cap; /* items that fit */
    bool audit; /* also walk all invariants */
    bool one_tenant; /* ASK_SEQUENCES: rows and counts of `tenant` only */
    uint32_t tenant; /* slot */
    union {
        void *any;
        struct seq_view *seq;
        struct block_view *block;
        struct journal_record *record;
        const struct kv_key *key; /* ASK_PINS: [n_pin], then [n_unpin] */
    } item; /* borrows [cap] */
    uint32_t n_pin, n_unpin;
    /* Engine thread, exactly once; the answer is complete then. Must not block. */
    void (*done)(struct sched_ask *a, void *arg);
    void *arg;

    /* the answer */
    uint32_t n; /* items given */
    uint64_t n_all; /* items there are; below `from` + n never */
    struct sched_view view;
    enum status status; /* ERR_DRAINING: the engine thread has ended */
    bool audited; /* audit_error.status holds the result of the audit */
    struct err audit_error;

    struct sched_ask *next; /* link in the door's list */
};

/* Any thread. a belongs to the engine thread until done was called, which may be before this returns. */
void sched_ask(struct sched *s, struct sched_ask *a);

void snapshot_answer(struct sched *s); /* between two steps: answers every question that waits */

#endif
