/* KV arithmetic: exact bytes per token, disjoint units that fill the block, refused shapes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kvpool/layout.h"
#include "kvpool/kvpool_test.h"
#include "tests/unit/run_suite.h"

START_TEST(bytes_a_token_equal_the_formula)
{
    struct kv_layout l;
    struct err e;
    ck_assert_int_eq(kv_layout_init_plain(&l, 30, 3, 64, 16, KV_F16, &e), OK);
    ck_assert_uint_eq((size_t)l.group[0].bytes_per_token, 30 * 3 * 64 * 2 * 2);
    ck_assert_uint_eq(l.group[0].block_bytes, 16 * (size_t)l.group[0].bytes_per_token);
    ck_assert_uint_eq(l.group[0].unit_bytes, 4096);
    ck_assert_int_eq(kv_layout_init_plain(&l, 18, 1, 256, 32, KV_F32, &e), OK);
    ck_assert_uint_eq((size_t)l.group[0].bytes_per_token, 18 * 256 * 2 * 4);
    ck_assert_uint_eq(l.group[0].block_bytes, 32 * (size_t)l.group[0].bytes_per_token);
}
END_TEST

START_TEST(units_follow_one_another_and_fill_the_block)
{
    struct kv_layout l;
    struct err e;
    for (uint32_t slots = 8; slots <= 64; slots += 8) {
        ck_assert_int_eq(kv_layout_init_plain(&l, 5, 3, 10, slots, KV_F16, &e), OK);
        size_t at = 0;
        for (uint32_t layer = 0; layer < 5; layer++) {
            for (uint32_t head = 0; head < 3; head++) {
                ck_assert_uint_eq(kv_unit_offset(&l, layer, head), at);
                ck_assert_uint_eq(l.group[0].k_bytes, 10u * slots * 2);
                at += l.group[0].unit_bytes;
            }
        }
        ck_assert_uint_ge(l.group[0].block_bytes, at);
        ck_assert_uint_lt(l.group[0].block_bytes, at + 64);
        ck_assert_uint_eq(l.group[0].block_bytes % 64, 0);
    }
}
END_TEST

/* head 64, 16 slots: elements, then a scale of 2 bytes for each of 2 groups of channels and slot. */
START_TEST(quantised_units_count_their_scales)
{
    struct kv_layout l;
    struct err e;
    char name[KV_DTYPES_CAP];
    static const struct kv_layer_shape shape = {0, 3, 64};
    ck_assert_int_eq(kv_layout_init(&l, &shape, 1, 16, KV_Q8, KV_Q4, &e), OK);
    ck_assert_uint_eq(l.group[0].k_bytes, 64 * 16 + 2 * 16 * 2);
    ck_assert_uint_eq(l.group[0].v_bytes, 32 * 16 + 2 * 16 * 2);
    ck_assert_uint_eq(l.group[0].unit_bytes, 1088 + 576);
    ck_assert_uint_eq(l.group[0].layer_bytes, 3 * (1088 + 576));
    ck_assert(l.group[0].bytes_per_token == 3 * (1088 + 576) / 16.0);
    kv_layout_dtypes(&l, name);
    ck_assert_str_eq(name, "q8/q4");
    /* Odd head sizes: half a byte and a scale of fewer channels. */
    ck_assert_int_eq(kv_layout_init_plain(&l, 1, 1, 35, 8, KV_Q4, &e), OK);
    ck_assert_uint_eq(l.group[0].k_bytes, 18 * 8 + 2 * 8 * 2);
    ck_assert_uint_eq(l.group[0].v_bytes, 24 * 8 + 2 * 8 * 2);
    kv_layout_dtypes(&l, name);
    ck_assert_str_eq(name, "q4");
    ck_assert_int_eq(kv_layout_init_plain(&l, 30, 3, 64, 16, KV_Q8, &e), OK);
    ck_assert(30 * 3 * 64 * 2 * 2 / l.group[0].bytes_per_token > 1.88);
}
END_TEST

/* 5 local layers to a global one, as Gemma 3 has them, the local ones first. */
START_TEST(layers_of_one_shape_share_a_group_and_full_attention_comes_first)
{
    struct kv_layout l;
    struct err e;
    struct kv_layer_shape shape[18];
    for (int i = 0; i < 18; i++)
        shape[i] = (struct kv_layer_shape){i % 6 == 5 ? 0 : 512, 1, 256};
    ck_assert_int_eq(kv_layout_init(&l, shape, 18, 16, KV_F16, KV_F16, &e), OK);
    ck_assert_uint_eq(l.n_groups, 2);
    ck_assert_uint_eq(l.group[0].window, 0);
    ck_assert_uint_eq(l.group[0].n_layers, 3);
    ck_assert_uint_eq(l.group[1].window, 512);
    ck_assert_uint_eq(l.group[1].n_layers, 15);
    ck_assert(l.group[0].bytes_per_token == 3072);
    ck_assert(kv_layout_bytes_per_token(&l) == 18432);
    size_t next[2] = {0, 0}; /* offsets ascend within each group */
    for (uint32_t i = 0; i < 18; i++) {
        uint32_t g = l.layer_group[i];
        ck_assert_uint_eq(g, i % 6 == 5 ? 0 : 1);
        ck_assert_uint_eq(kv_unit_offset(&l, i, 0), next[g]);
        next[g] += l.group[g].layer_bytes;
    }
    ck_assert_uint_eq(next[0], l.group[0].block_bytes);
    ck_assert_uint_eq(next[1], l.group[1].block_bytes);
    shape[7].head_dim = 128;
    ck_assert_int_eq(kv_layout_init(&l, shape, 18, 16, KV_F16, KV_F16, &e), ERR_UNSUPPORTED);
    ck_assert(strstr(e.text, "more than 2 shapes of layers") != NULL);
}
END_TEST

START_TEST(impossible_shapes_are_refused_with_value_and_bound)
{
    struct kv_layout l;
    struct err e;
    static const uint32_t bad_slots[] = {0, 7, 12, 72};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(kv_layout_init_plain(&l, 1, 1, 8, bad_slots[i], KV_F16, &e), ERR_INVALID);
        ck_assert(strstr(e.text, "is not a multiple of 8 in 8..64") != NULL);
    }
    ck_assert_int_eq(kv_layout_init_plain(&l, 0, 1, 8, 16, KV_F16, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "kv layout: layers 0 is not in 1..512");
    ck_assert_int_eq(kv_layout_init_plain(&l, 1, 1, 65537, 16, KV_F16, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "kv layout: head size 65537 is not in 1..65536");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout");
    TCase *c = tcase_create("all");
    tcase_add_test(c, bytes_a_token_equal_the_formula);
    tcase_add_test(c, units_follow_one_another_and_fill_the_block);
    tcase_add_test(c, quantised_units_count_their_scales);
    tcase_add_test(c, layers_of_one_shape_share_a_group_and_full_attention_comes_first);
    tcase_add_test(c, impossible_shapes_are_refused_with_value_and_bound);
    suite_add_tcase(s, c);
    return run_suite(s);
}
