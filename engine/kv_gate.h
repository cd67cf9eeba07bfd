/* Loss of quality of a KV type for a model: KL and agreement of the first choice against f16 on a built-in text.
 * Called by engine.c at load; uses the device's workers. */
#ifndef ENGINE_KV_GATE_H
#define ENGINE_KV_GATE_H

#include "base/status.h"
#include "engine/device.h"
#include "engine/text/text.h"

struct kv_gate {
    double kl; /* mean over positions, nats */
    double top1; /* share of positions with the same most likely token */
    uint32_t n_positions;
    uint64_t ns; /* time taken to measure */
};

/* Above (below) these, the loss is reported as a warning. */
#define KV_GATE_MAX_KL 0.003
#define KV_GATE_MIN_TOP1 0.97
enum { KV_GATE_FEW_POSITIONS = 100 }; /* with fewer, the share of first choices is not meaningful */

/* Runs about 200 tokens with each type; half as many where that takes longer than about a second, and fewer only
 * where it takes longer than about five. */
enum status kv_gate_run(struct device_model *m, const struct hparams *h,
                        const struct tokenizer *tok, const struct kv_layout *layout,
                        struct kv_gate *out, struct err *e);

#endif
