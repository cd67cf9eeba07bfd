/* Speed of the matrix kernels of one level on one thread, compared with the multiplier's limit.
 *
 *   bench_kernels [LEVEL]
 *
 * 32 rows of 768 inputs stay in the first-level cache, so the figure is that of the arithmetic.
 * Gop/s counts a multiply and an add as two; time is the thread's own. Best of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/c/act8.h"
#include "engine/cpu/levels.h"

enum { IN = 768, ROWS = 32, TOKENS = 64, ROUNDS = 15, WEIGHT_BYTES = IN * ROWS * 4 };

static const struct {
    const char *name;
    enum pack_kind kind;
    enum act_form form;
} cases[] = {
    {"Q4_1 x int8", PACK_N4_M, ACT_Q32},  {"Q4_0 x int8", PACK_N4, ACT_Q32},
    {"Q4_K x int8", PACK_N4_K, ACT_Q32},  {"Q2_K x int8", PACK_N4_K16, ACT_Q32},
    {"Q4_1 x int16", PACK_N4_M, ACT_I16}, {"Q8_0 x int16", PACK_I8, ACT_I16},
    {"Q5_K x int16", PACK_I8_K, ACT_I16}, {"Q6_K x int16", PACK_I8_K16, ACT_I16},
    {"Q4_1 x f32", PACK_N4_M, ACT_F32},   {"F16 x f32", PACK_F16, ACT_F32},
    {"F32 x f32", PACK_F32, ACT_F32},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double measure(const struct kernels *k, uint32_t c, const uint8_t *w, const uint8_t *act,
                      uint32_t n_tokens, float *out)
{
    double best = 1e9;
    uint32_t n = 1 + 100 / n_tokens, rows = k->format->rows;
    const struct pack_shape shape = pack_shape_of(k->format, cases[c].kind);
    size_t group_bytes = (size_t)IN / PACK_BLOCK / shape.blocks * shape.unit_bytes;
    size_t stride = IN / PACK_BLOCK * k->act_bytes[cases[c].form];
    kernel_matmul *matmul = k->matmul[cases[c].form][cases[c].kind];
    for (int r = 0; r < ROUNDS; r++) {
        double t = now();
        for (uint32_t i = 0; i < n; i++)
            matmul(w, group_bytes, ROWS / rows, IN / PACK_BLOCK, act, stride, n_tokens, out, ROWS);
        t = (now() - t) / n;
        best = t < best ? t : best;
    }
    return 2.0 * ROWS * IN * n_tokens / best;
}

/* The level of this name, the best one without a name; NULL when the machine lacks it. */
static const struct kernels *level_named(const char *name)
{
    const struct kernels *found = NULL;
    for (uint32_t i = 0; levels_at(i); i++)
        if (!name || strcmp(levels_at(i)->name, name) == 0)
            found = levels_at(i);
    return found;
}

int main(int argc, char **argv)
{
    const struct kernels *k = level_named(argc > 1 ? argv[1] : NULL);
    if (!k) {
        fprintf(stderr, "bench_kernels: this machine has the levels %s\n", levels_names());
        return 1;
    }
    static const uint32_t tokens[] = {1, 2, 3, 4, 8, 32};
    uint8_t *w = mem_aligned(64, WEIGHT_BYTES), *act = mem_aligned(64, TOKENS * IN * 8);
    float *out = mem_aligned(64, ROWS * TOKENS * sizeof(float)), x[IN];
    memset(w, 0x11, WEIGHT_BYTES);
    for (int i = 0; i < IN; i++)
        x[i] = (float)(i % 17 - 8);
    printf("level %s, Gop/s on one thread\n%-14s", k->name, "tokens");
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        printf("%8u", tokens[i]);
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (uint32_t t = 0; t < TOKENS; t++)
            k->quantise[cases[c].form](x, IN,
                                       act + t * (IN / PACK_BLOCK * k->act_bytes[cases[c].form]));
        printf("\n%-14s", cases[c].name);
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
            printf("%8.1f", measure(k, c, w, act, tokens[i], out) / 1e9);
    }
    printf("\n");
    mem_free(w);
    mem_free(act);
    mem_free(out);
    return 0;
}
