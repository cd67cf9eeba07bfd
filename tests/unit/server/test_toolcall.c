/* server/toolcall: every format, cut in every way, gives the same texts and calls. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/api/toolcall.h"
#include "base/base_test.h"
#include "tests/unit/run_suite.h"

/* What came out: text as it is, calls as \x01 name \x02 arguments \x03. */
struct seen {
    struct toolcall p;
    struct buf all;
};

static bool known(void *arg, struct str name)
{
    (void)arg;
    return str_eq_c(name, "get_weather") || str_eq_c(name, "now");
}

static void on_text(void *arg, struct str s)
{
    buf_add_str(&((struct seen *)arg)->all, s);
}

static void on_begin(void *arg, struct str name)
{
    struct seen *seen = arg;
    buf_add_char(&seen->all, 1);
    buf_add_str(&seen->all, name);
    buf_add_char(&seen->all, 2);
}

static void on_end(void *arg)
{
    buf_add_char(&((struct seen *)arg)->all, 3);
}

static void begin(struct seen *seen)
{
    const struct toolcall_sink sink = {seen, known, on_text, on_begin, on_text, on_end};
    *seen = (struct seen){0};
    toolcall_init(&seen->p, &sink);
}

static void finish(struct seen *seen, const char *expected, const char *text, size_t a, size_t b)
{
    toolcall_end(&seen->p);
    ck_assert_msg(str_eq_c(buf_str(&seen->all), expected),
                  "%s\ncut at %zu and %zu gives\n%.*s\nnot\n%s", text, a, b, (int)seen->all.len,
                  seen->all.ptr ? seen->all.ptr : "", expected);
    toolcall_release(&seen->p);
    buf_release(&seen->all);
}

static void check_cuts(const char *text, const char *expected)
{
    size_t n = strlen(text);
    struct seen seen;
    for (size_t a = 0; a <= n; a++) {
        for (size_t b = a; b <= n; b++) {
            begin(&seen);
            toolcall_feed(&seen.p, (struct str){text, a});
            toolcall_feed(&seen.p, (struct str){text + a, b - a});
            toolcall_feed(&seen.p, (struct str){text + b, n - b});
            finish(&seen, expected, text, a, b);
        }
    }
    begin(&seen);
    for (size_t i = 0; i < n; i++)
        toolcall_feed(&seen.p, (struct str){text + i, 1});
    finish(&seen, expected, text, n, n);
}

#define CALL(name, arguments) "\x01" name "\x02" arguments "\x03"
#define WEATHER "get_weather"
#define ARGS "{\"city\": \"a {b} \\\" ]\\\\\", \"n\": [1, {\"x\": null}]}"
#define DS(x) "<\xef\xbd\x9ctool\xe2\x96\x81" x "\xef\xbd\x9c>"
#define DS_CALLS                                                                                   \
    DS("calls\xe2\x96\x81"                                                                         \
       "begin")
#define DS_BEGIN                                                                                   \
    DS("call\xe2\x96\x81"                                                                          \
       "begin")
#define DS_SEP DS("sep")
#define DS_END                                                                                     \
    DS("call\xe2\x96\x81"                                                                          \
       "end")
#define DS_CALLS_END                                                                               \
    DS("calls\xe2\x96\x81"                                                                         \
       "end")

static const struct {
    const char *text, *out;
} calls[] = {
    {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " ARGS "}\n</tool_call>",
     CALL(WEATHER, ARGS)},
    {"Let me see.\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n<tool_call>\n"
     "{\"arguments\": " ARGS ", \"name\": \"get_weather\"}\n</tool_call>\n",
     "Let me see.\n" CALL("now", "{}") CALL(WEATHER, ARGS)},
    {"<tool_call>{\"name\": \"now\"}</tool_call> done", CALL("now", "{}") "done"},
    {"<tool_call>[{\"name\":\"now\",\"arguments\":{}},{\"name\":\"now\",\"arguments\":{}}]"
     "</tool_call>",
     CALL("now", "{}") CALL("now", "{}")},
    {"<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": " ARGS "}",
     CALL(WEATHER, ARGS)},
    {"{\"name\": \"get_weather\", \"parameters\": " ARGS "}", CALL(WEATHER, ARGS)},
    {"{\"name\":\"now\",\"parameters\":{}}; {\"name\":\"now\",\"parameters\":{}}",
     CALL("now", "{}") CALL("now", "{}")},
    {"[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": " ARGS ", \"id\": \"a}b\"}, "
     "{\"name\": \"now\", \"arguments\": {}}]",
     CALL(WEATHER, ARGS) CALL("now", "{}")},
    {"[TOOL_CALLS]get_weather[CALL_ID]123[ARGS]" ARGS "[TOOL_CALLS]now{}",
     CALL(WEATHER, ARGS) CALL("now", "{}")},
    {DS_CALLS DS_BEGIN "function" DS_SEP "get_weather\n```json\n" ARGS "\n```" DS_END "\n" DS_BEGIN
                       "function" DS_SEP "now\n```json\n{}\n```" DS_END DS_CALLS_END,
     CALL(WEATHER, ARGS) CALL("now", "{}")},
    {"hm " DS_CALLS DS_BEGIN "get_weather" DS_SEP ARGS DS_END DS_CALLS_END,
     "hm " CALL(WEATHER, ARGS)},
    {"<function=get_weather>" ARGS "</function>", CALL(WEATHER, ARGS)},
    {"<start_function_call>call:get_weather{city:<escape>a {b} \"<escape>,n:[1,true,x y],"
     "o:{k:<escape>\xc3\xa4<escape>}}<end_function_call>",
     CALL(WEATHER, "{\"city\":\"a {b} \\\"\",\"n\":[1,true,\"x y\"],\"o\":{\"k\":\"\xc3\xa4\"}}")},
    {"<|tool_call>call:get_weather{city:<|\"|>a<b<|\"|>,n:-1.5}<tool_call|>",
     CALL(WEATHER, "{\"city\":\"a<b\",\"n\":-1.5}")},
    {"```json\n{\"name\": \"get_weather\", \"arguments\": " ARGS "}\n```", CALL(WEATHER, ARGS)},
    {"```tool_call\n{\"name\": \"now\", \"arguments\": {}}\n```\n", CALL("now", "{}")},
    {" [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
     " " CALL("now", "{}") CALL("now", "{}")},
    {"{\"id\": 5, \"x\": [\"}\"], \"function\": {\"name\": \"now\", \"arguments\": {}}, \"t\": 1}",
     CALL("now", "{}")},
    {"<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Par",
     CALL(WEATHER, "{\"city\":\"Par")},
    {"<tool_call>{\"name\":\"now\",\"arguments\":{}oops", CALL("now", "{}") "oops"},
    {"<tool_call><tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>",
     "<tool_call>" CALL("now", "{}")},
};

START_TEST(calls_of_every_format_are_the_same_for_every_cut)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        check_cuts(calls[i].text, calls[i].out);
}
END_TEST

START_TEST(text_that_is_no_call_comes_out_unchanged)
{
    static const char *const texts[] = {
        "",
        "plain",
        "a < b [1] {x} ```c\nint x;```",
        "{\"name\": \"unknown\", \"arguments\": {}}",
        "{\"name\": \"now\"}",
        "{\"name\": \"now\", \"arguments\": [1]}",
        "{\"answer\": {\"name\": \"now\", \"arguments\": {}}}",
        "[1, 2, 3]",
        "<tool_call>not a call</tool_call>",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {\"a\": \"<tool_call>\"}",
        "<tool_call",
        "<|python_tag|>import os\nprint({})",
        "[TOOL_CALLS]unknown[ARGS]{}",
        "<function=unknown>{}</function>",
        "<start_function_call>call:unknown{a:1}<end_function_call>",
        "```json\n{\"a\": 1}\n```",
        "say {\"name\": \"now\", \"arguments\": {}}",
        "\xef\xbd\x9c<\xef\xbd\x9ctool\xe2\x96\x81 is <\xef\xbd\x9c",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check_cuts(texts[i], texts[i]);
}
END_TEST

START_TEST(no_more_is_held_than_the_bound)
{
    struct seen seen;
    begin(&seen);
    struct str head = STR_LIT("<tool_call>{\"arguments\":{\"a\":\"");
    toolcall_feed(&seen.p, head);
    for (int i = 0; i < 2 * TOOLCALL_MAX_HELD; i++)
        toolcall_feed(&seen.p, STR_LIT("x"));
    EXPECT(seen.all.len == head.len + 2 * TOOLCALL_MAX_HELD && seen.p.in.len < 16);
    toolcall_end(&seen.p);
    toolcall_release(&seen.p);
    buf_release(&seen.all);
}
END_TEST

START_TEST(an_answer_may_begin_behind_its_opener)
{
    struct seen seen;
    begin(&seen);
    toolcall_opened(&seen.p, TOOLCALL_MISTRAL);
    toolcall_feed(&seen.p, STR_LIT("[{\"name\":\"now\",\"argum"));
    toolcall_feed(&seen.p, STR_LIT("ents\":{\"a\":1}}]"));
    finish(&seen, CALL("now", "{\"a\":1}"), "opened", 0, 0);
    begin(&seen);
    toolcall_opened(&seen.p, TOOLCALL_HERMES);
    toolcall_feed(&seen.p, STR_LIT("no call"));
    finish(&seen, "no call", "opened", 0, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("server/toolcall");
    TCase *t = tcase_create("toolcall");
    suite_add_tcase(s, t);
    tcase_add_test(t, calls_of_every_format_are_the_same_for_every_cut);
    tcase_add_test(t, text_that_is_no_call_comes_out_unchanged);
    tcase_add_test(t, no_more_is_held_than_the_bound);
    tcase_add_test(t, an_answer_may_begin_behind_its_opener);
    return run_suite(s);
}
