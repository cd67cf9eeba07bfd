/* The generated tables are well formed. That they hold the right classes: test_tokenizer_unicode.py. */
#include <check.h>

#include "engine/text/unicode.h"
#include "engine/text/vocab.h"
#include "tests/unit/run_suite.h"

static uint8_t category(uint32_t c)
{
    for (unsigned i = 0; i < uni_categories_n; i++)
        if (c >= uni_categories[i].first && c <= uni_categories[i].last)
            return uni_categories[i].category;
    return 0;
}

static void expect_ascending(const struct uni_range *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        EXPECT(r[i].first <= r[i].last && r[i].last <= 0x10ffff);
        EXPECT(i == 0 || r[i - 1].last < r[i].first);
        EXPECT(r[i].last < 0xd800 || r[i].first > 0xdfff);
    }
}

START_TEST(ranges_ascend_and_do_not_meet_surrogates)
{
    expect_ascending(uni_categories, uni_categories_n);
    expect_ascending(uni_spaces, uni_spaces_n);
    expect_ascending(uni_late_digits, uni_late_digits_n);
}
END_TEST

START_TEST(well_known_characters_have_their_categories)
{
    ck_assert_int_eq(category('A'), UNI_LU);
    ck_assert_int_eq(category('z'), UNI_LL);
    ck_assert_int_eq(category('7'), UNI_ND);
    ck_assert_int_eq(category('_'), UNI_PC);
    ck_assert_int_eq(category('+'), UNI_SM);
    ck_assert_int_eq(category(0), UNI_CC);
    ck_assert_int_eq(category(0x4e2d), UNI_LO);
    ck_assert_int_eq(category(0x0301), UNI_MN);
    ck_assert_int_eq(category(0x180e), UNI_CF);
    ck_assert_int_eq(category(0x1f600), UNI_SO);
    ck_assert_int_eq(category(0x10ffff), 0);
}
END_TEST

START_TEST(the_byte_alphabet_is_a_bijection)
{
    bool seen[256] = {0};
    for (uint32_t c = 0; c < 0x200; c++) {
        int b = char_byte(c);
        if (b < 0)
            continue;
        EXPECT(!seen[b] && byte_char((uint8_t)b) == c);
        seen[b] = true;
    }
    for (int b = 0; b < 256; b++)
        EXPECT(seen[b] && char_byte(byte_char((uint8_t)b)) == b);
    ck_assert_uint_eq(byte_char(' '), 0x120);
    ck_assert_uint_eq(byte_char('\n'), 0x10a);
    ck_assert_uint_eq(byte_char(0xad), 0x143);
    ck_assert_int_eq(char_byte(0x144), -1);
    ck_assert_int_eq(char_byte(0x110000), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unicode");
    TCase *c = tcase_create("all");
    tcase_add_test(c, ranges_ascend_and_do_not_meet_surrogates);
    tcase_add_test(c, well_known_characters_have_their_categories);
    tcase_add_test(c, the_byte_alphabet_is_a_bijection);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
