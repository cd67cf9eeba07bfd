/* The pool of KV blocks: who holds which block, how many are promised, when one may be reused.
 *
 * The pool keeps numbers only; the bytes lie in struct kv_arena and are written by a backend. A
 * sequence owns a struct kv_table (its blocks in order of position) and draws blocks from a struct
 * kv_claim (blocks promised to a request at admission, so that taking one never fails).
 *
 *            kv_table_grow                grow fills the last slot          kv_table_retire
 *   FREE ───────────────────► OPEN ───────────────────────────► SEALED ───────────────────► READY
 *    ▲                         │ last holder drops it             (never freed: pinned)       │
 *    └─────────────────────────┴──────────────────────────────────────────────────────────────┘
 *
 *   FREE    on the free list, its bytes mean nothing
 *   OPEN    has empty slots; grows while one table holds it. Forks may share it: the first that grows
 *           gets a copy (struct kv_copy), the last holder goes on in place
 *   SEALED  full, but an unfinished step still writes it
 *   READY   full and retired: never written again
 *
 * Invariants (kv_audit checks them; tests cite "kv I<number>"):
 *   I1  every block is in exactly one state; free ones are on the free list exactly once, and n_free
 *       counts them
 *   I2  ref == number of table entries that name the block; FREE <=> ref == 0
 *   I3  pin == number of tables with an unfinished step that writes the block; FREE => pin == 0
 *   I4  a table entry's generation is its block's; each free raises the generation, so that a stale
 *       handle aborts at its next use
 *   I5  n_slots * (n - 1) < n_tokens <= n_slots * n for a table of n >= 1 blocks; 0 tokens <=> 0 blocks
 *   I6  all entries but a table's last are full (SEALED or READY); filled of the last one equals the
 *       table's tokens in it; OPEN <=> 0 < filled < n_slots
 *   I7  a block is written only while OPEN with ref == 1
 *   I8  n_promised == sum of all claims' n_left, and n_promised <= n_free: a claim is always covered
 *   I9  n_written == sum of filled
 *   I10 generations never go back
 *
 * Thread: the engine thread only. Nothing here allocates after kv_pool_init and kv_table_init. */
#ifndef KVPOOL_KVPOOL_H
#define KVPOOL_KVPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum kv_state { KV_FREE, KV_OPEN, KV_SEALED, KV_READY, KV_N_STATES };

enum { KV_NO_BLOCK = 0xffffffffu };

/* Names one life of a block: valid until that life ends. */
struct kv_handle {
    uint32_t index;
    uint32_t generation;
};

struct kv_block {
    uint32_t generation;
    uint32_t ref; /* table entries that name it */
    uint32_t next_free; /* free list; KV_NO_BLOCK at its end */
    uint16_t pin; /* unfinished steps that write it */
    uint8_t filled; /* slots written or being written */
    uint8_t state; /* enum kv_state */
};

/* Blocks promised and not yet taken. Zero-initialised before kv_claim_try. */
struct kv_claim {
    uint32_t n_left;
    bool linked;
    struct kv_claim *prev, *next; /* all claims of the pool */
};

/* Blocks of one sequence in order of position: slot of position p is (p % n_slots) of
 * block[p / n_slots]. */
struct kv_table {
    uint32_t *block; /* owns [cap]: physical numbers, what a batch's span borrows */
    uint32_t *generation; /* inside the same allocation: [cap] */
    uint32_t n, cap;
    uint32_t n_tokens; /* positions that have a slot: written or being written */
    uint32_t n_retired; /* positions whose step has retired; <= n_tokens */
    struct kv_table *prev, *next; /* all tables of the pool */
};

struct kv_pool {
    struct kv_block *block; /* owns [n_blocks] */
    uint32_t n_blocks;
    uint32_t n_slots; /* token positions a block */
    uint32_t free_head, n_free;
    uint32_t n_promised;
    uint64_t n_written; /* slots, over all blocks in use */
    struct kv_table *tables;
    struct kv_claim *claims;
    uint32_t *audit_ref; /* owns [n_blocks]: scratch of kv_audit */
    uint32_t *audit_pin; /* owns [n_blocks]: the same */
    uint32_t *audit_generation; /* owns [n_blocks]: as the last audit saw them (I10) */
};

/* Before its next step runs, a backend must copy block src over block dst. */
struct kv_copy {
    uint32_t src, dst;
};

/* ---- block.c ---- */
void kv_pool_init(struct kv_pool *p, uint32_t n_blocks, uint32_t n_slots);
void kv_pool_release(struct kv_pool *p); /* CHECKs that every block is free */
/* Aborts on a stale handle. */
struct kv_block *kv_deref(struct kv_pool *p, struct kv_handle h);
/* Blocks that are neither held nor promised. */
static inline uint32_t kv_available(const struct kv_pool *p)
{
    return p->n_free - p->n_promised;
}
/* Promises n blocks (0 is fine); false when so many are not available. */
bool kv_claim_try(struct kv_pool *p, struct kv_claim *c, uint32_t n);
/* Gives back what the claim holds beyond n_needed. */
void kv_claim_trim(struct kv_pool *p, struct kv_claim *c, uint32_t n_needed);
void kv_claim_release(struct kv_pool *p, struct kv_claim *c);
/* The steps of a block's life, for table.c. */
struct kv_handle kv_block_take(struct kv_pool *p,
                               struct kv_claim *c); /* CHECKs that one is promised */
void kv_block_fill(struct kv_pool *p, struct kv_handle h, uint32_t n_slots_more);
void kv_block_retire(struct kv_pool *p, struct kv_handle h);
void kv_block_unref(struct kv_pool *p, struct kv_handle h);

/* ---- table.c ---- */
void kv_table_init(struct kv_pool *p, struct kv_table *t, uint32_t cap_blocks);
void kv_table_release(struct kv_pool *p, struct kv_table *t); /* CHECKs that it is empty */
/* Gives the next n_tokens >= 1 positions their slots and pins the blocks they lie in until
 * kv_table_retire. True when *copy must run first. At most one growth in flight per table. */
bool kv_table_grow(struct kv_pool *p, struct kv_table *t, struct kv_claim *c, uint32_t n_tokens,
                   struct kv_copy *copy);
/* The step that wrote the last growth is over. */
void kv_table_retire(struct kv_pool *p, struct kv_table *t);
/* child (empty) comes to share every block of parent, which has nothing in flight. */
void kv_table_fork(struct kv_pool *p, const struct kv_table *parent, struct kv_table *child);
/* Lets go of all blocks, last first. Nothing may be in flight. */
void kv_table_drop(struct kv_pool *p, struct kv_table *t);
/* Most blocks that growing t to n_tokens could take from a claim. */
uint32_t kv_table_need(struct kv_pool *p, const struct kv_table *t, uint32_t n_tokens);

static inline struct kv_handle kv_table_at(const struct kv_table *t, uint32_t i)
{
    return (struct kv_handle){t->block[i], t->generation[i]};
}
static inline uint32_t kv_blocks_for(uint32_t n_tokens, uint32_t n_slots)
{
    return n_tokens / n_slots + (n_tokens % n_slots != 0);
}

/* ---- audit.c ---- */
/* Walks everything, O(blocks + table entries): ERR_INTERNAL names the broken invariant and the block. */
enum status kv_audit(struct kv_pool *p, struct err *e);
void kv_dump(const struct kv_pool *p,
             struct buf *out); /* ledger: blocks by state, then every table */

#endif
