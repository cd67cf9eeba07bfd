/* Products with float activations (act_f32), of integer and of float weights. */
#include "engine/cpu/avx512/matmul_avx512.h"

#define TOKEN(t) ((const struct act_f32 *)(const void *)(act + (size_t)(t)*stride))

/* Inputs 4 * step + i of all rows as floats. */
INLINE __m512 byte_as_float(int kind, __m512i bytes, int i)
{
    __m512i w =
        _mm512_and_si512(_mm512_srli_epi32(bytes, (unsigned)(8 * i)), _mm512_set1_epi32(255));
    if (!IS_N4(kind))
        w = _mm512_sub_epi32(w, _mm512_set1_epi32(128));
    return _mm512_cvtepi32_ps(w);
}

INLINE void block_int(int kind, int nt, const uint8_t *unit, const uint8_t *block,
                      const uint8_t *act, size_t stride, __m512 *acc)
{
    const struct scales s = load_scales(kind, unit, block);
    __m512 dot[TILE_TOKENS];
    UNROLL for (int h = 0; h < 2; h++)
    {
        UNROLL for (int t = 0; t < nt; t++) dot[t] = _mm512_setzero_ps();
        for (int step = 4 * h; step < 4 * h + 4; step++) {
            __m512i bytes = load_step(kind, block + BLOCK_HEAD(kind), step);
            UNROLL for (int i = 0; i < 4; i++)
            {
                __m512 w = byte_as_float(kind, bytes, i);
                UNROLL for (int t = 0; t < nt; t++) dot[t] =
                    _mm512_fmadd_ps(w, _mm512_set1_ps(TOKEN(t)->x[4 * step + i]), dot[t]);
            }
        }
        UNROLL for (int t = 0; t < nt; t++) acc[t] =
            _mm512_fmadd_ps(dot[t], s.d[HAS_HALVES(kind) && h == 1], acc[t]);
    }
    UNROLL for (int t = 0; t < nt; t++) acc[t] = add_mins(kind, acc[t], &s, TOKEN(t)->sum);
}

INLINE void block_float(int kind, int nt, const uint8_t *block, const uint8_t *act, size_t stride,
                        __m512 *acc)
{
    for (int k = 0; k < PACK_BLOCK; k++) {
        __m512 w;
        if (kind == PACK_F32)
            w = _mm512_loadu_ps((const float *)(const void *)(block + 64 * k));
        else if (kind == PACK_F16)
            w = load_half16(block + 32 * k);
        else
            w = _mm512_castsi512_ps(_mm512_slli_epi32(
                _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(block + 32 * k))), 16));
        UNROLL for (int t = 0; t < nt; t++) acc[t] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(TOKEN(t)->x[k]), acc[t]);
    }
}

INLINE void tile(int kind, int nt, const uint8_t *w, uint32_t n_blocks, const uint8_t *act,
                 size_t stride, float *out, size_t out_stride)
{
    __m512 acc[TILE_TOKENS];
    UNROLL for (int t = 0; t < nt; t++) acc[t] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b += UNIT_BLOCKS(kind), w += UNIT_BYTES(kind)) {
        const uint8_t *block = w + UNIT_HEAD(kind);
        for (uint32_t i = 0; i < UNIT_BLOCKS(kind); i++, block += BLOCK_BYTES(kind)) {
            if (kind >= PACK_F32)
                block_float(kind, nt, block, act, stride, acc);
            else
                block_int(kind, nt, w, block, act, stride, acc);
            act += sizeof(struct act_f32);
        }
    }
    UNROLL for (int t = 0; t < nt; t++) _mm512_storeu_ps(out + (size_t)t * out_stride, acc[t]);
}

INTEGER_KINDS(MATMUL, f32)
MATMUL(f32, PACK_F32)
MATMUL(f32, PACK_F16)
MATMUL(f32, PACK_BF16)

kernel_matmul *const matmul_f32_avx512[PACK_KINDS] = {INTEGER_KINDS(ROW, f32) ROW(f32, PACK_F32)
                                                          ROW(f32, PACK_F16) ROW(f32, PACK_BF16)};
