/* Prefixes between the KV cache and the disk: what a scheduler calls. Files and tickets:
 * kvpool/disk.h.
 *
 * Fetching is a step that the disk's thread computes: the sequence grows, gets write the blocks'
 * frames, the sequence retires. Nothing of it enters the prefix index before the next step of a
 * backend retires.
 *
 *   kv_seq_adopt, kv_seq_unpark (s is resident)
 *   end = kv_fetch_match(...)             positions that could come from the disk
 *   kv_fetch_start(f, s, end, id)         when end > s->n_tokens and reading is cheaper than
 *   computing
 *   kv_fetch_go(f, ...)                   at once, and whenever an answer or room has come
 *   kv_disk_pop -> done.id == id, done.get: kv_fetch_done(f, &done)
 *
 * While a fetch goes on s must neither be parked, paged out nor dropped; kv_fetch_cancel and then
 * kv_fetch_go until it says KV_FETCH_FAILED end it early (soon: answers have deadlines).
 *
 * Saving copies blocks of the prefix index into buffers of its own first, so that no sequence,
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

/* What fetching and saving work on. Borrows all. */
struct kv_shelf {
    struct kv_disk *disk;
    struct kv_cache *cache;
    struct kv_store *store;
};

/* ---- fetching ---- */

/* A fetch of one sequence; lives as long as its request. */
struct kv_fetch {
    uint64_t id; /* of its tickets */
    uint32_t end; /* blocks that s will have */
    uint32_t grown; /* blocks of the growth under way end here; 0: none is under way */
    uint32_t next, next_group; /* what to get next */
    struct kv_key parent, key; /* of block `next` */
    uint32_t n_out; /* tickets without an answer */
    bool failed;
    bool publishes; /* what s->publishes was */
};

enum kv_fetch_state {
    KV_FETCH_WAITS, /* for answers, or for the disk's queue to get shorter */
    KV_FETCH_NO_FRAMES, /* as a growth that lacks frames; nothing is out */
    KV_FETCH_DONE, /* s has all of it */
    KV_FETCH_FAILED /* nothing is out; drop s (kv_seq_drop) and compute */
};

/* Positions (a multiple of n_slots, at most n_max) that s would have after a fetch; s->n_tokens
 * when the disk has nothing to add. s->n_tokens is a multiple of n_slots. */
uint32_t kv_fetch_match(const struct kv_shelf *k, const struct kv_seq *s, const int32_t *tokens,
                        uint32_t n_max);
void kv_fetch_start(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s,
                    const int32_t *tokens, uint32_t end, uint64_t id);
/* n_rows: most positions at a time (s grows by them in all groups), at least a block. */
enum kv_fetch_state kv_fetch_go(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s,
                                const int32_t *tokens, uint32_t n_rows);
void kv_fetch_done(struct kv_fetch *f, const struct kv_disk_done *done);
static inline void kv_fetch_cancel(struct kv_fetch *f)
{
    f->failed = true;
}

/* ---- saving ---- */

struct kv_saver; /* the buffers */
/* How far a prefix was saved; zero-initialised before the first call for it. */
struct kv_save {
    uint32_t next; /* blocks behind it */
    struct kv_key key; /* of the last one */
};

/* ERR_NO_MEMORY. n_buffers: blocks on their way at most. */
enum status kv_saver_new(const struct kv_shelf *k, const struct kv_layout *layout,
                         uint32_t n_buffers, struct kv_saver **out, struct err *e);
void kv_saver_free(struct kv_saver *sv); /* after kv_disk_stop; NULL is fine */
/* Copies up to n_max blocks of the chain of tokens[0, n_tokens) that are in frames and not on the
 * disk, from at->next on, and queues their puts. Returns how many; at->next * n_slots + n_slots >
 * n_tokens: all that can be saved was. Each is read out of its frame here. */
uint32_t kv_save_some(struct kv_saver *sv, struct kv_save *at, struct kv_key root,
                      const int32_t *tokens, uint32_t n_tokens, uint32_t n_max);
/* Every answer of a put comes here. */
void kv_save_done(struct kv_saver *sv, const struct kv_disk_done *done);

#endif
