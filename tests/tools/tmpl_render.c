/* Renders chat templates for the Python tests: one JSON job per line on stdin, one record each on
 * stdout: "ok BYTES RANGES\n", the text, "\n", then "START END\n" for every trusted range;
 * or "error STATUS BYTES\n", the error text, "\n".
 *
 * A job: template, messages, tools, kwargs, add_generation_prompt, continue_final_message, bos_token,
 * eos_token, now, verbatim; without template the last one is used again. With ignores_messages the text
 * is true or false: the result of template_ignores_messages. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/base_test.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/template/template.h"

static void print_error(enum status status, const struct err *e)
{
    printf("error %s %zu\n%s\n", status_name(status), strlen(e->text), e->text);
}

static struct str string_of(const struct json *v)
{
    return json_is(v, JSON_STRING) ? json_string(v) : (struct str){0};
}

static void run_job(const struct json *job, struct chat_template **t)
{
    struct err e = {0};
    struct buf out = {0};
    struct text_range *ranges = NULL;
    size_t n_ranges = 0;
    const struct json *source = json_get(job, "template");
    if (source) {
        template_free(*t);
        *t = NULL;
        enum status status = template_new(json_string(source), t, &e);
        if (status != OK) {
            print_error(status, &e);
            return;
        }
    }
    if (!*t) {
        print_error(ERR_INVALID, &(struct err){.text = "no template"});
        return;
    }
    if (json_get(job, "ignores_messages")) {
        const char *answer = template_ignores_messages(*t) ? "true" : "false";
        printf("ok %zu 0\n%s\n", strlen(answer), answer);
        return;
    }
    struct template_args a = {
        .messages = json_get(job, "messages"),
        .tools = json_get(job, "tools"),
        .kwargs = json_get(job, "kwargs"),
        .add_generation_prompt = json_is(json_get(job, "add_generation_prompt"), JSON_TRUE),
        .continue_final_message = json_is(json_get(job, "continue_final_message"), JSON_TRUE),
        .bos_token = string_of(json_get(job, "bos_token")),
        .eos_token = string_of(json_get(job, "eos_token")),
        .verbatim = json_is(json_get(job, "verbatim"), JSON_TRUE),
    };
    const struct json *now = json_get(job, "now");
    if (now)
        json_i64(now, INT64_MIN, INT64_MAX, &a.now_unix_s);
    enum status status = template_render(*t, &a, &out, &ranges, &n_ranges, &e);
    if (status != OK) {
        print_error(status, &e);
    } else {
        printf("ok %zu %zu\n", out.len, n_ranges);
        fwrite(buf_str(&out).ptr, 1, out.len, stdout);
        putchar('\n');
        for (size_t i = 0; i < n_ranges; i++)
            printf("%zu %zu\n", ranges[i].start, ranges[i].end);
    }
    mem_free(ranges);
    buf_release(&out);
}

int main(void)
{
    struct chat_template *t = NULL;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct json_doc *doc = NULL;
        struct err e = {0};
        struct json_limits limits = {.depth = 256, .n_nodes = 1u << 22};
        enum status status = json_parse((struct str){line, (size_t)n}, limits, &doc, &e);
        if (status != OK)
            print_error(status, &e);
        else
            run_job(json_root(doc), &t);
        json_free(doc);
        fflush(stdout);
    }
    template_free(t);
    free(line);
    return 0;
}
