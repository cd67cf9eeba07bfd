/* base/size.h. */
#include <check.h>

#include "base/size.h"
#include "tests/unit/run_suite.h"

static const struct {
    uint64_t n;
    const char *shown, *option; /* option: with room for it */
} rows[] = {
    {0, "0 B", "0"},
    {1, "1 B", "1"},
    {1023, "1023 B", "1KiB"},
    {1024, "1.00 KiB", "1KiB"},
    {24 << 20, "24.00 MiB", "24MiB"},
    {(24 << 20) + 1, "24.00 MiB", "25MiB"},
    {1048575, "1.00 MiB", "1MiB"},
    {12079595520, "11.25 GiB", "12GiB"},
    {88473600, "84.38 MiB", "85MiB"},
    {1ull << 30, "1.00 GiB", "1GiB"},
    {(1ull << 30) + 1, "1.00 GiB", "1025MiB"},
    {5ull << 40, "5.00 TiB", "5TiB"},
    {UINT64_MAX, "16.00 EiB", "16777216TiB"},
};

START_TEST(sizes_are_shown_and_written_as_people_do)
{
    ck_assert_str_eq(size_shown(rows[_i].n).text, rows[_i].shown);
    if (rows[_i].n < UINT64_MAX)
        ck_assert_str_eq(size_option(rows[_i].n, UINT64_MAX / 2).text, rows[_i].option);
}
END_TEST

START_TEST(an_option_never_passes_the_most)
{
    ck_assert_str_eq(size_option(12079595520, 12079595520).text, "11520MiB");
    ck_assert_str_eq(size_option(12079595520, 12ull << 30).text, "12GiB");
    ck_assert_str_eq(size_option(1000001, 1000001).text, "1000001");
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("size");
    tcase_add_loop_test(t, sizes_are_shown_and_written_as_people_do, 0,
                        sizeof(rows) / sizeof(rows[0]));
    tcase_add_test(t, an_option_never_passes_the_most);
    Suite *suite = suite_create("base/size");
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
