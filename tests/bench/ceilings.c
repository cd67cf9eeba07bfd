/* Limits of this machine: prints read bandwidth from memory (2 MiB pages) and the peak rates of the integer
 * and float kernels, so that benchmark figures can stand beside them. Built and run by serve_bench.py (one argument:
 * threads); x86-64 with AVX2. Each figure is the median of 9 runs, all threads started by one barrier. */
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { RUNS = 9, MAX_THREADS = 64, LOOPS = 4000000 };
/* Per function, so that the file builds without flags of its own. */
#define AVX2 __attribute__((target("avx2,fma")))

static const size_t bytes_total = (size_t)512 << 20;

enum kind { READ, INT8, INT8_LAZY, FLOAT };

static enum kind kind;
static int n_threads;
static uint8_t *memory;
static pthread_barrier_t start;
static double began[MAX_THREADS], ended[MAX_THREADS];
static volatile int sink;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

AVX2 static void read_all(const uint8_t *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 128) {
        a = _mm256_xor_si256(a, _mm256_load_si256((const void *)(p + i)));
        b = _mm256_xor_si256(b, _mm256_load_si256((const void *)(p + i + 32)));
        c = _mm256_xor_si256(c, _mm256_load_si256((const void *)(p + i + 64)));
        d = _mm256_xor_si256(d, _mm256_load_si256((const void *)(p + i + 96)));
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    sink = _mm256_extract_epi32(a, 0);
}

/* The empty asm statements keep the compiler from folding equal products into one. */
#define OPAQUE(x) __asm__ volatile("" : "+x"(x))

/* 32 products and sums (64 operations) a line: maddubs, madd with ones, add. */
AVX2 static void int8_products(void)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
    __m256i sum[8] = {0};
    for (int k = 0; k < LOOPS; k++)
        for (int i = 0; i < 8; i++) {
            OPAQUE(a);
            __m256i p = _mm256_maddubs_epi16(a, b);
            OPAQUE(p);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(p, ones));
        }
    for (int i = 1; i < 8; i++)
        sum[0] = _mm256_add_epi32(sum[0], sum[i]);
    sink = _mm256_extract_epi32(sum[0], 0);
}

/* Four maddubs are added in 16 bits before one madd: possible for 4-bit weights. */
AVX2 static void int8_lazy_products(void)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
    __m256i sum[4] = {0};
    for (int k = 0; k < LOOPS; k++)
        for (int i = 0; i < 4; i++) {
            __m256i part = _mm256_setzero_si256();
            for (int j = 0; j < 4; j++) {
                OPAQUE(a);
                __m256i p = _mm256_maddubs_epi16(a, b);
                OPAQUE(p);
                part = _mm256_add_epi16(part, p);
            }
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(part, ones));
        }
    for (int i = 1; i < 4; i++)
        sum[0] = _mm256_add_epi32(sum[0], sum[i]);
    sink = _mm256_extract_epi32(sum[0], 0);
}

AVX2 static void float_products(void)
{
    __m256 x = _mm256_set1_ps(1.0000001f), y = _mm256_set1_ps(1e-9f), sum[12];
    for (int i = 0; i < 12; i++)
        sum[i] = _mm256_set1_ps((float)i);
    for (int k = 0; k < LOOPS; k++)
        for (int i = 0; i < 12; i++)
            sum[i] = _mm256_fmadd_ps(sum[i], x, y);
    for (int i = 1; i < 12; i++)
        sum[0] = _mm256_add_ps(sum[0], sum[i]);
    sink = (int)_mm256_cvtss_f32(sum[0]);
}

static void *work(void *arg)
{
    int id = (int)(intptr_t)arg;
    size_t share = bytes_total / (size_t)n_threads / 4096 * 4096;
    pthread_barrier_wait(&start);
    began[id] = now_s();
    switch (kind) {
    case READ:
        read_all(memory + (size_t)id * share, share);
        break;
    case INT8:
        int8_products();
        break;
    case INT8_LAZY:
        int8_lazy_products();
        break;
    case FLOAT:
        float_products();
        break;
    }
    ended[id] = now_s();
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* units: what all threads do together; the result is in 1e9 units a second */
static double measure(enum kind what, double units)
{
    double rate[RUNS];
    kind = what;
    for (int run = 0; run < RUNS; run++) {
        pthread_t thread[MAX_THREADS];
        pthread_barrier_init(&start, NULL, (unsigned)n_threads);
        for (int i = 0; i < n_threads; i++)
            if (pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i) != 0)
                return 0;
        for (int i = 0; i < n_threads; i++)
            pthread_join(thread[i], NULL);
        pthread_barrier_destroy(&start);
        double first = began[0], last = ended[0];
        for (int i = 1; i < n_threads; i++) {
            first = began[i] < first ? began[i] : first;
            last = ended[i] > last ? ended[i] : last;
        }
        rate[run] = units / (last - first) / 1e9;
    }
    qsort(rate, RUNS, sizeof rate[0], by_value);
    return rate[RUNS / 2];
}

int main(int argc, char **argv)
{
    const size_t huge = (size_t)2 << 20;
    n_threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    if (n_threads < 1 || n_threads > MAX_THREADS || !__builtin_cpu_supports("avx2")) {
        fprintf(stderr, "ceilings: 1 to %d threads, on a CPU with AVX2\n", MAX_THREADS);
        return 1;
    }
    uint8_t *mapped =
        mmap(NULL, bytes_total + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return 1;
    memory = (uint8_t *)(((uintptr_t)mapped + huge - 1) & ~((uintptr_t)huge - 1));
    madvise(memory, bytes_total, MADV_HUGEPAGE);
    memset(memory, 1, bytes_total);
    double loops = (double)LOOPS * n_threads;
    printf("read_gb_s %.1f\n", measure(READ, (double)bytes_total));
    printf("int8_gop_s %.1f\n", measure(INT8, loops * 8 * 64));
    printf("int8_lazy_gop_s %.1f\n", measure(INT8_LAZY, loops * 16 * 64));
    printf("float_gflop_s %.1f\n", measure(FLOAT, loops * 12 * 16));
    return 0;
}
