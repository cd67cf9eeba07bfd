/* Every kernel of every level that this machine has, against references in double made from the scalar
 * dequantiser: all weight types, odd shapes, 1 to 19 tokens, guard values around every output. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/levels.h"
#include "engine/cpu/avx512/kernels_avx512.h"
#include "engine/model/quant.h"
#include "tests/unit/engine/tested_levels.h"
#include "tests/unit/run_suite.h"

enum { MAX_TOKENS = 19, MAX_IN = 1024 };

static const enum quant_type types[] = {
#define X(id, number, name, n, bytes) id,
    QUANT_TABLE(X)
#undef X
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static const int settings_of[] = {SET_ACT_INT8, SET_ACT_INT16, SET_ACT_F32};

static uint32_t seed;

static uint32_t draw(void)
{
    seed = seed * 1664525 + 1013904223;
    return seed >> 8;
}

static float draw_float(void)
{
    return (float)((int)(draw() % 20001) - 10000) * 1e-4f;
}

/* Random bytes with the scales of every block replaced by sane ones. */
static void fill_rows(enum quant_type type, uint8_t *data, size_t n_bytes)
{
    uint32_t block = quant_block_bytes(type);
    for (size_t i = 0; i < n_bytes; i++)
        data[i] = (uint8_t)draw();
    if (type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16) {
        for (size_t i = 0; i < n_bytes / block; i++) {
            float f = draw_float();
            uint32_t bits;
            memcpy(&bits, &f, 4);
            uint16_t h = type == QUANT_F16 ? f32_to_f16(f) : (uint16_t)(bits >> 16);
            memcpy(data + i * block, type == QUANT_F32 ? (void *)&f : (void *)&h, block);
        }
        return;
    }
    size_t at_d = type == QUANT_Q2_K ? 80 : type == QUANT_Q3_K ? 108 : type == QUANT_Q6_K ? 208 : 0;
    bool has_m = type == QUANT_Q4_1 || type == QUANT_Q5_1 || type == QUANT_Q2_K ||
                 type == QUANT_Q4_K || type == QUANT_Q5_K;
    for (size_t i = 0; i < n_bytes / block; i++) {
        uint16_t d = f32_to_f16(draw_float() * 0.05f), m = f32_to_f16(draw_float() * 0.05f);
        memcpy(data + i * block + at_d, &d, 2);
        if (has_m)
            memcpy(data + i * block + at_d + 2, &m, 2);
    }
}

struct matrix {
    enum quant_type type;
    uint8_t *rows;
    float *w; /* dequantised [n_rows][n_in] */
    struct gguf_tensor t;
    struct packed p;
};

static void matrix_make(struct matrix *m, const struct pack_format *f, enum quant_type type,
                        uint32_t n_rows, uint32_t n_in)
{
    size_t n_bytes = n_rows * quant_row_bytes(type, n_in);
    m->type = type;
    m->rows = mem_alloc(n_bytes);
    fill_rows(type, m->rows, n_bytes);
    m->w = mem_alloc((size_t)n_rows * n_in * sizeof(float));
    quant_dequant(type, m->rows, m->w, (uint64_t)n_rows * n_in);
    m->t = (struct gguf_tensor){.type = type,
                                .n_dims = 2,
                                .dim = {n_in, n_rows, 1, 1},
                                .data = m->rows,
                                .n_bytes = n_bytes};
    packed_plan(&m->p, f, &m->t);
    m->p.data = mem_zalloc(packed_bytes(&m->p));
    packed_fill(&m->p, &m->t, 0, m->p.n_groups);
}

static void matrix_release(struct matrix *m)
{
    mem_free(m->rows);
    mem_free(m->w);
    mem_free(m->p.data);
}

/* Value of input i as the form holds it. */
static double act_value(const struct kernels *level, uint32_t form, const uint8_t *row, uint32_t i)
{
    static const int place[4] = {0, 2, 1, 3};
    const uint8_t *block = row + i / 32 * level->act_bytes[form];
    uint32_t k = i % 32;
    if (form == ACT_Q32) {
        const struct act_q32 *a = (const void *)block;
        int q = a->q[k];
        for (uint32_t n = 0; n < 2; n++)
            q += k / 4 == a->quad[n] ? 128 * a->ex[4 * n + k % 4] : 0;
        return q * (double)a->d;
    }
    if (form == ACT_I16 && level->act_bytes[form] == sizeof(struct act_hl)) {
        const struct act_hl *a = (const void *)block;
        return (256 * a->high[k] + a->low[k]) * (double)a->d;
    }
    if (form == ACT_I16) {
        const struct act_i16 *a = (const void *)block;
        return (double)a->q[(k & ~3u) | (uint32_t)place[k & 3]] * (double)a->d;
    }
    return (double)((const struct act_f32 *)(const void *)block)->x[k];
}

static uint32_t odd_inputs(enum quant_type type, int i)
{
    static const uint32_t floats[] = {5, 33, 96}, blocks[] = {32, 96, 160},
                          supers[] = {256, 512, 768};
    if (quant_block_weights(type) == 1)
        return floats[i];
    return quant_block_weights(type) == 32 ? blocks[i] : supers[i];
}

static void check_value(const struct kernels *k, const struct matrix *m, uint32_t form,
                        const uint8_t *act, uint32_t row, float got)
{
    uint32_t n_in = m->p.n_in;
    double sum = 0, size = 0;
    for (uint32_t i = 0; i < n_in && row < m->p.n_rows; i++) {
        double term = act_value(k, form, act, i) * (double)m->w[(size_t)row * n_in + i];
        sum += term;
        size += fabs(term);
    }
    /* scale*q and min are summed apart: their terms are larger than the weight's */
    if (!(fabs(sum - (double)got) <= 1e-5 * size + 2e-4))
        ck_abort_msg("%s %s form %u in %u row %u: %g, should be %g", k->name, quant_name(m->type),
                     form, n_in, row, (double)got, sum);
}

enum { MAX_GROUPS = 5, MAX_ROWS = 16, OUT_STRIDE = MAX_GROUPS * MAX_ROWS + 3 };

static void check_matmul(const struct kernels *k, const struct matrix *m, uint32_t form)
{
    const float guard = 12345.5f;
    uint32_t n_in = m->p.n_in, n_pad = m->p.n_blocks * 32;
    float *x = mem_zalloc((size_t)MAX_TOKENS * n_pad * sizeof(float));
    size_t stride = m->p.n_blocks * k->act_bytes[form];
    uint8_t *act = mem_zalloc(MAX_TOKENS * stride);
    float out[MAX_TOKENS * OUT_STRIDE], alone[MAX_ROWS];
    const uint32_t rows = m->p.format->rows;
    for (uint32_t t = 0; t < MAX_TOKENS; t++) {
        for (uint32_t i = 0; i < n_in; i++)
            x[t * n_pad + i] = draw_float() * (draw() % 16 == 0 ? 10 : 1);
        k->quantise[form](x + t * n_pad, n_pad, act + t * stride);
    }
    for (uint32_t g0 = 0, n_groups; g0 < m->p.n_groups; g0 += n_groups) {
        const uint8_t *w = m->p.data + g0 * m->p.group_bytes;
        uint32_t n_tokens = 1 + (g0 * 7 + n_in) % MAX_TOKENS;
        n_groups = 1 + g0 % MAX_GROUPS;
        if (n_groups > m->p.n_groups - g0)
            n_groups = m->p.n_groups - g0;
        for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
            out[i] = guard;
        k->matmul[form][m->p.kind](w, m->p.group_bytes, n_groups, m->p.n_blocks, act, stride,
                                   n_tokens, out, OUT_STRIDE);
        for (uint32_t t = 0; t < MAX_TOKENS; t++) {
            for (uint32_t r = 0; r < OUT_STRIDE; r++) {
                float got = out[t * OUT_STRIDE + r];
                if (t >= n_tokens || r >= rows * n_groups)
                    EXPECT(got == guard);
                else
                    check_value(k, m, form, act + t * stride, g0 * rows + r, got);
            }
            for (uint32_t g = 0; g < n_groups && t < n_tokens; g++) {
                k->matmul[form][m->p.kind](w + g * m->p.group_bytes, m->p.group_bytes, 1,
                                           m->p.n_blocks, act + t * stride, stride, 1, alone, rows);
                EXPECT(memcmp(alone, out + t * OUT_STRIDE + rows * g, rows * sizeof *alone) == 0);
            }
        }
    }
    mem_free(x);
    mem_free(act);
}

START_TEST(products_of_every_type_equal_the_reference_and_do_not_depend_on_the_tile)
{
    enum quant_type type = types[_i];
    static const uint32_t rows[] = {1, 7, 8, 9, 29, 153};
    for (uint32_t l = 0; tested(l); l++) {
        for (int s = 0; s < 3; s++) {
            uint32_t form = tested(l)->form(pack_kind_of(type), settings_of[s]);
            for (int shape = 0; shape < 6; shape++) {
                struct matrix m;
                seed = (uint32_t)(_i * 100 + s * 10 + shape);
                matrix_make(&m, tested(l)->format, type, rows[shape], odd_inputs(type, shape % 3));
                check_matmul(tested(l), &m, form);
                matrix_release(&m);
            }
        }
    }
}
END_TEST

START_TEST(a_packed_row_equals_the_scalar_dequantiser)
{
    struct matrix m;
    float row[MAX_IN];
    seed = 7;
    for (uint32_t l = 0; tested(l); l++) {
        matrix_make(&m, tested(l)->format, types[_i], 13, odd_inputs(types[_i], 2));
        for (uint32_t r = 0; r < 13; r++) {
            packed_row(&m.p, r, row);
            for (uint32_t i = 0; i < m.p.n_in; i++) {
                double want = (double)m.w[(size_t)r * m.p.n_in + i];
                ck_assert_double_eq_tol((double)row[i], want, 1e-6 * (1 + fabs(want)));
            }
        }
        matrix_release(&m);
    }
}
END_TEST

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* What an input of x may be off when it is rounded: half a step. */
static double half_step(uint32_t form, const float *x, uint32_t i)
{
    double top[8] = {0};
    for (uint32_t j = 0; j < 32; j++)
        top[j / 4] = fmax(top[j / 4], fabs((double)x[i / 32 * 32 + j]));
    qsort(top, 8, sizeof top[0], by_size);
    if (form == ACT_F32)
        return 0;
    return 0.505 * (form == ACT_I16 ? top[0] / 32512 : fmax(top[2] / 127, top[0] / 16256));
}

/* Inputs with the largest of a block at any place and of any size, equal ones, zeros, tiny ones. */
static void draw_inputs(float *x, uint32_t n, uint32_t round)
{
    static const float sizes[] = {1, 3, 30, 127, 129, 1e4f, 1e-30f, 0};
    for (uint32_t i = 0; i < n; i++)
        x[i] = round % 16 == 15 ? (float)(draw() % 3) - 1 : draw_float();
    for (uint32_t b = 0; b < n / 32; b++) {
        for (uint32_t i = draw() % 4; i > 0; i--)
            x[32 * b + draw() % 32] *= sizes[draw() % 8];
        for (uint32_t i = 0; i < 32 && draw() % 8 == 0; i++)
            x[32 * b + i] *= round % 2 ? 1e-35f : 0;
    }
}

START_TEST(quantised_activations_are_within_half_a_step_and_equal_on_all_levels)
{
    enum { N = 96 };
    float x[N];
    uint8_t act[N / 32 * sizeof(struct act_f32)];
    double plain[N];
    seed = (uint32_t)_i;
    for (uint32_t round = 0; round < 2000; round++) {
        draw_inputs(x, N, round);
        for (uint32_t l = 0; tested(l); l++) {
            tested(l)->quantise[_i](x, N, act);
            for (uint32_t i = 0; i < N; i++) {
                double got = act_value(tested(l), (uint32_t)_i, act, i);
                plain[i] = l == 0 ? got : plain[i];
                if (fabs(got - (double)x[i]) <= half_step((uint32_t)_i, x, i) + 1e-37 &&
                    (_i == ACT_I16 || got == plain[i]))
                    continue;
                ck_abort_msg("%s form %d round %u input %u: %.9g of %.9g, plain %.9g",
                             tested(l)->name, _i, round, i, got, (double)x[i], plain[i]);
            }
        }
    }
}
END_TEST

START_TEST(a_nan_input_makes_its_products_nan)
{
    struct matrix m;
    float x[96] = {0}, out[MAX_ROWS];
    uint8_t act[3 * sizeof(struct act_f32)];
    for (uint32_t l = 0; tested(l); l++) {
        for (int s = 0; s < 3; s++) {
            uint32_t form = tested(l)->form(pack_kind_of(QUANT_Q4_1), settings_of[s]);
            matrix_make(&m, tested(l)->format, QUANT_Q4_1, MAX_ROWS, 96);
            for (int i = 0; i < 96; i++)
                x[i] = i == 77 ? NAN : 1;
            tested(l)->quantise[form](x, 96, act);
            tested(l)->matmul[form][m.p.kind](m.p.data, m.p.group_bytes, 1, 3, act, sizeof act, 1,
                                              out, MAX_ROWS);
            for (uint32_t r = 0; r < m.p.format->rows; r++)
                ck_assert(isnan(out[r]));
            matrix_release(&m);
        }
    }
}
END_TEST

START_TEST(rms_norm_equals_the_reference)
{
    float x[133], w[133], out[134];
    for (uint32_t l = 0; tested(l); l++) {
        for (uint32_t n = 1; n <= 133; n += 11) {
            double sum = 0;
            for (uint32_t i = 0; i < n; i++) {
                x[i] = draw_float();
                w[i] = draw_float();
                sum += (double)x[i] * (double)x[i];
            }
            out[n] = 7;
            tested(l)->rms_norm(x, w, 1e-5f, n, out);
            ck_assert(out[n] == 7);
            for (uint32_t i = 0; i < n; i++)
                ck_assert_double_eq_tol((double)out[i],
                                        (double)x[i] / sqrt(sum / n + 1e-5) * (double)w[i], 1e-5);
        }
        x[3] = NAN;
        tested(l)->rms_norm(x, w, 1e-5f, 64, out);
        ck_assert(isnan(out[0]) && isnan(out[63]));
    }
}
END_TEST

START_TEST(swiglu_equals_the_reference_from_minus_200_to_200)
{
    float gate[64], up[64], out[64];
    for (uint32_t l = 0; tested(l); l++) {
        for (int round = 0; round < 200; round++) {
            for (int i = 0; i < 64; i++) {
                gate[i] = draw_float() * (round % 2 ? 200 : 5);
                up[i] = draw_float();
            }
            tested(l)->swiglu(gate, up, 64, out);
            for (int i = 0; i < 64; i++) {
                double g = (double)gate[i], want = g / (1 + exp(-g)) * (double)up[i];
                ck_assert_double_eq_tol((double)out[i], want, 1e-6 * (1 + fabs(want)));
            }
        }
        gate[5] = NAN;
        tested(l)->swiglu(gate, up, 64, out);
        ck_assert(isnan(out[5]));
    }
}
END_TEST

START_TEST(geglu_equals_the_reference_from_minus_200_to_200)
{
    float gate[64], up[64], out[64];
    for (uint32_t l = 0; tested(l); l++) {
        for (int round = 0; round < 200; round++) {
            for (int i = 0; i < 64; i++) {
                gate[i] = draw_float() * (round % 2 ? 200 : 5);
                up[i] = draw_float();
            }
            tested(l)->geglu(gate, up, 64, out);
            for (int i = 0; i < 64; i++) {
                double g = (double)gate[i];
                double y = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
                double want = 0.5 * g * (1 + tanh(y)) * (double)up[i];
                ck_assert_double_eq_tol((double)out[i], want, 1e-6 * (1 + fabs(want)));
            }
        }
        gate[3] = INFINITY;
        gate[5] = NAN;
        up[3] = 1;
        tested(l)->geglu(gate, up, 64, out);
        ck_assert(isinf(out[3]) && isnan(out[5]));
    }
}
END_TEST

START_TEST(rope_rotates_pairs_and_scales_the_rest)
{
    enum { DIM = 80 };
    float x[DIM], y[DIM], angles[DIM];
    for (uint32_t l = 0; tested(l); l++) {
        for (uint32_t rot = 2; rot <= DIM; rot += 6) {
            bool neox = rot % 4 == 0;
            uint32_t half = rot / 2;
            for (uint32_t i = 0; i < half; i++) {
                angles[i] = cosf((float)i);
                angles[half + i] = sinf((float)i);
            }
            for (int i = 0; i < DIM; i++)
                x[i] = y[i] = draw_float();
            tested(l)->rope(y, angles, DIM, rot, neox, 0.125f);
            for (uint32_t i = 0; i < half; i++) {
                uint32_t a = neox ? i : 2 * i, b = neox ? i + half : 2 * i + 1;
                double c = (double)angles[i], s = (double)angles[half + i];
                ck_assert_double_eq_tol((double)y[a], ((double)x[a] * c - (double)x[b] * s) / 8,
                                        1e-6);
                ck_assert_double_eq_tol((double)y[b], ((double)x[b] * c + (double)x[a] * s) / 8,
                                        1e-6);
            }
            for (uint32_t i = rot; i < DIM; i++)
                ck_assert(y[i] == x[i] * 0.125f);
        }
    }
}
END_TEST

START_TEST(a_level_the_machine_lacks_is_refused_and_auto_takes_the_best)
{
    const struct kernels *k;
    struct err e;
    static const int settings[] = {SET_ISA_C, SET_ISA_AVX2, SET_ISA_AVX512};
    static const char *const names[] = {"c", "avx2", "avx512"};
    const struct kernels *best = levels_at(0);
    for (uint32_t l = 0; l < sizeof settings / sizeof settings[0]; l++) {
        if (levels_at(l)) {
            best = levels_at(l);
            ck_assert_int_eq(levels_choose(settings[l], &k, &e), OK);
            ck_assert_ptr_eq(k, best);
            ck_assert_str_eq(k->name, names[l]);
            ck_assert(strstr(levels_names(), names[l]) != NULL);
        } else {
            ck_assert_int_eq(levels_choose(settings[l], &k, &e), ERR_UNSUPPORTED);
            ck_assert(strstr(e.text, "this processor has only c") != NULL);
            ck_assert(strstr(e.text, names[l]) != NULL);
        }
    }
    ck_assert_int_eq(levels_choose(SET_ISA_AUTO, &k, &e), OK);
    ck_assert_ptr_eq(k, best);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels");
    TCase *c = tcase_create("all");
    tcase_add_loop_test(c, products_of_every_type_equal_the_reference_and_do_not_depend_on_the_tile,
                        0, N_TYPES);
    tcase_add_loop_test(c, a_packed_row_equals_the_scalar_dequantiser, 0, N_TYPES);
    tcase_add_loop_test(c, quantised_activations_are_within_half_a_step_and_equal_on_all_levels, 0,
                        ACT_FORMS);
    tcase_add_test(c, a_nan_input_makes_its_products_nan);
    tcase_add_test(c, rms_norm_equals_the_reference);
    tcase_add_test(c, swiglu_equals_the_reference_from_minus_200_to_200);
    tcase_add_test(c, geglu_equals_the_reference_from_minus_200_to_200);
    tcase_add_test(c, rope_rotates_pairs_and_scales_the_rest);
    tcase_add_test(c, a_level_the_machine_lacks_is_refused_and_auto_takes_the_best);
    suite_add_tcase(s, c);
    return run_suite(s);
}
