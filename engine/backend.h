/* The step-level door to a device: submit a batch, collect its results, copy KV blocks.
 *
 * Implementations: engine/cpu (synchronous inside submit), engine/fake (tests), later cuda/.
 * One thread (the engine thread) calls it. Tickets complete in order. A failed step reports an error
 * from collect and leaves other steps alone. */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/batch.h"
#include "kvpool/arena.h"

struct backend;
struct kv_tier;

/* What a device says of itself; the banner, `inspect`, `plan` and the metrics print it as it stands. */
struct device_info {
    char name[16]; /* of its row, for instance "cpu" */
    char level[32]; /* what of it computes, one word, for instance "avx2": a label of metrics */
    char text[128]; /* one line for people */
    char numerics
        [64]; /* all that decides the bits of KV beside the model: enters digests of files */
    uint64_t weight_bytes; /* resident after loading; 0 before */
    uint64_t scratch_bytes; /* of the backend; 0 before there is one */
};

struct backend_limits {
    uint32_t max_rows; /* rows a step */
    uint32_t max_spans;
    uint32_t max_outs;
    uint32_t max_staged; /* n_staged over a batch's spans together; 0: no staging */
};

struct backend_ops {
    /* Starts the step; b (but its results) stays untouched by the caller until collect returns it. */
    enum status (*submit)(struct backend *be, struct batch *b, struct err *e);
    /* Waits for the oldest submitted step; fills out[].job results; returns its batch in *b.
     * NULL in *b and OK when nothing is in flight. */
    enum status (*collect)(struct backend *be, struct batch **b, struct err *e);
    /* Copies block src of a layer group over block dst before any later step (fork's open tail). */
    enum status (*copy_block)(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                              struct err *e);
    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
    struct kv_layout layout;
    struct kv_arena *arena; /* borrows; outlives the backend */
    struct kv_tier *tier; /* borrows; where staged blocks are read; NULL: none; set by the caller */
    struct backend_limits limits;
    uint32_t n_vocab;
};

#endif
