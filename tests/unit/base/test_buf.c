/* base/buf and base/str. */
#include <check.h>
#include <string.h>

#include "base/buf.h"
#include "base/base_test.h"
#include "base/mem.h"
#include "tests/unit/run_suite.h"

START_TEST(a_zeroed_buf_is_an_empty_string)
{
    struct buf b = {0};
    ck_assert(str_eq_c(buf_str(&b), ""));
    buf_clear(&b);
    buf_add(&b, NULL, 0);
    ck_assert_str_eq(b.ptr, "");
    buf_release(&b);
    ck_assert_ptr_null(b.ptr);
    char *taken = buf_take(&b);
    ck_assert_str_eq(taken, "");
    mem_free(taken);
}
END_TEST

START_TEST(bytes_are_kept_with_their_length_and_a_nul_behind)
{
    struct buf b = {0};
    buf_add_str(&b, STR_LIT("a\0b"));
    buf_add_char(&b, 0);
    buf_add_c(&b, "cd");
    ck_assert_uint_eq(b.len, 6);
    ck_assert(memcmp(b.ptr, "a\0b\0cd", 7) == 0);
    buf_release(&b);
}
END_TEST

START_TEST(formatted_text_of_any_length_fits)
{
    struct buf b = {0};
    char word[5000];
    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = 0;
    buf_printf(&b, "%d %s|", 42, word);
    buf_printf(&b, "%s", "");
    ck_assert_uint_eq(b.len, 3 + sizeof(word) - 1 + 1);
    ck_assert(str_starts(buf_str(&b), STR_LIT("42 xxx")));
    ck_assert_int_eq(b.ptr[b.len - 1], '|');
    buf_release(&b);
}
END_TEST

START_TEST(clearing_keeps_the_memory_and_growth_is_amortised)
{
    struct buf b = {0};
    uint64_t before = mem_thread_allocs();
    for (int i = 0; i < 100000; i++)
        buf_add_char(&b, 'x');
    ck_assert_uint_le(mem_thread_allocs() - before, 20);
    before = mem_thread_allocs();
    buf_clear(&b);
    for (int i = 0; i < 100000; i++)
        buf_add_char(&b, 'y');
    ck_assert_uint_eq(mem_thread_allocs(), before);
    buf_release(&b);
}
END_TEST

START_TEST(strings_compare_by_bytes_and_length)
{
    ck_assert(str_eq(STR_LIT("a\0b"), STR_LIT("a\0b")));
    ck_assert(!str_eq(STR_LIT("a\0b"), STR_LIT("a\0c")));
    ck_assert(!str_eq(STR_LIT("a"), STR_LIT("a\0")));
    ck_assert(str_eq((struct str){NULL, 0}, STR_LIT("")));
    ck_assert(str_eq_c(str_of(NULL), ""));
    ck_assert(str_starts(STR_LIT("abc"), STR_LIT("ab")) && str_starts(STR_LIT("a"), STR_LIT("")));
    ck_assert(!str_starts(STR_LIT("ab"), STR_LIT("abc")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/buf");
    TCase *t = tcase_create("buf");
    tcase_add_test(t, a_zeroed_buf_is_an_empty_string);
    tcase_add_test(t, bytes_are_kept_with_their_length_and_a_nul_behind);
    tcase_add_test(t, formatted_text_of_any_length_fits);
    tcase_add_test(t, clearing_keeps_the_memory_and_growth_is_amortised);
    tcase_add_test(t, strings_compare_by_bytes_and_length);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
