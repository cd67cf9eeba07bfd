/* Keys, values and attention of every level. Attention against softmax in double over the stored values:
 * block sizes, head sizes, groups, windows, KV types, garbage in every slot that a row does not see; the
 * same bits row by row as in one tile, and with blocks in a staging buffer. Storing: equal bytes on all
 * levels, bounded errors, values that are not finite; the rotation. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/cpu/c/attention_c.h"
#include "engine/cpu/levels.h"
#include "engine/cpu/kernels.h"
#include "engine/model/quant.h"
#include "tests/unit/engine/tested_levels.h"
#include "tests/unit/run_suite.h"

static uint32_t seed;

static float draw_float(void)
{
    seed = seed * 1664525 + 1013904223;
    return (float)((int)((seed >> 8) % 20001) - 10000) * 1e-4f;
}

struct shape {
    uint32_t dim, group, n_slots, pos0, n_rows, window;
};

static const struct shape shapes[] = {
    {64, 3, 16, 0, 1, 0},       {64, 3, 16, 0, 16, 0},      {64, 3, 16, 37, 16, 0},
    {64, 3, 16, 254, 5, 0},     {64, 3, 16, 700, 3, 0},     {64, 1, 16, 300, 40, 0},
    {128, 8, 32, 100, 6, 0},    {80, 4, 8, 65, 12, 0},      {24, 7, 24, 500, 6, 0},
    {8, 2, 64, 130, 9, 0},      {20, 3, 16, 90, 7, 0},      {256, 4, 16, 270, 2, 0},
    {16, 60, 16, 33, 1, 0},     {64, 3, 16, 0, 16, 1},      {64, 3, 16, 40, 16, 2},
    {64, 3, 16, 40, 16, 15},    {64, 3, 16, 40, 16, 16},    {64, 3, 16, 40, 16, 17},
    {64, 3, 16, 505, 16, 255},  {64, 3, 16, 505, 16, 256},  {64, 3, 16, 505, 16, 257},
    {256, 4, 16, 700, 12, 512}, {256, 4, 16, 505, 12, 512}, {24, 7, 24, 500, 6, 100},
    {20, 3, 8, 90, 7, 33},      {80, 4, 64, 700, 12, 300},  {64, 3, 16, 37, 16, 1000},
    {128, 5, 16, 270, 7, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

struct fixture {
    struct shape s;
    struct kv_layout layout;
    const struct kv_group *g;
    uint8_t *arena;
    uint32_t table[256], first, n_keys;
    double *k, *v; /* [n_keys][dim] as stored */
    float *q, *out;
    size_t stride;
    /* staging: blocks of the table that lie elsewhere */
    uint32_t cap_blocks, staged[256], n_staged;
    uint8_t *buffer;
};

enum { LAYERS = 2, HEADS = 2, LAYER = 1, HEAD = 1 };

static uint8_t *unit_of(const struct fixture *f, uint32_t p)
{
    return f->arena + f->table[p / f->s.n_slots] * f->g->block_bytes +
           kv_unit_offset(&f->layout, LAYER, HEAD);
}

static void fixture_fill(struct fixture *f, const struct kernels *kn)
{
    const uint32_t dim = f->s.dim, n_slots = f->s.n_slots;
    float *k = mem_alloc(dim * sizeof(float)), *v = mem_alloc(dim * sizeof(float));
    for (uint32_t p = f->first; p < f->n_keys; p++) {
        uint8_t *unit = unit_of(f, p);
        for (uint32_t i = 0; i < dim; i++) {
            k[i] = draw_float() * 3;
            v[i] = draw_float();
        }
        ck_assert(kn->kv_store(&f->layout, 0, unit, p % n_slots, k, v));
        for (uint32_t i = 0; i < dim; i++) {
            f->k[(size_t)p * dim + i] =
                (double)c_kv_at(f->layout.dtype_k, true, dim, n_slots, p % n_slots, i, unit);
            f->v[(size_t)p * dim + i] = (double)c_kv_at(f->layout.dtype_v, false, dim, n_slots,
                                                        p % n_slots, i, unit + f->g->k_bytes);
        }
    }
    mem_free(k);
    mem_free(v);
}

static void layout_make(struct kv_layout *l, const struct shape *s, enum kv_dtype k,
                        enum kv_dtype v)
{
    struct err e;
    struct kv_layer_shape layers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (struct kv_layer_shape){s->window, HEADS, s->dim};
    ck_assert_int_eq(kv_layout_init(l, layers, LAYERS, s->n_slots, k, v, &e), OK);
}

/* Only what the first row sees on is written; blocks wholly below have no number. */
static void fixture_make(struct fixture *f, const struct shape *s, enum kv_dtype k, enum kv_dtype v,
                         const struct kernels *kn)
{
    *f = (struct fixture){.s = *s, .n_keys = s->pos0 + s->n_rows};
    layout_make(&f->layout, s, k, v);
    f->g = &f->layout.group[0];
    f->first = attend_first(s->window, s->pos0);
    uint32_t n_blocks = (f->n_keys + s->n_slots - 1) / s->n_slots;
    f->cap_blocks = n_blocks * 3 + 3;
    f->arena = mem_aligned(64, f->cap_blocks * f->g->block_bytes);
    memset(f->arena, 0xff, f->cap_blocks * f->g->block_bytes); /* NaN, or a scale that is NaN */
    for (uint32_t i = 0; i < n_blocks; i++)
        f->table[i] = i < f->first / s->n_slots
                          ? 0xffffffff
                          : (n_blocks - 1 - i) * 3 + i * 7 % 3; /* apart, backwards, unique */
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
    mem_free(f->buffer);
    mem_free(f->k);
    mem_free(f->v);
    mem_free(f->q);
    mem_free(f->out);
}

/* Moves every other block's slice of the layer to a staging buffer and wipes it where it was. */
static void fixture_stage(struct fixture *f)
{
    uint32_t n_blocks = (f->n_keys + f->s.n_slots - 1) / f->s.n_slots;
    f->buffer = mem_alloc(mem_mul(n_blocks, f->g->layer_bytes));
    for (uint32_t b = f->first / f->s.n_slots; b < n_blocks; b++) {
        if (b * 5 % 7 < 3)
            continue;
        uint8_t *from = f->arena + f->table[b] * f->g->block_bytes + LAYER * f->g->layer_bytes;
        memcpy(f->buffer + f->n_staged * f->g->layer_bytes, from, f->g->layer_bytes);
        memset(from, 0xff, f->g->layer_bytes);
        f->staged[f->n_staged++] = b;
        f->table[b] = f->cap_blocks + b * 3;
    }
}

static void run(const struct kernels *kn, struct fixture *f, uint32_t row0, uint32_t n_rows,
                float *out)
{
    float *scratch =
        mem_alloc(attend_scratch_floats(f->s.group, f->s.dim, f->s.n_slots) * sizeof(float));
    struct attend a = {.layout = &f->layout,
                       .kv = f->g,
                       .unit = f->arena + kv_unit_offset(&f->layout, LAYER, HEAD),
                       .block_bytes = f->g->block_bytes,
                       .table = f->table,
                       .n_resident = f->cap_blocks,
                       .n_staged = f->n_staged,
                       .staged = f->staged,
                       .staged_unit = f->buffer ? f->buffer + HEAD * f->g->unit_bytes : NULL,
                       .staged_bytes = f->g->layer_bytes,
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
    uint32_t first = f->s.window && n > f->s.window ? n - f->s.window : 0;
    double *p = mem_alloc(n * sizeof(double)), top = -INFINITY, sum = 0;
    for (uint32_t t = first; t < n; t++) {
        p[t] = 0;
        for (uint32_t i = 0; i < dim; i++)
            p[t] += (double)q[i] * f->k[(size_t)t * dim + i];
        top = fmax(top, p[t]);
    }
    for (uint32_t t = first; t < n; t++)
        sum += p[t] = exp(p[t] - top);
    for (uint32_t i = 0; i < dim; i++) {
        double want = 0;
        for (uint32_t t = first; t < n; t++)
            want += p[t] * f->v[(size_t)t * dim + i] / sum;
        ck_assert_double_eq_tol((double)out[i], want, 2e-5);
    }
    mem_free(p);
}

static void check_shape(const struct shape *s, enum kv_dtype k, enum kv_dtype v,
                        const struct kernels *kn)
{
    struct fixture f;
    fixture_make(&f, s, k, v, kn);
    ck_assert_uint_le(f.s.n_rows, attend_rows(f.s.group));
    size_t n_bytes = (size_t)f.s.group * f.s.dim * sizeof(float);
    run(kn, &f, 0, f.s.n_rows, f.out);
    float *alone = mem_alloc(f.s.n_rows * f.stride * sizeof(float));
    for (uint32_t r = 0; r < f.s.n_rows; r++) {
        for (uint32_t h = 0; h < f.s.group; h++)
            check_vector(&f, r, h);
        for (size_t i = f.stride - 5; i < f.stride; i++)
            ck_assert(f.out[r * f.stride + i] == 99);
        run(kn, &f, r, 1, alone);
        ck_assert_mem_eq(alone, f.out + r * f.stride, n_bytes);
    }
    fixture_stage(&f);
    run(kn, &f, 0, f.s.n_rows, alone);
    for (uint32_t r = 0; r < f.s.n_rows; r++)
        ck_assert_mem_eq(alone + r * f.stride, f.out + r * f.stride, n_bytes);
    mem_free(alone);
    fixture_release(&f);
}

/* Loops over shapes and types of K; V's type is another one from shape to shape. */
START_TEST(attention_equals_softmax_and_a_row_has_the_same_bits_in_any_tile_and_from_staging)
{
    for (uint32_t l = 0; tested(l); l++) {
        int shape = _i / KV_N_DTYPES, k = _i % KV_N_DTYPES;
        seed = (uint32_t)_i + 1;
        check_shape(&shapes[shape], (enum kv_dtype)k, (enum kv_dtype)((k + shape) % KV_N_DTYPES),
                    tested(l));
    }
}
END_TEST

START_TEST(large_scores_do_not_overflow)
{
    for (uint32_t l = 0; tested(l); l++) {
        struct fixture f;
        seed = 5;
        fixture_make(&f, &shapes[2], KV_F16, KV_F16, tested(l));
        for (size_t i = 0; i < f.s.n_rows * f.stride; i++)
            f.q[i] *= 100;
        run(tested(l), &f, 0, f.s.n_rows, f.out);
        for (uint32_t r = 0; r < f.s.n_rows; r++)
            for (uint32_t i = 0; i < f.s.group * f.s.dim; i++)
                ck_assert(fabsf(f.out[r * f.stride + i]) <= 1.001f);
        fixture_release(&f);
    }
}
END_TEST

/* ---- storing ---- */

static const uint32_t dims[] = {8, 16, 24, 40, 64, 80, 128, 256, 20, 10};
enum { N_DIMS = sizeof dims / sizeof dims[0], SLOTS = 16 };

/* Values of many sizes: some tiny, some near f16's end, zeros of both signs, ties of rounding. */
static void draw_values(float *x, uint32_t n, int kind)
{
    static const float size[] = {1, 1e-3f, 1e-8f, 3e4f, 0, 127, 6.3f};
    for (uint32_t i = 0; i < n; i++)
        x[i] = kind == 5 ? truncf(draw_float() * 254) / 2 : draw_float() * size[kind];
    if (kind == 6)
        x[n / 2] *= 900;
}

START_TEST(stored_bytes_are_equal_on_all_levels)
{
    enum kv_dtype type = (enum kv_dtype)_i;
    float k[256] = {0}, v[256] = {0};
    for (uint32_t d = 0; d < N_DIMS; d++) {
        struct kv_layout l;
        layout_make(&l, &(struct shape){.dim = dims[d], .n_slots = SLOTS}, type, type);
        uint8_t *a = mem_zalloc(l.group[0].unit_bytes), *b = mem_zalloc(l.group[0].unit_bytes);
        seed = d + 1;
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            draw_values(k, dims[d], (int)slot % 7);
            draw_values(v, dims[d], (int)(slot + 3) % 7);
            if (slot == 9)
                k[dims[d] - 1] = NAN;
            if (slot == 10)
                v[0] = -INFINITY;
            bool finite = slot != 9 && slot != 10;
            ck_assert_int_eq(tested(0)->kv_store(&l, 0, a, slot, k, v), finite);
            for (uint32_t i = 1; tested(i); i++)
                ck_assert_int_eq(tested(i)->kv_store(&l, 0, b, slot, k, v), finite);
            if (tested(1))
                ck_assert_mem_eq(a, b, l.group[0].unit_bytes);
        }
        mem_free(a);
        mem_free(b);
    }
}
END_TEST

/* Largest error of a stored value whose scale's group has a largest magnitude of `top`. */
static double error_bound(enum kv_dtype type, double x, double top)
{
    const double f16_step = ldexp(1, -25); /* half the distance of f16's smallest values */
    switch (type) {
    case KV_F16:
        return fmax(fabs(x) * ldexp(1, -11), f16_step);
    case KV_BF16:
        return fabs(x) * ldexp(1, -8);
    case KV_Q8: /* half a step of a scale that is itself rounded */
        return top / 127 * 0.5 * (1 + ldexp(1, -8)) + 128 * f16_step;
    case KV_Q4: /* the far end of the other sign is cut by up to a step */
        return top / 8 * 1.01 + 8 * f16_step;
    default:
        return 0;
    }
}

START_TEST(what_is_stored_is_near_and_a_slot_leaves_its_neighbours_alone)
{
    enum kv_dtype type = (enum kv_dtype)_i;
    float x[SLOTS][256] = {{0}};
    for (uint32_t d = 0; d < N_DIMS; d++) {
        uint32_t dim = dims[d];
        struct kv_layout l;
        layout_make(&l, &(struct shape){.dim = dim, .n_slots = SLOTS}, type, type);
        uint8_t *unit = mem_alloc(l.group[0].unit_bytes);
        memset(unit, 0xff, l.group[0].unit_bytes);
        seed = d + 1;
        for (uint32_t i = 0; i < SLOTS; i++) {
            uint32_t slot = i * 7 % SLOTS;
            draw_values(x[slot], dim, (int)slot % 7);
            ck_assert(tested(0)->kv_store(&l, 0, unit, slot, x[slot], x[slot]));
        }
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            for (uint32_t i = 0; i < dim; i++) {
                double top = 0;
                for (uint32_t j = i / 32 * 32; j < dim && j < i / 32 * 32 + 32; j++)
                    top = fmax(top, fabs((double)x[slot][j]));
                double bound = error_bound(type, (double)x[slot][i], top);
                ck_assert_double_le(
                    fabs((double)(c_kv_at(type, true, dim, SLOTS, slot, i, unit) - x[slot][i])),
                    bound);
                ck_assert_double_le(fabs((double)(c_kv_at(type, false, dim, SLOTS, slot, i,
                                                          unit + l.group[0].k_bytes) -
                                                  x[slot][i])),
                                    bound);
            }
        }
        mem_free(unit);
    }
}
END_TEST

START_TEST(values_that_a_type_cannot_hold_are_not_finite)
{
    static const struct {
        float x;
        bool finite[KV_N_DTYPES]; /* f16, bf16, f32, q8, q4 */
    } cases[] = {
        {65504, {true, true, true, true, true}},
        {65520, {false, true, true, true, true}}, /* f16 rounds it to infinity */
        {-1e6f, {false, true, true, true, false}}, /* q4's scale overflows */
        {1e7f, {false, true, true, false, false}},
        {-3.4028e38f, {false, false, true, false, false}},
        {INFINITY, {false, false, false, false, false}},
        {NAN, {false, false, false, false, false}},
        {-NAN, {false, false, false, false, false}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int type = 0; type < KV_N_DTYPES; type++) {
            struct kv_layout l;
            layout_make(&l, &(struct shape){.dim = 40, .n_slots = SLOTS}, (enum kv_dtype)type,
                        (enum kv_dtype)type);
            uint8_t *unit = mem_zalloc(l.group[0].unit_bytes);
            for (uint32_t i = 0; tested(i); i++) {
                for (uint32_t at = 0; at < 80; at += 13) {
                    float x[80] = {1, -2};
                    x[at] = cases[c].x; /* of k, then of v */
                    ck_assert_int_eq(tested(i)->kv_store(&l, 0, unit, at % SLOTS, x, x + 40),
                                     cases[c].finite[type]);
                }
            }
            mem_free(unit);
        }
    }
}
END_TEST

START_TEST(rotation_keeps_products_undoes_itself_and_has_the_same_bits_on_all_levels)
{
    for (uint32_t d = 0; d < N_DIMS; d++) {
        uint32_t dim = dims[d];
        float a[256] = {0}, b[256] = {0}, x[256], y[256];
        seed = d + 1;
        draw_values(a, dim, 0);
        draw_values(b, dim, 6);
        double want = 0, got = 0;
        for (uint32_t i = 0; i < dim; i++)
            want += (double)a[i] * (double)b[i];
        memcpy(x, a, sizeof x);
        memcpy(y, b, sizeof y);
        c_kv_rotate(x, dim);
        c_kv_rotate(y, dim);
        for (uint32_t i = 0; i < dim; i++)
            got += (double)x[i] * (double)y[i];
        ck_assert_double_eq_tol(got, want, 1e-2);
        ck_assert_float_ne(x[0], a[0]);
        for (uint32_t i = 1; tested(i); i++) {
            float z[256];
            memcpy(z, b, sizeof z);
            tested(i)->kv_rotate(z, dim);
            ck_assert_mem_eq(z, y, dim * sizeof z[0]);
        }
        c_kv_rotate(x, dim);
        for (uint32_t i = 0; i < dim; i++)
            ck_assert_float_eq_tol(x[i], a[i], 1e-6f);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("attention");
    TCase *c = tcase_create("all");
    tcase_add_loop_test(
        c, attention_equals_softmax_and_a_row_has_the_same_bits_in_any_tile_and_from_staging, 0,
        N_SHAPES * KV_N_DTYPES);
    tcase_add_test(c, large_scores_do_not_overflow);
    tcase_add_loop_test(c, stored_bytes_are_equal_on_all_levels, 0, KV_N_DTYPES);
    tcase_add_loop_test(c, what_is_stored_is_near_and_a_slot_leaves_its_neighbours_alone, 0,
                        KV_N_DTYPES);
    tcase_add_test(c, values_that_a_type_cannot_hold_are_not_finite);
    tcase_add_test(c, rotation_keeps_products_undoes_itself_and_has_the_same_bits_on_all_levels);
    suite_add_tcase(s, c);
    return run_suite(s);
}
