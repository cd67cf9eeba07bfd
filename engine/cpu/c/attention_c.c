/* Plain C: storing keys and values in every KV type, and attention over them. The oracle of the
 * vector levels (stored bytes are equal on all levels) and their fallback for odd shapes; see kernels.h. */
#include "engine/cpu/c/attention_c.h"

#include <math.h>
#include <string.h>

#include "engine/model/quant.h"

/* ---- storing ---- */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static bool f32_finite(float x)
{
    return (bits_of(x) & 0x7f800000) != 0x7f800000;
}

static bool f16_finite(uint16_t h)
{
    return (h & 0x7c00) != 0x7c00;
}

/* Rounds to nearest even; a NaN stays a NaN. */
static uint16_t f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if (!f32_finite(x))
        return (uint16_t)(u >> 16 | ((u & 0xffff) != 0));
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Stores one element of the unquantised types at p; false when the stored value is not finite. */
static bool store_float(enum kv_dtype type, float x, uint8_t *p)
{
    if (type == KV_F32) {
        memcpy(p, &x, 4);
        return f32_finite(x);
    }
    uint16_t h = type == KV_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    memcpy(p, &h, 2);
    return type == KV_F16 ? f16_finite(h) : (h & 0x7f80) != 0x7f80;
}

bool kv_scale_q8(float top, uint16_t *scale, float *inverse)
{
    *scale = f32_to_f16(top * (1 / 127.0f));
    float s = f16_to_f32(*scale);
    *inverse = s > 0 ? 1 / s : 0;
    return f16_finite(*scale);
}

bool kv_scale_q4(float low, float high, uint16_t *scale, float *inverse)
{
    float far = -low > high ? low : high;
    *scale = f32_to_f16(far * (-1 / 8.0f));
    float s = f16_to_f32(*scale);
    *inverse = s != 0 ? 1 / s : 0;
    return f16_finite(*scale);
}

/* Values of one group of n channels as integers times a scale; false when they are not finite: then
 * the integers are all 0 and the scale is not finite. */
static bool quantise_q8(const float *x, uint32_t n, int *q, uint16_t *scale)
{
    float top = 0, inverse;
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        finite &= f32_finite(x[i]);
        if (fabsf(x[i]) > top)
            top = fabsf(x[i]);
    }
    finite &= kv_scale_q8(finite ? top : NAN, scale, &inverse);
    for (uint32_t i = 0; i < n; i++) {
        int r = finite ? (int)lrintf(x[i] * inverse) : 0;
        q[i] = r > 127 ? 127 : r < -127 ? -127 : r;
    }
    return finite;
}

static bool quantise_q4(const float *x, uint32_t n, int *q, uint16_t *scale)
{
    float low = 0, high = 0, inverse;
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        finite &= f32_finite(x[i]);
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    finite &= kv_scale_q4(finite ? low : NAN, finite ? high : NAN, scale, &inverse);
    for (uint32_t i = 0; i < n; i++) {
        int r = finite ? (int)lrintf(x[i] * inverse) : 0;
        q[i] = (r > 7 ? 7 : r < -8 ? -8 : r) + 8;
    }
    return finite;
}

/* Location of channel i of a slot: byte offset inside K or V, and for q4 whether it is the high half. */
static size_t elem_at(enum kv_dtype type, bool is_k, uint32_t dim, uint32_t n_slots, uint32_t slot,
                      uint32_t i, bool *high)
{
    size_t elem_bytes = type == KV_F32 ? 4 : type == KV_Q8 ? 1 : 2;
    *high = false;
    if (type != KV_Q4)
        return (is_k ? (size_t)i * n_slots + slot : (size_t)slot * dim + i) * elem_bytes;
    *high = is_k ? i % 2 : i / 8 % 2;
    return is_k ? (size_t)(i / 2) * n_slots + slot
                : (size_t)slot * kv_q4_row_bytes(dim) + i / 16 * 8 + i % 8;
}

static size_t scales_at(enum kv_dtype type, bool is_k, uint32_t dim, uint32_t n_slots)
{
    if (type == KV_Q8)
        return (size_t)dim * n_slots;
    return (size_t)(is_k ? (dim + 1) / 2 : kv_q4_row_bytes(dim)) * n_slots;
}

static bool store_quantised(enum kv_dtype type, bool is_k, uint32_t dim, uint32_t n_slots,
                            uint32_t slot, const float *x, uint8_t *half)
{
    bool finite = true, high;
    int q[KV_SCALE_CHANNELS];
    uint8_t *scales = half + scales_at(type, is_k, dim, n_slots);
    for (uint32_t g = 0; g < kv_scale_groups(dim); g++) {
        uint32_t i0 = g * KV_SCALE_CHANNELS, left = dim - i0;
        uint32_t n = left < KV_SCALE_CHANNELS ? left : KV_SCALE_CHANNELS;
        uint16_t scale;
        finite &= (type == KV_Q8 ? quantise_q8 : quantise_q4)(x + i0, n, q, &scale);
        memcpy(scales + ((size_t)g * n_slots + slot) * 2, &scale, 2);
        for (uint32_t i = 0; i < n; i++) {
            uint8_t *p = half + elem_at(type, is_k, dim, n_slots, slot, i0 + i, &high);
            if (type == KV_Q8)
                *p = (uint8_t)(int8_t)q[i];
            else
                *p = (uint8_t)(high ? *p | q[i] << 4 : q[i]); /* the low half comes first */
        }
    }
    return finite;
}

static bool store_half(enum kv_dtype type, bool is_k, uint32_t dim, uint32_t n_slots, uint32_t slot,
                       const float *x, uint8_t *half)
{
    if (kv_dtype_quantised(type))
        return store_quantised(type, is_k, dim, n_slots, slot, x, half);
    bool finite = true, high;
    for (uint32_t i = 0; i < dim; i++)
        finite &= store_float(type, x[i], half + elem_at(type, is_k, dim, n_slots, slot, i, &high));
    return finite;
}

bool c_kv_store_k(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                  const float *k)
{
    return store_half(l->dtype_k, true, l->group[group].head_dim, l->n_slots, slot, k, unit);
}

bool c_kv_store_v(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                  const float *v)
{
    const struct kv_group *g = &l->group[group];
    return store_half(l->dtype_v, false, g->head_dim, l->n_slots, slot, v, unit + g->k_bytes);
}

bool c_kv_store(const struct kv_layout *l, uint32_t group, uint8_t *unit, uint32_t slot,
                const float *k, const float *v)
{
    bool finite = c_kv_store_k(l, group, unit, slot, k);
    return c_kv_store_v(l, group, unit, slot, v) && finite;
}

void c_kv_rotate(float *x, uint32_t head_dim)
{
    uint32_t run = head_dim & -head_dim; /* the largest power of two in head_dim */
    float norm = 1 / sqrtf((float)run);
    for (uint32_t half = 1; half < run; half *= 2) {
        for (uint32_t i = 0; i < head_dim; i++) {
            if (i & half)
                continue;
            float a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
    }
    for (uint32_t i = 0; i < head_dim; i++)
        x[i] *= norm;
}

/* ---- reading ---- */

float c_kv_at(enum kv_dtype type, bool is_k, uint32_t dim, uint32_t n_slots, uint32_t slot,
              uint32_t i, const uint8_t *half)
{
    bool high;
    const uint8_t *p = half + elem_at(type, is_k, dim, n_slots, slot, i, &high);
    uint16_t h;
    if (type == KV_F32) {
        float f;
        memcpy(&f, p, 4);
        return f;
    }
    if (type == KV_F16 || type == KV_BF16) {
        memcpy(&h, p, 2);
        return type == KV_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
    const uint8_t *scales = half + scales_at(type, is_k, dim, n_slots);
    memcpy(&h, scales + ((size_t)(i / KV_SCALE_CHANNELS) * n_slots + slot) * 2, 2);
    int q = type == KV_Q8 ? (int8_t)*p : (high ? *p >> 4 : *p & 15) - 8;
    return (float)q * f16_to_f32(h);
}

/* ---- attention ---- */

struct softmax_state {
    float max, sum;
    float *acc; /* [head_dim], weighted by exp(score - max) */
};

/* The online softmax step for the visible keys [low, high) of one block. */
static void attend_block(const struct attend *a, const float *q, const uint8_t *unit, uint32_t low,
                         uint32_t high, struct softmax_state *s, float *p)
{
    const struct kv_layout *l = a->layout;
    const uint32_t dim = a->kv->head_dim, n_slots = l->n_slots;
    const uint8_t *k = unit, *v = unit + a->kv->k_bytes;
    float top = -INFINITY;
    for (uint32_t t = low; t < high; t++) {
        p[t] = 0;
        for (uint32_t i = 0; i < dim; i++)
            p[t] += q[i] * c_kv_at(l->dtype_k, true, dim, n_slots, t, i, k);
        attend_cap(a, p, t, t + 1);
        if (!(p[t] <= top))
            top = p[t];
    }
    if (!(top <= s->max)) {
        float c = expf(s->max - top);
        s->max = top;
        s->sum *= c;
        for (uint32_t i = 0; i < dim; i++)
            s->acc[i] *= c;
    }
    for (uint32_t t = low; t < high; t++) {
        p[t] = expf(p[t] - s->max);
        s->sum += p[t];
        for (uint32_t i = 0; i < dim; i++)
            s->acc[i] += p[t] * c_kv_at(l->dtype_v, false, dim, n_slots, t, i, v);
    }
}

static void merge(struct softmax_state *total, const struct softmax_state *part, uint32_t dim)
{
    float top = part->max > total->max ? part->max : total->max;
    float ct = expf(total->max - top), cp = expf(part->max - top);
    total->max = top;
    total->sum = total->sum * ct + part->sum * cp;
    for (uint32_t i = 0; i < dim; i++)
        total->acc[i] = total->acc[i] * ct + part->acc[i] * cp;
}

static void attend_one(const struct attend *a, const float *q, uint32_t pos, float *out)
{
    const uint32_t dim = a->kv->head_dim, n_slots = a->layout->n_slots;
    const uint32_t per_chunk = ATTEND_CHUNK_TOKENS / n_slots;
    const uint32_t first = attend_first(a->kv->window, pos), n_keys = pos + 1;
    float *p = a->scratch + 2 * (size_t)dim;
    struct softmax_state total = {-INFINITY, 0, a->scratch};
    struct softmax_state part = {-INFINITY, 0, a->scratch + dim};
    for (uint32_t b = first / n_slots; b * n_slots < n_keys;) {
        uint32_t end = (b / per_chunk + 1) * per_chunk;
        struct softmax_state *s = b == first / n_slots ? &total : &part;
        s->max = -INFINITY;
        s->sum = 0;
        memset(s->acc, 0, dim * sizeof *s->acc);
        for (; b < end && b * n_slots < n_keys; b++) {
            uint32_t key0 = b * n_slots, left = n_keys - key0;
            attend_block(a, q, attend_unit(a, b), first > key0 ? first - key0 : 0,
                         left < n_slots ? left : n_slots, s, p);
        }
        if (s == &part)
            merge(&total, &part, dim);
    }
    for (uint32_t i = 0; i < dim; i++)
        out[i] = total.acc[i] / total.sum;
}

void c_attend(const struct attend *a)
{
    for (uint32_t r = 0; r < a->n_rows; r++)
        for (uint32_t h = 0; h < a->group; h++)
            attend_one(a, a->q + r * a->q_stride + (size_t)h * a->kv->head_dim, a->pos0 + r,
                       a->out + r * a->out_stride + (size_t)h * a->kv->head_dim);
}
