/* base/status: names, formatted errors, prefixes; long text is cut, never overrun. */
#include <check.h>
#include <string.h>

#include "base/status.h"
#include "base/base_test.h"
#include "base/utf8.h"
#include "tests/unit/run_suite.h"

START_TEST(every_status_has_a_name_and_a_text)
{
#define X(name, value, text)                                                                       \
    ck_assert_str_eq(status_name(name), #name);                                                    \
    ck_assert_str_eq(status_text(name), text);                                                     \
    ck_assert_int_lt(name, 0);
    STATUS_TABLE(X)
#undef X
    ck_assert_str_eq(status_name(OK), "OK");
    ck_assert_str_eq(status_name((enum status) - 999), "ERR_UNKNOWN");
}
END_TEST

START_TEST(an_error_carries_text_field_and_code)
{
    struct err e;
    ck_assert_int_eq(err_set_field(&e, ERR_TOO_LARGE, "n", "too_many", "n %d over %d", 20, 16),
                     ERR_TOO_LARGE);
    ck_assert_str_eq(e.text, "n 20 over 16");
    ck_assert_str_eq(e.param, "n");
    ck_assert_str_eq(e.code, "too_many");
    ck_assert_int_eq(e.status, ERR_TOO_LARGE);
    err_prefix(&e, "line %d", 3);
    ck_assert_str_eq(e.text, "line 3: n 20 over 16");
    ck_assert_int_eq(err_set(&e, ERR_IO, "x"), ERR_IO);
    ck_assert_str_eq(e.param, "");
    ck_assert_str_eq(e.code, "");
}
END_TEST

START_TEST(without_a_place_for_the_text_the_status_still_comes_back)
{
    ck_assert_int_eq(err_set(NULL, ERR_IO, "x"), ERR_IO);
    ck_assert_int_eq(err_set_field(NULL, ERR_IO, "a", "b", "x"), ERR_IO);
    err_prefix(NULL, "x");
}
END_TEST

START_TEST(text_that_is_too_long_is_cut_between_characters)
{
    struct err e;
    char text[3 * ERR_TEXT_CAP + 2] = "x";
    while (strlen(text) < 3 * ERR_TEXT_CAP - 3)
        strncat(text, "\xE2\x82\xAC", sizeof(text) - strlen(text) - 1);
    for (int shift = 0; shift < 3; shift++) {
        err_set_field(&e, ERR_INVALID, text, text, "%.*s%s", shift, "ab", text);
        ck_assert_uint_ge(strlen(e.text), ERR_TEXT_CAP - 4);
        ck_assert(utf8_valid(str_of(e.text)));
        ck_assert(utf8_valid(str_of(e.param)));
        ck_assert(utf8_valid(str_of(e.code)));
        err_prefix(&e, "more%.*s", shift, "ab");
        ck_assert(utf8_valid(str_of(e.text)));
    }
}
END_TEST

START_TEST(bytes_that_are_no_text_are_replaced)
{
    struct err e;
    err_set(&e, ERR_IO, "file 'a\xFF\xC3z'");
    ck_assert_str_eq(e.text, "file 'a??z'");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/status");
    TCase *t = tcase_create("status");
    tcase_add_test(t, every_status_has_a_name_and_a_text);
    tcase_add_test(t, an_error_carries_text_field_and_code);
    tcase_add_test(t, without_a_place_for_the_text_the_status_still_comes_back);
    tcase_add_test(t, text_that_is_too_long_is_cut_between_characters);
    tcase_add_test(t, bytes_that_are_no_text_are_replaced);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
