/* The CPU backend on a small model made in memory: no allocation in a step, blocks copied whole, rows
 * that are not finite, steps without outputs; results do not depend on the rest of the batch, on the content of
 * free slots or on the tier of a block, for every KV type and with a window layer. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "base/base_test.h"
#include "config/settings.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_kv.h"
#include "engine/cpu/levels.h"
#include "engine/kv_shape.h"
#include "kvpool/tier.h"
#include "tests/unit/run_suite.h"

enum {
    EMBD = 64,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 16,
    FF = 96,
    VOCAB = 100,
    LAYERS = 2,
    BLOCKS = 32,
    HOST_BLOCKS = 3,
    FILE_BLOCKS = 8,
    MAX_STAGED = 8
};
enum { MAX_ROWS = 48, MAX_TENSORS = 16 * LAYERS + 8 };

struct small {
    struct gguf g;
    struct gguf_tensor tensor[MAX_TENSORS];
    uint32_t n_tensors, seed;
    struct hparams h;
    struct layer_weights layer[LAYERS];
    struct weights w;
    struct cpu_model *m;
    struct pool *pool;
    struct kv_layout layout;
    struct kv_store *kv;
    struct backend *be;
    struct batch b;
    uint32_t table[2][BLOCKS / 2];
    float *logits;
};

static const struct sampling_params greedy = {.top_p = 1, .repetition_penalty = 1, .n_top = -1};

static const struct gguf_tensor *tensor(struct small *s, uint32_t n_in, uint32_t n_out)
{
    struct gguf_tensor *t = &s->tensor[s->n_tensors++];
    size_t n = (size_t)n_in * n_out;
    float *x = mem_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        s->seed = s->seed * 1664525 + 1013904223;
        x[i] = ((float)((s->seed >> 8) % 2001) - 1000) * 2e-4f;
    }
    *t = (struct gguf_tensor){.type = QUANT_F32,
                              .n_dims = 2,
                              .dim = {n_in, n_out, 1, 1},
                              .data = (const uint8_t *)x,
                              .n_bytes = n * sizeof *x};
    return t;
}

/* window: of the first layer, 0 none. */
static void small_make_kv(struct small *s, uint32_t n_threads, enum kv_dtype dtype, uint32_t window)
{
    struct err e;
    const struct kernels *k;
    *s = (struct small){.seed = 1};
    s->h = (struct hparams){.n_layers = LAYERS,
                            .n_embd = EMBD,
                            .n_ff = FF,
                            .n_heads = HEADS,
                            .n_kv_heads = KV_HEADS,
                            .head_dim = DIM,
                            .rope_dims = DIM,
                            .n_vocab = VOCAB,
                            .n_ctx_train = 256,
                            .rms_eps = 1e-5f,
                            .attn_scale = 0.25f,
                            .rope_base = 10000,
                            .scaling_factor = 1,
                            .scaling_attn_factor = 1,
                            .features = window > 0 ? ARCH_LOCAL_LAYERS : 0,
                            .embd_scale = 1,
                            .rope_base_local = 100,
                            .window = window,
                            .local = {window > 0},
                            .tied_embeddings = true};
    s->w = (struct weights){.layer = s->layer};
    s->w.token_embd = s->w.output = tensor(s, EMBD, VOCAB);
    s->w.output_norm = tensor(s, EMBD, 1);
    for (int i = 0; i < LAYERS; i++)
        s->layer[i] = (struct layer_weights){.attn_norm = tensor(s, EMBD, 1),
                                             .q = tensor(s, EMBD, HEADS * DIM),
                                             .k = tensor(s, EMBD, KV_HEADS * DIM),
                                             .v = tensor(s, EMBD, KV_HEADS * DIM),
                                             .q_bias = tensor(s, HEADS * DIM, 1),
                                             .attn_out = tensor(s, HEADS * DIM, EMBD),
                                             .ffn_norm = tensor(s, EMBD, 1),
                                             .gate = tensor(s, EMBD, FF),
                                             .up = tensor(s, EMBD, FF),
                                             .down = tensor(s, FF, EMBD)};
    ck_assert_int_eq(pool_new(n_threads, false, &s->pool, &e), OK);
    ck_assert_int_eq(levels_choose(SET_ISA_AUTO, &k, &e), OK);
    ck_assert_int_eq(cpu_model_load(&s->g, &s->h, &s->w, k->format, s->pool, &s->m, &e), OK);
    ck_assert_int_eq(kv_layout_of_model(&s->h, 16, dtype, dtype, &s->layout, &e), OK);
    ck_assert_uint_eq(s->layout.n_groups, window > 0 ? 2 : 1);
    ck_assert_int_eq(cpu_kv_new(&s->layout, (uint32_t[]){BLOCKS, BLOCKS},
                                (uint32_t[]){HOST_BLOCKS, HOST_BLOCKS}, &s->kv, &e),
                     OK);
    memset(((struct cpu_kv *)s->kv)->map, 0xff,
           s->kv->arena.n_bytes); /* NaN wherever nothing is written */
    struct backend_limits limits = {MAX_ROWS, 8, MAX_ROWS, MAX_STAGED};
    ck_assert_int_eq(
        cpu_backend_new(s->m, k, s->pool, SET_ACT_INT8, s->kv, &s->layout, limits, &s->be, &e), OK);
    batch_init(&s->b, MAX_ROWS, 8, MAX_ROWS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        s->table[i % 2][i / 2] = BLOCKS - 1 - i;
    s->logits = mem_zalloc(MAX_ROWS * VOCAB * sizeof(float));
}

static const struct kernels *any_level(void)
{
    struct err e;
    const struct kernels *k;
    ck_assert_int_eq(levels_choose(SET_ISA_AUTO, &k, &e), OK);
    return k;
}

static void small_make(struct small *s, uint32_t n_threads)
{
    small_make_kv(s, n_threads, KV_F16, 0);
}

static void small_release(struct small *s)
{
    s->be->ops->close(s->be);
    batch_release(&s->b);
    cpu_model_free(s->m);
    pool_free(s->pool);
    kv_store_close(s->kv);
    for (uint32_t i = 0; i < s->n_tensors; i++)
        mem_free((void *)(uintptr_t)s->tensor[i].data);
    mem_free(s->logits);
}

/* n rows of a sequence from pos on, of tokens pos*7+salt; the last row has logits. */
static void add(struct small *s, uint32_t seq, uint32_t pos, uint32_t n, bool out)
{
    struct batch *b = &s->b;
    b->span[b->n_spans++] = (struct batch_span){
        .row0 = b->n_rows, .n_rows = n, .pos0 = pos, .table = {s->table[seq], s->table[seq]}};
    for (uint32_t i = 0; i < n; i++)
        b->token[b->n_rows++] = (int32_t)((pos + i) * 7 + seq * 3) % VOCAB;
    if (out) {
        float *logits = s->logits + (size_t)b->n_outs * VOCAB;
        b->out[b->n_outs++] = (struct batch_out){
            .row = b->n_rows - 1, .job = {.params = &greedy, .given = -1}, .logits = logits};
    }
}

static void step(struct small *s)
{
    struct batch *done = NULL;
    uint64_t ticket;
    struct err e;
    ck_assert_int_eq(s->be->ops->submit(s->be, &s->b, &ticket, &e), OK);
    ck_assert_int_eq(s->be->ops->collect(s->be, ticket, &done, &e), OK);
    ck_assert_ptr_eq(done, &s->b);
    batch_clear(&s->b);
}

START_TEST(a_step_allocates_nothing)
{
    struct small s;
    small_make(&s, 2);
    uint64_t before = mem_thread_allocs();
    add(&s, 0, 0, 20, true);
    add(&s, 1, 0, 9, false);
    step(&s);
    add(&s, 0, 20, 1, true);
    add(&s, 1, 9, 1, true);
    step(&s);
    ck_assert_uint_eq(mem_thread_allocs(), before);
    small_release(&s);
}
END_TEST

static void swap_batch(struct small *s, struct batch *other)
{
    struct batch b = s->b;
    s->b = *other;
    *other = b;
}

/* A chunk, a copy of its block and a token behind it in that copy, then the same with both in flight. */
START_TEST(two_steps_in_flight_give_the_bits_of_one_after_the_other)
{
    struct small a, b;
    struct batch first, *done;
    struct err e;
    uint64_t ticket[2];
    small_make(&a, 2);
    small_make(&b, 2);
    batch_init(&first, MAX_ROWS, 8, MAX_ROWS);
    add(&a, 0, 0, 9, true);
    step(&a);
    float *logits = mem_dup(a.logits, VOCAB * sizeof(float));
    ck_assert_int_eq(a.be->ops->copy_block(a.be, 0, a.table[0][0], 0, &e), OK);
    a.table[0][0] = 0;
    add(&a, 0, 9, 1, true);
    step(&a);
    add(&b, 0, 0, 9, true);
    b.b.out[0].logits = b.logits + VOCAB;
    swap_batch(&b, &first);
    ck_assert_int_eq(b.be->ops->submit(b.be, &first, &ticket[0], &e), OK);
    ck_assert_int_eq(b.be->ops->copy_block(b.be, 0, b.table[0][0], 0, &e), OK);
    uint32_t table[] = {0};
    add(&b, 0, 9, 1, true);
    b.b.span[0].table[0] = table;
    ck_assert_int_eq(b.be->ops->submit(b.be, &b.b, &ticket[1], &e), OK);
    ck_assert(b.be->ops->collect(b.be, ticket[0], &done, &e) == OK && done == &first);
    ck_assert(b.be->ops->collect(b.be, ticket[1], &done, &e) == OK && done == &b.b);
    ck_assert_mem_eq(logits, b.logits + VOCAB, VOCAB * sizeof(float));
    ck_assert_mem_eq(a.logits, b.logits, VOCAB * sizeof(float));
    mem_free(logits);
    batch_release(&first);
    small_release(&a);
    small_release(&b);
}
END_TEST

/* Loops: a third step in flight; the newest collected first; a ticket collected twice. */
START_TEST(tickets_against_the_contract_are_a_broken_invariant)
{
    struct small s;
    struct batch *done;
    struct err e;
    uint64_t ticket[3] = {0};
    small_make(&s, 1);
    add(&s, 0, 0, 1, true);
    for (int i = 0; i < (_i == 0 ? 3 : 2); i++)
        ck_assert_int_eq(s.be->ops->submit(s.be, &s.b, &ticket[i], &e), OK);
    for (int i = 0; i < 2; i++)
        s.be->ops->collect(s.be, ticket[_i == 1], &done, &e);
}
END_TEST

START_TEST(the_token_is_the_highest_logit_and_company_changes_no_bit)
{
    struct small a, b;
    small_make(&a, 1);
    small_make(&b, 3);
    add(&a, 0, 0, 33, true);
    step(&a);
    add(&b, 1, 0, 7, false);
    add(&b, 0, 0, 30, false);
    step(&b);
    add(&b, 0, 30, 3, true);
    add(&b, 1, 7, 4, true);
    step(&b);
    ck_assert_mem_eq(a.logits, b.logits, VOCAB * sizeof(float));
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
        best = a.logits[i] > a.logits[best] ? i : best;
    ck_assert_int_eq(a.b.out[0].job.token, best);
    ck_assert_int_eq(b.b.out[0].job.token, best);
    small_release(&a);
    small_release(&b);
}
END_TEST

START_TEST(a_copied_block_serves_as_the_original)
{
    struct small s;
    struct err e;
    float want[VOCAB];
    small_make(&s, 2);
    add(&s, 0, 0, 15, false);
    step(&s);
    add(&s, 0, 15, 1, true);
    step(&s);
    memcpy(want, s.logits, sizeof want);
    ck_assert_int_eq(s.be->ops->copy_block(s.be, 0, s.table[0][0], s.table[0][5], &e), OK);
    memset(kv_block_ptr(s.kv, 0, s.table[0][0]), 0xff, s.layout.group[0].block_bytes);
    s.table[0][0] = s.table[0][5];
    add(&s, 0, 15, 1, true);
    step(&s);
    ck_assert_mem_eq(want, s.logits, sizeof want);
    small_release(&s);
}
END_TEST

/* Token 3 begins sequence 1; its embedding alone holds a NaN. */
START_TEST(a_row_that_is_not_finite_fails_alone)
{
    struct small s;
    small_make(&s, 2);
    add(&s, 0, 0, 4, true);
    step(&s);
    int32_t token = s.b.out[0].job.token;
    const struct gguf_tensor *embedding = tensor(&s, EMBD, VOCAB);
    memcpy((void *)(uintptr_t)embedding->data, s.w.token_embd->data, embedding->n_bytes);
    ((float *)(uintptr_t)embedding->data)[3 * EMBD + 5] = NAN;
    s.m->token_embd = embedding;
    add(&s, 0, 0, 4, true);
    add(&s, 1, 0, 1, true);
    step(&s);
    ck_assert_int_eq(s.b.out[0].job.token, token);
    ck_assert_int_eq(s.b.out[1].job.token, -1);
    ck_assert(s.b.span[0].finite && !s.b.span[1].finite);
    add(&s, 1, 0, 1, false); /* a step without outputs tells too */
    add(&s, 0, 0, 4, false);
    step(&s);
    ck_assert(!s.b.span[0].finite && s.b.span[1].finite);
    small_release(&s);
}
END_TEST

START_TEST(an_empty_batch_comes_back)
{
    struct small s;
    small_make(&s, 1);
    step(&s);
    small_release(&s);
}
END_TEST

/* Rows [0, n) of sequence 0 in pieces of these sizes, taken in turn; logits of each in `out`. */
static void run_rows(struct small *s, uint32_t n, const uint32_t *piece, uint32_t n_pieces,
                     float *out)
{
    uint32_t pos = 0;
    for (uint32_t i = 0; pos < n; i++) {
        uint32_t rows = piece[i % n_pieces] < n - pos ? piece[i % n_pieces] : n - pos;
        add(s, 0, pos, rows, true);
        for (uint32_t k = 0; k + 1 < rows; k++)
            s->b.out[s->b.n_outs++] = s->b.out[0];
        for (uint32_t k = 0; k < rows; k++) {
            s->b.out[k].row = k;
            s->b.out[k].logits = out + (size_t)(pos + k) * VOCAB;
        }
        step(s);
        pos += rows;
    }
}

/* Loops over KV types. The arena holds NaN at first, so slots a row must not see would show. */
START_TEST(chunks_change_no_bit_with_any_kv_type_and_a_window)
{
    enum { N = 150, WINDOW = 37 };
    static const uint32_t whole[] = {MAX_ROWS}, ragged[] = {5, 1, 31, 16, 1, 1, 40};
    struct small a, b;
    float *want = mem_alloc(N * VOCAB * sizeof(float)), *got = mem_alloc(N * VOCAB * sizeof(float));
    small_make_kv(&a, 1, (enum kv_dtype)_i, WINDOW);
    small_make_kv(&b, 3, (enum kv_dtype)_i, WINDOW);
    run_rows(&a, N, whole, 1, want);
    run_rows(&b, N, ragged, 7, got);
    ck_assert_mem_eq(want, got, N * VOCAB * sizeof(float));
    for (int i = 0; i < N * VOCAB; i++)
        ck_assert(isfinite(want[i]));
    small_release(&a);
    small_release(&b);
    mem_free(want);
    mem_free(got);
}
END_TEST

/* Positions below the window may be gone: their entries have no number, and nothing changes. */
START_TEST(blocks_below_the_window_are_never_read)
{
    enum { N = 150, WINDOW = 37 };
    static const uint32_t one[] = {1};
    struct small a, b;
    float *want = mem_alloc(N * VOCAB * sizeof(float)), *got = mem_alloc(N * VOCAB * sizeof(float));
    uint32_t window_table[BLOCKS / 2];
    small_make_kv(&a, 1, KV_F16, WINDOW);
    small_make_kv(&b, 1, KV_F16, WINDOW);
    run_rows(&a, N, one, 1, want);
    memcpy(window_table, b.table[0], sizeof window_table);
    for (uint32_t pos = 0; pos < N; pos++) {
        for (uint32_t i = 0; pos >= WINDOW - 1 && i < (pos - (WINDOW - 1)) / 16; i++) {
            if (window_table[i] < BLOCKS)
                memset(kv_block_ptr(b.kv, 1, window_table[i]), 0xff, b.layout.group[1].block_bytes);
            window_table[i] = 0xffffffff;
        }
        add(&b, 0, pos, 1, true);
        b.b.span[0].table[1] = window_table;
        b.b.out[0].logits = got + (size_t)pos * VOCAB;
        step(&b);
    }
    ck_assert_mem_eq(want, got, N * VOCAB * sizeof(float));
    small_release(&a);
    small_release(&b);
    mem_free(want);
    mem_free(got);
}
END_TEST

/* ---- tiers ---- */

static struct kv_tier *open_tier(struct small *s, char folder[64])
{
    struct kv_tier *t;
    struct err e;
    snprintf(folder, 64, "/tmp/millrace-stage-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    struct kv_tier_options o = {.store = s->kv,
                                .layout = &s->layout,
                                .path = folder,
                                .n_file = {FILE_BLOCKS, FILE_BLOCKS},
                                .max_jobs = 4};
    ck_assert_msg(kv_tier_open(&o, &t, &e) == OK, "%s", e.text);
    s->be->tier = t;
    return t;
}

/* Moves entry i of a sequence's table to a slot and wipes its frame. */
static void move_out(struct small *s, struct kv_tier *t, uint32_t seq, uint32_t i, uint32_t slot)
{
    struct kv_job job = {.group = 0, .frame = s->table[seq][i], .slot = slot};
    struct kv_done done;
    ck_assert(kv_tier_push(t, &job));
    ck_assert(kv_tier_step(t));
    ck_assert(kv_tier_pop(t, &done) && done.ok);
    memset(kv_block_ptr(s->kv, 0, job.frame), 0xff, s->layout.group[0].block_bytes);
    s->table[seq][i] = BLOCKS + slot;
}

/* 130 tokens of sequence 0, 100 of sequence 1. */
static void prefill(struct small *s)
{
    for (uint32_t i = 0; i < 5; i++) {
        add(s, 0, i * 26, 26, false);
        add(s, 1, i * 20, 20, false);
        step(s);
    }
}

/* Rows of both; sequence 0 has n_staged blocks in the spill file, and frames for the window layer. */
static void go_on(struct small *s, uint32_t pos, uint32_t n, uint32_t n_staged,
                  const uint32_t *frames)
{
    add(s, 1, 100 + pos, n, true);
    add(s, 0, 130 + pos, n, true);
    s->b.span[1].table[1] = frames;
    s->b.span[1].n_staged = n_staged;
    step(s);
}

START_TEST(blocks_in_ram_tier_and_spill_file_give_the_bits_of_frames)
{
    for (int window = 0; window <= 37; window += 37) {
        struct small a, b;
        char folder[64];
        small_make_kv(&a, 2, (enum kv_dtype)_i, (uint32_t)window);
        small_make_kv(&b, 2, (enum kv_dtype)_i, (uint32_t)window);
        prefill(&a);
        prefill(&b);
        uint32_t frames[BLOCKS / 2]; /* the window layer's blocks stay */
        memcpy(frames, b.table[0], sizeof frames);
        struct kv_tier *t = open_tier(&b, folder);
        static const uint32_t slot[] = {0, 5, 3, 2, 10, 7}; /* of blocks 0..5: RAM 0..2, file 3.. */
        for (uint32_t i = 0; i < 6; i++)
            move_out(&b, t, 0, i, slot[i]);
        go_on(&a, 0, 3, 0, a.table[0]);
        uint64_t before = mem_thread_allocs();
        go_on(&b, 0, 3, 4, frames);
        ck_assert_uint_eq(mem_thread_allocs(), before);
        ck_assert(b.b.span[1].finite && !b.b.span[1].lost && !b.b.span[0].lost);
        ck_assert_mem_eq(a.logits, b.logits, 2 * VOCAB * sizeof(float));
        kv_tier_fail_reads(t, 1);
        go_on(&a, 3, 1, 0, a.table[0]);
        go_on(&b, 3, 1, 4, frames);
        ck_assert(b.b.span[1].lost && !b.b.span[0].lost);
        ck_assert_mem_eq(a.logits, b.logits, VOCAB * sizeof(float));
        kv_tier_close(t);
        rmdir(folder);
        small_release(&a);
        small_release(&b);
    }
}
END_TEST

/* Each piece of scratch fails in turn; what was there before is given back (the sanitizer looks). */
START_TEST(scratch_that_cannot_be_had_is_an_error_that_names_the_settings)
{
    struct small s;
    struct err e;
    struct backend *be = NULL;
    struct backend_limits limits = {MAX_ROWS, 8, MAX_ROWS, MAX_STAGED};
    uint32_t n_failed = 0;
    small_make(&s, 2);
    for (;;) {
        mem_fail_after(n_failed + 1);
        enum status st = cpu_backend_new(s.m, any_level(), s.pool, SET_ACT_INT8, s.kv, &s.layout,
                                         limits, &be, &e);
        mem_fail_after(0);
        if (st == OK)
            break;
        ck_assert_int_eq(st, ERR_NO_MEMORY);
        ck_assert_ptr_null(be);
        ck_assert_ptr_nonnull(strstr(e.text, "sched.max_batch_tokens is "));
        n_failed++;
    }
    ck_assert_uint_gt(n_failed, 15);
    be->ops->close(be);
    small_release(&s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpu");
    TCase *c = tcase_create("all");
    tcase_add_test(c, a_step_allocates_nothing);
    tcase_add_test(c, two_steps_in_flight_give_the_bits_of_one_after_the_other);
    tcase_add_loop_test_raise_signal(c, tickets_against_the_contract_are_a_broken_invariant,
                                     SIGABRT, 0, 3);
    tcase_add_test(c, the_token_is_the_highest_logit_and_company_changes_no_bit);
    tcase_add_test(c, a_copied_block_serves_as_the_original);
    tcase_add_test(c, a_row_that_is_not_finite_fails_alone);
    tcase_add_test(c, an_empty_batch_comes_back);
    tcase_add_test(c, scratch_that_cannot_be_had_is_an_error_that_names_the_settings);
    tcase_add_loop_test(c, chunks_change_no_bit_with_any_kv_type_and_a_window, 0, KV_N_DTYPES);
    tcase_add_test(c, blocks_below_the_window_are_never_read);
    tcase_add_loop_test(c, blocks_in_ram_tier_and_spill_file_give_the_bits_of_frames, 0,
                        KV_N_DTYPES);
    suite_add_tcase(s, c);
    return run_suite(s);
}
