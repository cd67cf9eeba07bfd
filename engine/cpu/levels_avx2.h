/* What the AVX2 files hand to the table in elementwise_avx2.c. */
#ifndef ENGINE_CPU_LEVELS_AVX2_H
#define ENGINE_CPU_LEVELS_AVX2_H

#include "engine/cpu/kernels.h"

extern kernel_matmul *const matmul_avx2[PACK_KINDS][ACT_FORMS];
void attend_avx2(const struct attend *a);
bool kv_store_avx2(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                   const float *k, const float *v);
void kv_rotate_avx2(float *x, uint32_t head_dim);

#endif
