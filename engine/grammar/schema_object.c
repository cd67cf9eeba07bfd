/* Objects: declared members in their order, others where the schema describes them.
 *
 * F(i) is the inside of the object while no member has been written and the first i are left out, R(i) the rest of it
 * once one has been written and the first i have been handled:
 *   F(i) = member i R(i + 1) | member i + 1 R(i + 2) | ...    R(i) = "," F(i), or nothing
 * up to the first member that is required. Each is a rule called at the end of the previous one, so that it needs no place
 * on the stack. A rule holds one block of the alternatives, and calls the next block's for the others: a text is at a
 * place per block, while what one rule holds is merged. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_int.h"

enum {
    MAX_MEMBERS = 512,
    MAX_BLOCKS =
        12, /* of members that may all be left out: a text is at most at so many places there */
    MAX_INLINE_DEPTH = 128, /* of expressions */
    MAX_MERGED = 64 /* bytes of a value that is merged too, rather than called */
};

struct member {
    struct str name;
    const struct json *schema[CONJ_MAX]; /* all must hold */
    uint32_t n_schemas;
    bool required;
};

struct object {
    struct member *member; /* owns [n] */
    uint32_t n, cap;
    bool others; /* undeclared members are allowed */
    const struct json *other; /* their schema, NULL: any value */
    const struct json *pattern; /* the pattern of their names, or NULL */
    uint32_t min, max; /* members */
};

static struct member *find_member(struct object *o, struct str name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (str_eq(o->member[i].name, name))
            return &o->member[i];
    return NULL;
}

static struct member *add_member(struct schema *s, struct object *o, const struct json *node,
                                 struct str name)
{
    if (!schema_spend(s, node, o->n))
        return NULL;
    struct member *m = find_member(o, name);
    if (m)
        return m;
    if (o->n == MAX_MEMBERS) {
        schema_fail(s, ERR_TOO_LARGE, node, "properties", "has over %d members", MAX_MEMBERS);
        return NULL;
    }
    if (o->n == o->cap) {
        o->cap = o->cap ? 2 * o->cap : 16;
        o->member = mem_realloc(o->member, mem_mul(o->cap, sizeof(*o->member)));
    }
    o->member[o->n] = (struct member){.name = name};
    return &o->member[o->n++];
}

/* ---- reading ---- */

static void read_properties(struct schema *s, struct object *o, const struct json *node)
{
    const struct json *list = json_get(node, "properties");
    if (list && !json_is(list, JSON_OBJECT)) {
        schema_fail(s, ERR_INVALID, node, "properties", "must be an object of schemas");
        return;
    }
    for (const struct json *v = list ? json_first(list) : NULL; v && !s->failed; v = json_next(v)) {
        struct member *m = add_member(s, o, node, json_key(v));
        if (m && m->n_schemas < CONJ_MAX)
            m->schema[m->n_schemas++] = v;
    }
}

static void read_required(struct schema *s, struct object *o, const struct json *node)
{
    const struct json *list = json_get(node, "required");
    if (list && !json_is(list, JSON_ARRAY)) {
        schema_fail(s, ERR_INVALID, node, "required", "must be an array of names");
        return;
    }
    for (const struct json *v = list ? json_first(list) : NULL; v && !s->failed; v = json_next(v)) {
        if (!json_is(v, JSON_STRING)) {
            schema_fail(s, ERR_INVALID, node, "required", "must be an array of names");
            return;
        }
        struct member *m = add_member(s, o, node, json_string(v));
        if (m)
            m->required = true;
    }
}

static bool declares(const struct json *node, struct str name)
{
    const struct json *list = json_get(node, "properties");
    const struct json *v = json_is(list, JSON_OBJECT) ? json_first(list) : NULL;
    while (v && !str_eq(json_key(v), name))
        v = json_next(v);
    return v != NULL;
}

/* Tells of each member whether the pattern matches anywhere in its name. */
static void match_names(struct schema *s, const struct json *pattern, const struct object *o,
                        bool *matches)
{
    struct exprs x;
    struct automaton a;
    struct err e;
    exprs_init(&x);
    x.n_steps = s->x->n_steps;
    x.held = s->x->held;
    uint64_t before = x.held ? x.held->sum : 0;
    exprs_set_rule(&x, 0, regex_expr(&x, json_key(pattern), REGEX_PLAIN, false, &e));
    enum status st = automaton_build(&x, &a, &e);
    s->x->n_steps = x.n_steps;
    exprs_release(&x);
    exprs_give(s->x, s->x->held ? s->x->held->sum - before : 0);
    if (st) {
        s->x->error = e;
        schema_place_error(s, pattern);
        return;
    }
    for (uint32_t k = 0; k < o->n && schema_spend(s, pattern, o->member[k].name.len); k++) {
        struct str name = o->member[k].name;
        uint16_t at = a.start[0]; /* a regular expression makes no calls */
        for (size_t i = 0; i < name.len && at; i++)
            at = automaton_next(&a, at, (uint8_t)name.ptr[i]);
        matches[k] = at && (a.flags[at] & STATE_FINAL);
    }
    automaton_release(&a);
}

static void add_schema(struct member *m, const struct json *schema)
{
    if (m->n_schemas < CONJ_MAX)
        m->schema[m->n_schemas++] = schema;
}

/* The schema's patterns and additionalProperties also apply to members that it does not declare. */
static void apply_to_members(struct schema *s, struct object *o, const struct json *node)
{
    const struct json *patterns = json_get(node, "patternProperties");
    const struct json *more = json_get(node, "additionalProperties");
    bool *covered = mem_zalloc((size_t)o->n + 1), *matches = mem_zalloc((size_t)o->n + 1);
    for (const struct json *v = json_is(patterns, JSON_OBJECT) ? json_first(patterns) : NULL;
         v && o->n && !s->failed; v = json_next(v)) {
        match_names(s, v, o, matches);
        for (uint32_t k = 0; k < o->n && !s->failed; k++) {
            if (matches[k])
                add_schema(&o->member[k], v);
            covered[k] |= matches[k];
        }
    }
    const struct json *list = json_get(node, "properties");
    uint64_t n_declared = json_is(list, JSON_OBJECT) ? json_count(list) : 0;
    for (uint32_t k = 0; more && k < o->n && schema_spend(s, node, 1 + n_declared / 2); k++)
        if (!covered[k] && !declares(node, o->member[k].name))
            add_schema(&o->member[k], more);
    mem_free(covered);
    mem_free(matches);
}

/* Other members are written where a single schema describes them: an additionalProperties that is not false, a
 * single pattern, or neither if no member is declared. */
static void read_others(struct schema *s, const struct conj *c, struct object *o)
{
    const struct json *patterns = NULL, *more = NULL;
    uint32_t n_patterns = 0, n_more = 0, n_open = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct json *p = json_get(c->node[i], "patternProperties");
        const struct json *a = json_get(c->node[i], "additionalProperties");
        if (p && !json_is(p, JSON_OBJECT))
            schema_fail(s, ERR_INVALID, c->node[i], "patternProperties",
                        "must be an object of schemas");
        if (json_is(p, JSON_OBJECT) && json_count(p)) {
            patterns = p;
            n_patterns += (uint32_t)json_count(p);
        }
        if (a) {
            more = a;
            n_more++;
        }
        n_open += !p && !a;
    }
    if (s->failed)
        return;
    bool alone = n_open + 1 >= c->n || c->n <= 1; /* other schemas say nothing about them */
    if (n_patterns == 1 && alone && o->n == 0) {
        o->others = true;
        o->pattern = json_first(patterns);
        o->other = json_first(patterns);
    } else if (n_patterns == 0 && n_more == 1 && n_open + 1 == c->n && !json_is(more, JSON_FALSE)) {
        o->others = true;
        o->other = more;
    } else if (n_patterns == 0 && n_more == 0 && o->n == 0) {
        o->others = true;
    } else if (n_patterns > 1 && o->n == 0) {
        schema_fail(s, ERR_UNSUPPORTED, patterns, NULL,
                    "several patterns of names, any of which may match the same name");
    }
}

static void close_unevaluated(struct schema *s, const struct conj *c, struct object *o)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (!json_is(json_get(c->node[i], "unevaluatedProperties"), JSON_FALSE))
            continue;
        if (c->n > 1)
            schema_fail(s, ERR_UNSUPPORTED, c->node[i], "unevaluatedProperties",
                        "beside $ref, allOf, anyOf or oneOf is not supported");
        if (!json_get(c->node[i], "additionalProperties") &&
            !json_get(c->node[i], "patternProperties"))
            o->others = false;
    }
}

static bool read_object(struct schema *s, const struct conj *c, struct object *o)
{
    for (uint32_t i = 0; i < c->n; i++)
        read_properties(s, o, c->node[i]);
    for (uint32_t i = 0; i < c->n; i++)
        read_required(s, o, c->node[i]);
    for (uint32_t i = 0; i < c->n && !s->failed; i++)
        apply_to_members(s, o, c->node[i]);
    conj_count(s, c, "minProperties", true, &o->min);
    conj_count(s, c, "maxProperties", false, &o->max);
    if (!s->failed)
        read_others(s, c, o);
    close_unevaluated(s, c, o);
    return !s->failed;
}

/* ---- writing ---- */

static expr_id name_expr(struct schema *s, struct str name)
{
    struct buf text = {0};
    expr_id id = expr_literal(s->x, schema_text(s, name, &text));
    buf_release(&text);
    return id;
}

static expr_id pair_of(struct schema *s, expr_id name, expr_id value)
{
    return expr_seq(s->x, (expr_id[]){name, expr_text(s->x, ":"), schema_space(s), value}, 4);
}

/* A schema object with allOf over a list of schemas. */
static expr_id member_value(struct schema *s, const struct member *m)
{
    if (m->n_schemas == 0)
        return schema_any_value(s);
    return m->n_schemas == 1 ? schema_value(s, m->schema[0])
                             : schema_all(s, m->schema, m->n_schemas);
}

static expr_id as_rule(struct schema *s, expr_id body)
{
    uint32_t rule = exprs_add_rule(s->x);
    exprs_set_rule(s->x, rule, body);
    return expr_rule(s->x, rule);
}

static expr_id after_comma(struct schema *s, expr_id pair)
{
    return expr_seq3(s->x, expr_text(s->x, ","), schema_space(s), pair);
}

/* Code points after a prefix of declared names: any name except a declared one. */
static expr_id other_tail(struct schema *s, const struct object *o, const uint32_t *from,
                          uint32_t n, size_t at)
{
    struct exprs *x = s->x;
    struct expr_list list = {NULL, 0, 0};
    struct expr_range *next = mem_alloc(mem_mul((size_t)n + 1, sizeof(*next)));
    uint32_t *kept = mem_alloc(mem_mul((size_t)n + 1, sizeof(*kept))), n_next = 0;
    bool ends = true;
    schema_spend(s, o->other, n);
    for (uint32_t i = 0; i < n; i++) {
        struct str name = o->member[from[i]].name;
        uint32_t c;
        if (name.len == at) {
            ends = false;
            continue;
        }
        utf8_decode((struct str){name.ptr + at, name.len - at}, &c);
        bool seen = false;
        for (uint32_t k = 0; k < n_next && !seen; k++)
            seen = next[k].first == c;
        if (!seen)
            next[n_next++] = (struct expr_range){c, c};
    }
    if (ends)
        expr_list_add(&list, expr_empty(x));
    expr_id any = regex_class(x, NULL, 0, true, REGEX_JSON);
    expr_list_add(&list, expr_seq2(x, regex_class(x, next, n_next, true, REGEX_JSON),
                                   expr_repeat(x, any, 0, EXPR_MANY)));
    for (uint32_t k = 0; k < n_next && schema_spend(s, o->other, 4 * (uint64_t)n); k++) {
        uint32_t n_kept = 0;
        int bytes = 0;
        for (uint32_t i = 0; i < n; i++) {
            struct str name = o->member[from[i]].name;
            uint32_t c;
            int len =
                name.len > at ? utf8_decode((struct str){name.ptr + at, name.len - at}, &c) : 0;
            if (len <= 0 || c != next[k].first)
                continue;
            kept[n_kept++] = from[i];
            bytes = len;
        }
        if (at + (size_t)bytes > 128) {
            schema_fail(s, ERR_TOO_LARGE, o->other ? o->other : s->root, NULL,
                        "a member's name of over 128 bytes beside additionalProperties");
            break;
        }
        expr_id one = regex_class(x, &next[k], 1, false, REGEX_JSON);
        expr_list_add(&list, expr_seq2(x, one, other_tail(s, o, kept, n_kept, at + (size_t)bytes)));
    }
    expr_id id = expr_alt(x, list.id, list.n);
    expr_list_release(&list);
    mem_free(next);
    mem_free(kept);
    return id;
}

static expr_id other_name(struct schema *s, const struct object *o)
{
    struct exprs *x = s->x;
    struct err e = {.text = ""};
    expr_id inside;
    if (o->pattern) {
        inside = regex_expr(x, json_key(o->pattern), REGEX_JSON, false, &e);
        if (x->error.status)
            return schema_place_error(s, o->pattern);
    } else if (o->n == 0) {
        return schema_any_string(s);
    } else {
        uint32_t *all = mem_alloc(mem_mul(o->n, sizeof(*all)));
        for (uint32_t i = 0; i < o->n; i++)
            all[i] = i;
        inside = other_tail(s, o, all, o->n, 0);
        mem_free(all);
    }
    return expr_seq3(x, expr_text(x, "\""), inside, expr_text(x, "\""));
}

static expr_id other_pair(struct schema *s, const struct object *o)
{
    expr_id value = o->other ? schema_value(s, o->other) : schema_any_value(s);
    return as_rule(s, pair_of(s, other_name(s, o), value));
}

static bool counts_fit(struct schema *s, const struct conj *c, const struct object *o)
{
    uint32_t n_required = 0;
    for (uint32_t i = 0; i < o->n; i++)
        n_required += o->member[i].required;
    bool min_ok = o->min <= n_required || (o->n == 0 && o->min == 1 && o->others);
    bool max_ok = o->max == EXPR_MANY || (!o->others && o->n <= o->max) || o->n == 0;
    if (!min_ok)
        schema_fail(s, ERR_UNSUPPORTED, c->node[0], "minProperties",
                    "is more than the required members");
    if (!max_ok)
        schema_fail(s, ERR_UNSUPPORTED, c->node[0], "maxProperties",
                    "is less than the declared members");
    return min_ok && max_ok;
}

static expr_id braces(struct schema *s, expr_id inside)
{
    expr_id space = schema_space(s);
    return expr_seq(
        s->x, (expr_id[]){expr_text(s->x, "{"), space, inside, space, expr_text(s->x, "}")}, 5);
}

/* No member is declared: only others, as many as the counts allow. */
static expr_id map_expr(struct schema *s, const struct object *o)
{
    struct exprs *x = s->x;
    expr_id pair = other_pair(s, o);
    uint32_t max = o->max == EXPR_MANY ? EXPR_MANY : o->max ? o->max - 1 : 0;
    if (o->max == 0)
        return expr_text(x, "{}");
    expr_id full = braces(s, expr_seq2(x, pair, expr_repeat(x, after_comma(s, pair), 0, max)));
    return o->min ? full : expr_alt2(x, expr_text(x, "{}"), full);
}

/* A constant stays in the rule, so that it is merged with those of other branches that begin alike. */
static bool is_short_text(const struct exprs *x, expr_id id)
{
    const struct expr *e = &x->expr[id];
    return e->kind == EXPR_BYTES && e->n <= MAX_MERGED;
}

static uint32_t hash_of(struct str text)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < text.len; i++)
        h = (h ^ (uint8_t)text.ptr[i]) * 16777619u;
    return h;
}

static const struct shared_value *find_shared(struct schema *s, struct str raw, uint32_t hash)
{
    if (!schema_spend(s, s->root, raw.len / 2 + s->n_shared / 4))
        return NULL;
    for (uint32_t i = 0; i < s->n_shared; i++)
        if (s->shared[i].hash == hash && str_eq(s->shared[i].raw, raw))
            return &s->shared[i];
    return NULL;
}

static void share(struct schema *s, struct shared_value value)
{
    if (s->n_shared == s->cap_shared) {
        s->cap_shared = s->cap_shared ? 2 * s->cap_shared : 16;
        s->shared = mem_realloc(s->shared, mem_mul(s->cap_shared, sizeof(*s->shared)));
    }
    s->shared[s->n_shared++] = value;
}

/* What follows the name. */
static expr_id behind_name(struct schema *s, const struct member *m)
{
    expr_id value = member_value(s, m);
    expr_id behind = expr_seq3(s->x, expr_text(s->x, ":"), schema_space(s), value);
    return s->failed || is_short_text(s->x, value) ? behind : as_rule(s, behind);
}

static expr_id member_expr(struct schema *s, const struct member *m)
{
    expr_id behind;
    if (m->n_schemas == 1) {
        struct str raw = json_raw(m->schema[0]);
        uint32_t hash = hash_of(raw);
        const struct shared_value *known = find_shared(s, raw, hash);
        behind = known ? known->id : behind_name(s, m);
        if (!known)
            share(s, (struct shared_value){raw, hash, behind});
    } else {
        behind = behind_name(s, m);
    }
    return expr_seq2(s->x, name_expr(s, m->name), behind);
}

/* The members of an object while its rules are made. */
struct members {
    const struct object *o;
    expr_id *member, *rest; /* own [n + 1]; member[n]: an undeclared one; rest: R(i) */
    uint32_t block;
};

static uint32_t block_of(const struct object *o)
{
    uint32_t run = 0, longest = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        run = o->member[i].required ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return 1 + longest / MAX_BLOCKS;
}

/* One block of F(i). *end: the first member behind it, or 0 when a required one ends the alternatives. */
static expr_id block_expr(struct schema *s, const struct members *m, uint32_t i, uint32_t *end)
{
    struct expr_list list = {NULL, 0, 0};
    uint32_t n = m->o->n, last = i + m->block < n ? i + m->block : n;
    *end = last;
    for (; i < last && *end; i++) {
        expr_list_add(&list, expr_seq2(s->x, m->member[i], m->rest[i + 1]));
        if (m->o->member[i].required)
            *end = 0;
    }
    if (*end == n && m->o->others)
        expr_list_add(&list, expr_seq2(s->x, m->member[n], m->rest[n]));
    expr_id id = expr_alt(s->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

/* R(i). Where only one place leads to it, it stays in the rule, and is merged with those of other branches. */
static expr_id rest_of(struct schema *s, const struct members *m, uint32_t i)
{
    uint32_t end;
    expr_id id = after_comma(s, block_expr(s, m, i, &end));
    if (end == m->o->n)
        id = expr_maybe(s->x, id);
    else if (end)
        id = expr_alt2(s->x, id, m->rest[end]);
    bool once = i == 1 || m->o->member[i - 2].required;
    return once && s->x->expr[id].depth < MAX_INLINE_DEPTH ? id : as_rule(s, id);
}

/* F(0), and *may_be_empty: no member is required. */
static expr_id first_of(struct schema *s, const struct members *m, bool *may_be_empty)
{
    struct expr_list list = {NULL, 0, 0};
    uint32_t end = 0;
    do {
        expr_id block = block_expr(s, m, end, &end);
        expr_list_add(&list, list.n ? as_rule(s, block) : block);
    } while (end && end < m->o->n);
    *may_be_empty = end != 0;
    expr_id id = expr_alt(s->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id members_expr(struct schema *s, const struct object *o)
{
    struct exprs *x = s->x;
    struct members m = {.o = o, .block = block_of(o)};
    bool may_be_empty;
    m.member = mem_alloc(mem_mul((size_t)o->n + 1, sizeof(*m.member)));
    m.rest = mem_alloc(mem_mul((size_t)o->n + 1, sizeof(*m.rest)));
    m.member[o->n] = o->others ? other_pair(s, o) : expr_never(x);
    for (uint32_t i = 0; i < o->n; i++)
        m.member[i] = member_expr(s, &o->member[i]);
    m.rest[o->n] = o->others
                       ? as_rule(s, expr_repeat(x, after_comma(s, m.member[o->n]), 0, EXPR_MANY))
                       : expr_empty(x);
    for (uint32_t i = o->n; i-- > 1;)
        m.rest[i] = rest_of(s, &m, i);
    expr_id id = braces(s, first_of(s, &m, &may_be_empty));
    if (may_be_empty)
        id = expr_alt2(x, expr_text(x, "{}"), id);
    mem_free(m.member);
    mem_free(m.rest);
    return id;
}

expr_id schema_object(struct schema *s, const struct conj *c)
{
    struct object o = {.max = EXPR_MANY};
    expr_id id = expr_never(s->x);
    if (read_object(s, c, &o) && counts_fit(s, c, &o))
        id = o.n == 0 ? (o.others ? map_expr(s, &o) : expr_text(s->x, "{}")) : members_expr(s, &o);
    mem_free(o.member);
    return id;
}

/* Recursive: as deep as JSON is. */
void schema_check_sizes(struct schema *s, const struct json *node)
{
    if (!json_is(node, JSON_OBJECT) && !json_is(node, JSON_ARRAY))
        return;
    if (json_is(node, JSON_OBJECT) && json_count(node) > SCHEMA_MAX_MEMBERS)
        schema_fail(s, ERR_TOO_LARGE, node, NULL, "an object of over %d members",
                    SCHEMA_MAX_MEMBERS);
    for (const struct json *v = json_first(node); v && !s->failed; v = json_next(v))
        schema_check_sizes(s, v);
}
