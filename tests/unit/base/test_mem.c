/* base/mem: counting, failing on demand, checked products. */
#include <check.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/base_test.h"
#include "tests/unit/run_suite.h"

START_TEST(every_allocation_is_counted)
{
    uint64_t before = mem_thread_allocs(), n_bytes = mem_thread_bytes();
    void *p = mem_alloc(10);
    p = mem_realloc(p, 20);
    mem_free(p);
    mem_free(mem_zalloc(0));
    mem_free(mem_try_alloc(1));
    mem_free(mem_try_zalloc(1));
    mem_free(mem_aligned(64, 1));
    mem_free(mem_strdup("x"));
    mem_free(NULL);
    ck_assert_uint_eq(mem_thread_allocs() - before, 7);
    ck_assert_uint_eq(mem_thread_bytes() - n_bytes, 10 + 20 + 0 + 1 + 1 + 1 + 2);
}
END_TEST

START_TEST(the_chosen_try_allocation_fails_and_only_that)
{
    mem_fail_after(2);
    void *first = mem_try_alloc(1);
    void *must = mem_alloc(1); /* not a try: does not count */
    void *second = mem_try_zalloc(1);
    void *third = mem_aligned(32, 1);
    ck_assert(first && must && !second && third);
    mem_free(first);
    mem_free(must);
    mem_free(third);
}
END_TEST

START_TEST(memory_is_zeroed_aligned_and_copied_with_a_nul)
{
    unsigned char *zero = mem_try_zalloc(1000);
    for (int i = 0; i < 1000; i++)
        EXPECT(zero[i] == 0);
    mem_free(zero);
    for (size_t alignment = 16; alignment <= 4096; alignment *= 2) {
        void *p = mem_aligned(alignment, 3);
        EXPECT((uintptr_t)p % alignment == 0);
        mem_free(p);
    }
    char *copy = mem_dup("a\0b", 3);
    ck_assert(memcmp(copy, "a\0b", 4) == 0);
    mem_free(copy);
    char *none = mem_dup(NULL, 0);
    ck_assert_str_eq(none, "");
    mem_free(none);
}
END_TEST

START_TEST(products_and_sums_are_checked)
{
    size_t x;
    ck_assert(mem_mul_ok(SIZE_MAX / 2, 2, &x) && x == SIZE_MAX - 1);
    ck_assert(!mem_mul_ok(SIZE_MAX / 2 + 1, 2, &x));
    ck_assert(mem_mul_ok(0, SIZE_MAX, &x) && x == 0);
    ck_assert(mem_add_ok(SIZE_MAX - 1, 1, &x) && x == SIZE_MAX);
    ck_assert(!mem_add_ok(SIZE_MAX, 1, &x));
    ck_assert_uint_eq(mem_mul(3, 4), 12);
    ck_assert_ptr_null(mem_aligned(64, SIZE_MAX));
}
END_TEST

START_TEST(an_overflowing_product_of_ours_is_a_bug)
{
    mem_mul(SIZE_MAX, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/mem");
    TCase *t = tcase_create("mem");
    tcase_add_test(t, every_allocation_is_counted);
    tcase_add_test(t, the_chosen_try_allocation_fails_and_only_that);
    tcase_add_test(t, memory_is_zeroed_aligned_and_copied_with_a_nul);
    tcase_add_test(t, products_and_sums_are_checked);
    tcase_add_test_raise_signal(t, an_overflowing_product_of_ours_is_a_bug, SIGABRT);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
