/* The rows of settings.def as data. Internal to config/ and its tests. */
#ifndef CONFIG_OPTION_TABLE_H
#define CONFIG_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "config/settings.h"

enum option_type {
    OPTION_STR,
    OPTION_BOOL,
    OPTION_INT,
    OPTION_FLOAT,
    OPTION_SIZE,
    OPTION_MS,
    OPTION_ENUM,
    OPTION_LIST,
};

enum { OPTION_SECRET = 1 };

struct option {
    const char *name;
    enum option_type type;
    size_t offset; /* of its field in struct settings */
    const char *def;
    double min;
    double max; /* 0: no upper bound */
    int flags;
    const char *help; /* ENUM: starts with "a|b|c: " */
};

enum option_id {
#define X(id, name, type, def, min, max, flags, help) OPTION_ID_##id,
#include "config/settings.def"
#undef X
    N_OPTIONS
};

extern const struct option option_table[N_OPTIONS];

/* - and _ are the same. */
bool option_names_equal(const char *a, const char *b);
/* By name, where - and _ are the same; NULL when unknown. */
const struct option *option_find(const char *name);
/* MILLRACE_<NAME> of an option. */
void option_env_name(const struct option *o, struct buf *out);
/* The value as text that settings_set takes back; a LIST: item i_item. */
void option_value(const struct option *o, const struct settings *s, size_t i_item, struct buf *out);
/* "1 to 64", "at least 1", or nothing for types and rows without bounds. */
void option_bounds(const struct option *o, struct buf *out);
/* Sets from text; LIST items append. */
enum status option_set(const struct option *o, struct settings *s, const char *value,
                       struct err *e);
void option_clear_list(const struct option *o, struct settings *s);

#endif
