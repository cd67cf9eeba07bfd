/* Schemas, types and alternatives; see schema.h and schema_int.h. */
#include "engine/grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/grammar/schema_int.h"

enum {
    MAX_CALLED = 16
}; /* branches of a choice that may be rules: a text is at a place for each */

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
    err_set_field(s->e, status, "", "invalid_schema", "the schema at %.200s: %s", path.ptr, text);
    snprintf(s->e->param, sizeof(s->e->param), "%.*s", ERR_PARAM_CAP - 1, path.ptr);
    s->e->param[utf8_complete_len(str_of(s->e->param))] = 0; /* not cut inside a character */
    buf_release(&path);
    return exprs_fail(s->x, s->e);
}

expr_id schema_place_error(struct schema *s, const struct json *node)
{
    struct err e = s->x->error;
    if (e.code[0] && !s->failed) { /* memory is not the fault of a place */
        s->failed = true;
        *s->e = e;
        return expr_never(s->x);
    }
    s->x->error.status = OK; /* reported again */
    schema_fail(s, e.status, node, NULL, "%s", e.text);
    s->x->error.status = e.status;
    return expr_never(s->x);
}

bool schema_spend(struct schema *s, const struct json *node, uint64_t n_steps)
{
    if (!s->failed && (s->x->error.status || !exprs_spend(s->x, n_steps)))
        schema_place_error(s, node);
    return !s->failed;
}

static const struct json *any_node(const struct conj *c)
{
    return c->n ? c->node[0] : NULL;
}

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

uint32_t schema_types(struct schema *s, const struct json *node)
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
        bits &= schema_types(s, c->node[i]);
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
            plain = conj_only_has(s, c->node[i], "type", beside[k]);
        if (!plain)
            return schema_fail(s, ERR_UNSUPPORTED, c->node[i], NULL,
                               "enum or const beside other assertions");
    }
    if (values && (!json_is(values, JSON_ARRAY) || !json_count(values)))
        return schema_fail(s, ERR_INVALID, node, "enum", "must be an array of values");
    for (const struct json *v = values ? json_first(values) : NULL;
         v && schema_spend(s, v, json_raw(v).len / 4); v = json_next(v))
        if (value_type(v) & bits)
            expr_list_add(&list, schema_literal(s, v));
    if (constant && (value_type(constant) & bits))
        expr_list_add(&list, schema_literal(s, constant));
    expr_id id = expr_alt(s->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

/* ---- anyOf and oneOf ---- */

static expr_id conj_expr(struct schema *s, struct conj *c);

static expr_id branches(struct schema *s, const struct conj *c, uint32_t at, const char *key)
{
    const struct json *node = c->node[at], *list = json_get(node, key);
    struct expr_list all = {NULL, 0, 0};
    if (!json_is(list, JSON_ARRAY) || !json_count(list))
        return schema_fail(s, ERR_INVALID, node, key, "must be an array of schemas");
    if (strcmp(key, "oneOf") == 0 && !schema_check_one_of(s, node, list))
        return expr_never(s->x);
    /* Without other keywords a $ref can be a rule. The branches of a large choice are merged, instead of called. */
    bool alone = c->n == 1 && json_count(list) <= MAX_CALLED && conj_only_has(s, node, key, key);
    for (const struct json *v = json_first(list); v && !s->failed; v = json_next(v)) {
        struct conj with = *c;
        with.branched |= 1u << at;
        if (alone)
            expr_list_add(&all, schema_value(s, v));
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

/* Keywords are looked up in all members of all schemas, about 48 of them. */
static bool spend_visit(struct schema *s, const struct conj *c)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < c->n; i++)
        n += 1 + json_count(c->node[i]);
    return schema_spend(s, any_node(c), n * 32);
}

static expr_id conj_expr(struct schema *s, struct conj *c)
{
    const char *key = NULL;
    if (++s->n_visits > SCHEMA_MAX_VISITS)
        return schema_fail(s, ERR_TOO_LARGE, any_node(c), NULL, "the schema is too large");
    if (!conj_expand(s, c) || !spend_visit(s, c))
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
    if (json_is(node, JSON_OBJECT) && json_get(node, "$ref") &&
        conj_only_has(s, node, "$ref", "$ref")) {
        const struct json *target = schema_target(s, node);
        conj_check_keywords(s, node);
        id = target ? schema_ref_rule(s, target) : expr_never(s->x);
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
    mem_free(s->shared);
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
