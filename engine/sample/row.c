/* Maximum, exponential, selection over a row of logits; see row.h. Any thread; no state. */
#include "engine/sample/row.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/sample/row_passes.h"

/* ---- the plain passes ---- */

/* GCC and clang vector types: lane-wise IEEE operations, SSE2 on x86-64. */
typedef float f32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));

enum { LANES = 4, BLOCK_VECTORS = ROW_BLOCK / LANES };

static inline f32x4 splat(float x)
{
    return (f32x4){x, x, x, x};
}

static inline f32x4 load(const float *p)
{
    f32x4 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void store(float *p, f32x4 v)
{
    memcpy(p, &v, sizeof(v));
}

static inline f32x4 choose(i32x4 mask, f32x4 yes, f32x4 no)
{
    return (f32x4)(((i32x4)yes & mask) | ((i32x4)no & ~mask));
}

static inline f32x4 larger(f32x4 a, f32x4 b)
{
    return choose(a > b, a, b);
}

/* 2^y for y <= 0: y = n + r with |r| <= 1/2. Under 2^-126 the result is 0. */
static inline f32x4 exp2_lanes(f32x4 y)
{
    const f32x4 round = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    f32x4 t = y + round;
    f32x4 r = y - (t - round);
    f32x4 p = splat(ROW_EXP2_HIGHEST);
#define TERM(c) p = p * r + splat(c);
    ROW_EXP2_REST(TERM)
#undef TERM
    u32x4 power = ((u32x4)t << 23) + ((u32x4){127, 127, 127, 127} << 23);
    f32x4 x = p * (f32x4)power;
    return (f32x4)((i32x4)x & (y >= splat(-126.0f)));
}

/* Maximum of a block; *good clears the lanes that held a value not <= FLT_MAX. Four running
 * maxima, since a single one would wait for each comparison. */
static inline float block_highest(const float *p, i32x4 *good)
{
    const f32x4 top = splat(FLT_MAX);
    f32x4 m[4] = {load(p), load(p + 4), load(p + 8), load(p + 12)};
    i32x4 fine = (m[0] <= top) & (m[1] <= top) & (m[2] <= top) & (m[3] <= top);
    for (uint32_t i = 4 * LANES; i < ROW_BLOCK; i += 4 * LANES) {
        for (uint32_t j = 0; j < 4; j++) {
            f32x4 v = load(p + i + j * LANES);
            fine &= v <= top;
            m[j] = larger(v, m[j]);
        }
    }
    *good &= fine;
    m[0] = larger(larger(m[0], m[1]), larger(m[2], m[3]));
    float m01 = m[0][0] > m[0][1] ? m[0][0] : m[0][1];
    float m23 = m[0][2] > m[0][3] ? m[0][2] : m[0][3];
    return m01 > m23 ? m01 : m23;
}

static bool scan(const float *x, uint32_t n_blocks, float *block_max)
{
    i32x4 good = {-1, -1, -1, -1};
    for (uint32_t b = 0; b < n_blocks; b++)
        block_max[b] = block_highest(x + b * ROW_BLOCK, &good);
    return good[0] && good[1] && good[2] && good[3];
}

static float block_sum(const float *p, float highest, float scale)
{
    const f32x4 max = splat(highest), s = splat(scale);
    f32x4 even = exp2_lanes((load(p) - max) * s), odd = exp2_lanes((load(p + LANES) - max) * s);
    for (uint32_t i = 2; i < BLOCK_VECTORS; i += 2) {
        even += exp2_lanes((load(p + i * LANES) - max) * s);
        odd += exp2_lanes((load(p + (i + 1) * LANES) - max) * s);
    }
    even += odd;
    return (even[0] + even[1]) + (even[2] + even[3]);
}

static void exp_row(const float *x, uint32_t n, float max, float scale, float *p)
{
    const f32x4 m = splat(max), s = splat(scale);
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(p + i, exp2_lanes((load(x + i) - m) * s));
    if (i < n) {
        float rest[LANES] = {max, max, max, max};
        memcpy(rest, x + i, (n - i) * sizeof(float));
        store(rest, exp2_lanes((load(rest) - m) * s));
        memcpy(p + i, rest, (n - i) * sizeof(float));
    }
}

const struct row_passes row_passes_plain = {.scan = scan, .block_sum = block_sum, .exp = exp_row};

/* ---- passes over a row ---- */

#define LOG2_E 1.44269504f

/* The block itself, or a copy padded with -Inf when the row ends inside it. */
static const float *block_at(const float *x, uint32_t n, uint32_t b, float pad[ROW_BLOCK])
{
    uint32_t start = b * ROW_BLOCK;
    if (n - start >= ROW_BLOCK)
        return x + start;
    for (uint32_t i = 0; i < ROW_BLOCK; i++)
        pad[i] = start + i < n ? x[start + i] : -INFINITY;
    return pad;
}

bool row_scan(const struct row_passes *pass, const float *x, uint32_t n, float *block_max,
              float *max)
{
    float pad[ROW_BLOCK], highest = -INFINITY;
    uint32_t whole = n / ROW_BLOCK;
    bool good = pass->scan(x, whole, block_max);
    if (whole < row_n_blocks(n))
        good &= pass->scan(block_at(x, n, whole, pad), 1, block_max + whole);
    for (uint32_t b = 0; b < row_n_blocks(n); b++)
        if (block_max[b] > highest)
            highest = block_max[b];
    *max = highest;
    return good;
}

uint32_t row_find(const float *x, uint32_t n, const float *block_max, float max)
{
    uint32_t b = 0;
    while (b + 1 < row_n_blocks(n) && block_max[b] != max)
        b++;
    uint32_t i = b * ROW_BLOCK;
    while (i + 1 < n && x[i] != max)
        i++;
    return i;
}

double row_softmax(const struct row_passes *pass, const float *x, uint32_t n,
                   const float *block_max, float max, float inv_t)
{
    float pad[ROW_BLOCK];
    double total = 0;
    for (uint32_t b = 0; b < row_n_blocks(n); b++) {
        if ((block_max[b] - max) * inv_t < -88)
            continue; /* every term is 0 */
        total += (double)pass->block_sum(block_at(x, n, b, pad), max, inv_t * LOG2_E);
    }
    return total;
}

void row_exp(const struct row_passes *pass, const float *x, uint32_t n, float max, float inv_t,
             float *p)
{
    pass->exp(x, n, max, inv_t * LOG2_E, p);
}

/* ---- drawing without computing most of the row ---- */

/* Blocks whose maximum is within this factor of the highest are summed; the others are bounded. */
#define HOT 0.02f

double row_envelope(const struct row_passes *pass, const float *x, uint32_t n,
                    const float *block_max, float max, float inv_t, float *block_p, double *before)
{
    float pad[ROW_BLOCK];
    double total = 0;
    row_exp(pass, block_max, row_n_blocks(n), max, inv_t, block_p);
    for (uint32_t b = 0; b < row_n_blocks(n); b++) {
        before[b] = total;
        if (block_p[b] >= HOT)
            total += (double)pass->block_sum(block_at(x, n, b, pad), max, inv_t * LOG2_E);
        else
            total += (double)(ROW_BLOCK * block_p[b]);
    }
    return total;
}

/* Last block that begins at or before target. */
static uint32_t block_of(const double *before, uint32_t n_blocks, double target)
{
    uint32_t low = 0, high = n_blocks;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (before[mid] <= target)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Inverse of the running sum inside a summed block. */
static uint32_t draw_in_block(const struct row_passes *pass, const float *block, float max,
                              float inv_t, double target)
{
    float p[ROW_BLOCK];
    uint32_t chosen = 0; /* rounding may carry target past the end: the last possible one then */
    double sum = 0;
    row_exp(pass, block, ROW_BLOCK, max, inv_t, p);
    for (uint32_t i = 0; i < ROW_BLOCK; i++) {
        if (!(p[i] > 0))
            continue;
        chosen = i;
        sum += (double)p[i];
        if (sum > target)
            break;
    }
    return chosen;
}

uint32_t row_try(const struct row_passes *pass, const float *x, uint32_t n, const float *block_max,
                 float max, float inv_t, const float *block_p, const double *before, double total,
                 const uint32_t word[4])
{
    float pad[ROW_BLOCK], p;
    double target = row_uniform(word) * total;
    uint32_t b = block_of(before, row_n_blocks(n), target);
    if (block_p[b] >= HOT)
        return b * ROW_BLOCK +
               draw_in_block(pass, block_at(x, n, b, pad), max, inv_t, target - before[b]);
    uint32_t i = b * ROW_BLOCK + word[2] % ROW_BLOCK;
    if (i >= n || !(block_p[b] > 0))
        return n;
    /* The 26 unused bits of word[2] extend word[3]. */
    double u = (double)((uint64_t)word[3] << 26 | word[2] >> 6) * 0x1p-58;
    row_exp(pass, &x[i], 1, block_max[b], inv_t, &p);
    return u < (double)p ? i : n;
}

uint32_t row_collect(const float *x, uint32_t n, const float *block_max, float threshold,
                     uint32_t *id, float *value)
{
    uint32_t count = 0;
    if (threshold < -FLT_MAX)
        threshold = -FLT_MAX;
    for (uint32_t b = 0; b < row_n_blocks(n); b++) {
        if (!(block_max[b] >= threshold))
            continue;
        uint32_t end = (b + 1) * ROW_BLOCK < n ? (b + 1) * ROW_BLOCK : n;
        for (uint32_t i = b * ROW_BLOCK; i < end; i++) {
            id[count] = i;
            value[count] = x[i];
            count += x[i] >= threshold;
        }
    }
    return count;
}

float row_floor_of_top(const float *block_max, uint32_t n_blocks, uint32_t k)
{
    double above;
    if (k > n_blocks)
        return -INFINITY;
    return select_boundary(block_max, NULL, n_blocks, k, &above);
}

/* ---- selection by radix: linear whatever the values ---- */

/* Orders like the floats, with -0 equal to 0. */
static inline uint32_t key_of(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof(bits));
    return bits ^ ((bits & 0x80000000u) ? 0xffffffffu : 0x80000000u);
}

static float value_of(uint32_t key)
{
    float x;
    uint32_t bits = key ^ ((key & 0x80000000u) ? 0x80000000u : 0xffffffffu);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

enum { RADIX_BITS = 11, RADIX_BINS = 1 << RADIX_BITS };

/* Highest bin at which the running weight from the top reaches target (the lowest occupied one when
 * rounding leaves it short). *above grows by the weight above it. */
static uint32_t crossing_bin(const double *bin, double target, double *above)
{
    uint32_t last = 0;
    double sum = *above;
    for (uint32_t i = RADIX_BINS; i-- > 0;) {
        if (bin[i] == 0)
            continue;
        last = i;
        *above = sum;
        sum += bin[i];
        if (sum >= target)
            break;
    }
    return last;
}

float select_boundary(const float *value, const float *weight, uint32_t n, double target,
                      double *above)
{
    /* Digits of the key from the top: 11, 11, 10 bits. */
    static const uint32_t shifts[] = {21, 10, 0};
    double bin[RADIX_BINS];
    uint32_t prefix = 0, mask = 0;
    *above = 0;
    for (uint32_t level = 0; level < 3; level++) {
        uint32_t shift = shifts[level];
        memset(bin, 0, sizeof(bin));
        for (uint32_t i = 0; i < n; i++) {
            uint32_t key = key_of(value[i]);
            if ((key & mask) == prefix)
                bin[key >> shift & (RADIX_BINS - 1)] += weight ? (double)weight[i] : 1;
        }
        prefix |= crossing_bin(bin, target, above) << shift;
        mask |= (uint32_t)(RADIX_BINS - 1) << shift;
    }
    return value_of(prefix);
}

double row_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent); /* [0.5, 1) */
    if (m < 0.70710678118654752) {
        m *= 2;
        exponent--;
    }
    /* ln m = 2 artanh(s); |s| <= 0.1716, so that 12 terms reach 1e-18. */
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return 2 * s * sum + exponent * 0.69314718055994531;
}
