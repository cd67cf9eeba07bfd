/* The AVX-512 level (with VNNI), for the table of levels. The rest are functions that its files provide to it. */
#ifndef ENGINE_CPU_AVX512_KERNELS_AVX512_H
#define ENGINE_CPU_AVX512_KERNELS_AVX512_H

#include "engine/cpu/c/act8.h"

extern const struct kernels kernels_avx512;

/* The form used instead of ACT_I16: 15 bits as two signed bytes; input i is d * (256 * high[i] + low[i]). */
enum { ACT_HL = ACT_I16 };
struct act_hl {
    int8_t high[32], low[32];
    float d;
    float sum[2];
    int32_t bias[2]; /* as in act_q32 */
    int32_t unused[3];
};
#define HL_LARGEST 32512.0f /* 127 * 256: the largest high digit; low digits are within -127..127 */

/* The matrix products of a form, for every kind. */
extern kernel_matmul *const matmul_q32_avx512[PACK_KINDS];
extern kernel_matmul *const matmul_hl_avx512[PACK_KINDS];
extern kernel_matmul *const matmul_f32_avx512[PACK_KINDS];
void attend_avx512(const struct attend *a);

#endif
