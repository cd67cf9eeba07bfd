/* The step-level door to a device: submit a batch, collect its results, copy KV blocks.
 *
 * Implementations: engine/cpu (all of a step inside submit) and engine/fake (tests); a new one begins in
 * engine/device.h. One thread (the engine thread) calls it.
 *
 * Order. Steps and copies (copy_block) take effect in the order in which they are submitted, each as if it
 * were over before the next begins: a step reads what the ones before it wrote. When a step or copy runs is
 * the device's choice, any time from its submit to the return of collect for that step (a copy's: for the
 * next step). Hence, until collect has returned it,
 *   1. a step's batch and what that borrows stay as they are;
 *   2. blocks that it reads are written, and blocks that it writes are read or written, by nothing but later
 *      steps and copies;
 *   3. its results are not there.
 * Up to BACKEND_MAX_FLIGHT steps are in flight; tickets are collected oldest first, each exactly once. So
 * S1 S2 C1 C2 and S1 C1 S2 C2 are sequences that callers may make; S1 S2 C2 and S1 S2 S3 are faults of theirs.
 * Moves of blocks (kv, kvpool/store.h) are in no order with steps: rule 2 holds for them too.
 * A failed step says so in submit, which then gave no ticket, or in collect; the slots that it was to write
 * hold anything, and other steps run as if nothing had happened. */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/batch.h"
#include "kvpool/store.h"

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

enum { BACKEND_MAX_FLIGHT = 2 };

struct backend_ops {
    /* Starts the step. */
    enum status (*submit)(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e);
    /* Waits for the step of this ticket, the oldest in flight; *b: its batch, with results filled in. */
    enum status (*collect)(struct backend *be, uint64_t ticket, struct batch **b, struct err *e);
    /* Copies block src of a layer group over frame dst (fork's open tail); src may be a RAM slot. */
    enum status (*copy_block)(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                              struct err *e);
    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
    struct kv_layout layout;
    struct kv_store
        *kv; /* borrows; outlives the backend; NULL: only sizes are wanted, no step is run */
    struct kv_tier *tier; /* borrows; where staged blocks are read; NULL: none; set by the caller */
    struct backend_limits limits;
    uint32_t n_vocab;
};

#endif
