/* server/framing: accepted and refused input with the reasons, however the bytes arrive. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/errors.h"
#include "server/http/framing.h"
#include "server/limits.h"
#include "tests/unit/run_suite.h"

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define PASSED "GET / HTTP/1.1\r\nHost:a\r\n" /* of GET */
#define CHUNKED "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

struct row {
    const char *in;
    const char *out; /* NULL: not compared */
    const char *says; /* of a refusal; NULL: none */
};

static const struct row rows[] = {
    {GET "\r\n", NULL, NULL},
    {GET "X: 1 \t\r\n\r\n", NULL, NULL}, /* trimmed where it is looked at */
    {"\r\n" GET "\r\n", PASSED "\r\n", NULL},
    {GET "Content-Length: 3 \r\n\r\nabc" GET "\r\n",
     PASSED "Content-Length:3\r\n\r\nabc" PASSED "\r\n", NULL},
    {GET "Expect: 100-continue\t\r\n\r\n", PASSED "Expect:100-continue\r\n\r\n", NULL},
    {CHUNKED "3;a=\"b\\\"\" ; c\r\nabc\r\n000\r\nX: 1\r\n\r\n", NULL, NULL},
    {"GET / HTTP/1.0\r\n\r\n", NULL, NULL},
    {GET "\n", NULL, "LF alone"},
    {GET "\rX", NULL, "a CR without LF"},
    {GET " X: 1\r\n", NULL, "folded"},
    {GET ": 1\r\n", NULL, "name is empty"},
    {GET "X : 1\r\n", NULL, "not allowed"},
    {GET "X: \x01\r\n", NULL, "control"},
    {GET "Host: b\r\n", NULL, "more than one Host"},
    {"GET / HTTP/1.1\r\n\r\n", NULL, "requires a Host"},
    {GET "Content-Length: 1\r\nContent-Length: 1\r\n", NULL, "more than one Content-Length"},
    {GET "Content-Length: 1 1\r\n", NULL, "decimal"},
    {GET "Content-Length: 18446744073709551616\r\n", NULL, "too large"},
    {GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, "both"},
    {GET "Transfer-Encoding: gzip\r\n", NULL, "other than chunked"},
    {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, "requires HTTP/1.1"},
    {CHUNKED "3\nabc", NULL, "LF alone"},
    {CHUNKED "3;\r\n", NULL, "no name"},
    {CHUNKED "3 \r\n", NULL, "blanks after"},
    {CHUNKED "3\r\nabcd", NULL, "longer than its stated size"},
    {CHUNKED "11111111111111111\r\n", NULL, "too large"},
    {CHUNKED "0\r\nHost: b\r\n", NULL, "trailer"},
    {"GET / HTTP/2.0\r\n", NULL, "speaks"},
    {"GET  / HTTP/1.1\r\n", NULL, "character"},
    {"GET /%00 HTTP/1.1\r\n", NULL, "NUL"},
};

/* In pieces of step bytes; the end of what was passed on is at *n. */
static void take(struct framing *f, const char *in, size_t n_in, size_t step, char *out, size_t *n)
{
    framing_init(f);
    *n = 0;
    for (size_t at = 0; at < n_in; at += step) {
        size_t k = step < n_in - at ? step : n_in - at;
        memcpy(out + *n, in + at, k);
        *n += framing_take(f, out + *n, k);
    }
}

START_TEST(each_row_is_passed_or_refused_in_pieces_of_any_size)
{
    const struct row *r = &rows[_i];
    char out[1024];
    struct framing f;
    size_t n, n_in = strlen(r->in);
    for (size_t step = 1; step <= n_in; step++) {
        take(&f, r->in, n_in, step, out, &n);
        ck_assert_msg(!f.why == !r->says, "%s: %s", r->in, f.why ? f.why : "passed");
        ck_assert_msg(!f.why || strstr(f.why, r->says), "\"%s\" lacks \"%s\"", f.why, r->says);
        if (r->out)
            ck_assert_msg(n == strlen(r->out) && memcmp(out, r->out, n) == 0, "%.*s", (int)n, out);
        ck_assert(f.why || framing_idle(&f));
        ck_assert(!f.why || f.n_partial <= n);
    }
}
END_TEST

START_TEST(extensions_zeros_and_trailers_are_left_out)
{
    static const char in[] = CHUNKED "003;a=\"b\"\r\nabc\r\n000;c\r\nX: 1\r\n\r\n";
    static const char want[] = "POST / HTTP/1.1\r\nHost:a\r\nTransfer-Encoding:chunked\r\n\r\n"
                               "03\r\nabc\r\n0\r\n\r\n";
    char out[sizeof(in)];
    struct framing f;
    size_t n;
    take(&f, in, sizeof(in) - 1, 1, out, &n);
    ck_assert_msg(n == sizeof(want) - 1 && memcmp(out, want, n) == 0, "%.*s", (int)n, out);
    ck_assert(f.n_heads == 1 && f.n_requests == 1 && f.n_partial == 0);
}
END_TEST

START_TEST(what_was_passed_of_a_refused_request_is_counted)
{
    static const char in[] = GET "\r\n" GET "X: 1\r\nX : 2\r\n\r\n";
    char out[sizeof(in)];
    struct framing f;
    size_t n;
    take(&f, in, sizeof(in) - 1, sizeof(in) - 1, out, &n);
    ck_assert(f.why && f.problem == HTTP_FRAMING && f.n_requests == 1);
    ck_assert_uint_eq(n - (size_t)f.n_partial, strlen(PASSED "\r\n"));
}
END_TEST

START_TEST(a_head_has_a_limit_that_starts_anew_with_each)
{
    static char in[2 * HEAD_MAX_BYTES], out[sizeof(in)];
    struct framing f;
    size_t n = 0, n_out;
    for (int i = 0; i < 2; i++)
        n +=
            (size_t)snprintf(in + n, sizeof(in) - n, "GET / HTTP/1.1\r\nHost: a\r\nX: %0*d\r\n\r\n",
                             HEAD_MAX_BYTES - 300, 1);
    take(&f, in, n, n, out, &n_out);
    ck_assert(!f.why && f.n_requests == 2);
    n = (size_t)snprintf(in, sizeof(in), "GET / HTTP/1.1\r\nHost: a\r\nX: %0*d\r\n\r\n",
                         HEAD_MAX_BYTES, 1);
    take(&f, in, n, n, out, &n_out);
    ck_assert(f.why && f.problem == HTTP_HEAD);
}
END_TEST

START_TEST(hosts_are_names_or_addresses_with_a_port_or_none)
{
    static const char *const good[] = {
        "",           "a",     "A.b-c_d~", "localhost:",         "a:0",  "a:65535",
        "1.2.3.4:80", "[::1]", "[::1]:80", "[::ffff:127.0.0.1]", "a%2f", "a,b;c=d!$&'()*+"};
    static const char *const bad[] = {":80",   "a:65536", "a:b",     "a:1:2", "a b",  "a@b",
                                      "a/b",   "a?b",     "a#b",     "[::1",  "::1",  "[a]",
                                      "[]",    "[::1]a",  "[::1]:a", "a%2",   "a%zz", "a\x80",
                                      "\"a\"", "a\\b",    "[v1.a]",  "a[b]"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(framing_host_valid(good[i], strlen(good[i])), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!framing_host_valid(bad[i], strlen(bad[i])), "%s", bad[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/framing");
    TCase *t = tcase_create("framing");
    tcase_add_loop_test(t, each_row_is_passed_or_refused_in_pieces_of_any_size, 0,
                        sizeof(rows) / sizeof(rows[0]));
    tcase_add_test(t, extensions_zeros_and_trailers_are_left_out);
    tcase_add_test(t, what_was_passed_of_a_refused_request_is_counted);
    tcase_add_test(t, a_head_has_a_limit_that_starts_anew_with_each);
    tcase_add_test(t, hosts_are_names_or_addresses_with_a_port_or_none);
    suite_add_tcase(s, t);
    return run_suite(s);
}
