/* The CPU backend on a small model made in memory: no allocation in a step, blocks copied whole, rows
 * that are not finite, steps without outputs, results independent of company. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpuid.h"
#include "tests/unit/run_suite.h"

enum {
    EMBD = 64,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 16,
    FF = 96,
    VOCAB = 100,
    LAYERS = 2,
    BLOCKS = 32
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
    struct kv_arena arena;
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

static void small_make(struct small *s, uint32_t n_threads)
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
    ck_assert_int_eq(cpu_model_load(&s->g, &s->h, &s->w, s->pool, &s->m, &e), OK);
    ck_assert_int_eq(cpuid_kernels(SET_ISA_AUTO, &k, &e), OK);
    ck_assert_int_eq(kv_layout_init_plain(&s->layout, LAYERS, KV_HEADS, DIM, 16, KV_F16, &e), OK);
    ck_assert_int_eq(kv_arena_init(&s->arena, &s->layout, (uint32_t[]){BLOCKS}, NULL, &e), OK);
    struct backend_limits limits = {MAX_ROWS, 8, MAX_ROWS, 0};
    ck_assert_int_eq(
        cpu_backend_new(s->m, k, s->pool, SET_ACT_INT8, &s->arena, &s->layout, limits, &s->be, &e),
        OK);
    batch_init(&s->b, MAX_ROWS, 8, MAX_ROWS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        s->table[i % 2][i / 2] = BLOCKS - 1 - i;
    s->logits = mem_zalloc(MAX_ROWS * VOCAB * sizeof(float));
}

static void small_release(struct small *s)
{
    s->be->ops->close(s->be);
    batch_release(&s->b);
    cpu_model_free(s->m);
    pool_free(s->pool);
    kv_arena_release(&s->arena);
    for (uint32_t i = 0; i < s->n_tensors; i++)
        mem_free((void *)(uintptr_t)s->tensor[i].data);
    mem_free(s->logits);
}

/* n rows of a sequence from pos on, of tokens pos*7+salt; the last row has logits. */
static void add(struct small *s, uint32_t seq, uint32_t pos, uint32_t n, bool out)
{
    struct batch *b = &s->b;
    b->span[b->n_spans++] =
        (struct batch_span){.row0 = b->n_rows, .n_rows = n, .pos0 = pos, .table = {s->table[seq]}};
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
    struct err e;
    ck_assert_int_eq(s->be->ops->submit(s->be, &s->b, &e), OK);
    ck_assert_int_eq(s->be->ops->collect(s->be, &done, &e), OK);
    ck_assert_ptr_eq(done, &s->b);
    ck_assert_int_eq(s->be->ops->collect(s->be, &done, &e), OK);
    ck_assert_ptr_null(done);
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
    memset(kv_block_ptr(&s.arena, 0, s.table[0][0]), 0xff, s.layout.group[0].block_bytes);
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

int main(void)
{
    Suite *s = suite_create("cpu");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_step_allocates_nothing);
    tcase_add_test(c, the_token_is_the_highest_logit_and_company_changes_no_bit);
    tcase_add_test(c, a_copied_block_serves_as_the_original);
    tcase_add_test(c, a_row_that_is_not_finite_fails_alone);
    tcase_add_test(c, an_empty_batch_comes_back);
    suite_add_tcase(s, c);
    return run_suite(s);
}
