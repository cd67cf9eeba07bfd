/* AVX2: paged attention of the query heads of one KV head, with an online softmax per KV block.
 *
 * Up to 6 query vectors share every key and value that is loaded: 6 x 2 accumulators of 8 lanes, two
 * loads and a broadcast fill the 16 registers. Keys are d-major, so 16 scores of a vector are two
 * lanes-wide sums over d; values are token-major, so the weighted sum is broadcast and FMA. K and V
 * may be f16, all arithmetic is f32. The context is cut at fixed multiples of ATTEND_CHUNK_TOKENS;
 * chunks have their own state and are merged from left to right. The roundings of a query vector
 * depend on its keys alone, never on the vectors beside it. */
#include "engine/cpu/levels_avx2.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/simd_avx2.h"

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
    struct state total, part;
};

INLINE __m256 load_kv(int is_f16, const uint8_t *p, size_t i)
{
    if (is_f16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 2 * i)));
    return _mm256_loadu_ps((const float *)(const void *)(p + 4 * i));
}

/* scores[v][slot] = q[v] . k[:, slot] for nv vectors, w * 8 slots from slot0. */
INLINE void score(int is_f16, int nv, int w, const struct job *j, const float *q, const uint8_t *k,
                  uint32_t slot0, const uint8_t *next)
{
    __m256 s[TILE_VECTORS][2];
    UNROLL for (int v = 0; v < nv; v++) s[v][0] = s[v][1] = _mm256_setzero_ps();
    const uint32_t dim = j->dim, n_slots = j->n_slots;
    for (uint32_t d = 0; d < dim; d++) {
        _mm_prefetch((const char *)(next + 64 * (size_t)d), _MM_HINT_T0);
        __m256 k0 = load_kv(is_f16, k, (size_t)d * n_slots + slot0), k1 = k0;
        if (w == 2)
            k1 = load_kv(is_f16, k, (size_t)d * n_slots + slot0 + 8);
        UNROLL for (int v = 0; v < nv; v++)
        {
            __m256 x = _mm256_broadcast_ss(q + (size_t)v * dim + d);
            s[v][0] = _mm256_fmadd_ps(x, k0, s[v][0]);
            if (w == 2)
                s[v][1] = _mm256_fmadd_ps(x, k1, s[v][1]);
        }
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
        _mm256_storeu_ps(j->scores + (size_t)v * n_slots + slot0, s[v][0]);
        if (w == 2)
            _mm256_storeu_ps(j->scores + (size_t)v * n_slots + slot0 + 8, s[v][1]);
    }
}

/* acc[v][:] += sum over n tokens of scores[v][t] * v[t][:], w * 8 dimensions from d0. */
INLINE void weigh(int is_f16, int nv, int w, const struct job *j, const float *p,
                  const uint8_t *val, uint32_t n, uint32_t d0, float *acc)
{
    __m256 s[TILE_VECTORS][2];
    const uint32_t dim = j->dim, n_slots = j->n_slots;
    UNROLL for (int v = 0; v < nv; v++)
    {
        s[v][0] = _mm256_loadu_ps(acc + (size_t)v * dim + d0);
        if (w == 2)
            s[v][1] = _mm256_loadu_ps(acc + (size_t)v * dim + d0 + 8);
    }
    for (uint32_t t = 0; t < n; t++) {
        __m256 v0 = load_kv(is_f16, val, (size_t)t * dim + d0), v1 = v0;
        if (w == 2)
            v1 = load_kv(is_f16, val, (size_t)t * dim + d0 + 8);
        UNROLL for (int v = 0; v < nv; v++)
        {
            __m256 x = _mm256_broadcast_ss(p + (size_t)v * n_slots + t);
            s[v][0] = _mm256_fmadd_ps(x, v0, s[v][0]);
            if (w == 2)
                s[v][1] = _mm256_fmadd_ps(x, v1, s[v][1]);
        }
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
        _mm256_storeu_ps(acc + (size_t)v * dim + d0, s[v][0]);
        if (w == 2)
            _mm256_storeu_ps(acc + (size_t)v * dim + d0 + 8, s[v][1]);
    }
}

INLINE void weigh_all(int is_f16, int nv, const struct job *j, const float *p, const uint8_t *val,
                      uint32_t n, float *acc)
{
    uint32_t d = 0;
    for (; d + 16 <= j->dim; d += 16)
        weigh(is_f16, nv, 2, j, p, val, n, d, acc);
    if (d < j->dim)
        weigh(is_f16, nv, 1, j, p, val, n, d, acc);
}

/* Scores of one vector -> weights; scales what was summed before when the maximum moves. */
static void soften(const struct job *j, uint32_t v, uint32_t n, float *p)
{
    const uint32_t n_slots = j->n_slots, dim = j->dim;
    for (uint32_t t = n; t < n_slots; t++)
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

/* Keys of a block that starts at key0 which vector v sees (0: none). */
static uint32_t visible(const struct job *j, uint32_t v, uint32_t key0)
{
    uint32_t end = j->a->pos0 + v / j->a->group + 1;
    if (end <= key0)
        return 0;
    return end - key0 < j->n_slots ? end - key0 : j->n_slots;
}

INLINE void block_step(int is_f16, int nv, const struct job *j, uint32_t v0, uint32_t key0,
                       const uint8_t *block, const uint8_t *next)
{
    const uint8_t *k = block, *val = block + j->a->kv->k_bytes;
    const float *q = j->q + (size_t)v0 * j->dim;
    float *acc = j->part.acc + (size_t)v0 * j->dim;
    uint32_t slot = 0;
    for (; slot + 16 <= j->n_slots; slot += 16)
        score(is_f16, nv, 2, j, q, k, slot, next);
    if (slot < j->n_slots)
        score(is_f16, nv, 1, j, q, k, slot, next);
    for (uint32_t v = 0; v < (uint32_t)nv; v++)
        soften(j, v0 + v, visible(j, v0 + v, key0), j->scores + (size_t)v * j->n_slots);
    uint32_t n = visible(j, v0, key0);
    if (n == visible(j, v0 + (uint32_t)nv - 1, key0)) {
        weigh_all(is_f16, nv, j, j->scores, val, n, acc);
        return;
    }
    for (uint32_t v = 0; v < (uint32_t)nv; v++)
        weigh_all(is_f16, 1, j, j->scores + (size_t)v * j->n_slots, val, visible(j, v0 + v, key0),
                  acc + (size_t)v * j->dim);
}

#define STEP(is_f16, nv)                                                                           \
    static void step_##is_f16##_##nv(const struct job *j, uint32_t v0, uint32_t key0,              \
                                     const uint8_t *block, const uint8_t *next)                    \
    {                                                                                              \
        block_step(is_f16, nv, j, v0, key0, block, next);                                          \
    }
#define STEPS(is_f16)                                                                              \
    STEP(is_f16, 1) STEP(is_f16, 2) STEP(is_f16, 3) STEP(is_f16, 4) STEP(is_f16, 5) STEP(is_f16, 6)
STEPS(0)
STEPS(1)

typedef void step_fn(const struct job *j, uint32_t v0, uint32_t key0, const uint8_t *block,
                     const uint8_t *next);
static step_fn *const steps[2][TILE_VECTORS] = {
    {step_0_1, step_0_2, step_0_3, step_0_4, step_0_5, step_0_6},
    {step_1_1, step_1_2, step_1_3, step_1_4, step_1_5, step_1_6},
};

static const uint8_t *unit_of(const struct attend *a, uint32_t b)
{
    return a->unit + (size_t)a->table[b] * a->block_bytes;
}

/* One chunk: blocks [b0, b1) into part. */
static void chunk_step(const struct job *j, uint32_t b0, uint32_t b1)
{
    const struct attend *a = j->a;
    step_fn *const *step = steps[a->layout->dtype_k == KV_F16];
    for (uint32_t v = 0; v < j->n_vectors; v++) {
        j->part.max[v] = -INFINITY;
        j->part.sum[v] = 0;
    }
    memset(j->part.acc, 0, (size_t)j->n_vectors * j->dim * sizeof(float));
    for (uint32_t b = b0; b < b1; b++) {
        uint32_t key0 = b * j->n_slots;
        const uint8_t *block = unit_of(a, b);
        const uint8_t *next = b + 1 < b1 ? unit_of(a, b + 1) : block;
        uint32_t v = key0 > a->pos0 ? (key0 - a->pos0) * a->group : 0;
        while (v < j->n_vectors) {
            uint32_t n = j->n_vectors - v < TILE_VECTORS ? j->n_vectors - v : TILE_VECTORS;
            step[n - 1](j, v, key0, block, next);
            v += n;
            next = block;
        }
    }
}

static void merge(const struct job *j, uint32_t v)
{
    const struct state *t = &j->total, *p = &j->part;
    if (p->sum[v] == 0)
        return; /* the vector sees nothing of this chunk */
    float top = p->max[v] > t->max[v] ? p->max[v] : t->max[v];
    __m256 ct = exp8(_mm256_set1_ps(t->max[v] - top)), cp = exp8(_mm256_set1_ps(p->max[v] - top));
    t->max[v] = top;
    t->sum[v] = t->sum[v] * _mm256_cvtss_f32(ct) + p->sum[v] * _mm256_cvtss_f32(cp);
    float *ta = t->acc + (size_t)v * j->dim, *pa = p->acc + (size_t)v * j->dim;
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
    uint32_t n_keys = a->pos0 + a->n_rows;
    uint32_t n_blocks = (n_keys + j.n_slots - 1) / j.n_slots;
    uint32_t per_chunk = ATTEND_CHUNK_TOKENS / j.n_slots;
    for (uint32_t b = 0; b < n_blocks; b += per_chunk) {
        chunk_step(&j, b, b + per_chunk < n_blocks ? b + per_chunk : n_blocks);
        if (b == 0) {
            struct state first = j.part;
            j.part = j.total;
            j.total = first;
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
