/* AVX2: quantising activations, RMSNorm, SwiGLU, sums; and the level's table. */
#include "engine/cpu/avx2/kernels_avx2.h"

#include <math.h>

#include "engine/cpu/avx2/simd_avx2.h"

/* ---- quantising ---- */

INLINE __m256i magnitude(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

/* Largest magnitude of 8 lanes of non-negative float bits: compared as integers, so NaN wins. */
INLINE float top8(__m256i v)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(a));
}

INLINE int isum8(__m256i v)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1));
    return _mm_cvtsi128_si32(a);
}

/* Largest lane in all lanes. */
INLINE __m256i spread_top8(__m256i v)
{
    v = _mm256_max_epi32(v, _mm256_permute2x128_si256(v, v, 1));
    v = _mm256_max_epi32(v, _mm256_shuffle_epi32(v, 0x4e));
    return _mm256_max_epi32(v, _mm256_shuffle_epi32(v, 0xb1));
}

/* Largest magnitude of each quad of 32 inputs, as bits. */
INLINE __m256i top_of_quads(const __m256 v[4])
{
    __m256i m[4];
    UNROLL for (int g = 0; g < 4; g++) m[g] = magnitude(v[g]);
    __m256i a =
        _mm256_max_epi32(_mm256_unpacklo_epi32(m[0], m[1]), _mm256_unpackhi_epi32(m[0], m[1]));
    __m256i b =
        _mm256_max_epi32(_mm256_unpacklo_epi32(m[2], m[3]), _mm256_unpackhi_epi32(m[2], m[3]));
    a = _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The first lane that holds the largest value; removes it from tops. */
INLINE uint16_t take_top(__m256i *tops)
{
    __m256i is = _mm256_cmpeq_epi32(*tops, spread_top8(*tops));
    int lane = __builtin_ctz((uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is)));
    __m256i at =
        _mm256_cmpeq_epi32(_mm256_set1_epi32(lane), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    *tops = _mm256_or_si256(*tops, at); /* -1, below any magnitude */
    return (uint16_t)lane;
}

/* Scale of a block: one digit must hold all quads except those with the largest inputs, and two digits must
 * hold these; tops as bits. */
INLINE float q32_scale(__m256i tops, uint16_t quad[2])
{
    float top = _mm_cvtss_f32(_mm_castsi128_ps(_mm256_castsi256_si128(spread_top8(tops))));
    quad[0] = take_top(&tops);
    quad[1] = take_top(&tops);
    float rest = _mm_cvtss_f32(_mm_castsi128_ps(_mm256_castsi256_si128(spread_top8(tops))));
    __m128 one = _mm_mul_ss(_mm_set_ss(rest), _mm_set_ss(1 / Q32_DIGIT));
    __m128 two = _mm_mul_ss(_mm_set_ss(top), _mm_set_ss(1 / Q32_TWO_DIGITS));
    return _mm_cvtss_f32(_mm_max_ss(one, two)); /* the second where it is NaN */
}

/* 32 integers as bytes; those of the largest quads as two digits. */
INLINE void q32_put(struct act_q32 *a, const __m256i q[4])
{
    int16_t wide[PACK_BLOCK];
    __m256i w0 = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xd8);
    __m256i w1 = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2], q[3]), 0xd8);
    _mm256_storeu_si256((__m256i *)wide, w0);
    _mm256_storeu_si256((__m256i *)(wide + 16), w1);
    _mm256_storeu_si256((__m256i *)a->q,
                        _mm256_permute4x64_epi64(_mm256_packs_epi16(w0, w1), 0xd8));
    __m128i of_quads =
        _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(wide + 4 * a->quad[0])),
                           _mm_loadl_epi64((const __m128i *)(wide + 4 * a->quad[1])));
    __m128i ex = _mm_srai_epi16(_mm_add_epi16(of_quads, _mm_set1_epi16(64)), 7);
    __m128i low = _mm_sub_epi16(of_quads, _mm_slli_epi16(ex, 7));
    __m128i bytes = _mm_packs_epi16(low, ex); /* low of the first, of the second, then ex */
    _mm_storeu_si32(a->q + 4 * a->quad[0], bytes);
    _mm_storeu_si32(a->q + 4 * a->quad[1], _mm_shuffle_epi32(bytes, 0x55));
    _mm_storel_epi64((__m128i *)a->ex, _mm_unpackhi_epi64(bytes, bytes));
}

void quantise_q32_avx2(const float *x, uint32_t n, uint8_t *out)
{
    struct act_q32 *a = (struct act_q32 *)out;
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        __m256 v[4];
        __m256i q[4];
        UNROLL for (int g = 0; g < 4; g++) v[g] = _mm256_loadu_ps(x + 8 * g);
        a->d = q32_scale(top_of_quads(v), a->quad);
        __m256 inverse = _mm256_set1_ps(a->d >= Q32_LEAST_SCALE ? 1 / a->d : 0);
        UNROLL for (int g = 0; g < 4; g++) q[g] = _mm256_cvtps_epi32(_mm256_mul_ps(v[g], inverse));
        q32_put(a, q);
        int64_t first = isum8(_mm256_add_epi32(q[0], q[1])); /* NaN gives any number of int */
        int64_t all = first + isum8(_mm256_add_epi32(q[2], q[3]));
        a->sum[0] = a->d * (float)first;
        a->sum[1] = a->d * (float)all;
        a->bias[0] = (int32_t)(-128 * first);
        a->bias[1] = (int32_t)(-128 * all);
    }
}

static void quantise_i16(const float *x, uint32_t n, uint8_t *out)
{
    struct act_i16 *a = (struct act_i16 *)out;
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0,
                                           1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        __m256 v[4];
        __m256i m = _mm256_setzero_si256();
        UNROLL for (int i = 0; i < 4; i++)
        {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            m = _mm256_max_epi32(m, magnitude(v[i]));
        }
        float top = top8(m);
        __m256 inverse = _mm256_set1_ps(top > 0 ? 32767.0f / top : 0);
        a->d = top * (1 / 32767.0f);
        int64_t sum = 0; /* as above */
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * h], inverse));
            __m256i i1 = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * h + 1], inverse));
            sum += isum8(_mm256_add_epi32(i0, i1));
            a->sum[h] = a->d * (float)sum;
            __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(i0, i1), 0xd8);
            _mm256_storeu_si256((__m256i *)(a->q + 16 * h), _mm256_shuffle_epi8(w, order));
        }
    }
}

void quantise_f32_avx2(const float *x, uint32_t n, uint8_t *out)
{
    struct act_f32 *a = (struct act_f32 *)out;
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m256 v0 = _mm256_loadu_ps(x + 16 * h), v1 = _mm256_loadu_ps(x + 16 * h + 8);
            _mm256_storeu_ps(a->x + 16 * h, v0);
            _mm256_storeu_ps(a->x + 16 * h + 8, v1);
            a->sum[h] = hsum8(_mm256_add_ps(v0, v1));
        }
        a->sum[1] += a->sum[0];
    }
}

/* ---- norms and gates ---- */

void rms_norm_avx2(const float *x, const float *weight, float eps, uint32_t n, float *out)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 v0 = _mm256_loadu_ps(x + i), v1 = _mm256_loadu_ps(x + i + 8);
        s0 = _mm256_fmadd_ps(v0, v0, s0);
        s1 = _mm256_fmadd_ps(v1, v1, s1);
    }
    float sum = hsum8(_mm256_add_ps(s0, s1));
    for (; i < n; i++)
        sum += x[i] * x[i];
    float scale = 1 / sqrtf(sum / (float)n + eps);
    __m256 s = _mm256_set1_ps(scale);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s),
                                                _mm256_loadu_ps(weight + i)));
    for (; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

void swiglu_avx2(const float *gate, const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 g = _mm256_loadu_ps(gate + i);
        __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), g));
        __m256 s = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1), e));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(s, _mm256_loadu_ps(up + i)));
    }
}

void geglu_avx2(const float *gate, const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 g = _mm256_loadu_ps(gate + i);
        __m256 y = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
        y = _mm256_fmadd_ps(y, _mm256_set1_ps(GELU_CUBIC), g);
        __m256 e = exp8(_mm256_mul_ps(y, _mm256_set1_ps(-GELU_SLOPE)));
        __m256 s = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1), e));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(s, _mm256_loadu_ps(up + i)));
    }
}

void add_avx2(float *x, const float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

/* ---- rotation and the KV cache ---- */

/* One pair as the vector code rounds it: FMA of one product onto the other. */
INLINE void rotate(float *a, float *b, float c, float s, float scale)
{
    float x0 = *a, x1 = *b;
    *a = fmaf(x0, c, -(x1 * s)) * scale;
    *b = fmaf(x1, c, x0 * s) * scale;
}

void rope_avx2(float *x, const float *cos_sin, uint32_t head_dim, uint32_t rope_dims, bool neox,
               float scale)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256 k = _mm256_set1_ps(scale);
    const uint32_t half = rope_dims / 2;
    const float *cosine = cos_sin, *sine = cos_sin + half;
    uint32_t i = 0;
    if (neox) {
        for (; i + 8 <= half; i += 8) {
            __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
            __m256 c = _mm256_loadu_ps(cosine + i), s = _mm256_loadu_ps(sine + i);
            _mm256_storeu_ps(x + i, _mm256_mul_ps(k, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s))));
            _mm256_storeu_ps(x + half + i,
                             _mm256_mul_ps(k, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s))));
        }
    } else {
        for (; i + 4 <= half; i += 4) {
            __m256 c =
                _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cosine + i)), twice);
            __m256 s =
                _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sine + i)), twice);
            __m256 v = _mm256_loadu_ps(x + 2 * i);
            __m256 cross = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), s);
            _mm256_storeu_ps(x + 2 * i, _mm256_mul_ps(k, _mm256_fmaddsub_ps(v, c, cross)));
        }
    }
    for (; i < half; i++) {
        if (neox)
            rotate(x + i, x + half + i, cosine[i], sine[i], scale);
        else
            rotate(x + 2 * i, x + 2 * i + 1, cosine[i], sine[i], scale);
    }
    for (i = rope_dims; i < head_dim; i++)
        x[i] *= scale;
}

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .revision = 2,
    .format = &pack_8_rows,
    .act_bytes = {sizeof(struct act_q32), sizeof(struct act_i16), sizeof(struct act_f32)},
    .quantise = {quantise_q32_avx2, quantise_i16, quantise_f32_avx2},
    .form = act8_form,
    .matmul = {matmul_avx2[ACT_Q32], matmul_avx2[ACT_I16], matmul_avx2[ACT_F32]},
    .row = &row_passes_avx2,
    .rms_norm = rms_norm_avx2,
    .swiglu = swiglu_avx2,
    .geglu = geglu_avx2,
    .add = add_avx2,
    .rope = rope_avx2,
    .kv_store = kv_store_avx2,
    .kv_rotate = kv_rotate_avx2,
    .attend = attend_avx2,
};
