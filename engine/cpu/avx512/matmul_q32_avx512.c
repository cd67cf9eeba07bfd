/* Products with 8-bit activations (act_q32): exact whole numbers by vpdpbusd, eight for a block of 32 inputs
 * and two for the second digits of two quads. Every multiply shares two pipes here, shifts and logic are
 * free beside them. */
#include "engine/cpu/avx512/matmul_avx512.h"

#define TOKEN(t) ((const struct act_q32 *)(const void *)(act + (size_t)(t)*stride))

/* What the products of half h of a block (of all of it where both have one scale) begin with. */
INLINE __m512i first_sum(int kind, int h, const struct act_q32 *a)
{
    if (IS_N4(kind))
        return _mm512_setzero_si512();
    if (!HAS_HALVES(kind))
        return spread4(&a->bias[1]);
    __m512i first = spread4(&a->bias[0]);
    return h == 0 ? first : _mm512_sub_epi32(spread4(&a->bias[1]), first);
}

/* Products of the second digit of quad k, on top of sum; bytes: those of each step of 4-bit weights. */
INLINE __m512i second_digit(int kind, __m512i sum, const uint8_t *payload, const __m512i *bytes,
                            const struct act_q32 *a, int k)
{
    __m512i w = IS_N4(kind) ? bytes[a->quad[k]] : load64(payload + 64 * (size_t)a->quad[k]);
    return _mm512_dpbusd_epi32(sum, w, spread4(a->ex + 4 * k));
}

/* One block for nt tokens. */
INLINE void block_q32(int kind, int nt, const uint8_t *unit, const uint8_t *block,
                      const uint8_t *act, size_t stride, __m512 *acc)
{
    const uint8_t *payload = block + BLOCK_HEAD(kind);
    const struct scales s = load_scales(kind, unit, block);
    __m512i dot[TILE_TOKENS], bytes[8];
    UNROLL for (int t = 0; t < nt; t++) dot[t] = first_sum(kind, 0, TOKEN(t));
    UNROLL for (int step = 0; step < 8; step++)
    {
        __m512i w = load_step(kind, payload, step);
        if (IS_N4(kind))
            bytes[step] = w;
        UNROLL for (int t = 0; t < nt; t++) dot[t] =
            _mm512_dpbusd_epi32(dot[t], w, spread4(TOKEN(t)->q + 4 * step));
        if (!HAS_HALVES(kind) || step != 3)
            continue;
        UNROLL for (int t = 0; t < nt; t++)
        {
            acc[t] = add_dot(acc[t], dot[t], s.d[0], TOKEN(t)->d);
            dot[t] = first_sum(kind, 1, TOKEN(t));
        }
    }
    UNROLL for (int t = 0; t < nt; t++)
    {
        const struct act_q32 *a = TOKEN(t);
        const __m512i zero = _mm512_setzero_si512();
        if (HAS_HALVES(kind)) {
            acc[t] = add_dot(acc[t], dot[t], s.d[1], a->d);
            UNROLL for (int k = 0; k < 2; k++) acc[t] = add_dot(
                acc[t], _mm512_slli_epi32(second_digit(kind, zero, payload, bytes, a, k), 7),
                s.d[a->quad[k] >> 2], a->d);
        } else {
            __m512i wide = second_digit(kind, zero, payload, bytes, a, 0);
            wide = second_digit(kind, wide, payload, bytes, a, 1);
            dot[t] = _mm512_add_epi32(dot[t], _mm512_slli_epi32(wide, 7));
            acc[t] = add_dot(acc[t], dot[t], s.d[0], a->d);
        }
        acc[t] = add_mins(kind, acc[t], &s, a->sum);
    }
}

/* Weights of the row groups that come next are asked for into the second-level cache while these are
 * computed: the first-level hint waits for its few buffers. With one or two tokens the hardware's own
 * prefetch of one forward stream is best. */
INLINE void tile(int kind, int nt, const uint8_t *w, uint32_t n_blocks, const uint8_t *act,
                 size_t stride, float *out, size_t out_stride)
{
    __m512 acc[TILE_TOKENS];
    const size_t ahead = 2 * (size_t)(n_blocks / UNIT_BLOCKS(kind)) * UNIT_BYTES(kind);
    UNROLL for (int t = 0; t < nt; t++) acc[t] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b += UNIT_BLOCKS(kind), w += UNIT_BYTES(kind)) {
        const uint8_t *block = w + UNIT_HEAD(kind);
        for (uint32_t i = 0; i < UNIT_BLOCKS(kind); i++, block += BLOCK_BYTES(kind)) {
            if (nt > 2)
                for (uint32_t j = 0; j < BLOCK_BYTES(kind); j += 64)
                    _mm_prefetch((const char *)block + ahead + j, _MM_HINT_T1);
            block_q32(kind, nt, w, block, act, stride, acc);
            act += sizeof(struct act_q32);
        }
    }
    UNROLL for (int t = 0; t < nt; t++) _mm512_storeu_ps(out + (size_t)t * out_stride, acc[t]);
}

INTEGER_KINDS(MATMUL, q32)

kernel_matmul *const matmul_q32_avx512[PACK_KINDS] = {INTEGER_KINDS(ROW, q32)};
