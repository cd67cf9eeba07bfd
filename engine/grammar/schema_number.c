/* Numbers: ranges and multiples as digits.
 *
 * A bound is a whole number N at a scale d: N / 10^d. A range of numbers with d decimals is a range of N, written
 * as digits with a point d places from the right; a range of digit strings of equal length is split at the first
 * digit. With a bound, numbers are written without an exponent and with at most one more decimal than the bounds. */
#include <string.h>

#include "base/check.h"
#include "engine/grammar/schema_int.h"

enum {
    MAX_SCALE = 6, /* decimals of a bound or a multiple */
    MAX_DIGITS = 15, /* of N, so that the written number is exact in a double */
    MAX_SPELLED = 512, /* limit of multiples within bounds that are written one by one */
    MAX_MULTIPLE = 64 /* without bounds: limit of distinct remainders */
};

static const int64_t FURTHEST = 999999999999999; /* 15 nines */

struct decimal {
    int64_t n;
    uint32_t scale;
};

struct bounds {
    bool low, high; /* there is one */
    struct decimal min, max; /* inclusive; an exclusive bound is adjusted when the scale is fixed */
    bool min_open, max_open;
    struct decimal step; /* multipleOf; n = 0: none */
};

static int64_t power(uint32_t d)
{
    int64_t p = 1;
    while (d-- > 0)
        p *= 10;
    return p;
}

/* ---- reading ---- */

/* The exact value of a number as written. False: too many digits, or too many decimals. */
static bool read_decimal(struct str raw, struct decimal *out)
{
    int64_t n = 0, exponent = 0;
    int scale = 0, sign = 1;
    size_t i = 0;
    bool fraction = false;
    if (raw.len && raw.ptr[0] == '-')
        sign = -1, i++;
    for (; i < raw.len && raw.ptr[i] != 'e' && raw.ptr[i] != 'E'; i++) {
        if (raw.ptr[i] == '.') {
            fraction = true;
            continue;
        }
        if (n > FURTHEST / 10)
            return false;
        n = n * 10 + (raw.ptr[i] - '0');
        scale += fraction;
    }
    bool negative = i + 1 < raw.len && raw.ptr[i + 1] == '-';
    for (i++; i < raw.len && exponent < 100; i++)
        if (raw.ptr[i] >= '0' && raw.ptr[i] <= '9')
            exponent = exponent * 10 + (raw.ptr[i] - '0');
    int64_t places = scale - (negative ? -exponent : exponent);
    for (; places > 0 && n % 10 == 0 && n; places--)
        n /= 10;
    for (; places < 0 && n <= FURTHEST / 10 && n; places++)
        n *= 10;
    if (n == 0)
        places = 0;
    if (places < 0 || places > MAX_SCALE)
        return false;
    *out = (struct decimal){sign * n, (uint32_t)places};
    return true;
}

static int compare(struct decimal a, struct decimal b)
{
    uint32_t scale = a.scale > b.scale ? a.scale : b.scale;
    __int128 x = (__int128)a.n * power(scale - a.scale), y = (__int128)b.n * power(scale - b.scale);
    return (x > y) - (x < y);
}

static bool take(struct schema *s, const struct json *node, const char *key, struct decimal *out)
{
    const struct json *v = json_get(node, key);
    if (!v || json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE))
        return false; /* draft 4: exclusiveMinimum is a boolean beside minimum */
    if (json_is(v, JSON_NUMBER) && read_decimal(json_raw(v), out))
        return true;
    schema_fail(s, json_is(v, JSON_NUMBER) ? ERR_UNSUPPORTED : ERR_INVALID, node, key,
                "must be a number of at most %d digits, %d of them decimals", MAX_DIGITS,
                MAX_SCALE);
    return false;
}

static void take_low(struct bounds *b, struct decimal x, bool open)
{
    int order = b->low ? compare(x, b->min) : 1;
    if (order > 0 || (order == 0 && open)) {
        b->min = x;
        b->min_open = open;
    }
    b->low = true;
}

static void take_high(struct bounds *b, struct decimal x, bool open)
{
    int order = b->high ? compare(x, b->max) : -1;
    if (order < 0 || (order == 0 && open)) {
        b->max = x;
        b->max_open = open;
    }
    b->high = true;
}

static void read_node(struct schema *s, const struct json *node, struct bounds *b)
{
    struct decimal x;
    if (take(s, node, "minimum", &x))
        take_low(b, x, json_is(json_get(node, "exclusiveMinimum"), JSON_TRUE));
    if (take(s, node, "exclusiveMinimum", &x))
        take_low(b, x, true);
    if (take(s, node, "maximum", &x))
        take_high(b, x, json_is(json_get(node, "exclusiveMaximum"), JSON_TRUE));
    if (take(s, node, "exclusiveMaximum", &x))
        take_high(b, x, true);
    if (!take(s, node, "multipleOf", &x))
        return;
    if (x.n <= 0)
        schema_fail(s, ERR_INVALID, node, "multipleOf", "must be above 0");
    else if (b->step.n && compare(b->step, x) != 0)
        schema_fail(s, ERR_UNSUPPORTED, node, "multipleOf",
                    "several that differ must hold together");
    b->step = x;
}

/* ---- digits ---- */

struct digits {
    char text[24];
    uint32_t n;
};

static struct digits to_digits(uint64_t n, uint32_t length)
{
    struct digits d = {.n = length};
    CHECK(length <= sizeof(d.text));
    for (uint32_t i = length; i-- > 0; n /= 10)
        d.text[i] = (char)('0' + n % 10);
    return d;
}

static expr_id digit_range(struct schema *s, char first, char last)
{
    struct expr_range r = {(uint8_t)first, (uint8_t)last};
    return first > last ? expr_never(s->x) : expr_class(s->x, &r, 1, false);
}

static bool all_are(const struct digits *d, uint32_t from, char digit)
{
    for (uint32_t i = from; i < d->n; i++)
        if (d->text[i] != digit)
            return false;
    return true;
}

/* The decimal point before digit i, if it belongs there. */
static expr_id pointed(struct schema *s, uint32_t i, uint32_t n_whole, expr_id rest)
{
    return i == n_whole ? expr_seq2(s->x, expr_text(s->x, "."), rest) : rest;
}

static expr_id any_digits(struct schema *s, uint32_t from, uint32_t n, uint32_t n_whole)
{
    expr_id digit = digit_range(s, '0', '9');
    if (from > n_whole || n == n_whole)
        return expr_repeat(s->x, digit, n - from, n - from);
    return expr_seq3(s->x, expr_repeat(s->x, digit, n_whole - from, n_whole - from),
                     expr_text(s->x, "."), expr_repeat(s->x, digit, n - n_whole, n - n_whole));
}

/* Digits from index `from` on, between those of low and high; n_whole before the point (n: no point). */
static expr_id between(struct schema *s, const struct digits *low, const struct digits *high,
                       uint32_t from, uint32_t n_whole)
{
    struct exprs *x = s->x;
    uint32_t n = low->n;
    if (from == n)
        return expr_empty(x);
    if (all_are(low, from, '0') && all_are(high, from, '9'))
        return any_digits(s, from, n, n_whole);
    char l = low->text[from], h = high->text[from];
    if (l == h)
        return pointed(
            s, from, n_whole,
            expr_seq2(x, digit_range(s, l, h), between(s, low, high, from + 1, n_whole)));
    struct digits nines = *high, zeros = *low;
    memset(nines.text, '9', n);
    memset(zeros.text, '0', n);
    expr_id parts[3] = {
        expr_seq2(x, digit_range(s, l, l), between(s, low, &nines, from + 1, n_whole)),
        expr_seq2(x, digit_range(s, (char)(l + 1), (char)(h - 1)),
                  any_digits(s, from + 1, n, n_whole)),
        expr_seq2(x, digit_range(s, h, h), between(s, &zeros, high, from + 1, n_whole))};
    return pointed(s, from, n_whole, expr_alt(x, parts, 3));
}

/* 0 <= low <= high at a scale, split by length: no leading zeros except for one before the point. */
static expr_id positive_range(struct schema *s, uint64_t low, uint64_t high, uint32_t scale)
{
    struct expr_list list = {NULL, 0, 0};
    uint64_t first = 0, end = (uint64_t)power(scale + 1);
    for (uint32_t length = scale + 1; length <= MAX_DIGITS + 1 && first <= high; length++) {
        uint64_t from = low > first ? low : first, to = high < end - 1 ? high : end - 1;
        if (from <= to) {
            struct digits a = to_digits(from, length), b = to_digits(to, length);
            expr_list_add(&list, between(s, &a, &b, 0, length - scale));
        }
        first = end;
        end *= 10;
    }
    expr_id id = expr_alt(s->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id range(struct schema *s, int64_t low, int64_t high, uint32_t scale)
{
    expr_id negative = expr_never(s->x), positive = expr_never(s->x);
    if (low < 0 && low <= high)
        negative =
            expr_seq2(s->x, expr_text(s->x, "-"),
                      positive_range(s, high < 0 ? (uint64_t)-high : 1, (uint64_t)-low, scale));
    if (high >= 0 && low <= high)
        positive = positive_range(s, low > 0 ? (uint64_t)low : 0, (uint64_t)high, scale);
    return expr_alt2(s->x, negative, positive);
}

/* ---- bounds at a scale ---- */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && a < 0);
}

static int64_t low_at(const struct bounds *b, uint32_t scale)
{
    if (!b->low)
        return -FURTHEST;
    if (scale >= b->min.scale) {
        __int128 n = (__int128)b->min.n * power(scale - b->min.scale) + b->min_open;
        return n > FURTHEST + 1 ? FURTHEST + 1 : n < -FURTHEST ? -FURTHEST : (int64_t)n;
    }
    int64_t unit = power(b->min.scale - scale), below = floor_div(b->min.n, unit);
    return below * unit == b->min.n && !b->min_open ? below : below + 1;
}

static int64_t high_at(const struct bounds *b, uint32_t scale)
{
    if (!b->high)
        return FURTHEST;
    if (scale >= b->max.scale) {
        __int128 n = (__int128)b->max.n * power(scale - b->max.scale) - b->max_open;
        return n < -FURTHEST - 1 ? -FURTHEST - 1 : n > FURTHEST ? FURTHEST : (int64_t)n;
    }
    int64_t unit = power(b->max.scale - scale), below = floor_div(b->max.n, unit);
    return below * unit == b->max.n && b->max_open ? below - 1 : below;
}

/* ---- multiples ---- */

/* Digits whose value is a multiple: rule i represents remainder i so far, and may end when it is 0. */
static expr_id all_multiples(struct schema *s, int64_t step, bool negative_too)
{
    struct exprs *x = s->x;
    uint32_t rule[MAX_MULTIPLE];
    for (int64_t i = 0; i < step; i++)
        rule[i] = exprs_add_rule(x);
    expr_id first[10];
    for (int64_t i = 0; i < step; i++) {
        expr_id next[11];
        for (int64_t d = 0; d < 10; d++)
            next[d] = expr_seq2(x, digit_range(s, (char)('0' + d), (char)('0' + d)),
                                expr_rule(x, rule[(i * 10 + d) % step]));
        next[10] = i == 0 ? expr_empty(x) : expr_never(x);
        exprs_set_rule(x, rule[i], expr_alt(x, next, 11));
    }
    for (int64_t d = 1; d < 10; d++)
        first[d] = expr_seq2(x, digit_range(s, (char)('0' + d), (char)('0' + d)),
                             expr_rule(x, rule[d % step]));
    expr_id some = expr_alt(x, first + 1, 9);
    if (negative_too)
        some = expr_seq2(x, expr_maybe(x, expr_text(x, "-")), some);
    return expr_alt2(x, expr_text(x, "0"), some);
}

/* Validators divide doubles: a decimal multiple counts only where they find a whole quotient too. */
static bool divides(int64_t n, const struct bounds *b, bool integer)
{
    if (b->step.scale == 0 || integer)
        return true;
    double unit = (double)power(b->step.scale);
    double quotient = (double)n / unit / ((double)b->step.n / unit);
    return quotient == (double)(int64_t)quotient;
}

/* The least one; FURTHEST + 1 when it is larger. */
static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    __int128 least = (__int128)a * (b / x);
    return least > FURTHEST ? FURTHEST + 1 : (int64_t)least;
}

static expr_id multiples(struct schema *s, const struct conj *c, const struct bounds *b,
                         bool integer)
{
    uint32_t scale = b->step.scale;
    int64_t low = low_at(b, scale), high = high_at(b, scale), step = b->step.n;
    int64_t unit = integer && scale ? power(scale) : 1; /* whole numbers among them */
    step = common_multiple(step, unit);
    int64_t first = floor_div(low + step - 1, step) * step;
    if (b->low && b->high && (high - first) / step < MAX_SPELLED) {
        struct expr_list list = {NULL, 0, 0};
        for (int64_t n = first; n <= high; n += step)
            if (divides(n, b, integer))
                expr_list_add(&list,
                              integer ? range(s, n / unit, n / unit, 0) : range(s, n, n, scale));
        expr_id id = expr_alt(s->x, list.id, list.n);
        expr_list_release(&list);
        return id;
    }
    step /= unit;
    bool from_zero = b->low && b->min.n == 0 && !b->min_open;
    if ((scale == 0 || integer) && step <= MAX_MULTIPLE && !b->high && (!b->low || from_zero))
        return all_multiples(s, step, !b->low);
    return schema_fail(s, ERR_UNSUPPORTED, c->node[0], "multipleOf",
                       "needs a minimum and a maximum with at most %d multiples between them, or a "
                       "whole number up to %d and no bound but minimum 0",
                       MAX_SPELLED, MAX_MULTIPLE);
}

/* ---- the whole number ---- */

static expr_id ranged(struct schema *s, const struct bounds *b, bool integer)
{
    uint32_t most = 1 + (b->min.scale > b->max.scale ? b->min.scale : b->max.scale);
    struct expr_list list = {NULL, 0, 0};
    for (uint32_t d = 0; d <= (integer ? 0 : most); d++)
        expr_list_add(&list, range(s, low_at(b, d), high_at(b, d), d));
    expr_id id = expr_alt(s->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id unbounded(struct schema *s, bool integer)
{
    struct exprs *x = s->x;
    expr_id digit = digit_range(s, '0', '9');
    expr_id whole = expr_alt2(x, expr_text(x, "0"),
                              expr_seq2(x, digit_range(s, '1', '9'), expr_repeat(x, digit, 0, 17)));
    whole = expr_seq2(x, expr_maybe(x, expr_text(x, "-")), whole);
    if (integer)
        return whole;
    expr_id sign = expr_maybe(x, expr_alt2(x, expr_text(x, "+"), expr_text(x, "-")));
    expr_id e = expr_alt2(x, expr_text(x, "e"), expr_text(x, "E"));
    expr_id exponent = expr_seq3(x, e, sign, expr_repeat(x, digit, 1, 2));
    expr_id fraction = expr_seq2(x, expr_text(x, "."), expr_repeat(x, digit, 1, 17));
    return expr_seq3(x, whole, expr_maybe(x, fraction), expr_maybe(x, exponent));
}

expr_id schema_number(struct schema *s, const struct conj *c, bool integer)
{
    struct bounds b = {.low = false};
    for (uint32_t i = 0; i < c->n && !s->failed; i++)
        read_node(s, c->node[i], &b);
    if (s->failed)
        return expr_never(s->x);
    bool one = b.step.n == 1 && b.step.scale == 0; /* multipleOf 1: an integer */
    if (b.step.n && !one)
        return multiples(s, c, &b, integer || b.step.scale == 0);
    integer |= one;
    if (!b.low && !b.high)
        return unbounded(s, integer);
    return ranged(s, &b, integer);
}
