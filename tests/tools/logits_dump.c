/* Runs token ids through the CPU backend and writes the logits of every position, or of some.
 *
 *   logits_dump MODEL IDS OUT [option=value ...] [keep=A-B,C-D] [chunks=A,B,C] [company=N] [rows=N]
 *
 * IDS: int32, OUT: float32 [n_kept][n_vocab], both in host order. keep: positions A..B and C..D whose logits
 * are written (default: all). chunks: the prompt is fed in pieces of
 * these sizes, taken in turn (default: all at once; 1 = token by token). company: so many other
 * sequences of other tokens run in the same steps. rows: largest batch (default 512). The remaining
 * options are millrace's own (cpu.isa, cpu.threads, cpu.activations, kv.dtype, kv.block_tokens). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/thread.h"
#include "config/settings.h"
#include "engine/device.h"
#include "engine/kv_shape.h"

enum { MAX_CHUNKS = 64, MAX_COMPANY = 64, MAX_KEPT_RANGES = 64 };

#define NOT_KEPT UINT32_MAX

struct run {
    struct settings set;
    uint32_t chunk[MAX_CHUNKS], n_chunks, company, max_rows;
    int32_t *id;
    uint32_t n_ids;
    char *keep; /* the option's text */
    uint32_t *place; /* [n_ids] row of logits of a position, or NOT_KEPT */
    uint32_t n_kept;
    float *logits; /* [n_kept][n_vocab] */
    struct gguf *g; /* stays open: untied embeddings are read from it */
    const struct device *d;
    struct device_model *m;
    struct kv_layout layout;
    struct kv_store *kv;
    struct backend *be;
    uint32_t blocks_a_seq;
    uint32_t *table; /* [1 + company][blocks_a_seq] */
};

static void die(const struct err *e)
{
    fprintf(stderr, "logits_dump: %s\n", e->text);
    exit(1);
}

static void read_ids(struct run *r, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "logits_dump: cannot open %s\n", path);
        exit(1);
    }
    fseek(f, 0, SEEK_END);
    r->n_ids = (uint32_t)(ftell(f) / 4);
    rewind(f);
    r->id = mem_alloc(mem_mul(r->n_ids + 1, sizeof *r->id));
    CHECK(fread(r->id, 4, r->n_ids, f) == r->n_ids);
    fclose(f);
}

static void parse_option(struct run *r, char *arg)
{
    struct err e;
    char *value = strchr(arg, '=');
    if (!value) {
        fprintf(stderr, "logits_dump: %s is not option=value\n", arg);
        exit(2);
    }
    *value++ = 0;
    if (strcmp(arg, "company") == 0) {
        r->company = (uint32_t)atoi(value);
        CHECK(r->company <= MAX_COMPANY);
    } else if (strcmp(arg, "keep") == 0) {
        r->keep = value;
    } else if (strcmp(arg, "rows") == 0) {
        r->max_rows = (uint32_t)atoi(value);
    } else if (strcmp(arg, "chunks") == 0) {
        for (char *p = strtok(value, ","); p && r->n_chunks < MAX_CHUNKS; p = strtok(NULL, ","))
            r->chunk[r->n_chunks++] = (uint32_t)atoi(p);
    } else if (settings_set(&r->set, arg, value, &e) != OK) {
        die(&e);
    }
}

/* Ascending ranges, both ends counted. */
static void place_kept(struct run *r)
{
    char *range[MAX_KEPT_RANGES + 1];
    uint32_t n = 0;
    for (char *p = r->keep ? strtok(r->keep, ",") : NULL; p && n < MAX_KEPT_RANGES;
         p = strtok(NULL, ","))
        range[n++] = p;
    r->place = mem_alloc(mem_mul(r->n_ids + 1, sizeof *r->place));
    for (uint32_t pos = 0; pos < r->n_ids; pos++) {
        bool kept = n == 0;
        for (uint32_t i = 0; i < n; i++) {
            unsigned first, last;
            CHECKF(sscanf(range[i], "%u-%u", &first, &last) == 2, "keep=%s", range[i]);
            kept |= pos >= first && pos <= last;
        }
        r->place[pos] = kept ? r->n_kept++ : NOT_KEPT;
    }
}

static void load(struct run *r, const char *path)
{
    struct err e;
    struct hparams h;
    struct weights w;
    struct buf problems = {0};
    struct device_info info;
    if (gguf_open(path, &r->g, &e) != OK || hparams_read(r->g, &h, &e) != OK ||
        weights_bind(r->g, &h, &w, &problems, &e) != OK ||
        device_pick(&r->set, &r->d, &info, &e) != OK ||
        r->d->load(&r->set, r->g, &h, &w, &r->m, &e) != OK ||
        kv_layout_of_settings(r->d, &h, &r->set, &r->layout, &e) != OK)
        die(&e);
    r->blocks_a_seq = (r->n_ids + r->layout.n_slots - 1) / r->layout.n_slots;
    uint32_t n_blocks = r->blocks_a_seq * (1 + r->company);
    if (r->d->kv_new(r->m, &r->layout, (uint32_t[]){n_blocks, n_blocks}, NULL, &r->kv, &e) != OK)
        die(&e);
    struct backend_limits limits = {r->max_rows + MAX_COMPANY, 1 + MAX_COMPANY,
                                    r->max_rows + MAX_COMPANY, 0};
    if (r->d->backend_new(r->m, false, r->kv, &r->layout, limits, &r->be, &e) != OK)
        die(&e);
    r->table = mem_alloc(mem_mul(n_blocks, sizeof *r->table));
    uint32_t seed = 1; /* scattered blocks, the same in every run */
    for (uint32_t i = 0; i < n_blocks; i++)
        r->table[i] = i;
    for (uint32_t i = n_blocks - 1; i > 0 && n_blocks > 1; i--) {
        seed = seed * 1664525 + 1013904223;
        uint32_t j = (seed >> 8) % (i + 1), t = r->table[i];
        r->table[i] = r->table[j];
        r->table[j] = t;
    }
    weights_release(&w);
    buf_release(&problems);
}

static void add_span(struct run *r, struct batch *b, uint32_t seq, uint32_t pos, uint32_t n)
{
    const uint32_t *table = r->table + (size_t)seq * r->blocks_a_seq;
    b->span[b->n_spans++] =
        (struct batch_span){.row0 = b->n_rows, .n_rows = n, .pos0 = pos, .table = {table, table}};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = seq == 0 ? pos + i : (pos + i + 17 * seq) % r->n_ids;
        b->token[b->n_rows++] = r->id[at];
    }
}

static void run_all(struct run *r)
{
    struct batch b, *done;
    uint64_t ticket;
    struct err e;
    batch_init(&b, r->be->limits.max_rows, r->be->limits.max_spans, r->be->limits.max_outs);
    uint32_t pos[1 + MAX_COMPANY] = {0}, turn = 0;
    while (pos[0] < r->n_ids) {
        batch_clear(&b);
        uint32_t n = r->n_chunks ? r->chunk[turn++ % r->n_chunks] : r->max_rows;
        n = n > r->n_ids - pos[0] ? r->n_ids - pos[0] : n;
        n = n > r->max_rows ? r->max_rows : n;
        for (uint32_t s = 1; s <= r->company; s += 2)
            if (pos[s] < r->n_ids)
                add_span(r, &b, s, pos[s]++, 1);
        uint32_t row0 = b.n_rows;
        add_span(r, &b, 0, pos[0], n);
        for (uint32_t s = 2; s <= r->company; s += 2)
            if (pos[s] < r->n_ids)
                add_span(r, &b, s, pos[s]++, 1);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t place = r->place[pos[0] + i];
            if (place != NOT_KEPT)
                b.out[b.n_outs++] = (struct batch_out){
                    .row = row0 + i, .logits = r->logits + (size_t)place * r->be->n_vocab};
        }
        pos[0] += n;
        if (r->be->ops->submit(r->be, &b, &ticket, &e) != OK ||
            r->be->ops->collect(r->be, ticket, &done, &e) != OK)
            die(&e);
        CHECK(done == &b);
    }
    batch_release(&b);
}

int main(int argc, char **argv)
{
    struct run r = {.max_rows = 512};
    if (argc < 4) {
        fprintf(stderr, "usage: logits_dump MODEL IDS OUT [option=value ...]\n");
        return 2;
    }
    settings_init(&r.set);
    for (int i = 4; i < argc; i++)
        parse_option(&r, argv[i]);
    read_ids(&r, argv[2]);
    load(&r, argv[1]);
    place_kept(&r);
    size_t n = mem_mul(r.n_kept, r.be->n_vocab);
    r.logits = mem_alloc(mem_mul(n, sizeof *r.logits));
    run_all(&r);
    FILE *f = fopen(argv[3], "wb");
    CHECK(f && fwrite(r.logits, sizeof *r.logits, n, f) == n && fclose(f) == 0);
    r.be->ops->close(r.be);
    r.d->unload(r.m);
    gguf_close(r.g);
    kv_store_close(r.kv);
    mem_free(r.logits);
    mem_free(r.id);
    mem_free(r.place);
    mem_free(r.table);
    settings_release(&r.set);
    return 0;
}
