/* Products with 15-bit activations (act_hl): the high bytes first, then the low ones. */
#include "engine/cpu/avx512/matmul_avx512.h"

#define TOKEN(t) ((const struct act_hl *)(const void *)(act + (size_t)(t)*stride))

/* dot += the products of steps [from, to) with one byte of every input. */
INLINE void add_bytes(int kind, int nt, const uint8_t *payload, int from, int to, size_t at,
                      const uint8_t *act, size_t stride, __m512i *dot)
{
    UNROLL for (int step = from; step < to; step++)
    {
        __m512i w = load_step(kind, payload, step);
        UNROLL for (int t = 0; t < nt; t++) dot[t] = _mm512_dpbusd_epi32(
            dot[t], w, spread4(act + (size_t)t * stride + at + 4 * (size_t)step));
    }
}

INLINE __m512i bias_of(int kind, int h, const struct act_hl *a)
{
    if (IS_N4(kind))
        return _mm512_setzero_si512();
    if (!HAS_HALVES(kind))
        return spread4(&a->bias[1]);
    __m512i first = spread4(&a->bias[0]);
    return h == 0 ? first : _mm512_sub_epi32(spread4(&a->bias[1]), first);
}

/* steps of the block's eight from half h on, which share the scale s.d[h]. */
INLINE void add_half(int kind, int nt, const uint8_t *payload, int h, int steps,
                     const struct scales *s, const uint8_t *act, size_t stride, __m512 *acc)
{
    __m512i dot[TILE_TOKENS];
    UNROLL for (int t = 0; t < nt; t++) dot[t] = _mm512_setzero_si512();
    add_bytes(kind, nt, payload, steps * h, steps * (h + 1), offsetof(struct act_hl, high), act,
              stride, dot);
    UNROLL for (int t = 0; t < nt; t++) dot[t] =
        _mm512_add_epi32(_mm512_slli_epi32(dot[t], 8), bias_of(kind, h, TOKEN(t)));
    add_bytes(kind, nt, payload, steps * h, steps * (h + 1), offsetof(struct act_hl, low), act,
              stride, dot);
    UNROLL for (int t = 0; t < nt; t++) acc[t] = add_dot(acc[t], dot[t], s->d[h], TOKEN(t)->d);
}

INLINE void block_hl(int kind, int nt, const uint8_t *unit, const uint8_t *block,
                     const uint8_t *act, size_t stride, __m512 *acc)
{
    const uint8_t *payload = block + BLOCK_HEAD(kind);
    const struct scales s = load_scales(kind, unit, block);
    const int steps = HAS_HALVES(kind) ? 4 : 8;
    add_half(kind, nt, payload, 0, steps, &s, act, stride, acc);
    if (HAS_HALVES(kind))
        add_half(kind, nt, payload, 1, steps, &s, act, stride, acc);
    UNROLL for (int t = 0; t < nt; t++) acc[t] = add_mins(kind, acc[t], &s, TOKEN(t)->sum);
}

INLINE void tile(int kind, int nt, const uint8_t *w, uint32_t n_blocks, const uint8_t *act,
                 size_t stride, float *out, size_t out_stride)
{
    __m512 acc[TILE_TOKENS];
    UNROLL for (int t = 0; t < nt; t++) acc[t] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b += UNIT_BLOCKS(kind), w += UNIT_BYTES(kind)) {
        const uint8_t *block = w + UNIT_HEAD(kind);
        for (uint32_t i = 0; i < UNIT_BLOCKS(kind); i++, block += BLOCK_BYTES(kind)) {
            block_hl(kind, nt, w, block, act, stride, acc);
            act += sizeof(struct act_hl);
        }
    }
    UNROLL for (int t = 0; t < nt; t++) _mm512_storeu_ps(out + (size_t)t * out_stride, acc[t]);
}

INTEGER_KINDS(MATMUL, hl)

kernel_matmul *const matmul_hl_avx512[PACK_KINDS] = {INTEGER_KINDS(ROW, hl)};
