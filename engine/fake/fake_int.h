/* State of the fake backend, for its two files. */
#ifndef ENGINE_FAKE_FAKE_INT_H
#define ENGINE_FAKE_FAKE_INT_H

#include "engine/fake/fake.h"

struct fake_slot {
    uint64_t chain;
    uint64_t step; /* that wrote it */
    uint32_t position;
    int32_t token;
};
_Static_assert(sizeof(struct fake_slot) == FAKE_SLOT_BYTES, "a slot has no gaps");

struct fake_job {
    struct kv_job job;
    struct fake_slot *early; /* owns [n_slots]: the source as it was at the start */
};

struct fake_copy {
    uint32_t group, src, dst;
};

struct fake {
    struct backend be; /* first: struct backend * is cast back */
    struct fake_options o;
    struct fake_slot *slot
        [KV_MAX_GROUPS]; /* owns, unless in_arena [n_phys * n_slots]: frames, RAM slots, file slots */
    bool in_arena; /* slot points into the arena */
    uint32_t n_frames[KV_MAX_GROUPS], n_file_first[KV_MAX_GROUPS], n_phys[KV_MAX_GROUPS];
    uint32_t n_slots, n_groups;
    uint64_t n_steps, n_mismatches;
    char mismatch[160]; /* the first one */
    uint32_t n_fail, n_fail_reads;
    struct batch *in_flight;
    void (*watch)(void *arg, const struct batch *b);
    void *watch_arg;
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
    struct fake_copy *copy; /* owns [max_copies]: that the next step runs first (runs_late) */
    uint32_t n_copies, max_copies;
    struct fake_job *job; /* owns [max_jobs]: in flight, oldest first */
    struct kv_done *done; /* owns [max_jobs]: ended, oldest first */
    uint32_t n_jobs, n_done;
};

/* Counts a mismatch and keeps the words of the first. */
void fake_wrong(struct fake *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct fake_slot *fake_block(struct fake *f, uint32_t group, uint32_t phys); /* phys is in range */
void fake_wipe(struct fake *f, struct fake_slot *block);
/* Is this frame the destination of a copy that has not ended? */
bool fake_tier_writes(const struct fake *f, uint32_t group, uint32_t frame);

#endif
