/* Small vector functions shared by the files of this level (with internal linkage, so that no code compiled for
 * it can be linked into code that runs on other machines). */
#ifndef ENGINE_CPU_AVX512_SIMD_AVX512_H
#define ENGINE_CPU_AVX512_SIMD_AVX512_H

/* As in avx2/simd_avx2.h: these passes reorder unrolled loops so that values no longer fit into the registers. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-ter", "no-tree-reassoc")
#endif

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE __m512i spread4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

INLINE __m512i load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* 16 halves as floats. */
INLINE __m512 load_half16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* 16 signed bytes as floats. */
INLINE __m512 load_code16(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

#endif
