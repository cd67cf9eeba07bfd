/* Shared by the matrix products of all forms: 16 rows in the lanes of an accumulator, the inputs of a token
 * broadcast to all lanes, tiles of up to 8 tokens (8 float and 8 integer accumulators of the 32 registers).
 * See packed.h for the weights; 128 is added to 8-bit ones, because vpdpbusd takes them unsigned. */
#ifndef ENGINE_CPU_AVX512_MATMUL_AVX512_H
#define ENGINE_CPU_AVX512_MATMUL_AVX512_H

#include "engine/cpu/avx512/kernels_avx512.h"
#include "engine/cpu/avx512/simd_avx512.h"

enum { ROWS = 16, TILE_TOKENS = 8 };

/* The properties of a kind as compile-time constants. */
#define IS_N4(kind) ((kind) <= PACK_N4_K16)
#define HAS_HALVES(kind) ((kind) == PACK_N4_K16 || (kind) == PACK_I8_K16)
#define HAS_MIN(kind) ((kind) != PACK_I8 && (kind) != PACK_I8_K16)
#define UNIT_BLOCKS(kind)                                                                          \
    ((kind) == PACK_N4_K || (kind) == PACK_N4_K16 || (kind) == PACK_I8_K || (kind) == PACK_I8_K16  \
         ? 8u                                                                                      \
         : 1u)
#define UNIT_HEAD(kind) (UNIT_BLOCKS(kind) == 8 ? 64u : 0u)
#define BLOCK_HEAD(kind)                                                                           \
    ((kind) >= PACK_F32                                                    ? 0u                    \
     : (kind) == PACK_N4_M || (kind) == PACK_I8_M || (kind) == PACK_N4_K16 ? 64u                   \
                                                                           : 32u)
#define PAYLOAD(kind)                                                                              \
    ((kind) == PACK_F32 ? 2048u : (kind) > PACK_F32 ? 1024u : IS_N4(kind) ? 256u : 512u)
#define BLOCK_BYTES(kind) (BLOCK_HEAD(kind) + PAYLOAD(kind))
#define UNIT_BYTES(kind) (UNIT_HEAD(kind) + UNIT_BLOCKS(kind) * BLOCK_BYTES(kind))

struct scales {
    __m512 d[2], m[2]; /* [1] only where HAS_HALVES, m only where HAS_MIN */
};

INLINE struct scales load_scales(int kind, const uint8_t *unit, const uint8_t *block)
{
    struct scales s;
    s.d[0] = s.d[1] = s.m[0] = s.m[1] = _mm512_setzero_ps();
    if (UNIT_BLOCKS(kind) == 1) {
        s.d[0] = load_half16(block);
        if (kind == PACK_N4)
            s.m[0] = _mm512_mul_ps(s.d[0], _mm512_set1_ps(-8));
        else if (HAS_MIN(kind))
            s.m[0] = load_half16(block + 32);
        return s;
    }
    __m512 d = load_half16(unit);
    s.d[0] = _mm512_mul_ps(d, load_code16(block));
    if (HAS_HALVES(kind))
        s.d[1] = _mm512_mul_ps(d, load_code16(block + 16));
    if (HAS_MIN(kind)) {
        __m512 m = _mm512_sub_ps(_mm512_setzero_ps(), load_half16(unit + 32));
        s.m[0] = _mm512_mul_ps(m, load_code16(block + (HAS_HALVES(kind) ? 32 : 16)));
        if (HAS_HALVES(kind))
            s.m[1] = _mm512_mul_ps(m, load_code16(block + 48));
    }
    return s;
}

/* acc += mins times the sums of a block. */
INLINE __m512 add_mins(int kind, __m512 acc, const struct scales *s, const float sum[2])
{
    if (!HAS_MIN(kind))
        return acc;
    if (!HAS_HALVES(kind))
        return _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(sum[1]), acc);
    acc = _mm512_fmadd_ps(s->m[0], _mm512_set1_ps(sum[0]), acc);
    return _mm512_fmadd_ps(s->m[1], _mm512_set1_ps(sum[1] - sum[0]), acc);
}

/* acc += dot (integers), scaled by the weights' scale (d) and the inputs' scale (x). */
INLINE __m512 add_dot(__m512 acc, __m512i dot, __m512 d, float x)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(d, _mm512_set1_ps(x)), acc);
}

/* Bytes of step 0..7: four inputs of every row. */
INLINE __m512i load_step(int kind, const uint8_t *payload, int step)
{
    __m512i raw = load64(payload + 64 * (IS_N4(kind) ? step % 4 : step));
    if (!IS_N4(kind))
        return raw;
    if (step >= 4)
        raw = _mm512_srli_epi16(raw, 4);
    return _mm512_and_si512(raw, _mm512_set1_epi8(15));
}

typedef void tile_fn(const uint8_t *w, uint32_t n_blocks, const uint8_t *act, size_t stride,
                     float *out, size_t out_stride);

/* Two groups at a time process the same tile of tokens in turn, so that its activations stay in the first-level
 * cache. tiles: indexed by number of tokens. */
static inline void matmul_by_pairs(tile_fn *const *tiles, const uint8_t *w, size_t group_bytes,
                                   uint32_t n_groups, uint32_t n_blocks, const uint8_t *act,
                                   size_t stride, uint32_t n_tokens, float *out, size_t out_stride)
{
    for (uint32_t g = 0; g < n_groups; g += 2, w += 2 * group_bytes, out += 2 * ROWS) {
        for (uint32_t t = 0, n; t < n_tokens; t += n) {
            n = n_tokens - t < TILE_TOKENS ? n_tokens - t : TILE_TOKENS;
            const uint8_t *a = act + t * stride;
            float *o = out + t * out_stride;
            tiles[n](w, n_blocks, a, stride, o, out_stride);
            if (g + 1 < n_groups)
                tiles[n](w + group_bytes, n_blocks, a, stride, o + ROWS, out_stride);
        }
    }
}

/* Kernels of a form for a kind, by a function tile(kind, n_tokens, ...). */
#define TILE(form, kind, n)                                                                        \
    static void tile_##form##_##kind##_##n(const uint8_t *w, uint32_t n_blocks,                    \
                                           const uint8_t *act, size_t stride, float *out,          \
                                           size_t out_stride)                                      \
    {                                                                                              \
        tile(kind, n, w, n_blocks, act, stride, out, out_stride);                                  \
    }
#define MATMUL(form, kind)                                                                         \
    TILE(form, kind, 1)                                                                            \
    TILE(form, kind, 2)                                                                            \
    TILE(form, kind, 3)                                                                            \
    TILE(form, kind, 4)                                                                            \
    TILE(form, kind, 5)                                                                            \
    TILE(form, kind, 6)                                                                            \
    TILE(form, kind, 7)                                                                            \
    TILE(form, kind, 8)                                                                            \
    static void matmul_##form##_##kind(const uint8_t *w, size_t group_bytes, uint32_t n_groups,    \
                                       uint32_t n_blocks, const uint8_t *act, size_t stride,       \
                                       uint32_t n_tokens, float *out, size_t out_stride)           \
    {                                                                                              \
        static tile_fn *const tiles[] = {NULL,                                                     \
                                         tile_##form##_##kind##_1,                                 \
                                         tile_##form##_##kind##_2,                                 \
                                         tile_##form##_##kind##_3,                                 \
                                         tile_##form##_##kind##_4,                                 \
                                         tile_##form##_##kind##_5,                                 \
                                         tile_##form##_##kind##_6,                                 \
                                         tile_##form##_##kind##_7,                                 \
                                         tile_##form##_##kind##_8};                                \
        matmul_by_pairs(tiles, w, group_bytes, n_groups, n_blocks, act, stride, n_tokens, out,     \
                        out_stride);                                                               \
    }
#define INTEGER_KINDS(X, form)                                                                     \
    X(form, PACK_N4)                                                                               \
    X(form, PACK_N4_M)                                                                             \
    X(form, PACK_N4_K)                                                                             \
    X(form, PACK_N4_K16) X(form, PACK_I8) X(form, PACK_I8_M) X(form, PACK_I8_K) X(form, PACK_I8_K16)
#define ROW(form, kind) [kind] = matmul_##form##_##kind,

#endif
