/* The number of blocks that sequences need, and the numbers that the arena and the tiers get. */
#include "kvpool/sizing.h"
#include "kvpool/kvpool_test.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "kvpool/tier.h"
#include "tests/unit/run_suite.h"

/* Against every position of a sequence that grows by chunks of each size from each start. */
START_TEST(blocks_held_are_the_most_of_any_phase_of_growth)
{
    for (uint32_t window = 0; window <= 40; window += 3) {
        for (uint32_t n_rows = 1; n_rows <= 19; n_rows += 6) {
            uint64_t most = 0;
            for (uint64_t end = 1; end <= 160; end++) {
                uint64_t rows = end < n_rows ? end : n_rows, from = end - rows;
                uint64_t first = window == 0 || from < window - 1 ? 0 : from - (window - 1);
                uint64_t n = (end - 1) / 8 - first / 8 + 1;
                most = n > most ? n : most;
                ck_assert_uint_eq(kv_blocks_held(8, window, end, n_rows), most);
            }
        }
    }
}
END_TEST

START_TEST(tokens_of_so_many_bytes_are_the_inverse_of_bytes_of_so_many_tokens)
{
    struct kv_layout l;
    struct err e;
    struct kv_layer_shape shape[2] = {{0, 1, 64}, {10, 1, 64}};
    ck_assert_int_eq(kv_layout_init(&l, shape, 2, 8, KV_F16, KV_F16, &e), OK);
    uint64_t bytes = kv_seq_bytes(&l, 96);
    ck_assert_uint_eq(bytes, 12 * l.group[0].block_bytes + 3 * l.group[1].block_bytes);
    ck_assert_uint_eq(kv_seq_tokens(&l, bytes), 96);
    ck_assert_uint_lt(kv_seq_tokens(&l, bytes - 1), 96);
}
END_TEST

START_TEST(kv_blocks_follow_option_need_and_memory)
{
    struct kv_layout l;
    struct kv_plan p;
    struct err e;
    ck_assert_int_eq(kv_layout_init_plain(&l, 2, 2, 64, 16, KV_F16, &e), OK);
    uint64_t block = l.group[0].block_bytes;
    struct kv_plan_ask ask = {
        .kv_bytes = 10 * block + 1, .max_running = 64, .chunk = 32, .context = 100};
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    ck_assert_uint_eq(p.n_frames[0], 10);
    ck_assert_uint_eq(p.max_context, 100);
    ask = (struct kv_plan_ask){
        .free_bytes = 1000 * block, .max_running = 4, .chunk = 32, .context = 100};
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    ck_assert_uint_eq(p.n_frames[0], 28); /* 4 sequences of 7 blocks */
    ask.free_bytes = 20 * block;
    ask.context = 1000;
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    ck_assert_uint_eq(p.n_frames[0], 10); /* half of what is free */
    ck_assert_uint_eq(p.max_context, 160);
    ck_assert_uint_eq(p.max_staged, 0);
    ask.kv_bytes = block;
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), ERR_INVALID);
    ck_assert_str_eq(e.param, "kv.bytes");
    ask.kv_bytes = 40 * block;
    ask.spill_bytes = 50 * block;
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    ck_assert_uint_eq(p.n_file[0], 50);
    ck_assert_uint_eq(p.max_staged, 50);
    ck_assert_uint_eq(p.max_context, 1000); /* 63 blocks: more than the arena, less than both */
}
END_TEST

static void two_kinds(struct kv_layout *l, enum kv_dtype dtype)
{
    struct kv_layer_shape shape[6];
    struct err e;
    for (int i = 0; i < 6; i++)
        shape[i] =
            (struct kv_layer_shape){.window = i < 5 ? 512 : 0, .n_kv_heads = 1, .head_dim = 256};
    ck_assert_int_eq(kv_layout_init(l, shape, 6, 16, dtype, dtype, &e), OK);
}

START_TEST(groups_with_windows_run_out_together_at_the_typical_length)
{
    struct kv_layout l;
    struct kv_plan p;
    struct err e;
    two_kinds(&l, KV_F16);
    struct kv_plan_ask ask = {
        .kv_bytes = 256ull << 20, .max_running = 64, .chunk = 256, .context = 8192};
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    const uint32_t window = (512 + 256) / 16 + 1, full = KV_TYPICAL_TOKENS / 16;
    double n_full = (double)p.n_frames[0] / full, n_window = (double)p.n_frames[1] / window;
    ck_assert_double_eq_tol(n_full, n_window, 1);
    ck_assert_uint_le(p.n_frames[0] * l.group[0].block_bytes +
                          p.n_frames[1] * l.group[1].block_bytes,
                      ask.kv_bytes);
    ask.max_running = 2; /* window blocks of two sequences and a quarter are enough */
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    ck_assert_uint_eq(p.n_frames[1], window * 2 * 5 / 4);
}
END_TEST

START_TEST(a_small_tier_has_a_slot_of_each_kind_or_is_refused_with_the_least_size)
{
    static const char *const names[] = {"kv.host_bytes", "kv.spill.bytes"};
    struct kv_layout l;
    struct kv_plan p;
    struct err e;
    two_kinds(&l, KV_Q8);
    ck_assert_uint_ne(l.group[0].block_bytes % KV_TIER_ALIGN, 0);
    for (int file = 0; file < 2; file++) {
        char wanted[128];
        uint64_t size[2], first;
        for (int g = 0; g < 2; g++)
            size[g] = file ? kv_tier_slot_bytes(l.group[g].block_bytes) : l.group[g].block_bytes;
        first = size[0] + size[1];
        for (uint64_t bytes = 1; bytes < 400 * first; bytes += bytes / 7 + 1) {
            struct kv_plan_ask ask = {.kv_bytes = 256ull << 20,
                                      .free_bytes = UINT64_MAX,
                                      .host_bytes = file ? 0 : bytes,
                                      .spill_bytes = file ? bytes : 0,
                                      .max_running = 64,
                                      .chunk = 256,
                                      .context = 8192};
            enum status st = kv_plan_make(&ask, &l, &p, &e);
            const uint32_t *n = file ? p.n_file : p.n_host;
            ck_assert_int_eq(st, bytes < first ? ERR_INVALID : OK);
            if (st) {
                snprintf(wanted, sizeof(wanted),
                         "%s %llu is less than one KV block of each kind of layers, %llu bytes",
                         names[file], (unsigned long long)bytes, (unsigned long long)first);
                ck_assert_str_eq(e.text, wanted);
                ck_assert_str_eq(e.param, names[file]);
                continue;
            }
            ck_assert(n[0] >= 1 && n[1] >= 1);
            ck_assert_uint_le(n[0] * size[0] + n[1] * size[1], bytes);
            ck_assert_uint_gt((n[0] + 1) * size[0] + n[1] * size[1], bytes); /* all is used */
        }
    }
}
END_TEST

START_TEST(a_ram_tier_beyond_memory_is_refused_with_what_there_is)
{
    struct kv_layout l;
    struct kv_plan p;
    struct err e;
    two_kinds(&l, KV_F16);
    struct kv_plan_ask ask = {.free_bytes = 3ull << 30,
                              .host_bytes = (3ull << 30) + 1,
                              .max_running = 4,
                              .chunk = 256,
                              .context = 2048};
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), ERR_INVALID);
    ck_assert_str_eq(e.param, "kv.host_bytes");
    ck_assert_str_eq(e.text, "kv.host_bytes 3221225473 exceeds the available memory, "
                             "3221225472 bytes");
    ask.host_bytes = 1ull << 30;
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), OK);
    ask.kv_bytes = (2ull << 30) + 1;
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "kv.host_bytes 1073741824 exceeds the available memory beside "
                             "kv.bytes, 1073741823 bytes");
    ask.kv_bytes = 0;
    ask.host_bytes = (3ull << 30) - 10000; /* leaves nothing for the arena */
    ck_assert_int_eq(kv_plan_make(&ask, &l, &p, &e), ERR_INVALID);
    ck_assert_str_eq(e.param, "kv.bytes");
    ck_assert(strstr(e.text, "kv.bytes of 5000, half of what kv.host_bytes 3221215472 leaves, "
                             "holds 0 blocks") != NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool/sizing");
    TCase *c = tcase_create("all");
    tcase_add_test(c, blocks_held_are_the_most_of_any_phase_of_growth);
    tcase_add_test(c, tokens_of_so_many_bytes_are_the_inverse_of_bytes_of_so_many_tokens);
    tcase_add_test(c, kv_blocks_follow_option_need_and_memory);
    tcase_add_test(c, groups_with_windows_run_out_together_at_the_typical_length);
    tcase_add_test(c, a_small_tier_has_a_slot_of_each_kind_or_is_refused_with_the_least_size);
    tcase_add_test(c, a_ram_tier_beyond_memory_is_refused_with_what_there_is);
    suite_add_tcase(s, c);
    return run_suite(s);
}
