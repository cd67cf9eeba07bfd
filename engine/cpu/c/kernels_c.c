/* Plain C kernels: the oracle that every other level is tested against, and the level for machines
 * without AVX2. Written for clarity; no intrinsics. Called by workers through struct kernels. */
#include "engine/cpu/c/kernels_c.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "config/settings.h"
#include "engine/cpu/c/act8.h"
#include "engine/cpu/c/attention_c.h"
#include "engine/model/quant.h"

enum { ROWS = 8 };
const struct pack_format pack_8_rows = {.rows = ROWS};

uint32_t act8_form(enum pack_kind kind, int activations_setting)
{
    if (kind >= PACK_F32 || activations_setting == SET_ACT_F32)
        return ACT_F32;
    if (activations_setting == SET_ACT_INT16 || kind > PACK_N4_K16)
        return ACT_I16;
    return ACT_Q32;
}

/* Index of input k (0..3 of each four) in act_i16.q. */
static int i16_place(int k)
{
    static const int place[4] = {0, 2, 1, 3};
    return (k & ~3) | place[k & 3];
}

/* ---- activations ---- */

static int round_clamped(float x, int limit)
{
    /* NaN and infinities become 0 here; the block's scale carries them. */
    if (!(fabsf(x) <= (float)limit))
        return x > 0 ? limit : x < 0 ? -limit : 0;
    return (int)lrintf(x);
}

/* Largest magnitude; NaN when any is NaN. */
static float largest(const float *x, int n)
{
    float m = 0;
    for (int i = 0; i < n; i++) {
        if (isnan(x[i]))
            return x[i];
        if (fabsf(x[i]) > m)
            m = fabsf(x[i]);
    }
    return m;
}

/* Finds the quads with the largest and second largest magnitudes (the first among equals); a NaN is larger than
 * anything. Returns the largest magnitude outside both. */
static float top_quads(const float *x, uint16_t quad[2])
{
    float top[8];
    for (uint32_t i = 0; i < 8; i++)
        top[i] = largest(x + 4 * i, 4);
    for (int k = 0; k < 2; k++) {
        uint16_t best = k == 1 && quad[0] == 0;
        for (uint16_t i = best + 1; i < 8; i++)
            if (!(k == 1 && i == quad[0]) && !isnan(top[best]) && !(top[i] <= top[best]))
                best = i;
        quad[k] = best;
    }
    float rest = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (i != quad[0] && i != quad[1] && !(top[i] <= rest))
            rest = top[i];
    return rest;
}

/* An integer as two digits. */
static void put_digits(struct act_q32 *a, int i, int q)
{
    int ex = 0;
    for (int k = 0; k < 2; k++) {
        if (i / 4 == a->quad[k]) {
            ex = (q + 64) >> 7;
            a->ex[4 * k + i % 4] = (int8_t)ex;
        }
    }
    a->q[i] = (int8_t)(q - 128 * ex);
}

static void c_quantise_q32(const float *x, uint32_t n, uint8_t *out)
{
    struct act_q32 *a = (struct act_q32 *)out;
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        int sum[2] = {0, 0}; /* of the first half, of all */
        float rest = top_quads(x, a->quad) * (1 / Q32_DIGIT);
        a->d = largest(x, PACK_BLOCK) * (1 / Q32_TWO_DIGITS);
        if (a->d < rest)
            a->d = rest;
        float inverse = a->d >= Q32_LEAST_SCALE ? 1 / a->d : 0;
        for (int i = 0; i < PACK_BLOCK; i++) {
            int q = round_clamped(x[i] * inverse, (int)Q32_TWO_DIGITS);
            put_digits(a, i, q);
            sum[0] += i < 16 ? q : 0;
            sum[1] += q;
        }
        for (int k = 0; k < 2; k++) {
            a->sum[k] = a->d * (float)sum[k];
            a->bias[k] = -128 * sum[k];
        }
    }
}

static void c_quantise_i16(const float *x, uint32_t n, uint8_t *out)
{
    struct act_i16 *a = (struct act_i16 *)out;
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        float top = largest(x, PACK_BLOCK);
        float inverse = top > 0 ? 32767.0f / top : 0;
        int sum[2] = {0, 0};
        for (int i = 0; i < PACK_BLOCK; i++) {
            int q = round_clamped(x[i] * inverse, 32767);
            a->q[i16_place(i)] = (int16_t)q;
            sum[0] += i < 16 ? q : 0;
            sum[1] += q;
        }
        a->d = top * (1 / 32767.0f);
        for (int k = 0; k < 2; k++)
            a->sum[k] = a->d * (float)sum[k];
    }
}

static void c_quantise_f32(const float *x, uint32_t n, uint8_t *out)
{
    struct act_f32 *a = (struct act_f32 *)out;
    for (uint32_t b = 0; b < n / PACK_BLOCK; b++, a++, x += PACK_BLOCK) {
        memcpy(a->x, x, sizeof a->x);
        a->sum[1] = 0;
        for (int i = 0; i < PACK_BLOCK; i++) {
            a->sum[1] += x[i];
            if (i == 15)
                a->sum[0] = a->sum[1];
        }
    }
}

/* ---- matrix products ---- */

/* Input i of a block in units of its scale. */
static float act_at(enum act_form form, const uint8_t *block, int i)
{
    if (form == ACT_F32)
        return ((const struct act_f32 *)block)->x[i];
    if (form == ACT_I16)
        return ((const struct act_i16 *)block)->q[i16_place(i)];
    const struct act_q32 *a = (const struct act_q32 *)block;
    int q = a->q[i];
    for (int k = 0; k < 2; k++)
        if (i / 4 == a->quad[k])
            q += 128 * a->ex[4 * k + i % 4];
    return (float)q;
}

/* Half h of a block as floats with its scale and sum, for every form. */
static void act_half(enum act_form form, const uint8_t *block, int h, float x[16], float *d,
                     float *sum)
{
    const float *sums = ((const struct act_f32 *)block)->sum;
    for (int i = 0; i < 16; i++)
        x[i] = act_at(form, block, 16 * h + i);
    *d = 1;
    if (form == ACT_Q32) {
        *d = ((const struct act_q32 *)block)->d;
        sums = ((const struct act_q32 *)block)->sum;
    } else if (form == ACT_I16) {
        *d = ((const struct act_i16 *)block)->d;
        sums = ((const struct act_i16 *)block)->sum;
    }
    *sum = h == 0 ? sums[0] : sums[1] - sums[0];
}

static void c_matmul(enum pack_kind kind, enum act_form form, const uint8_t *group,
                     uint32_t n_blocks, const uint8_t *act, size_t act_stride_bytes,
                     uint32_t n_tokens, float *out, size_t out_stride)
{
    const struct packed p = {
        .format = &pack_8_rows, .kind = kind, .shape = pack_shape_of(&pack_8_rows, kind)};
    float q[ROWS][32], d[ROWS][2], m[ROWS][2], x[16], dx, sum;
    for (uint32_t t = 0; t < n_tokens; t++)
        memset(out + t * out_stride, 0, ROWS * sizeof *out);
    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t r = 0; r < ROWS; r++)
            packed_block(&p, group, b, r, q[r], d[r], m[r]);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const uint8_t *block = act + t * act_stride_bytes + b * kernels_c.act_bytes[form];
            for (int h = 0; h < 2; h++) {
                act_half(form, block, h, x, &dx, &sum);
                for (int r = 0; r < ROWS; r++) {
                    float dot = 0;
                    for (int i = 0; i < 16; i++)
                        dot += q[r][16 * h + i] * x[i];
                    out[t * out_stride + (size_t)r] += dot * dx * d[r][h] + sum * m[r][h];
                }
            }
        }
    }
}

#define MATMUL(kind, form)                                                                         \
    static void c_matmul_##kind##_##form(const uint8_t *groups, size_t group_bytes,                \
                                         uint32_t n_groups, uint32_t n_blocks, const uint8_t *act, \
                                         size_t act_stride_bytes, uint32_t n_tokens, float *out,   \
                                         size_t out_stride)                                        \
    {                                                                                              \
        for (uint32_t g = 0; g < n_groups; g++)                                                    \
            c_matmul(kind, form, groups + g * group_bytes, n_blocks, act, act_stride_bytes,        \
                     n_tokens, out + (size_t)ROWS * g, out_stride);                                \
    }
#define MATMUL_N4(kind) MATMUL(kind, ACT_Q32) MATMUL(kind, ACT_I16) MATMUL(kind, ACT_F32)
#define MATMUL_I8(kind) MATMUL(kind, ACT_I16) MATMUL(kind, ACT_F32)
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

/* ---- elementwise ---- */

static void c_rms_norm(const float *x, const float *weight, float eps, uint32_t n, float *out)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    float scale = 1 / sqrtf(sum / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

static void c_swiglu(const float *gate, const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

/* 0.5 (1 + tanh(y)) = sigmoid(2 y). */
static void c_geglu(const float *gate, const float *up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i];
        out[i] = g / (1 + expf(-GELU_SLOPE * (g + GELU_CUBIC * g * g * g))) * up[i];
    }
}

static void c_add(float *x, const float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void c_rope(float *x, const float *cos_sin, uint32_t head_dim, uint32_t rope_dims, bool neox,
                   float scale)
{
    uint32_t half = rope_dims / 2;
    for (uint32_t i = 0; i < half; i++) {
        float *a = neox ? x + i : x + 2 * i, *b = neox ? x + i + half : x + 2 * i + 1;
        float c = cos_sin[i], s = cos_sin[half + i], x0 = *a, x1 = *b;
        *a = (x0 * c - x1 * s) * scale;
        *b = (x1 * c + x0 * s) * scale;
    }
    for (uint32_t i = rope_dims; i < head_dim; i++)
        x[i] *= scale;
}

#define N4_ROWS(form)                                                                              \
    [PACK_N4] = c_matmul_PACK_N4_##form, [PACK_N4_M] = c_matmul_PACK_N4_M_##form,                  \
    [PACK_N4_K] = c_matmul_PACK_N4_K_##form, [PACK_N4_K16] = c_matmul_PACK_N4_K16_##form
#define I8_ROWS(form)                                                                              \
    [PACK_I8] = c_matmul_PACK_I8_##form, [PACK_I8_M] = c_matmul_PACK_I8_M_##form,                  \
    [PACK_I8_K] = c_matmul_PACK_I8_K_##form, [PACK_I8_K16] = c_matmul_PACK_I8_K16_##form
#define FLOAT_ROWS(form)                                                                           \
    [PACK_F32] = c_matmul_PACK_F32_##form, [PACK_F16] = c_matmul_PACK_F16_##form,                  \
    [PACK_BF16] = c_matmul_PACK_BF16_##form

static kernel_matmul *const matmul_c[KERNEL_FORMS][PACK_KINDS] = {
    [ACT_Q32] = {N4_ROWS(ACT_Q32)},
    [ACT_I16] = {N4_ROWS(ACT_I16), I8_ROWS(ACT_I16)},
    [ACT_F32] = {N4_ROWS(ACT_F32), I8_ROWS(ACT_F32), FLOAT_ROWS(ACT_F32)},
};

const struct kernels kernels_c = {
    .name = "c",
    .revision = 2,
    .format = &pack_8_rows,
    .act_bytes = {sizeof(struct act_q32), sizeof(struct act_i16), sizeof(struct act_f32)},
    .quantise = {c_quantise_q32, c_quantise_i16, c_quantise_f32},
    .form = act8_form,
    .matmul = {matmul_c[ACT_Q32], matmul_c[ACT_I16], matmul_c[ACT_F32]},
    .row = &row_passes_plain,
    .rms_norm = c_rms_norm,
    .swiglu = c_swiglu,
    .geglu = c_geglu,
    .add = c_add,
    .rope = c_rope,
    .kv_store = c_kv_store,
    .kv_rotate = c_kv_rotate,
    .attend = c_attend,
};
