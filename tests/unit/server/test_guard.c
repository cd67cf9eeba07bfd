/* server/guard: what two HTTP parsers could read in two ways is refused. */
#include <check.h>
#include <string.h>

#include "server/http/guard.h"
#include "tests/unit/run_suite.h"

struct framing {
    const char *version;
    const char *headers; /* name:value lines */
    bool ok;
    const char *says;
};

static const struct framing framings[] = {
    {"HTTP/1.1", "Host:a\n", true, ""},
    {"HTTP/1.0", "", true, ""},
    {"HTTP/1.1", "", false, "Host"},
    {"HTTP/1.1", "Host:a\nHost:b\n", false, "Host"},
    {"HTTP/1.1", "Host:a\nContent-Length:5\n", true, ""},
    {"HTTP/1.1", "Host:a\ncontent-length:5\nCONTENT-LENGTH:5\n", false, "2 Content-Length"},
    {"HTTP/1.1", "Host:a\nContent-Length:5\nTransfer-Encoding:chunked\n", false, "both"},
    {"HTTP/1.1", "Host:a\nTransfer-Encoding:chunked\n", true, ""},
    {"HTTP/1.1", "Host:a\nTransfer-Encoding:Chunked\n", true, ""},
    {"HTTP/1.1", "Host:a\nTransfer-Encoding:gzip, chunked\n", false, "other than chunked"},
    {"HTTP/1.1", "Host:a\nTransfer-Encoding:identity\n", false, "other than chunked"},
    {"HTTP/1.1", "Host:a\nTransfer-Encoding:chunked\nTransfer-Encoding:chunked\n", false, "2 Tra"},
    {"HTTP/1.0", "Host:a\nTransfer-Encoding:chunked\n", false, "HTTP/1.1"},
    {"HTTP/1.1", "Host:a\nContent-Length:-1\n", false, "decimal"},
    {"HTTP/1.1", "Host:a\nContent-Length:+1\n", false, "decimal"},
    {"HTTP/1.1", "Host:a\nContent-Length:1,1\n", false, "decimal"},
    {"HTTP/1.1", "Host:a\nContent-Length:\n", false, "decimal"},
    {"HTTP/1.1", "Host:a\nContent-Length:99999999999999999999\n", false, "decimal"},
    {"HTTP/1.1", "Host:a\nContent-Length :3\n", false, "character"},
    {"HTTP/1.1", "Host:a\nX\tY:3\n", false, "character"},
    {"HTTP/1.1", "Host:a\nX\x01:3\n", false, "character"},
    {"HTTP/1.1", "Host:a\nX:a\x01z\n", false, "character"},
    {"HTTP/1.1", "Host:a\nX:caf\xc3\xa9\tz\n", true, ""},
};

START_TEST(framing_is_judged_as_the_table_says)
{
    const struct framing *f = &framings[_i];
    struct guard g;
    struct err e = {0};
    guard_init(&g);
    for (const char *p = f->headers; *p;) {
        size_t n_name = strcspn(p, ":"), n_value = strcspn(p + n_name + 1, "\n");
        guard_header(&g, p, n_name, p + n_name + 1, n_value);
        p += n_name + n_value + 2;
    }
    enum status status = guard_check(&g, f->version, &e);
    ck_assert_msg((status == OK) == f->ok, "%s%s", f->headers, e.text);
    ck_assert_msg(f->ok || strstr(e.text, f->says), "\"%s\" lacks \"%s\"", e.text, f->says);
}
END_TEST

START_TEST(length_and_expectation_are_read)
{
    struct guard g;
    guard_init(&g);
    ck_assert(g.length == UINT64_MAX && !g.expects_continue);
    guard_header(&g, "Content-Length", 14, "123456", 6);
    guard_header(&g, "expect", 6, "100-Continue", 12);
    ck_assert_uint_eq(g.length, 123456);
    ck_assert(g.expects_continue);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/guard");
    TCase *t = tcase_create("guard");
    tcase_add_loop_test(t, framing_is_judged_as_the_table_says, 0,
                        sizeof(framings) / sizeof(framings[0]));
    tcase_add_test(t, length_and_expectation_are_read);
    suite_add_tcase(s, t);
    return run_suite(s);
}
