/* engine/text/detok: deltas add up to the whole, are valid UTF-8, and never allocate. */
#include <check.h>
#include <stdlib.h>

#include "tests/unit/engine/tok_fixture.h"
#include "base/base_test.h"
#include "tests/unit/run_suite.h"

static struct fixture fx;

static void teardown(void)
{
    fx_release(&fx);
}

/* Pushes ids one by one; every delta must be valid by itself. */
static void push_all(const int32_t *id, uint32_t n, bool skip, struct buf *all)
{
    static char out[8192];
    struct detok d;
    EXPECT(detok_bound(fx.t) <= sizeof out);
    detok_init(&d, fx.t, skip);
    uint64_t allocs = mem_thread_allocs();
    uint32_t lens = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = detok_push(&d, id[i], out, sizeof out);
        EXPECT(len <= detok_bound(fx.t) && utf8_valid((struct str){out, len}));
        EXPECT(d.n_held <= 3);
        lens += len;
        uint64_t before = mem_thread_allocs();
        EXPECT(before == allocs);
        buf_add(all, out, len);
        allocs = mem_thread_allocs();
    }
    uint32_t len = detok_flush(&d, out, sizeof out);
    EXPECT(utf8_valid((struct str){out, len}));
    buf_add(all, out, len);
    EXPECT(all->len == lens + len);
}

/* The bytes of s cut into tokens of 1..4 bytes as seed says; tokens of several bytes are made first. */
static void expect_whole(const int32_t *id, uint32_t n, struct str want)
{
    struct buf steps = {0}, whole = {0};
    struct err e;
    push_all(id, n, false, &steps);
    EXPECT(tokenizer_decode(fx.t, id, n, false, &whole, &e) == OK);
    EXPECT(str_eq(buf_str(&steps), want));
    EXPECT(str_eq(buf_str(&whole), want));
    buf_release(&steps);
    buf_release(&whole);
}

static uint32_t code_point_of(int i)
{
    static const uint32_t edges[] = {0,      0x7f,   0x80,   0x7ff,   0x800,   0xd7ff,
                                     0xe000, 0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff};
    if (i < 12)
        return edges[i];
    static const uint32_t tops[] = {0x80, 0x800, 0xd800, 0x110000};
    uint32_t c = (uint32_t)rand() % tops[i % 4];
    return c >= 0xd800 && c < 0xe000 ? c - 0x800 : c;
}

/* Every way to cut a code point's bytes into tokens, for neighbours too: all compositions of a text
 * of 200 code points into pieces of 1..4 bytes that a seed picks, and every fixed size. */
START_TEST(every_split_of_200_code_points_gives_the_text_back)
{
    struct buf text = {0};
    srand(11);
    for (int i = 0; i < 200; i++) {
        char c[4];
        int n = utf8_encode(code_point_of(i), c);
        buf_add(&text, c, (size_t)n);
    }
    /* Tokens: every run of 1..4 bytes of the text, as raw user-defined tokens. */
    fx_text(&fx, "model", "gpt2");
    fx_text(&fx, "pre", "gpt-2");
    for (size_t at = 0; at < text.len; at++)
        for (size_t len = 1; len <= 4; len++) {
            struct str s = {text.ptr + at, at + len <= text.len ? len : text.len - at};
            struct buf spelled = {0};
            for (size_t k = 0; k < s.len; k++) {
                char c[4];
                int n = utf8_encode(byte_char((uint8_t)s.ptr[k]), c);
                buf_add(&spelled, c, (size_t)n);
            }
            fx_token_bytes(&fx, buf_str(&spelled), TOKEN_NORMAL, 0);
            buf_release(&spelled);
        }
    fx_load(&fx, true);
    int32_t id[1024];
    for (int round = 0; round < 1000; round++) {
        uint32_t n = 0;
        for (size_t at = 0; at < text.len;) {
            size_t len = round < 4 ? (size_t)round + 1 : 1 + (size_t)rand() % 4;
            id[n++] = (int32_t)(at * 4 + len - 1);
            at += len;
        }
        expect_whole(id, n, buf_str(&text));
    }
    /* Each code point alone and with its neighbours, cut in every way. */
    for (size_t at = 0; at + 8 <= text.len; at++) {
        for (int cuts = 0; cuts < 128; cuts++) {
            uint32_t n = 0;
            size_t from = at, longest = 0;
            for (size_t i = 1; i <= 8; i++)
                if (i == 8 || cuts >> (i - 1) & 1) {
                    id[n++] = (int32_t)(from * 4 + (at + i - from) - 1);
                    longest = at + i - from > longest ? at + i - from : longest;
                    from = at + i;
                }
            if (longest > 4)
                continue;
            struct buf want = {0};
            utf8_add_lossy(&want, (struct str){text.ptr + at, 8});
            expect_whole(id, n, buf_str(&want));
            buf_release(&want);
        }
    }
    buf_release(&text);
}
END_TEST

START_TEST(random_bytes_come_out_as_the_lossy_whole)
{
    fx_bpe(&fx, "gpt-2");
    srand(5);
    static const uint8_t likely[] = {0x41, 0x80, 0xbf, 0xc2, 0xc0, 0xe0, 0xed, 0xa0, 0x9f,
                                     0xef, 0xf0, 0x90, 0x8f, 0xf4, 0xf5, 0xff, 0xe2, 0x82};
    for (int round = 0; round < 20000; round++) {
        int32_t id[12];
        char raw[12];
        uint32_t n = 1 + (uint32_t)rand() % 12;
        for (uint32_t i = 0; i < n; i++) {
            id[i] = round % 4 ? likely[(size_t)rand() % sizeof likely] : rand() % 256;
            raw[i] = (char)id[i];
        }
        struct buf want = {0};
        utf8_add_lossy(&want, (struct str){raw, n});
        expect_whole(id, n, buf_str(&want));
        buf_release(&want);
    }
}
END_TEST

START_TEST(an_ascii_token_is_never_held_back)
{
    fx_bpe(&fx, "gpt-2");
    struct detok d;
    char out[256];
    detok_init(&d, fx.t, false);
    ck_assert_uint_eq(detok_push(&d, 259, out, sizeof out), 5);
    ck_assert_mem_eq(out, "hello", 5);
    ck_assert_uint_eq(detok_push(&d, 0xe2, out, sizeof out), 0);
    ck_assert_uint_eq(detok_push(&d, 0x82, out, sizeof out), 0);
    ck_assert_uint_eq(detok_push(&d, 'x', out, sizeof out), 4);
    ck_assert_mem_eq(out, "\xef\xbf\xbdx", 4);
    ck_assert_uint_eq(detok_flush(&d, out, sizeof out), 0);
    ck_assert_uint_eq(detok_push(&d, 0xe2, out, sizeof out), 0);
    ck_assert_uint_eq(detok_flush(&d, out, sizeof out), 3);
    ck_assert_mem_eq(out, "\xef\xbf\xbd", 3);
}
END_TEST

START_TEST(control_tokens_show_or_not_and_never_break_a_code_point_when_hidden)
{
    fx_bpe(&fx, "gpt-2");
    const int32_t id[] = {256, 263, 0xe2, 262, 0x82, 0xac, 264};
    struct buf out = {0}, whole = {0};
    struct err e;
    push_all(id, 7, true, &out);
    ck_assert(str_eq_c(buf_str(&out), "he\xe2\x82\xac<br>"));
    ck_assert_int_eq(tokenizer_decode(fx.t, id, 7, true, &whole, &e), OK);
    ck_assert(str_eq(buf_str(&whole), buf_str(&out)));
    buf_clear(&out);
    push_all(id, 2, false, &out);
    ck_assert(str_eq_c(buf_str(&out), "he<|im_end|>"));
    buf_release(&out);
    buf_release(&whole);
}
END_TEST

START_TEST(the_space_put_in_front_is_taken_off_again)
{
    fx_spm(&fx, true);
    const char *texts[] = {"ab",   " ab",      "  ab",   "",          "\n",        "a b",
                           " ",    "ab</s>ab", "</s>",   "ab</s> ab", "<s><s> ab", "\xe2\x82\xac",
                           "z  z", "</s>  ab", "a  </s>"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (int parse = 0; parse < 2; parse++) {
            struct tokens ids = {0};
            fx_encode(&fx, str_of(texts[i]), (struct encode_options){.parse_special = parse}, &ids);
            expect_whole(ids.id, ids.n, str_of(texts[i]));
            tokens_release(&ids);
        }
}
END_TEST

/* Text that goes on behind a prompt keeps its space: the caller says so. */
START_TEST(a_continuation_keeps_its_leading_space)
{
    fx_spm(&fx, true);
    struct detok d;
    char out[256];
    detok_init(&d, fx.t, false);
    ck_assert_uint_eq(detok_push(&d, 262, out, sizeof out), 2);
    detok_init(&d, fx.t, false);
    d.at_start = false;
    ck_assert_uint_eq(detok_push(&d, 262, out, sizeof out), 3);
    ck_assert_mem_eq(out, " ab", 3);
}
END_TEST

START_TEST(without_the_rule_nothing_is_taken_off)
{
    fx_spm(&fx, false);
    const int32_t id[] = {262, 2, 266};
    struct buf out = {0};
    push_all(id, 3, false, &out);
    ck_assert(str_eq_c(buf_str(&out), " ab</s> "));
    buf_release(&out);
}
END_TEST

START_TEST(a_token_outside_the_vocabulary_is_refused)
{
    fx_bpe(&fx, "gpt-2");
    const int32_t id[] = {1, 265};
    struct buf out = {0};
    struct err e;
    ck_assert_int_eq(tokenizer_decode(fx.t, id, 2, false, &out, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "token 265 is not in the vocabulary of 265 tokens");
    ck_assert_uint_eq(out.len, 0);
    buf_release(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("detok");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, NULL, teardown);
    tcase_add_test(c, every_split_of_200_code_points_gives_the_text_back);
    tcase_add_test(c, random_bytes_come_out_as_the_lossy_whole);
    tcase_add_test(c, an_ascii_token_is_never_held_back);
    tcase_add_test(c, control_tokens_show_or_not_and_never_break_a_code_point_when_hidden);
    tcase_add_test(c, the_space_put_in_front_is_taken_off_again);
    tcase_add_test(c, a_continuation_keeps_its_leading_space);
    tcase_add_test(c, without_the_rule_nothing_is_taken_off);
    tcase_add_test(c, a_token_outside_the_vocabulary_is_refused);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
