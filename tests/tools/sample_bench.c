/* sample_bench [N_VOCAB]: microseconds per row of each way to sample (best of 40 rounds), on rows that
 * look like a language model's (a few high logits over a wide bell). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/levels.h"
#include "engine/sample/sampler.h"

enum { N_ROWS = 16, N_ROUNDS = 40, N_HISTORY = 1024 };

static const struct mode {
    const char *name;
    struct sampling_params p;
} modes[] = {
    {"greedy", {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .n_top = -1}},
    {"temperature 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_top = -1}},
    {"top_k 40", {.temperature = 1, .top_p = 1, .top_k = 40, .repetition_penalty = 1, .n_top = -1}},
    {"top_p 0.95", {.temperature = 1, .top_p = 0.95f, .repetition_penalty = 1, .n_top = -1}},
    {"min_p 0.05",
     {.temperature = 1, .top_p = 1, .min_p = 0.05f, .repetition_penalty = 1, .n_top = -1}},
    {"top_k 40, top_p 0.95",
     {.temperature = 0.7f, .top_p = 0.95f, .top_k = 40, .repetition_penalty = 1, .n_top = -1}},
    {"greedy, logprobs 20", {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .n_top = 20}},
    {"temperature 1, logprobs 20",
     {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_top = 20}},
    {"temperature 1, penalties",
     {.temperature = 1,
      .top_p = 1,
      .repetition_penalty = 1.1f,
      .presence_penalty = 0.5f,
      .frequency_penalty = 0.5f,
      .n_top = -1}},
};

static double unit(uint32_t i, uint32_t j)
{
    uint32_t word[4];
    philox4x32(7, i, j, word);
    return (word[0] + 0.5) * 0x1p-32;
}

static void fill(float *x, uint32_t n, uint32_t row)
{
    for (uint32_t i = 0; i < n; i++) {
        double bell = sqrt(-2 * log(unit(row, 2 * i))) * cos(6.2831853 * unit(row, 2 * i + 1));
        x[i] = (float)(bell * 3);
    }
    for (uint32_t j = 0; j < 50; j++)
        x[(uint32_t)(unit(row + 1000, j) * n)] += (float)(22 - 4 * log(1 + j));
}

static double time_mode(const struct mode *m, float *rows, uint32_t n, struct sample_scratch *s)
{
    static int32_t history[N_HISTORY];
    struct sampling_params p = m->p;
    double best = INFINITY;
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        uint64_t start = clock_ns();
        for (uint32_t row = 0; row < N_ROWS; row++) {
            p.seed = i;
            struct sample_job job = {.params = &p,
                                     .history = history,
                                     .n_history = N_HISTORY,
                                     .n_prompt = N_HISTORY / 2,
                                     .choice = row,
                                     .given = -1};
            sample_run(&job, rows + (size_t)row * n, n, s);
        }
        best = fmin(best, (double)(clock_ns() - start) / 1e3 / N_ROWS);
    }
    return best;
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 49152;
    if (n < 64 || n > 1 << 22)
        return 2;
    float *rows = mem_alloc(mem_mul((size_t)N_ROWS * n, sizeof(float)));
    const struct kernels *k;
    struct err e;
    if (levels_choose(SET_ISA_AUTO, &k, &e) != OK)
        return 1;
    struct sample_scratch *s = sample_scratch_new(n, k->row);
    for (uint32_t row = 0; row < N_ROWS; row++)
        fill(rows + (size_t)row * n, n, row);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        time_mode(&modes[i], rows, n, s);
        printf("%-28s %8.1f us a row of %u\n", modes[i].name, time_mode(&modes[i], rows, n, s), n);
    }
    sample_scratch_free(s);
    mem_free(rows);
    return 0;
}
