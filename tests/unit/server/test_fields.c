/* server/fields: every row of fields.def is visited with good, wrong and null values. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/api/fields.h"
#include "base/base_test.h"
#include "tests/unit/run_suite.h"

static const struct json_limits limits = {.depth = 64, .n_nodes = 1 << 16};

struct reading {
    struct params p;
    struct buf ignored;
    struct err e;
    enum status status;
    struct json_doc *doc;
};

static struct reading read_text(enum api api, const char *text)
{
    struct reading r = {0};
    params_init(&r.p);
    ck_assert_msg(json_parse(str_of(text), limits, &r.doc, &r.e) == OK, "%s: %s", text, r.e.text);
    r.status = params_read(&r.p, api, json_root(r.doc), &r.ignored, &r.e);
    return r;
}

static void release(struct reading *r)
{
    json_free(r->doc);
    buf_release(&r->ignored);
}

static enum status read_one(const struct field *f, const char *value, struct err *e)
{
    char text[256];
    snprintf(text, sizeof(text), "{\"%s\":%s}", f->name, value);
    struct reading r = read_text((enum api)f->apis[0], text);
    ck_assert_msg((r.ignored.len > 0) == (f->type == FIELD_TYPE_HARMLESS), "%s", f->name);
    *e = r.e;
    enum status status = r.status;
    release(&r);
    return status;
}

static void expect_refused(const struct field *f, const char *value)
{
    struct err e;
    enum status status = read_one(f, value, &e);
    ck_assert_msg(status == ERR_INVALID, "%s: %s gives %s", f->name, value, status_name(status));
    ck_assert_msg(strncmp(e.param, f->name, strlen(f->name)) == 0, "%s: param \"%s\"", f->name,
                  e.param);
    ck_assert_msg(strstr(e.text, f->name) != NULL, "%s: \"%s\"", f->name, e.text);
}

static void expect_taken(const struct field *f, const char *value)
{
    struct err e;
    ck_assert_msg(read_one(f, value, &e) == OK, "%s: %s: %s", f->name, value, e.text);
}

START_TEST(null_is_the_same_as_absent_for_every_field)
{
    const struct field *f = &fields[_i];
    char text[128];
    for (const char *api = f->apis; *api; api++) {
        struct params fresh;
        params_init(&fresh);
        snprintf(text, sizeof(text), "{\"%s\":null}", f->name);
        struct reading r = read_text((enum api) * api, text);
        ck_assert(r.status == OK && r.ignored.len == 0);
        ck_assert(memcmp(&r.p, &fresh, sizeof(fresh)) == 0);
        release(&r);
    }
}
END_TEST

static void expect_options(const struct field *f)
{
    expect_taken(f, "{}");
    expect_refused(f, "[]");
    expect_refused(f, "{\"include_usage\":1}");
    expect_refused(f, "{\"continuous_usage_stats\":\"true\"}");
}

/* R12: the largest number that a client knows stands for "no limit". */
static void expect_cut(const struct field *f)
{
    static const char *const wrong[] = {"\"1\"", "true", "[]", "{}", "1.5", "-1e400", "-1e18"};
    static const char *const large[] = {"9007199254740993",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551616",
                                        "1e18",
                                        "1e19",
                                        "1e400",
                                        "1e99999999999999999999",
                                        "99999999999999999999999999.0"};
    char text[64];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_refused(f, wrong[i]);
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        snprintf(text, sizeof(text), "{\"%s\":%s}", f->name, large[i]);
        struct reading r = read_text((enum api)f->apis[0], text);
        ck_assert_msg(r.status == OK, "%s", text);
        ck_assert_msg(*(int64_t *)((char *)&r.p + f->offset) == (int64_t)f->max, "%s", text);
        release(&r);
    }
    snprintf(text, sizeof(text), "%.0f", f->min);
    expect_taken(f, text);
    snprintf(text, sizeof(text), "%.1f", f->max);
    expect_taken(f, text);
    snprintf(text, sizeof(text), "%.0f", f->min - 1);
    expect_refused(f, text);
}

/* G077, G092: no coercion of types, no value outside its bounds, integral floats are integers. */
START_TEST(every_field_refuses_wrong_types_and_takes_its_bounds)
{
    const struct field *f = &fields[_i];
    static const char *const odd[] = {"\"1\"", "true", "[]", "{}", "1.5", "1e400", "-1e400"};
    char text[64];
    switch (f->type) {
    case FIELD_TYPE_BOOL:
        expect_taken(f, "true");
        expect_taken(f, "false");
        expect_refused(f, "\"true\"");
        expect_refused(f, "1");
        expect_refused(f, "[]");
        break;
    case FIELD_TYPE_INT:
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
            expect_refused(f, odd[i]);
        snprintf(text, sizeof(text), "%.0f", f->min);
        expect_taken(f, text);
        snprintf(text, sizeof(text), "%.1f", f->max);
        expect_taken(f, text);
        snprintf(text, sizeof(text), "%.0f", f->min - 1);
        expect_refused(f, text);
        snprintf(text, sizeof(text), "%.0f", f->max + 2);
        expect_refused(f, text);
        break;
    case FIELD_TYPE_CUT:
        expect_cut(f);
        break;
    case FIELD_TYPE_NUM:
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
            if (strcmp(odd[i], "1.5") != 0)
                expect_refused(f, odd[i]);
        snprintf(text, sizeof(text), "%g", f->min);
        expect_taken(f, text);
        snprintf(text, sizeof(text), "%g", f->max);
        expect_taken(f, text);
        snprintf(text, sizeof(text), "%g", f->min - 0.001);
        expect_refused(f, text);
        snprintf(text, sizeof(text), "%g", f->max + 0.001);
        expect_refused(f, text);
        break;
    case FIELD_TYPE_STR:
        expect_taken(f, "\"m\"");
        expect_refused(f, "1");
        expect_refused(f, "\"a\\u0000b\"");
        break;
    case FIELD_TYPE_SEED:
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
            expect_refused(f, odd[i]);
        break;
    case FIELD_TYPE_OPTIONS:
        expect_options(f);
        break;
    case FIELD_TYPE_JSON:
    case FIELD_TYPE_HARMLESS:
        expect_taken(f, "{\"a\":[1]}");
        break;
    case FIELD_TYPE_LATER:
        break;
    }
}
END_TEST

static void expect_number(const struct field *f, double value)
{
    bool stated = f->def[0] >= '0' && f->def[0] <= '9';
    ck_assert_msg(value == (stated ? strtod(f->def, NULL) : 0), "%s: %g", f->name, value);
}

START_TEST(a_field_that_is_absent_has_the_default_of_its_row)
{
    const struct field *f = &fields[_i];
    struct params p;
    params_init(&p);
    const void *member = (const char *)&p + f->offset;
    if (f->type == FIELD_TYPE_BOOL)
        ck_assert_msg(*(const bool *)member == (strncmp(f->def, "true", 4) == 0), "%s", f->name);
    else if (f->type == FIELD_TYPE_NUM)
        expect_number(f, *(const double *)member);
    else if (f->type == FIELD_TYPE_INT || f->type == FIELD_TYPE_CUT)
        expect_number(f, (double)*(const int64_t *)member);
    ck_assert(!p.given[_i]);
}
END_TEST

START_TEST(fields_of_later_issues_are_refused_by_name_unless_neutral)
{
    const struct field *f = &fields[_i];
    struct err e;
    if (f->type != FIELD_TYPE_LATER)
        return;
    ck_assert_int_eq(read_one(f, "{\"x\":\"y\"}", &e), ERR_UNSUPPORTED);
    ck_assert_str_eq(e.param, f->name);
    ck_assert_str_eq(e.code, "unsupported_parameter");
    for (const char *p = f->def; *p;) {
        char neutral[64];
        size_t n = strcspn(p, "|");
        snprintf(neutral, sizeof(neutral), "%.*s", (int)n, p);
        expect_taken(f, neutral);
        p += n + (p[n] == '|');
    }
}
END_TEST

struct seed_case {
    const char *digits;
    bool ok;
    uint64_t value;
};
static const struct seed_case seeds[] = {
    {"0", true, 0},
    {"-1", true, UINT64_MAX},
    {"9007199254740993", true, 9007199254740993u},
    {"18446744073709551615", true, UINT64_MAX},
    {"-9223372036854775808", true, 1ull << 63},
    {"42.0", true, 42},
    {"1e3", true, 1000},
    {"18446744073709551616", false, 0},
    {"-9223372036854775809", false, 0},
    {"0.5", false, 0},
};

START_TEST(seeds_are_read_from_their_digits)
{
    char text[64];
    snprintf(text, sizeof(text), "{\"seed\":%s}", seeds[_i].digits);
    struct reading r = read_text(API_CHAT, text);
    ck_assert_msg((r.status == OK) == seeds[_i].ok, "%s", text);
    if (seeds[_i].ok)
        ck_assert_uint_eq(r.p.seed, seeds[_i].value);
    release(&r);
}
END_TEST

START_TEST(unknown_fields_are_listed_safely_and_bounded)
{
    struct reading r =
        read_text(API_CHAT, "{\"x_new\":1,\"STREAM\":true,\"a\\r\\nSet-Cookie: b\":2}");
    ck_assert_int_eq(r.status, OK);
    ck_assert(!r.p.stream);
    ck_assert_str_eq(r.ignored.ptr, "x_new, STREAM, a??Set-Cookie:?b");
    release(&r);

    struct buf many = {0};
    buf_add_char(&many, '{');
    for (int i = 0; i < 500; i++)
        buf_printf(&many, "%s\"unknown_field_%d\":1", i ? "," : "", i);
    buf_add_char(&many, '}');
    r = read_text(API_CHAT, many.ptr);
    ck_assert_uint_le(r.ignored.len, IGNORED_MAX_BYTES);
    release(&r);
    buf_release(&many);
}
END_TEST

START_TEST(a_field_of_another_endpoint_is_unknown)
{
    struct reading r = read_text(API_CHAT, "{\"echo\":true,\"prompt\":\"x\"}");
    ck_assert_int_eq(r.status, OK);
    ck_assert_str_eq(r.ignored.ptr, "echo, prompt");
    release(&r);
}
END_TEST

START_TEST(a_body_that_is_no_object_is_refused)
{
    struct reading r = read_text(API_CHAT, "[1]");
    ck_assert_int_eq(r.status, ERR_INVALID);
    release(&r);
}
END_TEST

START_TEST(no_two_rows_of_an_endpoint_have_one_name)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(fields[i].name, fields[k].name) == 0)
                ck_assert_msg(!strpbrk(fields[i].apis, fields[k].apis), "%s", fields[i].name);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/fields");
    TCase *t = tcase_create("fields");
    tcase_add_loop_test(t, null_is_the_same_as_absent_for_every_field, 0, N_FIELDS);
    tcase_add_loop_test(t, every_field_refuses_wrong_types_and_takes_its_bounds, 0, N_FIELDS);
    tcase_add_loop_test(t, a_field_that_is_absent_has_the_default_of_its_row, 0, N_FIELDS);
    tcase_add_loop_test(t, fields_of_later_issues_are_refused_by_name_unless_neutral, 0, N_FIELDS);
    tcase_add_loop_test(t, seeds_are_read_from_their_digits, 0, sizeof(seeds) / sizeof(seeds[0]));
    tcase_add_test(t, unknown_fields_are_listed_safely_and_bounded);
    tcase_add_test(t, a_field_of_another_endpoint_is_unknown);
    tcase_add_test(t, a_body_that_is_no_object_is_refused);
    tcase_add_test(t, no_two_rows_of_an_endpoint_have_one_name);
    suite_add_tcase(s, t);
    return run_suite(s);
}
