/* The step-level door to a device: submit a batch, collect its results, copy KV blocks.
 *
 * Implementations: engine/cpu (the whole step runs inside submit) and engine/fake (tests); to add one, start
 * with engine/device.h. Only the engine thread calls it.
 *
 * Order. Steps and copies (copy_block) take effect in the order in which they are submitted, each as if it
 * had ended before the next one starts: a step reads what earlier ones wrote. The device chooses when a step
 * or copy runs, at any time from its submit until collect returns that step (for a copy: the next step).
 * Hence, until collect has returned a step,
 *   1. its batch, and everything that the batch borrows, must not change;
 *   2. only later steps and copies may write the blocks that it reads, or read or write the blocks that it
 *      writes;
 *   3. its results are not available.
 * Up to BACKEND_MAX_FLIGHT steps are in flight; tickets are collected oldest first, each exactly once. Thus
 * callers may use the sequences S1 S2 C1 C2 and S1 C1 S2 C2; S1 S2 C2 and S1 S2 S3 are errors of the caller.
 * Moves of blocks (kv, kvpool/store.h) are not ordered with steps: rule 2 applies to them too.
 * A failed step is reported by submit, which then returns no ticket, or by collect; the content of the slots
 * that it should have written is undefined, and other steps run as if nothing had happened. */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/batch.h"
#include "kvpool/store.h"

struct backend;
struct kv_tier;

/* A device's description of itself; the banner, `inspect`, `plan` and the metrics print it verbatim. */
struct device_info {
    char name[16]; /* the name in its row, for instance "cpu" */
    char level[32]; /* the compute variant in one word, for instance "avx2": a label of metrics */
    char text[128]; /* one line for people */
    char numerics
        [64]; /* everything besides the model that determines the bits of KV; part of the digests of files */
    uint64_t weight_bytes; /* resident after loading; 0 before */
    uint64_t scratch_bytes; /* of the backend; 0 before it exists */
};

struct backend_limits {
    uint32_t max_rows; /* rows per step */
    uint32_t max_spans;
    uint32_t max_outs;
    uint32_t max_staged; /* n_staged summed over a batch's spans; 0: no staging */
};

enum { BACKEND_MAX_FLIGHT = 2 };

struct backend_ops {
    /* Starts the step. */
    enum status (*submit)(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e);
    /* Waits for the step of this ticket, the oldest in flight; *b: its batch, with results filled in. */
    enum status (*collect)(struct backend *be, uint64_t ticket, struct batch **b, struct err *e);
    /* Copies block src of a layer group over frame dst (a fork's open tail); src may be a RAM slot. */
    enum status (*copy_block)(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                              struct err *e);
    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
    struct kv_layout layout;
    struct kv_store
        *kv; /* borrows; outlives the backend; NULL: only sizes are needed, no step is run */
    struct kv_tier *tier; /* borrows; source of staged blocks; NULL: none; set by the caller */
    struct backend_limits limits;
    uint32_t n_vocab;
};

#endif
