/* The AVX2 level, for the table of levels; the rest is what its files hand to its table. */
#ifndef ENGINE_CPU_AVX2_KERNELS_AVX2_H
#define ENGINE_CPU_AVX2_KERNELS_AVX2_H

#include "engine/cpu/c/act8.h"

extern const struct kernels kernels_avx2;

extern kernel_matmul *const matmul_avx2[PACK_KINDS][KERNEL_FORMS];
extern const struct row_passes row_passes_avx2;
void attend_avx2(const struct attend *a);
bool kv_store_avx2(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                   const float *k, const float *v);
void kv_rotate_avx2(float *x, uint32_t head_dim);

#endif
