/* A backend without a model, for tests of scheduler and server: the "KV" of a position is a 64-bit
 * hash of the tokens 0..p, attention reads every slot through the block table and checks it, the next
 * token is a hash of what it read (or follows a script). Any wrong block, early free or leak across
 * requests becomes a deterministic failure. Optional cost model advances the fake clock per step. */
#ifndef ENGINE_FAKE_FAKE_H
#define ENGINE_FAKE_FAKE_H

#include "engine/backend.h"

struct fake_options {
    uint32_t n_vocab;
    /* Cost model in ns: each step advances the fake clock by base + row * n_rows. 0 = off. */
    uint64_t step_base_ns, step_row_ns;
};

enum status fake_backend_new(struct kv_arena *arena, const struct kv_layout *layout,
                             struct backend_limits limits, const struct fake_options *o,
                             struct backend **out, struct err *e);
/* What the fake returns after history[0..n): for tests' reference runs. */
int32_t fake_next_token(const int32_t *history, uint32_t n, uint32_t n_vocab);
uint64_t fake_steps(const struct backend *be);
uint64_t fake_tag_mismatches(const struct backend *be); /* must stay 0 */

#endif
