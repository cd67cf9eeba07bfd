/* Tests of chat templates (`x is name`). Called through tm_invoke. Thread: the one that renders. */
#include <string.h>

#include "engine/template/interp.h"

#define TEST(name)                                                                                 \
    static struct tm_val name(struct tmpl *c, struct tm_val v, const struct tm_val *a,             \
                              const struct tm_args *raw)
#define UNUSED (void)c, (void)v, (void)a, (void)raw

static int64_t modulo(struct tmpl *c, struct tm_val v, struct tm_val by)
{
    struct tm_val r = tm_binary(c, TO_MOD, v, by);
    if (r.type == TM_FLOAT)
        return r.f == 0 ? 0 : r.f == 1 ? 1 : 2;
    return r.type == TM_INT ? r.i : 2;
}

TEST(t_odd)
{
    UNUSED;
    return tm_bool(modulo(c, v, tm_int(2)) == 1);
}

TEST(t_even)
{
    UNUSED;
    return tm_bool(modulo(c, v, tm_int(2)) == 0);
}

TEST(t_divisibleby)
{
    UNUSED;
    return tm_bool(modulo(c, v, a[0]) == 0);
}

TEST(t_defined)
{
    UNUSED;
    return tm_bool(v.type != TM_UNDEF);
}

TEST(t_undefined)
{
    UNUSED;
    return tm_bool(v.type == TM_UNDEF);
}

TEST(t_none)
{
    UNUSED;
    return tm_bool(v.type == TM_NONE);
}

TEST(t_boolean)
{
    UNUSED;
    return tm_bool(v.type == TM_BOOL);
}

TEST(t_true)
{
    UNUSED;
    return tm_bool(v.type == TM_BOOL && v.b);
}

TEST(t_false)
{
    UNUSED;
    return tm_bool(v.type == TM_BOOL && !v.b);
}

TEST(t_integer)
{
    UNUSED;
    return tm_bool(v.type == TM_INT || v.type == TM_BIG);
}

TEST(t_float)
{
    UNUSED;
    return tm_bool(v.type == TM_FLOAT);
}

TEST(t_number)
{
    UNUSED;
    return tm_bool(tm_is_number(v) || v.type == TM_BIG);
}

TEST(t_string)
{
    UNUSED;
    return tm_bool(v.type == TM_STR);
}

TEST(t_mapping)
{
    UNUSED;
    return tm_bool(v.type == TM_DICT);
}

TEST(t_sequence)
{
    UNUSED;
    return tm_bool(v.type == TM_STR || v.type == TM_LIST || v.type == TM_TUPLE ||
                   v.type == TM_DICT || v.type == TM_RANGE || v.type == TM_UNDEF);
}

TEST(t_iterable)
{
    UNUSED;
    return tm_bool(tm_iterable(v));
}

TEST(t_callable)
{
    UNUSED;
    return tm_bool(v.type == TM_FUNC || v.type == TM_METHOD || v.type == TM_MACRO ||
                   v.type == TM_LOOP || v.type == TM_UNDEF);
}

TEST(t_escaped)
{
    UNUSED;
    return tm_bool(v.type == TM_STR && v.s->markup);
}

TEST(t_sameas)
{
    UNUSED;
    return tm_bool(tm_same(v, a[0]));
}

TEST(t_in)
{
    UNUSED;
    return tm_bool(tm_contains(c, a[0], v));
}

TEST(t_eq)
{
    UNUSED;
    return tm_bool(tm_equal(c, v, a[0]));
}

TEST(t_ne)
{
    UNUSED;
    return tm_bool(!tm_equal(c, v, a[0]));
}

TEST(t_lt)
{
    UNUSED;
    return tm_bool(tm_order(c, v, a[0]) < 0);
}

TEST(t_le)
{
    UNUSED;
    return tm_bool(tm_order(c, v, a[0]) <= 0);
}

TEST(t_gt)
{
    UNUSED;
    int order = tm_order(c, v, a[0]);
    return tm_bool(order > 0 && order != 2);
}

TEST(t_ge)
{
    UNUSED;
    int order = tm_order(c, v, a[0]);
    return tm_bool(order >= 0 && order != 2);
}

static struct tm_val all_cased(struct tmpl *c, struct tm_val v, bool (*good)(uint32_t),
                               bool (*bad)(uint32_t))
{
    const struct tm_str *s = tm_to_str(c, v);
    bool any = false;
    for (uint32_t at = 0; at < s->len;) {
        uint32_t cp;
        at += (uint32_t)tm_decode(s, at, &cp);
        if (bad(cp) || tm_is_title(cp))
            return tm_bool(false);
        any |= good(cp);
    }
    return tm_bool(any);
}

TEST(t_lower)
{
    UNUSED;
    return all_cased(c, v, tm_is_lower, tm_is_upper);
}

TEST(t_upper)
{
    UNUSED;
    return all_cased(c, v, tm_is_upper, tm_is_lower);
}

TEST(t_filter)
{
    UNUSED;
    return tm_bool(v.type == TM_STR && tm_filter_find(tm_view_str(v.s)));
}

TEST(t_test)
{
    UNUSED;
    return tm_bool(v.type == TM_STR && tm_test_find(tm_view_str(v.s)));
}

static const struct tm_builtin tests[] = {
    {"defined", "", t_defined},
    {"undefined", "", t_undefined},
    {"none", "", t_none},
    {"string", "", t_string},
    {"mapping", "", t_mapping},
    {"sequence", "", t_sequence},
    {"iterable", "", t_iterable},
    {"boolean", "", t_boolean},
    {"true", "", t_true},
    {"false", "", t_false},
    {"number", "", t_number},
    {"integer", "", t_integer},
    {"float", "", t_float},
    {"odd", "", t_odd},
    {"even", "", t_even},
    {"divisibleby", "num", t_divisibleby},
    {"callable", "", t_callable},
    {"escaped", "", t_escaped},
    {"lower", "", t_lower},
    {"upper", "", t_upper},
    {"filter", "", t_filter},
    {"test", "", t_test},
    {"sameas", "other", t_sameas},
    {"in", "seq", t_in},
    {"==", "/other", t_eq},
    {"eq", "/other", t_eq},
    {"equalto", "/other", t_eq},
    {"!=", "/other", t_ne},
    {"ne", "/other", t_ne},
    {"<", "/other", t_lt},
    {"lt", "/other", t_lt},
    {"lessthan", "/other", t_lt},
    {"<=", "/other", t_le},
    {"le", "/other", t_le},
    {">", "/other", t_gt},
    {"gt", "/other", t_gt},
    {"greaterthan", "/other", t_gt},
    {">=", "/other", t_ge},
    {"ge", "/other", t_ge},
};

const struct tm_builtin *tm_test_find(struct str name)
{
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (str_eq_c(name, tests[i].name))
            return &tests[i];
    return NULL;
}
