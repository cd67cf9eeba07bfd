/* State of the fake backend, for its files. */
#ifndef ENGINE_FAKE_FAKE_INT_H
#define ENGINE_FAKE_FAKE_INT_H

#include "base/thread.h"
#include "engine/fake/fake.h"

enum { FAKE_MAX_MOVES = 16 }; /* of the store, in flight */

struct fake_slot {
    uint64_t chain;
    uint64_t step; /* step that wrote it */
    uint32_t position;
    int32_t token;
};
_Static_assert(sizeof(struct fake_slot) == FAKE_SLOT_BYTES, "a slot has no gaps");

/* A block being moved: slots read early are kept here, the rest are read at the end. */
struct fake_move {
    uint64_t id; /* 0: not in progress */
    struct kv_move m; /* physical numbers may be those of file slots too */
    struct fake_slot *early; /* owns [n_slots]: the source as it was at the start */
};

struct fake_job {
    struct kv_job job;
    struct fake_move move;
};

struct fake_copy {
    uint64_t before; /* number of the step that it runs before */
    uint32_t group, src, dst;
};

struct fake_step {
    struct batch *b;
    uint64_t number; /* and ticket */
    bool ran;
    enum status status; /* with e: its result */
    struct err e;
};

struct fake {
    struct backend be; /* first: struct backend * is cast back */
    struct kv_store store;
    struct fake_options o;
    uint8_t *map; /* owns; accessible only inside a call of the fake */
    size_t n_map_bytes;
    struct mutex lock; /* n_inside; taken before moves_lock is, or without it */
    uint32_t n_inside; /* number of calls that have the memory open */
    struct fake_slot
        *slot[KV_MAX_GROUPS]; /* in map: [n_phys * n_slots]: frames, RAM slots, file slots */
    uint32_t n_frames[KV_MAX_GROUPS], n_file_first[KV_MAX_GROUPS], n_phys[KV_MAX_GROUPS];
    uint32_t n_slots, n_groups;
    uint64_t n_steps; /* submitted */
    uint64_t now; /* number of the running step */
    uint64_t n_mismatches;
    char mismatch[160]; /* the first one */
    uint32_t n_fail, n_fail_reads;
    struct fake_step flight[BACKEND_MAX_FLIGHT]; /* oldest first */
    uint32_t n_flight;
    void (*watch)(void *arg, const struct batch *b);
    void *watch_arg;
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
    struct fake_copy *copy; /* owns [max_copies]: still to run, oldest first (runs_late) */
    uint32_t n_copies, max_copies;
    struct fake_job *job; /* owns [max_jobs]: in flight, oldest first */
    struct kv_done *done; /* owns [max_jobs]: ended, oldest first */
    uint32_t n_jobs, n_done;
    struct mutex moves_lock; /* the rest */
    struct fake_move move[FAKE_MAX_MOVES]; /* of the store */
    uint64_t n_moves; /* started */
    uint32_t n_fail_moves;
};

/* Counts a mismatch and keeps the description of the first. */
void fake_wrong(struct fake *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t fake_mix(uint64_t a, uint64_t b);

/* ---- fake_kv.c ---- */
void fake_memory_new(struct fake *f, const struct kv_arena *arena);
void fake_memory_free(struct fake *f);
/* Slots may be accessed only between the two; calls nest. Any thread. */
void fake_enter(struct fake *f);
void fake_leave(struct fake *f);
struct fake_slot *fake_block(struct fake *f, uint32_t group, uint32_t phys); /* phys is in range */
void fake_wipe(struct fake *f, struct fake_slot *block);
/* Call inside fake_enter. The destination is garbage until the end, and remains so when not ok. */
void fake_move_start(struct fake *f, struct fake_move *move, const struct kv_move *m, uint64_t id);
void fake_move_end(struct fake *f, struct fake_move *move, bool ok);
/* True when this block is the destination of a store's move that has not ended. */
bool fake_store_writes(struct fake *f, uint32_t group, uint32_t phys);

/* ---- fake_tier.c ---- */
/* True when this frame is the destination of a copy that has not ended. */
bool fake_tier_writes(const struct fake *f, uint32_t group, uint32_t frame);

#endif
