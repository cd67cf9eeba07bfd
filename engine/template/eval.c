/* Evaluation of chat template expressions: names, attributes, calls, operators.
 *
 * Attribute and item access, and what counts as unsafe, follow jinja2's immutable sandbox.
 * Called by exec.c. Thread: the one that renders. */
#include <string.h>

#include "engine/template/interp.h"

/* ---- calls ---- */

static bool next_param(const char **p, const char **name, size_t *len, bool *optional)
{
    while (**p == ' ')
        (*p)++;
    if (!**p)
        return false;
    *name = *p;
    while (**p && **p != ' ')
        (*p)++;
    *len = (size_t)(*p - *name);
    *optional = (*name)[*len - 1] == '?';
    *len -= *optional;
    return true;
}

static void bind_keyword(struct tmpl *c, const struct tm_builtin *fn, const struct tm_kwarg *kw,
                         struct tm_val *a)
{
    const char *p = fn->params, *name;
    size_t len;
    bool optional;
    if (*p == '/')
        tm_fail(c, ERR_INVALID, "'%s' takes no keyword arguments", fn->name);
    for (int i = 0; next_param(&p, &name, &len, &optional); i++) {
        if (kw->name->len != len || memcmp(kw->name->p, name, len) != 0)
            continue;
        if (a[i].type != TM_ABSENT)
            tm_fail(c, ERR_INVALID, "argument '%.*s' of '%s' given twice", (int)len, name,
                    fn->name);
        a[i] = kw->v;
        return;
    }
    tm_fail(c, ERR_INVALID, "'%s' has no argument '%.*s'", fn->name,
            kw->name->len > 80 ? 80 : (int)kw->name->len, kw->name->p);
}

struct tm_val tm_invoke(struct tmpl *c, const struct tm_builtin *fn, struct tm_val self,
                        const struct tm_args *args)
{
    tm_step(c, 1);
    if (!fn->params)
        return fn->fn(c, self, NULL, args);
    struct tm_val a[TM_MAX_PARAMS] = {{.type = TM_ABSENT}};
    const char *p = fn->params + (fn->params[0] == '/'), *name;
    size_t len;
    bool optional;
    uint32_t n = 0;
    for (; next_param(&p, &name, &len, &optional); n++)
        if (n < args->n)
            a[n] = args->v[n];
    if (args->n > n)
        tm_fail(c, ERR_INVALID, "'%s' takes at most %u arguments (%u given)", fn->name, n, args->n);
    for (uint32_t i = 0; i < args->n_kw; i++)
        bind_keyword(c, fn, &args->kw[i], a);
    p = fn->params + (fn->params[0] == '/');
    for (n = 0; next_param(&p, &name, &len, &optional); n++)
        if (a[n].type == TM_ABSENT && !optional)
            tm_fail(c, ERR_INVALID, "'%s' misses its argument '%.*s'", fn->name, (int)len, name);
    return fn->fn(c, self, a, args);
}

static void add_keyword(struct tmpl *c, struct tm_args *args, const struct tm_str *name,
                        struct tm_val v, uint32_t *cap)
{
    for (uint32_t i = 0; i < args->n_kw; i++)
        if (tm_str_eq(args->kw[i].name, name))
            tm_fail(c, ERR_INVALID, "keyword argument '%.*s' given twice",
                    name->len > 80 ? 80 : (int)name->len, name->p);
    if (args->n_kw == *cap) {
        uint32_t grown = *cap ? *cap * 2 : 4;
        args->kw = tm_grow(c, args->kw, args->n_kw * sizeof(*args->kw), grown * sizeof(*args->kw));
        *cap = grown;
    }
    args->kw[args->n_kw++] = (struct tm_kwarg){name, v};
}

static void add_dict_keywords(struct tmpl *c, struct tm_args *args, struct tm_val v, uint32_t *cap)
{
    tm_need_defined(c, v);
    if (v.type != TM_DICT)
        tm_fail(c, ERR_INVALID, "argument after ** must be a mapping, not %s", tm_type_name(v));
    for (uint32_t i = 0; i < v.dict->n; i++)
        add_keyword(c, args, tm_need_str(c, v.dict->e[i].key, "a keyword"), v.dict->e[i].value,
                    cap);
}

struct tm_args tm_eval_args(struct tmpl *c, struct tm_scope *s, const struct tm_callargs *call)
{
    struct tm_args args = {0};
    struct tm_list *l = tm_list_new(c, call->args.n);
    uint32_t cap = 0;
    for (uint32_t i = 0; i < call->args.n; i++)
        tm_list_add(c, l, tm_eval(c, s, call->args.v[i]));
    for (uint32_t i = 0; i < call->n_kw; i++)
        add_keyword(c, &args, c->tpl->names[call->kw[i].name], tm_eval(c, s, call->kw[i].value),
                    &cap);
    if (call->star) {
        const struct tm_list *more = tm_to_list(c, tm_eval(c, s, call->star));
        for (uint32_t i = 0; i < more->n; i++)
            tm_list_add(c, l, more->v[i]);
    }
    if (call->star_star)
        add_dict_keywords(c, &args, tm_eval(c, s, call->star_star), &cap);
    args.v = l->v;
    args.n = l->n;
    return args;
}

struct tm_val tm_call(struct tmpl *c, struct tm_val f, const struct tm_args *args)
{
    tm_need_defined(c, f);
    switch (f.type) {
    case TM_FUNC:
        return tm_invoke(c, f.func, tm_none(), args);
    case TM_METHOD:
        return tm_invoke(c, f.method->fn, f.method->self, args);
    case TM_MACRO:
        return tm_call_macro(c, f.macro, args);
    case TM_LOOP:
        return tm_call_loop(c, f.loop, args);
    default:
        tm_fail(c, ERR_INVALID, "'%s' object is not callable", tm_type_name(f));
    }
}

/* ---- attributes and items ---- */

static struct tm_val unsafe_attr(struct tmpl *c, struct tm_val v, const struct tm_str *name)
{
    struct tm_sb b;
    tm_sb_init(&b, c);
    tm_sb_printf(&b, "access to attribute '%.*s' of '%s' object is unsafe.",
                 name->len > 80 ? 80 : (int)name->len, name->p, tm_type_name(v));
    tm_sb_add_char(&b, 0, false);
    return tm_undef_hint(c, b.p);
}

static struct tm_val macro_attr(struct tmpl *c, struct tm_val v, const struct tm_str *name)
{
    const struct tm_node *n = v.macro->node;
    if (tm_str_is(name, "name"))
        return n->kind == TN_MACRO ? tm_string(n->text) : tm_none();
    if (tm_str_is(name, "arguments")) {
        struct tm_list *l = tm_list_new(c, n->list.n);
        for (uint32_t i = 0; i < n->list.n; i++)
            tm_list_add(c, l, tm_string(n->list.v[i]->text));
        return (struct tm_val){.type = TM_TUPLE, .list = l};
    }
    if (tm_str_is(name, "caller"))
        return tm_bool(n->uses & TM_USES_CALLER);
    if (tm_str_is(name, "catch_kwargs"))
        return tm_bool(n->uses & TM_USES_KWARGS);
    if (tm_str_is(name, "catch_varargs"))
        return tm_bool(n->uses & TM_USES_VARARGS);
    return tm_undef_member(c, v, tm_string(name));
}

/* An attribute proper, not an item: TM_ABSENT when there is none. */
static struct tm_val own_attr(struct tmpl *c, struct tm_val v, const struct tm_str *name)
{
    bool unsafe = false;
    const struct tm_builtin *fn = tm_method_find(c, v, name, &unsafe);
    if (unsafe || (name->len > 2 && name->p[0] == '_' && name->p[1] == '_'))
        return unsafe_attr(c, v, name);
    if (fn) {
        struct tm_method *m = tm_alloc(c, sizeof(*m));
        *m = (struct tm_method){v, fn};
        return (struct tm_val){.type = TM_METHOD, .method = m};
    }
    if (v.type == TM_NAMESPACE) {
        const struct tm_val *found = tm_dict_get_str(c, v.dict, name);
        return found ? *found : (struct tm_val){.type = TM_ABSENT};
    }
    if (v.type == TM_LOOP)
        return tm_loop_attr(c, v.loop, name);
    if (v.type == TM_MACRO)
        return macro_attr(c, v, name);
    if (v.type == TM_TUPLE && v.list->group && tm_str_is(name, "grouper"))
        return v.list->v[0];
    if (v.type == TM_TUPLE && v.list->group && tm_str_is(name, "list"))
        return v.list->v[1];
    return (struct tm_val){.type = TM_ABSENT};
}

static bool hashable(struct tm_val v)
{
    if (v.type == TM_TUPLE) {
        for (uint32_t i = 0; i < v.list->n; i++)
            if (!hashable(v.list->v[i]))
                return false;
        return true;
    }
    return v.type != TM_LIST && v.type != TM_DICT && v.type != TM_VIEW;
}

static struct tm_val sequence_item(struct tmpl *c, struct tm_val v, struct tm_val key)
{
    int64_t i = key.type == TM_BOOL ? key.b : key.i, n = tm_length(c, v);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return tm_undef_member(c, v, key);
    if (v.type == TM_RANGE)
        return tm_range_item(v.range, (uint32_t)i);
    if (v.type != TM_STR)
        return v.list->v[i];
    uint32_t from = tm_str_offset(c, v.s, (uint32_t)i), cp;
    return tm_string(tm_sub(c, v.s, from, from + (uint32_t)tm_decode(v.s, from, &cp)));
}

struct tm_val tm_getitem(struct tmpl *c, struct tm_val v, struct tm_val key)
{
    tm_need_defined(c, v);
    if (v.type == TM_DICT && hashable(key)) {
        const struct tm_val *found = tm_dict_get(c, v.dict, key);
        if (found)
            return *found;
    }
    bool sequence =
        v.type == TM_STR || v.type == TM_LIST || v.type == TM_TUPLE || v.type == TM_RANGE;
    if (sequence && (key.type == TM_INT || key.type == TM_BOOL))
        return sequence_item(c, v, key);
    if (key.type == TM_STR) {
        struct tm_val found = own_attr(c, v, key.s);
        if (found.type != TM_ABSENT)
            return found;
    }
    return tm_undef_member(c, v, key);
}

struct tm_val tm_getattr(struct tmpl *c, struct tm_val v, const struct tm_str *name)
{
    tm_need_defined(c, v);
    struct tm_val found = own_attr(c, v, name);
    if (found.type != TM_ABSENT)
        return found;
    if (v.type == TM_DICT) {
        const struct tm_val *item = tm_dict_get_str(c, v.dict, name);
        if (item)
            return *item;
    }
    return tm_undef_member(c, v, tm_string(name));
}

/* ---- slices ---- */

static int64_t slice_bound(struct tmpl *c, struct tm_val v, int64_t n, int64_t low, int64_t high,
                           int64_t otherwise)
{
    if (v.type == TM_NONE || v.type == TM_ABSENT)
        return otherwise;
    if (v.type != TM_INT && v.type != TM_BOOL)
        tm_fail(c, ERR_INVALID, "slice index must be an integer or none, not %s", tm_type_name(v));
    int64_t i = v.type == TM_BOOL ? v.b : v.i;
    if (i < 0)
        i += n;
    return i < low ? low : i > high ? high : i;
}

static const struct tm_str *slice_str(struct tmpl *c, const struct tm_str *s, int64_t start,
                                      int64_t step, int64_t n, int64_t chars)
{
    if (step == 1) {
        uint32_t from = tm_str_offset(c, s, (uint32_t)start);
        uint32_t to = start + n == chars ? s->len : tm_str_offset(c, s, (uint32_t)(start + n));
        return n ? tm_sub(c, s, from, to) : tm_sub(c, s, 0, 0);
    }
    uint32_t *at = tm_alloc(c, ((size_t)chars + 1) * sizeof(*at));
    uint32_t k = 0;
    for (uint32_t i = 0; i < s->len; i++)
        if (((unsigned char)s->p[i] & 0xc0) != 0x80)
            at[k++] = i;
    at[k] = s->len;
    struct tm_sb b;
    tm_sb_init(&b, c);
    for (int64_t i = 0; i < n; i++) {
        int64_t j = start + i * step;
        tm_sb_add_sub(&b, s, at[j], at[j + 1]);
    }
    return tm_as_markup(c, tm_sb_done(&b), s->markup);
}

struct tm_val tm_slice(struct tmpl *c, struct tm_val v, struct tm_val start, struct tm_val stop,
                       struct tm_val step)
{
    tm_need_defined(c, v);
    if (v.type != TM_STR && v.type != TM_LIST && v.type != TM_TUPLE && v.type != TM_RANGE)
        tm_fail(c, ERR_INVALID, "'%s' object can't be sliced", tm_type_name(v));
    int64_t n = tm_length(c, v), by = 1;
    if (step.type != TM_NONE && step.type != TM_ABSENT)
        by = tm_need_int(c, step, "slice step");
    if (by == 0)
        tm_fail(c, ERR_INVALID, "slice step cannot be zero");
    if (by > TM_MAX_STRING_BYTES || by < -TM_MAX_STRING_BYTES)
        by = by > 0 ? TM_MAX_STRING_BYTES : -TM_MAX_STRING_BYTES;
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    int64_t from = slice_bound(c, start, n, low, high, by > 0 ? 0 : n - 1);
    int64_t to = slice_bound(c, stop, n, low, high, by > 0 ? n : -1);
    int64_t count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0)
                           : (to < from ? (from - to - 1) / -by + 1 : 0);
    tm_step(c, (uint64_t)count);
    if (v.type == TM_STR)
        return tm_string(slice_str(c, v.s, from, by, count, n));
    if (v.type == TM_RANGE) {
        struct tm_range *r = tm_alloc(c, sizeof(*r));
        *r = (struct tm_range){v.range->start + from * v.range->step,
                               v.range->start + to * v.range->step, v.range->step * by,
                               (uint32_t)count};
        return (struct tm_val){.type = TM_RANGE, .range = r};
    }
    struct tm_list *l = tm_list_new(c, (uint32_t)count);
    for (int64_t i = 0; i < count; i++)
        tm_list_add(c, l, v.list->v[from + i * by]);
    return (struct tm_val){.type = v.type, .list = l};
}

/* ---- expressions ---- */

static struct tm_val eval_name(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_val v = tm_scope_get(c, s, n->name);
    if (v.type != TM_ABSENT)
        return v;
    if (n->builtin)
        return (struct tm_val){.type = TM_FUNC, .func = n->builtin};
    return tm_undef_name(c, n->text);
}

static struct tm_val eval_list(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_list *l = tm_list_new(c, n->list.n);
    for (uint32_t i = 0; i < n->list.n; i++)
        tm_list_add(c, l, tm_eval(c, s, n->list.v[i]));
    return (struct tm_val){.type = n->kind == TN_LIST ? TM_LIST : TM_TUPLE, .list = l};
}

static struct tm_val eval_dict(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_dict *d = tm_dict_new(c);
    for (uint32_t i = 0; i < n->list.n; i++) {
        struct tm_val key = tm_eval(c, s, n->list.v[i]);
        tm_dict_set(c, d, key, tm_eval(c, s, n->list2.v[i]));
    }
    return tm_dict_val(d);
}

static struct tm_val eval_item(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_val v = tm_eval(c, s, n->a);
    if (n->b->kind != TN_SLICE) {
        struct tm_val key = tm_eval(c, s, n->b);
        c->line = n->line;
        return tm_getitem(c, v, key);
    }
    struct tm_val part[3];
    for (int i = 0; i < 3; i++)
        part[i] = n->b->list.v[i] ? tm_eval(c, s, n->b->list.v[i]) : tm_none();
    c->line = n->line;
    return tm_slice(c, v, part[0], part[1], part[2]);
}

static struct tm_val eval_call(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_val f = tm_eval(c, s, n->a);
    struct tm_args args = tm_eval_args(c, s, n->call);
    c->line = n->line;
    return tm_call(c, f, &args);
}

static struct tm_val apply_one(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                               struct tm_val v)
{
    if (!n->builtin) {
        c->line = n->line;
        tm_fail(c, ERR_UNSUPPORTED, "no %s named '%.*s'", n->kind == TN_TEST ? "test" : "filter",
                n->text->len > 60 ? 60 : (int)n->text->len, n->text->p);
    }
    struct tm_args args = tm_eval_args(c, s, n->call);
    c->line = n->line;
    return tm_invoke(c, n->builtin, v, &args);
}

struct tm_val tm_apply_filter(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                              struct tm_val v)
{
    if (n->a)
        v = tm_apply_filter(c, s, n->a, v);
    return apply_one(c, s, n, v);
}

static bool compare_one(struct tmpl *c, uint8_t op, struct tm_val a, struct tm_val b)
{
    switch (op) {
    case TO_EQ:
        return tm_equal(c, a, b);
    case TO_NE:
        return !tm_equal(c, a, b);
    case TO_IN:
        return tm_contains(c, b, a);
    case TO_NOT_IN:
        return !tm_contains(c, b, a);
    default: {
        int order = tm_order(c, a, b);
        if (order == 2)
            return false;
        return op == TO_LT   ? order < 0
               : op == TO_LE ? order <= 0
               : op == TO_GT ? order > 0
                             : order >= 0;
    }
    }
}

static struct tm_val eval_compare(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_val left = tm_eval(c, s, n->a);
    for (uint32_t i = 0; i < n->list.n; i++) {
        struct tm_val right = tm_eval(c, s, n->list.v[i]);
        c->line = n->line;
        if (!compare_one(c, n->ops[i], left, right))
            return tm_bool(false);
        left = right;
    }
    return tm_bool(true);
}

static struct tm_val eval_concat(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_sb b;
    tm_sb_init(&b, c);
    struct tm_list *parts = tm_list_new(c, n->list.n);
    for (uint32_t i = 0; i < n->list.n; i++)
        tm_list_add(c, parts, tm_eval(c, s, n->list.v[i]));
    c->line = n->line;
    for (uint32_t i = 0; i < parts->n; i++)
        tm_sb_add_str(&b, tm_to_str(c, parts->v[i]));
    return tm_string(tm_sb_done(&b));
}

static struct tm_val eval_binary(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_val a = tm_eval(c, s, n->a), b = tm_eval(c, s, n->b);
    c->line = n->line;
    return tm_binary(c, n->op, a, b);
}

static struct tm_val eval_cond(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    if (tm_truthy(c, tm_eval(c, s, n->b)))
        return tm_eval(c, s, n->a);
    if (n->c)
        return tm_eval(c, s, n->c);
    return tm_undef_hint(c, "the inline if-expression evaluated to false and no else section was "
                            "defined.");
}

static struct tm_val eval_kind(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_val v;
    switch (n->kind) {
    case TN_CONST:
        return n->value;
    case TN_NAME:
        return eval_name(c, s, n);
    case TN_TUPLE:
    case TN_LIST:
        return eval_list(c, s, n);
    case TN_DICT:
        return eval_dict(c, s, n);
    case TN_ATTR:
        v = tm_eval(c, s, n->a);
        c->line = n->line;
        return tm_getattr(c, v, n->text);
    case TN_ITEM:
        return eval_item(c, s, n);
    case TN_CALL:
        return eval_call(c, s, n);
    case TN_FILTER:
    case TN_TEST:
        return apply_one(c, s, n, tm_eval(c, s, n->a));
    case TN_COND:
        return eval_cond(c, s, n);
    case TN_AND:
        v = tm_eval(c, s, n->a);
        return tm_truthy(c, v) ? tm_eval(c, s, n->b) : v;
    case TN_OR:
        v = tm_eval(c, s, n->a);
        return tm_truthy(c, v) ? v : tm_eval(c, s, n->b);
    case TN_NOT:
        return tm_bool(!tm_truthy(c, tm_eval(c, s, n->a)));
    case TN_NEG:
    case TN_POS:
        return tm_negate(c, tm_eval(c, s, n->a), n->kind == TN_NEG);
    case TN_COMPARE:
        return eval_compare(c, s, n);
    case TN_CONCAT:
        return eval_concat(c, s, n);
    case TN_BINARY:
        return eval_binary(c, s, n);
    default:
        tm_fail(c, ERR_INTERNAL, "node of kind %d is no expression", (int)n->kind);
    }
}

struct tm_val tm_eval(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    tm_step(c, 1);
    c->line = n->line;
    if (++c->depth > TM_MAX_EVAL_DEPTH)
        tm_fail(c, ERR_TOO_LARGE, "evaluation nested deeper than %d", TM_MAX_EVAL_DEPTH);
    struct tm_val v = eval_kind(c, s, n);
    c->depth--;
    return v;
}
