/* oneOf: whether its branches exclude one another. */
#include "base/buf.h"
#include "engine/grammar/schema_int.h"

/* What is compared pair by pair is bounded as a whole. Once that failed, everything counts as apart. */
static bool compared_enough(struct schema *s, const struct json *node)
{
    if (schema_spend(s, node, 8) && ++s->n_compared > SCHEMA_MAX_COMPARED)
        schema_fail(s, ERR_TOO_LARGE, node, NULL, "its branches take too long to compare");
    return s->failed;
}

/* Known facts about a branch: a set of types, or the constant of a required member. */
static const struct json *resolve(struct schema *s, const struct json *node)
{
    for (int i = 0; i < SCHEMA_MAX_DEPTH && json_is(node, JSON_OBJECT) && json_get(node, "$ref");
         i++)
        node = schema_target(s, node);
    return node;
}

static bool same_value(struct schema *s, const struct json *a, const struct json *b)
{
    if (!schema_spend(s, a, 64 + json_raw(a).len + json_raw(b).len))
        return false;
    struct buf x = {0}, y = {0};
    json_add_value(&x, a);
    json_add_value(&y, b);
    bool same = str_eq(buf_str(&x), buf_str(&y));
    buf_release(&x);
    buf_release(&y);
    return same ||
           (json_is(a, JSON_NUMBER) && json_is(b, JSON_NUMBER) && json_double(a) == json_double(b));
}

static const struct json *choices(const struct json *node, size_t *n)
{
    const struct json *constant = json_get(node, "const"), *values = json_get(node, "enum");
    *n = constant ? 1 : json_is(values, JSON_ARRAY) ? json_count(values) : 0;
    return constant ? constant : *n ? json_first(values) : NULL;
}

static bool values_apart(struct schema *s, const struct json *a, const struct json *b)
{
    size_t n_a, n_b;
    const struct json *x = choices(a, &n_a);
    if (!n_a || !choices(b, &n_b))
        return false;
    for (size_t i = 0; i < n_a; i++, x = json_next(x)) {
        const struct json *y = choices(b, &n_b);
        for (size_t k = 0; k < n_b; k++, y = json_next(y))
            if (compared_enough(s, a) || same_value(s, x, y))
                return false;
    }
    return true;
}

static bool requires(struct schema *s, const struct json *node, struct str name)
{
    const struct json *list = json_get(node, "required");
    for (const struct json *v = json_is(list, JSON_ARRAY) ? json_first(list) : NULL; v;
         v = json_next(v))
        if (compared_enough(s, node) || (json_is(v, JSON_STRING) && str_eq(json_string(v), name)))
            return true;
    return false;
}

static bool objects_apart(struct schema *s, const struct json *a, const struct json *b)
{
    const struct json *own = json_get(a, "properties"), *other = json_get(b, "properties");
    for (const struct json *v = json_is(own, JSON_OBJECT) ? json_first(own) : NULL; v;
         v = json_next(v)) {
        struct str name = json_key(v);
        const struct json *w = json_is(other, JSON_OBJECT) ? json_first(other) : NULL;
        while (w && !compared_enough(s, a) && !str_eq(json_key(w), name))
            w = json_next(w);
        if (!w || !requires(s, a, name) || !requires(s, b, name))
            continue;
        const struct json *x = resolve(s, v), *y = resolve(s, w);
        if (json_is(x, JSON_OBJECT) && json_is(y, JSON_OBJECT) &&
            (values_apart(s, x, y) || !(schema_types(s, x) & schema_types(s, y))))
            return true;
    }
    return false;
}

/* True when it is certain that no value matches both. */
static bool are_apart(struct schema *s, const struct json *a, const struct json *b)
{
    a = resolve(s, a);
    b = resolve(s, b);
    if (json_is(a, JSON_FALSE) || json_is(b, JSON_FALSE))
        return true;
    if (!json_is(a, JSON_OBJECT) || !json_is(b, JSON_OBJECT) ||
        !schema_spend(s, a, 4 * (uint64_t)(json_count(a) + json_count(b))))
        return false;
    return !(schema_types(s, a) & schema_types(s, b)) || values_apart(s, a, b) ||
           objects_apart(s, a, b);
}

bool schema_check_one_of(struct schema *s, const struct json *node, const struct json *list)
{
    size_t i = 0;
    for (const struct json *a = json_first(list); a && !s->failed; a = json_next(a), i++) {
        size_t k = i + 1;
        for (const struct json *b = json_next(a); b; b = json_next(b), k++) {
            if (compared_enough(s, node))
                return false;
            if (are_apart(s, a, b))
                continue;
            schema_fail(
                s, ERR_UNSUPPORTED, node, "oneOf",
                "branches %zu and %zu are not seen to exclude one another (different types, or "
                "different constants of a required member): use anyOf",
                i, k);
            return false;
        }
    }
    return !s->failed;
}
