/* A backend without a model, for tests of scheduler and server: the "KV" of a position is a 64-bit
 * hash of the tokens 0..p, attention reads every slot through the block table and checks it, the next
 * token is a hash of what it read (or follows a script). Any wrong block, early free, missed copy or
 * leak across requests becomes a deterministic failure. Optional cost model advances the fake clock
 * per step. Thread: as any backend, plus the test that drives it. */
#ifndef ENGINE_FAKE_FAKE_H
#define ENGINE_FAKE_FAKE_H

#include "engine/backend.h"

struct fake_options {
    uint32_t n_vocab;
    /* Cost model in ns: each step advances the fake clock by base + row * n_rows + kv * positions
     * read. 0 = off. */
    uint64_t step_base_ns, step_row_ns, step_kv_ns;
    /* Not NULL: chooses the token in place of the hash; -1 stands for a row that is not finite. */
    int32_t (*script)(void *arg, const struct sample_job *job);
    void *script_arg;
};

enum status fake_backend_new(struct kv_arena *arena, const struct kv_layout *layout,
                             struct backend_limits limits, const struct fake_options *o,
                             struct backend **out, struct err *e);
/* What the fake returns after history[0..n): for tests' reference runs. Holds for temperature 0 and
 * without bans. */
int32_t fake_next_token(const int32_t *history, uint32_t n, uint32_t n_vocab);
/* The same for any job (params, choice, ban): temperature above 0 makes seed and choice count. */
int32_t fake_job_token(const struct sample_job *job, uint32_t n_vocab);
/* Logprob that the fake reports for a token after a history (a made-up number below 0). */
float fake_logprob(const int32_t *history, uint32_t n, int32_t token);
uint64_t fake_steps(const struct backend *be);
uint64_t fake_tag_mismatches(const struct backend *be); /* must stay 0 */
/* The next n submitted steps fail with ERR_INTERNAL. */
void fake_fail_steps(struct backend *be, uint32_t n);
/* What stands in a free block is never to be read: a test wipes it, later reads are mismatches. */
void fake_poison(struct backend *be, uint32_t block);
/* Called at the start of each step, for tests that look at the batch. */
void fake_set_watch(struct backend *be, void (*watch)(void *arg, const struct batch *b), void *arg);

#endif
