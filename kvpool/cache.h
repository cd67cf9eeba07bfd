/* The KV cache's books: which sequence holds which block, which prefixes are kept for later requests,
 * which blocks have a copy outside the arena, when a frame may be reused.
 *
 * Numbers only; the bytes lie in struct kv_arena and the tiers and are written by a backend and by the
 * tier's thread. Per layer group (kvpool/layout.h) there is a pool of blocks. A *block* is a piece of
 * metadata; where its bytes are is told by `frame` (a block of the arena, or none) and `slot` (a place
 * in a tier: RAM slots first, then the spill file's, or none). A full block never changes, so that a
 * copy in a slot stays good and its frame can be given away at once ("clean").
 *
 *          grow                 grow fills it            retire                 last holder drops it
 *   FREE ─────────► OPEN ────────────────────► SEALED ─────────► READY ───────────────────────► CACHED
 *    ▲               │                                             │ not in the prefix index       │
 *    └───────────────┴─────────────────────────────────────────────┴───────────────────────────────┘
 *                                                                            evicted (frame and slot)
 *
 *   FREE    on the free list; holds no frame, no slot
 *   OPEN    has empty slots; grows while one sequence holds it. Forks may share it: the first that
 *           grows gets a copy (struct kv_copy), the last holder goes on in place
 *   SEALED  full, but an unfinished step still writes it
 *   READY   full and retired: never written again; in the prefix index or not
 *   CACHED  in the prefix index, held by nobody; reused on a hit, evicted least recently used first
 *
 * A sequence *runs* (its blocks must have frames: a batch may name them) or is *parked* (swapped out,
 * or a prefix hit that is still coming back from a tier). A frame can be taken from a block that no
 * running sequence holds and that is CACHED (dropped from the index unless it has a slot) or clean.
 *
 * Windows: a sequence's table of a group with a window W holds only the blocks that a later row can see:
 * after retiring n positions, block i goes when (i + 1) * n_slots <= n - (W - 1). Tables are indexed by
 * position / n_slots from 0 on; entries below `first` are gone (phys = KV_NO_BLOCK).
 *
 * Prefix index: key_i = SipHash-2-4-128(secret, key_{i-1} ‖ tokens of block i); key_{-1} = kv_root()
 * of the domain (model, KV types, layout, tenant salt ...). Every hit is verified: the block's stored
 * token ids equal and its stored parent key equals (all 128 bits, even where key_bits cuts the key that
 * is looked up), so that a collision costs a miss, never wrong KV.
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

/* Everything that must be equal for KV to be the same; hashed as typed records (tag, length, bytes). */
struct kv_domain {
    uint8_t model_digest[32];
    const char *rope; /* text of the RoPE configuration, "" none */
    const char *adapter; /* "" none */
    const char *salt; /* tenant and cache_salt, "" = shared by all */
    uint32_t n_salt_bytes;
};

struct kv_cache; /* fields in cache_int.h, for this folder and its tests */

struct kv_options {
    const struct kv_layout *layout; /* borrows */
    uint32_t n_frames[KV_MAX_GROUPS]; /* >= 1 each */
    uint32_t n_host[KV_MAX_GROUPS]; /* slots of the RAM tier */
    uint32_t n_file[KV_MAX_GROUPS]; /* slots of the spill file */
    uint32_t max_jobs; /* copies in flight at most */
    uint32_t max_pending; /* prompt blocks announced by kv_pending_add at most */
    bool prefix; /* prefix.enabled */
    uint64_t secret[2];
    uint32_t key_bits; /* of a key that a look-up compares; 0 = 128; tests cut them to 8 */
};

/* Before its next step runs, a backend must copy block src over block dst. src stays untouched until
 * kv_seq_retire or kv_seq_undo. */
struct kv_copy {
    uint32_t group, src, dst; /* physical numbers */
};

/* Blocks a group at a time. */
struct kv_need {
    uint32_t n[KV_MAX_GROUPS];
};

/* Blocks of one sequence in one group; see "Windows" above. */
struct kv_table {
    uint32_t *phys; /* owns [cap]: frames, or n_frames + slot when paged out: a batch borrows it */
    uint32_t *block; /* inside the same allocation [cap]: metadata index */
    uint32_t *generation; /* [cap]: of that block when it was entered: a stale entry aborts */
    uint32_t first, n, cap; /* entries [first, n) are held */
    uint32_t n_paged; /* entries whose phys is a slot (only while running) */
    uint32_t n_clean; /* entries below have a slot (hint of kv_seq_spill) */
    /* Source of a copy of the growth in flight, pinned; or KV_NO_BLOCK. */
    uint32_t cow_block, cow_generation;
};

struct kv_seq {
    struct kv_table t[KV_MAX_GROUPS];
    uint32_t n_tokens; /* positions that have a slot: written or being written */
    uint32_t n_retired; /* positions whose step has retired; <= n_tokens */
    uint32_t n_hit; /* positions that came from the prefix index at kv_seq_adopt */
    struct kv_key root; /* of its domain */
    struct kv_key key; /* chain key of the last block published or hit; else the root */
    uint32_t n_published; /* full blocks in `key`'s chain */
    bool publishes; /* false: its blocks never enter the index (no prefix cache, or not finite) */
    bool runs;
    bool lost; /* a copy of one of its blocks failed: drop and compute again */
    uint32_t n_loading; /* of its blocks that are on their way back into frames */
    struct kv_need claim; /* frames promised to it (kv_seq_claim) and not yet taken */
    struct kv_need
        reserve; /* held blocks and claim together, as of its last claim or trim; 0 none */
    struct kv_seq *prev, *next; /* all sequences of the cache */
    /* for kvpool's own use */
    struct kv_seq *load_prev, *load_next; /* all that wait for loads */
    uint32_t pend_head, pend_tail; /* its announced blocks, in order of position */
    uint32_t spill_epoch; /* n_clean is good while it equals the cache's */
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
/* s is empty and parked: kv_seq_adopt (or not), then kv_seq_unpark_paged, then it may grow. After kv_seq_drop
 * it is so again. */
void kv_seq_init(struct kv_cache *c, struct kv_seq *s, uint32_t max_tokens, struct kv_key root);
void kv_seq_release(struct kv_cache *c, struct kv_seq *s); /* CHECKs that it holds nothing */

/* ---- room ---- */
/* Frames of a group that can be had now: free, of CACHED blocks, of clean blocks no running sequence
 * holds; less those promised. */
uint32_t kv_room(const struct kv_cache *c, uint32_t group);
/* Most frames that growing a running s by n_rows can take. */
struct kv_need kv_seq_need(const struct kv_cache *c, const struct kv_seq *s, uint32_t n_rows);
/* Most frames that a sequence of n_tokens ever holds at once, given chunks of at most n_rows rows. */
struct kv_need kv_need_of(const struct kv_cache *c, uint32_t n_tokens, uint32_t n_rows);
bool kv_fits(const struct kv_cache *c, const struct kv_need *need);
/* Promises frames to s (kv_reserve) beyond those it has been promised; growth takes from the promise
 * first. From then on held blocks and promise are kept at what they are together now: frames that slide
 * out of its windows are promised to it again (from the room, at once or, when others still hold them, as
 * soon as there is room at a retire), so that kv_need_of()'s number for a window group is enough for all
 * its life. False and nothing changed: not so many. */
bool kv_seq_claim(struct kv_cache *c, struct kv_seq *s, const struct kv_need *need);
void kv_seq_claim_trim(struct kv_cache *c, struct kv_seq *s, const struct kv_need *keep);

/* ---- growth ---- */
/* Gives the next n_rows >= 1 positions their slots in every group and pins the blocks they lie in until
 * kv_seq_retire. Appends at most KV_MAX_GROUPS copies to copy[*n_copies...]. False and nothing changed
 * when frames lack. At most one growth in flight a sequence. s runs. */
bool kv_seq_grow(struct kv_cache *c, struct kv_seq *s, uint32_t n_rows, struct kv_copy *copy,
                 uint32_t *n_copies);
/* The step that wrote the last growth is over. tokens: the history [n_tokens]. Publishes full blocks
 * (first one wins: an equal key already there stays), slides windows. finite: false = a NaN or Inf was
 * seen in K, V or logits: nothing of this growth is published, s publishes no more, and what
 * it alone holds and has published is forgotten. */
void kv_seq_retire(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, bool finite);
/* The step failed: the slots of the last growth are given back. Its copies must have run (the copied tail
 * stays s's own) unless s is dropped at once. */
void kv_seq_undo(struct kv_cache *c, struct kv_seq *s);
/* child (empty, same root) comes to share every block of parent, which has no step in flight and waits
 * for no load. The child runs when the parent does. */
void kv_seq_fork(struct kv_cache *c, const struct kv_seq *parent, struct kv_seq *child);
/* Lets go of all blocks, last first. Nothing of a step may be in flight; copies may be (their blocks are
 * freed when the copy is done). Also gives back the claim, and ends pending. s is parked then. */
void kv_seq_drop(struct kv_cache *c, struct kv_seq *s);

/* ---- prefix ---- */
/* Longest prefix of tokens[0, n_max) that is cached, a multiple of n_slots; s is empty and stays parked;
 * takes the blocks (fewer when promises of others need their frames). Returns the positions; s->n_hit,
 * n_tokens, n_retired = that. Blocks that have no frame are brought back by kv_seq_unpark_paged. Counts one
 * query. */
uint32_t kv_seq_adopt(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_max);
/* In-flight sharing: s announces that it will fill the full blocks of tokens[0, n_prompt) after its
 * n_tokens positions (as many as max_pending leaves room for).
 * kv_pending(): tokens[0, n_max)'s first block that is not cached is announced by a live sequence. The
 * announcement of a block ends when it is published or by kv_pending_end (park, drop and failure call
 * it themselves). */
void kv_pending_add(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_prompt);
void kv_pending_end(struct kv_cache *c, struct kv_seq *s);
bool kv_pending(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                uint32_t n_max);

/* ---- tiers ---- */
/* s stops running (nothing of a step in flight). */
void kv_seq_park(struct kv_cache *c, struct kv_seq *s);
/* s is to run again: takes frames for the blocks that lack one and queues their loads. False and nothing
 * changed when frames lack. Then s runs; it may be planned when kv_seq_resident. Up to n_paged blocks of
 * the full group, oldest first, that have a good copy in a tier stay there (see kv_seq_page_out). */
bool kv_seq_unpark_paged(struct kv_cache *c, struct kv_seq *s, uint32_t n_paged);
static inline bool kv_seq_resident(const struct kv_seq *s)
{
    return s->runs && s->n_loading == 0 && !s->lost;
}
/* What kv_seq_unpark_paged would take out of kv_room: frames for blocks that lack one, and frames of clean
 * blocks that anybody could still have taken. */
struct kv_need kv_seq_absent_paged(const struct kv_cache *c, const struct kv_seq *s,
                                   uint32_t n_paged);
static inline struct kv_need kv_seq_absent(const struct kv_cache *c, const struct kv_seq *s)
{
    return kv_seq_absent_paged(c, s, 0);
}
/* Frames that nobody could take now and everybody could at once if s were dropped. */
struct kv_need kv_seq_private(const struct kv_cache *c, const struct kv_seq *s);
/* Queues copies to a tier of up to n_max blocks of s that have no slot yet, oldest position first: while
 * s runs, retired full blocks of groups without a window; when it is parked all, the open one too.
 * Returns how many were queued; fewer when slots lack. */
uint32_t kv_seq_spill(struct kv_cache *c, struct kv_seq *s, uint32_t n_max);
/* Blocks of s (parked) that have no copy in a tier and none on its way. */
uint32_t kv_seq_dirty(const struct kv_cache *c, const struct kv_seq *s);
/* A sequence larger than the arena: gives away the frames of up to n_max of its own oldest clean blocks
 * of group 0 (if that has no window) that nobody else runs on; it goes on running and reads them from
 * their slots (phys = n_frames + slot). Nothing of a step is in flight. Returns how many. */
uint32_t kv_seq_page_out(struct kv_cache *c, struct kv_seq *s, uint32_t n_max);
/* The next queued copy for the tier's thread, loads first; at most max_jobs are out at once. When nothing
 * is queued and free frames are few, cached blocks that were hit before are spilled ahead. */
bool kv_job_next(struct kv_cache *c, struct kv_job *job);
/* Every job handed out comes back here exactly once. A failed spill frees its slot; a failed load marks
 * the sequences that wait for it lost. */
void kv_job_done(struct kv_cache *c, const struct kv_job *job, bool ok);
uint32_t kv_jobs_open(const struct kv_cache *c); /* queued and out */

/* ---- sight ---- */
struct kv_stats {
    /* frames: all, free, of cached blocks */
    uint32_t n_frames[KV_MAX_GROUPS], n_free[KV_MAX_GROUPS], n_cached[KV_MAX_GROUPS];
    uint32_t n_promised[KV_MAX_GROUPS], n_slots_used[KV_MAX_GROUPS], n_slots_total[KV_MAX_GROUPS];
    uint64_t slots_allocated, slots_written; /* token slots of held blocks of group 0 */
    uint64_t n_queries, n_query_tokens, n_hit_tokens, n_evicted, n_spilled, n_loaded, n_failed;
};
void kv_cache_stats(const struct kv_cache *c, struct kv_stats *out);
uint32_t kv_blocks(const struct kv_cache *c, uint32_t group); /* pieces of metadata there are */
/* One block. */
struct kv_block_look {
    const char *state; /* static */
    uint32_t frame, slot; /* or KV_NO_BLOCK */
    bool moving; /* a copy of it waits or is out */
    uint32_t n_refs, n_pins, n_filled, n_hits;
};
bool kv_block_look(const struct kv_cache *c, uint32_t group, uint32_t block,
                   struct kv_block_look *look); /* false: it is free */
/* Walks everything, O(blocks + table entries): ERR_INTERNAL names the broken invariant and the block. */
enum status kv_cache_audit(struct kv_cache *c, struct err *e);
/* Ledger: blocks by state, then every table. */
void kv_cache_dump(const struct kv_cache *c, struct buf *out);

#endif
