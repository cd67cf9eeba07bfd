/* Moves prefixes between the KV cache and the disk; called by a scheduler. Files and tickets:
 * kvpool/disk.h.
 *
 * Fetching acts like a step computed by the disk's thread: the sequence grows, gets write the blocks'
 * frames, the sequence retires. None of its blocks enter the prefix index before the next step of a
 * backend retires.
 *
 *   kv_seq_adopt, kv_seq_unpark (s is resident)
 *   end = kv_fetch_match(...)             positions available from the disk
 *   kv_fetch_start(f, s, end, id)         when end > s->n_tokens and reading is cheaper than
 *   computing
 *   kv_fetch_go(f, ...)                   at once, and after every answer or when there is room
 *   kv_disk_pop -> done.id == id, done.get: kv_fetch_done(f, &done)
 *
 * During a fetch, s must not be parked, paged out or dropped. To end a fetch early, call kv_fetch_cancel
 * and then kv_fetch_go until it returns KV_FETCH_FAILED (soon: answers have deadlines).
 *
 * Saving first copies blocks of the prefix index into its own buffers, so that no sequence,
 * block or frame has to wait for the disk.
 *
 * Thread: the engine thread. Nothing allocates after kv_saver_new. */
#ifndef KVPOOL_DISK_SEQ_H
#define KVPOOL_DISK_SEQ_H

#include "kvpool/cache.h"
#include "kvpool/disk.h"
#include "kvpool/store.h"

/* Keys of the full blocks of tokens[0, n_tokens): keys[n_tokens / n_slots]. For pins and named
 * prefixes. */
uint32_t kv_chain_keys(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                       uint32_t n_tokens, struct kv_key *keys);

/* What fetching and saving work on. Borrows everything. */
struct kv_shelf {
    struct kv_disk *disk;
    struct kv_cache *cache;
    struct kv_store *store;
};

/* ---- fetching ---- */

/* The fetch of one sequence; lives as long as its request. */
struct kv_fetch {
    uint64_t id; /* of its tickets */
    uint32_t end; /* blocks that s will have */
    uint32_t grown; /* end of the blocks of the growth in progress; 0: none */
    uint32_t next, next_group; /* what to get next */
    struct kv_key parent, key; /* of block `next` */
    uint32_t n_out; /* tickets without an answer */
    bool failed;
    bool publishes; /* what s->publishes was */
};

enum kv_fetch_state {
    KV_FETCH_WAITS, /* waiting for answers, or for room in the disk's queue */
    KV_FETCH_NO_FRAMES, /* too few frames for the growth; nothing is out */
    KV_FETCH_DONE, /* s has the whole prefix */
    KV_FETCH_FAILED /* nothing is out; drop s (kv_seq_drop) and compute the prompt */
};

/* The number of positions (a multiple of n_slots, at most n_max) that s would have after a fetch;
 * s->n_tokens when the disk has nothing to add. s->n_tokens must be a multiple of n_slots. */
uint32_t kv_fetch_match(const struct kv_shelf *k, const struct kv_seq *s, const int32_t *tokens,
                        uint32_t n_max);
void kv_fetch_start(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s,
                    const int32_t *tokens, uint32_t end, uint64_t id);
/* n_rows: the most positions per growth (s grows by them in all groups), at least a block. */
enum kv_fetch_state kv_fetch_go(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s,
                                const int32_t *tokens, uint32_t n_rows);
void kv_fetch_done(struct kv_fetch *f, const struct kv_disk_done *done);
static inline void kv_fetch_cancel(struct kv_fetch *f)
{
    f->failed = true;
}

/* ---- saving ---- */

struct kv_saver; /* the buffers */
/* How far a prefix has been saved; zero-initialise it before the first call for a prefix. */
struct kv_save {
    uint32_t next; /* blocks already passed */
    struct kv_key key; /* of the last one */
};

/* ERR_NO_MEMORY. n_buffers: limit of blocks being saved at once. */
enum status kv_saver_new(const struct kv_shelf *k, const struct kv_layout *layout,
                         uint32_t n_buffers, struct kv_saver **out, struct err *e);
void kv_saver_free(struct kv_saver *sv); /* call after kv_disk_stop; NULL is allowed */
/* Copies up to n_max blocks of the chain of tokens[0, n_tokens) that are in frames and not on the
 * disk, starting at at->next, and queues their puts. Returns how many; at->next * n_slots + n_slots >
 * n_tokens: everything that can be saved has been. Each block is read from its frame within this call. */
uint32_t kv_save_some(struct kv_saver *sv, struct kv_save *at, struct kv_key root,
                      const int32_t *tokens, uint32_t n_tokens, uint32_t n_max);
/* Must be called with every answer of a put. */
void kv_save_done(struct kv_saver *sv, const struct kv_disk_done *done);

#endif
