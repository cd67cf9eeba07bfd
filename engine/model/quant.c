/* Block formats expanded one weight at a time; see quant.h.
 *
 * Written as a reference, not for speed: each function follows the published block layout and multiplies
 * in the order of the reference package, so results equal it to the bit. All scales are f16, all
 * integers little-endian; sources need no alignment. */
#include "engine/model/quant.h"

#include <string.h>

#include "base/check.h"

/* ---- 16-bit floats ---- */

static float bits_to_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1f;
    uint32_t mantissa = h & 0x3ff;
    if (exponent == 0x1f)
        return bits_to_f32(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return bits_to_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float subnormal = (float)mantissa * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

uint16_t f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: keep it quiet and keep the upper payload */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: subnormal or zero */
        if (magnitude < 0x33000000)
            return (uint16_t)sign;
        uint32_t exponent = magnitude >> 23;
        uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
        uint32_t shift = 126 - exponent; /* 14..24 */
        uint32_t half = 1u << (shift - 1);
        uint32_t rest = mantissa & ((half << 1) - 1);
        uint32_t value = mantissa >> shift;
        value += rest > half || (rest == half && (value & 1));
        return (uint16_t)(sign | value);
    }
    uint32_t value = (magnitude - 0x38000000) >> 13;
    uint32_t rest = magnitude & 0x1fff;
    value += rest > 0x1000 || (rest == 0x1000 && (value & 1));
    return (uint16_t)(sign | value);
}

float bf16_to_f32(uint16_t h)
{
    return bits_to_f32((uint32_t)h << 16);
}

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

/* ---- tables ---- */

const char *quant_name(uint32_t type)
{
    switch (type) {
#define X(id, number, name, n, bytes)                                                              \
    case number:                                                                                   \
        return name;
        QUANT_TABLE(X)
#undef X
#define X(number, name, n, bytes)                                                                  \
    case number:                                                                                   \
        return name;
        QUANT_OTHER_TABLE(X)
#undef X
    default:
        return "unknown";
    }
}

bool quant_supported(uint32_t type)
{
    return quant_block_weights(type) != 0;
}

uint32_t quant_block_weights(uint32_t type)
{
    switch (type) {
#define X(id, number, name, n, bytes)                                                              \
    case number:                                                                                   \
        return n;
        QUANT_TABLE(X)
#undef X
    default:
        return 0;
    }
}

uint32_t quant_block_bytes(uint32_t type)
{
    switch (type) {
#define X(id, number, name, n, bytes)                                                              \
    case number:                                                                                   \
        return bytes;
        QUANT_TABLE(X)
#undef X
    default:
        return 0;
    }
}

bool quant_block(uint32_t type, uint32_t *weights, uint32_t *bytes)
{
    *weights = quant_block_weights(type);
    *bytes = quant_block_bytes(type);
    switch (type) {
#define X(number, name, n, n_bytes)                                                                \
    case number:                                                                                   \
        *weights = n;                                                                              \
        *bytes = n_bytes;                                                                          \
        break;
        QUANT_OTHER_TABLE(X)
#undef X
    default:
        break;
    }
    return *weights != 0;
}

size_t quant_row_bytes(uint32_t type, uint64_t n)
{
    uint32_t weights = quant_block_weights(type);
    CHECKF(weights && n % weights == 0, "%llu weights of type %u", (unsigned long long)n, type);
    return (size_t)(n / weights) * quant_block_bytes(type);
}

/* ---- one block each: p = the block's bytes, y = its weights ---- */

static void block_f32(const uint8_t *p, float *y)
{
    memcpy(y, p, 4);
}

static void block_f16(const uint8_t *p, float *y)
{
    *y = load_f16(p);
}

static void block_bf16(const uint8_t *p, float *y)
{
    *y = bf16_to_f32(load_u16(p));
}

/* d f16, 16 bytes: low nibbles are weights 0..15, high nibbles 16..31. */
static void block_q4_0(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((p[2 + i] & 15) - 8);
        y[i + 16] = d * (float)((p[2 + i] >> 4) - 8);
    }
}

/* d, m f16, nibbles as Q4_0. */
static void block_q4_1(const uint8_t *p, float *y)
{
    float d = load_f16(p), m = load_f16(p + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(p[4 + i] & 15) + m;
        y[i + 16] = d * (float)(p[4 + i] >> 4) + m;
    }
}

/* Weight i of a Q5 block: nibble i, fifth bit from bit i of the u32. */
static int five_bits(const uint8_t *nibbles, uint32_t high, int i)
{
    int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
    return low | (int)(high >> i & 1) << 4;
}

/* d f16, 32 fifth bits, nibbles as Q4_0. */
static void block_q5_0(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    uint32_t high = load_u32(p + 2);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(five_bits(p + 6, high, i) - 16);
}

/* d, m f16, 32 fifth bits, nibbles as Q4_0. */
static void block_q5_1(const uint8_t *p, float *y)
{
    float d = load_f16(p), m = load_f16(p + 2);
    uint32_t high = load_u32(p + 4);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)five_bits(p + 8, high, i) + m;
}

/* d f16, 32 i8. */
static void block_q8_0(const uint8_t *p, float *y)
{
    float d = load_f16(p);
    for (int i = 0; i < 32; i++)
        y[i] = (float)(int8_t)p[2 + i] * d;
}

/* Two bits of weight i in a K block: bytes of 32 hold four planes of 32 weights. */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* Four bits of weight i: bytes of 32 hold two planes of 32 weights. */
static int four_bits(const uint8_t *q, int i)
{
    return q[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

/* 16 scale bytes (low nibble scale, high nibble minimum) for 16 weights each, 64 bytes, d, dmin f16. */
static void block_q2_k(const uint8_t *p, float *y)
{
    float d = load_f16(p + 80), dmin = load_f16(p + 82);
    for (int i = 0; i < 256; i++) {
        float scale = d * (float)(p[i / 16] & 15), min = dmin * (float)(p[i / 16] >> 4);
        y[i] = scale * (float)two_bits(p + 16, i) - min;
    }
}

/* Scale j of 16 in 12 bytes: low four bits in bytes 0..7, two upper bits in bytes 8..11; minus 32. */
static int q3_k_scale(const uint8_t *s, int j)
{
    int low = s[j % 8] >> (j / 8 * 4) & 15;
    int high = s[8 + j % 4] >> (j / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

/* 32 bytes of third bits (a set bit means no offset), 64 bytes, 12 bytes of scales, d f16. */
static void block_q3_k(const uint8_t *p, float *y)
{
    float d = load_f16(p + 108);
    for (int i = 0; i < 256; i++) {
        float scale = d * (float)q3_k_scale(p + 96, i / 16);
        int third = p[i % 32] >> (i / 32) & 1;
        y[i] = scale * (float)(two_bits(p + 32, i) - (third ? 0 : 4));
    }
}

/* Scale and minimum j of 8, six bits each in 12 bytes. */
static void q4_k_scale(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
        return;
    }
    *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
}

/* d, dmin f16, 12 bytes of scales and minima for 32 weights each, 128 bytes. */
static void block_q4_k(const uint8_t *p, float *y)
{
    float d = load_f16(p), dmin = load_f16(p + 2);
    for (int i = 0; i < 256; i++) {
        int scale, min;
        q4_k_scale(p + 4, i / 32, &scale, &min);
        y[i] = d * (float)scale * (float)four_bits(p + 16, i) - dmin * (float)min;
    }
}

/* As Q4_K with 32 bytes of fifth bits before the nibbles. */
static void block_q5_k(const uint8_t *p, float *y)
{
    float d = load_f16(p), dmin = load_f16(p + 2);
    for (int i = 0; i < 256; i++) {
        int scale, min;
        q4_k_scale(p + 4, i / 32, &scale, &min);
        int q = four_bits(p + 48, i) | (p[16 + i % 32] >> (i / 32) & 1) << 4;
        y[i] = d * (float)scale * (float)q - dmin * (float)min;
    }
}

/* 128 bytes of low nibbles (bytes of 64 hold two planes of 64 weights), 64 bytes of upper bit pairs,
 * 16 i8 scales, d f16. */
static void block_q6_k(const uint8_t *p, float *y)
{
    float d = load_f16(p + 208);
    for (int i = 0; i < 256; i++) {
        int low = p[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        int q = (low | two_bits(p + 128, i) << 4) - 32;
        y[i] = d * (float)(int8_t)p[192 + i / 16] * (float)q;
    }
}

typedef void block_fn(const uint8_t *p, float *y);

static block_fn *block_of(uint32_t type)
{
    switch (type) {
    case QUANT_F32:
        return block_f32;
    case QUANT_F16:
        return block_f16;
    case QUANT_BF16:
        return block_bf16;
    case QUANT_Q4_0:
        return block_q4_0;
    case QUANT_Q4_1:
        return block_q4_1;
    case QUANT_Q5_0:
        return block_q5_0;
    case QUANT_Q5_1:
        return block_q5_1;
    case QUANT_Q8_0:
        return block_q8_0;
    case QUANT_Q2_K:
        return block_q2_k;
    case QUANT_Q3_K:
        return block_q3_k;
    case QUANT_Q4_K:
        return block_q4_k;
    case QUANT_Q5_K:
        return block_q5_k;
    case QUANT_Q6_K:
        return block_q6_k;
    default:
        return NULL;
    }
}

void quant_dequant(uint32_t type, const void *src, float *dst, uint64_t n)
{
    block_fn *expand = block_of(type);
    uint32_t weights = quant_block_weights(type), bytes = quant_block_bytes(type);
    CHECKF(expand && n % weights == 0, "%llu weights of type %u", (unsigned long long)n, type);
    const uint8_t *p = src;
    for (uint64_t i = 0; i < n; i += weights, p += bytes)
        expand(p, dst + i);
}
