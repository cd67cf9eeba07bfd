/* Arrays: items, prefixItems, counts, and unique items of small enumerations. */
#include <string.h>

#include "engine/grammar/schema_int.h"

enum {
    MAX_UNIQUE = 8
}; /* limit of enumeration values for which arrays without repetition are spelled out */

struct array {
    uint32_t min, max; /* items */
    const struct json *prefix; /* prefixItems or NULL */
    uint32_t n_prefix;
    const struct json *items; /* NULL: anything */
};

static expr_id brackets(struct schema *s, expr_id inside)
{
    expr_id space = schema_space(s);
    return expr_seq(
        s->x, (expr_id[]){expr_text(s->x, "["), space, inside, space, expr_text(s->x, "]")}, 5);
}

static expr_id no_items(struct schema *s)
{
    return expr_text(s->x, "[]");
}

static expr_id behind_comma(struct schema *s, expr_id item)
{
    return expr_seq3(s->x, expr_text(s->x, ","), schema_space(s), item);
}

static expr_id item_expr(struct schema *s, const struct array *a)
{
    return a->items ? schema_value(s, a->items) : schema_any_value(s);
}

/* Returns a rule, so that copies of a large item are calls. */
static expr_id as_rule(struct schema *s, expr_id body)
{
    uint32_t rule = exprs_add_rule(s->x);
    exprs_set_rule(s->x, rule, body);
    return expr_rule(s->x, rule);
}

/* Items from number i on, each after a comma except for the array's first. */
static expr_id rest(struct schema *s, const struct array *a, uint32_t n_before)
{
    uint32_t min = a->min > n_before ? a->min - n_before : 0;
    uint32_t max = a->max == EXPR_MANY ? EXPR_MANY : a->max > n_before ? a->max - n_before : 0;
    if (max == 0)
        return expr_empty(s->x);
    expr_id item = as_rule(s, item_expr(s, a));
    if (n_before)
        return expr_repeat(s->x, behind_comma(s, item), min, max);
    expr_id more = expr_repeat(s->x, behind_comma(s, item), min ? min - 1 : 0,
                               max == EXPR_MANY ? max : max - 1);
    expr_id some = expr_seq2(s->x, item, more);
    return some;
}

/* Prefix items may be omitted from any index that minItems allows. */
static expr_id with_prefix(struct schema *s, const struct array *a)
{
    expr_id item[64], id;
    uint32_t n = 0;
    for (const struct json *v = json_first(a->prefix); v && n < a->max; v = json_next(v))
        item[n++] = schema_value(s, v);
    id = n == a->n_prefix ? rest(s, a, n) : expr_empty(s->x);
    for (uint32_t i = n; i-- > 0;) {
        id = expr_seq2(s->x, i ? behind_comma(s, item[i]) : item[i], id);
        if (i >= a->min && i > 0)
            id = expr_maybe(s->x, id);
    }
    if (a->min == 0)
        return expr_alt2(s->x, no_items(s), brackets(s, id));
    return brackets(s, id);
}

/* ---- unique items ---- */

static uint32_t set_rule(struct schema *s, const struct array *a, const expr_id *value, uint32_t n,
                         uint32_t *rule, uint32_t used)
{
    uint32_t n_used = (uint32_t)__builtin_popcount(used);
    if (rule[used])
        return rule[used];
    rule[used] = exprs_add_rule(s->x);
    struct expr_list list = {NULL, 0, 0};
    if (n_used >= a->min)
        expr_list_add(&list, expr_empty(s->x));
    for (uint32_t i = 0; i < n && n_used < a->max; i++) {
        if (used >> i & 1)
            continue;
        uint32_t next = set_rule(s, a, value, n, rule, used | 1u << i);
        expr_list_add(&list, expr_seq2(s->x, n_used ? behind_comma(s, value[i]) : value[i],
                                       expr_rule(s->x, next)));
    }
    exprs_set_rule(s->x, rule[used], expr_alt(s->x, list.id, list.n));
    expr_list_release(&list);
    return rule[used];
}

static const struct json *enum_of(const struct json *items)
{
    const struct json *values = json_is(items, JSON_OBJECT) ? json_get(items, "enum") : NULL;
    return json_is(values, JSON_ARRAY) ? values : NULL;
}

static expr_id unique(struct schema *s, const struct conj *c, const struct array *a)
{
    const struct json *values = enum_of(a->items);
    if (a->max <= 1)
        return expr_never(s->x); /* not reached: one item is unique */
    if (!values || json_count(values) > MAX_UNIQUE || a->prefix)
        return schema_fail(s, ERR_UNSUPPORTED, c->node[0], "uniqueItems",
                           "needs items with an enum of at most %d values, or maxItems 1",
                           MAX_UNIQUE);
    expr_id value[MAX_UNIQUE];
    uint32_t rule[1 << MAX_UNIQUE] = {0}, n = 0;
    (void)item_expr(s, a); /* its errors */
    for (const struct json *v = json_first(values); v; v = json_next(v))
        value[n++] = schema_literal(s, v);
    expr_id inside = expr_rule(s->x, set_rule(s, a, value, n, rule, 0));
    return expr_seq3(s->x, expr_text(s->x, "["), inside, expr_text(s->x, "]"));
}

/* ---- the whole array ---- */

static bool read_prefix(struct schema *s, const struct conj *c, struct array *a)
{
    const struct json *prefix = conj_one(s, c, "prefixItems"), *items = conj_one(s, c, "items");
    a->items = items;
    a->prefix = prefix;
    for (uint32_t i = 0; i < c->n && items && prefix; i++)
        if (!json_get(c->node[i], "items") != !json_get(c->node[i], "prefixItems"))
            schema_fail(s, ERR_UNSUPPORTED, c->node[i], NULL,
                        "items and prefixItems of different schemas must hold together");
    if (json_is(items, JSON_ARRAY)) { /* draft 7 and before: a tuple, followed by additionalItems */
        a->prefix = items;
        a->items = conj_one(s, c, "additionalItems");
    }
    if (a->prefix && !json_is(a->prefix, JSON_ARRAY))
        schema_fail(s, ERR_INVALID, c->node[0], "prefixItems", "must be an array of schemas");
    a->n_prefix = a->prefix && !s->failed ? (uint32_t)json_count(a->prefix) : 0;
    if (a->n_prefix > 64)
        schema_fail(s, ERR_TOO_LARGE, c->node[0], "prefixItems", "has over 64 schemas");
    if (a->n_prefix == 0)
        a->prefix = NULL;
    if (json_is(a->items, JSON_FALSE) && a->max > a->n_prefix)
        a->max = a->n_prefix;
    return !s->failed;
}

expr_id schema_array(struct schema *s, const struct conj *c)
{
    struct array a = {.max = EXPR_MANY};
    conj_count(s, c, "minItems", true, &a.min);
    conj_count(s, c, "maxItems", false, &a.max);
    if (s->failed || !read_prefix(s, c, &a))
        return expr_never(s->x);
    if (a.min > a.max)
        return expr_never(s->x);
    const struct json *once = conj_one(s, c, "uniqueItems");
    if (json_is(once, JSON_TRUE) && a.max > 1)
        return unique(s, c, &a);
    if (a.max == 0)
        return no_items(s);
    if (a.prefix)
        return with_prefix(s, &a);
    expr_id full = brackets(s, rest(s, &a, 0));
    return a.min == 0 ? expr_alt2(s->x, no_items(s), full) : full;
}
