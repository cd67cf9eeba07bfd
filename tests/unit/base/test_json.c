/* base/json: what is accepted, what is refused and where, exact numbers, strings with their lengths,
 * and that the writer's output reads back. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/base_test.h"
#include "base/json_int.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tests/json_oracle.h"
#include "tests/unit/run_suite.h"

static const struct json_limits limits = {.depth = 64, .n_nodes = 1 << 20};

#define S(literal) STR_LIT(literal)

static const struct str accepted[] = {
    S("0"),
    S("-0"),
    S("1"),
    S("-1"),
    S("10"),
    S("1.5"),
    S("-0.0"),
    S("1e5"),
    S("1E5"),
    S("1e+5"),
    S("1e-5"),
    S("1.25e-10"),
    S("1e400"),
    S("-1e400"),
    S("1e-400"),
    S("true"),
    S("false"),
    S("null"),
    S("\"\""),
    S("\"a\""),
    S("[]"),
    S("{}"),
    S("[1]"),
    S("[1,2]"),
    S("[ 1 , 2 ]"),
    S("{\"a\":1}"),
    S(" \t\r\n1 \t\r\n"),
    S("{\"a\":{\"b\":[{}]}}"),
    S("[[],[],{}]"),
    S("\"\\u0000\""),
    S("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""),
    S("\"\\u00e9\""),
    S("\"\\uD83D\\uDE00\""),
    S("\"\\ud83d\\ude00\""),
    S("\"\xC3\xA9\""),
    S("\"\xE2\x80\xA8\""),
    S("\"\x7F\""),
    S("\"\xF0\x9F\x98\x80\""),
    S("\"\xF4\x8F\xBF\xBF\""),
    S("\xEF\xBB\xBF{}"),
    S("[\"\",\"\"]"),
    S("{\"\":0}"),
    S("{\"a\":1,\"A\":2}"),
    S("[1,\"a\",null,true,false,{},[]]"),
    S("{\"a\":{\"x\":1},\"b\":{\"x\":1}}"),
    S("[{\"k\":1},{\"k\":1}]"),
    S("\"\\uFFFF\""),
    S("123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"),
    S("[0.000000000000000000000000000000000000000000000000000000000000000000000000000001, 2]"),
    S("[-1234567890123456789012345678901234567890123456789012345678901234567890e-3]"),
    S("[\"1234567890123456789012345678901234567890123456789012345678901234567890\\\"\"]"),
};

struct refusal {
    struct str text;
    const char *says; /* part of the error text */
};

static const struct refusal refused[] = {
    {S(""), "no value"},
    {S("  "), "no value"},
    {S("\xEF\xBB\xBF"), "no value"},
    {S("\xEF\xBB\xBF\xEF\xBB\xBF{}"), "byte 0"},
    {S("01"), "leading zero at byte 0"},
    {S("-01"), "leading zero"},
    {S("[1.]"), "after its point at byte 1"},
    {S("[.5]"), "at byte 1"},
    {S("[+1]"), "at byte 1"},
    {S("[-]"), "minus without a digit"},
    {S("[1e]"), "in its exponent"},
    {S("[1e+]"), "in its exponent"},
    {S("[1.e1]"), "after its point"},
    {S("[0x10]"), "byte 2"},
    {S("[1 2]"), "byte 3"},
    {S("[NaN]"), "byte 1"},
    {S("[Infinity]"), "byte 1"},
    {S("[-Infinity]"), "minus without a digit"},
    {S("[tru]"), "byte 1"},
    {S("[True]"), "byte 1"},
    {S("[nul"), "byte 1"},
    {S("[truex]"), "byte 5"},
    {S("[1,]"), "byte"},
    {S("[,1]"), "byte"},
    {S("[1,,2]"), "byte"},
    {S("["), "byte"},
    {S("[1"), "byte"},
    {S("[1}"), "byte"},
    {S("]"), "closing bracket"},
    {S("{"), "byte"},
    {S("{\"a\"}"), "byte"},
    {S("{\"a\\u0000\":1}"), "U+0000 in the name at byte 1"},
    {S("[{\"b\":{\"\\u0000\":1}}]"), "U+0000 in the name"},
    {S("{\"a\":}"), "byte"},
    {S("{\"a\":1,}"), "byte"},
    {S("{\"a\" 1}"), "byte"},
    {S("{a:1}"), "byte 1"},
    {S("{'a':1}"), "byte 1"},
    {S("{1:1}"), "byte"},
    {S("{\"a\":1]"), "byte"},
    {S("{\"a\":1:2}"), "byte"},
    {S("{,}"), "byte"},
    {S(":"), "unexpected character at byte 0"},
    {S("{\"a\":1}xyz"), "byte 7"},
    {S("1 2"), "byte 2"},
    {S("{}{}"), "byte 2"},
    {S("12-1234567890123456789012345678901234567890123456789012345678901234567890"), "byte 2"},
    {S("[12.5e3-1234567890123456789012345678901234567890123456789012345678901234567890]"),
     "byte 7"},
    {S("{} /* c */"), "byte 3"},
    {S("// c\n{}"), "byte 0"},
    {S("\""), "string without an end at byte 0"},
    {S("\"a"), "string without an end"},
    {S("[\"a\\\"]"), "string without an end"},
    {S("\"\\x41\""), "unknown escape at byte 1"},
    {S("\"\\u12\""), "four hex digits at byte 1"},
    {S("\"\\u12G4\""), "four hex digits"},
    {S("\"\\"), "unknown escape"},
    {S("\"\\u"), "four hex digits"},
    {S("\"\\uD83D\""), "lone surrogate at byte 1"},
    {S("\"\\uDE00\""), "lone surrogate at byte 1"},
    {S("\"\\uD83Dx\""), "lone surrogate"},
    {S("\"\\uD83D\\n\""), "lone surrogate"},
    {S("\"\\uD83D\\uD83D\""), "lone surrogate"},
    {S("\"\\uD83D\\u0041\""), "lone surrogate"},
    {S("\"\\uDE00\\uD83D\""), "lone surrogate"},
    {S("\"\\uD83D\\u"), "lone surrogate"},
    {S("{\"\\uD83D\":1}"), "lone surrogate at byte 2"},
    {S("\"a\nb\""), "control character in a string at byte 2"},
    {S("\"\t\""), "control character"},
    {S("\"a\0b\""), "nul byte at byte 2"},
    {S("{}\0"), "nul byte at byte 2"},
    {S("\0"), "nul byte at byte 0"},
    {S("[1,\0 2]"), "nul byte"},
    {S("\f1"), "byte 0"},
    {S("[1\v]"), "byte 2"},
    {S("\"\x80\""), "invalid utf-8 at byte 1"},
    {S("\"\xC0\x80\""), "invalid utf-8"},
    {S("\"\xC3\""), "invalid utf-8"},
    {S("\"\xED\xA0\x80\""), "invalid utf-8"},
    {S("\"\xE0\x80\x80\""), "invalid utf-8"},
    {S("\"\xF4\x90\x80\x80\""), "invalid utf-8"},
    {S("\"\xFF\""), "invalid utf-8"},
    {S("\xFF"), "invalid utf-8 at byte 0"},
    {S("[\xC2\xA0]"), "byte 1"},
    {S("{\"a\":1,\"a\":2}"), "duplicate key \"a\""},
    {S("{\"a\":1,\"\\u0061\":2}"), "duplicate key \"a\""},
    {S("[{\"x\":{\"k\\n\":1,\"b\":2,\"k\\n\":3}}]"), "duplicate key \"k\\n\""},
    {S("{\"\":1,\"\":2}"), "duplicate key \"\""},
};

static struct json_doc *parse(struct str text)
{
    struct json_doc *doc;
    struct err e = {0};
    ck_assert_msg(json_parse(text, limits, &doc, &e) == OK, "%.*s: %s", (int)text.len, text.ptr,
                  e.text);
    return doc;
}

START_TEST(valid_texts_are_accepted)
{
    struct json_doc *doc = parse(accepted[_i]);
    oracle_compare(accepted[_i], doc, NULL);
    json_free(doc);
}
END_TEST

START_TEST(invalid_texts_are_refused_with_reason_and_place)
{
    const struct refusal *r = &refused[_i];
    struct json_doc *doc = (void *)1;
    struct err e = {.param = "x"};
    ck_assert_int_eq(json_parse(r->text, limits, &doc, &e), ERR_INVALID);
    ck_assert_ptr_null(doc);
    ck_assert_msg(strstr(e.text, r->says), "\"%s\" lacks \"%s\"", e.text, r->says);
    ck_assert_str_eq(e.param, "");
    ck_assert(utf8_valid(str_of(e.text)));
    oracle_compare(r->text, NULL, e.text);
}
END_TEST

/* Random texts of few tokens: right and wrong ones in every place, read as cJSON reads them. */
START_TEST(random_texts_are_read_as_cjson_reads_them)
{
    static const char *const token[] = {"[",    "]",    "{",      "}",           ",",
                                        ":",    "1",    "-2.5e3", "\"a\"",       "\"b\\n\"",
                                        "true", "null", " ",      "\"\\u00e9\"", "\"c\":"};
    uint64_t state = 88172645463325252u;
    int n_read = 0;
    for (int i = 0; i < 300000; i++) {
        char text[128] = "";
        size_t len = 0;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (uint64_t rest = state, n = 1 + rest % 11; n > 0; n--, rest = rest / 15 + (n << 40)) {
            const char *next = token[rest % 15];
            memcpy(text + len, next, strlen(next) + 1);
            len += strlen(next);
        }
        struct err e = {0};
        struct json_doc *doc;
        n_read += json_parse((struct str){text, len}, limits, &doc, &e) == OK;
        oracle_compare((struct str){text, len}, doc, e.text);
        json_free(doc);
    }
    ck_assert_int_gt(n_read, 3000);
}
END_TEST

/* Every cut of a text is refused, and reads no byte behind its end (ASan sees the exact copy). */
START_TEST(every_truncation_is_refused)
{
    const char *text = "{\"a\":[1.5e-3,\"x\\uD83D\\uDE00\\n\xC3\xA9\",true,null,{\"b\":-0}]}";
    for (size_t n = 0; n < strlen(text); n++) {
        char *exact = mem_alloc(n ? n : 1);
        memcpy(exact, text, n);
        struct json_doc *doc;
        ck_assert_int_eq(json_parse((struct str){exact, n}, limits, &doc, NULL), ERR_INVALID);
        mem_free(exact);
    }
}
END_TEST

struct integer_row {
    const char *text;
    bool i64_ok;
    int64_t i64;
    bool u64_ok;
    uint64_t u64;
};

static const struct integer_row integers[] = {
    {"0", true, 0, true, 0},
    {"-0", true, 0, true, 0},
    {"1", true, 1, true, 1},
    {"-1", true, -1, false, 0},
    {"9007199254740993", true, 9007199254740993, true, 9007199254740993u},
    {"9223372036854775807", true, INT64_MAX, true, INT64_MAX},
    {"9223372036854775808", false, 0, true, 9223372036854775808u},
    {"-9223372036854775808", true, INT64_MIN, false, 0},
    {"-9223372036854775809", false, 0, false, 0},
    {"18446744073709551615", false, 0, true, UINT64_MAX},
    {"18446744073709551616", false, 0, false, 0},
    {"-18446744073709551615", false, 0, false, 0},
    {"100000000000000000000", false, 0, false, 0},
    {"5.0", true, 5, true, 5},
    {"5.000", true, 5, true, 5},
    {"0.0", true, 0, true, 0},
    {"-0.0", true, 0, true, 0},
    {"0e999999999999", true, 0, true, 0},
    {"1e3", true, 1000, true, 1000},
    {"1E+3", true, 1000, true, 1000},
    {"-1e3", true, -1000, false, 0},
    {"1.5e1", true, 15, true, 15},
    {"12345e-2", false, 0, false, 0},
    {"1200e-2", true, 12, true, 12},
    {"0.001e3", true, 1, true, 1},
    {"1.5", false, 0, false, 0},
    {"1e-05", false, 0, false, 0},
    {"0.5", false, 0, false, 0},
    {"1e18", true, 1000000000000000000, true, 1000000000000000000u},
    {"1e19", false, 0, true, 10000000000000000000u},
    {"1e20", false, 0, false, 0},
    {"1e999999999999999999999999", false, 0, false, 0},
    {"1e-999999999999999999999999", false, 0, false, 0},
    {"1844674407370955161.5e1", false, 0, true, UINT64_MAX},
    {"1.8446744073709551615e19", false, 0, true, UINT64_MAX},
    {"1.8446744073709551616e19", false, 0, false, 0},
    {"9007199254740993.0", true, 9007199254740993, true, 9007199254740993u},
    {"9007199254740992.5", false, 0, false, 0},
};

START_TEST(integers_are_read_exactly_from_their_digits)
{
    const struct integer_row *r = &integers[_i];
    struct json_doc *doc = parse(str_of(r->text));
    const struct json *v = json_root(doc);
    int64_t i = 0;
    uint64_t u = 0;
    ck_assert_msg(json_i64(v, INT64_MIN, INT64_MAX, &i) == r->i64_ok, "%s", r->text);
    ck_assert_int_eq(i, r->i64);
    ck_assert_msg(json_u64(v, &u) == r->u64_ok, "%s", r->text);
    ck_assert_uint_eq(u, r->u64);
    json_free(doc);
}
END_TEST

START_TEST(integers_outside_the_given_range_are_refused)
{
    struct json_doc *doc = parse(S("[4,5,6,7,8,\"5\",true,null]"));
    static const bool ok[] = {false, true, true, true, false, false, false, false};
    const struct json *v = json_first(json_root(doc));
    for (size_t k = 0; v; v = json_next(v), k++) {
        int64_t i;
        ck_assert(json_i64(v, 5, 7, &i) == ok[k]);
    }
    json_free(doc);
}
END_TEST

START_TEST(doubles_are_read_to_the_nearest)
{
    struct json_doc *doc = parse(S("[0.1,-2.5e3,1e400,-1e400,5e-324]"));
    static const double wanted[] = {0.1, -2500, INFINITY, -INFINITY, 5e-324};
    const struct json *v = json_first(json_root(doc));
    for (size_t k = 0; v; v = json_next(v), k++)
        ck_assert(json_double(v) == wanted[k]);
    json_free(doc);
}
END_TEST

struct string_row {
    struct str text;
    struct str decoded;
};

static const struct string_row strings[] = {
    {S("\"\""), S("")},
    {S("\"abc\""), S("abc")},
    {S("\"a\\u0000b\""), S("a\0b")},
    {S("\"\\u0000\""), S("\0")},
    {S("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), S("\"\\/\b\f\n\r\t")},
    {S("\"\\u00E9\\u20AC\\uD83D\\uDE00\\u007f\""), S("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F")},
    {S("\"\xC3\xA9 \\n \xE2\x80\xA8\""), S("\xC3\xA9 \n \xE2\x80\xA8")},
    {S("\"\\uDBFF\\uDFFF\""), S("\xF4\x8F\xBF\xBF")},
};

START_TEST(strings_are_decoded_with_their_length)
{
    struct json_doc *doc = parse(strings[_i].text);
    ck_assert(str_eq(json_string(json_root(doc)), strings[_i].decoded));
    ck_assert(str_eq(json_raw(json_root(doc)), strings[_i].text));
    json_free(doc);
}
END_TEST

START_TEST(members_come_in_order_with_keys_and_raw_text)
{
    struct json_doc *doc = parse(S(" { \"a\" : [ 1, {\"x\": \"y\"} ] , \"\\u0062\" :null} "));
    const struct json *root = json_root(doc);
    ck_assert_int_eq(json_type(root), JSON_OBJECT);
    ck_assert_uint_eq(json_count(root), 2);
    const struct json *a = json_first(root);
    ck_assert(str_eq_c(json_key(a), "a"));
    ck_assert(str_eq_c(json_raw(a), "[ 1, {\"x\": \"y\"} ]"));
    const struct json *inner = json_next(json_first(a));
    ck_assert(str_eq_c(json_string(json_get(inner, "x")), "y"));
    ck_assert_ptr_null(json_next(inner));
    const struct json *b = json_next(a);
    ck_assert(str_eq_c(json_key(b), "b"));
    ck_assert(json_is(b, JSON_NULL));
    ck_assert_ptr_null(json_next(b));
    ck_assert_ptr_eq(json_get(root, "b"), b);
    ck_assert_ptr_null(json_get(root, "B"));
    ck_assert_ptr_null(json_get(a, "x"));
    ck_assert(!json_is(NULL, JSON_NULL));
    json_free(doc);
}
END_TEST

static void nested(struct buf *out, int depth)
{
    for (int i = 0; i < depth; i++)
        buf_add_c(out, i % 2 ? "{\"k\":" : "[");
    buf_add_c(out, "1");
    for (int i = depth - 1; i >= 0; i--)
        buf_add_char(out, i % 2 ? '}' : ']');
}

START_TEST(depth_at_the_limit_passes_and_one_more_is_refused)
{
    struct buf text = {0};
    struct json_doc *doc;
    struct err e;
    nested(&text, 64);
    json_free(parse(buf_str(&text)));
    buf_clear(&text);
    nested(&text, 65);
    ck_assert_int_eq(json_parse(buf_str(&text), limits, &doc, &e), ERR_INVALID);
    ck_assert_msg(strstr(e.text, "limit of 64"), "%s", e.text);
    buf_release(&text);
}
END_TEST

START_TEST(a_megabyte_of_brackets_is_refused_without_memory)
{
    struct buf text = {0};
    struct json_doc *doc;
    for (int i = 0; i < 1 << 20; i++)
        buf_add_char(&text, '[');
    ck_assert_int_eq(json_parse(buf_str(&text), limits, &doc, NULL), ERR_INVALID);
    buf_release(&text);
}
END_TEST

START_TEST(values_are_counted_exactly_and_bounded)
{
    struct buf text = {0};
    struct json_doc *doc;
    struct err e;
    buf_add_c(&text, "{\"k\":[0"); /* 3 values: a key is none */
    struct json_limits few = {.depth = 4, .n_nodes = 1000};
    for (int i = 3; i < 1000; i++)
        buf_add_c(&text, ",0");
    buf_add_c(&text, "]}");
    ck_assert_int_eq(json_parse(buf_str(&text), few, &doc, &e), OK);
    json_free(doc);
    few.n_nodes = 999;
    ck_assert_int_eq(json_parse(buf_str(&text), few, &doc, &e), ERR_INVALID);
    ck_assert_msg(strstr(e.text, "limit of 999 values"), "%s", e.text);
    buf_release(&text);
}
END_TEST

/* 1 MiB of [0,0,... makes half a million values: under a limit of 64 Ki no more memory is taken than
 * the text and twice that many values need. */
START_TEST(memory_for_values_ends_at_their_limit)
{
    struct buf text = {0};
    buf_add_char(&text, '[');
    while (text.len < (1 << 20) - 2)
        buf_add_c(&text, "0,");
    buf_add_c(&text, "0]");
    struct json_limits few = {.depth = 64, .n_nodes = 65536};
    struct json_doc *doc;
    uint64_t before = mem_thread_bytes();
    ck_assert_int_eq(json_parse(buf_str(&text), few, &doc, NULL), ERR_INVALID);
    ck_assert_uint_le(mem_thread_bytes() - before,
                      text.len + 2 * 65536 * sizeof(struct json) + 4096);
    ck_assert_int_eq(json_parse(buf_str(&text), limits, &doc, NULL), OK);
    ck_assert_uint_eq(json_count(json_root(doc)), text.len / 2);
    json_free(doc);
    buf_release(&text);
}
END_TEST

/* Quadratic work on 60,000 keys would be 1.8e9 comparisons. */
START_TEST(many_keys_are_checked_and_a_late_duplicate_found)
{
    struct buf text = {0};
    struct json_doc *doc;
    struct err e;
    buf_add_char(&text, '{');
    for (int i = 0; i < 60000; i++)
        buf_printf(&text, "%s\"key%d\":%d", i ? "," : "", i, i);
    size_t n_open = text.len;
    buf_add_char(&text, '}');
    ck_assert_int_eq(json_parse(buf_str(&text), limits, &doc, &e), OK);
    json_free(doc);
    text.len = n_open;
    buf_add_c(&text, ",\"key17\":0}");
    ck_assert_int_eq(json_parse(buf_str(&text), limits, &doc, &e), ERR_INVALID);
    ck_assert_msg(strstr(e.text, "duplicate key \"key17\""), "%s", e.text);
    buf_release(&text);
}
END_TEST

START_TEST(a_long_duplicate_key_is_cut_between_characters)
{
    struct buf text = {0};
    struct json_doc *doc;
    struct err e;
    for (int i = 0; i < 2; i++) {
        buf_add_c(&text, i ? ",\"x" : "{\"x");
        for (int k = 0; k < 500; k++)
            buf_add_c(&text, "\xE2\x82\xAC");
        buf_add_c(&text, "\":1");
    }
    buf_add_char(&text, '}');
    ck_assert_int_eq(json_parse(buf_str(&text), limits, &doc, &e), ERR_INVALID);
    ck_assert(utf8_valid(str_of(e.text)));
    buf_release(&text);
}
END_TEST

/* Every allocation that may fail does once: the error says so, nothing leaks (ASan). */
START_TEST(want_of_memory_is_an_error)
{
    struct str text = S("{\"a\":[1,2,{\"b\":\"c\\n\"}],\"d\":null,\"e\":1,\"f\":1,\"g\":1,\"h\":1,"
                        "\"i\":1,\"j\":1,\"k\":1}");
    for (uint64_t n = 1;; n++) {
        struct json_doc *doc;
        struct err e = {0};
        mem_fail_after(n);
        enum status st = json_parse(text, limits, &doc, &e);
        bool used_up = st == OK;
        mem_fail_after(0);
        if (used_up) {
            json_free(doc);
            ck_assert_uint_gt(n, 5);
            return;
        }
        ck_assert_int_eq(st, ERR_NO_MEMORY);
        ck_assert_msg(strstr(e.text, "out of memory"), "%s", e.text);
    }
}
END_TEST

static const struct string_row escapes[] = {
    {S(""), S("\"\"")},
    {S("plain"), S("\"plain\"")},
    {S("\"\\/"), S("\"\\\"\\\\/\"")},
    {S("\b\f\n\r\t"), S("\"\\b\\f\\n\\r\\t\"")},
    {S("a\0b"), S("\"a\\u0000b\"")},
    {S("\x01\x1f\x7f"), S("\"\\u0001\\u001f\x7f\"")},
    {S("\xC3\xA9\xE2\x80\xA7\xF0\x9F\x98\x80"), S("\"\xC3\xA9\xE2\x80\xA7\xF0\x9F\x98\x80\"")},
    {S("\xC2\x84\xC2\x85\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA"),
     S("\"\xC2\x84\\u0085\\u2028\\u2029\xE2\x80\xAA\"")},
    {S("a\xFFz"), S("\"a\xEF\xBF\xBDz\"")},
    {S("\xE2\x82"), S("\"\xEF\xBF\xBD\"")},
    {S("\xF0\x9F\x98"
       "A"),
     S("\"\xEF\xBF\xBD"
       "A\"")},
    {S("\xED\xA0\x80"), S("\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"")},
};

START_TEST(written_strings_are_escaped_and_valid)
{
    struct buf out = {0};
    json_add_string(&out, escapes[_i].text);
    ck_assert_msg(str_eq(buf_str(&out), escapes[_i].decoded), "%s", out.ptr);
    struct json_doc *doc = parse(buf_str(&out));
    json_free(doc);
    buf_release(&out);
}
END_TEST

START_TEST(every_code_point_survives_writing_and_reading)
{
    struct buf text = {0}, out = {0};
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char bytes[4];
        buf_add(&text, bytes, (size_t)utf8_encode(c, bytes));
    }
    json_add_string(&out, buf_str(&text));
    struct json_doc *doc = parse(buf_str(&out));
    ck_assert(str_eq(json_string(json_root(doc)), buf_str(&text)));
    json_free(doc);
    buf_release(&text);
    buf_release(&out);
}
END_TEST

struct double_row {
    double x;
    const char *text;
};

static const struct double_row doubles[] = {
    {0, "0"},
    {-0.0, "-0"},
    {1, "1"},
    {0.1, "0.1"},
    {-2.5, "-2.5"},
    {1e21, "1e+21"},
    {1.0 / 3, "0.3333333333333333"},
    {2.0 / 3, "0.6666666666666666"},
    {0.1 + 0.2, "0.30000000000000004"},
    {5e-324, "5e-324"},
    {1.7976931348623157e308, "1.7976931348623157e+308"},
    {INFINITY, "null"},
    {-INFINITY, "null"},
    {NAN, "null"},
};

START_TEST(doubles_are_written_short)
{
    struct buf out = {0};
    json_add_double(&out, doubles[_i].x);
    ck_assert_str_eq(out.ptr, doubles[_i].text);
    buf_release(&out);
}
END_TEST

START_TEST(doubles_read_back_to_the_bit)
{
    uint64_t state = 88172645463325252u;
    struct buf out = {0};
    for (int i = 0; i < 200000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        double x;
        memcpy(&x, &state, sizeof(x));
        if (!isfinite(x))
            continue;
        buf_clear(&out);
        json_add_double(&out, x);
        double back = strtod(out.ptr, NULL);
        ck_assert_msg(memcmp(&x, &back, sizeof(x)) == 0, "%s", out.ptr);
    }
    buf_release(&out);
}
END_TEST

START_TEST(a_copied_value_is_compact_and_equal)
{
    struct json_doc *doc =
        parse(S(" { \"a b\" : [ 1 , \"x \\\" y\\\\\" , { } ] , \"c\" : -1.50 } "));
    struct buf out = {0};
    json_add_value(&out, json_root(doc));
    ck_assert_str_eq(out.ptr, "{\"a b\":[1,\"x \\\" y\\\\\",{}],\"c\":-1.50}");
    buf_release(&out);
    json_free(doc);
}
END_TEST

#define ROWS(table) (int)(sizeof(table) / sizeof((table)[0]))

int main(void)
{
    Suite *suite = suite_create("base/json");
    TCase *t = tcase_create("json");
    tcase_add_loop_test(t, valid_texts_are_accepted, 0, ROWS(accepted));
    tcase_add_loop_test(t, invalid_texts_are_refused_with_reason_and_place, 0, ROWS(refused));
    tcase_add_test(t, random_texts_are_read_as_cjson_reads_them);
    tcase_add_test(t, every_truncation_is_refused);
    tcase_add_loop_test(t, integers_are_read_exactly_from_their_digits, 0, ROWS(integers));
    tcase_add_test(t, integers_outside_the_given_range_are_refused);
    tcase_add_test(t, doubles_are_read_to_the_nearest);
    tcase_add_loop_test(t, strings_are_decoded_with_their_length, 0, ROWS(strings));
    tcase_add_test(t, members_come_in_order_with_keys_and_raw_text);
    tcase_add_test(t, depth_at_the_limit_passes_and_one_more_is_refused);
    tcase_add_test(t, a_megabyte_of_brackets_is_refused_without_memory);
    tcase_add_test(t, values_are_counted_exactly_and_bounded);
    tcase_add_test(t, memory_for_values_ends_at_their_limit);
    tcase_add_test(t, many_keys_are_checked_and_a_late_duplicate_found);
    tcase_add_test(t, a_long_duplicate_key_is_cut_between_characters);
    tcase_add_test(t, want_of_memory_is_an_error);
    tcase_add_loop_test(t, written_strings_are_escaped_and_valid, 0, ROWS(escapes));
    tcase_add_test(t, every_code_point_survives_writing_and_reading);
    tcase_add_loop_test(t, doubles_are_written_short, 0, ROWS(doubles));
    tcase_add_test(t, doubles_read_back_to_the_bit);
    tcase_add_test(t, a_copied_value_is_compact_and_equal);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
