/* References: JSON pointers into the schema that holds them. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
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

static const struct json *find(struct schema *s, struct str ref)
{
    const struct json *at = s->root;
    if (ref.len == 0 || ref.ptr[0] != '#' || (ref.len > 1 && ref.ptr[1] != '/') ||
        memchr(ref.ptr, '%', ref.len))
        return NULL;
    for (size_t i = 1; i < ref.len && at;) {
        size_t end = ++i;
        while (end < ref.len && ref.ptr[end] != '/')
            end++;
        if (!schema_spend(s, s->root, end - i + json_count(at)))
            return NULL;
        at = step_pointer(at, (struct str){ref.ptr + i, end - i});
        i = end;
    }
    return at;
}

const struct json *schema_target(struct schema *s, const struct json *node)
{
    const struct json *ref = json_get(node, "$ref"), *target = NULL;
    if (json_is(ref, JSON_STRING))
        target = find(s, json_string(ref));
    if (!target)
        schema_fail(s, ERR_UNSUPPORTED, node, "$ref",
                    "is no pointer into this schema, such as #/$defs/name");
    return target;
}

expr_id schema_ref_rule(struct schema *s, const struct json *target)
{
    if (!schema_spend(s, target, s->n_refs))
        return expr_never(s->x);
    for (uint32_t i = 0; i < s->n_refs; i++)
        if (s->ref[i].target == target)
            return expr_rule(s->x, s->ref[i].rule);
    if (s->n_refs == s->cap_refs) {
        s->cap_refs = s->cap_refs ? 2 * s->cap_refs : 16;
        s->ref = mem_realloc(s->ref, mem_mul(s->cap_refs, sizeof(*s->ref)));
    }
    uint32_t rule = exprs_add_rule(s->x);
    s->ref[s->n_refs++] = (struct ref_rule){target, rule};
    expr_id body = schema_value(s, target);
    if (!s->failed)
        exprs_set_rule(s->x, rule, body);
    return expr_rule(s->x, rule);
}
