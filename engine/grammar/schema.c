/* Schemas, references and alternatives; see schema.h and schema_int.h. */
#include "engine/grammar/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_int.h"

/* ---- errors ---- */

static bool find_path(const struct json *at, const struct json *node, struct buf *path)
{
    if (at == node)
        return true;
    size_t len = path->len, i = 0;
    if (!json_is(at, JSON_OBJECT) && !json_is(at, JSON_ARRAY))
        return false;
    for (const struct json *v = json_first(at); v; v = json_next(v), i++) {
        buf_add_char(path, '/');
        if (json_is(at, JSON_ARRAY)) {
            buf_printf(path, "%zu", i);
        } else {
            struct str key = json_key(v);
            for (size_t k = 0; k < key.len; k++) {
                if (key.ptr[k] == '~' || key.ptr[k] == '/')
                    buf_add_c(path, key.ptr[k] == '~' ? "~0" : "~1");
                else
                    buf_add_char(path, key.ptr[k]);
            }
        }
        if (find_path(v, node, path))
            return true;
        path->len = len;
        if (path->ptr)
            path->ptr[len] = 0;
    }
    return false;
}

expr_id schema_fail(struct schema *s, enum status status, const struct json *node, const char *key,
                    const char *format, ...)
{
    struct buf path = {0};
    char text[256];
    va_list args;
    if (s->failed)
        return expr_never(s->x);
    s->failed = true;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    buf_add_char(&path, '#');
    find_path(s->root, node, &path);
    if (key)
        buf_printf(&path, "/%s", key);
    err_set_field(s->e, status, "", "invalid_schema", "the schema at %.150s: %s", path.ptr, text);
    snprintf(s->e->param, sizeof(s->e->param), "%.*s", ERR_PARAM_CAP - 1, path.ptr);
    buf_release(&path);
    return exprs_fail(s->x, s->e);
}

static const struct json *any_node(const struct conj *c)
{
    return c->n ? c->node[0] : NULL;
}

/* ---- keywords ---- */

bool conj_has(const struct conj *c, const char *key)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (json_get(c->node[i], key))
            return true;
    return false;
}

const struct json *conj_one(struct schema *s, const struct conj *c, const char *key)
{
    const struct json *found = NULL;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct json *v = json_get(c->node[i], key);
        if (!v)
            continue;
        if (found && !str_eq(json_raw(found), json_raw(v)))
            schema_fail(s, ERR_UNSUPPORTED, c->node[i], key,
                        "\"%s\" is given by several schemas of an allOf", key);
        found = v;
    }
    return found;
}

bool conj_count(struct schema *s, const struct conj *c, const char *key, bool largest,
                uint32_t *out)
{
    bool any = false;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct json *v = json_get(c->node[i], key);
        int64_t n;
        if (!v)
            continue;
        if (!json_is(v, JSON_NUMBER) || !json_i64(v, 0, EXPR_MAX_REPEAT, &n)) {
            schema_fail(s, ERR_INVALID, c->node[i], key, "must be a whole number from 0 to %d",
                        EXPR_MAX_REPEAT);
            return false;
        }
        if (!any || (largest ? n > *out : n < *out))
            *out = (uint32_t)n;
        any = true;
    }
    return any;
}

/* ---- basic parts ---- */

expr_id schema_space(struct schema *s)
{
    struct err e;
    return regex_expr(s->x, STR_LIT("( |\n[ \t]{0,32})?"), REGEX_PLAIN, true, &e);
}

expr_id schema_any_string(struct schema *s)
{
    struct err e;
    if (!s->string) {
        s->string = exprs_add_rule(s->x);
        exprs_set_rule(
            s->x, s->string,
            regex_expr(s->x,
                       STR_LIT("\"([^\"\\\\\\x00-\\x1f]|\\\\([\"\\\\/bfnrt]|"
                               "u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))*\""),
                       REGEX_PLAIN, true, &e));
    }
    return expr_rule(s->x, s->string);
}

struct str schema_text(struct schema *s, struct str text, struct buf *out)
{
    (void)s;
    buf_clear(out);
    json_add_string(out, text);
    return buf_str(out);
}

expr_id schema_literal(struct schema *s, const struct json *value)
{
    struct buf text = {0};
    json_add_value(&text, value);
    expr_id id = expr_literal(s->x, buf_str(&text));
    buf_release(&text);
    return id;
}

/* first (between more)* in brackets; the content is optional. */
static expr_id listed(struct schema *s, const char *open, expr_id item, const char *close)
{
    struct exprs *x = s->x;
    expr_id space = schema_space(s);
    expr_id more = expr_seq3(x, expr_text(x, ","), space, item);
    expr_id items = expr_seq2(x, item, expr_repeat(x, more, 0, EXPR_MANY));
    expr_id full = expr_seq(x, (expr_id[]){space, items, space}, 3);
    return expr_seq3(x, expr_text(x, open), expr_maybe(x, full), expr_text(x, close));
}

static expr_id any_object(struct schema *s)
{
    expr_id pair = expr_seq(s->x,
                            (expr_id[]){schema_any_string(s), expr_text(s->x, ":"), schema_space(s),
                                        schema_any_value(s)},
                            4);
    return listed(s, "{", pair, "}");
}

static expr_id any_number(struct exprs *x)
{
    struct err e;
    return regex_expr(x, STR_LIT("-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?"),
                      REGEX_PLAIN, true, &e);
}

expr_id schema_any_value(struct schema *s)
{
    struct exprs *x = s->x;
    if (s->any_value)
        return expr_rule(x, s->any_value);
    s->any_value = exprs_add_rule(x);
    expr_id array = listed(s, "[", expr_rule(x, s->any_value), "]");
    expr_id all[] = {any_object(s),        array,
                     schema_any_string(s), any_number(x),
                     expr_text(x, "true"), expr_text(x, "false"),
                     expr_text(x, "null")};
    exprs_set_rule(x, s->any_value, expr_alt(x, all, 7));
    return expr_rule(x, s->any_value);
}

void schema_any_object(struct exprs *x)
{
    struct err e;
    struct schema s = {.x = x, .e = &e};
    exprs_set_rule(x, 0, any_object(&s));
}

/* ---- references ---- */

static const struct json *target_of(struct schema *s, const struct json *node)
{
    const struct json *ref = json_get(node, "$ref"), *target = NULL;
    if (json_is(ref, JSON_STRING))
        target = schema_find(s->root, json_string(ref));
    if (!target)
        schema_fail(s, ERR_UNSUPPORTED, node, "$ref",
                    "is no pointer into this schema, such as #/$defs/name");
    return target;
}

static expr_id ref_rule(struct schema *s, const struct json *target)
{
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

/* ---- meaning of a keyword ---- */

enum keyword { KEYWORD_ANNOTATION, KEYWORD_ASSERTION, KEYWORD_REFUSED };

static enum keyword kind_of(struct str key)
{
    static const char *const assertions[] = {"$ref",
                                             "allOf",
                                             "anyOf",
                                             "oneOf",
                                             "type",
                                             "enum",
                                             "const",
                                             "properties",
                                             "required",
                                             "additionalProperties",
                                             "patternProperties",
                                             "minProperties",
                                             "maxProperties",
                                             "items",
                                             "prefixItems",
                                             "minItems",
                                             "maxItems",
                                             "uniqueItems",
                                             "pattern",
                                             "format",
                                             "minLength",
                                             "maxLength",
                                             "minimum",
                                             "maximum",
                                             "exclusiveMinimum",
                                             "exclusiveMaximum",
                                             "multipleOf",
                                             "additionalItems"};
    static const char *const refused[] = {"not",
                                          "if",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "propertyNames",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "dependencies",
                                          "unevaluatedItems",
                                          "unevaluatedProperties",
                                          "$dynamicRef",
                                          "$recursiveRef",
                                          "divisibleBy",
                                          "extends",
                                          "disallow"};
    for (size_t i = 0; i < sizeof(assertions) / sizeof(assertions[0]); i++)
        if (str_eq_c(key, assertions[i]))
            return KEYWORD_ASSERTION;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (str_eq_c(key, refused[i]))
            return KEYWORD_REFUSED;
    return KEYWORD_ANNOTATION;
}

/* If it is the only schema that must hold, unevaluatedProperties: false means additionalProperties: false
 * (schema_object.c); true has no effect. */
static bool is_harmless(const struct json *v)
{
    struct str key = json_key(v);
    if (str_eq_c(key, "unevaluatedProperties"))
        return json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE);
    return str_eq_c(key, "unevaluatedItems") && json_is(v, JSON_TRUE);
}

static void check_keywords(struct schema *s, const struct json *node)
{
    for (const struct json *v = json_first(node); v && !s->failed; v = json_next(v)) {
        struct str key = json_key(v);
        if (kind_of(key) == KEYWORD_REFUSED && !is_harmless(v))
            schema_fail(s, ERR_UNSUPPORTED, v, NULL, "\"%.*s\" is not supported", (int)key.len,
                        key.ptr);
    }
}

static bool has_only(const struct json *node, const char *a, const char *b)
{
    for (const struct json *v = json_first(node); v; v = json_next(v)) {
        struct str key = json_key(v);
        if (kind_of(key) != KEYWORD_ANNOTATION && !str_eq_c(key, a) && !str_eq_c(key, b))
            return false;
    }
    return true;
}

/* ---- conjunctions ---- */

/* False: nothing matches, or an error occurred. */
static bool conj_add(struct schema *s, struct conj *c, const struct json *node)
{
    if (json_is(node, JSON_TRUE))
        return true;
    if (json_is(node, JSON_FALSE))
        return false;
    if (!json_is(node, JSON_OBJECT)) {
        schema_fail(s, ERR_INVALID, node, NULL, "a schema must be an object or a boolean");
        return false;
    }
    if (c->n == CONJ_MAX) {
        schema_fail(s, ERR_TOO_LARGE, node, NULL, "over %d schemas must hold together", CONJ_MAX);
        return false;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->node[i] != node)
            continue;
        schema_fail(s, ERR_UNSUPPORTED, node, NULL, "refers to itself without a value in between");
        return false;
    }
    check_keywords(s, node);
    c->node[c->n++] = node;
    return !s->failed;
}

/* Adds the schemas of $ref and allOf, to any depth. */
static bool expand(struct schema *s, struct conj *c)
{
    for (; c->n_expanded < c->n; c->n_expanded++) {
        const struct json *node = c->node[c->n_expanded], *all = json_get(node, "allOf");
        if (json_get(node, "$ref")) {
            const struct json *target = target_of(s, node);
            if (!target || !conj_add(s, c, target))
                return false;
        }
        if (all && (!json_is(all, JSON_ARRAY) || !json_count(all))) {
            schema_fail(s, ERR_INVALID, node, "allOf", "must be an array of schemas");
            return false;
        }
        for (const struct json *v = all ? json_first(all) : NULL; v; v = json_next(v))
            if (!conj_add(s, c, v))
                return false;
    }
    return true;
}

static expr_id conj_expr(struct schema *s, struct conj *c);

/* ---- type ---- */

static uint32_t type_bit(struct schema *s, const struct json *node, const struct json *v)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (uint32_t i = 0; json_is(v, JSON_STRING) && i < 7; i++)
        if (str_eq_c(json_string(v), names[i]))
            return 1u << i;
    schema_fail(s, ERR_INVALID, node, "type", "is no type of JSON Schema");
    return 0;
}

static uint32_t node_types(struct schema *s, const struct json *node)
{
    const struct json *type = json_get(node, "type");
    uint32_t bits = 0;
    if (!type)
        return TYPE_ANY;
    if (!json_is(type, JSON_ARRAY) || json_count(type) > 7) /* types are unique */
        bits = type_bit(s, node, type);
    else
        for (const struct json *v = json_first(type); v; v = json_next(v))
            bits |= type_bit(s, node, v);
    return bits & TYPE_NUMBER ? bits | TYPE_INTEGER : bits;
}

static uint32_t conj_types(struct schema *s, const struct conj *c)
{
    uint32_t bits = TYPE_ANY;
    for (uint32_t i = 0; i < c->n; i++)
        bits &= node_types(s, c->node[i]);
    return bits;
}

/* Types that the keywords apply to; all types when there are no keywords. */
static uint32_t meant_types(const struct conj *c)
{
    static const struct {
        const char *key;
        uint32_t bits;
    } meant[] = {{"properties", TYPE_OBJECT},
                 {"required", TYPE_OBJECT},
                 {"additionalProperties", TYPE_OBJECT},
                 {"patternProperties", TYPE_OBJECT},
                 {"minProperties", TYPE_OBJECT},
                 {"maxProperties", TYPE_OBJECT},
                 {"unevaluatedProperties", TYPE_OBJECT},
                 {"additionalItems", TYPE_ARRAY},
                 {"items", TYPE_ARRAY},
                 {"prefixItems", TYPE_ARRAY},
                 {"minItems", TYPE_ARRAY},
                 {"maxItems", TYPE_ARRAY},
                 {"uniqueItems", TYPE_ARRAY},
                 {"pattern", TYPE_STRING},
                 {"format", TYPE_STRING},
                 {"minLength", TYPE_STRING},
                 {"maxLength", TYPE_STRING},
                 {"minimum", TYPE_NUMBER | TYPE_INTEGER},
                 {"maximum", TYPE_NUMBER | TYPE_INTEGER},
                 {"exclusiveMinimum", TYPE_NUMBER | TYPE_INTEGER},
                 {"exclusiveMaximum", TYPE_NUMBER | TYPE_INTEGER},
                 {"multipleOf", TYPE_NUMBER | TYPE_INTEGER}};
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof(meant) / sizeof(meant[0]); i++)
        if (conj_has(c, meant[i].key))
            bits |= meant[i].bits;
    return bits ? bits : TYPE_ANY;
}

static bool has_type(const struct conj *c)
{
    return conj_has(c, "type");
}

static expr_id typed(struct schema *s, const struct conj *c)
{
    struct exprs *x = s->x;
    uint32_t bits = conj_types(s, c);
    if (!has_type(c))
        bits &= meant_types(c);
    if (bits == TYPE_ANY && meant_types(c) == TYPE_ANY)
        return schema_any_value(s);
    expr_id all[8];
    uint32_t n = 0;
    if (bits & TYPE_OBJECT)
        all[n++] = schema_object(s, c);
    if (bits & TYPE_ARRAY)
        all[n++] = schema_array(s, c);
    if (bits & TYPE_STRING)
        all[n++] = schema_string(s, c);
    if (bits & (TYPE_NUMBER | TYPE_INTEGER))
        all[n++] = schema_number(s, c, !(bits & TYPE_NUMBER));
    if (bits & TYPE_BOOLEAN)
        all[n++] = expr_alt2(x, expr_text(x, "true"), expr_text(x, "false"));
    if (bits & TYPE_NULL)
        all[n++] = expr_text(x, "null");
    return expr_alt(x, all, n);
}

/* ---- const and enum ---- */

static uint32_t value_type(const struct json *v)
{
    int64_t whole;
    switch (json_type(v)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_NUMBER:
        return json_i64(v, INT64_MIN, INT64_MAX, &whole) ? TYPE_INTEGER : TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

static expr_id enumerated(struct schema *s, const struct conj *c, const struct json *node,
                          const struct json *values, const struct json *constant)
{
    struct expr_list list = {NULL, 0, 0};
    uint32_t bits = conj_types(s, c);
    for (uint32_t i = 0; i < c->n; i++) {
        static const char *const beside[] = {"enum", "const", "$ref", "allOf", "anyOf", "oneOf"};
        bool plain = false;
        for (size_t k = 0; k < sizeof(beside) / sizeof(beside[0]) && !plain; k++)
            plain = has_only(c->node[i], "type", beside[k]);
        if (!plain)
            return schema_fail(s, ERR_UNSUPPORTED, c->node[i], NULL,
                               "enum or const beside other assertions");
    }
    if (values && (!json_is(values, JSON_ARRAY) || !json_count(values)))
        return schema_fail(s, ERR_INVALID, node, "enum", "must be an array of values");
    for (const struct json *v = values ? json_first(values) : NULL; v; v = json_next(v))
        if (value_type(v) & bits)
            expr_list_add(&list, schema_literal(s, v));
    if (constant && (value_type(constant) & bits))
        expr_list_add(&list, schema_literal(s, constant));
    expr_id id = expr_alt(s->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

/* ---- anyOf and oneOf ---- */

/* What is compared pair by pair is bounded as a whole. Once that failed, everything counts as apart. */
static bool compared_enough(struct schema *s, const struct json *node)
{
    if (++s->n_compared > SCHEMA_MAX_COMPARED)
        schema_fail(s, ERR_TOO_LARGE, node, NULL, "its branches take too long to compare");
    return s->failed;
}

/* Known facts about a branch: a set of types, or the constant of a required member. */
static const struct json *resolve(struct schema *s, const struct json *node)
{
    for (int i = 0; i < SCHEMA_MAX_DEPTH && json_is(node, JSON_OBJECT) && json_get(node, "$ref");
         i++)
        node = target_of(s, node);
    return node;
}

static bool same_value(const struct json *a, const struct json *b)
{
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
            if (compared_enough(s, a) || same_value(x, y))
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
            (values_apart(s, x, y) || !(node_types(s, x) & node_types(s, y))))
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
    if (!json_is(a, JSON_OBJECT) || !json_is(b, JSON_OBJECT))
        return false;
    return !(node_types(s, a) & node_types(s, b)) || values_apart(s, a, b) ||
           objects_apart(s, a, b);
}

static bool check_one_of(struct schema *s, const struct json *node, const struct json *list)
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

static expr_id branches(struct schema *s, const struct conj *c, uint32_t at, const char *key)
{
    const struct json *node = c->node[at], *list = json_get(node, key);
    struct expr_list all = {NULL, 0, 0};
    if (!json_is(list, JSON_ARRAY) || !json_count(list))
        return schema_fail(s, ERR_INVALID, node, key, "must be an array of schemas");
    if (strcmp(key, "oneOf") == 0 && !check_one_of(s, node, list))
        return expr_never(s->x);
    for (const struct json *v = json_first(list); v && !s->failed; v = json_next(v)) {
        struct conj with = *c;
        with.branched |= 1u << at;
        if (c->n == 1 && has_only(node, key, key))
            expr_list_add(&all, schema_value(s, v)); /* no other keywords: a $ref can be a rule */
        else if (conj_add(s, &with, v))
            expr_list_add(&all, conj_expr(s, &with));
    }
    expr_id id = expr_alt(s->x, all.id, all.n);
    expr_list_release(&all);
    return id;
}

/* Index of a node whose anyOf or oneOf has no chosen branch yet, or c->n. */
static uint32_t find_branching(struct schema *s, const struct conj *c, const char **key)
{
    for (uint32_t i = 0; i < c->n; i++) {
        bool any = json_get(c->node[i], "anyOf"), one = json_get(c->node[i], "oneOf");
        if ((c->branched >> i & 1) || (!any && !one))
            continue;
        if (any && one)
            schema_fail(s, ERR_UNSUPPORTED, c->node[i], NULL, "anyOf beside oneOf");
        *key = any ? "anyOf" : "oneOf";
        return i;
    }
    return c->n;
}

static expr_id conj_expr(struct schema *s, struct conj *c)
{
    const char *key = NULL;
    if (++s->n_visits > SCHEMA_MAX_VISITS)
        return schema_fail(s, ERR_TOO_LARGE, any_node(c), NULL, "the schema is too large");
    if (!expand(s, c))
        return expr_never(s->x);
    uint32_t at = find_branching(s, c, &key);
    if (s->failed)
        return expr_never(s->x);
    if (at < c->n)
        return branches(s, c, at, key);
    const struct json *values = conj_one(s, c, "enum"), *constant = conj_one(s, c, "const");
    if (values && constant)
        return schema_fail(s, ERR_UNSUPPORTED, any_node(c), "enum", "enum beside const");
    if (values || constant)
        return enumerated(s, c, any_node(c), values, constant);
    return typed(s, c);
}

expr_id schema_value(struct schema *s, const struct json *node)
{
    struct conj c = {.n = 0};
    if (s->failed)
        return expr_never(s->x);
    if (++s->depth > SCHEMA_MAX_DEPTH)
        return schema_fail(s, ERR_TOO_LARGE, node, NULL, "schemas lie over %d deep",
                           SCHEMA_MAX_DEPTH);
    expr_id id;
    if (json_is(node, JSON_OBJECT) && json_get(node, "$ref") && has_only(node, "$ref", "$ref")) {
        const struct json *target = target_of(s, node);
        check_keywords(s, node);
        id = target ? ref_rule(s, target) : expr_never(s->x);
    } else {
        id = conj_add(s, &c, node) ? conj_expr(s, &c) : expr_never(s->x);
    }
    s->depth--;
    return id;
}

expr_id schema_all(struct schema *s, const struct json *const *node, uint32_t n)
{
    struct conj c = {.n = 0};
    bool some = true;
    if (s->failed)
        return expr_never(s->x);
    if (++s->depth > SCHEMA_MAX_DEPTH)
        return schema_fail(s, ERR_TOO_LARGE, node[0], NULL, "schemas lie over %d deep",
                           SCHEMA_MAX_DEPTH);
    for (uint32_t i = 0; i < n && some; i++)
        some = conj_add(s, &c, node[i]);
    expr_id id = some ? conj_expr(s, &c) : expr_never(s->x);
    s->depth--;
    return id;
}

static enum status end_schema(struct schema *s)
{
    mem_free(s->ref);
    if (!s->failed && s->x->error.status)
        *s->e = s->x->error;
    return s->failed || s->x->error.status ? s->e->status : OK;
}

enum status schema_expr(struct exprs *x, const struct json *schema, struct err *e)
{
    struct schema s = {.x = x, .root = schema, .e = e};
    schema_check_sizes(&s, schema);
    exprs_set_rule(x, 0, schema_value(&s, schema));
    return end_schema(&s);
}

enum status schema_add_object(struct exprs *x, const struct json *schema, expr_id *out,
                              struct err *e)
{
    struct schema s = {.x = x, .root = schema, .e = e};
    struct json_doc *doc = NULL;
    const struct json *type = json_get(schema, "type");
    schema_check_sizes(&s, schema);
    if (json_is(type, JSON_STRING) && str_eq_c(json_string(type), "object")) {
        *out = schema_value(&s, schema);
    } else {
        const struct json_limits limits = {.depth = 2, .n_nodes = 4};
        CHECK(json_parse(STR_LIT("{\"type\":\"object\"}"), limits, &doc, NULL) == OK);
        const struct json *both[] = {json_root(doc), schema};
        *out = schema_all(&s, both, 2);
    }
    enum status st = end_schema(&s);
    json_free(doc);
    return st;
}
