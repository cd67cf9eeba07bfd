/* The options table as text for people: --help, the documented config file. */
#include <string.h>

#include "base/buf.h"
#include "config/settings_test.h"
#include "config/term.h"
#include "config/option_table.h"
#include "config/settings.h"

enum { HELP_COLUMN = 36 };

static const char *const value_names[] = {
    [OPTION_STR] = "TEXT",   [OPTION_BOOL] = "",   [OPTION_INT] = "N",     [OPTION_FLOAT] = "X",
    [OPTION_SIZE] = "BYTES", [OPTION_MS] = "TIME", [OPTION_ENUM] = "NAME", [OPTION_LIST] = "TEXT"};

/* Bytes of the part before the point; 0 for names without one. */
static size_t prefix_len(const char *name)
{
    const char *point = strchr(name, '.');
    return point ? (size_t)(point - name) : 0;
}

static bool same_prefix(const char *a, const char *b)
{
    return prefix_len(a) == prefix_len(b) && memcmp(a, b, prefix_len(a)) == 0;
}

/* Calls visit for each option, those of one prefix together, in the order of first appearance. */
static void for_each_grouped(void (*visit)(const struct option *o, bool starts_group, void *arg),
                             void *arg)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const char *name = option_table[i].name;
        size_t first = 0;
        while (!same_prefix(option_table[first].name, name))
            first++;
        for (size_t k = i; first == i && k < N_OPTIONS; k++)
            if (same_prefix(option_table[k].name, name))
                visit(&option_table[k], k == i, arg);
    }
}

/* "default 64, 1 to 4096" */
static void add_facts(const struct option *o, struct buf *out)
{
    buf_printf(out, "default %s", o->def[0] ? o->def : "empty");
    struct buf bounds = {0};
    option_bounds(o, &bounds);
    if (bounds.len)
        buf_printf(out, ", %s", bounds.ptr);
    buf_release(&bounds);
}

struct help {
    FILE *out;
    int width;
};

/* A name and what it is, side by side where there is room. */
static void print_pair(const struct help *h, const char *left, const char *right)
{
    enum { NARROW = 76, NARROW_INDENT = 8 };
    int column = h->width < NARROW ? NARROW_INDENT : HELP_COLUMN + 1;
    fputs(left, h->out);
    if ((int)strlen(left) >= column)
        fprintf(h->out, "\n%*s", column, "");
    else
        fprintf(h->out, "%*s", column - (int)strlen(left), "");
    term_wrap(h->out, right, column, column, h->width);
}

static void print_help_row(const struct option *o, bool starts_group, void *arg)
{
    const struct help *h = arg;
    struct buf left = {0}, right = {0};
    size_t n_prefix = prefix_len(o->name);
    if (starts_group)
        fprintf(h->out, "\n%.*s:\n", n_prefix ? (int)n_prefix : 7, n_prefix ? o->name : "general");
    buf_printf(&left, "  --%s %s", o->name, value_names[o->type]);
    buf_printf(&right, "%s [", o->help);
    add_facts(o, &right);
    buf_add_char(&right, ']');
    print_pair(h, left.ptr, right.ptr);
    buf_release(&left);
    buf_release(&right);
}

void settings_print_help(FILE *out, int width)
{
    struct help h = {out, width};
    term_wrap(out,
              "options (also as --set name=value, as name = value in a config file, and as "
              "MILLRACE_NAME in the environment with . and - as _; sizes take KiB, MiB, GiB, TiB; "
              "times take ms, s, min; default < file < environment < command line):",
              0, 0, width);
    fputc('\n', out);
    print_pair(&h, "  --config FILE", "config file (environment: MILLRACE_CONFIG)");
    print_pair(&h, "  --set NAME=VALUE", "sets any option");
    print_pair(&h, "  --help", "this text");
    for_each_grouped(print_help_row, &h);
}

struct dump {
    const struct settings *s;
    FILE *out;
    bool comments;
};

/* Quoted where the file's syntax would read the plain text otherwise. */
static void print_value(FILE *out, const struct buf *value)
{
    const char *text = value->len ? value->ptr : "";
    size_t n = value->len;
    bool plain = n == 0 || (!strpbrk(text, "\"\\#") && text[0] != ' ' && text[n - 1] != ' ');
    if (plain) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void print_item(const struct dump *d, const struct option *o, size_t i_item)
{
    struct buf value = {0};
    option_value(o, d->s, i_item, &value);
    bool hidden = (o->flags & OPTION_SECRET) && value.len;
    fprintf(d->out, hidden ? "# %s = (hidden)" : value.len ? "%s = " : "%s =", o->name);
    if (!hidden)
        print_value(d->out, &value);
    fputc('\n', d->out);
    buf_release(&value);
}

static void print_dump_row(const struct option *o, bool starts_group, void *arg)
{
    (void)starts_group;
    const struct dump *d = arg;
    if (d->comments) {
        struct buf facts = {0};
        add_facts(o, &facts);
        fprintf(d->out, "\n# %s [%s]\n", o->help, facts.ptr);
        buf_release(&facts);
    }
    if (o->type != OPTION_LIST) {
        print_item(d, o, 0);
        return;
    }
    const struct settings_list *list = (const void *)((const char *)d->s + o->offset);
    for (size_t i = 0; i < list->n; i++)
        print_item(d, o, i);
    if (list->n == 0 && d->comments)
        fprintf(d->out, "# %s =\n", o->name);
}

void settings_dump(const struct settings *s, FILE *out, bool comments)
{
    struct dump d = {s, out, comments};
    if (comments)
        fputs("# Every option of millrace with its value. Lines are name = value; [section] puts "
              "\"section.\"\n# before the names that follow; # starts a comment; \"...\" keeps "
              "blanks and #. Sizes take KiB,\n# MiB, GiB, TiB; times take ms, s, min.\n",
              out);
    for_each_grouped(print_dump_row, &d);
}
