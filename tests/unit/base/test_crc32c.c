/* base/crc32c: published check values, both ways equal at every length and alignment, pieces chain. */
#include <check.h>
#include <string.h>

#include "base/crc32c.h"
#include "tests/unit/run_suite.h"

static void expect_both(const void *p, size_t n, uint32_t crc)
{
    ck_assert_uint_eq(crc32c(0, p, n), crc);
    ck_assert_uint_eq(crc32c_plain(0, p, n), crc);
}

/* RFC 3720, appendix B.4, and the catalogue's check value of "123456789". */
START_TEST(published_vectors_come_out)
{
    uint8_t p[32];
    expect_both("", 0, 0);
    expect_both("123456789", 9, 0xE3069283u);
    memset(p, 0, sizeof(p));
    expect_both(p, sizeof(p), 0x8A9136AAu);
    memset(p, 0xff, sizeof(p));
    expect_both(p, sizeof(p), 0x62A8AB43u);
    for (int i = 0; i < 32; i++)
        p[i] = (uint8_t)i;
    expect_both(p, sizeof(p), 0x46DD794Eu);
    for (int i = 0; i < 32; i++)
        p[i] = (uint8_t)(31 - i);
    expect_both(p, sizeof(p), 0x113FDB5Cu);
}
END_TEST

/* The definition: one bit after the other. */
static uint32_t by_bits(const uint8_t *p, size_t n)
{
    uint32_t state = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        state ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? 0x82F63B78u : 0);
    }
    return ~state;
}

START_TEST(every_length_and_alignment_equals_the_bitwise_definition_in_one_piece_or_two)
{
    uint8_t p[96];
    for (size_t i = 0; i < sizeof(p); i++)
        p[i] = (uint8_t)(i * 37 + 11);
    for (size_t start = 0; start < 9; start++) {
        for (size_t n = 0; start + n <= sizeof(p); n++) {
            uint32_t crc = by_bits(p + start, n);
            size_t cut = n / 3;
            EXPECT(crc32c(0, p + start, n) == crc);
            EXPECT(crc32c_plain(0, p + start, n) == crc);
            EXPECT(crc32c(crc32c(0, p + start, cut), p + start + cut, n - cut) == crc);
            EXPECT(crc32c_plain(crc32c_plain(0, p + start, cut), p + start + cut, n - cut) == crc);
        }
    }
}
END_TEST

START_TEST(each_flipped_bit_changes_the_sum)
{
    uint8_t p[64] = {1, 2, 3};
    uint32_t sound = crc32c(0, p, sizeof(p));
    for (size_t bit = 0; bit < 8 * sizeof(p); bit++) {
        p[bit / 8] ^= (uint8_t)(1 << bit % 8);
        EXPECT(crc32c(0, p, sizeof(p)) != sound);
        p[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("crc32c");
    TCase *t = tcase_create("crc32c");
    tcase_add_test(t, published_vectors_come_out);
    tcase_add_test(t, every_length_and_alignment_equals_the_bitwise_definition_in_one_piece_or_two);
    tcase_add_test(t, each_flipped_bit_changes_the_sum);
    suite_add_tcase(s, t);
    return run_suite(s);
}
