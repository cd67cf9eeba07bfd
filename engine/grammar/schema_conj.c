/* Conjunctions: which keywords their schemas have, and the schemas that $ref and allOf add; see schema_int.h. */
#include "engine/grammar/schema_int.h"

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
        if (found &&
            (!schema_spend(s, v, json_raw(v).len / 8) || !str_eq(json_raw(found), json_raw(v))))
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

void conj_check_keywords(struct schema *s, const struct json *node)
{
    schema_spend(s, node, (uint64_t)json_count(node) * KEYWORD_STEPS);
    for (const struct json *v = json_first(node); v && !s->failed; v = json_next(v)) {
        struct str key = json_key(v);
        if (kind_of(key) == KEYWORD_REFUSED && !is_harmless(v))
            schema_fail(s, ERR_UNSUPPORTED, v, NULL, "\"%.*s\" is not supported", (int)key.len,
                        key.ptr);
    }
}

bool conj_only_has(struct schema *s, const struct json *node, const char *a, const char *b)
{
    if (!schema_spend(s, node, (uint64_t)json_count(node) * KEYWORD_STEPS))
        return false;
    for (const struct json *v = json_first(node); v; v = json_next(v)) {
        struct str key = json_key(v);
        if (kind_of(key) != KEYWORD_ANNOTATION && !str_eq_c(key, a) && !str_eq_c(key, b))
            return false;
    }
    return true;
}

/* ---- conjunctions ---- */

/* False: nothing matches, or an error occurred. */
bool conj_add(struct schema *s, struct conj *c, const struct json *node)
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
    conj_check_keywords(s, node);
    c->node[c->n++] = node;
    return !s->failed;
}

/* Adds the schemas of $ref and allOf, to any depth. */
bool conj_expand(struct schema *s, struct conj *c)
{
    for (; c->n_expanded < c->n; c->n_expanded++) {
        const struct json *node = c->node[c->n_expanded], *all = json_get(node, "allOf");
        if (json_get(node, "$ref")) {
            const struct json *target = schema_target(s, node);
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
