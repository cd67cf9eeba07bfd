/* AVX-512 on a machine that has only AVX2, for tests. Included before a file of engine/cpu/avx512/, it provides the
 * intrinsics from Debian's libsimde-dev, emulates those that version 0.7.4 lacks in two halves, and renames the
 * file's exports. SIMDe has already included immintrin.h, so the file's own include adds nothing. */
#ifndef TESTS_EMULATE_SIMDE512_H
#define TESTS_EMULATE_SIMDE512_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#include <string.h>

#define attend_avx512 attend_emulated_avx512
#define kernels_avx512 kernels_emulated_avx512
#define matmul_q32_avx512 matmul_q32_emulated_avx512
#define matmul_hl_avx512 matmul_hl_emulated_avx512
#define matmul_f32_avx512 matmul_f32_emulated_avx512

static inline __m256i emulated_half(__m512i v, int h)
{
    __m256i half[2];
    memcpy(half, &v, sizeof v);
    return half[h];
}

static inline __m256 emulated_half_ps(__m512 v, int h)
{
    __m256 half[2];
    memcpy(half, &v, sizeof v);
    return half[h];
}

static inline __m512i emulated_join(__m256i low, __m256i high)
{
    __m256i half[2] = {low, high};
    __m512i v;
    memcpy(&v, half, sizeof v);
    return v;
}

static inline __m512 emulated_join_ps(__m256 low, __m256 high)
{
    __m256 half[2] = {low, high};
    __m512 v;
    memcpy(&v, half, sizeof v);
    return v;
}

static inline __m128i emulated_cvtepi32_epi8(__m512i v)
{
    int32_t x[16];
    uint8_t b[16];
    __m128i out;
    memcpy(x, &v, sizeof v);
    for (int i = 0; i < 16; i++)
        b[i] = (uint8_t)x[i];
    memcpy(&out, b, sizeof out);
    return out;
}

static inline __m512 emulated_cvtepi32_ps(__m512i v)
{
    return emulated_join_ps(_mm256_cvtepi32_ps(emulated_half(v, 0)),
                            _mm256_cvtepi32_ps(emulated_half(v, 1)));
}

static inline __m512i emulated_cvtps_epi32(__m512 v)
{
    return emulated_join(_mm256_cvtps_epi32(emulated_half_ps(v, 0)),
                         _mm256_cvtps_epi32(emulated_half_ps(v, 1)));
}

static inline __m512 emulated_cvtph_ps(__m256i v)
{
    return emulated_join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}

static inline __m512i emulated_cvtepi8_epi32(__m128i v)
{
    return emulated_join(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}

static inline __m512i emulated_cvtepu16_epi32(__m256i v)
{
    return emulated_join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                         _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)));
}

static inline __m512i emulated_srai_epi32(__m512i v, unsigned n)
{
    return emulated_join(_mm256_srai_epi32(emulated_half(v, 0), (int)n),
                         _mm256_srai_epi32(emulated_half(v, 1), (int)n));
}

#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulated_cvtph_ps
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#undef _mm512_srai_epi32
#define _mm512_srai_epi32 emulated_srai_epi32

#endif
