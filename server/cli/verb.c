/* Reading verbs' arguments; see verb.h. */
#include "server/cli/verb.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/term.h"

void verb_args_init(struct verb_args *a, int argc, char **argv)
{
    a->n = argc > 0 ? argc : 0;
    a->arg = mem_alloc(mem_mul((size_t)a->n + 1, sizeof(*a->arg)));
    for (int i = 0; i < a->n; i++)
        a->arg[i] = argv[i];
}

void verb_args_release(struct verb_args *a)
{
    mem_free(a->arg);
}

static char *take_at(struct verb_args *a, int i)
{
    char *text = a->arg[i];
    a->n--;
    memmove(a->arg + i, a->arg + i + 1, (size_t)(a->n - i) * sizeof(*a->arg));
    return text;
}

const char *verb_word(struct verb_args *a)
{
    return a->n && (a->arg[0][0] != '-' || !a->arg[0][1]) ? take_at(a, 0) : NULL;
}

/* Index of the option that the argument names, -1: none of them. *inline_value: behind '='. */
static int option_of(const char *arg, const struct verb_option *option, const char **inline_value)
{
    if (strncmp(arg, "--", 2) != 0)
        return -1;
    const char *name = arg + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    *inline_value = equals ? equals + 1 : NULL;
    for (int i = 0; option[i].name; i++)
        if (strlen(option[i].name) == n && memcmp(option[i].name, name, n) == 0)
            return i;
    return -1;
}

enum status verb_take(struct verb_args *a, const struct verb_option *option, const char **value[],
                      struct err *e)
{
    for (int at = 0; at < a->n;) {
        const char *text;
        int i = option_of(a->arg[at], option, &text);
        if (i < 0) {
            at++;
            continue;
        }
        take_at(a, at);
        if (!option[i].value)
            text = "";
        else if (!text && at < a->n)
            text = take_at(a, at);
        else if (!text)
            return err_set_field(e, ERR_INVALID, option[i].name, NULL, "option --%s needs a value",
                                 option[i].name);
        *value[i] = text;
    }
    return OK;
}

bool verb_wants_help(const struct verb_args *a)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->arg[i], "--help") == 0 || strcmp(a->arg[i], "-h") == 0)
            return true;
    return false;
}

void verb_print_help(const char *usage, const char *what, const struct verb_option *option,
                     const char *more)
{
    enum { COLUMN = 28, NARROW = 72, NARROW_INDENT = 8 };
    int width = term_width(stdout), column = width < NARROW ? NARROW_INDENT : COLUMN;
    fputs("usage: millrace ", stdout);
    term_wrap(stdout, usage, 16, 16, width);
    putchar('\n');
    term_wrap(stdout, what, 0, 0, width);
    if (option->name)
        putchar('\n');
    for (; option->name; option++) {
        char left[64];
        int n = snprintf(left, sizeof(left), "  --%s%s%s", option->name, option->value ? " " : "",
                         option->value ? option->value : "");
        if (n < column)
            printf("%-*s", column, left);
        else
            printf("%s\n%*s", left, column, "");
        term_wrap(stdout, option->help, column, column, width);
    }
    if (*more) {
        putchar('\n');
        term_wrap(stdout, more, 0, 0, width);
    }
}

enum status verb_number(const char *name, const char *text, double min, double max, double *out,
                        struct err *e)
{
    char *end;
    double x = strtod(text, &end);
    if (end != text && !*end && isfinite(x) && x >= min && x <= max) {
        *out = x;
        return OK;
    }
    return err_set_field(e, ERR_INVALID, name, NULL,
                         "option --%s: '%.40s' is not a number from %g to %g", name, text, min,
                         max);
}
