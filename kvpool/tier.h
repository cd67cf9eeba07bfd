/* The tiers, and the threads that move blocks between them: RAM slots beside the frames, and slots
 * of the spill file (never linked into a folder, so it disappears at exit and at kill -9). They carry out
 * the jobs of kvpool/cache.h.
 *
 * The engine thread pushes struct kv_job into a bounded queue and pops answers. Two threads do the
 * work, so that a disk that hangs does not delay copies within RAM: one makes the device copy blocks, the
 * other reads and writes the file (with O_DIRECT where the file system supports it, so that the page cache
 * does not grow beside the arena; only the repeated reads of kv_tier_read go through it). Every job that was
 * pushed is answered exactly once. A job slower than its deadline is answered as failed; its frame and its
 * slot may be reused at once: frames are touched only by jobs that can no longer be given up, and a late
 * write to a slot has ended before the file's thread starts a later job for that slot (kvpool/copier.h). */
#ifndef KVPOOL_TIER_H
#define KVPOOL_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/cache.h"
#include "kvpool/store.h"

struct kv_tier;

struct kv_tier_options {
    struct kv_store *store; /* borrows */
    const struct kv_layout *layout; /* borrows */
    const char *path; /* kv.spill.path: a folder; "" or NULL none */
    uint64_t min_free_bytes; /* bytes of disk space that the spill file leaves free */
    uint32_t n_file[KV_MAX_GROUPS]; /* slots of the file, 0 in all groups without a path */
    uint32_t max_jobs; /* limit of jobs in flight, for RAM and file separately */
    uint64_t deadline_ns; /* from push to answer; 0: none */
    bool threaded; /* false: kv_tier_step() does the work (for tests) */
    void (*wake)(void *arg); /* may be NULL; called by a copy thread when there may be answers */
    void *wake_arg;
    void (*before_io)(
        void *arg); /* test hook, NULL: called by the file's thread before it reads or writes */
    void *before_io_arg;
};

struct kv_done {
    struct kv_job job;
    bool ok;
};

enum { KV_TIER_ALIGN = KV_STAGE_ALIGN };
/* Bytes of a block in the spill file. */
static inline size_t kv_tier_slot_bytes(size_t block_bytes)
{
    return (block_bytes + KV_TIER_ALIGN - 1) & ~(size_t)(KV_TIER_ALIGN - 1);
}

/* Allocates the spill file's disk space. Errors: ERR_IO names the folder and the reason; its param is the
 * option at fault, kv.spill.path or kv.spill.bytes. */
enum status kv_tier_open(const struct kv_tier_options *o, struct kv_tier **out, struct err *e);
/* Ends the threads after their current copies; the queued ones fail. kv_tier_pop returns all answers;
 * no push is allowed afterwards. */
void kv_tier_stop(struct kv_tier *t);
void kv_tier_close(struct kv_tier *t); /* stops it first; NULL is allowed */
/* The number of jobs of any kind that kv_tier_push would accept now: check it before kv_job_next. Less
 * than max_jobs minus the unanswered ones while a given-up copy has not ended. */
uint32_t kv_tier_room(const struct kv_tier *t);
bool kv_tier_push(struct kv_tier *t, const struct kv_job *job); /* false: no room */
/* Call until it returns false: only then is `wake` guaranteed to be called for later answers. */
bool kv_tier_pop(struct kv_tier *t, struct kv_done *done);
/* Any thread: reads n_bytes at an offset of a file slot (counted from 0, after the RAM slots) into dst,
 * through the page cache. Used for a backend's staging.
 * ERR_IO with errno's text. */
enum status kv_tier_read(const struct kv_tier *t, uint32_t group, uint32_t file_slot, size_t offset,
                         size_t n_bytes, void *dst, struct err *e);
/* Measured ns per byte (moving means over about 16 copies): copies within RAM, to the file and from it;
 * 0 while unknown. Engine thread. */
struct kv_tier_costs {
    double ram_ns_byte, file_write_ns_byte, file_read_ns_byte;
};
struct kv_tier_costs kv_tier_costs(const struct kv_tier *t);
struct kv_tier_stats {
    uint64_t n_out, n_in; /* copies that succeeded: spills, loads */
    uint64_t n_bytes_out, n_bytes_in;
    uint64_t n_failed; /* answered as failed, late ones included */
    uint64_t n_late; /* given up at the deadline */
    uint64_t file_bytes; /* size of the spill file */
    bool direct; /* copies go past the page cache */
};
struct kv_tier_stats kv_tier_stats(const struct kv_tier *t);

#endif
