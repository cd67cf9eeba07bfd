/* AVX2: writes a key and a value to their slot in every KV type, checks for values that are not
 * finite, and rotates for the quantised types. Stored bytes equal those of attention_c.c, which also handles
 * head sizes that are not a multiple of 8. Runs on workers. */
#include "engine/cpu/avx2/kernels_avx2.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/c/attention_c.h"
#include "engine/cpu/avx2/simd_avx2.h"

/* Destination of an element of K (stride n_slots from channel to channel) or V (stride 1) of a slot. */
struct target {
    uint8_t *half; /* K or V of the unit */
    uint32_t dim, n_slots, slot;
    bool is_k;
};

/* ---- 16-bit and 32-bit types ---- */

/* 8 floats as 16-bit values; *bad gets bits where one is infinite or NaN. */
INLINE __m128i to_16_bits(int type, __m256 x, __m128i *bad)
{
    __m128i h, exponent = _mm_set1_epi16(type == KV_F16 ? 0x7c00 : 0x7f80);
    if (type == KV_F16) {
        h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    } else {
        __m256i u = _mm256_castps_si256(x);
        __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
        __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
        __m256i top = _mm256_set1_epi32(0x7f800000);
        __m256i special = _mm256_cmpeq_epi32(_mm256_and_si256(u, top), top);
        __m256i cut = _mm256_cmpeq_epi32(_mm256_slli_epi32(u, 16), _mm256_setzero_si256());
        __m256i keep =
            _mm256_srli_epi32(u, 16); /* or-ed with 1 below where the low bits hold the NaN */
        keep = _mm256_or_si256(keep, _mm256_andnot_si256(cut, _mm256_set1_epi32(1)));
        up = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), keep, special);
        h = _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
    }
    *bad = _mm_or_si128(*bad, _mm_cmpeq_epi16(_mm_and_si128(h, exponent), exponent));
    return h;
}

INLINE bool store_16_bits(int type, const struct target *t, const float *x)
{
    __m128i bad = _mm_setzero_si128();
    uint16_t *to = (uint16_t *)(void *)t->half + (t->is_k ? t->slot : (size_t)t->slot * t->dim);
    for (uint32_t i = 0; i < t->dim; i += 8) {
        __m128i h = to_16_bits(type, _mm256_loadu_ps(x + i), &bad);
        if (!t->is_k) {
            _mm_storeu_si128((__m128i *)(void *)(to + i), h);
            continue;
        }
        uint16_t one[8];
        _mm_storeu_si128((__m128i *)(void *)one, h);
        for (uint32_t k = 0; k < 8; k++)
            to[(size_t)(i + k) * t->n_slots] = one[k];
    }
    return _mm_testz_si128(bad, bad);
}

INLINE bool store_f32(const struct target *t, const float *x)
{
    __m256i bad = _mm256_setzero_si256(), exponent = _mm256_set1_epi32(0x7f800000);
    float *to = (float *)(void *)t->half + (t->is_k ? t->slot : (size_t)t->slot * t->dim);
    for (uint32_t i = 0; i < t->dim; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256i e = _mm256_and_si256(_mm256_castps_si256(v), exponent);
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(e, exponent));
        if (!t->is_k)
            _mm256_storeu_ps(to + i, v);
        else
            for (uint32_t k = 0; k < 8; k++)
                to[(size_t)(i + k) * t->n_slots] = x[i + k];
    }
    return _mm256_testz_si256(bad, bad);
}

/* ---- quantised types ---- */

/* True when each of n floats (a multiple of 8) is finite. */
INLINE bool all_finite(const float *x, uint32_t n)
{
    __m256i bad = _mm256_setzero_si256(), exponent = _mm256_set1_epi32(0x7f800000);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256i e = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), exponent);
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(e, exponent));
    }
    return _mm256_testz_si256(bad, bad);
}

/* Scale of one group of n channels; false when something is not finite: *inverse is 0 then. */
INLINE bool group_scale(int type, const float *x, uint32_t n, uint16_t *scale, float *inverse)
{
    __m256 low = _mm256_setzero_ps(), high = low, zero = low;
    bool finite = all_finite(x, n);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        low = _mm256_max_ps(_mm256_sub_ps(zero, v), low);
        high = _mm256_max_ps(v, high);
    }
    float most = hmax8(high), least = -hmax8(low);
    if (type == KV_Q8)
        finite &= kv_scale_q8(finite ? fmaxf(most, -least) : NAN, scale, inverse);
    else
        finite &= kv_scale_q4(finite ? least : NAN, finite ? most : NAN, scale, inverse);
    if (!finite)
        *inverse = 0;
    return finite;
}

/* 8 floats in units of the scale, clamped to the type's range (q4: starting at 0). */
INLINE __m256i quantise(int type, bool finite, const float *x, float inverse)
{
    int least = type == KV_Q8 ? -127 : -8, most = type == KV_Q8 ? 127 : 7;
    __m256i q = _mm256_setzero_si256();
    if (finite)
        q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(inverse)));
    q = _mm256_max_epi32(_mm256_min_epi32(q, _mm256_set1_epi32(most)), _mm256_set1_epi32(least));
    return type == KV_Q8 ? q : _mm256_add_epi32(q, _mm256_set1_epi32(8));
}

/* The low bytes of 8 lanes. */
INLINE uint64_t low_bytes(__m256i v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(255));
    __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(w, w));
}

INLINE void put_q8(const struct target *t, uint32_t i, __m256i q)
{
    uint64_t bytes = low_bytes(q);
    if (!t->is_k) {
        memcpy(t->half + (size_t)t->slot * t->dim + i, &bytes, 8);
        return;
    }
    uint8_t *to = t->half + (size_t)i * t->n_slots + t->slot;
    for (int k = 0; k < 8; k++, bytes >>= 8, to += t->n_slots)
        *to = (uint8_t)bytes;
}

/* Channels i..i + 16; b is 0 where the head ends after i + 8. */
INLINE void put_q4(const struct target *t, uint32_t i, __m256i a, __m256i b)
{
    if (!t->is_k) {
        uint64_t bytes = low_bytes(_mm256_or_si256(a, _mm256_slli_epi32(b, 4)));
        memcpy(t->half + (size_t)t->slot * kv_q4_row_bytes(t->dim) + i / 2, &bytes, 8);
        return;
    }
    uint64_t two[2] = {low_bytes(a), low_bytes(b)};
    uint8_t *to = t->half + (size_t)(i / 2) * t->n_slots + t->slot;
    for (uint32_t k = 0; k < 8 && i + 2 * k < t->dim; k++, to += t->n_slots) {
        uint64_t pair = two[k / 4] >> 16 * (k % 4);
        *to = (uint8_t)((pair & 15) | (pair >> 4 & 0xf0));
    }
}

INLINE bool store_quantised(int type, const struct target *t, const float *x)
{
    bool all = true;
    size_t row_bytes = type == KV_Q8 ? t->dim : t->is_k ? t->dim / 2 : kv_q4_row_bytes(t->dim);
    uint16_t *scales = (uint16_t *)(void *)(t->half + row_bytes * t->n_slots);
    for (uint32_t i0 = 0; i0 < t->dim; i0 += KV_SCALE_CHANNELS) {
        uint32_t left = t->dim - i0, n = left < KV_SCALE_CHANNELS ? left : KV_SCALE_CHANNELS;
        float inverse;
        uint16_t scale;
        bool finite = group_scale(type, x + i0, n, &scale, &inverse);
        scales[i0 / KV_SCALE_CHANNELS * t->n_slots + t->slot] = scale;
        all &= finite;
        for (uint32_t i = i0; i < i0 + n; i += type == KV_Q8 ? 8 : 16) {
            __m256i a = quantise(type, finite, x + i, inverse), b = _mm256_setzero_si256();
            if (type == KV_Q8) {
                put_q8(t, i, a);
                continue;
            }
            if (i + 8 < i0 + n)
                b = quantise(type, finite, x + i + 8, inverse);
            put_q4(t, i, a, b);
        }
    }
    return all;
}

/* ---- the table's functions ---- */

static bool store_half(enum kv_dtype type, const struct target *t, const float *x)
{
    switch (type) {
    case KV_F16:
        return store_16_bits(KV_F16, t, x);
    case KV_BF16:
        return store_16_bits(KV_BF16, t, x);
    case KV_Q8:
        return store_quantised(KV_Q8, t, x);
    case KV_Q4:
        return store_quantised(KV_Q4, t, x);
    default:
        return store_f32(t, x);
    }
}

bool kv_store_avx2(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                   const float *k, const float *v)
{
    const struct kv_group *g = &l->group[group];
    if (g->head_dim % 8 != 0)
        return c_kv_store(l, group, unit, slot, k, v);
    struct target t = {
        .half = unit, .dim = g->head_dim, .n_slots = l->n_slots, .slot = slot, .is_k = true};
    bool finite = store_half(l->dtype_k, &t, k);
    t.half = unit + g->k_bytes;
    t.is_k = false;
    return store_half(l->dtype_v, &t, v) && finite;
}

/* One stage inside a register: sums in the lanes of `first`'s zeros, differences in its ones. */
#define STAGE(x, swapped, first)                                                                   \
    _mm256_blend_ps(_mm256_add_ps(x, swapped), _mm256_sub_ps(swapped, x), first)

void kv_rotate_avx2(float *x, uint32_t head_dim)
{
    uint32_t run = head_dim & -head_dim;
    if (run < 8) {
        c_kv_rotate(x, head_dim);
        return;
    }
    __m256 norm = _mm256_set1_ps(1 / sqrtf((float)run));
    for (uint32_t i = 0; i < head_dim; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        v = STAGE(v, _mm256_permute_ps(v, 0xb1), 0xaa);
        v = STAGE(v, _mm256_permute_ps(v, 0x4e), 0xcc);
        v = STAGE(v, _mm256_permute2f128_ps(v, v, 1), 0xf0);
        _mm256_storeu_ps(x + i, run == 8 ? _mm256_mul_ps(v, norm) : v);
    }
    for (uint32_t half = 8; half < run; half *= 2) {
        bool last = 2 * half == run;
        for (uint32_t i = 0; i < head_dim; i = (i + 8) & half ? i + 8 + half : i + 8) {
            __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + half);
            __m256 sum = _mm256_add_ps(a, b), difference = _mm256_sub_ps(a, b);
            _mm256_storeu_ps(x + i, last ? _mm256_mul_ps(sum, norm) : sum);
            _mm256_storeu_ps(x + i + half, last ? _mm256_mul_ps(difference, norm) : difference);
        }
    }
}
