/* Where options come from: defaults, file, environment, command line; see settings.h. */
#include "config/settings.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/text_file.h"
#include "config/option_table.h"

enum { MAX_NAME = 64, MAX_FILE_BYTES = 1 << 20 };

/* One place that options come from. The first value it has for a list replaces what earlier places
 * gave; more are added. */
struct source {
    struct settings *s;
    bool seen[N_OPTIONS];
};

static enum status set_from(struct source *src, const struct option *o, const char *value,
                            struct err *e)
{
    size_t i = (size_t)(o - option_table);
    if (o->type == OPTION_LIST && !src->seen[i])
        option_clear_list(o, src->s);
    src->seen[i] = true;
    return option_set(o, src->s, value, e);
}

/* ---- the nearest name ---- */

/* "threads" is meant for "cpu.threads", however many edits that takes. */
static bool ends_with_part(const char *name, const char *part)
{
    size_t n = strlen(name), n_part = strlen(part);
    return n_part && n > n_part && strcmp(name + n - n_part, part) == 0 &&
           strchr("._", name[n - n_part - 1]);
}

/* Appends the option's name, or its environment name, that was meant; nothing when none is near. */
static void add_nearest(struct buf *out, const char *given, bool env)
{
    const char *part = env ? given + strlen("MILLRACE_") : given;
    size_t least = edit_distance_of_slips(part) + 1;
    struct buf best = {0}, name = {0};
    for (size_t i = 0; i < N_OPTIONS; i++) {
        buf_clear(&name);
        if (env)
            option_env_name(&option_table[i], &name);
        else
            buf_add_c(&name, option_table[i].name);
        size_t distance = ends_with_part(name.ptr, part) ? 1 : edit_distance(given, name.ptr);
        if (distance < least) {
            least = distance;
            buf_clear(&best);
            buf_add_str(&best, buf_str(&name));
        }
    }
    buf_add_str(out, buf_str(&best));
    buf_release(&best);
    buf_release(&name);
}

struct foreign {
    const char *name, *ours, *note;
};

static const struct foreign foreign_names[] = {
#define FOREIGN(name, ours, note) {name, ours, note},
#include "config/foreign.def"
#undef FOREIGN
};

/* An option of another server by its name without dashes, NULL. */
static const struct foreign *find_foreign(const char *given)
{
    for (size_t i = 0; i < sizeof(foreign_names) / sizeof(foreign_names[0]); i++)
        if (option_names_equal(foreign_names[i].name, given))
            return &foreign_names[i];
    return NULL;
}

static void add_foreign(struct buf *out, const struct foreign *f)
{
    if (*f->ours)
        buf_printf(out, ": here it is '%s'", f->ours);
    if (*f->note)
        buf_printf(out, "%s%s", *f->ours ? ", " : ": ", f->note);
}

static enum status unknown(const char *kind, const char *given, bool env, struct err *e)
{
    struct buf shown = {0}, hint = {0}, nearest = {0};
    const struct foreign *f = env ? NULL : find_foreign(given + strspn(given, "-"));
    json_add_escaped(&shown, (struct str){given, strnlen(given, 80)});
    add_nearest(&nearest, given, env);
    if (f)
        add_foreign(&hint, f);
    else if (nearest.len)
        buf_printf(&hint, ": did you mean '%s'", nearest.ptr);
    else if (!env)
        buf_add_c(&hint, ": `millrace serve --help` lists all");
    err_set_field(e, ERR_INVALID, env ? NULL : shown.ptr, NULL, "unknown %s '%s'%s", kind,
                  shown.ptr ? shown.ptr : "", hint.ptr ? hint.ptr : "");
    buf_release(&shown);
    buf_release(&hint);
    buf_release(&nearest);
    return ERR_INVALID;
}

/* ---- defaults ---- */

void settings_init(struct settings *s)
{
    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &option_table[i];
        struct err e;
        if (o->type != OPTION_LIST)
            CHECKF(option_set(o, s, o->def, &e) == OK, "default: %s", e.text);
    }
}

void settings_release(struct settings *s)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &option_table[i];
        if (o->type == OPTION_LIST)
            option_clear_list(o, s);
        else if (o->type == OPTION_STR)
            mem_free(*(char **)((char *)s + o->offset));
    }
    memset(s, 0, sizeof(*s));
}

enum status settings_set(struct settings *s, const char *name, const char *value, struct err *e)
{
    const struct option *o = option_find(name);
    return o ? option_set(o, s, value, e) : unknown("option", name, false, e);
}

/* ---- file ---- */

static char *trim(char *s)
{
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n && strchr(" \t", s[n - 1]))
        n--;
    s[n] = 0;
    return s;
}

/* Ends the line at a comment: # at its start or after a blank, outside a quoted value. */
static void cut_comment(char *line)
{
    bool quoted = false;
    for (char *p = line; *p; p++) {
        if (quoted && *p == '\\' && p[1])
            p++;
        else if (*p == '"' && (quoted || (p > line && strchr("= \t", p[-1]))))
            quoted = !quoted;
        else if (!quoted && *p == '#' && (p == line || strchr(" \t", p[-1]))) {
            *p = 0;
            return;
        }
    }
}

/* "..." with \" and \\ inside; anything else stands for itself. False when the end is missing. */
static bool unquote(char *value)
{
    if (*value != '"')
        return true;
    char *to = value, *from = value + 1;
    while (*from && *from != '"') {
        if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
            from++;
        *to++ = *from++;
    }
    bool closed = from[0] == '"' && from[1] == 0;
    *to = 0;
    return closed;
}

static enum status read_line(struct source *src, char *line, char section[MAX_NAME + 2],
                             struct err *e)
{
    cut_comment(line);
    line = trim(line);
    if (*line == 0)
        return OK;
    size_t n = strlen(line);
    if (*line == '[') {
        if (line[n - 1] != ']' || n - 2 > MAX_NAME)
            return err_set(e, ERR_INVALID, "a section is written [name]");
        line[n - 1] = 0;
        line = trim(line + 1);
        snprintf(section, MAX_NAME + 2, "%s%s", line, *line ? "." : "");
        return OK;
    }
    char *equals = strchr(line, '=');
    if (!equals)
        return err_set(e, ERR_INVALID, "expected key = value");
    *equals = 0;
    char *value = trim(equals + 1);
    if (!unquote(value))
        return err_set(e, ERR_INVALID, "a quoted value has no end, or something follows it");
    struct buf name = {0};
    buf_printf(&name, "%s%s", section, trim(line));
    const struct option *o = option_find(name.ptr);
    enum status st = o ? set_from(src, o, value, e) : unknown("option", name.ptr, false, e);
    buf_release(&name);
    return st;
}

enum status settings_load_file(struct settings *s, const char *path, struct err *e)
{
    struct source src = {.s = s};
    struct buf text = {0};
    char section[MAX_NAME + 2] = "";
    enum status st = text_file_read("config file", path, MAX_FILE_BYTES, &text, e);
    char *line = text.ptr;
    for (size_t n_line = 1; st == OK && line; n_line++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        st = read_line(&src, line, section, e);
        if (st)
            err_prefix(e, "%.200s:%zu", path, n_line);
        line = end ? end + 1 : NULL;
    }
    buf_release(&text);
    return st;
}

/* ---- environment ---- */

/* Names in our space that are no options: MILLRACE_CONFIG names the config file, the rest belong to
 * the tests. */
static const char *const other_env[] = {"MILLRACE_CONFIG", "MILLRACE_TEST_DATA", "MILLRACE_BUILD",
                                        "MILLRACE_BIN"};

static bool has_suffix(struct str s, const char *suffix)
{
    size_t n = strlen(suffix);
    return s.len >= n && memcmp(s.ptr + s.len - n, suffix, n) == 0;
}

/* Kubernetes hands every pod the addresses of the services in its namespace: a service named
 * millrace (or millrace-x) injects MILLRACE_PORT=tcp://10.0.0.1:80, MILLRACE_SERVICE_HOST,
 * MILLRACE_SERVICE_PORT, MILLRACE_SERVICE_PORT_HTTP, MILLRACE_PORT_80_TCP and so on. Not ours. */
static bool is_service_variable(struct str name, const char *value)
{
    static const char *const protocols[] = {"TCP", "UDP", "SCTP"};
    static const char *const schemes[] = {"tcp://", "udp://", "sctp://"};
    static const char *const tails[] = {"", "_PROTO", "_PORT", "_ADDR"};
    if (has_suffix(name, "_SERVICE_HOST") || has_suffix(name, "_SERVICE_PORT") ||
        memmem(name.ptr, name.len, "_SERVICE_PORT_", strlen("_SERVICE_PORT_")))
        return true;
    for (size_t i = 0; i < 3; i++)
        if (has_suffix(name, "_PORT") && str_starts(str_of(value), str_of(schemes[i])))
            return true;
    const char *port = memmem(name.ptr, name.len, "_PORT_", strlen("_PORT_"));
    if (!port)
        return false;
    port += strlen("_PORT_");
    size_t n_digits = strspn(port, "0123456789");
    for (size_t i = 0; n_digits && port[n_digits] == '_' && i < 3 * 4; i++) {
        char tail[16];
        snprintf(tail, sizeof(tail), "%s%s=", protocols[i / 4], tails[i % 4]);
        if (strncmp(port + n_digits + 1, tail, strlen(tail)) == 0)
            return true;
    }
    return false;
}

static bool is_other_env(struct str name)
{
    for (size_t i = 0; i < sizeof(other_env) / sizeof(other_env[0]); i++)
        if (str_eq_c(name, other_env[i]))
            return true;
    return false;
}

static const struct option *find_env(struct str name)
{
    const struct option *found = NULL;
    struct buf own = {0};
    for (size_t i = 0; i < N_OPTIONS && !found; i++) {
        buf_clear(&own);
        option_env_name(&option_table[i], &own);
        if (str_eq(buf_str(&own), name))
            found = &option_table[i];
    }
    buf_release(&own);
    return found;
}

/* A list is separated by commas. */
static enum status set_env(struct source *src, const struct option *o, const char *value,
                           struct err *e)
{
    if (o->type != OPTION_LIST)
        return set_from(src, o, value, e);
    enum status st = OK;
    while (st == OK) {
        size_t n = strcspn(value, ",");
        char *item = mem_dup(value, n);
        st = set_from(src, o, item, e);
        mem_free(item);
        if (value[n] == 0)
            break;
        value += n + 1;
    }
    return st;
}

enum status settings_load_env(struct settings *s, char **environ, struct err *e)
{
    struct source src = {.s = s};
    for (char **p = environ; p && *p; p++) {
        const char *equals = strchr(*p, '=');
        if (!equals || !str_starts(str_of(*p), STR_LIT("MILLRACE_")))
            continue;
        struct str name = {*p, (size_t)(equals - *p)};
        if (is_other_env(name) || is_service_variable(name, equals + 1))
            continue;
        const struct option *o = find_env(name);
        char *c_name = mem_dup(name.ptr, name.len);
        enum status st =
            o ? set_env(&src, o, equals + 1, e) : unknown("environment variable", c_name, true, e);
        if (st && o)
            err_prefix(e, "%.100s", c_name);
        mem_free(c_name);
        if (st)
            return st;
    }
    return OK;
}

/* ---- command line ---- */

struct args {
    int argc;
    char **argv;
    bool word_is_model; /* a word that is no option names the model, once */
    int i; /* next to read */
};

struct arg {
    char name[2 * MAX_NAME]; /* without the dashes */
    const char *value; /* borrows from argv, NULL for none */
};

static enum status name_of(struct arg *a, const char *text, size_t n, struct err *e)
{
    if (n >= sizeof(a->name))
        return err_set(e, ERR_INVALID, "option name of %zu bytes is over the limit of %zu", n,
                       sizeof(a->name) - 1);
    memcpy(a->name, text, n);
    a->name[n] = 0;
    return OK;
}

static bool is_bool_text(const char *text)
{
    return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
}

/* What is no --name: -h and -m, a word that names the model; all else is refused. */
static enum status read_short(struct args *args, struct arg *a, const char *text, struct err *e)
{
    if (args->word_is_model && text[0] != '-') {
        args->word_is_model = false;
        a->value = text;
        return name_of(a, "model", strlen("model"), e);
    }
    if (text[0] == '-' && text[1] && text[1] != '-' && find_foreign(text + 1))
        return unknown("option", text, false, e);
    return err_set(e, ERR_INVALID, "unexpected argument '%.80s': options are written --name", text);
}

/* --name=value or --name value; BOOL options take true and false only from the next argument, --help and
 * -h nothing. */
static enum status next_arg(struct args *args, struct arg *a, struct err *e)
{
    const char *text = args->argv[args->i++];
    if (strcmp(text, "-h") == 0)
        text = "--help";
    if (strcmp(text, "-m") == 0)
        text = "--model";
    if (text[0] != '-' || text[1] != '-' || !text[2])
        return read_short(args, a, text, e);
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    enum status st = name_of(a, text + 2, n - 2, e);
    if (st)
        return st;
    a->value = equals ? equals + 1 : NULL;
    const struct option *o = option_find(a->name);
    if (o && o->type == OPTION_BOOL && !a->value && args->i < args->argc &&
        is_bool_text(args->argv[args->i]))
        a->value = args->argv[args->i++];
    if (a->value || strcmp(a->name, "help") == 0 || (o && o->type == OPTION_BOOL))
        return OK;
    if (!o && strcmp(a->name, "set") != 0 && strcmp(a->name, "config") != 0)
        return unknown("option", a->name, false, e);
    if (args->i == args->argc)
        return err_set_field(e, ERR_INVALID, a->name, NULL, "option --%s needs a value", a->name);
    a->value = args->argv[args->i++];
    return OK;
}

static enum status apply_arg(struct source *src, struct arg *a, struct err *e)
{
    if (strcmp(a->name, "config") == 0)
        return OK;
    if (strcmp(a->name, "set") == 0) {
        const char *equals = strchr(a->value, '=');
        if (!equals)
            return err_set(e, ERR_INVALID, "--set takes name=value, not '%.80s'", a->value);
        const char *value = equals + 1;
        enum status st = name_of(a, a->value, (size_t)(equals - a->value), e);
        if (st)
            return st;
        a->value = value;
    }
    const struct option *o = option_find(a->name);
    if (!o)
        return unknown("option", a->name, false, e);
    return set_from(src, o, a->value ? a->value : "true", e);
}

/* The rules that no single row can state. */
static enum status check_together(const struct settings *s, struct err *e)
{
    if (s->kv_block_tokens % 8 != 0)
        return err_set_field(e, ERR_INVALID, "kv.block_tokens", NULL,
                             "option kv.block_tokens: %lld is not a multiple of 8",
                             (long long)s->kv_block_tokens);
    return OK;
}

static const char *find_env_value(char **environ, const char *name)
{
    size_t n = strlen(name);
    for (char **p = environ; p && *p; p++)
        if (strncmp(*p, name, n) == 0 && (*p)[n] == '=')
            return *p + n + 1;
    return NULL;
}

/* Looks through the arguments once for --help and loads what --config names on the way, so that a
 * file never overrides another place. */
static enum status load_files(struct settings *s, struct args args, char **environ,
                              bool *wants_help, struct err *e)
{
    struct arg a;
    bool any = false;
    while (args.i < args.argc) {
        enum status st = next_arg(&args, &a, e);
        if (st)
            return st;
        if (strcmp(a.name, "help") == 0) {
            *wants_help = true;
            return OK;
        }
        if (strcmp(a.name, "config") != 0)
            continue;
        any = true;
        st = settings_load_file(s, a.value, e);
        if (st)
            return st;
    }
    const char *path = find_env_value(environ, "MILLRACE_CONFIG");
    return path && *path && !any ? settings_load_file(s, path, e) : OK;
}

static enum status load_all(struct settings *s, struct args args, char **environ, bool *wants_help,
                            struct err *e)
{
    *wants_help = false;
    enum status st = load_files(s, args, environ, wants_help, e);
    if (st == OK && !*wants_help)
        st = settings_load_env(s, environ, e);
    struct source src = {.s = s};
    while (st == OK && !*wants_help && args.i < args.argc) {
        struct arg a;
        st = next_arg(&args, &a, e);
        if (st == OK)
            st = apply_arg(&src, &a, e);
    }
    return st == OK && !*wants_help ? check_together(s, e) : st;
}

enum status settings_load(struct settings *s, int argc, char **argv, char **environ,
                          bool *wants_help, struct err *e)
{
    return load_all(s, (struct args){argc, argv, false, 0}, environ, wants_help, e);
}

enum status settings_load_model(struct settings *s, int argc, char **argv, char **environ,
                                bool *wants_help, struct err *e)
{
    return load_all(s, (struct args){argc, argv, true, 0}, environ, wants_help, e);
}
