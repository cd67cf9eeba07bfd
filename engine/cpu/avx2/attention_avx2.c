/* AVX2: paged attention of the query heads of one KV head, with an online softmax per KV block.
 *
 * Up to 6 query vectors share every key and value loaded: 6 x 2 accumulators of 8 lanes, two
 * loads and a broadcast fill the 16 registers. Keys are d-major, so 16 scores of a vector are two
 * vertical sums over d; values are token-major, so the weighted sum is broadcast and FMA. K and V
 * have separate types; all arithmetic is f32, in which int8 and 4-bit values times an f16 scale are
 * exact. The context is cut at fixed multiples of ATTEND_CHUNK_TOKENS; chunks have their own state and
 * are merged from left to right; those wholly below the window are skipped. The roundings of a query
 * vector depend only on the keys it sees, never on the other vectors or on slots it does not see
 * (whose content is undefined: scores are selected, never multiplied by 0). */
#include "engine/cpu/avx2/kernels_avx2.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/c/attention_c.h"
#include "engine/cpu/avx2/simd_avx2.h"

enum { TILE_VECTORS = 6 };

struct state {
    float *max, *sum; /* [n_vectors] */
    float *acc; /* [n_vectors][head_dim] */
};

struct job {
    const struct attend *a;
    uint32_t dim, n_slots, n_vectors;
    float *q; /* [n_vectors][dim] */
    float *scores; /* [TILE_VECTORS][n_slots] */
    float *scaled; /* [TILE_VECTORS][n_slots]: weights times the scales of values */
    float *k_scale, *v_scale; /* [kv_scale_groups][n_slots] of the block at hand */
    struct state total, part;
};

/* Channels whose values come from one load. */
#define CHANNELS_A_LOAD(type) ((type) == KV_Q4 ? 2 : 1)
#define ELEMENT_BYTES(type) ((size_t)((type) == KV_F32 ? 4 : IS_QUANTISED(type) ? 1 : 2))
#define IS_QUANTISED(type) ((type) == KV_Q8 || (type) == KV_Q4)
/* Bytes of the next unit to prefetch per channel, so that one pass prefetches all of it. */
#define PREFETCH_BYTES(type)                                                                       \
    ((type) == KV_F32 ? 128 : (type) == KV_Q8 ? 36 : (type) == KV_Q4 ? 20 : 64)

INLINE __m256i load_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* 8 elements from index i on of a type that is no q4. */
INLINE __m256 load_kv(int type, const uint8_t *p, size_t i)
{
    if (type == KV_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 2 * i)));
    if (type == KV_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 2 * i))), 16));
    if (type == KV_Q8)
        return _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + i))));
    return _mm256_loadu_ps((const float *)(const void *)(p + 4 * i));
}

/* The low or high halves of 8 bytes as -8..7. */
INLINE __m256 q4_half(__m256i bytes, int high)
{
    __m256i q = high ? _mm256_srli_epi32(bytes, 4) : _mm256_and_si256(bytes, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(8)));
}

/* Keys of one channel, for q4 two, in 8 slots: from element i of row on; scale: of those slots. */
INLINE void load_keys(int type, const uint8_t *row, size_t i, const float *scale, __m256 key[2])
{
    if (type == KV_Q4) {
        __m256i b = load_bytes(row + i);
        key[0] = q4_half(b, 0);
        key[1] = q4_half(b, 1);
    } else {
        key[0] = load_kv(type, row, i);
    }
    if (IS_QUANTISED(type)) {
        for (int e = 0; e < CHANNELS_A_LOAD(type); e++)
            key[e] = _mm256_mul_ps(key[e], _mm256_loadu_ps(scale + i));
    }
}

/* s[v] += q[v] times one channel of the keys; dim floats from vector to vector. */
INLINE void add_keys(int nv, int w, uint32_t dim, const float *q, __m256 k0, __m256 k1,
                     __m256 s[TILE_VECTORS][2])
{
    UNROLL for (int v = 0; v < nv; v++)
    {
        __m256 x = _mm256_broadcast_ss(q + (size_t)v * dim);
        s[v][0] = _mm256_fmadd_ps(x, k0, s[v][0]);
        if (w == 2)
            s[v][1] = _mm256_fmadd_ps(x, k1, s[v][1]);
    }
}

/* scores[v][slot] = q[v] . k[:, slot] for nv vectors, w * 8 slots from slot0. */
INLINE void score(int type, int nv, int w, const struct job *j, const float *q, const uint8_t *k,
                  uint32_t slot0, const uint8_t *next)
{
    __m256 s[TILE_VECTORS][2];
    UNROLL for (int v = 0; v < nv; v++) s[v][0] = s[v][1] = _mm256_setzero_ps();
    const uint32_t dim = j->dim, n_slots = j->n_slots;
    const uint8_t *row = k + slot0 * ELEMENT_BYTES(type);
    const float *scale = j->k_scale + slot0;
    for (uint32_t d = 0; d < dim; d += CHANNELS_A_LOAD(type)) {
        __m256 k0[2], k1[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        _mm_prefetch((const char *)(next + PREFETCH_BYTES(type) * (size_t)d), _MM_HINT_T1);
        load_keys(type, row, 0, scale, k0);
        if (w == 2)
            load_keys(type, row, 8, scale, k1);
        row += n_slots * ELEMENT_BYTES(type);
        if (IS_QUANTISED(type) && (d + CHANNELS_A_LOAD(type)) % KV_SCALE_CHANNELS == 0)
            scale += n_slots;
        add_keys(nv, w, dim, q + d, k0[0], k1[0], s);
        if (type == KV_Q4)
            add_keys(nv, w, dim, q + d + 1, k0[1], k1[1], s);
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
        _mm256_storeu_ps(j->scores + (size_t)v * n_slots + slot0, s[v][0]);
        if (w == 2)
            _mm256_storeu_ps(j->scores + (size_t)v * n_slots + slot0 + 8, s[v][1]);
    }
}

/* f16 scales of a block's K or V as floats. */
INLINE void load_scales(const struct job *j, const uint8_t *scales, float *out)
{
    uint32_t n = kv_scale_groups(j->dim) * j->n_slots;
    for (uint32_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                      (const __m128i *)(const void *)(scales + 2 * i))));
}

INLINE void score_all(int type, int nv, const struct job *j, uint32_t v0, const uint8_t *k,
                      const uint8_t *next)
{
    const float *q = j->q + (size_t)v0 * j->dim;
    if (IS_QUANTISED(type))
        load_scales(j, k + (size_t)j->dim / CHANNELS_A_LOAD(type) * j->n_slots, j->k_scale);
    uint32_t slot = 0;
    for (; slot + 16 <= j->n_slots; slot += 16)
        score(type, nv, 2, j, q, k, slot, next);
    if (slot < j->n_slots)
        score(type, nv, 1, j, q, k, slot, next);
}

/* Values of 8 w channels of one slot, in steps of their scale where the type has one. */
INLINE void load_values(int type, int w, const uint8_t *row, __m256 v[2])
{
    if (type == KV_Q4) {
        __m256i b = load_bytes(row);
        v[0] = q4_half(b, 0);
        v[1] = q4_half(b, 1);
        return;
    }
    v[0] = load_kv(type, row, 0);
    if (w == 2)
        v[1] = load_kv(type, row, 8);
}

/* acc[v][:] += sum over slots t in [low, high) of p[v][t] * v[t][:], w * 8 channels from d0. */
INLINE void weigh(int type, int nv, int w, const struct job *j, const float *p, const uint8_t *val,
                  uint32_t low, uint32_t high, uint32_t d0, float *acc)
{
    __m256 s[TILE_VECTORS][2];
    const uint32_t dim = j->dim, n_slots = j->n_slots;
    UNROLL for (int v = 0; v < nv; v++)
    {
        s[v][0] = _mm256_loadu_ps(acc + (size_t)v * dim + d0);
        if (w == 2)
            s[v][1] = _mm256_loadu_ps(acc + (size_t)v * dim + d0 + 8);
    }
    const size_t row_bytes = type == KV_Q4 ? kv_q4_row_bytes(dim) : dim * ELEMENT_BYTES(type);
    const uint8_t *row =
        val + low * row_bytes + (type == KV_Q4 ? d0 / 2 : d0 * ELEMENT_BYTES(type));
    for (uint32_t t = low; t < high; t++, row += row_bytes) {
        __m256 value[2];
        load_values(type, w, row, value);
        UNROLL for (int v = 0; v < nv; v++)
        {
            __m256 x = _mm256_broadcast_ss(p + (size_t)v * n_slots + t);
            s[v][0] = _mm256_fmadd_ps(x, value[0], s[v][0]);
            if (w == 2)
                s[v][1] = _mm256_fmadd_ps(x, value[1], s[v][1]);
        }
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
        _mm256_storeu_ps(acc + (size_t)v * dim + d0, s[v][0]);
        if (w == 2)
            _mm256_storeu_ps(acc + (size_t)v * dim + d0 + 8, s[v][1]);
    }
}

/* scaled[v][t] = p[v][t] * scale[t]: the scale of a value goes to its weight. */
INLINE void scale_weights(int nv, const struct job *j, const float *p, const float *scale)
{
    const uint32_t n_slots = j->n_slots;
    for (uint32_t t = 0; t < n_slots; t += 8) {
        __m256 c = _mm256_loadu_ps(scale + t);
        for (int v = 0; v < nv; v++)
            _mm256_storeu_ps(j->scaled + (size_t)v * n_slots + t,
                             _mm256_mul_ps(c, _mm256_loadu_ps(p + (size_t)v * n_slots + t)));
    }
}

INLINE void weigh_all(int type, int nv, const struct job *j, const float *p, const uint8_t *val,
                      uint32_t low, uint32_t high, float *acc)
{
    const float *weight = p;
    for (uint32_t d = 0; d < j->dim; d += 16) {
        if (IS_QUANTISED(type) && d % KV_SCALE_CHANNELS == 0) {
            scale_weights(nv, j, p, j->v_scale + d / KV_SCALE_CHANNELS * j->n_slots);
            weight = j->scaled;
        }
        if (d + 16 <= j->dim)
            weigh(type, nv, 2, j, weight, val, low, high, d, acc);
        else
            weigh(type, nv, 1, j, weight, val, low, high, d, acc);
    }
}

/* Slots of a block that a vector sees. */
struct range {
    uint32_t low, high;
};

/* Turns scores of one vector into weights; rescales the earlier sums when the maximum changes. */
static void soften(const struct job *j, uint32_t v, struct range seen, float *p)
{
    const uint32_t n_slots = j->n_slots, dim = j->dim;
    for (uint32_t t = 0; t < seen.low; t++)
        p[t] = -INFINITY;
    for (uint32_t t = seen.high; t < n_slots; t++)
        p[t] = -INFINITY;
    __m256 top8 = _mm256_loadu_ps(p);
    for (uint32_t t = 8; t < n_slots; t += 8)
        top8 = _mm256_max_ps(top8, _mm256_loadu_ps(p + t));
    float top = hmax8(top8), max = j->part.max[v];
    if (top > max) {
        __m256 c = exp8(_mm256_set1_ps(max - top));
        float *acc = j->part.acc + (size_t)v * dim;
        j->part.sum[v] *= _mm256_cvtss_f32(c);
        j->part.max[v] = max = top;
        for (uint32_t d = 0; d < dim; d += 8)
            _mm256_storeu_ps(acc + d, _mm256_mul_ps(c, _mm256_loadu_ps(acc + d)));
    }
    __m256 m = _mm256_set1_ps(max), sum = _mm256_setzero_ps();
    for (uint32_t t = 0; t < n_slots; t += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + t), m));
        _mm256_storeu_ps(p + t, e);
        sum = _mm256_add_ps(sum, e);
    }
    j->part.sum[v] += hsum8(sum);
}

/* Slots of the block that starts at key0 which vector v sees; at least one. */
static struct range visible(const struct job *j, uint32_t v, uint32_t key0)
{
    uint32_t pos = j->a->pos0 + v / j->a->group, first = attend_first(j->a->kv->window, pos);
    return (struct range){first > key0 ? first - key0 : 0,
                          pos + 1 - key0 < j->n_slots ? pos + 1 - key0 : j->n_slots};
}

/* seen: of each vector. */
INLINE void weigh_vectors(int type, int nv, const struct job *j, uint32_t v0,
                          const struct range *seen, const uint8_t *val)
{
    float *acc = j->part.acc + (size_t)v0 * j->dim;
    if (IS_QUANTISED(type)) {
        size_t row_bytes = type == KV_Q4 ? kv_q4_row_bytes(j->dim) : j->dim;
        load_scales(j, val + row_bytes * j->n_slots, j->v_scale);
    }
    if (seen[0].low == seen[nv - 1].low && seen[0].high == seen[nv - 1].high) {
        weigh_all(type, nv, j, j->scores, val, seen[0].low, seen[0].high, acc);
        return;
    }
    for (uint32_t v = 0; v < (uint32_t)nv; v++)
        weigh_all(type, 1, j, j->scores + (size_t)v * j->n_slots, val, seen[v].low, seen[v].high,
                  acc + (size_t)v * j->dim);
}

#define STEP(type, nv)                                                                             \
    static void score_##type##_##nv(const struct job *j, uint32_t v0, const uint8_t *k,            \
                                    const uint8_t *next)                                           \
    {                                                                                              \
        score_all(type, nv, j, v0, k, next);                                                       \
    }                                                                                              \
    static void weigh_##type##_##nv(const struct job *j, uint32_t v0, const struct range *seen,    \
                                    const uint8_t *val)                                            \
    {                                                                                              \
        weigh_vectors(type, nv, j, v0, seen, val);                                                 \
    }
#define STEPS(type)                                                                                \
    STEP(type, 1) STEP(type, 2) STEP(type, 3) STEP(type, 4) STEP(type, 5) STEP(type, 6)
STEPS(KV_F16)
STEPS(KV_BF16)
STEPS(KV_F32)
STEPS(KV_Q8)
STEPS(KV_Q4)

typedef void score_fn(const struct job *j, uint32_t v0, const uint8_t *k, const uint8_t *next);
typedef void weigh_fn(const struct job *j, uint32_t v0, const struct range *seen,
                      const uint8_t *val);
#define ROW(what, type)                                                                            \
    [type] = {what##_##type##_1, what##_##type##_2, what##_##type##_3,                             \
              what##_##type##_4, what##_##type##_5, what##_##type##_6}
#define ROWS(what)                                                                                 \
    {                                                                                              \
        ROW(what, KV_F16), ROW(what, KV_BF16), ROW(what, KV_F32), ROW(what, KV_Q8),                \
            ROW(what, KV_Q4)                                                                       \
    }
static score_fn *const scores[KV_N_DTYPES][TILE_VECTORS] = ROWS(score);
static weigh_fn *const weighs[KV_N_DTYPES][TILE_VECTORS] = ROWS(weigh);

/* True when all vectors see all of the block that starts at key0. */
static bool all_visible(const struct job *j, uint32_t key0)
{
    const struct attend *a = j->a;
    return key0 + j->n_slots <= a->pos0 + 1 &&
           attend_first(a->kv->window, a->pos0 + a->n_rows - 1) <= key0;
}

/* The online softmax step of one block for vectors [v, v_end), all of which see some of it. */
static void block_step(const struct job *j, uint32_t v, uint32_t v_end, uint32_t key0,
                       const uint8_t *unit, const uint8_t *next)
{
    score_fn *const *score_of = scores[j->a->layout->dtype_k];
    weigh_fn *const *weigh_of = weighs[j->a->layout->dtype_v];
    bool all = all_visible(j, key0);
    while (v < v_end) {
        struct range seen[TILE_VECTORS];
        uint32_t n = v_end - v < TILE_VECTORS ? v_end - v : TILE_VECTORS;
        score_of[n - 1](j, v, unit, next);
        for (uint32_t i = 0; i < n; i++) {
            seen[i] = all ? (struct range){0, j->n_slots} : visible(j, v + i, key0);
            attend_cap(j->a, j->scores + (size_t)i * j->n_slots, seen[i].low, seen[i].high);
            soften(j, v + i, seen[i], j->scores + (size_t)i * j->n_slots);
        }
        weigh_of[n - 1](j, v, seen, unit + j->a->kv->k_bytes);
        v += n;
        next = unit;
    }
}

/* The index after the last vector that sees the block that starts at key0. */
static uint32_t vector_end(const struct job *j, uint32_t key0)
{
    uint64_t last =
        (uint64_t)key0 + j->n_slots - 1 + j->a->kv->window; /* position that sees none */
    if (j->a->kv->window == 0 || last >= (uint64_t)j->a->pos0 + j->a->n_rows)
        return j->n_vectors;
    return (uint32_t)(last - j->a->pos0) * j->a->group;
}

/* One chunk: blocks [b0, b1) into part. */
static void chunk_step(const struct job *j, uint32_t b0, uint32_t b1)
{
    const struct attend *a = j->a;
    for (uint32_t v = 0; v < j->n_vectors; v++) {
        j->part.max[v] = -INFINITY;
        j->part.sum[v] = 0;
    }
    memset(j->part.acc, 0, (size_t)j->n_vectors * j->dim * sizeof(float));
    for (uint32_t b = b0; b < b1; b++) {
        uint32_t key0 = b * j->n_slots;
        const uint8_t *unit = attend_unit(a, b);
        const uint8_t *next = b + 1 < b1 ? attend_unit(a, b + 1) : unit;
        uint32_t v = key0 > a->pos0 ? (key0 - a->pos0) * a->group : 0;
        block_step(j, v, vector_end(j, key0), key0, unit, next);
    }
}

static void merge(const struct job *j, uint32_t v)
{
    const struct state *t = &j->total, *p = &j->part;
    if (p->sum[v] == 0)
        return; /* the vector sees nothing of this chunk */
    float *ta = t->acc + (size_t)v * j->dim, *pa = p->acc + (size_t)v * j->dim;
    if (t->sum[v] == 0) { /* nor of those before: this one is its first */
        t->max[v] = p->max[v];
        t->sum[v] = p->sum[v];
        memcpy(ta, pa, j->dim * sizeof *ta);
        return;
    }
    float top = p->max[v] > t->max[v] ? p->max[v] : t->max[v];
    __m256 ct = exp8(_mm256_set1_ps(t->max[v] - top)), cp = exp8(_mm256_set1_ps(p->max[v] - top));
    t->max[v] = top;
    t->sum[v] = t->sum[v] * _mm256_cvtss_f32(ct) + p->sum[v] * _mm256_cvtss_f32(cp);
    for (uint32_t d = 0; d < j->dim; d += 8) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(ta + d), ct);
        _mm256_storeu_ps(ta + d, _mm256_fmadd_ps(_mm256_loadu_ps(pa + d), cp, x));
    }
}

static void job_init(struct job *j, const struct attend *a)
{
    *j = (struct job){.a = a,
                      .dim = a->kv->head_dim,
                      .n_slots = a->layout->n_slots,
                      .n_vectors = a->n_rows * a->group};
    size_t plane = (size_t)j->n_vectors * j->dim;
    float *p = a->scratch;
    j->q = p;
    j->total.acc = p + plane;
    j->part.acc = p + 2 * plane;
    p += 3 * plane;
    j->total.max = p;
    j->total.sum = p + j->n_vectors;
    j->part.max = p + 2 * (size_t)j->n_vectors;
    j->part.sum = p + 3 * (size_t)j->n_vectors;
    j->scores = p + 4 * (size_t)j->n_vectors;
    j->scaled = j->scores + 8 * (size_t)j->n_slots;
    j->k_scale = j->scaled + 8 * (size_t)j->n_slots;
    j->v_scale = j->k_scale + (size_t)kv_scale_groups(j->dim) * j->n_slots;
    for (uint32_t r = 0; r < a->n_rows; r++)
        memcpy(j->q + (size_t)r * a->group * j->dim, a->q + r * a->q_stride,
               (size_t)a->group * j->dim * sizeof(float));
}

void attend_avx2(const struct attend *a)
{
    if (a->kv->head_dim % 8 != 0) {
        c_attend(a);
        return;
    }
    struct job j;
    job_init(&j, a);
    uint32_t n_blocks = (a->pos0 + a->n_rows + j.n_slots - 1) / j.n_slots;
    uint32_t per_chunk = ATTEND_CHUNK_TOKENS / j.n_slots;
    uint32_t first = attend_first(a->kv->window, a->pos0) / j.n_slots;
    for (uint32_t b = first, end; b < n_blocks; b = end) {
        end = (b / per_chunk + 1) * per_chunk;
        chunk_step(&j, b, end < n_blocks ? end : n_blocks);
        if (b == first) {
            struct state filled = j.part;
            j.part = j.total;
            j.total = filled;
        } else {
            for (uint32_t v = 0; v < j.n_vectors; v++)
                merge(&j, v);
        }
    }
    for (uint32_t v = 0; v < j.n_vectors; v++) {
        __m256 c = _mm256_set1_ps(1 / j.total.sum[v]);
        float *out = a->out + v / a->group * a->out_stride + (size_t)(v % a->group) * j.dim;
        for (uint32_t d = 0; d < j.dim; d += 8)
            _mm256_storeu_ps(out + d,
                             _mm256_mul_ps(c, _mm256_loadu_ps(j.total.acc + v * j.dim + d)));
    }
}
