/* What the AVX2 files hand to the table in elementwise_avx2.c. */
#ifndef ENGINE_CPU_LEVELS_AVX2_H
#define ENGINE_CPU_LEVELS_AVX2_H

#include "engine/cpu/kernels.h"

extern kernel_matmul *const matmul_avx2[PACK_KINDS][ACT_FORMS];
void attend_avx2(const struct attend *a);

#endif
