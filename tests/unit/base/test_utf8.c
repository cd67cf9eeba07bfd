/* base/utf8 against a second, naive decoder and WHATWG's replacement rule. */
#include <check.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tests/unit/run_suite.h"

/* Decodes by value ranges instead of byte ranges. 0 when malformed. */
static int naive_decode(const uint8_t *p, size_t n, uint32_t *out)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int len = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    if (len == 0 || (size_t)len > n)
        return 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7F >> len);
    for (int i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *out = c;
    return len;
}

START_TEST(every_code_point_round_trips)
{
    for (uint32_t c = 0; c <= 0x110000; c++) {
        char bytes[4];
        uint32_t back;
        int n = utf8_encode(c, bytes);
        if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
            EXPECT(n == 0);
            continue;
        }
        EXPECT(utf8_decode((struct str){bytes, (size_t)n}, &back) == n);
        EXPECT(back == c);
        for (int cut = 1; cut < n; cut++) {
            EXPECT(utf8_decode((struct str){bytes, (size_t)cut}, &back) == 0);
            EXPECT(utf8_complete_len((struct str){bytes, (size_t)cut}) == 0);
        }
        EXPECT(utf8_complete_len((struct str){bytes, (size_t)n}) == (size_t)n);
    }
}
END_TEST

START_TEST(every_four_byte_string_decodes_as_the_naive_decoder_says)
{
    /* The bytes at which the rules of well-formedness change, and their neighbours. */
    static const uint8_t edge[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                   0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                   0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF};
    enum { N = sizeof(edge) };
    for (uint32_t i = 0; i < N * N * N * N; i++) {
        uint8_t p[4] = {edge[i % N], edge[i / N % N], edge[i / N / N % N], edge[i / N / N / N]};
        uint32_t a = 0, b = 0;
        struct str s = {(char *)p, 4};
        int n = naive_decode(p, 4, &a);
        EXPECT(utf8_decode(s, &b) == n);
        EXPECT(a == b);
        EXPECT(n ? utf8_error_at(s) >= (size_t)n : utf8_error_at(s) == 0);
    }
}
END_TEST

struct row {
    struct str text;
    struct str lossy;
    size_t error_at;
    size_t complete;
};

#define S(literal) STR_LIT(literal)
#define R "\xEF\xBF\xBD"

static const struct row rows[] = {
    {S(""), S(""), 0, 0},
    {S("abc"), S("abc"), 3, 3},
    {S("a\0b"), S("a\0b"), 3, 3},
    {S("\xC3\xA9"), S("\xC3\xA9"), 2, 2},
    {S("a\xC3"), S("a" R), 1, 1},
    {S("\x80"), S(R), 0, 1},
    {S("\xBF\xBF"), S(R R), 0, 2},
    {S("\xC0\xAF"), S(R R), 0, 2},
    {S("\xE0\x80\xAF"), S(R R R), 0, 3},
    {S("\xE2\x82"), S(R), 0, 0},
    {S("\xE2\x82z"), S(R "z"), 0, 3},
    {S("\xE2"), S(R), 0, 0},
    {S("\xE2\xE2"), S(R R), 0, 1},
    {S("\xF0\x9F\x98"), S(R), 0, 0},
    {S("ok\xF0\x9F"), S("ok" R), 2, 2},
    {S("\xF0\x9F\x98\x80\xF0\x9F"), S("\xF0\x9F\x98\x80" R), 4, 4},
    {S("\xF0\x80\x80"), S(R R R), 0, 3},
    {S("\xED\xA0\x80"), S(R R R), 0, 3},
    {S("\xED\xA0"), S(R R), 0, 2},
    {S("\xED"), S(R), 0, 0},
    {S("\xF4\x90\x80\x80"), S(R R R R), 0, 4},
    {S("\xF4\x8F"), S(R), 0, 0},
    {S("\xF5"), S(R), 0, 1},
    {S("\xFF\xFE"), S(R R), 0, 2},
    /* The example of Unicode 15, table 3-8. */
    {S("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"), S("a" R R R "b" R "c" R R "d"), 1,
     13},
};

START_TEST(malformed_text_is_found_and_replaced_by_maximal_subparts)
{
    const struct row *r = &rows[_i];
    struct buf out = {0};
    utf8_add_lossy(&out, r->text);
    ck_assert_msg(str_eq(buf_str(&out), r->lossy), "row %d: %s", _i, out.ptr);
    ck_assert_uint_eq(utf8_error_at(r->text), r->error_at);
    ck_assert(utf8_valid(r->text) == (r->error_at == r->text.len));
    ck_assert(utf8_valid(buf_str(&out)));
    buf_release(&out);
}
END_TEST

START_TEST(only_an_unfinished_character_at_the_end_is_held_back)
{
    ck_assert_uint_eq(utf8_complete_len(rows[_i].text), rows[_i].complete);
}
END_TEST

/* Text handed out piece by piece equals the text replaced as a whole. */
START_TEST(pieces_cut_anywhere_give_the_same_text)
{
    struct str text = rows[sizeof(rows) / sizeof(rows[0]) - 1].text;
    struct buf whole = {0};
    utf8_add_lossy(&whole, text);
    for (size_t cut = 0; cut <= text.len; cut++) {
        struct buf out = {0};
        size_t n = utf8_complete_len((struct str){text.ptr, cut});
        utf8_add_lossy(&out, (struct str){text.ptr, n});
        utf8_add_lossy(&out, (struct str){text.ptr + n, text.len - n});
        ck_assert(str_eq(buf_str(&out), buf_str(&whole)));
        buf_release(&out);
    }
    buf_release(&whole);
}
END_TEST

int main(void)
{
    enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };
    Suite *suite = suite_create("base/utf8");
    TCase *t = tcase_create("utf8");
    tcase_add_test(t, every_code_point_round_trips);
    tcase_add_test(t, every_four_byte_string_decodes_as_the_naive_decoder_says);
    tcase_add_loop_test(t, malformed_text_is_found_and_replaced_by_maximal_subparts, 0, N_ROWS);
    tcase_add_loop_test(t, only_an_unfinished_character_at_the_end_is_held_back, 0, N_ROWS);
    tcase_add_test(t, pieces_cut_anywhere_give_the_same_text);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
