/* The AVX2 level, for the table of levels. The rest are functions that its files provide to its table and to the
 * tables of levels built on it. */
#ifndef ENGINE_CPU_AVX2_KERNELS_AVX2_H
#define ENGINE_CPU_AVX2_KERNELS_AVX2_H

#include "engine/cpu/c/act8.h"

extern const struct kernels kernels_avx2;

extern kernel_matmul *const matmul_avx2[KERNEL_FORMS][PACK_KINDS];
extern const struct row_passes row_passes_avx2;
void quantise_q32_avx2(const float *x, uint32_t n, uint8_t *out);
void quantise_f32_avx2(const float *x, uint32_t n, uint8_t *out);
void rms_norm_avx2(const float *x, const float *weight, float eps, uint32_t n, float *out);
void swiglu_avx2(const float *gate, const float *up, uint32_t n, float *out);
void geglu_avx2(const float *gate, const float *up, uint32_t n, float *out);
void add_avx2(float *x, const float *y, uint32_t n);
void rope_avx2(float *x, const float *cos_sin, uint32_t head_dim, uint32_t rope_dims, bool neox,
               float scale);
void attend_avx2(const struct attend *a);
bool kv_store_avx2(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                   const float *k, const float *v);
void kv_rotate_avx2(float *x, uint32_t head_dim);

#endif
