/* Arithmetic of chat templates, with Python's rules; integers stay within 64 bits or fail.
 *
 * Called by eval.c. Thread: the one that renders. */
#include <math.h>

#include "engine/template/interp.h"

static const char *const op_text[] = {"+", "-", "*", "/", "//", "%", "**"};

__attribute__((noreturn)) static void overflow(struct tmpl *c)
{
    tm_fail(c, ERR_UNSUPPORTED, "integer beyond 64 bits");
}

static int64_t int_of(struct tm_val v)
{
    return v.type == TM_BOOL ? v.b : v.i;
}

static bool is_int(struct tm_val v)
{
    return v.type == TM_BOOL || v.type == TM_INT;
}

static int64_t floor_div(struct tmpl *c, int64_t a, int64_t b)
{
    if (b == 0)
        tm_fail(c, ERR_INVALID, "division by zero");
    if (b == -1) {
        if (a == INT64_MIN)
            overflow(c);
        return -a;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_mod(struct tmpl *c, int64_t a, int64_t b)
{
    if (b == 0)
        tm_fail(c, ERR_INVALID, "modulo by zero");
    if (b == -1)
        return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static struct tm_val int_pow(struct tmpl *c, int64_t base, int64_t exponent)
{
    int64_t r = 1;
    if (exponent < 0) {
        if (base == 0)
            tm_fail(c, ERR_INVALID, "zero to a negative power");
        return tm_float(pow((double)base, (double)exponent));
    }
    if (base == 0 || base == 1)
        return tm_int(exponent == 0 ? 1 : base);
    if (base == -1)
        return tm_int(exponent % 2 ? -1 : 1);
    for (int64_t i = 0; i < exponent; i++)
        if (__builtin_mul_overflow(r, base, &r))
            overflow(c);
    return tm_int(r);
}

static struct tm_val int_binary(struct tmpl *c, enum tm_op op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case TO_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case TO_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case TO_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case TO_DIV:
        if (b == 0)
            tm_fail(c, ERR_INVALID, "division by zero");
        return tm_float((double)((long double)a / (long double)b));
    case TO_FLOORDIV:
        r = floor_div(c, a, b);
        break;
    case TO_MOD:
        r = floor_mod(c, a, b);
        break;
    default:
        return int_pow(c, a, b);
    }
    if (over)
        overflow(c);
    return tm_int(r);
}

static double float_mod(double a, double b)
{
    double r = fmod(a, b);
    if (r == 0)
        return copysign(0.0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static double float_floor_div(double a, double b)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0))
        div -= 1;
    if (div == 0)
        return copysign(0.0, a / b);
    double whole = floor(div);
    return div - whole > 0.5 ? whole + 1 : whole;
}

static double float_pow(struct tmpl *c, double a, double b)
{
    if (a == 0 && b < 0)
        tm_fail(c, ERR_INVALID, "zero to a negative power");
    double r = pow(a, b);
    if (isnan(r) && !isnan(a) && !isnan(b))
        tm_fail(c, ERR_UNSUPPORTED, "complex number");
    if (isinf(r) && isfinite(a) && isfinite(b))
        tm_fail(c, ERR_INVALID, "power too large for a float");
    return r;
}

static struct tm_val float_binary(struct tmpl *c, enum tm_op op, double a, double b)
{
    if ((op == TO_DIV || op == TO_FLOORDIV || op == TO_MOD) && b == 0)
        tm_fail(c, ERR_INVALID, "float division by zero");
    switch (op) {
    case TO_ADD:
        return tm_float(a + b);
    case TO_SUB:
        return tm_float(a - b);
    case TO_MUL:
        return tm_float(a * b);
    case TO_DIV:
        return tm_float(a / b);
    case TO_FLOORDIV:
        return tm_float(float_floor_div(a, b));
    case TO_MOD:
        return tm_float(float_mod(a, b));
    default:
        return tm_float(float_pow(c, a, b));
    }
}

static struct tm_val repeat(struct tmpl *c, struct tm_val seq, int64_t n)
{
    if (n < 0)
        n = 0;
    if (seq.type == TM_STR) {
        if (seq.s->len && n > TM_MAX_STRING_BYTES / seq.s->len)
            tm_fail(c, ERR_TOO_LARGE, "makes a text of more than %d bytes", TM_MAX_STRING_BYTES);
        struct tm_sb b;
        tm_sb_init(&b, c);
        for (int64_t i = 0; i < n && seq.s->len; i++)
            tm_sb_add_str(&b, seq.s);
        return tm_string(tm_as_markup(c, tm_sb_done(&b), seq.s->markup));
    }
    struct tm_list *l = tm_list_new(c, 0);
    for (int64_t i = 0; i < n && seq.list->n; i++)
        for (uint32_t k = 0; k < seq.list->n; k++)
            tm_list_add(c, l, seq.list->v[k]);
    return (struct tm_val){.type = seq.type, .list = l};
}

static struct tm_val add_strings(struct tmpl *c, const struct tm_str *a, const struct tm_str *b)
{
    if (a->markup || b->markup) {
        a = tm_escape_html(c, a);
        b = tm_escape_html(c, b);
    }
    return tm_string(tm_concat(c, a, b));
}

static struct tm_val add_lists(struct tmpl *c, struct tm_val a, struct tm_val b)
{
    struct tm_list *l = tm_list_new(c, a.list->n + b.list->n);
    for (uint32_t i = 0; i < a.list->n; i++)
        tm_list_add(c, l, a.list->v[i]);
    for (uint32_t i = 0; i < b.list->n; i++)
        tm_list_add(c, l, b.list->v[i]);
    return (struct tm_val){.type = a.type, .list = l};
}

static bool is_sequence(struct tm_val v)
{
    return v.type == TM_STR || v.type == TM_LIST || v.type == TM_TUPLE;
}

struct tm_val tm_binary(struct tmpl *c, enum tm_op op, struct tm_val a, struct tm_val b)
{
    if (op == TO_MOD && a.type == TM_STR)
        return tm_string(tm_percent(c, a.s, b));
    tm_need_defined(c, a);
    tm_need_defined(c, b);
    if (is_int(a) && is_int(b))
        return int_binary(c, op, int_of(a), int_of(b));
    if (tm_is_number(a) && tm_is_number(b))
        return float_binary(c, op, tm_number(a), tm_number(b));
    if (op == TO_ADD && a.type == TM_STR && b.type == TM_STR)
        return add_strings(c, a.s, b.s);
    if (op == TO_ADD && a.type == b.type && is_sequence(a))
        return add_lists(c, a, b);
    if (op == TO_MUL && is_sequence(a) && is_int(b))
        return repeat(c, a, int_of(b));
    if (op == TO_MUL && is_int(a) && is_sequence(b))
        return repeat(c, b, int_of(a));
    if (a.type == TM_BIG || b.type == TM_BIG)
        overflow(c);
    tm_fail(c, ERR_INVALID, "'%s' doesn't work between '%s' and '%s'", op_text[op], tm_type_name(a),
            tm_type_name(b));
}

struct tm_val tm_negate(struct tmpl *c, struct tm_val v, bool minus)
{
    tm_need_defined(c, v);
    if (v.type == TM_FLOAT)
        return tm_float(minus ? -v.f : v.f);
    if (!is_int(v)) {
        if (v.type == TM_BIG)
            overflow(c);
        tm_fail(c, ERR_INVALID, "sign before a value of type '%s'", tm_type_name(v));
    }
    int64_t i = int_of(v);
    if (minus && i == INT64_MIN)
        overflow(c);
    return tm_int(minus ? -i : i);
}
