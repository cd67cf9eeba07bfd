/* Small vector functions shared by the *_avx2.c files (with internal linkage, so that no code compiled for
 * AVX2 can be linked into code that runs on other machines). */
#ifndef ENGINE_CPU_AVX2_SIMD_AVX2_H
#define ENGINE_CPU_AVX2_SIMD_AVX2_H

/* GCC's scalar replacement and reassociation reorder the unrolled loops so that many more values are live than
 * fit into 16 registers: the spills made 8-bit products a third slower. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-ter", "no-tree-reassoc")
#endif

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE float hmax8(__m256 v)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

INLINE float hsum8(__m256 v)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

/* e^x to about 1 ulp: x = n ln 2 + r, polynomial in r (Cephes coefficients). Below -87.3 it is 0,
 * above 88 it is e^88; NaN stays NaN (operand order of min and max). */
INLINE __m256 exp8(__m256 x)
{
    const __m256 low = _mm256_set1_ps(-87.3f);
    __m256 zero = _mm256_cmp_ps(x, low, _CMP_LT_OQ);
    x = _mm256_min_ps(_mm256_set1_ps(88), _mm256_max_ps(low, x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1)));
    __m256i scale = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), scale));
    return _mm256_andnot_ps(zero, p);
}

#endif
