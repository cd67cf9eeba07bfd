/* Methods of lists, dicts and numbers in chat templates, and the lookup of all methods.
 *
 * Methods that change a list or dict exist but are unsafe: the sandbox is immutable.
 * Called by eval.c. Thread: the one that renders. */
#include <math.h>
#include <string.h>

#include "engine/template/interp.h"

#define METHOD(name)                                                                               \
    static struct tm_val name(struct tmpl *c, struct tm_val self, const struct tm_val *a,          \
                              const struct tm_args *raw)
#define UNUSED (void)c, (void)self, (void)a, (void)raw

static struct tm_val view(struct tmpl *c, struct tm_val dict, char kind)
{
    struct tm_view *w = tm_alloc(c, sizeof(*w));
    *w = (struct tm_view){dict.dict, kind};
    return (struct tm_val){.type = TM_VIEW, .view = w};
}

METHOD(m_keys)
{
    UNUSED;
    return view(c, self, 'k');
}

METHOD(m_values)
{
    UNUSED;
    return view(c, self, 'v');
}

METHOD(m_items)
{
    UNUSED;
    return view(c, self, 'i');
}

METHOD(m_get)
{
    UNUSED;
    const struct tm_val *found = tm_dict_get(c, self.dict, a[0]);
    return found ? *found : a[1].type == TM_ABSENT ? tm_none() : a[1];
}

METHOD(m_dict_copy)
{
    UNUSED;
    struct tm_dict *d = tm_dict_new(c);
    for (uint32_t i = 0; i < self.dict->n; i++)
        tm_dict_set(c, d, self.dict->e[i].key, self.dict->e[i].value);
    return tm_dict_val(d);
}

METHOD(m_list_copy)
{
    UNUSED;
    return tm_slice(c, self, tm_none(), tm_none(), tm_none());
}

METHOD(m_list_count)
{
    UNUSED;
    const struct tm_list *l = tm_to_list(c, self);
    int64_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        n += tm_equal(c, l->v[i], a[0]);
    return tm_int(n);
}

METHOD(m_list_index)
{
    UNUSED;
    const struct tm_list *l = tm_to_list(c, self);
    if (a[1].type != TM_ABSENT)
        tm_fail(c, ERR_UNSUPPORTED, "index with a start is not supported");
    for (uint32_t i = 0; i < l->n; i++)
        if (tm_equal(c, l->v[i], a[0]))
            return tm_int(i);
    tm_fail(c, ERR_INVALID, "value is not in the %s", tm_type_name(self));
}

METHOD(m_is_integer)
{
    UNUSED;
    return tm_bool(isfinite(self.f) && floor(self.f) == self.f);
}

METHOD(m_unsupported)
{
    UNUSED;
    tm_fail(c, ERR_UNSUPPORTED, "this attribute of '%s' is not supported", tm_type_name(self));
}

static const struct tm_builtin dict_methods[] = {
    {"keys", "/", m_keys},      {"values", "/", m_values},
    {"items", "/", m_items},    {"get", "/key default?", m_get},
    {"copy", "/", m_dict_copy}, {"fromkeys", NULL, m_unsupported},
    {NULL, NULL, NULL},
};

static const struct tm_builtin list_methods[] = {
    {"index", "/value start?", m_list_index},
    {"count", "/value", m_list_count},
    {"copy", "/", m_list_copy},
    {NULL, NULL, NULL},
};

static const struct tm_builtin sequence_methods[] = {
    /* tuple, range */
    {"index", "/value start?", m_list_index},
    {"count", "/value", m_list_count},
    {NULL, NULL, NULL},
};

static const struct tm_builtin int_methods[] = {
    {"bit_length", NULL, m_unsupported},
    {"bit_count", NULL, m_unsupported},
    {"real", NULL, m_unsupported},
    {"imag", NULL, m_unsupported},
    {"numerator", NULL, m_unsupported},
    {"denominator", NULL, m_unsupported},
    {"conjugate", NULL, m_unsupported},
    {"to_bytes", NULL, m_unsupported},
    {"from_bytes", NULL, m_unsupported},
    {"as_integer_ratio", NULL, m_unsupported},
    {NULL, NULL, NULL},
};

static const struct tm_builtin float_methods[] = {
    {"is_integer", "/", m_is_integer},
    {"real", NULL, m_unsupported},
    {"imag", NULL, m_unsupported},
    {"conjugate", NULL, m_unsupported},
    {"hex", NULL, m_unsupported},
    {"fromhex", NULL, m_unsupported},
    {"as_integer_ratio", NULL, m_unsupported},
    {NULL, NULL, NULL},
};

static const char *const unsafe_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const unsafe_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};

static const struct tm_builtin *methods_of(struct tm_val v, const char *const **unsafe)
{
    switch (v.type) {
    case TM_STR:
        return tm_str_methods;
    case TM_DICT:
        *unsafe = unsafe_dict;
        return dict_methods;
    case TM_LIST:
        *unsafe = unsafe_list;
        return list_methods;
    case TM_TUPLE:
    case TM_RANGE:
        return sequence_methods;
    case TM_INT:
    case TM_BOOL:
    case TM_BIG:
        return int_methods;
    case TM_FLOAT:
        return float_methods;
    default:
        return NULL;
    }
}

const struct tm_builtin *tm_method_find(struct tmpl *c, struct tm_val v, const struct tm_str *name,
                                        bool *unsafe)
{
    const char *const *forbidden = NULL;
    const struct tm_builtin *m = methods_of(v, &forbidden);
    tm_step(c, 1);
    for (; forbidden && *forbidden; forbidden++)
        *unsafe |= tm_str_is(name, *forbidden);
    for (; m && m->name; m++)
        if (tm_str_is(name, m->name))
            return m;
    return NULL;
}
