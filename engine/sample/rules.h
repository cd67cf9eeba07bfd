/* Changes to a row of logits that look at token lists and at the history: allowed tokens, bad words, DRY.
 * Thread: any; nothing is allocated. */
#ifndef ENGINE_SAMPLE_RULES_H
#define ENGINE_SAMPLE_RULES_H

#include "engine/sample/sampler.h"

/* Bans every token of x[n] that is not in params.allowed. room: [n] floats. */
void rules_allow(const struct sampling_params *p, float *x, uint32_t n, float *room);
/* Bans the last token of each bad word whose other tokens end the output. */
void rules_bad_words(const struct sample_job *job, float *x, uint32_t n);
/* The DRY penalty. match: [cap] numbers; longest: [n], all 0 before and after. The penalty sees at most cap tokens of the
 * history, from the end. */
void rules_dry(const struct sample_job *job, float *x, uint32_t n, uint32_t *match, uint32_t cap,
               uint32_t *longest);

#endif
