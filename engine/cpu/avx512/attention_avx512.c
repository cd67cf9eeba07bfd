/* AVX-512: paged attention over f16 keys and values in blocks of 16 positions, so that a register holds the
 * scores of a block; other types, blocks and head sizes go to the AVX2 level.
 *
 * As there: up to 6 query vectors share what is loaded, the context is cut at fixed multiples of
 * ATTEND_CHUNK_TOKENS, and the roundings of a vector depend on the keys it sees alone. The maximum is
 * looked for only when a score is above it; sums stay 16 lanes wide until the end. */
#include <math.h>

#include "engine/cpu/avx2/kernels_avx2.h"
#include "engine/cpu/avx512/kernels_avx512.h"
#include "engine/cpu/avx512/simd_avx512.h"

enum { TILE_VECTORS = 6, SLOTS = 16, CHANNELS = 64 /* of values in a pass */ };

struct state {
    float *max; /* [n_vectors] */
    float *sum; /* [n_vectors][SLOTS] */
    float *acc; /* [n_vectors][dim] */
};

struct job {
    const struct attend *a;
    uint32_t dim, n_vectors;
    float *q; /* [n_vectors][dim] */
    float *p; /* [TILE_VECTORS][SLOTS] */
    struct state total, part;
};

INLINE float hsum16(__m512 v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v),
                             _mm256_castsi256_ps(_mm512_extracti64x4_epi64(bits, 1)));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

INLINE float hmax16(__m512 v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v),
                             _mm256_castsi256_ps(_mm512_extracti64x4_epi64(bits, 1)));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* e^x for x <= 0 to about 1 ulp, as exp8 of avx2/simd_avx2.h; it fades to 0, NaN stays NaN (operand order). */
INLINE __m512 exp16(__m512 x)
{
    x = _mm512_min_ps(_mm512_set1_ps(88), _mm512_max_ps(_mm512_set1_ps(-104), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1)));
    return _mm512_scalef_ps(p, n);
}

/* p[v] = scores of a block; two sums a vector hide the latency. next: a block to ask for. */
INLINE void score(int nv, uint32_t dim, const float *q, const uint8_t *k, const uint8_t *next,
                  float *p)
{
    __m512 even[TILE_VECTORS], odd[TILE_VECTORS];
    UNROLL for (int v = 0; v < nv; v++) even[v] = odd[v] = _mm512_setzero_ps();
    for (size_t d = 0; d < dim; d += 2) {
        _mm_prefetch((const char *)next + 32 * d, _MM_HINT_T1);
        __m512 k0 = load_half16(k + 32 * d), k1 = load_half16(k + 32 * d + 32);
        UNROLL for (int v = 0; v < nv; v++)
        {
            const float *x = q + (size_t)v * dim + d;
            even[v] = _mm512_fmadd_ps(k0, _mm512_set1_ps(x[0]), even[v]);
            odd[v] = _mm512_fmadd_ps(k1, _mm512_set1_ps(x[1]), odd[v]);
        }
    }
    UNROLL for (int v = 0; v < nv; v++)
        _mm512_storeu_ps(p + SLOTS * v, _mm512_add_ps(even[v], odd[v]));
}

/* acc[v] += the values of slots [low, high) by the weights p[v]. */
INLINE void weigh(int nv, uint32_t dim, const float *p, const uint8_t *val, const uint8_t *next,
                  uint32_t low, uint32_t high, float *acc)
{
    for (size_t c = 0; c < dim; c += CHANNELS) {
        __m512 s[TILE_VECTORS][4];
        UNROLL for (int i = 0; i < 4 * nv; i++) s[i / 4][i % 4] =
            _mm512_loadu_ps(acc + (size_t)(i / 4) * dim + c + 16 * (size_t)(i % 4));
        for (size_t t = low; t < high; t++) {
            const size_t at = 2 * (t * dim + c);
            __m512 x[4];
            _mm_prefetch((const char *)next + at, _MM_HINT_T1);
            _mm_prefetch((const char *)next + at + 64, _MM_HINT_T1);
            UNROLL for (int i = 0; i < 4; i++) x[i] = load_half16(val + at + 32 * (size_t)i);
            UNROLL for (int v = 0; v < nv; v++)
            {
                __m512 w = _mm512_set1_ps(p[SLOTS * (size_t)v + t]);
                UNROLL for (int i = 0; i < 4; i++) s[v][i] = _mm512_fmadd_ps(w, x[i], s[v][i]);
            }
        }
        UNROLL for (int i = 0; i < 4 * nv; i++) _mm512_storeu_ps(
            acc + (size_t)(i / 4) * dim + c + 16 * (size_t)(i % 4), s[i / 4][i % 4]);
    }
}

typedef void score_fn(uint32_t dim, const float *q, const uint8_t *k, const uint8_t *next,
                      float *p);
typedef void weigh_fn(uint32_t dim, const float *p, const uint8_t *val, const uint8_t *next,
                      uint32_t low, uint32_t high, float *acc);
#define STEP(nv)                                                                                   \
    static void score_##nv(uint32_t dim, const float *q, const uint8_t *k, const uint8_t *next,    \
                           float *p)                                                               \
    {                                                                                              \
        score(nv, dim, q, k, next, p);                                                             \
    }                                                                                              \
    static void weigh_##nv(uint32_t dim, const float *p, const uint8_t *val, const uint8_t *next,  \
                           uint32_t low, uint32_t high, float *acc)                                \
    {                                                                                              \
        weigh(nv, dim, p, val, next, low, high, acc);                                              \
    }
STEP(1)
STEP(2)
STEP(3)
STEP(4)
STEP(5)
STEP(6)
static score_fn *const scores[] = {NULL, score_1, score_2, score_3, score_4, score_5, score_6};
static weigh_fn *const weighs[] = {NULL, weigh_1, weigh_2, weigh_3, weigh_4, weigh_5, weigh_6};

/* Slots of a block that a vector sees. */
struct range {
    uint32_t low, high;
};

/* Slots of the block that starts at key0 which vector v sees; at least one. */
static struct range visible(const struct job *j, uint32_t v, uint32_t key0)
{
    uint32_t pos = j->a->pos0 + v / j->a->group, first = attend_first(j->a->kv->window, pos);
    return (struct range){first > key0 ? first - key0 : 0,
                          pos + 1 - key0 < SLOTS ? pos + 1 - key0 : SLOTS};
}

/* Scores of one vector -> weights; scales what was summed before when the maximum moves. */
static void soften(const struct job *j, uint32_t v, struct range seen, float *p)
{
    const __mmask16 mask = (__mmask16)((0xffffu << seen.low) & ((1u << seen.high) - 1));
    float *sums = j->part.sum + (size_t)SLOTS * v;
    __m512 s = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), mask, _mm512_loadu_ps(p));
    __m512 sum = _mm512_loadu_ps(sums);
    if (_mm512_cmp_ps_mask(s, _mm512_set1_ps(j->part.max[v]), _CMP_GT_OQ)) {
        float top = hmax16(s), *acc = j->part.acc + (size_t)v * j->dim;
        __m512 c = exp16(_mm512_set1_ps(j->part.max[v] - top));
        j->part.max[v] = top;
        sum = _mm512_mul_ps(sum, c);
        for (uint32_t d = 0; d < j->dim; d += 16)
            _mm512_storeu_ps(acc + d, _mm512_mul_ps(c, _mm512_loadu_ps(acc + d)));
    }
    __m512 e = exp16(_mm512_sub_ps(s, _mm512_set1_ps(j->part.max[v])));
    e = _mm512_maskz_mov_ps(mask, e);
    _mm512_storeu_ps(p, e);
    _mm512_storeu_ps(sums, _mm512_add_ps(sum, e));
}

/* The online softmax step of one block for n vectors from v on, all of which see some of it. */
static void tile_step(const struct job *j, uint32_t v, uint32_t n, uint32_t key0,
                      const uint8_t *unit, const uint8_t *next)
{
    const size_t k_bytes = j->a->kv->k_bytes;
    float *acc = j->part.acc + (size_t)v * j->dim;
    struct range seen[TILE_VECTORS] = {{0, 0}}; /* gcc cannot see that n > 0 */
    scores[n](j->dim, j->q + (size_t)v * j->dim, unit, next, j->p);
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = visible(j, v + i, key0);
        attend_cap(j->a, j->p + (size_t)SLOTS * i, seen[i].low, seen[i].high);
        soften(j, v + i, seen[i], j->p + (size_t)SLOTS * i);
    }
    if (seen[0].low == seen[n - 1].low && seen[0].high == seen[n - 1].high) {
        weighs[n](j->dim, j->p, unit + k_bytes, next + k_bytes, seen[0].low, seen[0].high, acc);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        weigh_1(j->dim, j->p + (size_t)SLOTS * i, unit + k_bytes, next + k_bytes, seen[i].low,
                seen[i].high, acc + (size_t)i * j->dim);
}

/* The vector after the last that sees the block that starts at key0. */
static uint32_t vector_end(const struct job *j, uint32_t key0)
{
    uint64_t last = (uint64_t)key0 + SLOTS - 1 + j->a->kv->window; /* position that sees none */
    if (j->a->kv->window == 0 || last >= (uint64_t)j->a->pos0 + j->a->n_rows)
        return j->n_vectors;
    return (uint32_t)(last - j->a->pos0) * j->a->group;
}

/* One chunk: blocks [b0, b1) into part. */
static void chunk_step(const struct job *j, uint32_t b0, uint32_t b1)
{
    const struct attend *a = j->a;
    for (uint32_t v = 0; v < j->n_vectors; v++)
        j->part.max[v] = -INFINITY;
    memset(j->part.sum, 0, (size_t)j->n_vectors * SLOTS * sizeof(float));
    memset(j->part.acc, 0, (size_t)j->n_vectors * j->dim * sizeof(float));
    for (uint32_t b = b0; b < b1; b++) {
        const uint32_t key0 = b * SLOTS, end = vector_end(j, key0);
        const uint8_t *unit = attend_unit(a, b);
        const uint8_t *next = attend_unit(a, b + 2 < b1 ? b + 2 : b1 - 1);
        uint32_t n;
        for (uint32_t v = key0 > a->pos0 ? (key0 - a->pos0) * a->group : 0; v < end; v += n) {
            n = end - v < TILE_VECTORS ? end - v : TILE_VECTORS;
            tile_step(j, v, n, key0, unit, next);
            next = unit;
        }
    }
}

static bool is_empty(__m512 sum)
{
    return _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0;
}

static void merge(const struct job *j, uint32_t v)
{
    const struct state *t = &j->total, *p = &j->part;
    float *ta = t->acc + (size_t)v * j->dim, *pa = p->acc + (size_t)v * j->dim;
    float *ts = t->sum + (size_t)SLOTS * v, *ps = p->sum + (size_t)SLOTS * v;
    if (is_empty(_mm512_loadu_ps(ps)))
        return; /* the vector sees nothing of this chunk */
    if (is_empty(_mm512_loadu_ps(ts))) { /* nor of those before: this one is its first */
        t->max[v] = p->max[v];
        memcpy(ts, ps, SLOTS * sizeof *ts);
        memcpy(ta, pa, j->dim * sizeof *ta);
        return;
    }
    float top = p->max[v] > t->max[v] ? p->max[v] : t->max[v];
    __m512 ct = exp16(_mm512_set1_ps(t->max[v] - top)), cp = exp16(_mm512_set1_ps(p->max[v] - top));
    t->max[v] = top;
    _mm512_storeu_ps(
        ts, _mm512_fmadd_ps(_mm512_loadu_ps(ps), cp, _mm512_mul_ps(_mm512_loadu_ps(ts), ct)));
    for (uint32_t d = 0; d < j->dim; d += 16)
        _mm512_storeu_ps(ta + d, _mm512_fmadd_ps(_mm512_loadu_ps(pa + d), cp,
                                                 _mm512_mul_ps(_mm512_loadu_ps(ta + d), ct)));
}

static void job_init(struct job *j, const struct attend *a)
{
    *j = (struct job){.a = a, .dim = a->kv->head_dim, .n_vectors = a->n_rows * a->group};
    const size_t plane = (size_t)j->n_vectors * j->dim, sums = (size_t)j->n_vectors * SLOTS;
    float *p = a->scratch;
    j->q = p;
    j->total.acc = p + plane;
    j->part.acc = p + 2 * plane;
    p += 3 * plane;
    j->total.sum = p;
    j->part.sum = p + sums;
    p += 2 * sums;
    j->total.max = p;
    j->part.max = p + j->n_vectors;
    j->p = p + 2 * (size_t)j->n_vectors;
    for (uint32_t r = 0; r < a->n_rows; r++)
        memcpy(j->q + (size_t)r * a->group * j->dim, a->q + r * a->q_stride,
               (size_t)a->group * j->dim * sizeof(float));
}

static void write_out(const struct job *j, uint32_t v)
{
    const struct attend *a = j->a;
    float *out = a->out + v / a->group * a->out_stride + (size_t)(v % a->group) * j->dim;
    const float *acc = j->total.acc + (size_t)v * j->dim;
    __m512 c = _mm512_set1_ps(1 / hsum16(_mm512_loadu_ps(j->total.sum + (size_t)SLOTS * v)));
    for (uint32_t d = 0; d < j->dim; d += 16)
        _mm512_storeu_ps(out + d, _mm512_mul_ps(c, _mm512_loadu_ps(acc + d)));
}

void attend_avx512(const struct attend *a)
{
    const struct kv_layout *l = a->layout;
    if (l->dtype_k != KV_F16 || l->dtype_v != KV_F16 || l->n_slots != SLOTS ||
        a->kv->head_dim % CHANNELS != 0) {
        attend_avx2(a);
        return;
    }
    struct job j;
    job_init(&j, a);
    const uint32_t n_blocks = (a->pos0 + a->n_rows + SLOTS - 1) / SLOTS;
    const uint32_t per_chunk = ATTEND_CHUNK_TOKENS / SLOTS;
    const uint32_t first = attend_first(a->kv->window, a->pos0) / SLOTS;
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
    for (uint32_t v = 0; v < j.n_vectors; v++)
        write_out(&j, v);
}
