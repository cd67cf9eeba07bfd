/* Reading request fields by the table; see fields.h. */
#include "server/api/fields.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By type: where a row's member lies, and its default as the text of the table begins. */
#define OFFSET(member) offsetof(struct params, member)
#define OFFSET_BOOL(member) OFFSET(member)
#define OFFSET_INT(member) OFFSET(member)
#define OFFSET_CUT(member) OFFSET(member)
#define OFFSET_NUM(member) OFFSET(member)
#define OFFSET_STR(member) OFFSET(member)
#define OFFSET_SEED(member) OFFSET(member)
#define OFFSET_JSON(member) OFFSET(member)
#define OFFSET_OPTIONS(member) OFFSET(member)
#define OFFSET_LATER(member) 0
#define OFFSET_HARMLESS(member) 0

#define DEFAULT_BOOL(member, def) p->member = (def)[0] == 't';
#define DEFAULT_INT(member, def) p->member = leading_digits(def);
#define DEFAULT_CUT(member, def) p->member = leading_digits(def);
#define DEFAULT_NUM(member, def) p->member = leading_number(def);
#define DEFAULT_STR(member, def)
#define DEFAULT_SEED(member, def)
#define DEFAULT_JSON(member, def)
#define DEFAULT_OPTIONS(member, def)
#define DEFAULT_LATER(member, def)
#define DEFAULT_HARMLESS(member, def)

const struct field fields[N_FIELDS] = {
#define X(id, apis, name, type, member, min, max, def, doc)                                        \
    {apis, name, FIELD_TYPE_##type, OFFSET_##type(member), min, max, def, doc},
#include "server/api/fields.def"
#undef X
};

static int64_t leading_digits(const char *text)
{
    int64_t x = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        x = x * 10 + (*text - '0');
    return x;
}

static double leading_number(const char *text)
{
    double x = (double)leading_digits(text), scale = 1;
    text += strspn(text, "0123456789");
    if (*text++ != '.')
        return x;
    for (size_t n = strspn(text, "0123456789"); n; n--)
        scale *= 10;
    return x + (double)leading_digits(text) / scale;
}

void params_init(struct params *p)
{
    *p = (struct params){0};
#define X(id, apis, name, type, member, min, max, def, doc) DEFAULT_##type(member, def)
#include "server/api/fields.def"
#undef X
}

static const struct field *find(enum api api, struct str name)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (strchr(fields[i].apis, (int)api) && str_eq_c(name, fields[i].name))
            return &fields[i];
    return NULL;
}

static const char *type_name(const struct json *v)
{
    static const char *const names[] = {"null",     "a boolean", "a boolean", "a number",
                                        "a string", "an array",  "an object"};
    return names[json_type(v)];
}

static enum status wrong_type(const struct field *f, const char *want, const struct json *v,
                              struct err *e)
{
    return err_set_field(e, ERR_INVALID, f->name, "invalid_type", "\"%s\" must be %s, not %s",
                         f->name, want, type_name(v));
}

static bool is_bool(const struct json *v)
{
    return json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE);
}

static enum status read_int(const struct field *f, const struct json *v, int64_t *out,
                            struct err *e)
{
    if (!json_is(v, JSON_NUMBER))
        return wrong_type(f, "an integer", v, e);
    struct str raw = json_raw(v);
    if (!json_i64(v, (int64_t)f->min, (int64_t)f->max, out)) {
        double x = json_double(v);
        if (isfinite(x) && x != floor(x))
            return err_set_field(e, ERR_INVALID, f->name, "invalid_type",
                                 "\"%s\" must be an integer, not %.*s", f->name,
                                 (int)(raw.len < 32 ? raw.len : 32), raw.ptr);
        return err_set_field(e, ERR_INVALID, f->name, "out_of_range",
                             "\"%s\" must be from %.0f to %.0f, not %.*s", f->name, f->min, f->max,
                             (int)(raw.len < 32 ? raw.len : 32), raw.ptr);
    }
    return OK;
}

/* Clients send the largest number they know for "no limit". Fractions are refused where doubles have them. */
static enum status read_cut(const struct field *f, const struct json *v, int64_t *out,
                            struct err *e)
{
    int64_t exact = 0;
    if (!json_is(v, JSON_NUMBER))
        return wrong_type(f, "an integer", v, e);
    double x = json_double(v);
    bool fits = json_i64(v, INT64_MIN, INT64_MAX, &exact);
    if (!fits && x < (double)INT64_MAX && x > (double)INT64_MIN)
        return read_int(f, v, out, e); /* a fraction */
    if (fits ? (double)exact < f->min : x < 0)
        return err_set_field(e, ERR_INVALID, f->name, "out_of_range",
                             "\"%s\" must be at least %.0f, not %.*s", f->name, f->min,
                             (int)(json_raw(v).len < 32 ? json_raw(v).len : 32), json_raw(v).ptr);
    *out = fits && exact < (int64_t)f->max ? exact : (int64_t)f->max;
    return OK;
}

static enum status read_num(const struct field *f, const struct json *v, double *out, struct err *e)
{
    if (!json_is(v, JSON_NUMBER))
        return wrong_type(f, "a number", v, e);
    double x = json_double(v);
    if (!(isfinite(x) && x >= f->min && x <= f->max)) {
        struct str raw = json_raw(v);
        return err_set_field(e, ERR_INVALID, f->name, "out_of_range",
                             "\"%s\" must be from %g to %g, not %.*s", f->name, f->min, f->max,
                             (int)(raw.len < 32 ? raw.len : 32), raw.ptr);
    }
    *out = x;
    return OK;
}

static enum status read_str(const struct field *f, const struct json *v, struct str *out,
                            struct err *e)
{
    if (!json_is(v, JSON_STRING))
        return wrong_type(f, "a string", v, e);
    struct str s = json_string(v);
    if ((double)s.len > f->max)
        return err_set_field(e, ERR_INVALID, f->name, "too_long",
                             "\"%s\" has %zu bytes, at most %.0f are allowed", f->name, s.len,
                             f->max);
    if (s.len && memchr(s.ptr, 0, s.len))
        return err_set_field(e, ERR_INVALID, f->name, "invalid_value",
                             "\"%s\" holds a NUL character", f->name);
    *out = s;
    return OK;
}

static enum status read_seed(const struct field *f, const struct json *v, uint64_t *out,
                             struct err *e)
{
    if (!json_is(v, JSON_NUMBER))
        return wrong_type(f, "an integer", v, e);
    int64_t negative;
    if (json_u64(v, out))
        return OK;
    if (json_i64(v, INT64_MIN, -1, &negative)) {
        *out = (uint64_t)negative;
        return OK;
    }
    struct str raw = json_raw(v);
    return err_set_field(e, ERR_INVALID, f->name, "out_of_range",
                         "\"%s\" must be an integer from -2^63 to 2^64-1, not %.*s", f->name,
                         (int)(raw.len < 32 ? raw.len : 32), raw.ptr);
}

static enum status read_options(struct params *p, const struct field *f, const struct json *v,
                                struct err *e)
{
    static const struct {
        const char *name;
        size_t offset;
    } option[] = {
        {"include_usage", offsetof(struct params, include_usage)},
        {"continuous_usage_stats", offsetof(struct params, continuous_usage)},
    };
    if (!json_is(v, JSON_OBJECT))
        return wrong_type(f, "an object", v, e);
    for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++) {
        const struct json *m = json_get(v, option[i].name);
        if (!m || json_is(m, JSON_NULL))
            continue;
        if (!is_bool(m)) {
            char param[ERR_PARAM_CAP];
            snprintf(param, sizeof(param), "stream_options.%s", option[i].name);
            return err_set_field(e, ERR_INVALID, param, "invalid_type",
                                 "\"%s\" must be a boolean, not %s", param, type_name(m));
        }
        *(bool *)((char *)p + option[i].offset) = json_is(m, JSON_TRUE);
    }
    p->stream_options = v;
    return OK;
}

static bool equals_text(const struct json *v, const char *text, size_t n)
{
    if (json_is(v, JSON_NUMBER))
        return n && (*text == '-' || (*text >= '0' && *text <= '9')) &&
               json_double(v) == strtod(text, NULL);
    if (json_is(v, JSON_ARRAY) && json_count(v) == 0)
        return n == 2 && memcmp(text, "[]", 2) == 0;
    struct buf compact = {0};
    json_add_value(&compact, v);
    bool same = compact.len == n && memcmp(compact.ptr, text, n) == 0;
    buf_release(&compact);
    return same;
}

static enum status refuse_later(const struct field *f, const struct json *v, struct err *e)
{
    for (const char *p = f->def; *p;) {
        size_t n = strcspn(p, "|");
        if (equals_text(v, p, n))
            return OK;
        p += n + (p[n] == '|');
    }
    return err_set_field(e, ERR_UNSUPPORTED, f->name, "unsupported_parameter",
                         "\"%s\" is not supported yet (%s)", f->name, f->doc);
}

static enum status read_field(struct params *p, const struct field *f, const struct json *v,
                              struct err *e)
{
    void *target = (char *)p + f->offset;
    switch (f->type) {
    case FIELD_TYPE_BOOL:
        if (!is_bool(v))
            return wrong_type(f, "a boolean", v, e);
        *(bool *)target = json_is(v, JSON_TRUE);
        return OK;
    case FIELD_TYPE_INT:
        return read_int(f, v, target, e);
    case FIELD_TYPE_CUT:
        return read_cut(f, v, target, e);
    case FIELD_TYPE_NUM:
        return read_num(f, v, target, e);
    case FIELD_TYPE_STR:
        return read_str(f, v, target, e);
    case FIELD_TYPE_SEED:
        return read_seed(f, v, target, e);
    case FIELD_TYPE_JSON:
        *(const struct json **)target = v;
        return OK;
    case FIELD_TYPE_OPTIONS:
        return read_options(p, f, v, e);
    case FIELD_TYPE_LATER:
        return refuse_later(f, v, e);
    case FIELD_TYPE_HARMLESS:
        return OK;
    }
    return OK;
}

/* Header-safe: anything but visible ASCII without separators becomes '?'. */
static void note_ignored(struct buf *ignored, struct str name)
{
    enum { MAX_NAME = 64 };
    size_t n = name.len < MAX_NAME ? name.len : MAX_NAME;
    if (ignored->len + n + 2 > IGNORED_MAX_BYTES)
        return;
    if (ignored->len)
        buf_add_c(ignored, ", ");
    for (size_t i = 0; i < n; i++) {
        char c = name.ptr[i];
        buf_add_char(ignored, c > ' ' && c < 127 && c != ',' && c != '"' ? c : '?');
    }
}

enum status params_read(struct params *p, enum api api, const struct json *body,
                        struct buf *ignored, struct err *e)
{
    if (!json_is(body, JSON_OBJECT))
        return err_set_field(e, ERR_INVALID, NULL, "invalid_json",
                             "the body must be a JSON object, not %s", type_name(body));
    for (const struct json *v = json_first(body); v; v = json_next(v)) {
        const struct field *f = find(api, json_key(v));
        if (!f || (f->type == FIELD_TYPE_HARMLESS && !json_is(v, JSON_NULL)))
            note_ignored(ignored, json_key(v));
        if (!f)
            continue;
        if (json_is(v, JSON_NULL))
            continue;
        enum status status = read_field(p, f, v, e);
        if (status)
            return status;
        p->given[f - fields] = true;
    }
    return OK;
}
