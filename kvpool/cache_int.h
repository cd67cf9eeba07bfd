/* Internals of the KV cache's books: for kvpool/cache*.c and their tests only. See cache.h.
 *
 *   cache.c        creation, room, promises, statistics
 *   cache_block.c  frames, slots, the life of a block, lists of what can be taken
 *   cache_seq.c    growth, retiring, forks, release
 *   cache_index.c  keys, prefix index, announcements
 *   cache_tier.c   parking, spills, loads
 *   cache_audit.c  invariants, ledger
 *
 * Thread: the engine thread only. */
#ifndef KVPOOL_CACHE_INT_H
#define KVPOOL_CACHE_INT_H

#include "base/check.h"
#include "kvpool/cache.h"

enum kvc_state {
    KVC_FREE,
    KVC_OPEN,
    KVC_SEALED,
    KVC_READY,
    KVC_CACHED,
    KVC_ZOMBIE, /* has no holder and is not indexed, but a copy still reads or writes it */
    KVC_N_STATES
};

/* A block has at most one copy job. WAITS: queued here, can be cancelled; OUT: with the tier. */
enum kvc_job { KVC_IDLE, KVC_SPILL_WAITS, KVC_SPILL_OUT, KVC_LOAD_WAITS, KVC_LOAD_OUT };

/* Lists of blocks whose frame or slot can be taken, least recently used first. kvc_class() gives a block's
 * list. Dirty: no slot, so that taking the frame loses the block. */
enum kvc_list {
    KVC_NONE,
    KVC_ONCE_DIRTY, /* cached, never hit */
    KVC_ONCE_CLEAN,
    KVC_HIT_DIRTY, /* cached, hit before */
    KVC_HIT_CLEAN,
    KVC_PARKED, /* held, but no running sequence uses its frame; clean */
    KVC_STORED, /* cached, in a slot only */
    KVC_TWIN, /* held by running sequences only, with a copy in a slot: the slot can be taken */
    KVC_N_LISTS
};

/* Faults that tests plant to check that the tests detect them. */
enum kvc_fault {
    KVC_NO_FAULT,
    KVC_FAULT_NO_COW, /* a shared open block is written in place */
    KVC_FAULT_EARLY_PUBLISH, /* at growth, before the step has run */
    KVC_FAULT_FRAME_UNDER_COPY, /* a dropped block's frame is freed while a copy is out */
    KVC_FAULT_WINDOW_FIRST, /* a window slides one block too far */
    KVC_FAULT_HIT_LENGTH, /* a hit may be one position longer than asked for */
    KVC_FAULT_HIT_WINDOW, /* a hit takes window blocks from one position too late */
    KVC_FAULT_UNVERIFIED, /* a hit compares the cut key only */
    KVC_FAULT_STALE_SLOT, /* an open block keeps its copy in a slot when it grows */
    KVC_N_FAULTS
};

struct kvc_block {
    struct kv_key key, parent; /* while indexed: shortened to key_bits; whole */
    uint64_t job_id; /* of the copy that is out */
    uint32_t generation;
    uint32_t ref; /* table entries that name it */
    uint32_t n_run; /* of these, entries of running sequences that name its frame */
    uint32_t n_paged; /* of these, entries of running sequences that name its slot */
    uint32_t frame, slot; /* or KV_NO_BLOCK */
    uint32_t pos; /* its index in tables, the same in all of them */
    uint32_t prev, next; /* links of `list`; next also chains free blocks */
    uint32_t hash_next;
    uint32_t job_prev, job_next; /* queue of waiting jobs: flat numbers */
    uint16_t pin; /* unfinished steps that write it or copy from it */
    uint16_t hits; /* adoptions, saturating */
    uint8_t filled; /* token slots written or being written */
    uint8_t state; /* enum kvc_state */
    uint8_t job; /* enum kvc_job */
    uint8_t list; /* enum kvc_list */
    bool indexed;
};

struct kvc_ends {
    uint32_t head, tail, n;
};

struct kvc_group {
    struct kvc_block *block; /* owns [n_blocks] */
    int32_t
        *tokens; /* owns [n_blocks][n_slots]: token ids of indexed blocks; NULL without prefix */
    uint32_t *bucket; /* owns [mask + 1]: heads of hash chains */
    uint32_t mask;
    uint32_t n_blocks, n_frames, n_host, n_tier; /* n_tier: RAM and file slots */
    uint32_t flat0; /* flat number of block 0; job queues span groups */
    uint32_t window; /* positions; 0 = all */
    uint32_t *frame_block; /* owns [n_frames]: the block that has the frame, or KV_NO_BLOCK */
    uint32_t *slot_block; /* owns [n_tier] */
    uint32_t *free_frame; /* owns [n_frames]: stack */
    uint32_t *free_host; /* owns [n_host]: stack */
    uint32_t *free_file; /* owns [n_tier - n_host]: stack */
    uint32_t n_free_frames, n_free_host, n_free_file;
    uint32_t free_block, n_free_blocks;
    uint32_t n_promised;
    uint32_t n_state[KVC_N_STATES];
    uint64_t n_written; /* sum of filled */
    struct kvc_ends list[KVC_N_LISTS];
};

/* An announced block; see kv_pending_add. */
struct kvc_pend {
    struct kv_key key; /* whole */
    uint32_t pos;
    uint32_t hash_next; /* also chains free entries */
    uint32_t seq_next;
};

struct kv_cache {
    struct kvc_group group[KV_MAX_GROUPS];
    uint32_t n_groups, n_slots;
    const struct kv_layout *layout; /* borrows */
    bool prefix;
    uint64_t secret[2];
    struct kv_key key_mask;
    struct kv_seq *seqs, *loading; /* all sequences; those that wait for loads */
    struct kvc_pend *pend; /* owns [max_pending] */
    uint32_t *pend_bucket; /* owns [pend_mask + 1] */
    uint32_t pend_mask, pend_free, max_pending;
    struct kvc_ends queue[2]; /* waiting jobs: spills, loads */
    uint32_t n_out, max_jobs;
    uint64_t n_jobs; /* handed out so far */
    uint32_t spill_epoch; /* raised when a slot's copy is lost: voids hints of kv_seq_spill */
    uint64_t n_queries, n_query_tokens, n_hit_tokens, n_evicted, n_spilled, n_loaded, n_failed;
    enum kvc_fault fault;
    const int32_t *fault_tokens; /* of the sequence that grows next, for KVC_FAULT_EARLY_PUBLISH */
    uint32_t *audit; /* owns: scratch of kv_cache_audit, 4 numbers per block */
    uint32_t *audit_generation; /* owns: their values at the last audit */
};

/* ---- cache.c ---- */
uint32_t
kvc_avail(const struct kvc_group *g); /* frames that can be taken, including promised ones */
/* Promises frames up to s's reserve again, as far as there is room. */
void kvc_refill(struct kv_cache *c, struct kv_seq *s);
/* Sets s's reserve to its held blocks plus its promise. */
void kvc_set_reserve(struct kv_cache *c, struct kv_seq *s);
/* Takes up to n frames out of s's promise; they count as room afterwards. */
void kvc_draw(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t n);

/* ---- cache_block.c ---- */
void kvc_list_init(struct kvc_ends *l);
struct kvc_block *kvc_at(struct kv_cache *c, const struct kv_seq *s, uint32_t group, uint32_t i);
const struct kvc_block *kvc_look(const struct kv_cache *c, const struct kv_seq *s, uint32_t group,
                                 uint32_t i);
enum kvc_list kvc_class(const struct kvc_block *b);
uint32_t kvc_take_frame(struct kvc_group *g, struct kv_cache *c); /* CHECKs that one can be taken */
/* The copies that may be given up for a new one. */
enum kvc_greed { KVC_FREE_ONLY, KVC_COLDER_ONES, KVC_CACHED_ONES, KVC_CACHED_AND_TWINS };
uint32_t kvc_take_slot(struct kv_cache *c, struct kvc_group *g, enum kvc_greed greed);
void kvc_drop_frame(struct kvc_group *g, struct kvc_block *b);
void kvc_drop_slot(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b);
/* A new OPEN block with a frame, held by the running s. */
uint32_t kvc_take_block(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t pos);
void kvc_set_state(struct kvc_group *g, struct kvc_block *b, enum kvc_state state);
void kvc_set_filled(struct kvc_group *g, struct kvc_block *b, uint32_t filled);
/* Call after holders, pins, jobs or places have changed: frees or caches the block, or puts it on its list. */
void kvc_settle(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b);
void kvc_queue_job(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b, enum kvc_job job);
void kvc_unqueue_job(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b);
void kvc_cancel_job(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b);

/* ---- cache_seq.c ---- */
void kvc_leave(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t i);
/* An entry no longer belongs to a running sequence: its block has one reader of its frame or slot less. */
void kvc_stop_entry(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t i);
void kvc_wait_more(struct kv_cache *c, struct kv_seq *s);
void kvc_wait_less(struct kv_cache *c, struct kv_seq *s);

/* ---- cache_index.c ---- */
struct kv_key kvc_chain(const struct kv_cache *c, struct kv_key parent, const int32_t *tokens);
/* The indexed block with this key, parent and tokens, or KV_NO_BLOCK. */
uint32_t kvc_find(const struct kv_cache *c, uint32_t group, struct kv_key key, struct kv_key parent,
                  const int32_t *tokens);
void kvc_unindex(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b);
/* Adds the full retired blocks of s to the index. */
void kvc_publish(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_full);
/* Removes the blocks that only s holds and has published from the index. */
void kvc_unpublish(struct kv_cache *c, struct kv_seq *s);

static inline uint32_t kvc_blocks(uint32_t n_tokens, uint32_t n_slots)
{
    return n_tokens / n_slots + (n_tokens % n_slots != 0);
}

static inline uint32_t kvc_index(const struct kvc_group *g, const struct kvc_block *b)
{
    return (uint32_t)(b - g->block);
}

static inline bool kvc_loads(const struct kvc_block *b)
{
    return b->job == KVC_LOAD_WAITS || b->job == KVC_LOAD_OUT;
}

static inline bool kvc_spills(const struct kvc_block *b)
{
    return b->job == KVC_SPILL_WAITS || b->job == KVC_SPILL_OUT;
}

/* True when the block's bytes can be read from a slot. */
static inline bool kvc_stored(const struct kvc_block *b)
{
    return b->slot != KV_NO_BLOCK && !kvc_spills(b);
}

/* The first table index that a row after n_retired positions can still see. */
static inline uint32_t kvc_first(const struct kvc_group *g, uint32_t n_slots, uint32_t n_retired)
{
    return g->window == 0 || n_retired < g->window ? 0 : (n_retired - (g->window - 1)) / n_slots;
}

#endif
