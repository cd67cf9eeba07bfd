/* Speed of the matrix kernels of one level on one thread, beside the multiplier's ceiling.
 *
 *   bench_kernels [avx2|c]
 *
 * Four row groups of 768 inputs stay in the first-level cache, so the figure is that of the arithmetic.
 * Gop/s counts a multiply and an add as two; time is the thread's own. Best of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/cpuid.h"

enum { IN = 768, GROUPS = 4, TOKENS = 64, ROUNDS = 15, GROUP_BYTES = IN * PACK_ROWS * 4 };

static const struct {
    const char *name;
    enum pack_kind kind;
    enum act_form form;
} cases[] = {
    {"Q4_1 x int8", PACK_N4_M, ACT_I8},   {"Q4_0 x int8", PACK_N4, ACT_I8},
    {"Q4_K x int8", PACK_N4_K, ACT_I8},   {"Q2_K x int8", PACK_N4_K16, ACT_I8},
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

static double measure(kernel_matmul *f, const uint8_t *w, const uint8_t *act, size_t stride,
                      uint32_t n_tokens, float *out)
{
    double best = 1e9;
    uint32_t n = 1 + 100 / n_tokens;
    for (int r = 0; r < ROUNDS; r++) {
        double t = now();
        for (uint32_t i = 0; i < n; i++)
            f(w, GROUP_BYTES, GROUPS, IN / PACK_BLOCK, act, stride, n_tokens, out,
              GROUPS * PACK_ROWS);
        t = (now() - t) / n;
        best = t < best ? t : best;
    }
    return 2.0 * GROUPS * PACK_ROWS * IN * n_tokens / best;
}

int main(int argc, char **argv)
{
    bool plain = argc > 1 && strcmp(argv[1], "c") == 0;
    const struct kernels *k;
    struct err e;
    if (cpuid_kernels(plain ? SET_ISA_C : SET_ISA_AUTO, &k, &e) != OK) {
        fprintf(stderr, "bench_kernels: %s\n", e.text);
        return 1;
    }
    static const uint32_t tokens[] = {1, 2, 3, 4, 8, 32};
    uint8_t *w = mem_aligned(64, GROUPS * GROUP_BYTES), *act = mem_aligned(64, TOKENS * IN * 8);
    float *out = mem_aligned(64, GROUPS * TOKENS * PACK_ROWS * sizeof(float)), x[IN];
    memset(w, 0x11, GROUPS * GROUP_BYTES);
    for (int i = 0; i < IN; i++)
        x[i] = (float)(i % 17 - 8);
    printf("level %s, Gop/s on one thread\n%-14s", k->name, "tokens");
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        printf("%8u", tokens[i]);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t stride = IN / PACK_BLOCK * act_block_bytes[cases[c].form];
        for (uint32_t t = 0; t < TOKENS; t++)
            k->quantise[cases[c].form](x, IN, act + t * stride);
        printf("\n%-14s", cases[c].name);
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
            printf("%8.1f", measure(k->matmul[cases[c].kind][cases[c].form], w, act, stride,
                                    tokens[i], out) /
                                1e9);
    }
    printf("\n");
    mem_free(w);
    mem_free(act);
    mem_free(out);
    return 0;
}
