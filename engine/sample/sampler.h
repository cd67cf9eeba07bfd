/* Chooses the next token from a row of logits.
 *
 * Order of processors (documented, tested): raw log-probabilities are taken first (for logprobs:
 * of the raw model distribution); then logit_bias, allowed tokens, bans (min_tokens), bad words, the grammar's
 * mask, repetition penalty (prompt and output), presence and frequency penalty (output only), DRY (prompt and
 * output), temperature, top_n_sigma, top_k, typical_p, top_p, min_p, XTC, draw.
 * temperature 0 (and anything below 1e-5) is greedy: highest logit, the lowest id on a tie.
 *   logit_bias          added; -100 and below ban
 *   allowed             bans all other tokens
 *   bad                 bans the last token of a bad word when the output ends with the ones before it
 *   repetition_penalty  x > 0 ? x / r : x * r, once for each token that occurs
 *   presence, frequency x - presence - frequency * count
 *   penalty_last_n      the penalties see only so many tokens at the end of the history
 *   DRY                 a token that would lengthen a repetition: x - multiplier * base^(n - allowed_length), where
 *                       the n >= allowed_length last tokens occurred before, followed by this token (the largest n;
 *                       it counts no token at or before the last breaker)
 *   top_n_sigma         logits at least the highest one minus n standard deviations of the finite logits (which
 *                       the temperature does not change)
 *   top_k               the k highest logits, ties by ascending id
 *   typical_p           of what is left, renormalised: the fewest tokens, those first whose -log p is nearest
 *                       to the entropy, whose probabilities reach p
 *   top_p               of what is left, renormalised: the fewest tokens, highest first, whose
 *                       probabilities reach p (a token stays when those before it sum to less than p)
 *   min_p               probability at least min_p times the highest one that is left
 *   XTC                 with the probability xtc_probability: of the tokens whose share of what is left is at
 *                       least xtc_threshold, all but the least likely go (the highest id of equal ones stays)
 * A row with nothing left to choose from gives no token: the result gives the reason, and the caller ends the
 * request. A banned token is never chosen.
 * The draw is a pure function of (logits, params, seed, choice, n_output): a counter-based RNG
 * (Philox4x32-10) keyed by the seed and counted by (choice, n_output), so it never depends on other rows of the batch.
 * No state lives between steps: penalties are recounted from the history.
 * Thread: any; a struct sample_scratch per thread. No allocation in sample_run. */
#ifndef ENGINE_SAMPLE_SAMPLER_H
#define ENGINE_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLE_MAX_TOP = 20 };

/* Results instead of a token. */
enum {
    SAMPLE_BAD_LOGITS = -1, /* the row holds NaN or +Inf, or nothing but -Inf */
    SAMPLE_ALL_BANNED = -2 /* biases, bans and penalties leave no token */
};

struct logit_bias {
    int32_t token;
    float bias; /* -100..100; <= -100 bans */
};

struct sampling_params {
    float temperature; /* >= 0; 0 = greedy */
    float top_p; /* (0, 1]; 1 = off */
    float min_p; /* [0, 1]; 0 = off */
    int32_t top_k; /* <= 0 = off */
    float presence_penalty; /* -2..2; 0 = off */
    float frequency_penalty; /* -2..2; 0 = off */
    float repetition_penalty; /* > 0; 1 = off */
    uint32_t penalty_last_n; /* 0 = all of the history */
    float top_n_sigma; /* <= 0 = off */
    float typical_p; /* (0, 1); else off */
    float xtc_probability, xtc_threshold; /* probability <= 0 = off */
    uint64_t seed;
    const struct logit_bias *bias; /* borrows from the request; ascending tokens, unique */
    uint32_t n_bias;
    const int32_t *allowed; /* borrows likewise; NULL: all */
    uint32_t n_allowed;
    const int32_t
        *bad; /* borrows likewise: for each bad word its number of tokens (>= 1), then these */
    uint32_t n_bad; /* numbers in it */
    float dry_multiplier; /* <= 0 = off */
    float dry_base; /* >= 1 */
    uint32_t dry_allowed_length; /* >= 1 */
    uint32_t dry_last_n; /* 0 = all of the history, at most n_vocab tokens */
    const uint32_t *dry_breakers; /* borrows likewise: a bit per token */
    int32_t n_top; /* -1: no logprobs; 0..20: logprob of the token and n_top alternatives */
};

struct gram_match;

/* One row to sample. The caller fills the first part; sample_run the second. */
struct sample_job {
    const struct sampling_params *params;
    const int32_t *history; /* prompt then output, borrows until the step retires */
    uint32_t n_prompt;
    uint32_t n_history;
    uint32_t choice; /* index among n */
    const int32_t *ban; /* tokens that must not be drawn now (end tokens before min_tokens) */
    uint32_t n_ban;
    const struct gram_match
        *match; /* only tokens that continue this match may be drawn; NULL: any. Borrows */
    uint32_t *mask; /* with match: a buffer of one bit per token. Borrows */
    int32_t given; /* >= 0: do not draw, only report this token's logprobs (echo); else -1 */

    int32_t token; /* chosen (or given), or SAMPLE_BAD_LOGITS, SAMPLE_ALL_BANNED */
    float logprob; /* of the raw distribution, when n_top >= 0 */
    int32_t top_token[SAMPLE_MAX_TOP];
    float top_logprob[SAMPLE_MAX_TOP]; /* descending, equal logits by ascending id */
    uint32_t n_top;
};

struct sample_scratch;
struct row_passes;
/* pass: the passes of the level in use (row_passes.h); borrows. */
struct sample_scratch *sample_scratch_new(uint32_t n_vocab, const struct row_passes *pass);
void sample_scratch_free(struct sample_scratch *s);

/* logits[n_vocab] is left unchanged. n_vocab is at most that of the scratch. The same bits in give the
 * same bits out on every machine: exponentials and logarithms are computed here, not by libm. */
void sample_run(struct sample_job *job, const float *logits, uint32_t n_vocab,
                struct sample_scratch *scratch);

/* Philox4x32-10 (Salmon et al. 2011): key and counter words from low to high, counter = (a, b) of two
 * words each. */
void philox4x32(uint64_t key, uint64_t a, uint64_t b, uint32_t out[4]);

#endif
