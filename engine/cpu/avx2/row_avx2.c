/* AVX2: the passes over rows of logits that row_passes.h describes. */
#include <float.h>
#include <string.h>

#include "engine/cpu/avx2/kernels_avx2.h"
#include "engine/cpu/avx2/simd_avx2.h"
#include "engine/sample/row.h"
#include "engine/sample/row_passes.h"

enum { LANES = 8 };

INLINE __m256 exp2_lanes(__m256 y)
{
    const __m256 round = _mm256_set1_ps(12582912.0f); /* 1.5 * 2^23: adding it rounds */
    __m256 t = _mm256_add_ps(y, round);
    __m256 r = _mm256_sub_ps(y, _mm256_sub_ps(t, round));
    __m256 p = _mm256_set1_ps(ROW_EXP2_HIGHEST);
#define TERM(c) p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(c));
    ROW_EXP2_REST(TERM)
#undef TERM
    __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                     _mm256_set1_epi32(127 << 23));
    __m256 x = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
    return _mm256_and_ps(x, _mm256_cmp_ps(y, _mm256_set1_ps(-126.0f), _CMP_GE_OQ));
}

INLINE __m256 term(const float *p, __m256 max, __m256 s)
{
    return exp2_lanes(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(p), max), s));
}

/* The maximum does not propagate a NaN; the comparison detects it. */
static bool scan(const float *x, uint32_t n_blocks, float *block_max)
{
    const __m256 top = _mm256_set1_ps(FLT_MAX);
    __m256 good = _mm256_cmp_ps(top, top, _CMP_EQ_OQ);
    for (uint32_t b = 0; b < n_blocks; b++, x += ROW_BLOCK) {
        __m256 m[2] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + LANES)};
        UNROLL for (int j = 0; j < 2; j++) good =
            _mm256_and_ps(good, _mm256_cmp_ps(m[j], top, _CMP_LE_OQ));
        UNROLL for (uint32_t i = 2; i < ROW_BLOCK / LANES; i++)
        {
            __m256 v = _mm256_loadu_ps(x + i * LANES);
            good = _mm256_and_ps(good, _mm256_cmp_ps(v, top, _CMP_LE_OQ));
            m[i % 2] = _mm256_max_ps(v, m[i % 2]);
        }
        block_max[b] = hmax8(_mm256_max_ps(m[0], m[1]));
    }
    return _mm256_movemask_ps(good) == 0xff;
}

static float block_sum(const float *block, float max, float s)
{
    const __m256 m = _mm256_set1_ps(max), k = _mm256_set1_ps(s);
    __m256 sum = term(block, m, k);
    UNROLL for (uint32_t i = 1; i < ROW_BLOCK / LANES; i++) sum =
        _mm256_add_ps(sum, term(block + i * LANES, m, k));
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    half = _mm_add_ps(half, _mm_movehdup_ps(half)); /* (0 + 1), and in lane 2 (2 + 3) */
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehl_ps(half, half)));
}

static void exp_row(const float *x, uint32_t n, float max, float s, float *p)
{
    const __m256 m = _mm256_set1_ps(max), k = _mm256_set1_ps(s);
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(p + i, term(x + i, m, k));
    if (i < n) {
        float rest[LANES] = {max, max, max, max, max, max, max, max};
        memcpy(rest, x + i, (n - i) * sizeof(float));
        _mm256_storeu_ps(rest, term(rest, m, k));
        memcpy(p + i, rest, (n - i) * sizeof(float));
    }
}

const struct row_passes row_passes_avx2 = {.scan = scan, .block_sum = block_sum, .exp = exp_row};
