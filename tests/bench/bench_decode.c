/* Speed of the CPU engine compared with the machine's limits. Only prints; no time fails it.
 *
 *   bench_decode MODEL [option=value ...] [context=N] [seconds=S] [rows=A,B,...] [cpu_time=1]
 *
 * Lines: DRAM read bandwidth with huge pages, decode tokens per second at 1..64 sequences of about
 * `context` tokens (default 192), prefill tokens per second of a 512-token prompt. Each figure is the best of
 * several rounds, because other processes share the machine. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/thread.h"
#include "config/settings.h"
#include "engine/device.h"
#include "engine/kv_shape.h"

enum { MAX_SEQS = 64, PROMPT = 512, ROUNDS = 5, MAX_SIZES = 16 };

struct bench {
    struct settings set;
    uint32_t context, sizes[MAX_SIZES], n_sizes;
    double seconds;
    struct gguf *g; /* stays open: untied embeddings are read from it */
    const struct device *d;
    struct device_model *m;
    struct kv_layout layout;
    struct kv_store *kv;
    struct backend *be;
    uint32_t blocks_a_seq, *table;
    struct batch b;
};

/* CLOCK_MONOTONIC, or with cpu_time=1 the time this thread computed: with cpu.threads=1 that is a
 * figure that busy neighbours disturb less. */
static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const struct err *e)
{
    fprintf(stderr, "bench_decode: %s\n", e->text);
    exit(1);
}

/* ---- ceilings ---- */

enum { READ_BYTES = 256 << 20, READ_ITEMS = 64 };
static _Atomic uint64_t sink;

static void read_item(void *ctx, uint32_t item, uint32_t worker)
{
    (void)worker;
    const uint64_t *p = (const uint64_t *)ctx + (size_t)item * (READ_BYTES / READ_ITEMS / 8);
    uint64_t s[8] = {0};
    for (size_t i = 0; i < READ_BYTES / READ_ITEMS / 8; i += 8)
        for (size_t j = 0; j < 8; j++)
            s[j] += p[i + j];
    atomic_fetch_add(&sink, s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]);
}

static double read_bandwidth(struct device_model *m)
{
    size_t n_map = READ_BYTES + (2 << 20);
    uint8_t *map = mmap(NULL, n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    uint8_t *p = map + ((2 << 20) - (uintptr_t)map % (2 << 20));
    madvise(p, READ_BYTES, MADV_HUGEPAGE);
    memset(p, 1, READ_BYTES);
    double best = 1e9;
    for (int r = 0; r < 8; r++) {
        double t = now();
        m->device->each(m, read_item, p, READ_ITEMS);
        t = now() - t;
        best = t < best ? t : best;
    }
    munmap(map, n_map);
    return READ_BYTES / best;
}

/* ---- engine ---- */

static void load(struct bench *n, const char *path)
{
    struct err e;
    struct hparams h;
    struct weights w;
    struct buf problems = {0};
    struct device_info info;
    double t = now();
    if (gguf_open(path, &n->g, &e) != OK || hparams_read(n->g, &h, &e) != OK ||
        weights_bind(n->g, &h, &w, &problems, &e) != OK ||
        device_pick(&n->set, &n->d, &info, &e) != OK ||
        n->d->load(&n->set, n->g, &h, &w, &n->m, &e) != OK)
        die(&e);
    printf("%s: %s, %.1f MB of weights, loaded in %.0f ms\n", info.name, info.text,
           (double)n->m->info.weight_bytes / 1e6, 1e3 * (now() - t));
    if (kv_layout_of_settings(n->d, &h, &n->set, &n->layout, &e) != OK)
        die(&e);
    uint32_t longest = n->context + 64 > PROMPT ? n->context + 64 : PROMPT;
    n->blocks_a_seq = (longest + n->layout.n_slots - 1) / n->layout.n_slots;
    uint32_t n_blocks = n->blocks_a_seq * MAX_SEQS;
    struct backend_limits limits = {PROMPT, MAX_SEQS, MAX_SEQS, 0};
    if (n->d->kv_new(n->m, &n->layout, (uint32_t[]){n_blocks, n_blocks}, NULL, &n->kv, &e) != OK ||
        n->d->backend_new(n->m, false, n->kv, &n->layout, limits, &n->be, &e) != OK)
        die(&e);
    n->table = mem_alloc(mem_mul(n_blocks, sizeof *n->table));
    for (uint32_t i = 0; i < n_blocks; i++) /* blocks of a sequence lie apart */
        n->table[i % MAX_SEQS * n->blocks_a_seq + i / MAX_SEQS] = i;
    batch_init(&n->b, PROMPT, MAX_SEQS, MAX_SEQS);
    weights_release(&w);
    buf_release(&problems);
}

static void add_span(struct bench *n, uint32_t seq, uint32_t pos, uint32_t rows)
{
    struct batch *b = &n->b;
    const uint32_t *table = n->table + (size_t)seq * n->blocks_a_seq;
    b->span[b->n_spans++] = (struct batch_span){
        .row0 = b->n_rows, .n_rows = rows, .pos0 = pos, .table = {table, table}};
    for (uint32_t i = 0; i < rows; i++)
        b->token[b->n_rows++] = (int32_t)((seq * 977 + (pos + i) * 31) % 40000 + 100);
}

static void step(struct bench *n)
{
    static const struct sampling_params greedy = {.top_p = 1, .repetition_penalty = 1, .n_top = -1};
    struct batch *done;
    uint64_t ticket;
    struct err e;
    for (uint32_t i = 0; i < n->b.n_outs; i++)
        n->b.out[i].job = (struct sample_job){.params = &greedy, .given = -1};
    if (n->be->ops->submit(n->be, &n->b, &ticket, &e) != OK ||
        n->be->ops->collect(n->be, ticket, &done, &e) != OK)
        die(&e);
}

/* Steps of n_seqs sequences for a while; the best mean of a round. */
static double decode(struct bench *n, uint32_t n_seqs)
{
    double best = 1e9;
    for (int r = 0; r < ROUNDS; r++) {
        uint32_t n_steps = 0;
        double start = now(), t;
        do {
            batch_clear(&n->b);
            for (uint32_t s = 0; s < n_seqs; s++) {
                n->b.out[n->b.n_outs++] = (struct batch_out){.row = s};
                add_span(n, s, n->context + n_steps % 64, 1);
            }
            step(n);
            n_steps++;
            t = now() - start;
        } while (t < n->seconds / ROUNDS || n_steps < 3);
        best = t / n_steps < best ? t / n_steps : best;
    }
    return best;
}

static double prefill(struct bench *n)
{
    double best = 1e9;
    for (int r = 0; r < ROUNDS; r++) {
        batch_clear(&n->b);
        add_span(n, 0, 0, PROMPT);
        n->b.out[n->b.n_outs++] = (struct batch_out){.row = PROMPT - 1};
        double t = now();
        step(n);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void parse(struct bench *n, char *arg)
{
    struct err e;
    char *value = strchr(arg, '=');
    if (!value) {
        fprintf(stderr, "bench_decode: %s is not option=value\n", arg);
        exit(2);
    }
    *value++ = 0;
    if (strcmp(arg, "context") == 0) {
        n->context = (uint32_t)atoi(value);
    } else if (strcmp(arg, "cpu_time") == 0) {
        clock_used = atoi(value) ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    } else if (strcmp(arg, "seconds") == 0) {
        n->seconds = atof(value);
    } else if (strcmp(arg, "rows") == 0) {
        n->n_sizes = 0;
        for (char *p = strtok(value, ","); p && n->n_sizes < MAX_SIZES; p = strtok(NULL, ","))
            n->sizes[n->n_sizes++] = (uint32_t)atoi(p);
    } else if (settings_set(&n->set, arg, value, &e) != OK) {
        die(&e);
    }
}

int main(int argc, char **argv)
{
    static struct bench n = {
        .context = 192, .seconds = 2, .sizes = {1, 2, 4, 8, 16, 32, 64}, .n_sizes = 7};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_decode MODEL [option=value ...]\n");
        return 2;
    }
    settings_init(&n.set);
    for (int i = 2; i < argc; i++)
        parse(&n, argv[i]);
    load(&n, argv[1]);
    double bandwidth = read_bandwidth(n.m);
    printf("DRAM read, huge pages: %.1f GB/s; weights alone bound one sequence to %.0f tok/s\n",
           bandwidth / 1e9, bandwidth / (double)n.m->info.weight_bytes);
    double t = prefill(&n);
    printf("prefill %d tokens: %7.1f ms, %7.1f tok/s\n", PROMPT, 1e3 * t, PROMPT / t);
    for (uint32_t i = 0; i < n.n_sizes; i++) {
        uint32_t s = n.sizes[i] > MAX_SEQS ? MAX_SEQS : n.sizes[i];
        t = decode(&n, s);
        printf("decode %2u sequences: %7.2f ms a step, %7.1f tok/s\n", s, 1e3 * t, s / t);
        fflush(stdout);
    }
    n.be->ops->close(n.be);
    batch_release(&n.b);
    n.d->unload(n.m);
    gguf_close(n.g);
    kv_store_close(n.kv);
    mem_free(n.table);
    settings_release(&n.set);
    return 0;
}
