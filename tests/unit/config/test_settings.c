/* config/settings: every row of settings.def is set in every possible way; precedence; refusals and
 * suggestions; config/millrace.conf agrees with the table. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/settings_test.h"
#include "config/option_table.h"
#include "config/settings.h"
#include "tests/unit/run_suite.h"

static char *no_env[] = {NULL};

static char *make_file(const char *text)
{
    static char path[] = "/tmp/millrace-settings-XXXXXX";
    snprintf(path, sizeof(path), "/tmp/millrace-settings-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

/* Loads with arguments split at '|'; OK or the error's text. */
static enum status load(struct settings *s, const char *args, char **env, struct err *e)
{
    char copy[1024], *argv[32], *save = NULL;
    int argc = 0;
    bool wants_help;
    snprintf(copy, sizeof(copy), "%s", args);
    for (char *a = strtok_r(copy, "|", &save); a; a = strtok_r(NULL, "|", &save))
        argv[argc++] = a;
    *e = (struct err){0};
    settings_init(s);
    return settings_load(s, argc, argv, env, &wants_help, e);
}

/* A valid value that is not the default. */
static const char *other_value(const struct option *o, struct buf *out)
{
    buf_clear(out);
    switch (o->type) {
    case OPTION_STR:
    case OPTION_LIST:
        buf_add_c(out, "some text");
        break;
    case OPTION_BOOL:
        buf_add_c(out, strcmp(o->def, "true") == 0 ? "false" : "true");
        break;
    case OPTION_ENUM: {
        const char *second = strchr(o->help, '|') + 1;
        buf_add(out, second, strcspn(second, "|:"));
        break;
    }
    default:
        if (o->max == 0)
            buf_add_c(out, "16");
        else
            buf_printf(out, "%.0f", strtod(o->def, NULL) == o->max ? o->min : o->max);
    }
    return out->ptr;
}

static void expect_value(const struct option *o, const struct settings *s, const char *wanted)
{
    struct buf got = {0};
    struct settings again;
    settings_init(&again);
    option_value(o, s, 0, &got);
    /* As text it may have another unit: what it reads back to decides. */
    struct buf back = {0};
    ck_assert_int_eq(settings_set(&again, o->name, wanted, NULL), OK);
    option_value(o, &again, 0, &back);
    ck_assert_msg(str_eq(buf_str(&got), buf_str(&back)), "%s: %s instead of %s", o->name, got.ptr,
                  wanted);
    settings_release(&again);
    buf_release(&got);
    buf_release(&back);
}

START_TEST(each_default_is_valid_and_shown_again)
{
    const struct option *o = &option_table[_i];
    struct settings s;
    settings_init(&s);
    if (o->type != OPTION_LIST)
        expect_value(o, &s, o->def);
    ck_assert(o->help[0] && option_find(o->name) == o);
    settings_release(&s);
}
END_TEST

static const struct {
    const char *option, *word;
    size_t offset;
    int value;
} words[] = {
#define WORD(id, option, constant, word)                                                           \
    {                                                                                              \
        option, word, offsetof(struct settings, id), constant                                      \
    }
    WORD(kv_dtype, "kv.dtype", SET_KV_Q4, "q4"),
    WORD(kv_dtype_k, "kv.dtype_k", SET_K_F16, "f16"),
    WORD(kv_dtype_v, "kv.dtype_v", SET_V_AUTO, "auto"),
    WORD(prefix_isolation, "prefix.isolation", SET_ISOLATION_OFF, "off"),
    WORD(sched_reserve, "sched.reserve", SET_RESERVE_MAX, "max"),
    WORD(sched_preempt, "sched.preempt", SET_PREEMPT_NEVER, "never"),
    WORD(cpu_isa, "cpu.isa", SET_ISA_AVX2, "avx2"),
    WORD(cpu_activations, "cpu.activations", SET_ACT_INT16, "int16"),
    WORD(log_level, "log.level", SET_LOG_WARN, "warn"),
    WORD(log_format, "log.format", SET_LOG_JSON, "json"),
#undef WORD
};

START_TEST(a_word_sets_the_constant_of_its_row)
{
    struct settings s;
    settings_init(&s);
    ck_assert_int_eq(settings_set(&s, words[_i].option, words[_i].word, NULL), OK);
    ck_assert_int_eq(*(const int *)((const char *)&s + words[_i].offset), words[_i].value);
    settings_release(&s);
}
END_TEST

START_TEST(each_option_comes_from_file_environment_and_command_line)
{
    const struct option *o = &option_table[_i];
    struct settings s;
    struct err e;
    struct buf value = {0}, args = {0}, text = {0}, env = {0};
    other_value(o, &value);
    buf_printf(&text, "%s = %s\n", o->name, value.ptr);
    char *path = make_file(text.ptr);
    buf_printf(&args, "--config|%s", path);
    ck_assert_msg(load(&s, args.ptr, no_env, &e) == OK, "%s", e.text);
    expect_value(o, &s, value.ptr);
    settings_release(&s);
    unlink(path);

    option_env_name(o, &env);
    buf_printf(&env, "=%s", value.ptr);
    char *environment[] = {"HOME=/x", env.ptr, NULL};
    ck_assert_msg(load(&s, "", environment, &e) == OK, "%s", e.text);
    expect_value(o, &s, value.ptr);
    settings_release(&s);

    static const char *const forms[] = {"--%s=%s", "--set|%s=%s", "--set=%s=%s", "--%s|%s"};
    for (size_t i = 0; i < 4; i++) {
        char line[512];
        const char *shape = forms[i];
        buf_clear(&args);
        for (; *shape; shape++) {
            if (shape[0] == '%')
                buf_add_c(&args, strchr(shape + 1, '%') ? o->name : value.ptr);
            else if (shape[0] != 's' || shape[-1] != '%')
                buf_add_char(&args, *shape);
        }
        snprintf(line, sizeof(line), "%s", args.ptr);
        ck_assert_msg(load(&s, line, no_env, &e) == OK, "%s: %s", line, e.text);
        expect_value(o, &s, value.ptr);
        settings_release(&s);
    }
    buf_release(&value);
    buf_release(&args);
    buf_release(&text);
    buf_release(&env);
}
END_TEST

START_TEST(each_bound_is_kept_and_named)
{
    const struct option *o = &option_table[_i];
    bool is_number = o->type == OPTION_INT || o->type == OPTION_SIZE || o->type == OPTION_MS;
    struct settings s;
    struct err e;
    char value[64];
    settings_init(&s);
    if (is_number && o->max != 0) {
        snprintf(value, sizeof(value), "%.0f", o->max);
        ck_assert_int_eq(settings_set(&s, o->name, value, &e), OK);
        snprintf(value, sizeof(value), "%.0f", o->max + 1);
        ck_assert_int_eq(settings_set(&s, o->name, value, &e), ERR_INVALID);
        ck_assert_msg(strstr(e.text, o->name) && strstr(e.text, value), "%s", e.text);
        snprintf(value, sizeof(value), " to %.0f", o->max);
        ck_assert_msg(strstr(e.text, value), "%s", e.text);
        ck_assert_str_eq(e.param, o->name);
    }
    if (is_number) {
        snprintf(value, sizeof(value), "%.0f", o->min);
        ck_assert_int_eq(settings_set(&s, o->name, value, &e), OK);
        snprintf(value, sizeof(value), "%.0f", o->min - 1);
        ck_assert_int_eq(settings_set(&s, o->name, value, &e), ERR_INVALID);
    }
    settings_release(&s);
}
END_TEST

START_TEST(names_are_unique_in_the_environment_too)
{
    struct buf a = {0}, b = {0};
    for (size_t i = 0; i < N_OPTIONS; i++) {
        for (size_t k = 0; k < i; k++) {
            buf_clear(&a);
            buf_clear(&b);
            option_env_name(&option_table[i], &a);
            option_env_name(&option_table[k], &b);
            EXPECT(!str_eq(buf_str(&a), buf_str(&b)));
        }
    }
    buf_clear(&a);
    option_env_name(option_find("api_key"), &a);
    ck_assert_str_eq(a.ptr, "MILLRACE_API_KEY");
    buf_clear(&a);
    option_env_name(option_find("chat-template"), &a);
    ck_assert_str_eq(a.ptr, "MILLRACE_CHAT_TEMPLATE");
    buf_release(&a);
    buf_release(&b);
}
END_TEST

START_TEST(default_file_environment_command_line_in_that_order)
{
    struct settings s;
    struct err e;
    char args[256];
    char *path = make_file("[server]\nthreads = 1\nmax_body = 2KiB\n[]\nport = 1000\n"
                           "[sched]\nmax_running = 7 # seven\n[]\nmodel.alias = a\n"
                           "model.alias = b\n");
    char *env[] = {"MILLRACE_SERVER_MAX_BODY=3KiB", "MILLRACE_PORT=2000",
                   "MILLRACE_MODEL_ALIAS=c,d", NULL};
    snprintf(args, sizeof(args), "--port|3000|--config=%s|--model.alias|x", path);
    ck_assert_msg(load(&s, args, env, &e) == OK, "%s", e.text);
    ck_assert_int_eq(s.server_threads, 1);
    ck_assert_uint_eq(s.server_max_body, 3072);
    ck_assert_int_eq(s.port, 3000);
    ck_assert_int_eq(s.sched_max_running, 7);
    ck_assert_int_eq(s.sched_max_queued, 1024);
    ck_assert_uint_eq(s.model_alias.n, 1);
    ck_assert_str_eq(s.model_alias.item[0], "x");
    settings_release(&s);
    snprintf(args, sizeof(args), "--config=%s", path);
    ck_assert_int_eq(load(&s, args, env, &e), OK);
    ck_assert_uint_eq(s.model_alias.n, 2);
    ck_assert_str_eq(s.model_alias.item[1], "d");
    settings_release(&s);
    ck_assert_int_eq(load(&s, args, no_env, &e), OK);
    ck_assert_str_eq(s.model_alias.item[0], "a");
    ck_assert_str_eq(s.model_alias.item[1], "b");
    settings_release(&s);
    snprintf(args, sizeof(args), "MILLRACE_CONFIG=%s", path);
    char *named[] = {args, NULL};
    ck_assert_int_eq(load(&s, "", named, &e), OK);
    ck_assert_int_eq(s.port, 1000);
    settings_release(&s);
    unlink(path);
}
END_TEST

/* As container files pass a variable that nobody set. */
START_TEST(empty_items_of_a_list_are_none)
{
    struct settings s;
    struct err e;
    char args[256];
    char *path = make_file("model.alias = a\n");
    char *empty[] = {"MILLRACE_MODEL_ALIAS=", NULL};
    char *some[] = {"MILLRACE_MODEL_ALIAS=,c,,d,", NULL};
    snprintf(args, sizeof(args), "--config=%s", path);
    ck_assert_int_eq(load(&s, args, empty, &e), OK);
    ck_assert_uint_eq(s.model_alias.n, 0);
    settings_release(&s);
    ck_assert_int_eq(load(&s, args, some, &e), OK);
    ck_assert_uint_eq(s.model_alias.n, 2);
    ck_assert_str_eq(s.model_alias.item[0], "c");
    ck_assert_str_eq(s.model_alias.item[1], "d");
    settings_release(&s);
    ck_assert_int_eq(load(&s, "--model.alias=x|--model.alias=", some, &e), OK);
    ck_assert_uint_eq(s.model_alias.n, 1);
    settings_release(&s);
    ck_assert_int_eq(load(&s, "--model.alias=", some, &e), OK);
    ck_assert_uint_eq(s.model_alias.n, 0);
    settings_release(&s);
    unlink(path);
}
END_TEST

struct value_row {
    const char *args;
    bool ok;
    const char *says; /* part of the error, or of the dump */
};

static const struct value_row values[] = {
    {"--kv.bytes=0", true, "kv.bytes = 0\n"},
    {"--kv.bytes=1000", true, "kv.bytes = 1000\n"},
    {"--kv.bytes=4096", true, "kv.bytes = 4KiB\n"},
    {"--kv.bytes=4 KiB", true, "kv.bytes = 4KiB\n"},
    {"--kv.bytes=3MiB", true, "kv.bytes = 3MiB\n"},
    {"--kv.bytes=5GiB", true, "kv.bytes = 5GiB\n"},
    {"--kv.bytes=5GB", false, "'5GB' is not a size (bytes, or a number with KiB, MiB, GiB or TiB)"},
    {"--kv.bytes=2TiB", true, "kv.bytes = 2TiB\n"},
    {"--kv.bytes=2048 GiB", true, "kv.bytes = 2TiB\n"},
    {"--kv.bytes=8388608TiB", false, "not a size"}, /* 2^63 */
    {"--kv.bytes=GiB", false, "not a size"},
    {"--kv.bytes=-1", false, "not a size"},
    {"--kv.bytes=1.5GiB", false, "not a size"},
    {"--kv.bytes=99999999999999999999", false, "not a size"},
    {"--kv.bytes=99999999999GiB", false, "not a size"},
    {"--server.queue_timeout=1500", true, "server.queue_timeout = 1500ms\n"},
    {"--server.queue_timeout=1500ms", true, "server.queue_timeout = 1500ms\n"},
    {"--server.queue_timeout=2s", true, "server.queue_timeout = 2s\n"},
    {"--server.queue_timeout=2min", true, "server.queue_timeout = 120s\n"},
    {"--server.queue_timeout=2h", false,
     "not a time (milliseconds, or a number with ms, s or min)"},
    {"--port=", false, "option port: '' is not a whole number"},
    {"--port=80x", false, "'80x' is not a whole number"},
    {"--port=0x50", false, "whole number"},
    {"--port=1e3", false, "whole number"},
    {"--port=65536", false, "option port: 65536 is out of bounds (0 to 65535)"},
    {"--port=99999999999999999999", false, "whole number"},
    {"--debug.fixed_time=-1", false, "-1 is out of bounds (at least 0)"},
    {"--cpu.pin", true, "cpu.pin = true\n"},
    {"--cpu.pin=on", true, "cpu.pin = true\n"},
    {"--cpu.pin=maybe", false, "'maybe' is not true or false"},
    {"--cpu.pin|--port|81", true, "port = 81\n"},
    {"--cpu.pin|false", true, "cpu.pin = false"},
    {"--cpu.isa=avx2", true, "cpu.isa = avx2\n"},
    {"--cpu.isa=AVX2", false, "'AVX2' is not one of auto, c, avx2"},
    {"--cpu.isa=av", false, "not one of"},
    {"--cpu.isa=", false, "not one of"},
    {"--kv.block_tokens=12", false, "12 is not a multiple of 8"},
    {"--kv.block_tokens=32", true, "kv.block_tokens = 32\n"},
    {"--chat_template=x", true, "chat-template = x\n"},
    {"--server.api-key-file=x", true, "server.api_key_file = x\n"},
    {"--model= a#b ", true, "model = \" a#b \"\n"},
    {"--model=a\"b\\c", true, "model = \"a\\\"b\\\\c\"\n"},
    {"--model=a\nb", false, "'a\\nb' is not free of control characters"},
    {"--model=\xFF", false, "is not valid utf-8"},
    {"--api_key=very-secret", true, "# api_key = (hidden)\n"},
    {"--prot=1", false, "unknown option 'prot': did you mean 'port'"},
    {"--sched.maxrunning|5", false,
     "unknown option 'sched.maxrunning': did you mean 'sched.max_running'"},
    {"--max_queued|5", false, "did you mean 'sched.max_queued'"},
    {"--set|kv.byte=1", false, "unknown option 'kv.byte': did you mean 'kv.bytes'"},
    {"--set|kv.bytes", false, "--set takes name=value, not 'kv.bytes'"},
    {"--set", false, "option --set needs a value"},
    {"--port", false, "option --port needs a value"},
    {"model.gguf", false, "unexpected argument 'model.gguf'"},
    {"-p|80", false, "unknown option '-p': here it is 'port'"},
    {"-q|80", false, "unexpected argument '-q'"},
    {"-m|a.gguf", true, "model = a.gguf\n"},
    {"-m", false, "option --model needs a value"},
    {"--ctx-size|4096", false, "unknown option 'ctx-size': here it is 'limits.max_context'"},
    {"--ctx_size=4096", false, "here it is 'limits.max_context'"},
    {"-c|4096", false, "unknown option '-c': here it is 'limits.max_context'"},
    {"-np|4", false, "unknown option '-np': here it is 'sched.max_running'"},
    {"--set|max_model_len=1", false, "here it is 'limits.max_context'"},
    {"-ngl|99", false, "unknown option '-ngl': there are no GPU layers yet"},
    {"--gpu-memory-utilization=0.9", false, "here it is 'kv.bytes', a size, not a fraction"},
    {"--zzz-nothing-like-it=1", false, "unknown option 'zzz-nothing-like-it': `millrace serve"},
    {"--", false, "unexpected argument '--'"},
    {"--config|/nonexistent/millrace.conf", false, "cannot read the config file \"/nonexistent/"},
};

static void dump(const struct settings *s, bool comments, struct buf *out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    settings_dump(s, f, comments);
    fclose(f);
    buf_add(out, text, n);
    free(text);
}

START_TEST(values_are_read_by_type_and_refused_with_reason)
{
    const struct value_row *r = &values[_i];
    struct settings s;
    struct err e;
    struct buf text = {0};
    enum status st = load(&s, r->args, no_env, &e);
    ck_assert_msg((st == OK) == r->ok, "%s: %s", r->args, e.text);
    if (r->ok)
        dump(&s, false, &text);
    const char *where = r->ok ? text.ptr : e.text;
    ck_assert_msg(strstr(where, r->says), "'%s' is not in '%s'", r->says, where);
    ck_assert_ptr_null(strstr(where, "very-secret"));
    settings_release(&s);
    buf_release(&text);
}
END_TEST

START_TEST(a_very_long_name_or_value_is_refused)
{
    struct settings s;
    struct err e;
    struct buf args = {0};
    for (int i = 0; i < 900; i++)
        buf_add_char(&args, 'x');
    struct buf named = {0};
    buf_printf(&named, "--%s=1", args.ptr);
    ck_assert_int_eq(load(&s, named.ptr, no_env, &e), ERR_INVALID);
    settings_release(&s);
    settings_init(&s);
    ck_assert_int_eq(settings_set(&s, args.ptr, "1", &e), ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "unknown option"));
    while (args.len <= 4096)
        buf_add_char(&args, 'x');
    ck_assert_int_eq(settings_set(&s, "model", args.ptr, &e), ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "limit of 4096"));
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(settings_set(&s, "model.alias", "x", &e), OK);
    ck_assert_int_eq(settings_set(&s, "model.alias", "x", &e), ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "limit of 64 values"));
    settings_release(&s);
    buf_release(&args);
    buf_release(&named);
}
END_TEST

struct env_row {
    const char *variable;
    const char *says; /* NULL: let pass */
};

static const struct env_row env_rows[] = {
    {"MILLRACE_TEST_DATA=/x", NULL},
    {"MILLRACE_BUILD=/x", NULL},
    {"MILLRACE_BIN=/x", NULL},
    {"MILLRACE_CONFIG=", NULL},
    {"MILLRACE_PORT=tcp://10.0.0.1:8080", NULL},
    {"MILLRACE_PORT=udp://10.0.0.1:8080", NULL},
    {"MILLRACE_SERVICE_HOST=10.0.0.1", NULL},
    {"MILLRACE_SERVICE_PORT=8080", NULL},
    {"MILLRACE_SERVICE_PORT_HTTP=8080", NULL},
    {"MILLRACE_PORT_8080_TCP=tcp://10.0.0.1:8080", NULL},
    {"MILLRACE_PORT_8080_TCP_ADDR=10.0.0.1", NULL},
    {"MILLRACE_PORT_8080_TCP_PORT=8080", NULL},
    {"MILLRACE_PORT_8080_TCP_PROTO=tcp", NULL},
    {"MILLRACE_PORT_53_UDP_ADDR=10.0.0.1", NULL},
    {"MILLRACE_CANARY_SERVICE_HOST=10.0.0.1", NULL},
    {"MILLRACE_CANARY_PORT=tcp://10.0.0.2:80", NULL},
    {"MILLRACE_CANARY_PORT_80_TCP_ADDR=10.0.0.2", NULL},
    {"MILLRACE=1", NULL},
    {"XMILLRACE_PORT=1", NULL},
    {"MILLRACE_PORT=abc", "MILLRACE_PORT: option port: 'abc' is not a whole number"},
    {"MILLRACE_CANARY_PORT=80", "unknown environment variable 'MILLRACE_CANARY_PORT'"},
    {"MILLRACE_PORT_8080_TCPX=1", "unknown environment variable"},
    {"MILLRACE_PORT_X_TCP=1", "unknown environment variable"},
    {"MILLRACE_SCHED_MAXRUNNING=1", "did you mean 'MILLRACE_SCHED_MAX_RUNNING'"},
    {"MILLRACE_THREADS=1", "did you mean 'MILLRACE_SERVER_THREADS'"},
    {"MILLRACE_port=1", "unknown environment variable"},
    {"MILLRACE_=1", "unknown environment variable"},
};

START_TEST(unknown_variables_are_refused_but_not_those_of_others)
{
    const struct env_row *r = &env_rows[_i];
    struct settings s;
    struct err e;
    char *env[] = {(char *)r->variable, NULL};
    enum status st = load(&s, "", env, &e);
    ck_assert_msg((st == OK) == (r->says == NULL), "%s: %s", r->variable, e.text);
    if (r->says)
        ck_assert_msg(strstr(e.text, r->says), "%s", e.text);
    ck_assert_int_eq(s.port, 8080);
    settings_release(&s);
}
END_TEST

struct file_row {
    const char *text;
    const char *says; /* NULL: fine, and model is "m" */
};

static const struct file_row files[] = {
    {"model=m", NULL},
    {"\n  # comment\n\tmodel = m # more\r\n", NULL},
    {"model = \"m\"   # quoted", NULL},
    {"model = x\nmodel = m\n", NULL},
    {"[cpu]\nthreads = 2\n[]\nmodel = m", NULL},
    {"[ cpu ]\nthreads = 2\n[ ]\nmodel = m", NULL},
    {"\xEF\xBB\xBFmodel = m\r\n", NULL},
    {"\xEF\xBB\xBF[]\r\nmodel\t=\tm\t\r\n", NULL},
    {"port = 1\nmodl = m\n", ":2: unknown option 'modl': did you mean 'model'"},
    {"[sched]\nmodel = m\n", ":2: unknown option 'sched.model'"},
    {"[sched\n", ":1: a section is written [name]"},
    {"model\n", ":1: expected key = value"},
    {"model = \"m\n", ":1: a quoted value has no end"},
    {"model = \"m\" x\n", ":1: a quoted value has no end, or something follows it"},
    {"port = 70000\n", ":1: option port: 70000 is out of bounds (0 to 65535)"},
};

START_TEST(files_are_read_by_lines_and_errors_name_file_and_line)
{
    const struct file_row *r = &files[_i];
    struct settings s;
    struct err e;
    char *path = make_file(r->text);
    settings_init(&s);
    enum status st = settings_load_file(&s, path, &e);
    unlink(path);
    if (r->says) {
        ck_assert_int_eq(st, ERR_INVALID);
        ck_assert_msg(strstr(e.text, r->says) && strstr(e.text, path), "%s", e.text);
    } else {
        ck_assert_msg(st == OK, "%s", e.text);
        ck_assert_str_eq(s.model, "m");
    }
    settings_release(&s);
}
END_TEST

START_TEST(a_file_that_is_too_large_or_binary_is_refused)
{
    struct settings s;
    struct err e;
    settings_init(&s);
    ck_assert_int_eq(settings_load_file(&s, "/dev/zero", &e), ERR_TOO_LARGE);
    ck_assert_int_eq(settings_load_file(&s, "/proc/self/environ", &e), ERR_INVALID);
    ck_assert_int_eq(settings_load_file(&s, "/", &e), ERR_IO);
    settings_release(&s);
}
END_TEST

START_TEST(a_dump_loads_back_to_the_same_settings)
{
    struct settings s, back;
    struct err e;
    struct buf text = {0}, again = {0}, value = {0};
    settings_init(&s);
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (!(option_table[i].flags & OPTION_SECRET))
            ck_assert_int_eq(
                option_set(&option_table[i], &s, other_value(&option_table[i], &value), &e), OK);
    ck_assert_int_eq(settings_set(&s, "host", " \"#\\ x", &e), OK);
    ck_assert_int_eq(settings_set(&s, "model.alias", "two # \"", &e), OK);
    dump(&s, true, &text);
    char *path = make_file(text.ptr);
    settings_init(&back);
    ck_assert_msg(settings_load_file(&back, path, &e) == OK, "%s", e.text);
    unlink(path);
    dump(&back, true, &again);
    ck_assert_str_eq(text.ptr, again.ptr);
    settings_release(&s);
    settings_release(&back);
    buf_release(&text);
    buf_release(&again);
    buf_release(&value);
}
END_TEST

START_TEST(help_wins_over_everything_behind_it)
{
    struct settings s;
    struct err e;
    char *argv[] = {"--port=1", "--help", "--nonsense"};
    char *env[] = {"MILLRACE_NONSENSE=1", NULL};
    bool wants_help = false;
    settings_init(&s);
    ck_assert_int_eq(settings_load(&s, 3, argv, env, &wants_help, &e), OK);
    ck_assert(wants_help);
    argv[1] = "-h";
    ck_assert_int_eq(settings_load(&s, 2, argv, env, &wants_help, &e), OK);
    ck_assert(wants_help);
    settings_release(&s);
}
END_TEST

/* In lines of so many columns, but for words that are longer. */
START_TEST(help_names_every_option_and_keeps_to_its_width)
{
    int width = 40 + 20 * _i;
    char *help = NULL;
    size_t n;
    FILE *f = open_memstream(&help, &n);
    settings_print_help(f, width);
    fclose(f);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        char name[80];
        snprintf(name, sizeof(name), "  --%s ", option_table[i].name);
        ck_assert_ptr_nonnull(strstr(help, name));
    }
    for (const char *line = help; *line;) {
        int n_line = (int)strcspn(line, "\n");
        int n_indent = (int)strspn(line, " ");
        bool one_word = !memchr(line + n_indent, ' ', (size_t)(n_line - n_indent));
        ck_assert_msg(n_line <= width || one_word, "%.*s", n_line, line);
        line += n_line + 1;
    }
    free(help);
}
END_TEST

START_TEST(a_word_names_the_model_where_a_model_is_served)
{
    struct settings s;
    struct err e;
    bool help;
    char *argv[] = {"--port", "1", "a.gguf", "--cpu.pin"};
    char *twice[] = {"a.gguf", "b.gguf"};
    settings_init(&s);
    ck_assert_msg(settings_load_model(&s, 4, argv, NULL, &help, &e) == OK, "%s", e.text);
    ck_assert_str_eq(s.model, "a.gguf");
    ck_assert(s.port == 1 && s.cpu_pin);
    ck_assert_int_eq(settings_load_model(&s, 2, twice, NULL, &help, &e), ERR_INVALID);
    ck_assert_msg(strstr(e.text, "unexpected argument 'b.gguf'"), "%s", e.text);
    settings_release(&s);
}
END_TEST

/* Each name of ours that the table of other servers' words gives is an option. */
START_TEST(foreign_words_name_options_that_exist)
{
    static const char *const ours[] = {
#define FOREIGN(name, ours, note) ours,
#include "config/foreign.def"
#undef FOREIGN
    };
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        ck_assert_msg(!*ours[i] || option_find(ours[i]), "%s", ours[i]);
    static const char *const theirs[] = {
#define FOREIGN(name, ours, note) name,
#include "config/foreign.def"
#undef FOREIGN
    };
    for (size_t i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++)
        ck_assert_msg(!option_find(theirs[i]), "%s is an option", theirs[i]);
}
END_TEST

/* With UPDATE_GENERATED=1 in the environment the file is written anew instead. */
START_TEST(the_default_file_is_what_the_table_says)
{
    struct settings s;
    struct buf wanted = {0}, got = {0}, path = {0};
    const char *tail = "tests/unit/config/test_settings.c";
    buf_add(&path, __FILE__, strlen(__FILE__) - strlen(tail));
    buf_add_c(&path, "config/millrace.conf");
    settings_init(&s);
    dump(&s, true, &wanted);
    if (getenv("UPDATE_GENERATED")) {
        FILE *out = fopen(path.ptr, "w");
        ck_assert_ptr_nonnull(out);
        fputs(wanted.ptr, out);
        fclose(out);
    }
    FILE *f = fopen(path.ptr, "r");
    ck_assert_ptr_nonnull(f);
    char block[1024];
    for (size_t n; (n = fread(block, 1, sizeof(block), f)) > 0;)
        buf_add(&got, block, n);
    fclose(f);
    ck_assert_msg(str_eq(buf_str(&wanted), buf_str(&got)),
                  "config/millrace.conf is stale: run this test with UPDATE_GENERATED=1");
    settings_release(&s);
    buf_release(&wanted);
    buf_release(&got);
    buf_release(&path);
}
END_TEST

#define ROWS(table) (int)(sizeof(table) / sizeof((table)[0]))

int main(void)
{
    Suite *suite = suite_create("config/settings");
    TCase *t = tcase_create("settings");
    tcase_add_loop_test(t, each_default_is_valid_and_shown_again, 0, N_OPTIONS);
    tcase_add_loop_test(t, a_word_sets_the_constant_of_its_row, 0, ROWS(words));
    tcase_add_loop_test(t, each_option_comes_from_file_environment_and_command_line, 0, N_OPTIONS);
    tcase_add_loop_test(t, each_bound_is_kept_and_named, 0, N_OPTIONS);
    tcase_add_test(t, names_are_unique_in_the_environment_too);
    tcase_add_test(t, default_file_environment_command_line_in_that_order);
    tcase_add_test(t, empty_items_of_a_list_are_none);
    tcase_add_loop_test(t, values_are_read_by_type_and_refused_with_reason, 0, ROWS(values));
    tcase_add_test(t, a_very_long_name_or_value_is_refused);
    tcase_add_loop_test(t, unknown_variables_are_refused_but_not_those_of_others, 0,
                        ROWS(env_rows));
    tcase_add_loop_test(t, files_are_read_by_lines_and_errors_name_file_and_line, 0, ROWS(files));
    tcase_add_test(t, a_file_that_is_too_large_or_binary_is_refused);
    tcase_add_test(t, a_dump_loads_back_to_the_same_settings);
    tcase_add_test(t, help_wins_over_everything_behind_it);
    tcase_add_loop_test(t, help_names_every_option_and_keeps_to_its_width, 0, 5);
    tcase_add_test(t, a_word_names_the_model_where_a_model_is_served);
    tcase_add_test(t, foreign_words_name_options_that_exist);
    tcase_add_test(t, the_default_file_is_what_the_table_says);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
