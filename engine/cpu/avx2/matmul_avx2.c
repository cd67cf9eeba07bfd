/* Matrix products for AVX2: 8-row groups (packed.h) times 1..n tokens.
 *
 * 8 rows are in the 8 lanes of an accumulator and the inputs of a token are broadcast to all lanes, so
 * there are no horizontal sums. A tile is 2 groups (or 1) x 4, 2 or 1 tokens: groups share broadcasts,
 * tokens share unpacked weights; every tile has the same roundings per output. 4-bit weights with
 * 8-bit activations: all eight maddubs of a block are summed in 16 bits (8 * 2 * 15 * 127 = 30480), then
 * widened once; the second digits of two quads (act8.h) are two more. 8-bit weights take 16-bit
 * activations by pmaddwd: as fast here as sign and maddubs, and exact. */
#include "engine/cpu/avx2/kernels_avx2.h"

#include <string.h>

#include "engine/cpu/avx2/simd_avx2.h"

INLINE __m256i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256 load_half8(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 load_code8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256i load_bytes(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The properties of a kind as compile-time constants. */
#define IS_N4(kind) ((kind) <= PACK_N4_K16)
#define HAS_HALVES(kind) ((kind) == PACK_N4_K16 || (kind) == PACK_I8_K16)
#define HAS_MIN(kind) ((kind) != PACK_I8 && (kind) != PACK_I8_K16)
#define UNIT_BLOCKS(kind)                                                                          \
    ((kind) == PACK_N4_K || (kind) == PACK_N4_K16 || (kind) == PACK_I8_K || (kind) == PACK_I8_K16  \
         ? 8u                                                                                      \
         : 1u)
#define BLOCK_HEAD(kind)                                                                           \
    ((kind) == PACK_N4_M || (kind) == PACK_I8_M || (kind) == PACK_N4_K16 ? 32u : 16u)
#define BLOCK_BYTES(kind) (BLOCK_HEAD(kind) + (IS_N4(kind) ? 128u : 256u))
#define UNIT_BYTES(kind) (UNIT_BLOCKS(kind) == 8 ? 32 + 8 * BLOCK_BYTES(kind) : BLOCK_BYTES(kind))

struct scales {
    __m256 d[2], m[2]; /* [1] only where HAS_HALVES, m only where HAS_MIN */
};

INLINE struct scales load_scales(int kind, const uint8_t *unit, const uint8_t *block)
{
    struct scales s;
    s.d[0] = s.d[1] = s.m[0] = s.m[1] = _mm256_setzero_ps();
    if (UNIT_BLOCKS(kind) == 1) {
        s.d[0] = load_half8(block);
        if (kind == PACK_N4)
            s.m[0] = _mm256_mul_ps(s.d[0], _mm256_set1_ps(-8));
        else if (HAS_MIN(kind))
            s.m[0] = load_half8(block + 16);
        return s;
    }
    __m256 d = load_half8(unit);
    s.d[0] = _mm256_mul_ps(d, load_code8(block));
    if (HAS_HALVES(kind))
        s.d[1] = _mm256_mul_ps(d, load_code8(block + 8));
    if (HAS_MIN(kind)) {
        __m256 m = _mm256_xor_ps(load_half8(unit + 16), _mm256_set1_ps(-0.0f));
        s.m[0] = _mm256_mul_ps(m, load_code8(block + (HAS_HALVES(kind) ? 16 : 8)));
        if (HAS_HALVES(kind))
            s.m[1] = _mm256_mul_ps(m, load_code8(block + 24));
    }
    return s;
}

/* acc += mins times the sums of a block. */
INLINE __m256 add_mins(int kind, __m256 acc, const struct scales *s, const float sum[2])
{
    if (!HAS_MIN(kind))
        return acc;
    if (!HAS_HALVES(kind))
        return _mm256_fmadd_ps(s->m[0], _mm256_broadcast_ss(sum + 1), acc);
    acc = _mm256_fmadd_ps(s->m[0], _mm256_broadcast_ss(sum), acc);
    return _mm256_fmadd_ps(s->m[1], _mm256_set1_ps(sum[1] - sum[0]), acc);
}

/* ---- integer activations ---- */

/* Of a block; every step takes 4 inputs of every row from one vector of weights. */
enum { N_STEPS = 8 };

/* Weights of a step: four inputs per 32-bit lane as bytes (8-bit activations), or the inputs with even and
 * those with odd index as 16-bit values. */
INLINE void load_step(int kind, int form, const uint8_t *payload, int step, __m256i w[2])
{
    __m256i raw = load_bytes(payload + 32 * (IS_N4(kind) ? step % 4 : step));
    if (!IS_N4(kind)) {
        w[0] = _mm256_srai_epi16(_mm256_slli_epi16(raw, 8), 8);
        w[1] = _mm256_srai_epi16(raw, 8);
        return;
    }
    if (step >= 4)
        raw = _mm256_srli_epi16(raw, 4);
    if (form == ACT_Q32) {
        w[0] = _mm256_and_si256(raw, _mm256_set1_epi8(15));
    } else {
        w[0] = _mm256_and_si256(raw, _mm256_set1_epi16(15));
        w[1] = _mm256_and_si256(_mm256_srli_epi16(raw, 8), _mm256_set1_epi16(15));
    }
}

/* dot[g] of one token += the products of a step, for 8-bit activations in 16-bit lanes; the broadcasts
 * serve all groups. */
INLINE void add_step(int form, int ng, __m256i w[2][2], const uint8_t *block, int step,
                     __m256i *dot, size_t dot_stride)
{
    if (form == ACT_Q32) {
        __m256i x = broadcast4(((const struct act_q32 *)block)->q + 4 * step);
        UNROLL for (int g = 0; g < ng; g++) dot[g * dot_stride] =
            _mm256_add_epi16(dot[g * dot_stride], _mm256_maddubs_epi16(w[g][0], x));
        return;
    }
    const struct act_i16 *a = (const struct act_i16 *)block;
    __m256i x0 = broadcast4(a->q + 4 * step), x1 = broadcast4(a->q + 4 * step + 2);
    UNROLL for (int g = 0; g < ng; g++)
    {
        __m256i sum =
            _mm256_add_epi32(_mm256_madd_epi16(w[g][0], x0), _mm256_madd_epi16(w[g][1], x1));
        dot[g * dot_stride] = _mm256_add_epi32(dot[g * dot_stride], sum);
    }
}

/* Products of the second digit of quad k of an 8-bit block, in 16-bit lanes. w: the bytes of each step, as
 * load_step had them. */
INLINE __m256i second_digit(const __m256i *w, const uint8_t *block, int k)
{
    const struct act_q32 *a = (const struct act_q32 *)block;
    return _mm256_maddubs_epi16(w[a->quad[k]], broadcast4(a->ex + 4 * k));
}

INLINE __m256i widen_digit(__m256i sum)
{
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(128));
}

INLINE float block_d(int form, const uint8_t *block)
{
    return form == ACT_Q32 ? ((const struct act_q32 *)block)->d
                           : ((const struct act_i16 *)block)->d;
}

INLINE const float *block_sums(int form, const uint8_t *block)
{
    return form == ACT_Q32 ? ((const struct act_q32 *)block)->sum
                           : ((const struct act_i16 *)block)->sum;
}

/* acc += dot (integers), scaled by half h of the weights' block and by the inputs' block. */
INLINE __m256 add_dot(int form, __m256 acc, __m256i dot, __m256 d, const uint8_t *block)
{
    __m256 scale = _mm256_mul_ps(_mm256_set1_ps(block_d(form, block)), d);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, acc);
}

/* The end of half h of a block (of a block where both halves have one scale): acc += dot, dot = 0. */
INLINE void end_half(int kind, int form, int h, const struct scales *s, const __m256i *w,
                     const uint8_t *block, __m256i *dot, __m256 *acc)
{
    if (form == ACT_Q32) {
        *dot = _mm256_madd_epi16(*dot, _mm256_set1_epi16(1));
        if (!HAS_HALVES(kind))
            *dot = _mm256_add_epi32(*dot, widen_digit(_mm256_add_epi16(second_digit(w, block, 0),
                                                                       second_digit(w, block, 1))));
    }
    *acc = add_dot(form, *acc, *dot, s->d[HAS_HALVES(kind) && h == 1], block);
    if (form == ACT_Q32 && HAS_HALVES(kind) && h == 1) {
        const struct act_q32 *a = (const struct act_q32 *)block;
        UNROLL for (int k = 0; k < 2; k++) *acc = add_dot(
            form, *acc, widen_digit(second_digit(w, block, k)), s->d[a->quad[k] >> 2], block);
    }
    *dot = _mm256_setzero_si256();
}

/* One block of 32 inputs, ng groups (group_bytes apart) x nt tokens. The integer sums are exact, so
 * only the roundings at the end of a half or a block count, and those do not depend on ng or nt. */
INLINE void block_int(int kind, int form, int ng, int nt, const uint8_t *unit, const uint8_t *block,
                      size_t group_bytes, const uint8_t *act, size_t stride, __m256 acc[2][4])
{
    __m256i dot[2][4], w[2][2], bytes[2][N_STEPS];
    struct scales s[2];
    /* The same position in the next groups: the hardware prefetcher follows one stream, not two. */
    UNROLL for (int i = 0; i < ng * 3; i++) _mm_prefetch(
        (const char *)block + (size_t)(i / 3 + ng) * group_bytes + i % 3 * 64, _MM_HINT_T0);
    UNROLL for (int i = 0; i < ng * nt; i++) dot[i / nt][i % nt] = _mm256_setzero_si256();
    UNROLL for (int step = 0; step < N_STEPS; step++)
    {
        UNROLL for (int g = 0; g < ng; g++)
        {
            load_step(kind, form, block + g * group_bytes + BLOCK_HEAD(kind), step, w[g]);
            bytes[g][step] = w[g][0];
        }
        UNROLL for (int t = 0; t < nt; t++)
            add_step(form, ng, w, act + (size_t)t * stride, step, &dot[0][t], 4);
        if (step + 1 < N_STEPS && !(HAS_HALVES(kind) && step + 1 == N_STEPS / 2))
            continue;
        UNROLL for (int g = 0; g < ng; g++) s[g] =
            load_scales(kind, unit + g * group_bytes, block + g * group_bytes);
        UNROLL for (int i = 0; i < ng * nt; i++)
        {
            int g = i / nt, t = i % nt;
            end_half(kind, form, step / 4, &s[g], bytes[g], act + (size_t)t * stride, &dot[g][t],
                     &acc[g][t]);
        }
    }
    UNROLL for (int i = 0; i < ng * nt; i++)
    {
        int g = i / nt, t = i % nt;
        const float *sum = block_sums(form, act + (size_t)t * stride);
        acc[g][t] = add_mins(kind, acc[g][t], &s[g], sum);
    }
}

/* ---- float activations, quantised weights ---- */

/* Inputs 4j+i of all rows as floats. */
INLINE __m256 byte_as_float(int kind, __m256i bytes, int i)
{
    if (IS_N4(kind))
        return _mm256_cvtepi32_ps(
            _mm256_and_si256(_mm256_srli_epi32(bytes, 8 * i), _mm256_set1_epi32(15)));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bytes, 24 - 8 * i), 24));
}

INLINE void half_f32(int kind, int nt, const uint8_t *payload, int h, const uint8_t *act,
                     size_t stride, __m256 *dot)
{
    for (int j = 4 * h; j < 4 * h + 4; j++) {
        __m256i raw = load_bytes(payload + 32 * (IS_N4(kind) ? j % 4 : j));
        if (IS_N4(kind) && h == 1)
            raw = _mm256_srli_epi16(raw, 4);
        UNROLL for (int i = 0; i < 4; i++)
        {
            __m256 w = byte_as_float(kind, raw, i);
            UNROLL for (int t = 0; t < nt; t++)
            {
                const struct act_f32 *a = (const struct act_f32 *)(act + (size_t)t * stride);
                dot[t] = _mm256_fmadd_ps(w, _mm256_broadcast_ss(&a->x[4 * j + i]), dot[t]);
            }
        }
    }
}

INLINE void block_f32(int kind, int nt, const uint8_t *unit, const uint8_t *block,
                      const uint8_t *act, size_t stride, __m256 *acc)
{
    const uint8_t *payload = block + BLOCK_HEAD(kind);
    struct scales s = load_scales(kind, unit, block);
    __m256 dot[4];
    for (int h = 0; h < 2; h++) {
        UNROLL for (int t = 0; t < nt; t++) dot[t] = _mm256_setzero_ps();
        half_f32(kind, nt, payload, h, act, stride, dot);
        UNROLL for (int t = 0; t < nt; t++) acc[t] =
            _mm256_fmadd_ps(dot[t], HAS_HALVES(kind) && h ? s.d[1] : s.d[0], acc[t]);
    }
    UNROLL for (int t = 0; t < nt; t++)
    {
        const struct act_f32 *a = (const struct act_f32 *)(act + (size_t)t * stride);
        acc[t] = add_mins(kind, acc[t], &s, a->sum);
    }
}

/* ---- float weights ---- */

INLINE void block_float(int kind, int nt, const uint8_t *block, const uint8_t *act, size_t stride,
                        __m256 *acc)
{
    for (int k = 0; k < PACK_BLOCK; k++) {
        __m256 w;
        if (kind == PACK_F32)
            w = _mm256_loadu_ps((const float *)(const void *)(block + 32 * k));
        else if (kind == PACK_F16)
            w = load_half8(block + 16 * k);
        else
            w = _mm256_castsi256_ps(_mm256_slli_epi32(
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(block + 16 * k))), 16));
        UNROLL for (int t = 0; t < nt; t++)
        {
            const struct act_f32 *a = (const struct act_f32 *)(act + (size_t)t * stride);
            acc[t] = _mm256_fmadd_ps(w, _mm256_broadcast_ss(&a->x[k]), acc[t]);
        }
    }
}

/* ---- tiles ---- */

#define FORM_BYTES(form)                                                                           \
    ((form) == ACT_Q32   ? sizeof(struct act_q32)                                                  \
     : (form) == ACT_I16 ? sizeof(struct act_i16)                                                  \
                         : sizeof(struct act_f32))

/* ng groups x nt tokens: out[t * out_stride + 8 * g + row]. */
INLINE void tile(int kind, int form, int ng, int nt, const uint8_t *w, size_t group_bytes,
                 uint32_t n_blocks, const uint8_t *act, size_t stride, float *out,
                 size_t out_stride)
{
    __m256 acc[2][4];
    UNROLL for (int i = 0; i < ng * nt; i++) acc[i / nt][i % nt] = _mm256_setzero_ps();
    if (kind >= PACK_F32) {
        size_t block_bytes = kind == PACK_F32 ? 1024 : 512;
        for (uint32_t b = 0; b < n_blocks; b++, w += block_bytes, act += FORM_BYTES(form))
            block_float(kind, nt, w, act, stride, acc[0]);
    } else {
        for (uint32_t b = 0; b < n_blocks; b += UNIT_BLOCKS(kind), w += UNIT_BYTES(kind)) {
            const uint8_t *block = w + (UNIT_BLOCKS(kind) == 8 ? 32 : 0);
            for (uint32_t i = 0; i < UNIT_BLOCKS(kind); i++) {
                if (form == ACT_F32)
                    block_f32(kind, nt, w, block, act, stride, acc[0]);
                else
                    block_int(kind, form, ng, nt, w, block, group_bytes, act, stride, acc);
                block += BLOCK_BYTES(kind);
                act += FORM_BYTES(form);
            }
        }
    }
    UNROLL for (int i = 0; i < ng * nt; i++)
        _mm256_storeu_ps(out + (size_t)(i % nt) * out_stride + 8 * (i / nt), acc[i / nt][i % nt]);
}

#define TILE(kind, form, ng, nt)                                                                   \
    static void tile_##kind##_##form##_##ng##_##nt(const uint8_t *w, size_t group_bytes,           \
                                                   uint32_t n_blocks, const uint8_t *act,          \
                                                   size_t stride, float *out, size_t out_stride)   \
    {                                                                                              \
        tile(kind, form, ng, nt, w, group_bytes, n_blocks, act, stride, out, out_stride);          \
    }

typedef void tile_fn(const uint8_t *w, size_t group_bytes, uint32_t n_blocks, const uint8_t *act,
                     size_t stride, float *out, size_t out_stride);

/* All tokens of ng groups, in tiles of 4, 2 and 1. */
INLINE void strip(tile_fn *four, tile_fn *two, tile_fn *one, const uint8_t *w, size_t group_bytes,
                  uint32_t n_blocks, const uint8_t *act, size_t stride, uint32_t n_tokens,
                  float *out, size_t out_stride)
{
    for (; n_tokens >= 4; n_tokens -= 4, act += 4 * stride, out += 4 * out_stride)
        four(w, group_bytes, n_blocks, act, stride, out, out_stride);
    if (n_tokens >= 2) {
        two(w, group_bytes, n_blocks, act, stride, out, out_stride);
        n_tokens -= 2;
        act += 2 * stride;
        out += 2 * out_stride;
    }
    if (n_tokens == 1)
        one(w, group_bytes, n_blocks, act, stride, out, out_stride);
}

/* One group at a time for one or two tokens: memory is the bottleneck then, and one forward stream
 * reads fastest. */
#define MATMUL_SINGLES(kind, form)                                                                 \
    static void matmul_##kind##_##form##_singles(                                                  \
        const uint8_t *w, size_t group_bytes, uint32_t n_groups, uint32_t n_blocks,                \
        const uint8_t *act, size_t stride, uint32_t n_tokens, float *out, size_t out_stride)       \
    {                                                                                              \
        for (; n_groups > 0; n_groups--, w += group_bytes, out += 8)                               \
            strip(tile_##kind##_##form##_1_4, tile_##kind##_##form##_1_2,                          \
                  tile_##kind##_##form##_1_1, w, group_bytes, n_blocks, act, stride, n_tokens,     \
                  out, out_stride);                                                                \
    }
#define MATMUL_BY_PAIRS(kind, form)                                                                \
    static void matmul_##kind##_##form(const uint8_t *w, size_t group_bytes, uint32_t n_groups,    \
                                       uint32_t n_blocks, const uint8_t *act, size_t stride,       \
                                       uint32_t n_tokens, float *out, size_t out_stride)           \
    {                                                                                              \
        for (; n_tokens > 2 && n_groups >= 2; n_groups -= 2, w += 2 * group_bytes, out += 16)      \
            strip(tile_##kind##_##form##_2_4, tile_##kind##_##form##_2_2,                          \
                  tile_##kind##_##form##_2_1, w, group_bytes, n_blocks, act, stride, n_tokens,     \
                  out, out_stride);                                                                \
        matmul_##kind##_##form##_singles(w, group_bytes, n_groups, n_blocks, act, stride,          \
                                         n_tokens, out, out_stride);                               \
    }
#define TILES(kind, form, ng)                                                                      \
    TILE(kind, form, ng, 4) TILE(kind, form, ng, 2) TILE(kind, form, ng, 1)
#define MATMUL_PAIRS(kind, form)                                                                   \
    TILES(kind, form, 1) TILES(kind, form, 2) MATMUL_SINGLES(kind, form) MATMUL_BY_PAIRS(kind, form)
#define MATMUL(kind, form) TILES(kind, form, 1) MATMUL_SINGLES(kind, form)

#define MATMUL_N4(kind)                                                                            \
    MATMUL_PAIRS(kind, ACT_Q32) MATMUL_PAIRS(kind, ACT_I16) MATMUL(kind, ACT_F32)
#define MATMUL_I8(kind) MATMUL_PAIRS(kind, ACT_I16) MATMUL(kind, ACT_F32)
MATMUL_N4(PACK_N4)
MATMUL_N4(PACK_N4_M)
MATMUL_N4(PACK_N4_K)
MATMUL_N4(PACK_N4_K16)
MATMUL_I8(PACK_I8)
MATMUL_I8(PACK_I8_M)
MATMUL_I8(PACK_I8_K)
MATMUL_I8(PACK_I8_K16)
MATMUL(PACK_F32, ACT_F32)
MATMUL(PACK_F16, ACT_F32)
MATMUL(PACK_BF16, ACT_F32)

#define N4_ROWS(form)                                                                              \
    [PACK_N4] = matmul_PACK_N4_##form, [PACK_N4_M] = matmul_PACK_N4_M_##form,                      \
    [PACK_N4_K] = matmul_PACK_N4_K_##form, [PACK_N4_K16] = matmul_PACK_N4_K16_##form
#define I8_ROWS(form)                                                                              \
    [PACK_I8] = matmul_PACK_I8_##form, [PACK_I8_M] = matmul_PACK_I8_M_##form,                      \
    [PACK_I8_K] = matmul_PACK_I8_K_##form, [PACK_I8_K16] = matmul_PACK_I8_K16_##form
#define FLOAT_ROWS(form)                                                                           \
    [PACK_F32] = matmul_PACK_F32_##form, [PACK_F16] = matmul_PACK_F16_##form,                      \
    [PACK_BF16] = matmul_PACK_BF16_##form

kernel_matmul *const matmul_avx2[KERNEL_FORMS][PACK_KINDS] = {
    [ACT_Q32] = {N4_ROWS(ACT_Q32)},
    [ACT_I16] = {N4_ROWS(ACT_I16), I8_ROWS(ACT_I16)},
    [ACT_F32] = {N4_ROWS(ACT_F32_singles), I8_ROWS(ACT_F32_singles), FLOAT_ROWS(ACT_F32_singles)},
};
