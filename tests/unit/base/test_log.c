/* base/log and base/check: one line per message, levels, JSON that parses; CHECK prints the location, calls the
 * dumps, and aborts. Each test reads the output on stderr. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "tests/unit/run_suite.h"

/* Runs fn with stderr in a pipe (at most 64 KiB), in a child; gives its wait status. */
static int capture(void (*fn)(void), struct buf *out)
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], 2);
        fn();
        _exit(0);
    }
    close(ends[1]);
    char block[4096];
    for (ssize_t n; (n = read(ends[0], block, sizeof(block))) > 0;)
        buf_add(out, block, (size_t)n);
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    buf_add(out, "", 0);
    return status;
}

static void log_levels(void)
{
    log_debug("hidden %d", 1);
    log_info("shown %d", 2);
    log_set_level(LOG_ERROR);
    log_warn("hidden too");
    log_error("an error");
    log_set_level(LOG_DEBUG);
    log_debug("now shown");
}

/* More than a pipe holds, with nobody reading until all is said. */
static void log_unread(void)
{
    for (int i = 0; i < 4000; i++)
        log_info("line %d of many, long enough to fill a pipe of 64 KiB soon", i);
}

START_TEST(a_pipe_that_nobody_reads_blocks_nothing_and_what_was_lost_is_told)
{
    int ends[2], status;
    char got[1 << 17];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], 2);
        log_unread();
        if (read(ends[0], got, sizeof(got)) < 1)
            _exit(1);
        log_info("read again");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ssize_t n = read(ends[0], got, sizeof(got) - 1);
    ck_assert_int_gt(n, 0);
    got[n] = 0;
    ck_assert_ptr_nonnull(strstr(got, "log lines were dropped"));
    ck_assert_ptr_nonnull(strstr(got, "read again"));
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(lines_below_the_level_are_not_written)
{
    struct buf out = {0};
    ck_assert_int_eq(capture(log_levels, &out), 0);
    ck_assert_ptr_null(strstr(out.ptr, "hidden"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "info  shown 2\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "error an error\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "debug now shown\n"));
    ck_assert_int_eq(out.ptr[10], 'T');
    ck_assert_int_eq(out.ptr[23], 'Z');
    buf_release(&out);
}
END_TEST

static void log_json(void)
{
    char text[5000];
    memset(text, 'y', sizeof(text));
    text[sizeof(text) - 1] = 0;
    log_set_json(true);
    log_warn("a \"quoted\"\nline %s", "\x01");
    log_warn("%s", text);
}

START_TEST(json_lines_parse_and_long_ones_are_cut)
{
    struct buf out = {0};
    ck_assert_int_eq(capture(log_json, &out), 0);
    char *newline = strchr(out.ptr, '\n');
    struct json_limits limits = {.depth = 2, .n_nodes = 8};
    struct json_doc *doc;
    struct str first = {out.ptr, (size_t)(newline - out.ptr)};
    ck_assert_int_eq(json_parse(first, limits, &doc, NULL), OK);
    ck_assert(str_eq_c(json_string(json_get(json_root(doc), "level")), "warn"));
    ck_assert(
        str_eq_c(json_string(json_get(json_root(doc), "message")), "a \"quoted\"\nline \x01"));
    json_free(doc);
    struct str second = {newline + 1, out.len - first.len - 2};
    ck_assert_int_eq(json_parse(second, limits, &doc, NULL), OK);
    ck_assert_uint_lt(second.len, 2200);
    json_free(doc);
    buf_release(&out);
}
END_TEST

static void dump(void *arg)
{
    if (write(2, arg, strlen(arg)) < 0)
        abort();
}

static void failing_dump(void *arg)
{
    dump(arg);
    CHECKF(arg == NULL, "in a dump");
}

static void break_a_rule(void)
{
    check_add_dump(dump, "first dump\n");
    check_add_dump(failing_dump, "second dump\n");
    int zero = 0;
    CHECKF(zero == 1, "zero is %d", zero);
}

START_TEST(a_failed_check_says_where_dumps_once_and_aborts)
{
    struct buf out = {0};
    int status = capture(break_a_rule, &out);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    ck_assert_ptr_nonnull(strstr(out.ptr, "test_log.c:"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "check failed: zero == 1 zero is 0\n"));
    const char *first = strstr(out.ptr, "first dump\n");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(strstr(first, "second dump\n"));
    ck_assert_ptr_nonnull(strstr(first, "in a dump"));
    ck_assert_ptr_null(strstr(first + 1, "first dump\n"));
    buf_release(&out);
}
END_TEST

static void fail_long(void)
{
    char text[2000];
    memset(text, 'z', sizeof(text));
    text[sizeof(text) - 1] = 0;
    check_failed(text, 1, text, "%s", text);
}

START_TEST(a_check_with_a_long_text_stays_in_its_buffer)
{
    struct buf out = {0};
    int status = capture(fail_long, &out);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    ck_assert_uint_ge(out.len, 500);
    ck_assert_uint_le(out.len, 513);
    buf_release(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/log");
    TCase *t = tcase_create("log");
    tcase_add_test(t, lines_below_the_level_are_not_written);
    tcase_add_test(t, json_lines_parse_and_long_ones_are_cut);
    tcase_add_test(t, a_pipe_that_nobody_reads_blocks_nothing_and_what_was_lost_is_told);
    tcase_add_test(t, a_failed_check_says_where_dumps_once_and_aborts);
    tcase_add_test(t, a_check_with_a_long_text_stays_in_its_buffer);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
