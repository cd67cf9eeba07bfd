/* A view into the sampler for tests: the candidates left by the filters. */
#ifndef ENGINE_SAMPLE_KEPT_H
#define ENGINE_SAMPLE_KEPT_H

#include <stdint.h>

#include "engine/sample/sampler.h"

/* Tokens (ascending) and their unnormalised probabilities after penalties, temperature and filters, in
 * the scratch's memory; 0 when the row leaves nothing to draw from. The temperature is not 0. */
uint32_t sample_kept(const struct sample_job *job, const float *logits, uint32_t n_vocab,
                     struct sample_scratch *s, const uint32_t **id, const float **p);

#endif
