/* base/clock: real time moves forward, fake time moves only when set. */
#include <check.h>

#include "base/clock.h"
#include "tests/unit/run_suite.h"

START_TEST(real_time_never_goes_back)
{
    uint64_t last = clock_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_ns();
        EXPECT(now >= last);
        last = now;
    }
    ck_assert_uint_gt(last, 0);
    ck_assert_int_gt(clock_unix_s(), 1600000000);
}
END_TEST

START_TEST(fake_time_stands_until_it_is_moved)
{
    clock_fake(true, 5 * NS_PER_S);
    ck_assert_uint_eq(clock_ns(), 5 * NS_PER_S);
    ck_assert_uint_eq(clock_ns(), 5 * NS_PER_S);
    clock_fake_advance(3 * NS_PER_MS);
    ck_assert_uint_eq(clock_ns(), 5003 * NS_PER_MS);
    clock_fake(false, 0);
    ck_assert_uint_ne(clock_ns(), 0);
}
END_TEST

START_TEST(of_two_times_none_is_later_than_any)
{
    ck_assert_uint_eq(ns_earlier(0, 0), 0);
    ck_assert_uint_eq(ns_earlier(5, 0), 5);
    ck_assert_uint_eq(ns_earlier(0, 5), 5);
    ck_assert_uint_eq(ns_earlier(4, 5), 4);
    ck_assert_uint_eq(ns_earlier(5, 4), 4);
}
END_TEST

/* Check would kill a test after 4 s, on a busy machine a right one. */
START_TEST(no_unit_test_has_a_time_limit)
{
    const char *limit = getenv("CK_DEFAULT_TIMEOUT");
    ck_assert_ptr_nonnull(limit);
    ck_assert_str_eq(limit, "0");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/clock");
    TCase *t = tcase_create("clock");
    tcase_add_test(t, no_unit_test_has_a_time_limit);
    tcase_add_test(t, real_time_never_goes_back);
    tcase_add_test(t, fake_time_stands_until_it_is_moved);
    tcase_add_test(t, of_two_times_none_is_later_than_any);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
