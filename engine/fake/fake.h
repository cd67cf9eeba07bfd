/* A backend without a model, for tests of the scheduler and the server: the "KV" of position p is a 64-bit
 * hash of the tokens 0..p, attention reads every slot through the block tables and checks it, and the next
 * token is a hash of the slots read (or follows a script). Any wrong block, early free, missed copy,
 * stale swap or leak between requests becomes a deterministic failure. An optional cost model advances the
 * fake clock per step.
 *
 * Each layer group has its own slots. In a group with a window W, a row at position p reads the
 * positions max(0, p - W + 1)..p. Physical numbers as in kvpool/arena.h; slots of the RAM tier are read
 * in place, those of the spill file only by spans that count them (n_staged).
 *
 * It also acts as the tier (fake_tier_*): it accepts copies between frames and slots and ends them when the
 * test asks for it, in any order, as succeeded or failed. Until a copy has ended its destination holds garbage,
 * and each token slot of the source is read either at the start or at the end of the copy, at random.
 *
 * Its slots are in memory that is accessible only inside the fake's own calls (fake_kv.c). Its kv_store moves
 * blocks of FAKE_SLOT_BYTES per token slot as bytes, so that they can be saved and restored in another process;
 * moves use all the freedom that kvpool/store.h gives.
 * Thread: as any backend, plus the test that drives it. */
#ifndef ENGINE_FAKE_FAKE_H
#define ENGINE_FAKE_FAKE_H

#include "engine/backend.h"
#include "kvpool/tier.h"

enum { FAKE_SLOT_BYTES = 24 };

struct fake_options {
    uint32_t n_vocab;
    /* Cost model in ns: each step advances the fake clock by base + row * n_rows + kv * positions
     * read; 0 = off. */
    uint64_t step_base_ns, step_row_ns, step_kv_ns;
    /* Not NULL: chooses the token instead of the hash; -1 means a row that is not finite. */
    int32_t (*script)(void *arg, const struct sample_job *job);
    void *script_arg;
    /* Not NULL: false = keys and values (logits) of a position with this tag are not finite. */
    bool (*kv_finite)(uint64_t chain);
    bool (*logits_finite)(uint64_t chain);
    uint32_t
        n_file[KV_MAX_GROUPS]; /* slots of the spill file; frames and RAM slots are the arena's */
    uint64_t
        first_step; /* the number before that of the first step; blocks of an earlier run have lower ones */
    /* True: a step and its copies of blocks run when they are collected or, at random, at any earlier call,
     * instead of when they are submitted: as late as engine/backend.h allows. */
    bool runs_late;
    uint32_t max_jobs; /* limit of copies in flight; 0 = no tier */
    /* False: a copy ends as soon as it is pushed. True: it ends when fake_tier_finish is called. */
    bool tier_waits;
    struct kv_tier_costs tier_costs; /* the result of fake_tier_costs */
};

/* arena: the number of blocks; the memory is the fake's own (be->kv). */
enum status fake_backend_new(const struct kv_arena *arena, const struct kv_layout *layout,
                             struct backend_limits limits, const struct fake_options *o,
                             struct backend **out, struct err *e);
/* The token that the fake returns after history[0..n), for the reference runs of tests. Valid for temperature 0
 * without bans. */
int32_t fake_next_token(const int32_t *history, uint32_t n, uint32_t n_vocab);
/* The same for any job (params, choice, ban); with a temperature above 0, seed and choice matter. */
int32_t fake_job_token(const struct sample_job *job, uint32_t n_vocab);
/* The tag of position n - 1, and the tag of a history that is one token longer. */
uint64_t fake_chain(const int32_t *history, uint32_t n);
uint64_t fake_chain_next(uint64_t chain, int32_t token);
/* The same as fake_job_token, for a history with a known tag. */
int32_t fake_chain_token(const struct sample_job *job, uint64_t chain, uint32_t n_vocab);
/* The logprob that the fake reports for a token after a history (an invented number below 0). */
float fake_logprob(const int32_t *history, uint32_t n, int32_t token);
float fake_chain_logprob(uint64_t chain, int32_t token);
uint64_t fake_steps(const struct backend *be);
uint64_t fake_tag_mismatches(const struct backend *be); /* must stay 0 */
const char *fake_mismatch(const struct backend *be); /* description of the first one, "" none */
/* The next n submitted steps fail with ERR_INTERNAL, after garbage was written to their slots. */
void fake_fail_steps(struct backend *be, uint32_t n);
/* The next n spans with staged blocks cannot read them: `lost`, and their slots hold garbage. */
void fake_fail_reads(struct backend *be, uint32_t n);
/* The next n moves of the store fail when they are waited for: their destinations stay garbage. */
void fake_fail_moves(struct backend *be, uint32_t n);
/* A free block's content must never be read: a test overwrites n blocks from first on, and later reads are
 * mismatches. */
void fake_poison(struct backend *be, uint32_t group, uint32_t first, uint32_t n);
/* Called at the start of each step, for tests that examine the batch. */
void fake_set_watch(struct backend *be, void (*watch)(void *arg, const struct batch *b), void *arg);
/* Called between a step's submit and its collect; simulates actions of other threads. */
void fake_set_meanwhile(struct backend *be, void (*meanwhile)(void *arg), void *arg);

/* ---- the tier; be is a fake with max_jobs > 0 ---- */
uint32_t fake_tier_room(const struct backend *be);
bool fake_tier_push(struct backend *be,
                    const struct kv_job *job); /* false: max_jobs copies are in flight */
bool fake_tier_pop(struct backend *be, struct kv_done *done);
struct kv_tier_costs fake_tier_costs(const struct backend *be);
uint32_t fake_tier_flying(const struct backend *be); /* copies that have not ended */
/* Ends the i-th of them, in the order of their start. ok: false = its destination stays garbage. */
void fake_tier_finish(struct backend *be, uint32_t i, bool ok);

#endif
