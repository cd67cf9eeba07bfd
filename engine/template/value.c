/* Values of the chat template interpreter: Python's truth, equality, order, containers, iteration.
 *
 * Called by engine/template. Thread: the one that renders. */
#include <math.h>
#include <string.h>

#include "engine/template/interp.h"

/* ---- undefined ---- */

struct tm_val tm_undef_hint(struct tmpl *c, const char *hint)
{
    struct tm_undef *u = tm_zalloc(c, sizeof(*u));
    u->hint = hint;
    return (struct tm_val){.type = TM_UNDEF, .undef = u};
}

struct tm_val tm_undef_name(struct tmpl *c, const struct tm_str *name)
{
    struct tm_undef *u = tm_zalloc(c, sizeof(*u));
    u->name = name;
    return (struct tm_val){.type = TM_UNDEF, .undef = u};
}

struct tm_val tm_undef_member(struct tmpl *c, struct tm_val object, struct tm_val key)
{
    struct tm_undef *u = tm_zalloc(c, sizeof(*u));
    u->object = tm_type_name(object);
    if (key.type == TM_STR)
        u->name = key.s;
    u->key = key;
    return (struct tm_val){.type = TM_UNDEF, .undef = u};
}

void tm_fail_undef(struct tmpl *c, struct tm_val undefined)
{
    const struct tm_undef *u = undefined.undef;
    if (u && u->hint)
        tm_fail(c, ERR_INVALID, "%s", u->hint);
    if (!u || (!u->name && !u->object))
        tm_fail(c, ERR_INVALID, "undefined value used");
    if (!u->name) {
        struct tm_sb b;
        tm_sb_init(&b, c);
        tm_repr(&b, u->key);
        int n = b.len > 80 ? 80 : (int)b.len;
        tm_fail(c, ERR_INVALID, "%s object has no element %.*s", u->object, n, b.p);
    }
    int n = u->name->len > 80 ? 80 : (int)u->name->len;
    if (u->object)
        tm_fail(c, ERR_INVALID, "'%s object' has no attribute '%.*s'", u->object, n, u->name->p);
    tm_fail(c, ERR_INVALID, "'%.*s' is undefined", n, u->name->p);
}

/* ---- kinds ---- */

const char *tm_type_name(struct tm_val v)
{
    switch (v.type) {
    case TM_ABSENT:
    case TM_UNDEF:
        return "Undefined";
    case TM_NONE:
        return "None";
    case TM_BOOL:
        return "bool";
    case TM_INT:
    case TM_BIG:
        return "int";
    case TM_FLOAT:
        return "float";
    case TM_STR:
        return v.s->markup ? "Markup" : "str";
    case TM_LIST:
        return "list";
    case TM_TUPLE:
        return "tuple";
    case TM_DICT:
        return "dict";
    case TM_NAMESPACE:
        return "namespace";
    case TM_RANGE:
        return "range";
    case TM_ITER:
        return "generator";
    case TM_VIEW:
        return v.view->kind == 'k'   ? "dict_keys"
               : v.view->kind == 'v' ? "dict_values"
                                     : "dict_items";
    case TM_FUNC:
        return "function";
    case TM_METHOD:
        return "builtin_function_or_method";
    case TM_MACRO:
        return "Macro";
    case TM_LOOP:
        return "LoopContext";
    }
    return "object";
}

bool tm_is_number(struct tm_val v)
{
    return v.type == TM_BOOL || v.type == TM_INT || v.type == TM_FLOAT;
}

static bool is_whole(struct tm_val v)
{
    return v.type == TM_BOOL || v.type == TM_INT;
}

static int64_t whole(struct tm_val v)
{
    return v.type == TM_BOOL ? v.b : v.i;
}

double tm_number(struct tm_val v)
{
    return v.type == TM_FLOAT ? v.f : (double)whole(v);
}

int64_t tm_need_int(struct tmpl *c, struct tm_val v, const char *what)
{
    tm_need_defined(c, v);
    if (!is_whole(v))
        tm_fail(c, ERR_INVALID, "%s must be an integer, not %s", what, tm_type_name(v));
    return whole(v);
}

const struct tm_str *tm_need_str(struct tmpl *c, struct tm_val v, const char *what)
{
    tm_need_defined(c, v);
    if (v.type != TM_STR)
        tm_fail(c, ERR_INVALID, "%s must be a string, not %s", what, tm_type_name(v));
    return v.s;
}

bool tm_truthy(struct tmpl *c, struct tm_val v)
{
    switch (v.type) {
    case TM_ABSENT:
    case TM_UNDEF:
    case TM_NONE:
        return false;
    case TM_BOOL:
        return v.b;
    case TM_INT:
        return v.i != 0;
    case TM_FLOAT:
        return v.f != 0;
    case TM_STR:
    case TM_LIST:
    case TM_TUPLE:
    case TM_DICT:
    case TM_RANGE:
    case TM_VIEW:
    case TM_LOOP:
        return tm_length(c, v) != 0;
    default:
        return true;
    }
}

int64_t tm_length(struct tmpl *c, struct tm_val v)
{
    switch (v.type) {
    case TM_UNDEF:
        return 0;
    case TM_STR:
        return tm_str_chars(c, v.s);
    case TM_LIST:
    case TM_TUPLE:
        return v.list->n;
    case TM_DICT:
        return v.dict->n;
    case TM_RANGE:
        return v.range->n;
    case TM_VIEW:
        return v.view->dict->n;
    case TM_LOOP:
        return tm_loop_attr(c, v.loop, tm_str_lit(c, "length")).i;
    default:
        tm_fail(c, ERR_INVALID, "object of type '%s' has no length", tm_type_name(v));
    }
}

/* ---- equality and order ---- */

/* Exact: a long double holds every int64. -1, 0, 1, or 2 with a NaN. */
static int number_order(struct tm_val a, struct tm_val b)
{
    if (a.type != TM_FLOAT && b.type != TM_FLOAT)
        return (whole(a) > whole(b)) - (whole(a) < whole(b));
    long double x = a.type == TM_FLOAT ? (long double)a.f : (long double)whole(a);
    long double y = b.type == TM_FLOAT ? (long double)b.f : (long double)whole(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static bool equal_lists(struct tmpl *c, const struct tm_list *a, const struct tm_list *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!tm_equal(c, a->v[i], b->v[i]))
            return false;
    return true;
}

static bool equal_dicts(struct tmpl *c, const struct tm_dict *a, const struct tm_dict *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct tm_val *other = tm_dict_get(c, b, a->e[i].key);
        if (!other || !tm_equal(c, a->e[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_containers(struct tmpl *c, struct tm_val a, struct tm_val b)
{
    tm_value_enter(c);
    bool equal;
    if (a.type == TM_DICT)
        equal = equal_dicts(c, a.dict, b.dict);
    else
        equal = equal_lists(c, a.list, b.list);
    tm_value_leave(c);
    return equal;
}

bool tm_equal(struct tmpl *c, struct tm_val a, struct tm_val b)
{
    tm_step(c, 1);
    if (tm_is_number(a) && tm_is_number(b))
        return number_order(a, b) == 0;
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case TM_UNDEF:
    case TM_NONE:
        return true;
    case TM_STR:
    case TM_BIG:
        tm_step(c, a.s->len / 64);
        return tm_str_eq(a.s, b.s);
    case TM_LIST:
    case TM_TUPLE:
    case TM_DICT:
        return equal_containers(c, a, b);
    case TM_RANGE:
        return a.range->n == b.range->n &&
               (a.range->n == 0 || (a.range->start == b.range->start &&
                                    (a.range->n == 1 || a.range->step == b.range->step)));
    case TM_VIEW:
        tm_fail(c, ERR_UNSUPPORTED, "comparing %s is not supported", tm_type_name(a));
    default:
        return tm_same(a, b);
    }
}

bool tm_same(struct tm_val a, struct tm_val b)
{
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case TM_NONE:
        return true;
    case TM_BOOL:
        return a.b == b.b;
    case TM_INT: /* small integers are one object in Python */
        return a.i == b.i && a.i >= -5 && a.i <= 256;
    case TM_METHOD:
        return false;
    default:
        return a.s == b.s;
    }
}

static int order_lists(struct tmpl *c, const struct tm_list *a, const struct tm_list *b)
{
    for (uint32_t i = 0; i < a->n && i < b->n; i++)
        if (!tm_equal(c, a->v[i], b->v[i]))
            return tm_order(c, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int tm_order(struct tmpl *c, struct tm_val a, struct tm_val b)
{
    tm_step(c, 1);
    tm_need_defined(c, a);
    tm_need_defined(c, b);
    if (tm_is_number(a) && tm_is_number(b))
        return number_order(a, b);
    if (a.type == TM_STR && b.type == TM_STR) {
        tm_step(c, (a.s->len < b.s->len ? a.s->len : b.s->len) / 64);
        int order = tm_str_cmp(a.s, b.s);
        return (order > 0) - (order < 0);
    }
    if (a.type == b.type && (a.type == TM_LIST || a.type == TM_TUPLE)) {
        tm_value_enter(c);
        int order = order_lists(c, a.list, b.list);
        tm_value_leave(c);
        return order;
    }
    if (a.type == TM_BIG || b.type == TM_BIG)
        tm_fail(c, ERR_UNSUPPORTED, "ordering an integer beyond 64 bits is not supported");
    tm_fail(c, ERR_INVALID, "no order between '%s' and '%s'", tm_type_name(a), tm_type_name(b));
}

bool tm_less(struct tmpl *c, struct tm_val a, struct tm_val b)
{
    return tm_order(c, a, b) < 0;
}

static bool in_list(struct tmpl *c, const struct tm_list *l, struct tm_val item)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (tm_equal(c, l->v[i], item))
            return true;
    return false;
}

bool tm_contains(struct tmpl *c, struct tm_val container, struct tm_val item)
{
    switch (container.type) {
    case TM_STR:
        if (item.type != TM_STR)
            tm_fail(c, ERR_INVALID, "'in <string>' needs a string on the left, not %s",
                    tm_type_name(item));
        return tm_find(c, container.s, item.s, 0, container.s->len, false) >= 0;
    case TM_LIST:
    case TM_TUPLE:
        return in_list(c, container.list, item);
    case TM_DICT:
        return tm_dict_get(c, container.dict, item) != NULL;
    case TM_VIEW:
        if (container.view->kind == 'k')
            return tm_dict_get(c, container.view->dict, item) != NULL;
        break;
    default:
        if (!tm_iterable(container))
            tm_fail(c, ERR_INVALID, "value of type '%s' can't contain anything",
                    tm_type_name(container));
    }
    struct tm_cursor k = tm_iterate(c, container);
    struct tm_val v;
    while (tm_next(c, &k, &v))
        if (tm_equal(c, v, item))
            return true;
    return false;
}

/* ---- lists and dicts ---- */

struct tm_list *tm_list_new(struct tmpl *c, uint32_t cap)
{
    struct tm_list *l = tm_zalloc(c, sizeof(*l));
    if (cap) {
        l->v = tm_alloc(c, cap * sizeof(*l->v));
        l->cap = cap;
    }
    return l;
}

void tm_list_add(struct tmpl *c, struct tm_list *l, struct tm_val v)
{
    tm_step(c, 1);
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        l->v = tm_grow(c, l->v, l->n * sizeof(*l->v), cap * sizeof(*l->v));
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 33);
}

static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return mix(h);
}

static uint64_t hash_of(struct tmpl *c, struct tm_val v)
{
    switch (v.type) {
    case TM_STR:
    case TM_BIG:
        tm_step(c, v.s->len / 64);
        return hash_bytes(v.s->p, v.s->len);
    case TM_BOOL:
    case TM_INT:
        return mix((uint64_t)whole(v));
    case TM_FLOAT:
        if (v.f >= -9e18 && v.f <= 9e18 && v.f == (double)(int64_t)v.f)
            return mix((uint64_t)(int64_t)v.f);
        return hash_bytes((const char *)&v.f, sizeof(v.f));
    case TM_LIST:
    case TM_DICT:
    case TM_VIEW:
        tm_fail(c, ERR_INVALID, "unhashable type: '%s'", tm_type_name(v));
    case TM_TUPLE: {
        uint64_t h = 7;
        tm_value_enter(c);
        for (uint32_t i = 0; i < v.list->n; i++)
            h = mix(h * 31 + hash_of(c, v.list->v[i]));
        tm_value_leave(c);
        return h;
    }
    case TM_RANGE:
        return mix(v.range->n);
    default:
        return mix(v.type);
    }
}

struct tm_dict *tm_dict_new(struct tmpl *c)
{
    return tm_zalloc(c, sizeof(struct tm_dict));
}

static struct tm_entry *find_entry(struct tmpl *c, const struct tm_dict *d, struct tm_val key,
                                   uint64_t hash)
{
    if (!d->slots) {
        for (uint32_t i = 0; i < d->n; i++)
            if (d->e[i].hash == hash && tm_equal(c, d->e[i].key, key))
                return &d->e[i];
        return NULL;
    }
    for (uint32_t at = (uint32_t)hash & (d->n_slots - 1); d->slots[at];
         at = (at + 1) & (d->n_slots - 1)) {
        struct tm_entry *e = &d->e[d->slots[at] - 1];
        tm_step(c, 1);
        if (e->hash == hash && tm_equal(c, e->key, key))
            return e;
    }
    return NULL;
}

static void put_slot(struct tm_dict *d, uint32_t i)
{
    uint32_t at = (uint32_t)d->e[i].hash & (d->n_slots - 1);
    while (d->slots[at])
        at = (at + 1) & (d->n_slots - 1);
    d->slots[at] = i + 1;
}

static void index_entries(struct tmpl *c, struct tm_dict *d)
{
    enum { SMALL = 8 };
    if (d->n <= SMALL)
        return;
    if (d->n * 2 <= d->n_slots) {
        put_slot(d, d->n - 1);
        return;
    }
    d->n_slots = d->n_slots ? d->n_slots * 2 : SMALL * 4;
    d->slots = tm_zalloc(c, d->n_slots * sizeof(*d->slots));
    for (uint32_t i = 0; i < d->n; i++)
        put_slot(d, i);
}

void tm_dict_set(struct tmpl *c, struct tm_dict *d, struct tm_val key, struct tm_val value)
{
    uint64_t hash = hash_of(c, key);
    tm_step(c, 1);
    struct tm_entry *e = find_entry(c, d, key, hash);
    if (e) {
        e->value = value;
        return;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 4;
        d->e = tm_grow(c, d->e, d->n * sizeof(*d->e), cap * sizeof(*d->e));
        d->cap = cap;
    }
    d->e[d->n++] = (struct tm_entry){key, value, hash};
    index_entries(c, d);
}

const struct tm_val *tm_dict_get(struct tmpl *c, const struct tm_dict *d, struct tm_val key)
{
    struct tm_entry *e = find_entry(c, d, key, hash_of(c, key));
    return e ? &e->value : NULL;
}

const struct tm_val *tm_dict_get_str(struct tmpl *c, const struct tm_dict *d,
                                     const struct tm_str *key)
{
    return tm_dict_get(c, d, tm_string(key));
}

struct tm_val tm_pair(struct tmpl *c, struct tm_val a, struct tm_val b)
{
    struct tm_list *l = tm_list_new(c, 2);
    tm_list_add(c, l, a);
    tm_list_add(c, l, b);
    return (struct tm_val){.type = TM_TUPLE, .list = l};
}

struct tm_list *tm_view_list(struct tmpl *c, const struct tm_dict *d, char kind)
{
    struct tm_list *l = tm_list_new(c, d->n);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tm_entry *e = &d->e[i];
        tm_list_add(c, l,
                    kind == 'k'   ? e->key
                    : kind == 'v' ? e->value
                                  : tm_pair(c, e->key, e->value));
    }
    return l;
}

struct tm_val tm_range_item(const struct tm_range *r, uint32_t i)
{
    return tm_int(r->start + r->step * (int64_t)i);
}

/* ---- iteration ---- */

bool tm_iterable(struct tm_val v)
{
    switch (v.type) {
    case TM_UNDEF:
    case TM_STR:
    case TM_LIST:
    case TM_TUPLE:
    case TM_DICT:
    case TM_RANGE:
    case TM_ITER:
    case TM_VIEW:
    case TM_LOOP:
        return true;
    default:
        return false;
    }
}

static struct tm_list *chars_of(struct tmpl *c, const struct tm_str *s)
{
    struct tm_list *l = tm_list_new(c, 0);
    for (uint32_t at = 0; at < s->len;) {
        uint32_t cp;
        int n = tm_decode(s, at, &cp);
        tm_list_add(c, l, tm_string(tm_as_markup(c, tm_sub(c, s, at, at + (uint32_t)n), false)));
        at += (uint32_t)n;
    }
    return l;
}

static struct tm_list *range_list(struct tmpl *c, const struct tm_range *r)
{
    struct tm_list *l = tm_list_new(c, r->n);
    for (uint32_t i = 0; i < r->n; i++)
        tm_list_add(c, l, tm_range_item(r, i));
    return l;
}

static void fill(struct tmpl *c, struct tm_iter *it)
{
    if (!it->items) {
        it->items = tm_list_new(c, 0); /* an iterator over itself is empty */
        it->items = it->fill(c, it);
    }
}

struct tm_cursor tm_iterate(struct tmpl *c, struct tm_val v)
{
    switch (v.type) {
    case TM_UNDEF:
        return (struct tm_cursor){.list = tm_list_new(c, 0)};
    case TM_STR:
        return (struct tm_cursor){.list = chars_of(c, v.s)};
    case TM_LIST:
    case TM_TUPLE:
        return (struct tm_cursor){.list = v.list};
    case TM_DICT:
        return (struct tm_cursor){.list = tm_view_list(c, v.dict, 'k')};
    case TM_RANGE:
        return (struct tm_cursor){.list = range_list(c, v.range)};
    case TM_VIEW:
        return (struct tm_cursor){.list = tm_view_list(c, v.view->dict, v.view->kind)};
    case TM_ITER:
        return (struct tm_cursor){.iter = v.iter};
    case TM_LOOP:
        tm_fail(c, ERR_UNSUPPORTED, "iterating over the loop variable is not supported");
    default:
        tm_fail(c, ERR_INVALID, "'%s' object is not iterable", tm_type_name(v));
    }
}

bool tm_next(struct tmpl *c, struct tm_cursor *k, struct tm_val *item)
{
    tm_step(c, 1);
    if (k->iter) {
        fill(c, k->iter);
        if (k->iter->at >= k->iter->items->n)
            return false;
        *item = k->iter->items->v[k->iter->at++];
        return true;
    }
    if (k->at >= k->list->n)
        return false;
    *item = k->list->v[k->at++];
    return true;
}

struct tm_list *tm_to_list(struct tmpl *c, struct tm_val v)
{
    struct tm_cursor k = tm_iterate(c, v);
    if (!k.iter)
        return k.list;
    struct tm_list *l = tm_list_new(c, 0);
    struct tm_val item;
    while (tm_next(c, &k, &item))
        tm_list_add(c, l, item);
    return l;
}

struct tm_val tm_iter_of(struct tmpl *c, struct tm_list *items)
{
    struct tm_iter *it = tm_zalloc(c, sizeof(*it));
    it->items = items;
    return (struct tm_val){.type = TM_ITER, .iter = it};
}
