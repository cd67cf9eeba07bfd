/* The plain level's functions for keys, values and attention, used by the table in kernels_c.c and by the vector
 * levels as fallbacks. Called by workers. */
#ifndef ENGINE_CPU_C_ATTENTION_C_H
#define ENGINE_CPU_C_ATTENTION_C_H

#include "engine/cpu/kernels.h"

void c_attend(const struct attend *a);
bool c_kv_store(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                const float *k, const float *v);
bool c_kv_store_k(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                  const float *k);
bool c_kv_store_v(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                  const float *v);
void c_kv_rotate(float *x, uint32_t head_dim);

/* The scale (f16) of a group with largest magnitude top, or with values in low..high (a range that includes 0),
 * and the factor to multiply values by. False when the scale is not finite. */
bool kv_scale_q8(float top, uint16_t *scale, float *inverse);
bool kv_scale_q4(float low, float high, uint16_t *scale, float *inverse);

/* Value of channel i of a slot; half: start of K or V in the unit. */
float c_kv_at(enum kv_dtype type, bool is_k, uint32_t dim, uint32_t n_slots, uint32_t slot,
              uint32_t i, const uint8_t *half);

#endif
