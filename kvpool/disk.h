/* The disk prefix cache: KV blocks of prefixes that outlive the process, one file per block,
 * addressed by content (the chain key of kvpool/cache.h). Opt-in: the files hold prompts.
 *
 * Folder prefix.disk.path:
 *   kv/blocks/DOMAIN-GROUP-KEY.kv  head (model, layout, key, parent key, token ids, CRC-32C of the
 *                                  whole file), then the block's bytes. DOMAIN identifies model,
 *                                  layout, KV types and secret
 *   kv/blocks/secret               the hash secret of chain keys, made at the first start
 *   kv/names/                      named prefixes (kvpool/named.h)
 * All files have mode 0600 in folders of mode 0700, and one process at a time uses them.
 *
 * A block is served only when every byte of its file is as it was written and its model, layout,
 * key, parent key and token ids are the requested ones: a bad file causes a miss. Files appear by
 * rename, so kill -9 leaves only whole files; there is no journal, and nothing is synced:
 * after a power failure the CRC detects damaged files. The sum of the files, names included, stays
 * within max_bytes: the least recently used file is deleted first (the files' times keep the order across
 * restarts), blocks of pinned prefixes never, files of other models like any other. Folders and files that
 * another user owns or may write to are refused: folders at the start, files as bad.
 *
 * The engine thread makes all calls here; the cache's own thread does all reading, writing and
 * deleting, and kv_disk_pop returns the answers. Nothing allocates after kv_disk_open. */
#ifndef KVPOOL_DISK_H
#define KVPOOL_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/cache.h"
#include "kvpool/layout.h"
#include "kvpool/store.h"

struct kv_disk;
struct kv_named;

struct kv_disk_options {
    const struct kv_layout *layout; /* borrows */
    struct kv_store *store; /* borrows: the store that gets write to */
    uint8_t model_digest[32];
    const char *path; /* prefix.disk.path */
    uint64_t max_bytes; /* prefix.disk.bytes; at least one block of each group besides names */
    /* NULL: none. Names keep their share of max_bytes; kv_disk_open pins their blocks. Borrows. */
    const struct kv_named *named;
    uint32_t max_jobs; /* limit of jobs in flight, including deletions; >= 4 */
    uint64_t deadline_ns; /* from put or get to its answer; 0: none */
    bool threaded; /* false: kv_disk_step() does the work (for tests) */
    void (*wake)(void *arg); /* may be NULL; called by the thread when there may be answers */
    void *wake_arg;
    void (*before_io)(
        void *
            arg); /* test hook, may be NULL: called by the thread before it reads or writes a block */
    void *before_io_arg;
};

struct kv_disk_block {
    uint32_t group;
    struct kv_key key, parent;
    const int32_t *tokens; /* [n_slots], copied */
    uint8_t *
        bytes; /* put: [block_bytes] of the group; borrowed until the answer, and must not change */
    uint32_t
        frame; /* get: destination of the block, valid only when the answer is ok; belongs to the get until then */
    uint64_t id; /* the caller's id, returned with the answer */
};

struct kv_disk_done {
    uint64_t id;
    uint32_t group;
    struct kv_key key;
    uint8_t *bytes;
    bool get; /* otherwise a put */
    bool ok;
};

/* Scans the folder: O(files). Errors: ERR_IO, ERR_BUSY (another process), ERR_INVALID
 * (max_bytes below one block), ERR_UNSUPPORTED (other users could write to a folder or the secret). */
enum status kv_disk_open(const struct kv_disk_options *o, struct kv_disk **out, struct err *e);
/* Finishes the queued jobs and ends the thread; kv_disk_pop returns the remaining answers. */
void kv_disk_stop(struct kv_disk *d);
void kv_disk_close(struct kv_disk *d); /* stops it first; NULL is allowed */

/* The value for kv_options.secret: keys are found again only when they are hashed with the same secret. The
 * cache must compare all 128 bits of keys (kv_options.key_bits), because they identify a prefix on
 * disk. */
void kv_disk_secret(const struct kv_disk *d, uint64_t secret[2]);
/* What named prefixes must carry to belong to this model, layout and secret (struct
 * kv_named_prefix). */
uint64_t kv_disk_domain(const struct kv_disk *d);

/* O(1). True: a get may succeed. */
bool kv_disk_has(const struct kv_disk *d, uint32_t group, const struct kv_key *key);
/* True when the block is neither on disk nor being written, so that a put of it makes sense. */
bool kv_disk_wants(const struct kv_disk *d, uint32_t group, const struct kv_key *key);
/* Tickets: true = kv_disk_pop will answer this block exactly once. False: nothing was started. */
bool kv_disk_put(struct kv_disk *d,
                 const struct kv_disk_block *b); /* false: already on disk, or no room */
bool kv_disk_get(struct kv_disk *d,
                 const struct kv_disk_block *b); /* false: not on disk, or no room */
/* Call until it returns false: only then is `wake` guaranteed to be called for later answers. */
bool kv_disk_pop(struct kv_disk *d, struct kv_disk_done *done);
uint32_t kv_disk_room(const struct kv_disk *d); /* tickets available now */

/* Keeps the blocks of all groups under these keys, whatever space they take, now or once they are put.
 * Pins are counted: each needs its unpin. Returns how many of the keys were pinned, starting with the
 * first (fewer when the index is full). */
uint32_t kv_disk_pin(struct kv_disk *d, const struct kv_key *keys, uint32_t n);
void kv_disk_unpin(struct kv_disk *d, const struct kv_key *keys, uint32_t n);

struct kv_disk_stats {
    uint32_t n_blocks; /* files that may be served */
    uint32_t n_foreign; /* files of other models or layouts */
    uint32_t n_pinned; /* entries that are pinned, put or not */
    uint64_t n_bytes, max_bytes; /* blocks and names on disk, including those being written */
    uint64_t n_put, n_got, n_evicted; /* since the start */
    uint64_t n_bad; /* files that were not as expected (bits, model, layout, tokens, owner) */
    uint64_t n_faults; /* reads, writes and deletions that failed on the disk */
    uint64_t n_failed,
        n_late; /* answers that were not ok: all of them, and those given up at the deadline */
    double read_ns_byte, write_ns_byte; /* measured moving means; 0: unknown */
};
struct kv_disk_stats kv_disk_stats(const struct kv_disk *d);

#endif
