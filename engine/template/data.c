/* Request data as values: JSON strings and keys are data, never trusted; numbers as Python reads
 * them. Called by template_render. Thread: the one that renders. */
#include <string.h>

#include "base/json.h"
#include "engine/template/interp.h"

static struct tm_val number(struct tmpl *c, const struct json *v)
{
    struct str raw = json_raw(v);
    int64_t i;
    bool whole = !memchr(raw.ptr, '.', raw.len) && !memchr(raw.ptr, 'e', raw.len) &&
                 !memchr(raw.ptr, 'E', raw.len);
    if (!whole)
        return tm_float(json_double(v));
    if (json_i64(v, INT64_MIN, INT64_MAX, &i))
        return tm_int(i);
    enum { MAX_DIGITS = 4300 }; /* Python's own limit */
    if (raw.len > MAX_DIGITS)
        tm_fail(c, ERR_TOO_LARGE, "integer of %zu digits, at most %d", raw.len, MAX_DIGITS);
    return (struct tm_val){.type = TM_BIG, .s = tm_str_new(c, raw.ptr, raw.len, false)};
}

struct tm_val tm_from_json(struct tmpl *c, const struct json *v)
{
    tm_step(c, 1);
    switch (json_type(v)) {
    case JSON_FALSE:
    case JSON_TRUE:
        return tm_bool(json_type(v) == JSON_TRUE);
    case JSON_NUMBER:
        return number(c, v);
    case JSON_STRING:
        return tm_string(tm_str_new(c, json_string(v).ptr, json_string(v).len, false));
    case JSON_ARRAY: {
        struct tm_list *l = tm_list_new(c, 0);
        tm_value_enter(c);
        for (const struct json *m = json_first(v); m; m = json_next(m))
            tm_list_add(c, l, tm_from_json(c, m));
        tm_value_leave(c);
        return tm_list_val(l);
    }
    case JSON_OBJECT: {
        struct tm_dict *d = tm_dict_new(c);
        tm_value_enter(c);
        for (const struct json *m = json_first(v); m; m = json_next(m)) {
            struct str key = json_key(m);
            tm_dict_set(c, d, tm_string(tm_str_new(c, key.ptr, key.len, false)),
                        tm_from_json(c, m));
        }
        tm_value_leave(c);
        return tm_dict_val(d);
    }
    default:
        return tm_none();
    }
}
