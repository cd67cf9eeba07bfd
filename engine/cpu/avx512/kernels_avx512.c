/* The table of the AVX-512 level, and its 15-bit quantising. Where the level has no kernel of its own it uses
 * AVX2's: those passes are short, or bound by one chain of dependent operations. */
#include "engine/cpu/avx512/kernels_avx512.h"

#include "config/settings.h"
#include "engine/cpu/avx2/kernels_avx2.h"
#include "engine/cpu/avx512/simd_avx512.h"

static const struct pack_format pack_16_rows = {.rows = 16, .byte_bias = 128};

static uint32_t form(enum pack_kind kind, int activations_setting)
{
    if (kind >= PACK_F32 || activations_setting == SET_ACT_F32)
        return ACT_F32;
    return activations_setting == SET_ACT_INT16 ? ACT_HL : ACT_Q32;
}

/* Largest lane of magnitudes as bits, so that NaN wins. */
INLINE float top16(__m512i v)
{
    __m256i a = _mm256_max_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(b));
}

INLINE int isum16(__m512i v)
{
    __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1));
    return _mm_cvtsi128_si32(b);
}

static void quantise_hl(const float *x, uint32_t n, uint8_t *out)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), half = _mm512_set1_epi32(128);
    struct act_hl *a = (struct act_hl *)out;
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
        __m512i m[2];
        int64_t sum = 0; /* NaN gives any number of int */
        UNROLL for (int h = 0; h < 2; h++) m[h] =
            _mm512_and_si512(_mm512_castps_si512(v[h]), magnitude);
        float top = top16(_mm512_max_epi32(m[0], m[1]));
        a->d = top * (1 / HL_LARGEST);
        __m512 inverse = _mm512_set1_ps(a->d >= Q32_LEAST_SCALE ? HL_LARGEST / top : 0);
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v[h], inverse));
            __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, half), 8);
            __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 8));
            _mm_storeu_si128((__m128i *)(a->high + 16 * h), _mm512_cvtepi32_epi8(high));
            _mm_storeu_si128((__m128i *)(a->low + 16 * h), _mm512_cvtepi32_epi8(low));
            sum += isum16(q);
            a->sum[h] = a->d * (float)sum;
            a->bias[h] = (int32_t)(-128 * sum);
        }
    }
}

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .revision = 2,
    .format = &pack_16_rows,
    .act_bytes = {sizeof(struct act_q32), sizeof(struct act_hl), sizeof(struct act_f32)},
    .quantise = {quantise_q32_avx2, quantise_hl, quantise_f32_avx2},
    .form = form,
    .matmul = {matmul_q32_avx512, matmul_hl_avx512, matmul_f32_avx512},
    .row = &row_passes_avx2,
    .rms_norm = rms_norm_avx2,
    .swiglu = swiglu_avx2,
    .geglu = geglu_avx2,
    .add = add_avx2,
    .rope = rope_avx2,
    .kv_store = kv_store_avx2,
    .kv_rotate = kv_rotate_avx2,
    .attend = attend_avx512,
};
