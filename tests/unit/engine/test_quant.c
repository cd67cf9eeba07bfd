/* engine/model/quant: rounding to f16 and the type table. Expansion against the package gguf:
 * test_quant.py. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "engine/model/quant.h"
#include "tests/unit/run_suite.h"

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

START_TEST(every_f16_survives_a_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        if (isnan(f))
            ck_assert(isnan(f16_to_f32(f32_to_f16(f))));
        else
            ck_assert_uint_eq(f32_to_f16(f), h);
    }
}
END_TEST

/* The value an infinity stands for when distances are compared: one step over 65504. */
static double wide(uint32_t h)
{
    return h == 0x7c00 ? 65536 : f16_to_f32((uint16_t)h);
}

START_TEST(rounding_to_f16_goes_to_the_nearest_and_to_even_on_a_tie)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = wide(h), high = wide(h + 1), middle = (low + high) / 2;
        float below = nextafterf((float)middle, 0), above = nextafterf((float)middle, INFINITY);
        uint32_t even = h & 1 ? h + 1 : h;
        ck_assert_uint_eq(f32_to_f16((float)middle), even);
        ck_assert_uint_eq(f32_to_f16(below), h);
        ck_assert_uint_eq(f32_to_f16(above), h + 1);
        ck_assert_uint_eq(f32_to_f16((float)-middle), even | 0x8000);
    }
    ck_assert_uint_eq(f32_to_f16(INFINITY), 0x7c00);
    ck_assert_uint_eq(f32_to_f16(of_bits(0xff7fffff)), 0xfc00);
    ck_assert_uint_eq(f32_to_f16(of_bits(1)), 0);
    ck_assert_uint_eq(f32_to_f16(of_bits(0x80000001)), 0x8000);
}
END_TEST

START_TEST(the_table_answers_for_every_number)
{
    for (uint32_t type = 0; type < 200; type++) {
        uint32_t weights = 77, bytes = 77;
        bool known = quant_block(type, &weights, &bytes);
        ck_assert(!quant_supported(type) || known);
        ck_assert_int_eq(quant_supported(type), quant_block_weights(type) != 0);
        ck_assert_int_eq(known, weights != 0 && bytes != 0);
        ck_assert_ptr_nonnull(quant_name(type));
    }
    ck_assert_str_eq(quant_name(QUANT_Q4_1), "Q4_1");
    ck_assert_str_eq(quant_name(16), "IQ2_XXS");
    ck_assert_str_eq(quant_name(UINT32_MAX), "unknown");
    ck_assert_uint_eq(quant_row_bytes(QUANT_Q6_K, 1024), 840);
}
END_TEST

START_TEST(blocks_need_no_alignment)
{
    static const uint32_t types[] = {
#define X(id, number, name, n, bytes) id,
        QUANT_TABLE(X)
#undef X
    };
    uint8_t bytes[300], shifted[301];
    float a[256], b[256];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 & 0x3f);
    memcpy(shifted + 1, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        uint32_t n = quant_block_weights(types[i]);
        quant_dequant(types[i], bytes, a, n);
        quant_dequant(types[i], shifted + 1, b, n);
        ck_assert(memcmp(a, b, n * sizeof(float)) == 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quant");
    TCase *t = tcase_create("quant");
    tcase_add_test(t, every_f16_survives_a_round_trip);
    tcase_add_test(t, rounding_to_f16_goes_to_the_nearest_and_to_even_on_a_tie);
    tcase_add_test(t, the_table_answers_for_every_number);
    tcase_add_test(t, blocks_need_no_alignment);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
