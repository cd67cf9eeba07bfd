/* The disk prefix cache: KV blocks of prefixes that outlive the process, one file a block,
 * addressed by what they hold (chain key of kvpool/cache.h). Opt-in: the files hold prompts.
 *
 * Folder prefix.disk.path:
 *   kv/blocks/DOMAIN-GROUP-KEY.kv  head (model, layout, key, parent key, token ids, CRC-32C of it
 *                                  all), then the block's bytes. DOMAIN stands for model, layout,
 *                                  KV types and secret
 *   kv/blocks/secret               what chain keys are hashed with, made at the first start
 *   kv/names/                      named prefixes (kvpool/named.h)
 * All of it is mode 0600 in folders of mode 0700, and one process at a time uses it.
 *
 * A block is served only when every byte of its file is as it was written and its model, layout,
 * key, parent key and token ids are those asked for: a bad file costs a miss. Files appear by
 * rename, so that kill -9 leaves whole files only; there is no journal, and nothing is synced:
 * after a power cut the CRC tells which files are sound. The sum of the files, names included, stays
 * within max_bytes: least recently used goes first (the order survives in the files' times), blocks of
 * pinned prefixes never, files of other models like any other. Folders and files that somebody else
 * owns or may write to are refused: folders at the start, files as bad.
 *
 * Everything here is called by the engine thread; a thread of the cache's own does all reading,
 * writing and deleting, and answers come by kv_disk_pop. Nothing allocates after kv_disk_open. */
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
    struct kv_store *store; /* borrows: what gets write to */
    uint8_t model_digest[32];
    const char *path; /* prefix.disk.path */
    uint64_t
        max_bytes; /* prefix.disk.bytes; room for one block of each group at least, beside names */
    /* NULL: none. Their share of max_bytes is theirs; read by kv_disk_open: pins their blocks. Borrows. */
    const struct kv_named *named;
    uint32_t max_jobs; /* in flight at most, deletions counted; >= 4 */
    uint64_t deadline_ns; /* from put or get to its answer; 0: none */
    bool threaded; /* false: kv_disk_step() does the work, for tests */
    void (*wake)(void *arg); /* NULL is fine; by the thread, when there may be answers */
    void *wake_arg;
    void (*before_io)(
        void *arg); /* test hook, NULL: by the thread before it reads or writes a block */
    void *before_io_arg;
};

struct kv_disk_block {
    uint32_t group;
    struct kv_key key, parent;
    const int32_t *tokens; /* [n_slots], copied */
    uint8_t
        *bytes; /* put: [block_bytes] of the group; borrowed until the answer, and not to change */
    uint32_t
        frame; /* get: where the block goes, only when the answer is ok; the get's until then */
    uint64_t id; /* the caller's, handed back */
};

struct kv_disk_done {
    uint64_t id;
    uint32_t group;
    struct kv_key key;
    uint8_t *bytes;
    bool get; /* else put */
    bool ok;
};

/* Looks through the folder: O(files). Errors: ERR_IO, ERR_BUSY (another process), ERR_INVALID
 * (max_bytes below one block), ERR_UNSUPPORTED (a folder or the secret that others could write). */
enum status kv_disk_open(const struct kv_disk_options *o, struct kv_disk **out, struct err *e);
/* Works off what is queued and ends the thread; kv_disk_pop has the rest of the answers. */
void kv_disk_stop(struct kv_disk *d);
void kv_disk_close(struct kv_disk *d); /* stops it first; NULL is fine */

/* For kv_options.secret: keys are only found again when they are hashed with the same secret. The
 * cache must compare all 128 bits of keys (kv_options.key_bits), since the disk knows a prefix by
 * them. */
void kv_disk_secret(const struct kv_disk *d, uint64_t secret[2]);
/* What named prefixes must carry to belong to this model, layout and secret (struct
 * kv_named_prefix). */
uint64_t kv_disk_domain(const struct kv_disk *d);

/* O(1). True: a get may succeed. */
bool kv_disk_has(const struct kv_disk *d, uint32_t group, const struct kv_key *key);
/* A put would not be refused because the block is there or on its way. */
bool kv_disk_wants(const struct kv_disk *d, uint32_t group, const struct kv_key *key);
/* Tickets: true = kv_disk_pop will answer this block exactly once. False: nothing was begun. */
bool kv_disk_put(struct kv_disk *d,
                 const struct kv_disk_block *b); /* false: there already, or no room */
bool kv_disk_get(struct kv_disk *d,
                 const struct kv_disk_block *b); /* false: not there, or no room */
/* Call until it says false: only then is `wake` sure to be called for what follows. */
bool kv_disk_pop(struct kv_disk *d, struct kv_disk_done *done);
uint32_t kv_disk_room(const struct kv_disk *d); /* tickets that can be had now */

/* Blocks of all groups under these keys are kept whatever room they take, now or once they are put.
 * Counts: each pin wants its unpin. Returns how many of the keys were pinned, from the first on
 * (fewer when the index is full). */
uint32_t kv_disk_pin(struct kv_disk *d, const struct kv_key *keys, uint32_t n);
void kv_disk_unpin(struct kv_disk *d, const struct kv_key *keys, uint32_t n);

struct kv_disk_stats {
    uint32_t n_blocks; /* files that may be served */
    uint32_t n_foreign; /* files of other models or layouts */
    uint32_t n_pinned; /* entries that are pinned, put or not */
    uint64_t n_bytes, max_bytes; /* blocks and names on disk, what is being written counted */
    uint64_t n_put, n_got, n_evicted; /* since the start */
    uint64_t
        n_bad; /* files that were not what they should be (bits, model, layout, tokens, owner) */
    uint64_t n_faults; /* reads, writes and deletions that the disk refused */
    uint64_t n_failed,
        n_late; /* answers that were not ok: all, and those given up at the deadline */
    double read_ns_byte, write_ns_byte; /* measured, moving means; 0 unknown */
};
struct kv_disk_stats kv_disk_stats(const struct kv_disk *d);

#endif
