/* Arguments of the verbs that take options of their own besides those of the server. Thread: main. */
#ifndef SERVER_CLI_VERB_H
#define SERVER_CLI_VERB_H

#include <stdbool.h>

#include "base/status.h"

struct verb_option {
    const char *name; /* NULL ends a list */
    const char *value; /* what it takes, as shown; NULL: nothing */
    const char *help;
};

/* Arguments not taken yet. */
struct verb_args {
    char **arg; /* owns the array, borrows its strings */
    int n;
};

void verb_args_init(struct verb_args *a, int argc, char **argv);
void verb_args_release(struct verb_args *a);
/* Takes the first argument unless it is an option; NULL otherwise. */
const char *verb_word(struct verb_args *a);
/* Takes every --name VALUE and --name=VALUE of the list out of a; the last one counts. *value[i] belongs to
 * option i: its text, "" for an option without a value; untouched when it is not there. ERR_INVALID when
 * a value is missing. */
enum status verb_take(struct verb_args *a, const struct verb_option *option, const char **value[],
                      struct err *e);
/* Is --help or -h among the arguments? */
bool verb_wants_help(const struct verb_args *a);
/* Usage behind "millrace ", what the verb does, its options, a closing remark or ""; in lines that fit the
 * terminal. */
void verb_print_help(const char *usage, const char *what, const struct verb_option *option,
                     const char *more);

/* Whole text as a number within bounds. ERR_INVALID names the option and the bounds. */
enum status verb_number(const char *name, const char *text, double min, double max, double *out,
                        struct err *e);

#endif
