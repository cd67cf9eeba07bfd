/* References: JSON pointers into the schema that holds them. */
#include <string.h>

#include "base/buf.h"
#include "engine/grammar/schema_int.h"

static const struct json *step_pointer(const struct json *at, struct str part)
{
    struct buf name = {0};
    for (size_t i = 0; i < part.len; i++) {
        bool escape = part.ptr[i] == '~' && i + 1 < part.len;
        if (escape)
            buf_add_char(&name, part.ptr[++i] == '1' ? '/' : '~');
        else
            buf_add_char(&name, part.ptr[i]);
    }
    const struct json *v = NULL;
    if (json_is(at, JSON_OBJECT)) {
        for (v = json_first(at); v && !str_eq(json_key(v), buf_str(&name)); v = json_next(v))
            continue;
    } else if (json_is(at, JSON_ARRAY)) {
        size_t i = 0, wanted = 0;
        for (size_t k = 0; k < name.len && wanted < 1 << 20; k++)
            wanted = name.ptr[k] >= '0' && name.ptr[k] <= '9'
                         ? wanted * 10 + (size_t)(name.ptr[k] - '0')
                         : 1 << 20;
        for (v = json_first(at); v && i < wanted; v = json_next(v))
            i++;
    }
    buf_release(&name);
    return v;
}

const struct json *schema_find(const struct json *root, struct str ref)
{
    const struct json *at = root;
    if (ref.len == 0 || ref.ptr[0] != '#' || (ref.len > 1 && ref.ptr[1] != '/') ||
        memchr(ref.ptr, '%', ref.len))
        return NULL;
    for (size_t i = 1; i < ref.len && at;) {
        size_t end = ++i;
        while (end < ref.len && ref.ptr[end] != '/')
            end++;
        at = step_pointer(at, (struct str){ref.ptr + i, end - i});
        i = end;
    }
    return at;
}
