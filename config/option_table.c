/* One row of the options table: finding it, reading its text, writing it back. */
#include "config/option_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text_file.h"
#include "base/utf8.h"

enum { MAX_VALUE_BYTES = 4096, MAX_LIST_ITEMS = 64, SECRET = OPTION_SECRET };

const struct option option_table[N_OPTIONS] = {
#define CHOICE(constant, word) word
#define OR(constant, word) "|" word
#define HELP(text) ": " text
#define X(id, name, type, def, min, max, flags, help)                                              \
    {name, OPTION_##type, offsetof(struct settings, id), def, min, max, flags, help},
#include "config/settings.def"
#undef X
#undef HELP
#undef OR
#undef CHOICE
};

struct unit {
    const char *suffix;
    uint64_t factor;
};

/* Largest first; the last is the plain number. */
static const struct unit size_units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"", 1}};
static const struct unit ms_units[] = {{"min", 60000}, {"s", 1000}, {"ms", 1}, {"", 1}};

static char plain_name_char(char c)
{
    return c == '-' ? '_' : c;
}

bool option_names_equal(const char *a, const char *b)
{
    while (*a && plain_name_char(*a) == plain_name_char(*b)) {
        a++;
        b++;
    }
    return *a == 0 && *b == 0;
}

const struct option *option_find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (option_names_equal(option_table[i].name, name))
            return &option_table[i];
    return NULL;
}

void option_env_name(const struct option *o, struct buf *out)
{
    buf_add_c(out, "MILLRACE_");
    for (const char *p = o->name; *p; p++) {
        char c = *p == '.' || *p == '-' ? '_' : *p;
        buf_add_char(out, c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c);
    }
}

static void *field_of(const struct option *o, struct settings *s)
{
    return (char *)s + o->offset;
}

/* i-th choice of an ENUM, empty behind the last. */
static struct str choice(const struct option *o, int i)
{
    const char *p = o->help;
    for (;; i--) {
        size_t n = strcspn(p, "|:");
        if (i == 0)
            return (struct str){p, n};
        if (p[n] != '|')
            return STR_LIT("");
        p += n + 1;
    }
}

void option_bounds(const struct option *o, struct buf *out)
{
    if (o->type == OPTION_STR || o->type == OPTION_BOOL || o->type == OPTION_ENUM ||
        o->type == OPTION_LIST || (o->min == 0 && o->max == 0))
        return;
    const char *unit = o->type == OPTION_SIZE ? " bytes" : o->type == OPTION_MS ? " ms" : "";
    if (o->max != 0)
        buf_printf(out, "%.15g to %.15g%s", o->min, o->max, unit);
    else
        buf_printf(out, "at least %.15g%s", o->min, unit);
}

static enum status refuse(const struct option *o, const char *value, const char *expected,
                          struct err *e)
{
    struct buf shown = {0};
    json_add_escaped(&shown, (struct str){value, strnlen(value, 80)});
    err_set_field(e, ERR_INVALID, o->name, NULL, "option %s: '%s' is not %s", o->name,
                  (o->flags & OPTION_SECRET) ? "(hidden)"
                  : shown.ptr                ? shown.ptr
                                             : "",
                  expected);
    buf_release(&shown);
    return ERR_INVALID;
}

static enum status check_bounds(const struct option *o, const char *value, double x, struct err *e)
{
    if (x >= o->min && (o->max == 0 || x <= o->max))
        return OK;
    struct buf bounds = {0};
    option_bounds(o, &bounds);
    err_set_field(e, ERR_INVALID, o->name, NULL, "option %s: %.80s is out of bounds (%s)", o->name,
                  value, bounds.len ? bounds.ptr : "at least 0");
    buf_release(&bounds);
    return ERR_INVALID;
}

static bool parse_i64(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9' || digits[strspn(digits, "0123456789")])
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

/* Digits followed by one of the units, blanks between them allowed. */
static bool parse_units(const char *text, const struct unit *units, uint64_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0)
        return false;
    errno = 0;
    uint64_t number = strtoull(text, NULL, 10);
    if (errno)
        return false;
    text += n + strspn(text + n, " ");
    const struct unit *u = units;
    while (*u->suffix && strcmp(u->suffix, text) != 0)
        u++;
    return strcmp(u->suffix, text) == 0 && !__builtin_mul_overflow(number, u->factor, out);
}

static enum status set_number(const struct option *o, void *field, const char *value, struct err *e)
{
    int64_t x;
    if (!parse_i64(value, &x))
        return refuse(o, value, "a whole number", e);
    enum status st = check_bounds(o, value, (double)x, e);
    if (st == OK)
        *(int64_t *)field = x;
    return st;
}

static enum status set_float(const struct option *o, void *field, const char *value, struct err *e)
{
    /* The number forms of JSON: one syntax, whatever the locale. */
    struct json_doc *doc;
    struct json_limits limits = {.depth = 0, .n_nodes = 1};
    if (json_parse(str_of(value), limits, &doc, NULL) != OK)
        return refuse(o, value, "a number", e);
    bool is_number = json_is(json_root(doc), JSON_NUMBER);
    double x = is_number ? json_double(json_root(doc)) : 0;
    json_free(doc);
    if (!is_number)
        return refuse(o, value, "a number", e);
    enum status st = check_bounds(o, value, x, e);
    if (st == OK)
        *(double *)field = x;
    return st;
}

static enum status set_units(const struct option *o, void *field, const char *value, struct err *e)
{
    bool is_size = o->type == OPTION_SIZE;
    uint64_t x;
    if (!parse_units(value, is_size ? size_units : ms_units, &x) || x > INT64_MAX)
        return refuse(o, value,
                      is_size ? "a size (bytes, or a number with KiB, MiB, GiB or TiB)"
                              : "a time (milliseconds, or a number with ms, s or min)",
                      e);
    enum status st = check_bounds(o, value, (double)x, e);
    if (st == OK && is_size)
        *(uint64_t *)field = x;
    else if (st == OK)
        *(int64_t *)field = (int64_t)x;
    return st;
}

static enum status set_bool(const struct option *o, void *field, const char *value, struct err *e)
{
    static const char *const yes[] = {"true", "1", "yes", "on"};
    static const char *const no[] = {"false", "0", "no", "off"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *(bool *)field = strcmp(value, yes[i]) == 0;
            return OK;
        }
    }
    return refuse(o, value, "true or false", e);
}

static enum status set_enum(const struct option *o, void *field, const char *value, struct err *e)
{
    struct buf expected = {0};
    buf_add_c(&expected, "one of ");
    for (int i = 0; choice(o, i).len; i++) {
        if (str_eq_c(choice(o, i), value)) {
            *(int *)field = i;
            buf_release(&expected);
            return OK;
        }
        buf_printf(&expected, "%s%.*s", i ? ", " : "", (int)choice(o, i).len, choice(o, i).ptr);
    }
    refuse(o, value, expected.ptr, e);
    buf_release(&expected);
    return ERR_INVALID;
}

static enum status check_text(const struct option *o, const char *value, struct err *e)
{
    size_t n = strlen(value);
    if (n > MAX_VALUE_BYTES)
        return err_set_field(e, ERR_INVALID, o->name, NULL,
                             "option %s: %zu bytes are over the limit of %d", o->name, n,
                             MAX_VALUE_BYTES);
    if (!utf8_valid((struct str){value, n}))
        return refuse(o, value, "valid utf-8", e);
    char why[64];
    bool has_control = text_fault((struct str){value, n}, why, sizeof(why)) != NULL;
    for (size_t i = 0; i < n && !has_control; i++)
        has_control = (unsigned char)value[i] < 0x20; /* tabs and ends of lines too */
    return has_control ? refuse(o, value, "free of control characters", e) : OK;
}

/* Keys come from files and variables that other tools wrote, with blanks and ends of lines around them
 * that no client will send. Blanks alone would mean no key, and a server open to all. */
static enum status set_secret(const struct option *o, char **field, const char *value,
                              struct err *e)
{
    struct str s = str_of(value);
    s.ptr += text_mark_bytes(s);
    s = text_trim(str_of(s.ptr));
    if (!s.len && *value)
        return err_set_field(e, ERR_INVALID, o->name, NULL, "option %s: holds blanks only",
                             o->name);
    char *text = mem_dup(s.ptr, s.len);
    enum status st = check_text(o, text, e);
    if (st) {
        mem_free(text);
        return st;
    }
    mem_free(*field);
    *field = text;
    return OK;
}

static enum status add_item(const struct option *o, struct settings_list *list, const char *value,
                            struct err *e)
{
    if (!*value)
        return OK; /* an empty variable, or name = in a file: a list without items */
    if (list->n == MAX_LIST_ITEMS)
        return err_set_field(e, ERR_INVALID, o->name, NULL,
                             "option %s: more than the limit of %d values", o->name,
                             MAX_LIST_ITEMS);
    list->item = mem_realloc(list->item, (list->n + 1) * sizeof(*list->item));
    list->item[list->n++] = mem_strdup(value);
    return OK;
}

enum status option_set(const struct option *o, struct settings *s, const char *value, struct err *e)
{
    void *field = field_of(o, s);
    if (o->flags & OPTION_SECRET)
        return set_secret(o, field, value, e);
    enum status st = check_text(o, value, e);
    if (st)
        return st;
    switch (o->type) {
    case OPTION_STR:
        mem_free(*(char **)field);
        *(char **)field = mem_strdup(value);
        return OK;
    case OPTION_BOOL:
        return set_bool(o, field, value, e);
    case OPTION_INT:
        return set_number(o, field, value, e);
    case OPTION_FLOAT:
        return set_float(o, field, value, e);
    case OPTION_SIZE:
    case OPTION_MS:
        return set_units(o, field, value, e);
    case OPTION_ENUM:
        return set_enum(o, field, value, e);
    case OPTION_LIST:
        return add_item(o, field, value, e);
    }
    CHECK(false);
}

void option_clear_list(const struct option *o, struct settings *s)
{
    CHECK(o->type == OPTION_LIST);
    struct settings_list *list = field_of(o, s);
    for (size_t i = 0; i < list->n; i++)
        mem_free(list->item[i]);
    mem_free(list->item);
    *list = (struct settings_list){0};
}

/* The largest unit that divides it; 0 is plain. */
static void add_with_unit(struct buf *out, uint64_t x, const struct unit *units)
{
    const struct unit *u = units;
    while (*u->suffix && (x == 0 || x % u->factor != 0))
        u++;
    buf_printf(out, "%llu%s", (unsigned long long)(x / u->factor), u->suffix);
}

void option_value(const struct option *o, const struct settings *s, size_t i_item, struct buf *out)
{
    const void *field = (const char *)s + o->offset;
    switch (o->type) {
    case OPTION_STR:
        buf_add_c(out, *(char *const *)field);
        break;
    case OPTION_BOOL:
        buf_add_c(out, *(const bool *)field ? "true" : "false");
        break;
    case OPTION_INT:
        buf_printf(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case OPTION_FLOAT:
        json_add_double(out, *(const double *)field);
        break;
    case OPTION_SIZE:
        add_with_unit(out, *(const uint64_t *)field, size_units);
        break;
    case OPTION_MS:
        add_with_unit(out, (uint64_t) * (const int64_t *)field, ms_units + 1);
        break;
    case OPTION_ENUM:
        buf_add_str(out, choice(o, *(const int *)field));
        break;
    case OPTION_LIST:
        buf_add_c(out, ((const struct settings_list *)field)->item[i_item]);
        break;
    }
}
