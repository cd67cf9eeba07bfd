/* Filters of chat templates that work on sequences and mappings.
 *
 * Filters that are generators in jinja2 are one-pass iterators here too, filled when first read.
 * Called through tm_invoke. Thread: the one that renders. */
#include <string.h>

#include "engine/template/interp.h"

#define FILTER(name)                                                                               \
    static struct tm_val name(struct tmpl *c, struct tm_val v, const struct tm_val *a,             \
                              const struct tm_args *raw)
#define UNUSED (void)c, (void)v, (void)a, (void)raw

static bool given(struct tm_val v)
{
    return v.type != TM_ABSENT && v.type != TM_NONE;
}

static bool flag(struct tmpl *c, struct tm_val v)
{
    return v.type != TM_ABSENT && tm_truthy(c, v);
}

/* ---- keys ---- */

static bool all_digits(const struct tm_str *s)
{
    for (uint32_t i = 0; i < s->len; i++)
        if (s->p[i] < '0' || s->p[i] > '9')
            return false;
    return s->len > 0;
}

/* Follows a dotted path; fallback (TM_ABSENT: none) replaces an undefined value. */
static struct tm_val follow(struct tmpl *c, struct tm_val v, const struct tm_str *path,
                            struct tm_val fallback)
{
    for (uint32_t from = 0;;) {
        int64_t dot = tm_find(c, path, tm_str_lit(c, "."), from, path->len, false), index;
        uint32_t to = dot < 0 ? path->len : (uint32_t)dot;
        const struct tm_str *part = tm_sub(c, path, from, to);
        bool number = all_digits(part) && tm_parse_int(part, 10, &index);
        v = tm_getitem(c, v, number ? tm_int(index) : tm_string(part));
        if (v.type == TM_UNDEF && fallback.type != TM_ABSENT)
            v = fallback;
        if (dot < 0)
            return v;
        from = to + 1;
    }
}

static struct tm_val attribute_of(struct tmpl *c, struct tm_val v, struct tm_val attribute,
                                  struct tm_val fallback)
{
    if (!given(attribute))
        return v;
    if (attribute.type == TM_STR)
        return follow(c, v, attribute.s, fallback);
    v = tm_getitem(c, v, attribute);
    return v.type == TM_UNDEF && fallback.type != TM_ABSENT ? fallback : v;
}

static struct tm_val folded(struct tmpl *c, struct tm_val v, bool case_sensitive)
{
    if (v.type != TM_STR || case_sensitive)
        return v;
    return tm_string(tm_recase(c, v.s, TM_LOWER));
}

static struct tm_val key_of(struct tmpl *c, struct tm_val v, struct tm_val attribute,
                            bool case_sensitive)
{
    struct tm_val none = {.type = TM_ABSENT};
    return folded(c, attribute_of(c, v, attribute, none), case_sensitive);
}

/* Key for sort: a list, one member per attribute of "a,b". */
static struct tm_val sort_key(struct tmpl *c, struct tm_val v, struct tm_val attribute,
                              bool case_sensitive)
{
    struct tm_list *key = tm_list_new(c, 1);
    if (attribute.type != TM_STR) {
        tm_list_add(c, key, key_of(c, v, attribute, case_sensitive));
        return tm_list_val(key);
    }
    for (uint32_t from = 0;;) {
        int64_t comma = tm_find(c, attribute.s, tm_str_lit(c, ","), from, attribute.s->len, false);
        uint32_t to = comma < 0 ? attribute.s->len : (uint32_t)comma;
        struct tm_val part = tm_string(tm_sub(c, attribute.s, from, to));
        tm_list_add(c, key, key_of(c, v, part, case_sensitive));
        if (comma < 0)
            return tm_list_val(key);
        from = to + 1;
    }
}

/* ---- sorting ---- */

/* Stable merge sort of an index, bottom up. */
struct tm_list *tm_sorted(struct tmpl *c, const struct tm_list *keys, const struct tm_list *items,
                          bool reverse)
{
    uint32_t n = items->n;
    uint32_t *from = tm_alloc(c, (n + 1) * sizeof(*from)), *to = tm_alloc(c, (n + 1) * sizeof(*to));
    for (uint32_t i = 0; i < n; i++)
        from[i] = i;
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t start = 0; start < n; start += 2 * width) {
            uint64_t mid = start + width < n ? start + width : n;
            uint64_t end = start + 2 * width < n ? start + 2 * width : n;
            uint64_t l = start, r = mid, k = start;
            while (l < mid && r < end) {
                struct tm_val left = keys->v[from[l]], right = keys->v[from[r]];
                bool right_first = reverse ? tm_less(c, left, right) : tm_less(c, right, left);
                to[k++] = right_first ? from[r++] : from[l++];
            }
            while (l < mid)
                to[k++] = from[l++];
            while (r < end)
                to[k++] = from[r++];
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    struct tm_list *sorted = tm_list_new(c, n);
    for (uint32_t i = 0; i < n; i++)
        tm_list_add(c, sorted, items->v[from[i]]);
    return sorted;
}

FILTER(f_sort)
{
    UNUSED;
    const struct tm_list *items = tm_to_list(c, v);
    struct tm_list *keys = tm_list_new(c, items->n);
    for (uint32_t i = 0; i < items->n; i++)
        tm_list_add(c, keys, sort_key(c, items->v[i], a[2], flag(c, a[1])));
    return tm_list_val(tm_sorted(c, keys, items, flag(c, a[0])));
}

FILTER(f_dictsort)
{
    UNUSED;
    tm_need_defined(c, v);
    if (v.type != TM_DICT)
        tm_fail(c, ERR_INVALID, "dictsort of a value of type '%s'", tm_type_name(v));
    struct str by = given(a[1]) ? tm_view_str(tm_need_str(c, a[1], "dictsort by")) : STR_LIT("key");
    if (!str_eq_c(by, "key") && !str_eq_c(by, "value"))
        tm_fail(c, ERR_INVALID, "You can only sort by either \"key\" or \"value\"");
    struct tm_list *keys = tm_view_list(c, v.dict, by.ptr[0] == 'k' ? 'k' : 'v');
    for (uint32_t i = 0; i < keys->n; i++)
        keys->v[i] = folded(c, keys->v[i], flag(c, a[0]));
    return tm_list_val(tm_sorted(c, keys, tm_view_list(c, v.dict, 'i'), flag(c, a[2])));
}

static struct tm_val group(struct tmpl *c, struct tm_val grouper, struct tm_list *members)
{
    struct tm_val pair = tm_pair(c, grouper, tm_list_val(members));
    pair.list->group = true;
    return pair;
}

FILTER(f_groupby)
{
    UNUSED;
    struct tm_val fallback = given(a[1]) ? a[1] : (struct tm_val){.type = TM_ABSENT};
    bool case_sensitive = flag(c, a[2]);
    const struct tm_list *items = tm_to_list(c, v);
    struct tm_list *keys = tm_list_new(c, items->n), *out = tm_list_new(c, 0), *members = NULL;
    for (uint32_t i = 0; i < items->n; i++)
        tm_list_add(c, keys,
                    folded(c, attribute_of(c, items->v[i], a[0], fallback), case_sensitive));
    const struct tm_list *sorted = tm_sorted(c, keys, items, false);
    const struct tm_list *ordered = tm_sorted(c, keys, keys, false);
    for (uint32_t i = 0; i < sorted->n; i++) {
        if (!members || !tm_equal(c, ordered->v[i], ordered->v[i - 1])) {
            members = tm_list_new(c, 0);
            tm_list_add(c, out, group(c, attribute_of(c, sorted->v[i], a[0], fallback), members));
        }
        tm_list_add(c, members, sorted->v[i]);
    }
    return tm_list_val(out);
}

/* ---- iterators ---- */

static struct tm_iter *iter_new(struct tmpl *c, struct tm_val source,
                                struct tm_list *(*fill)(struct tmpl *, struct tm_iter *))
{
    struct tm_iter *it = tm_zalloc(c, sizeof(*it));
    it->source = source;
    it->fill = fill;
    it->attribute.type = it->fallback.type = TM_ABSENT;
    return it;
}

static struct tm_val iter_val(struct tm_iter *it)
{
    return (struct tm_val){.type = TM_ITER, .iter = it};
}

static struct tm_args args_after(const struct tm_args *args, uint32_t n)
{
    struct tm_args rest = *args;
    rest.v = args->v + n;
    rest.n = args->n - n;
    return rest;
}

static struct tm_list *fill_items(struct tmpl *c, struct tm_iter *it)
{
    if (it->source.type == TM_UNDEF)
        return tm_list_new(c, 0);
    if (it->source.type != TM_DICT)
        tm_fail(c, ERR_INVALID, "Can only get item pairs from a mapping.");
    return tm_view_list(c, it->source.dict, 'i');
}

FILTER(f_items)
{
    UNUSED;
    return iter_val(iter_new(c, v, fill_items));
}

static struct tm_val lookup_kwarg(const struct tm_args *args, const char *name)
{
    for (uint32_t i = 0; i < args->n_kw; i++)
        if (tm_str_is(args->kw[i].name, name))
            return args->kw[i].v;
    return (struct tm_val){.type = TM_ABSENT};
}

static void prepare_map(struct tmpl *c, struct tm_iter *it)
{
    const struct tm_args *args = &it->args;
    it->attribute = lookup_kwarg(args, "attribute");
    if (!args->n && it->attribute.type != TM_ABSENT) {
        it->fallback = lookup_kwarg(args, "default");
        if (it->fallback.type == TM_NONE)
            it->fallback.type = TM_ABSENT;
        if (args->n_kw > 1u + (lookup_kwarg(args, "default").type != TM_ABSENT))
            tm_fail(c, ERR_INVALID, "map got an unexpected keyword argument");
        it->has_attribute = true;
        return;
    }
    if (!args->n)
        tm_fail(c, ERR_INVALID, "map requires a filter argument");
    const struct tm_str *name = tm_need_str(c, args->v[0], "the filter of map");
    it->via = tm_filter_find(tm_view_str(name));
    if (!it->via)
        tm_fail(c, ERR_UNSUPPORTED, "no filter named '%.*s'", name->len > 60 ? 60 : (int)name->len,
                name->p);
    it->args = args_after(args, 1);
}

static struct tm_list *fill_map(struct tmpl *c, struct tm_iter *it)
{
    struct tm_list *out = tm_list_new(c, 0);
    if (!tm_truthy(c, it->source))
        return out;
    prepare_map(c, it);
    struct tm_cursor k = tm_iterate(c, it->source);
    struct tm_val item;
    while (tm_next(c, &k, &item))
        tm_list_add(c, out,
                    it->has_attribute ? attribute_of(c, item, it->attribute, it->fallback)
                                      : tm_invoke(c, it->via, item, &it->args));
    return out;
}

FILTER(f_map)
{
    UNUSED;
    struct tm_iter *it = iter_new(c, v, fill_map);
    it->args = *raw;
    return iter_val(it);
}

static void prepare_select(struct tmpl *c, struct tm_iter *it)
{
    if (it->has_attribute) {
        if (!it->args.n)
            tm_fail(c, ERR_INVALID, "Missing parameter for attribute name");
        it->attribute = it->args.v[0];
        it->args = args_after(&it->args, 1);
    }
    if (!it->args.n)
        return;
    const struct tm_str *name = tm_need_str(c, it->args.v[0], "the test of select");
    it->via = tm_test_find(tm_view_str(name));
    if (!it->via)
        tm_fail(c, ERR_UNSUPPORTED, "no test named '%.*s'", name->len > 60 ? 60 : (int)name->len,
                name->p);
    it->args = args_after(&it->args, 1);
}

static struct tm_list *fill_select(struct tmpl *c, struct tm_iter *it)
{
    struct tm_list *out = tm_list_new(c, 0);
    struct tm_val none = {.type = TM_ABSENT};
    if (!tm_truthy(c, it->source))
        return out;
    prepare_select(c, it);
    struct tm_cursor k = tm_iterate(c, it->source);
    struct tm_val item;
    while (tm_next(c, &k, &item)) {
        struct tm_val v = it->has_attribute ? attribute_of(c, item, it->attribute, none) : item;
        bool yes = tm_truthy(c, it->via ? tm_invoke(c, it->via, v, &it->args) : v);
        if (yes != it->negate)
            tm_list_add(c, out, item);
    }
    return out;
}

static struct tm_val select_val(struct tmpl *c, struct tm_val v, const struct tm_args *raw,
                                bool negate, bool attribute)
{
    struct tm_iter *it = iter_new(c, v, fill_select);
    it->args = *raw;
    it->negate = negate;
    it->has_attribute = attribute;
    return iter_val(it);
}

FILTER(f_select)
{
    UNUSED;
    return select_val(c, v, raw, false, false);
}

FILTER(f_reject)
{
    UNUSED;
    return select_val(c, v, raw, true, false);
}

FILTER(f_selectattr)
{
    UNUSED;
    return select_val(c, v, raw, false, true);
}

FILTER(f_rejectattr)
{
    UNUSED;
    return select_val(c, v, raw, true, true);
}

static struct tm_list *fill_unique(struct tmpl *c, struct tm_iter *it)
{
    struct tm_list *out = tm_list_new(c, 0);
    struct tm_dict *seen = tm_dict_new(c);
    struct tm_cursor k = tm_iterate(c, it->source);
    struct tm_val item;
    while (tm_next(c, &k, &item)) {
        struct tm_val key = key_of(c, item, it->attribute, it->negate);
        if (tm_dict_get(c, seen, key))
            continue;
        tm_dict_set(c, seen, key, tm_none());
        tm_list_add(c, out, item);
    }
    return out;
}

FILTER(f_unique)
{
    UNUSED;
    struct tm_iter *it = iter_new(c, v, fill_unique);
    it->negate = flag(c, a[0]); /* case sensitive */
    it->attribute = a[1];
    return iter_val(it);
}

static struct tm_list *fill_batch(struct tmpl *c, struct tm_iter *it)
{
    const struct tm_list *items = tm_to_list(c, it->source);
    int64_t size = tm_need_int(c, it->attribute, "batch size");
    struct tm_list *out = tm_list_new(c, 0), *row = NULL;
    for (uint32_t i = 0; i < items->n; i++) {
        if (!row || (int64_t)row->n == size) {
            if (row || size == 0)
                tm_list_add(c, out, tm_list_val(row ? row : tm_list_new(c, 0)));
            row = tm_list_new(c, 0);
        }
        tm_list_add(c, row, items->v[i]);
    }
    if (!row)
        return out;
    while (given(it->fallback) && (int64_t)row->n < size)
        tm_list_add(c, row, it->fallback);
    tm_list_add(c, out, tm_list_val(row));
    return out;
}

FILTER(f_batch)
{
    UNUSED;
    struct tm_iter *it = iter_new(c, v, fill_batch);
    it->attribute = a[0];
    it->fallback = a[1];
    return iter_val(it);
}

static struct tm_list *fill_slice(struct tmpl *c, struct tm_iter *it)
{
    const struct tm_list *items = tm_to_list(c, it->source);
    int64_t slices = tm_need_int(c, it->attribute, "number of slices");
    struct tm_list *out = tm_list_new(c, 0);
    if (slices == 0)
        tm_fail(c, ERR_INVALID, "division by zero");
    int64_t each = items->n / slices, extra = items->n % slices, at = 0;
    for (int64_t s = 0; s < slices; s++) {
        struct tm_list *part = tm_list_new(c, 0);
        for (int64_t n = each + (s < extra); n > 0; n--)
            tm_list_add(c, part, items->v[at++]);
        if (given(it->fallback) && s >= extra)
            tm_list_add(c, part, it->fallback);
        tm_list_add(c, out, tm_list_val(part));
    }
    return out;
}

FILTER(f_slice)
{
    UNUSED;
    struct tm_iter *it = iter_new(c, v, fill_slice);
    it->attribute = a[0];
    it->fallback = a[1];
    return iter_val(it);
}

static struct tm_list *reversed(struct tmpl *c, struct tm_val v)
{
    const struct tm_list *l = tm_to_list(c, v);
    struct tm_list *out = tm_list_new(c, l->n);
    for (uint32_t i = l->n; i-- > 0;)
        tm_list_add(c, out, l->v[i]);
    return out;
}

FILTER(f_reverse)
{
    UNUSED;
    if (v.type == TM_STR)
        return tm_slice(c, v, tm_none(), tm_none(), tm_int(-1));
    if (!tm_iterable(v))
        tm_fail(c, ERR_INVALID, "argument must be iterable");
    struct tm_list *l = reversed(c, v);
    return v.type == TM_ITER ? tm_list_val(l) : tm_iter_of(c, l);
}

/* ---- single results ---- */

FILTER(f_length)
{
    UNUSED;
    return tm_int(tm_length(c, v));
}

FILTER(f_first)
{
    UNUSED;
    struct tm_cursor k = tm_iterate(c, v);
    struct tm_val item;
    return tm_next(c, &k, &item) ? item : tm_undef_hint(c, "No first item, sequence was empty.");
}

FILTER(f_last)
{
    UNUSED;
    if (v.type == TM_ITER)
        tm_fail(c, ERR_INVALID, "'generator' object is not reversible");
    const struct tm_list *l = tm_to_list(c, v);
    return l->n ? l->v[l->n - 1] : tm_undef_hint(c, "No last item, sequence was empty.");
}

FILTER(f_list)
{
    UNUSED;
    const struct tm_list *l = tm_to_list(c, v);
    struct tm_list *copy = tm_list_new(c, l->n);
    for (uint32_t i = 0; i < l->n; i++)
        tm_list_add(c, copy, l->v[i]);
    return tm_list_val(copy);
}

static struct tm_val extreme(struct tmpl *c, struct tm_val v, const struct tm_val *a, bool max)
{
    struct tm_cursor k = tm_iterate(c, v);
    struct tm_val item, best, best_key;
    if (!tm_next(c, &k, &best))
        return tm_undef_hint(c, "No aggregated item, sequence was empty.");
    best_key = key_of(c, best, a[1], flag(c, a[0]));
    while (tm_next(c, &k, &item)) {
        struct tm_val key = key_of(c, item, a[1], flag(c, a[0]));
        if (max ? tm_order(c, key, best_key) == 1 : tm_less(c, key, best_key)) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

FILTER(f_min)
{
    UNUSED;
    return extreme(c, v, a, false);
}

FILTER(f_max)
{
    UNUSED;
    return extreme(c, v, a, true);
}

FILTER(f_sum)
{
    UNUSED;
    struct tm_val sum = a[1].type == TM_ABSENT ? tm_int(0) : a[1], item;
    struct tm_val none = {.type = TM_ABSENT};
    struct tm_cursor k = tm_iterate(c, v);
    if (sum.type == TM_STR)
        tm_fail(c, ERR_INVALID, "sum() can't sum strings");
    while (tm_next(c, &k, &item))
        sum = tm_binary(c, TO_ADD, sum, attribute_of(c, item, a[0], none));
    return sum;
}

FILTER(f_join)
{
    UNUSED;
    struct tm_val none = {.type = TM_ABSENT}, item;
    const struct tm_str *sep = a[0].type == TM_ABSENT ? tm_str_lit(c, "") : tm_to_str(c, a[0]);
    struct tm_list *texts = tm_list_new(c, 0);
    struct tm_cursor k = tm_iterate(c, v);
    while (tm_next(c, &k, &item))
        tm_list_add(c, texts, tm_string(tm_to_str(c, attribute_of(c, item, a[1], none))));
    return tm_string(tm_join(c, sep, texts));
}

const struct tm_builtin tm_seq_filters[] = {
    {"length", "/", f_length},
    {"count", "/", f_length},
    {"join", "d? attribute?", f_join},
    {"items", "", f_items},
    {"map", NULL, f_map},
    {"select", NULL, f_select},
    {"reject", NULL, f_reject},
    {"selectattr", NULL, f_selectattr},
    {"rejectattr", NULL, f_rejectattr},
    {"list", "", f_list},
    {"first", "", f_first},
    {"last", "", f_last},
    {"sort", "reverse? case_sensitive? attribute?", f_sort},
    {"dictsort", "case_sensitive? by? reverse?", f_dictsort},
    {"groupby", "attribute default? case_sensitive?", f_groupby},
    {"unique", "case_sensitive? attribute?", f_unique},
    {"reverse", "", f_reverse},
    {"min", "case_sensitive? attribute?", f_min},
    {"max", "case_sensitive? attribute?", f_max},
    {"sum", "attribute? start?", f_sum},
    {"batch", "linecount fill_with?", f_batch},
    {"slice", "slices fill_with?", f_slice},
    {NULL, NULL, NULL},
};
