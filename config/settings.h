/* All options as one struct, made from settings.def. Read-only after settings_load. */
#ifndef CONFIG_SETTINGS_H
#define CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct settings_list {
    char **item; /* owns */
    size_t n;
};

/* enum settings_<id> of each ENUM row: its constants. */
#define SETTINGS_WORDS_STR(id, words)
#define SETTINGS_WORDS_BOOL(id, words)
#define SETTINGS_WORDS_INT(id, words)
#define SETTINGS_WORDS_FLOAT(id, words)
#define SETTINGS_WORDS_SIZE(id, words)
#define SETTINGS_WORDS_MS(id, words)
#define SETTINGS_WORDS_ENUM(id, ...) enum settings_##id{__VA_ARGS__};
#define SETTINGS_WORDS_LIST(id, words)
#define CHOICE(constant, word) constant
#define OR(constant, word) , constant
#define HELP(text)
#define X(id, name, type, def, min, max, flags, help) SETTINGS_WORDS_##type(id, help)
#include "config/settings.def"
#undef X
#undef HELP
#undef OR
#undef CHOICE

#define SETTINGS_TYPE_STR char *
#define SETTINGS_TYPE_BOOL bool
#define SETTINGS_TYPE_INT int64_t
#define SETTINGS_TYPE_FLOAT double
#define SETTINGS_TYPE_SIZE uint64_t
#define SETTINGS_TYPE_MS int64_t
#define SETTINGS_TYPE_ENUM int
#define SETTINGS_TYPE_LIST struct settings_list

struct settings {
#define X(id, name, type, def, min, max, flags, help) SETTINGS_TYPE_##type id;
#include "config/settings.def"
#undef X
};

void settings_init(struct settings *s); /* the defaults */
void settings_release(struct settings *s);

/* Sets one option from text. Unknown name: ERR_INVALID that suggests the nearest; a value outside its
 * bounds: ERR_INVALID naming option, value and bounds. LIST appends. */
enum status settings_set(struct settings *s, const char *name, const char *value, struct err *e);
/* key = value lines, # comments, [section] prefixes "section."; errors name file and line. */
enum status settings_load_file(struct settings *s, const char *path, struct err *e);
/* MILLRACE_<OPTION>: name in upper case with . and - as _; a LIST is separated by commas. An unknown
 * MILLRACE_* name is an error, but for MILLRACE_CONFIG (settings_load), the tests' own names, and the
 * variables that Kubernetes injects for a service named millrace. */
enum status settings_load_env(struct settings *s, char **environ, struct err *e);
/* --name value, --name=value, --set name=value, --config FILE (or MILLRACE_CONFIG); applies default < file < environment <
 * command line. argv[0] is the first argument after the verb. --help is left to the caller
 * (*wants_help). */
enum status settings_load(struct settings *s, int argc, char **argv, char **environ,
                          bool *wants_help, struct err *e);
/* The same for a program that serves a model: -m is --model, and a word that is no option names it. */
enum status settings_load_model(struct settings *s, int argc, char **argv, char **environ,
                                bool *wants_help, struct err *e);
void settings_print_help(FILE *out, int width); /* all options, in lines of so many columns */

#endif
