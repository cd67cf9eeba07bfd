/* engine/sample: properties that must hold to the bit. Distributions and filters against numpy: test_sampler.py. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/base_test.h"
#include "config/settings.h"
#include "engine/cpu/levels.h"
#include "engine/sample/row.h"
#include "engine/sample/sampler.h"
#include "tests/unit/run_suite.h"

enum { N = 1000 };

static float row[N];
static struct sample_scratch *scratch;

static struct sampling_params greedy(void)
{
    return (struct sampling_params){.top_p = 1, .repetition_penalty = 1, .n_top = -1};
}

static struct sampling_params plain(uint64_t seed)
{
    struct sampling_params p = greedy();
    p.temperature = 1;
    p.seed = seed;
    return p;
}

static struct sample_job job_of(const struct sampling_params *p)
{
    return (struct sample_job){.params = p, .given = -1};
}

static int32_t run(const struct sampling_params *p)
{
    struct sample_job job = job_of(p);
    sample_run(&job, row, N, scratch);
    return job.token;
}

static void fill(uint64_t seed)
{
    for (uint32_t i = 0; i < N; i++) {
        uint32_t word[4];
        philox4x32(seed, i, 99, word);
        row[i] = (float)(row_uniform(word) * 20 - 10);
    }
}

static const struct row_passes *best_passes(void)
{
    const struct kernels *k;
    struct err e;
    ck_assert_int_eq(levels_choose(SET_ISA_AUTO, &k, &e), OK);
    return k->row;
}

static void set_up(void)
{
    scratch = sample_scratch_new(N, best_passes());
    fill(1);
}

static void tear_down(void)
{
    sample_scratch_free(scratch);
}

START_TEST(philox_gives_the_published_answers)
{
    /* Known-answer vectors of Random123, philox4x32 with 10 rounds. */
    static const struct {
        uint64_t key, a, b;
        uint32_t want[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t got[4];
        philox4x32(known[i].key, known[i].a, known[i].b, got);
        for (int j = 0; j < 4; j++)
            ck_assert_uint_eq(got[j], known[i].want[j]);
    }
}
END_TEST

START_TEST(greedy_takes_the_highest_logit_and_the_lowest_id_on_a_tie)
{
    struct sampling_params p = greedy();
    for (uint32_t i = 0; i < N; i += 37) {
        fill(i);
        row[i] = row[N - 1] = 11;
        ck_assert_int_eq(run(&p), (int32_t)i);
    }
    fill(1);
    memset(row, 0, sizeof(row));
    row[5] = -0.0f;
    row[0] = -0.0f;
    ck_assert_int_eq(run(&p), 0);
}
END_TEST

START_TEST(a_row_with_nan_or_infinity_gives_no_token)
{
    static const float bad[] = {NAN, -NAN, INFINITY};
    for (size_t b = 0; b < 3; b++) {
        for (uint32_t i = 0; i < N; i += 33) {
            struct sampling_params p = i % 2 ? greedy() : plain(i);
            p.n_top = 3;
            fill(1);
            row[i] = bad[b];
            struct sample_job job = job_of(&p);
            sample_run(&job, row, N, scratch);
            ck_assert_int_eq(job.token, -1);
            ck_assert_uint_eq(job.n_top, 0);
        }
    }
}
END_TEST

START_TEST(minus_infinity_is_never_drawn)
{
    struct sampling_params p = plain(0);
    for (uint32_t i = 0; i < N; i++)
        row[i] = i == 700 || i == 701 ? 0 : -INFINITY;
    bool seen[2] = {false, false};
    for (p.seed = 0; p.seed < 200; p.seed++) {
        int32_t token = run(&p);
        ck_assert(token == 700 || token == 701);
        seen[token - 700] = true;
    }
    ck_assert(seen[0] && seen[1]);
}
END_TEST

START_TEST(a_row_where_all_is_banned_gives_no_token_and_says_so)
{
    static int32_t ban[N];
    for (int i = 0; i < N; i++)
        ban[i] = i;
    for (int warm = 0; warm < 2; warm++) {
        struct sampling_params p = warm ? plain(3) : greedy();
        p.top_k = warm ? 5 : 0;
        row[123] = 50;
        struct sample_job job = job_of(&p);
        job.ban = ban;
        job.n_ban = N;
        sample_run(&job, row, N, scratch);
        ck_assert_int_eq(job.token, SAMPLE_ALL_BANNED);
        job.n_ban = N - 1;
        sample_run(&job, row, N, scratch);
        ck_assert_int_eq(job.token, N - 1);
        job.n_ban = N;
        job.given = 7; /* echo: nothing is drawn */
        sample_run(&job, row, N, scratch);
        ck_assert_int_eq(job.token, 7);
    }
    for (int i = 0; i < N; i++)
        row[i] = -INFINITY;
    struct sampling_params p = plain(3);
    p.n_top = 2;
    struct sample_job job = job_of(&p);
    sample_run(&job, row, N, scratch);
    ck_assert_int_eq(job.token, SAMPLE_BAD_LOGITS);
    struct logit_bias all[N];
    for (int i = 0; i < N; i++) {
        row[i] = (float)i;
        all[i] = (struct logit_bias){i, -100};
    }
    p.bias = all;
    p.n_bias = N;
    sample_run(&job, row, N, scratch);
    ck_assert_int_eq(job.token, SAMPLE_ALL_BANNED);
    ck_assert_int_eq(job.top_token[0], N - 1); /* reported: they are of the raw row */
    all[5].bias = -99;
    sample_run(&job, row, N, scratch);
    ck_assert_int_eq(job.token, 5);
}
END_TEST

START_TEST(biases_ban_at_minus_100_and_dominate_at_100)
{
    struct logit_bias bias[2] = {{10, 100}, {500, -100}};
    struct sampling_params p = plain(0);
    row[500] = 60;
    row[10] = -10;
    p.bias = bias;
    p.n_bias = 2;
    for (p.seed = 0; p.seed < 100; p.seed++)
        ck_assert_int_eq(run(&p), 10);
    p.temperature = 0;
    ck_assert_int_eq(run(&p), 10);
    bias[0].bias = -100;
    for (p.seed = 0; p.seed < 100; p.seed++)
        ck_assert_int_ne(run(&p), 500);
}
END_TEST

START_TEST(tokens_outside_the_vocabulary_are_ignored)
{
    struct logit_bias bias[2] = {{-1, 100}, {N, 100}};
    int32_t history[3] = {-5, N, 7}, ban[2] = {-1, INT32_MAX};
    struct sampling_params p = greedy();
    p.bias = bias;
    p.n_bias = 2;
    p.repetition_penalty = 2;
    p.presence_penalty = 1;
    struct sample_job job = job_of(&p);
    job.history = history;
    job.n_history = 3;
    job.n_prompt = 1;
    job.ban = ban;
    job.n_ban = 2;
    row[7] = 100;
    row[8] = 48.5f; /* 100 / 2 - 1 = 49 */
    sample_run(&job, row, N, scratch);
    ck_assert_int_eq(job.token, 7);
    row[8] = 49.5f;
    sample_run(&job, row, N, scratch);
    ck_assert_int_eq(job.token, 8);
}
END_TEST

START_TEST(a_draw_depends_on_seed_choice_and_position_only)
{
    static const int32_t history[64];
    int32_t other[64];
    static const uint64_t seeds[] = {0, 1, 1ull << 32, UINT64_MAX, 1ull << 63};
    enum { N_SEEDS = sizeof(seeds) / sizeof(seeds[0]) };
    int32_t stream[N_SEEDS][64];
    for (uint32_t i = 0; i < N_SEEDS; i++) {
        struct sampling_params p = plain(seeds[i]);
        for (uint32_t pos = 0; pos < 64; pos++) {
            struct sample_job job = job_of(&p);
            job.history = history;
            job.n_history = pos;
            sample_run(&job, row, N, scratch);
            stream[i][pos] = job.token;
            sample_run(&job, row, N, scratch);
            ck_assert_int_eq(job.token, stream[i][pos]);
            job.choice = 1;
            sample_run(&job, row, N, scratch);
            other[pos] = job.token;
        }
        ck_assert(memcmp(other, stream[i], sizeof(other)) != 0);
        for (uint32_t j = 0; j < i; j++)
            ck_assert(memcmp(stream[i], stream[j], sizeof(stream[i])) != 0);
    }
}
END_TEST

START_TEST(the_prompt_length_does_not_move_the_random_stream)
{
    static const int32_t history[64];
    struct sampling_params p = plain(5);
    for (uint32_t n_prompt = 0; n_prompt < 40; n_prompt++) {
        struct sample_job a = job_of(&p), b = a;
        a.history = b.history = history;
        a.n_history = 3;
        b.n_prompt = n_prompt;
        b.n_history = n_prompt + 3;
        sample_run(&a, row, N, scratch);
        sample_run(&b, row, N, scratch);
        ck_assert_int_eq(a.token, b.token);
    }
}
END_TEST

START_TEST(what_ran_before_on_the_scratch_leaves_no_trace)
{
    int32_t history[50];
    struct logit_bias bias = {3, -50};
    float before[N];
    memcpy(before, row, sizeof(row));
    for (int i = 0; i < 50; i++)
        history[i] = i % 7;
    for (uint32_t i = 0; i < 300; i++) {
        struct sampling_params other = plain(i);
        other.top_k = (int32_t)(i % 50);
        other.top_p = i % 3 ? 0.9f : 1;
        other.min_p = i % 5 ? 0 : 0.1f;
        other.repetition_penalty = i % 2 ? 1.5f : 1;
        other.frequency_penalty = i % 7 ? 0.3f : 0;
        other.bias = &bias;
        other.n_bias = i % 4 == 0;
        struct sample_job a = job_of(&other), b;
        a.history = history;
        a.n_history = 50;
        a.n_prompt = 20;
        b = a;
        sample_run(&a, row, N, scratch);
        struct sample_scratch *fresh = sample_scratch_new(N, best_passes());
        sample_run(&b, row, N, fresh);
        sample_scratch_free(fresh);
        ck_assert_int_eq(a.token, b.token);
    }
    ck_assert(memcmp(before, row, sizeof(row)) == 0);
}
END_TEST

START_TEST(sampling_allocates_nothing)
{
    int32_t history[50] = {1, 2, 3};
    uint64_t before = mem_thread_allocs();
    for (uint32_t i = 0; i < 64; i++) {
        struct sampling_params p = plain(i);
        p.temperature = i & 1 ? 1 : 0;
        p.top_k = i & 2 ? 40 : 0;
        p.top_p = i & 4 ? 0.9f : 1;
        p.min_p = i & 8 ? 0.1f : 0;
        p.repetition_penalty = i & 16 ? 1.1f : 1;
        p.n_top = i & 32 ? 20 : -1;
        struct sample_job job = job_of(&p);
        job.history = history;
        job.n_history = 50;
        sample_run(&job, row, N, scratch);
    }
    ck_assert_uint_eq(mem_thread_allocs(), before);
}
END_TEST

START_TEST(extreme_temperatures_stay_in_range)
{
    static const float temperatures[] = {1e-30f, 1e-6f, 1e-5f, 0.001f, 100, 1e6f, 1e30f, FLT_MAX};
    int32_t best = -1;
    struct sampling_params p = greedy();
    best = run(&p);
    for (size_t i = 0; i < sizeof(temperatures) / sizeof(temperatures[0]); i++) {
        for (int filters = 0; filters < 8; filters++) {
            p = plain(i);
            p.temperature = temperatures[i];
            p.top_k = filters & 1 ? 10 : 0;
            p.top_p = filters & 2 ? 0.8f : 1;
            p.min_p = filters & 4 ? 0.2f : 0;
            int32_t token = run(&p);
            ck_assert(token >= 0 && token < N);
            if (temperatures[i] <= 1e-5f)
                ck_assert_int_eq(token, best);
        }
    }
}
END_TEST

START_TEST(extreme_logits_and_penalties_stay_in_range)
{
    int32_t history[4] = {0, 1, 2, 3};
    struct logit_bias bias = {1, 100};
    for (uint32_t i = 0; i < N; i++)
        row[i] = i % 3 ? -FLT_MAX : FLT_MAX;
    for (int warm = 0; warm < 2; warm++) {
        struct sampling_params p = plain(1);
        p.temperature = (float)warm;
        p.repetition_penalty = 1e-6f;
        p.presence_penalty = p.frequency_penalty = -2;
        p.bias = &bias;
        p.n_bias = 1;
        p.n_top = 20;
        struct sample_job job = job_of(&p);
        job.history = history;
        job.n_history = 4;
        sample_run(&job, row, N, scratch);
        ck_assert_int_eq(job.token % 3, 0);
        ck_assert(isfinite(job.logprob));
    }
}
END_TEST

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

START_TEST(the_radix_selection_finds_the_kth_highest)
{
    float sorted[N];
    for (uint64_t seed = 0; seed < 20; seed++) {
        fill(seed);
        if (seed % 2)
            for (uint32_t i = 0; i < N; i++)
                row[i] = rintf(row[i]);
        memcpy(sorted, row, sizeof(row));
        qsort(sorted, N, sizeof(float), descending);
        for (uint32_t k = 1; k <= N; k += 13) {
            double above;
            ck_assert(select_boundary(row, NULL, N, k, &above) == sorted[k - 1]);
            uint32_t over = 0;
            while (over < N && sorted[over] > sorted[k - 1])
                over++;
            ck_assert(above == over);
        }
    }
}
END_TEST

START_TEST(exponential_and_logarithm_are_close_to_the_exact_ones)
{
    for (int i = 0; i <= 200000; i++) {
        float x = (float)(-i * 87.0 / 200000), p;
        row_exp(best_passes(), &x, 1, 0, 1, &p);
        double want = exp((double)x);
        ck_assert(fabs(p / want - 1) < 6e-8 * (2 + fabs((double)x) * 1.5));
    }
    float far[3] = {-INFINITY, -88, 0}, p[3];
    row_exp(best_passes(), far, 3, 0, 1, p);
    ck_assert(p[0] == 0 && p[1] == 0 && p[2] == 1);
    for (double x = 1e-3; x < 1e9; x *= 1.0137)
        ck_assert(fabs(row_log(x) - log(x)) <= 4e-16 * fmax(1, fabs(log(x))));
}
END_TEST

START_TEST(the_bits_are_those_of_every_machine)
{
    /* A digest of draws over many rows, kept here: another compiler, instruction set or libm that
     * moves one token breaks it. */
    uint64_t digest = 1469598103934665603ull;
    for (uint32_t i = 0; i < 2000; i++) {
        struct sampling_params p = plain(i * 0x9E3779B97F4A7C15ull);
        p.temperature = 0.5f + (float)(i % 16) / 8;
        p.top_p = i % 4 == 1 ? 0.9f : 1;
        p.top_k = i % 4 == 2 ? 30 : 0;
        p.min_p = i % 4 == 3 ? 0.01f : 0;
        if (i % 20 == 0)
            fill(i);
        digest = (digest ^ (uint32_t)run(&p)) * 1099511628211ull;
    }
    ck_assert_msg(digest == 0xb446c0645c8ac2b5ull, "digest %llx", (unsigned long long)digest);
}
END_TEST

static void check_same(const void *a, const void *b, size_t n)
{
    ck_assert(memcmp(a, b, n) == 0);
}

static void check_passes(const struct row_passes *pass)
{
    enum { BLOCKS = N / ROW_BLOCK };
    const struct row_passes *plain_passes = &row_passes_plain;
    static const float odd[] = {-INFINITY, -1e30f, -88, -0.0f, 0.5f, FLT_MAX, INFINITY, NAN};
    float want[N], got[N];
    for (uint32_t round = 0; round < 200; round++) {
        fill(round);
        if (round >= 100)
            row[round % N] = odd[round % 8];
        bool good = plain_passes->scan(row, BLOCKS, want);
        ck_assert(pass->scan(row, BLOCKS, got) == good);
        if (!good)
            continue;
        check_same(want, got, BLOCKS * sizeof *got);
        float max = -INFINITY, scale = 0.01f * (float)(1 + round * round);
        for (uint32_t i = 0; i < N; i++)
            max = row[i] > max ? row[i] : max;
        for (uint32_t n = 0; n <= N; n += 1 + n / 10) {
            plain_passes->exp(row, n, max, scale, want);
            pass->exp(row, n, max, scale, got);
            check_same(want, got, n * sizeof *got);
        }
        for (uint32_t b = 0; b < BLOCKS; b++) {
            want[b] = plain_passes->block_sum(row + b * ROW_BLOCK, max, scale);
            got[b] = pass->block_sum(row + b * ROW_BLOCK, max, scale);
        }
        check_same(want, got, BLOCKS * sizeof *got);
    }
}

START_TEST(every_level_gives_the_same_bits)
{
    for (uint32_t l = 0; levels_at(l); l++)
        check_passes(levels_at(l)->row);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampler");
    TCase *t = tcase_create("sampler");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, philox_gives_the_published_answers);
    tcase_add_test(t, greedy_takes_the_highest_logit_and_the_lowest_id_on_a_tie);
    tcase_add_test(t, a_row_with_nan_or_infinity_gives_no_token);
    tcase_add_test(t, minus_infinity_is_never_drawn);
    tcase_add_test(t, a_row_where_all_is_banned_gives_no_token_and_says_so);
    tcase_add_test(t, biases_ban_at_minus_100_and_dominate_at_100);
    tcase_add_test(t, tokens_outside_the_vocabulary_are_ignored);
    tcase_add_test(t, a_draw_depends_on_seed_choice_and_position_only);
    tcase_add_test(t, the_prompt_length_does_not_move_the_random_stream);
    tcase_add_test(t, what_ran_before_on_the_scratch_leaves_no_trace);
    tcase_add_test(t, sampling_allocates_nothing);
    tcase_add_test(t, extreme_temperatures_stay_in_range);
    tcase_add_test(t, extreme_logits_and_penalties_stay_in_range);
    tcase_add_test(t, the_radix_selection_finds_the_kth_highest);
    tcase_add_test(t, exponential_and_logarithm_are_close_to_the_exact_ones);
    tcase_add_test(t, the_bits_are_those_of_every_machine);
    tcase_add_test(t, every_level_gives_the_same_bits);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
