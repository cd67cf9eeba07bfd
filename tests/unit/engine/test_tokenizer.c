/* engine/text/tokenizer on small vocabularies: added tokens and trust, BOS and EOS, bounds, merge
 * order. Equality with other libraries on real vocabularies: test_tokenizer_hf.py. */
#include <check.h>

#include "base/thread.h"
#include "engine/text/tok_int.h"
#include "tests/unit/engine/tok_fixture.h"
#include "tests/unit/run_suite.h"

static struct fixture fx;

static void teardown(void)
{
    fx_release(&fx);
}

START_TEST(merges_run_in_rank_order_not_left_to_right)
{
    fx_bpe(&fx, "gpt-2");
    fx_expect(&fx, STR_LIT("hello"), (struct encode_options){0}, "259");
    fx_expect(&fx, STR_LIT("hell"), (struct encode_options){0}, "256 257");
    fx_expect(&fx, STR_LIT("lllo"), (struct encode_options){0}, "257 108 111");
    fx_expect(&fx, STR_LIT("aaa aaaa"), (struct encode_options){0}, "260 97 32 260 260");
    fx_expect(&fx, STR_LIT("hello he"), (struct encode_options){0}, "259 261");
}
END_TEST

START_TEST(control_tokens_come_from_text_only_when_parsed)
{
    fx_bpe(&fx, "gpt-2");
    struct str text = STR_LIT("he<|im_end|>he");
    fx_expect(&fx, text, (struct encode_options){.parse_special = true}, "256 263 256");
    struct tokens plain = {0};
    fx_encode(&fx, text, (struct encode_options){0}, &plain);
    ck_assert_uint_eq(plain.n, 12);
    for (uint32_t i = 0; i < plain.n; i++)
        ck_assert_int_ne(plain.id[i], 263);
    tokens_release(&plain);
}
END_TEST

START_TEST(user_defined_tokens_always_come_from_text)
{
    fx_bpe(&fx, "gpt-2");
    fx_expect(&fx, STR_LIT("he<br>he"), (struct encode_options){0}, "256 264 256");
    fx_expect(&fx, STR_LIT("<br><br>"), (struct encode_options){.parse_special = true}, "264 264");
}
END_TEST

START_TEST(control_tokens_count_only_wholly_inside_a_trusted_range)
{
    fx_bpe(&fx, "gpt-2");
    struct str text = STR_LIT("<|im_end|><|im_end|><|im_end|><br>");
    struct text_range second[] = {{10, 20}};
    struct text_range short_of_it[] = {{0, 9}, {11, 29}};
    struct text_range exact[] = {{0, 10}, {20, 30}};
    struct tokens got = {0};
    struct encode_options o = {.parse_special = true, .trusted = second, .n_trusted = 1};
    fx_encode(&fx, text, o, &got);
    ck_assert_uint_eq(got.n, 10 + 1 + 10 + 1);
    ck_assert_int_eq(got.id[10], 263);
    ck_assert_int_eq(got.id[21], 264);
    o = (struct encode_options){.parse_special = true, .trusted = short_of_it, .n_trusted = 2};
    fx_encode(&fx, text, o, &got);
    ck_assert_uint_eq(got.n, 30 + 1);
    o = (struct encode_options){.parse_special = true, .trusted = exact, .n_trusted = 2};
    fx_encode(&fx, text, o, &got);
    ck_assert_uint_eq(got.n, 1 + 10 + 1 + 1);
    ck_assert_int_eq(got.id[0], 263);
    ck_assert_int_eq(got.id[11], 263);
    o = (struct encode_options){.parse_special = true, .trusted = exact, .n_trusted = 0};
    fx_encode(&fx, text, o, &got);
    ck_assert_uint_eq(got.n, 31);
    tokens_release(&got);
}
END_TEST

/* Text that a user wrote right before a template's own marker must not swallow the marker. */
START_TEST(untrusted_text_cannot_hide_a_trusted_token)
{
    fx_text(&fx, "model", "gpt2");
    fx_text(&fx, "pre", "gpt-2");
    fx_byte_alphabet(&fx);
    fx_token(&fx, "<<<E>", TOKEN_CONTROL, 0); /* 256 */
    fx_token(&fx, "<E>", TOKEN_CONTROL, 0); /* 257 */
    fx_load(&fx, true);
    struct text_range trusted[] = {{2, 5}};
    struct encode_options o = {.parse_special = true, .trusted = trusted, .n_trusted = 1};
    fx_expect(&fx, STR_LIT("<<<E>"), o, "60 60 257");
    o.trusted = NULL;
    fx_expect(&fx, STR_LIT("<<<E>"), o, "256");
}
END_TEST

START_TEST(the_longest_added_token_wins_at_the_leftmost_place)
{
    fx_text(&fx, "model", "gpt2");
    fx_text(&fx, "pre", "gpt-2");
    fx_byte_alphabet(&fx);
    fx_token(&fx, "ab", TOKEN_CONTROL, 0); /* 256 */
    fx_token(&fx, "abcd", TOKEN_USER_DEFINED, 0); /* 257 */
    fx_token(&fx, "bcdef", TOKEN_CONTROL, 0); /* 258 */
    fx_load(&fx, true);
    struct encode_options all = {.parse_special = true};
    fx_expect(&fx, STR_LIT("abcdef"), all, "257 101 102");
    fx_expect(&fx, STR_LIT("abcef"), all, "256 99 101 102");
    fx_expect(&fx, STR_LIT("xbcdef"), all, "120 258");
    fx_expect(&fx, STR_LIT("abc"), (struct encode_options){0}, "97 98 99");
}
END_TEST

START_TEST(bos_is_never_doubled)
{
    fx_bpe(&fx, "llama-bpe"); /* this name adds BOS when the file says nothing */
    struct encode_options o = {.add_special = true, .parse_special = true};
    fx_expect(&fx, STR_LIT("he"), o, "262 256");
    fx_expect(&fx, STR_LIT(""), o, "262");
    fx_expect(&fx, STR_LIT("<|im_start|>he"), o, "262 256");
    fx_expect(&fx, STR_LIT("<|im_start|><|im_start|>"), o, "262 262");
    o.add_special = false;
    fx_expect(&fx, STR_LIT("he"), o, "256");
}
END_TEST

START_TEST(bos_already_in_out_is_no_reason_to_leave_it_out)
{
    fx_bpe(&fx, "llama-bpe");
    struct tokens out = {0};
    struct encode_options o = {.add_special = true};
    struct err e = {0};
    ck_assert_int_eq(tokenizer_encode(fx.t, STR_LIT("he"), &o, &out, &e), OK);
    ck_assert_int_eq(tokenizer_encode(fx.t, STR_LIT("he"), &o, &out, &e), OK);
    ck_assert_uint_eq(out.n, 4);
    ck_assert_int_eq(out.id[2], 262);
    tokens_release(&out);
}
END_TEST

START_TEST(more_tokens_than_allowed_stop_the_work)
{
    fx_bpe(&fx, "gpt-2");
    struct tokens out = {0};
    struct err e = {0};
    struct encode_options o = {.max_tokens = 3};
    ck_assert_int_eq(tokenizer_encode(fx.t, STR_LIT("xyz"), &o, &out, &e), OK);
    ck_assert_uint_eq(out.n, 3);
    ck_assert_int_eq(tokenizer_encode(fx.t, STR_LIT("xyz"), &o, &out, &e),
                     OK); /* counted per call */
    ck_assert_int_eq(tokenizer_encode(fx.t, STR_LIT("wxyz"), &o, &out, &e), ERR_CONTEXT_LENGTH);
    ck_assert_str_eq(e.text, "text has more than 3 tokens");
    tokens_release(&out);
}
END_TEST

START_TEST(nul_is_data)
{
    fx_bpe(&fx, "gpt-2");
    struct str text = {"a\0<br>\0", 7};
    fx_expect(&fx, text, (struct encode_options){0}, "97 0 264 0");
}
END_TEST

START_TEST(text_that_is_not_utf8_is_refused)
{
    fx_bpe(&fx, "gpt-2");
    struct tokens out = {0};
    struct err e = {0};
    struct encode_options o = {0};
    ck_assert_int_eq(tokenizer_encode(fx.t, STR_LIT("ab\xc3"), &o, &out, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "text is not valid utf-8 at byte 2");
    tokens_release(&out);
}
END_TEST

START_TEST(pieces_merge_by_score_and_other_characters_become_bytes)
{
    fx_spm(&fx, false);
    fx_expect(&fx, STR_LIT("abc"), (struct encode_options){0}, "261");
    fx_expect(&fx, STR_LIT("abbc"), (struct encode_options){0}, "259 260");
    fx_expect(&fx, STR_LIT(" abc"), (struct encode_options){0}, "266 261");
    fx_expect(&fx, STR_LIT("z\xc3\xa9"), (struct encode_options){0}, "125 198 172");
    fx_expect(&fx, STR_LIT("axyb"), (struct encode_options){0}, "263 267 264");
    fx_expect(&fx, STR_LIT("xb"), (struct encode_options){0}, "123 264");
    fx_expect(&fx, STR_LIT("a  b"), (struct encode_options){0}, "263 268 264");
}
END_TEST

START_TEST(each_fragment_gets_the_space_that_the_model_wants)
{
    fx_spm(&fx, true);
    struct encode_options o = {.parse_special = true};
    fx_expect(&fx, STR_LIT("ab"), o, "262");
    fx_expect(&fx, STR_LIT(" ab"), o, "266 262");
    fx_expect(&fx, STR_LIT(""), o, "");
    fx_expect(&fx, STR_LIT("ab</s>ab"), o, "262 2 262");
    fx_expect(&fx, STR_LIT("</s>"), o, "2");
    o.add_special = true;
    fx_expect(&fx, STR_LIT("ab"), o, "1 262");
    fx_expect(&fx, STR_LIT("<s>ab"), o, "1 262");
}
END_TEST

START_TEST(the_mark_of_a_space_in_text_is_a_space)
{
    fx_spm(&fx, false);
    fx_expect(&fx,
              STR_LIT("\xe2\x96\x81"
                      "ab"),
              (struct encode_options){0}, "262");
    fx_expect(&fx, STR_LIT("a\xe2\x96\x81 b"), (struct encode_options){0}, "263 268 264");
}
END_TEST

START_TEST(equal_scores_merge_from_the_left)
{
    fx_text(&fx, "model", "llama");
    fx_token(&fx, "<unk>", TOKEN_UNKNOWN, 0);
    fx_token(&fx, "a", TOKEN_NORMAL, -9); /* 1 */
    fx_token(&fx, "aa", TOKEN_NORMAL, -1); /* 2 */
    fx_token(&fx, "aaa", TOKEN_NORMAL, -1); /* 3 */
    fx_bool(&fx, "add_space_prefix", false);
    fx_load(&fx, false);
    fx_expect(&fx, STR_LIT("aaaa"), (struct encode_options){0}, "3 1");
    fx_expect(&fx, STR_LIT("aaaaa"), (struct encode_options){0}, "3 2");
}
END_TEST

START_TEST(without_byte_tokens_the_unknown_token_stands_for_a_character)
{
    fx_text(&fx, "model", "llama");
    fx_token(&fx, "<unk>", TOKEN_UNKNOWN, 0);
    fx_token(&fx, "a", TOKEN_NORMAL, -1);
    fx_u32(&fx, "unknown_token_id", 0);
    fx_bool(&fx, "add_space_prefix", false);
    fx_load(&fx, false);
    fx_expect(&fx,
              STR_LIT("a\xc3\xa9"
                      "a"),
              (struct encode_options){0}, "1 0 1");
}
END_TEST

/* A reference that does what the definition says, one merge at a time. */
static uint32_t naive_merge(const struct pair_map *pairs, uint32_t *sym, uint32_t n)
{
    for (;;) {
        uint32_t best = UINT32_MAX, at = 0, id = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            uint64_t key = (uint64_t)sym[i] << 32 | sym[i + 1];
            for (uint32_t s = 0; s <= pairs->mask; s++)
                if (pairs->slot[s].key == key && pairs->slot[s].rank < best) {
                    best = pairs->slot[s].rank;
                    at = i;
                    id = pairs->slot[s].id;
                }
        }
        if (best == UINT32_MAX)
            return n;
        sym[at] = id;
        memmove(sym + at + 1, sym + at + 2, (n - at - 2) * sizeof *sym);
        n--;
    }
}

START_TEST(long_and_short_pieces_merge_alike)
{
    struct pair_map pairs;
    struct merge_work w = {0};
    uint32_t seed = 1;
    for (int round = 0; round < 400; round++) {
        pair_map_init(&pairs, 24);
        for (uint32_t i = 0; i < 24; i++) {
            seed = seed * 1664525u + 1013904223u;
            /* Symbols 0..3 merge into 4..15; ranks repeat now and then. */
            pair_map_set(&pairs, seed >> 28, seed >> 24 & 15, i / (1 + round % 2), 4 + i % 12);
        }
        uint32_t n = 2 + (uint32_t)round % 80, want[96];
        merge_work_reserve(&w, n);
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            want[i] = w.sym[i] = seed >> 30;
        }
        uint32_t n_want = naive_merge(&pairs, want, n);
        uint32_t n_got = merge_run(&pairs, &w, n);
        ck_assert_uint_eq(n_got, n_want);
        ck_assert_mem_eq(w.sym, want, n_got * sizeof *want);
        pair_map_release(&pairs);
    }
    merge_work_release(&w);
}
END_TEST

START_TEST(stop_tokens_are_metadata_and_control_markers)
{
    fx_text(&fx, "model", "gpt2");
    fx_text(&fx, "pre", "gpt-2");
    fx_byte_alphabet(&fx);
    fx_token(&fx, "<|im_end|>", TOKEN_CONTROL, 0); /* 256 */
    fx_token(&fx, "</s>", TOKEN_NORMAL, 0); /* 257 */
    fx_token(&fx, "<|eot_id|>", TOKEN_USER_DEFINED, 0); /* 258 */
    fx_token(&fx, "<end_of_turn>", TOKEN_CONTROL, 0); /* 259 */
    fx_u32(&fx, "eos_token_id", 65);
    fx_u32(&fx, "eot_token_id", 66);
    fx_load(&fx, true);
    uint32_t n;
    const int32_t *stop = tokenizer_stop_tokens(fx.t, &n);
    ck_assert_uint_eq(n, 4);
    const int32_t want[] = {65, 66, 256, 259};
    ck_assert_mem_eq(stop, want, sizeof want);
    ck_assert(tokenizer_is_stop(fx.t, 66) && !tokenizer_is_stop(fx.t, 257));
}
END_TEST

START_TEST(what_is_missing_is_named)
{
    struct err e = {0};
    fx_text(&fx, "model", "gpt2");
    fx_byte_alphabet(&fx);
    ck_assert_int_eq(fx_try_load(&fx, false, &e), ERR_FORMAT);
    ck_assert_str_eq(e.text, "byte-level tokenizer: the file lacks tokenizer.ggml.merges and "
                             "tokenizer.ggml.pre");
}
END_TEST

static void encode_many(void *arg)
{
    const struct fixture *f = arg;
    struct tokens out = {0};
    struct encode_options o = {.parse_special = true};
    struct err e;
    for (int i = 0; i < 2000; i++) {
        out.n = 0;
        EXPECT(tokenizer_encode(f->t,
                                STR_LIT("hello <br>hell\n\n  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                        "<|im_end|>"),
                                &o, &out, &e) == OK);
        EXPECT(out.id[0] == 259 && out.id[out.n - 1] == 263);
    }
    tokens_release(&out);
}

START_TEST(threads_share_one_tokenizer)
{
    fx_bpe(&fx, "llama-bpe");
    struct thread threads[4] = {0};
    struct err e;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(thread_start(&threads[i], "encode", encode_many, &fx, &e), OK);
    for (int i = 0; i < 4; i++)
        thread_join(&threads[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, NULL, teardown);
    tcase_add_test(c, merges_run_in_rank_order_not_left_to_right);
    tcase_add_test(c, control_tokens_come_from_text_only_when_parsed);
    tcase_add_test(c, user_defined_tokens_always_come_from_text);
    tcase_add_test(c, control_tokens_count_only_wholly_inside_a_trusted_range);
    tcase_add_test(c, untrusted_text_cannot_hide_a_trusted_token);
    tcase_add_test(c, the_longest_added_token_wins_at_the_leftmost_place);
    tcase_add_test(c, bos_is_never_doubled);
    tcase_add_test(c, bos_already_in_out_is_no_reason_to_leave_it_out);
    tcase_add_test(c, more_tokens_than_allowed_stop_the_work);
    tcase_add_test(c, nul_is_data);
    tcase_add_test(c, text_that_is_not_utf8_is_refused);
    tcase_add_test(c, pieces_merge_by_score_and_other_characters_become_bytes);
    tcase_add_test(c, each_fragment_gets_the_space_that_the_model_wants);
    tcase_add_test(c, the_mark_of_a_space_in_text_is_a_space);
    tcase_add_test(c, equal_scores_merge_from_the_left);
    tcase_add_test(c, without_byte_tokens_the_unknown_token_stands_for_a_character);
    tcase_add_test(c, long_and_short_pieces_merge_alike);
    tcase_add_test(c, stop_tokens_are_metadata_and_control_markers);
    tcase_add_test(c, what_is_missing_is_named);
    tcase_add_test(c, threads_share_one_tokenizer);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
