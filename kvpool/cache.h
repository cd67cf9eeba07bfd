/* The KV cache's books: which sequence holds which block, which prefixes are kept for later requests,
 * which blocks have a copy outside the arena, and when a frame may be reused.
 *
 * The books hold numbers only; the bytes are in a device's arena and in the tiers, and are written by a
 * backend and by the tier's threads. Each layer group (kvpool/layout.h) has a pool of blocks. A *block* is a
 * metadata record; its bytes are at `frame` (a block of the arena, or none) and `slot` (a place in a tier:
 * RAM slots first, then those of the spill file, or none). A full block never changes, so a copy in a slot
 * stays valid and the block's frame can be reused at once (the block is "clean").
 *
 *          grow                 grow fills it            retire                 last holder drops it
 *   FREE ─────────► OPEN ────────────────────► SEALED ─────────► READY ───────────────────────► CACHED
 *    ▲               │                                             │ not in the prefix index       │
 *    └───────────────┴─────────────────────────────────────────────┴───────────────────────────────┘
 *                                                                            evicted (frame and slot)
 *
 *   FREE    on the free list; holds no frame, no slot
 *   OPEN    has empty slots; grows while one sequence holds it. Forks may share it: the first one that
 *           grows gets a copy (struct kv_copy), the last holder continues in place
 *   SEALED  full, but an unfinished step still writes it
 *   READY   full and retired: never written again; in the prefix index or not
 *   CACHED  in the prefix index, without a holder; reused on a hit, evicted least recently used first
 *
 * A sequence either *runs* (its blocks must have frames, because a batch may name them) or is *parked*
 * (swapped out, or a prefix hit whose blocks are still being loaded from a tier). A frame can be taken from a
 * block that no running sequence holds and that is CACHED (it leaves the index unless it has a slot) or clean.
 *
 * Windows: a sequence's table for a group with a window W holds only the blocks that a later row can see:
 * after n positions have retired, block i is dropped when (i + 1) * n_slots <= n - (W - 1). Tables are indexed
 * by position / n_slots from 0; entries below `first` have been dropped (phys = KV_NO_BLOCK).
 *
 * Prefix index: key_i = SipHash-2-4-128(secret, key_{i-1} ‖ tokens of block i); key_{-1} = kv_root()
 * of the domain (model, KV types, layout, tenant salt ...). Every hit is verified: the block's stored
 * token ids and its stored parent key must be equal (all 128 bits of it, even where key_bits shortens the key
 * that is looked up), so a collision causes a miss, never wrong KV.
 * A hit of L positions needs the blocks [0, L) of full groups and those covering [L - W + 1, L) of
 * window groups. Blocks are published by kv_seq_retire only, after the step that filled them.
 *
 * Invariants (kv_cache_audit checks them; tests cite "kv I<number>"): listed in cache_audit.c.
 *
 * Thread: the engine thread only. Nothing here allocates after kv_cache_new and kv_seq_init. */
#ifndef KVPOOL_CACHE_H
#define KVPOOL_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "kvpool/layout.h"

enum { KV_NO_BLOCK = 0xffffffffu };

struct kv_key {
    uint64_t w[2];
};

/* Everything that determines KV besides the tokens; hashed as typed records (tag, length, bytes). */
struct kv_domain {
    uint8_t model_digest[32];
    const char *rope; /* the RoPE configuration as text, "" none */
    const char *adapter; /* "" none */
    const char *salt; /* tenant and cache_salt, "" = shared by all tenants */
    uint32_t n_salt_bytes;
};

struct kv_cache; /* fields in cache_int.h, for this folder and its tests */

struct kv_options {
    const struct kv_layout *layout; /* borrows */
    uint32_t n_frames[KV_MAX_GROUPS]; /* >= 1 each */
    uint32_t n_host[KV_MAX_GROUPS]; /* slots of the RAM tier */
    uint32_t n_file[KV_MAX_GROUPS]; /* slots of the spill file */
    uint32_t max_jobs; /* limit of copies in flight */
    uint32_t max_pending; /* limit of prompt blocks announced by kv_pending_add */
    bool prefix; /* prefix.enabled */
    uint64_t secret[2];
    uint32_t key_bits; /* bits of a key that a lookup compares; 0 = 128; tests use 8 */
};

/* A backend must copy block src over block dst before its next step runs. src stays unchanged until
 * kv_seq_retire or kv_seq_undo. */
struct kv_copy {
    uint32_t group, src, dst; /* physical numbers */
};

/* One number of blocks per group. */
struct kv_need {
    uint32_t n[KV_MAX_GROUPS];
};

/* Blocks of one sequence in one group; see "Windows" above. */
struct kv_table {
    uint32_t *phys; /* owns [cap]: frames, or n_frames + slot when paged out; a batch borrows it */
    uint32_t *block; /* inside the same allocation [cap]: metadata index */
    uint32_t *generation; /* [cap]: the block's when it was entered; a stale entry aborts */
    uint32_t first, n, cap; /* entries [first, n) are held */
    uint32_t n_paged; /* entries whose phys is a slot (only while running) */
    uint32_t n_clean; /* entries below this have a slot (a hint for kv_seq_spill) */
    /* The pinned source block of the copy in the growth in flight, or KV_NO_BLOCK. */
    uint32_t cow_block, cow_generation;
};

struct kv_seq {
    struct kv_table t[KV_MAX_GROUPS];
    uint32_t n_tokens; /* positions that have a slot: written or being written */
    uint32_t n_retired; /* positions whose steps have retired; <= n_tokens */
    uint32_t n_hit; /* positions that came from the prefix index at kv_seq_adopt */
    struct kv_key root; /* of its domain */
    struct kv_key key; /* chain key of the last block published or hit; else the root */
    uint32_t n_published; /* full blocks in `key`'s chain */
    bool publishes; /* false: its blocks never enter the index (no prefix cache, or not finite) */
    bool runs;
    bool lost; /* a copy of one of its blocks failed: drop it and compute again */
    uint32_t n_loading; /* number of its blocks that are being loaded into frames */
    struct kv_need claim; /* frames promised to it (kv_seq_claim) and not yet taken */
    struct kv_need reserve; /* held blocks plus claim as of its last claim or trim; 0: none */
    struct kv_seq *prev, *next; /* all sequences of the cache */
    /* for kvpool's own use */
    struct kv_seq *load_prev, *load_next; /* all that wait for loads */
    uint32_t pend_head, pend_tail; /* its announced blocks, in order of position */
    uint32_t spill_epoch; /* n_clean is valid while this equals the cache's */
};

/* A copy for the tier's thread. */
struct kv_job {
    uint32_t group;
    uint32_t block, generation;
    uint32_t frame, slot;
    bool load; /* slot -> frame; else frame -> slot */
    uint64_t id; /* ascending */
};

/* ---- life ---- */
struct kv_cache *kv_cache_new(const struct kv_options *o);
void kv_cache_free(struct kv_cache *c); /* CHECKs that no sequence holds a block */
struct kv_key kv_root(const struct kv_cache *c, const struct kv_domain *d);
/* Makes s empty and parked. Next comes an optional kv_seq_adopt, then kv_seq_unpark_paged; then s may grow.
 * kv_seq_drop returns s to this state. */
void kv_seq_init(struct kv_cache *c, struct kv_seq *s, uint32_t max_tokens, struct kv_key root);
void kv_seq_release(struct kv_cache *c, struct kv_seq *s); /* CHECKs that s holds nothing */

/* ---- room ---- */
/* Frames of a group that can be taken now: free ones, those of CACHED blocks, and those of clean blocks that
 * no running sequence holds; less the promised ones. */
uint32_t kv_room(const struct kv_cache *c, uint32_t group);
/* The largest number of frames that growing a running s by n_rows can take. */
struct kv_need kv_seq_need(const struct kv_cache *c, const struct kv_seq *s, uint32_t n_rows);
/* The largest number of frames that a sequence of n_tokens ever holds at once, for chunks of at most n_rows rows. */
struct kv_need kv_need_of(const struct kv_cache *c, uint32_t n_tokens, uint32_t n_rows);
bool kv_fits(const struct kv_cache *c, const struct kv_need *need);
/* Promises frames to s (kv_reserve) in addition to those already promised; growth takes promised frames
 * first. From then on the sum of held blocks and promise is kept at its present value: frames that slide
 * out of the windows of s are promised to it again (at once or, when other sequences still hold them, as
 * soon as a retire makes room), so that kv_need_of()'s number for a window group suffices for the whole life
 * of s. False, with nothing changed, when there are not enough frames. */
bool kv_seq_claim(struct kv_cache *c, struct kv_seq *s, const struct kv_need *need);
void kv_seq_claim_trim(struct kv_cache *c, struct kv_seq *s, const struct kv_need *keep);

/* ---- growth ---- */
/* Assigns slots in every group to the next n_rows >= 1 positions and pins their blocks until
 * kv_seq_retire. Appends at most KV_MAX_GROUPS copies to copy[*n_copies...]. False, with nothing changed,
 * when there are too few frames. At most one growth in flight per sequence. s must be running. */
bool kv_seq_grow(struct kv_cache *c, struct kv_seq *s, uint32_t n_rows, struct kv_copy *copy,
                 uint32_t *n_copies);
/* The step that wrote the last growth has ended. tokens: the history [n_tokens]. Publishes full blocks
 * (the first one wins: an equal key that is already indexed stays) and slides windows. finite: false = K, V
 * or logits held a NaN or Inf: nothing of this growth is published, s publishes nothing more, and the blocks
 * that only s holds leave the index. */
void kv_seq_retire(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, bool finite);
/* The step failed: gives back the slots of the last growth. Its copies must have run (the copied tail
 * stays with s) unless s is dropped at once. */
void kv_seq_undo(struct kv_cache *c, struct kv_seq *s);
/* child (empty, same root) shares every block of parent afterwards. parent has no step in flight and waits
 * for no load. The child runs if the parent does. */
void kv_seq_fork(struct kv_cache *c, const struct kv_seq *parent, struct kv_seq *child);
/* Releases all blocks, last first. No step of s may be in flight; copies may be (their blocks are freed when
 * the copy is done). Also gives back the claim and ends its announcements. s is parked afterwards. */
void kv_seq_drop(struct kv_cache *c, struct kv_seq *s);

/* ---- prefix ---- */
/* Finds the longest cached prefix of tokens[0, n_max), a multiple of n_slots, and takes its blocks (fewer when
 * their frames are needed for promises to other sequences). s is empty and stays parked. Returns the number of
 * positions, which is also stored in s->n_hit, n_tokens and n_retired. Blocks without a frame are loaded by
 * kv_seq_unpark_paged. Counts one query. */
uint32_t kv_seq_adopt(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_max);
/* In-flight sharing: s announces that it will fill the full blocks of tokens[0, n_prompt) after its first
 * n_tokens positions (as many as max_pending has room for).
 * kv_pending(): true when a live sequence has announced the first uncached block of tokens[0, n_max). The
 * announcement of a block ends when the block is published, or by kv_pending_end (park, drop and failure
 * call it themselves). */
void kv_pending_add(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_prompt);
void kv_pending_end(struct kv_cache *c, struct kv_seq *s);
bool kv_pending(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                uint32_t n_max);

/* ---- tiers ---- */
/* s stops running (nothing of a step in flight). */
void kv_seq_park(struct kv_cache *c, struct kv_seq *s);
/* Makes s run again: takes frames for the blocks that have none and queues their loads. False, with nothing
 * changed, when there are too few frames. Afterwards s runs, and may be planned once kv_seq_resident. Up to
 * n_paged blocks of the full group, oldest first, that have a valid copy in a tier stay there (see
 * kv_seq_page_out). */
bool kv_seq_unpark_paged(struct kv_cache *c, struct kv_seq *s, uint32_t n_paged);
static inline bool kv_seq_resident(const struct kv_seq *s)
{
    return s->runs && s->n_loading == 0 && !s->lost;
}
/* The frames by which kv_seq_unpark_paged would reduce kv_room: those for blocks that have none, and those of
 * clean blocks, which any sequence could take until then. */
struct kv_need kv_seq_absent_paged(const struct kv_cache *c, const struct kv_seq *s,
                                   uint32_t n_paged);
static inline struct kv_need kv_seq_absent(const struct kv_cache *c, const struct kv_seq *s)
{
    return kv_seq_absent_paged(c, s, 0);
}
/* Frames that cannot be taken now but could be as soon as s were dropped. */
struct kv_need kv_seq_private(const struct kv_cache *c, const struct kv_seq *s);
/* Queues copies to a tier of up to n_max blocks of s that have no slot yet, oldest position first: while
 * s runs, retired full blocks of groups without a window; when s is parked, all blocks, including the open
 * one. Returns how many were queued; fewer when there are too few slots. */
uint32_t kv_seq_spill(struct kv_cache *c, struct kv_seq *s, uint32_t n_max);
/* Number of blocks of s (parked) that neither have a copy in a tier nor are being copied to one. */
uint32_t kv_seq_dirty(const struct kv_cache *c, const struct kv_seq *s);
/* For a sequence larger than the arena: gives up the frames of up to n_max of its oldest clean blocks of group
 * 0 (if that has no window) that no other running sequence holds. s keeps running and reads these blocks from
 * their slots (phys = n_frames + slot). No step of s may be in flight. Returns how many. */
uint32_t kv_seq_page_out(struct kv_cache *c, struct kv_seq *s, uint32_t n_max);
/* The next queued copy for the tier's thread, loads first; at most max_jobs are out at once. When the queue is
 * empty and few frames are free, cached blocks that were hit before are spilled in advance. */
bool kv_job_next(struct kv_cache *c, struct kv_job *job);
/* Every job handed out is returned here exactly once. A failed spill frees its slot; a failed load marks
 * the sequences that wait for it as lost. */
void kv_job_done(struct kv_cache *c, const struct kv_job *job, bool ok);
uint32_t kv_jobs_open(const struct kv_cache *c); /* queued and out */

/* ---- inspection ---- */
struct kv_stats {
    /* frames: all, free, of cached blocks */
    uint32_t n_frames[KV_MAX_GROUPS], n_free[KV_MAX_GROUPS], n_cached[KV_MAX_GROUPS];
    uint32_t n_promised[KV_MAX_GROUPS], n_slots_used[KV_MAX_GROUPS], n_slots_total[KV_MAX_GROUPS];
    uint64_t slots_allocated, slots_written; /* token slots of held blocks of group 0 */
    uint64_t n_queries, n_query_tokens, n_hit_tokens, n_evicted, n_spilled, n_loaded, n_failed;
};
void kv_cache_stats(const struct kv_cache *c, struct kv_stats *out);
uint32_t kv_blocks(const struct kv_cache *c, uint32_t group); /* number of metadata records */
/* One block. */
struct kv_block_look {
    const char *state; /* static */
    uint32_t frame, slot; /* or KV_NO_BLOCK */
    bool moving; /* a copy of it is queued or out */
    uint32_t n_refs, n_pins, n_filled, n_hits;
};
bool kv_block_look(const struct kv_cache *c, uint32_t group, uint32_t block,
                   struct kv_block_look *look); /* false: the block is free */
/* Checks everything, O(blocks + table entries): ERR_INTERNAL names the broken invariant and the block. */
enum status kv_cache_audit(struct kv_cache *c, struct err *e);
/* Prints the ledger: blocks by state, then every table. */
void kv_cache_dump(const struct kv_cache *c, struct buf *out);

#endif
