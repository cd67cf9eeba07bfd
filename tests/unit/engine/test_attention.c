/* Paged attention of every level against softmax in double: block sizes, head sizes, groups, both KV
 * types, garbage in slots not yet written; and the same bits row by row as in one tile. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/cpu/cpuid.h"
#include "engine/cpu/kernels.h"
#include "engine/model/quant.h"
#include "tests/unit/run_suite.h"

static uint32_t seed;

static float draw_float(void)
{
    seed = seed * 1664525 + 1013904223;
    return (float)((int)((seed >> 8) % 20001) - 10000) * 1e-4f;
}

static const struct kernels *level(int i)
{
    if (i == 0)
        return &kernels_c;
    return i == 1 && cpuid_has_avx2() ? kernels_avx2() : NULL;
}

struct shape {
    uint32_t dim, group, n_slots, pos0, n_rows;
    enum kv_dtype dtype;
};

static const struct shape shapes[] = {
    {64, 3, 16, 0, 1, KV_F16},    {64, 3, 16, 0, 16, KV_F16},  {64, 3, 16, 37, 16, KV_F16},
    {64, 3, 16, 254, 5, KV_F16},  {64, 3, 16, 700, 3, KV_F16}, {64, 1, 16, 300, 40, KV_F32},
    {128, 8, 32, 100, 6, KV_F16}, {80, 4, 8, 65, 12, KV_F16},  {24, 7, 24, 500, 6, KV_F32},
    {8, 2, 64, 130, 9, KV_F16},   {20, 3, 16, 90, 7, KV_F16},  {256, 4, 16, 270, 2, KV_F16},
    {16, 60, 16, 33, 1, KV_F32},
};

struct fixture {
    struct shape s;
    struct kv_layout layout;
    uint8_t *arena;
    uint32_t table[256], n_keys;
    double *k, *v; /* [n_keys][dim] as stored */
    float *q, *out;
    size_t stride;
};

enum { LAYERS = 2, HEADS = 2, LAYER = 1, HEAD = 1 };

static void fixture_fill(struct fixture *f, const struct kernels *kn)
{
    float *k = mem_alloc(f->s.dim * sizeof(float)), *v = mem_alloc(f->s.dim * sizeof(float));
    for (uint32_t p = 0; p < f->n_keys; p++) {
        uint8_t *block = f->arena + f->table[p / f->s.n_slots] * f->layout.group[0].block_bytes;
        for (uint32_t i = 0; i < f->s.dim; i++) {
            k[i] = draw_float() * 3;
            v[i] = draw_float();
            bool half = f->s.dtype == KV_F16;
            f->k[(size_t)p * f->s.dim + i] = (double)(half ? f16_to_f32(f32_to_f16(k[i])) : k[i]);
            f->v[(size_t)p * f->s.dim + i] = (double)(half ? f16_to_f32(f32_to_f16(v[i])) : v[i]);
        }
        kn->kv_store(&f->layout, 0, block + kv_unit_offset(&f->layout, LAYER, HEAD),
                     p % f->s.n_slots, k, v);
    }
    mem_free(k);
    mem_free(v);
}

static void fixture_make(struct fixture *f, const struct shape *s, const struct kernels *kn)
{
    struct err e;
    *f = (struct fixture){.s = *s, .n_keys = s->pos0 + s->n_rows};
    ck_assert_int_eq(
        kv_layout_init_plain(&f->layout, LAYERS, HEADS, s->dim, s->n_slots, s->dtype, &e), OK);
    uint32_t n_blocks = (f->n_keys + s->n_slots - 1) / s->n_slots;
    uint32_t cap = n_blocks * 3 + 3;
    f->arena = mem_aligned(64, cap * f->layout.group[0].block_bytes);
    memset(f->arena, 0xff, cap * f->layout.group[0].block_bytes); /* NaN in both types */
    for (uint32_t i = 0; i < n_blocks; i++)
        f->table[i] = (n_blocks - 1 - i) * 3 + i * 7 % 3; /* apart, backwards, unique */
    f->k = mem_alloc((size_t)f->n_keys * s->dim * sizeof(double));
    f->v = mem_alloc((size_t)f->n_keys * s->dim * sizeof(double));
    f->stride = (size_t)s->group * s->dim + 5;
    f->q = mem_alloc(s->n_rows * f->stride * sizeof(float));
    f->out = mem_alloc(s->n_rows * f->stride * sizeof(float));
    fixture_fill(f, kn);
    for (size_t i = 0; i < s->n_rows * f->stride; i++) {
        f->q[i] = draw_float();
        f->out[i] = 99;
    }
}

static void fixture_release(struct fixture *f)
{
    mem_free(f->arena);
    mem_free(f->k);
    mem_free(f->v);
    mem_free(f->q);
    mem_free(f->out);
}

static void run(const struct kernels *kn, struct fixture *f, uint32_t row0, uint32_t n_rows,
                float *out)
{
    float *scratch =
        mem_alloc(attend_scratch_floats(f->s.group, f->s.dim, f->s.n_slots) * sizeof(float));
    struct attend a = {.layout = &f->layout,
                       .kv = &f->layout.group[0],
                       .unit = f->arena + kv_unit_offset(&f->layout, LAYER, HEAD),
                       .block_bytes = f->layout.group[0].block_bytes,
                       .table = f->table,
                       .group = f->s.group,
                       .pos0 = f->s.pos0 + row0,
                       .n_rows = n_rows,
                       .q = f->q + row0 * f->stride,
                       .q_stride = f->stride,
                       .out = out,
                       .out_stride = f->stride,
                       .scratch = scratch};
    kn->attend(&a);
    mem_free(scratch);
}

static void check_vector(const struct fixture *f, uint32_t row, uint32_t head)
{
    const float *q = f->q + row * f->stride + head * f->s.dim;
    const float *out = f->out + row * f->stride + head * f->s.dim;
    uint32_t n = f->s.pos0 + row + 1, dim = f->s.dim;
    double *p = mem_alloc(n * sizeof(double)), top = -INFINITY, sum = 0;
    for (uint32_t t = 0; t < n; t++) {
        p[t] = 0;
        for (uint32_t i = 0; i < dim; i++)
            p[t] += (double)q[i] * f->k[(size_t)t * dim + i];
        top = fmax(top, p[t]);
    }
    for (uint32_t t = 0; t < n; t++)
        sum += p[t] = exp(p[t] - top);
    for (uint32_t i = 0; i < dim; i++) {
        double want = 0;
        for (uint32_t t = 0; t < n; t++)
            want += p[t] * f->v[(size_t)t * dim + i] / sum;
        ck_assert_double_eq_tol((double)out[i], want, 2e-5);
    }
    mem_free(p);
}

START_TEST(attention_equals_softmax_and_a_row_has_the_same_bits_in_any_tile)
{
    for (int l = 0; level(l); l++) {
        struct fixture f;
        seed = (uint32_t)_i + 1;
        fixture_make(&f, &shapes[_i], level(l));
        ck_assert_uint_le(f.s.n_rows, attend_rows(f.s.group));
        run(level(l), &f, 0, f.s.n_rows, f.out);
        float *alone = mem_alloc(f.stride * sizeof(float));
        for (uint32_t r = 0; r < f.s.n_rows; r++) {
            for (uint32_t h = 0; h < f.s.group; h++)
                check_vector(&f, r, h);
            for (size_t i = f.stride - 5; i < f.stride; i++)
                ck_assert(f.out[r * f.stride + i] == 99);
            run(level(l), &f, r, 1, alone);
            ck_assert_mem_eq(alone, f.out + r * f.stride,
                             (size_t)f.s.group * f.s.dim * sizeof(float));
        }
        mem_free(alone);
        fixture_release(&f);
    }
}
END_TEST

START_TEST(large_scores_do_not_overflow)
{
    for (int l = 0; level(l); l++) {
        struct fixture f;
        seed = 5;
        fixture_make(&f, &shapes[2], level(l));
        for (size_t i = 0; i < f.s.n_rows * f.stride; i++)
            f.q[i] *= 100;
        run(level(l), &f, 0, f.s.n_rows, f.out);
        for (uint32_t r = 0; r < f.s.n_rows; r++)
            for (uint32_t i = 0; i < f.s.group * f.s.dim; i++)
                ck_assert(fabsf(f.out[r * f.stride + i]) <= 1.001f);
        fixture_release(&f);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("attention");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, attention_equals_softmax_and_a_row_has_the_same_bits_in_any_tile, 0,
                        (int)(sizeof shapes / sizeof shapes[0]));
    tcase_add_test(c, large_scores_do_not_overflow);
    suite_add_tcase(s, c);
    return run_suite(s);
}
