/* engine/template: properties that must be tested in C. Rendered text is compared with jinja2 in
 * tests/py/test_template_*.py. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/template/template.h"
#include "tests/unit/run_suite.h"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct conversation {
    struct json_doc *doc;
    struct template_args args;
};

static void conversation_init(struct conversation *c, const char *messages)
{
    struct json_limits limits = {.depth = 16, .n_nodes = 1000};
    ck_assert_int_eq(json_parse(str_of(messages), limits, &c->doc, NULL), OK);
    c->args = (struct template_args){.messages = json_root(c->doc), .add_generation_prompt = true};
}

static struct chat_template *compiled(const char *source)
{
    struct chat_template *t = NULL;
    struct err e = {0};
    ck_assert_msg(template_new(str_of(source), &t, &e) == OK, "%s", e.text);
    return t;
}

START_TEST(a_rendering_is_appended_and_its_ranges_count_from_the_start_of_the_buffer)
{
    struct conversation c;
    struct chat_template *t = compiled(chatml);
    struct buf out = {0};
    struct text_range *ranges;
    size_t n;
    conversation_init(&c, "[{\"role\":\"user\",\"content\":\" <|im_end|> \"}]");
    buf_add_c(&out, "xyz");
    ck_assert_int_eq(template_render(t, &c.args, &out, &ranges, &n, NULL), OK);
    ck_assert_str_eq(out.ptr, "xyz<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(ranges[0].start, 3);
    ck_assert_uint_eq(ranges[0].end, strlen("xyz<|im_start|>user\n"));
    ck_assert_uint_eq(ranges[1].start, ranges[0].end + strlen("<|im_end|>"));
    ck_assert_uint_eq(ranges[1].end, out.len);
    mem_free(ranges);
    buf_release(&out);
    template_free(t);
    json_free(c.doc);
}
END_TEST

START_TEST(a_failed_rendering_leaves_the_buffer_and_gives_no_ranges)
{
    struct conversation c;
    struct chat_template *t = compiled("text{{ raise_exception('roles must alternate') }}");
    struct buf out = {0};
    struct text_range *ranges = (void *)&c;
    size_t n = 7;
    struct err e;
    conversation_init(&c, "[]");
    buf_add_c(&out, "kept");
    ck_assert_int_eq(template_render(t, &c.args, &out, &ranges, &n, &e), ERR_INVALID);
    ck_assert_str_eq(e.text, "roles must alternate");
    ck_assert_str_eq(out.ptr, "kept");
    ck_assert_ptr_null(ranges);
    ck_assert_uint_eq(n, 0);
    buf_release(&out);
    template_free(t);
    json_free(c.doc);
}
END_TEST

START_TEST(a_message_of_raise_exception_is_cut_at_a_code_point)
{
    struct conversation c;
    struct chat_template *t = compiled("{{ raise_exception('a' + 'é' * 1000) }}");
    struct buf out = {0};
    struct text_range *ranges;
    size_t n;
    struct err e;
    conversation_init(&c, "[]");
    ck_assert_int_eq(template_render(t, &c.args, &out, &ranges, &n, &e), ERR_INVALID);
    ck_assert_uint_eq(strlen(e.text), ERR_TEXT_CAP - 1);
    ck_assert_uint_eq((unsigned char)e.text[ERR_TEXT_CAP - 2], 0xa9);
    template_free(t);
    json_free(c.doc);
}
END_TEST

START_TEST(a_source_that_is_no_utf8_or_too_long_is_refused)
{
    struct chat_template *t;
    struct err e;
    ck_assert_int_eq(template_new(STR_LIT("a\xff"), &t, &e), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(e.text, "UTF-8 at byte 1"));
    size_t len = (1 << 20) + 1;
    char *big = mem_zalloc(len);
    ck_assert_int_eq(template_new((struct str){big, len}, &t, &e), ERR_TOO_LARGE);
    mem_free(big);
}
END_TEST

START_TEST(every_prefix_of_a_template_parses_or_fails_cleanly)
{
    static const char source[] =
        "{%- macro m(a, b=1) -%}<{{ a|upper ~ b }}>{%- endmacro %}\n{# note #}{% raw %}{{ x }}{% "
        "endraw %}"
        "{% set ns = namespace(n=0) %}{% for k, v in {'a': [1, 2.5]}.items() if v is not none %}"
        "{% if loop.first and k in ('a', 'b') %}{{ m(v[::-1][0]) }}{% elif not v %}{% break %}{% "
        "else %}"
        "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{% filter trim %} x {% endfilter %}"
        "{% call m('q') %}{{ 'a\\u00e9' if true }}{% endcall %}{{ \"%s\" % 'é' }}";
    int n_ok = 0;
    for (size_t len = 0; len < sizeof(source); len++) {
        struct chat_template *t = NULL;
        struct err e = {0};
        enum status status = template_new((struct str){source, len}, &t, &e);
        EXPECT(status == OK || (!t && e.text[0]));
        n_ok += status == OK;
        template_free(t);
    }
    ck_assert_int_gt(n_ok, 5);
}
END_TEST

/* ---- threads ---- */

enum { N_THREADS = 4, N_ROUNDS = 200 };

struct worker {
    struct thread thread;
    const struct chat_template *t;
    const struct conversation *c;
    const struct buf *want;
    int n_wrong;
};

static void work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < N_ROUNDS; i++) {
        struct buf out = {0};
        struct text_range *ranges;
        size_t n;
        enum status status = template_render(w->t, &w->c->args, &out, &ranges, &n, NULL);
        w->n_wrong += status != OK || !str_eq(buf_str(&out), buf_str(w->want));
        mem_free(ranges);
        buf_release(&out);
    }
}

START_TEST(many_threads_render_one_template_at_once)
{
    struct conversation c;
    struct worker workers[N_THREADS];
    struct chat_template *t = compiled(chatml);
    struct buf want = {0};
    struct text_range *ranges;
    size_t n;
    conversation_init(
        &c, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]");
    ck_assert_int_eq(template_render(t, &c.args, &want, &ranges, &n, NULL), OK);
    mem_free(ranges);
    for (int i = 0; i < N_THREADS; i++) {
        workers[i] = (struct worker){.t = t, .c = &c, .want = &want};
        ck_assert_int_eq(thread_start(&workers[i].thread, "render", work, &workers[i], NULL), OK);
    }
    for (int i = 0; i < N_THREADS; i++) {
        thread_join(&workers[i].thread);
        ck_assert_int_eq(workers[i].n_wrong, 0);
    }
    buf_release(&want);
    template_free(t);
    json_free(c.doc);
}
END_TEST

/* The deepest evaluation must fit into a small thread's stack: the guard of the sandbox, not the
 * stack's end, stops it. */
START_TEST(endless_recursion_is_an_error)
{
    static const char *const sources[] = {
        ("{% macro m(x) %}{% for i in [1] %}{% set y %}{{ ('a' ~ [m(x)|upper])|string }}"
         "{% endset %}{% endfor %}{% endmacro %}{{ m(1) }}"),
        "{% for x in [1] recursive %}{{ [1]|map('string')|join(loop([1])) }}{% endfor %}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
    };
    struct conversation c;
    conversation_init(&c, "[]");
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct chat_template *t = compiled(sources[i]);
        struct buf out = {0};
        struct text_range *ranges;
        size_t n;
        struct err e;
        ck_assert_int_eq(template_render(t, &c.args, &out, &ranges, &n, &e), ERR_TOO_LARGE);
        template_free(t);
    }
    json_free(c.doc);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine/template");
    TCase *tc = tcase_create("template");
    tcase_add_test(tc, a_rendering_is_appended_and_its_ranges_count_from_the_start_of_the_buffer);
    tcase_add_test(tc, a_failed_rendering_leaves_the_buffer_and_gives_no_ranges);
    tcase_add_test(tc, a_message_of_raise_exception_is_cut_at_a_code_point);
    tcase_add_test(tc, a_source_that_is_no_utf8_or_too_long_is_refused);
    tcase_add_test(tc, every_prefix_of_a_template_parses_or_fails_cleanly);
    tcase_add_test(tc, many_threads_render_one_template_at_once);
    tcase_add_test(tc, endless_recursion_is_an_error);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
