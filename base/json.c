/* Access to the values of a parsed document, and exact numbers; see json.h. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_int.h"
#include "base/mem.h"

static locale_t c_locale;

__attribute__((constructor)) static void json_set_up(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t json_locale(void)
{
    return c_locale;
}

void json_free(struct json_doc *doc)
{
    if (!doc)
        return;
    mem_free(doc->text);
    mem_free(doc->decoded);
    mem_free(doc->nodes);
    mem_free(doc);
}

const struct json *json_root(const struct json_doc *doc)
{
    return &doc->nodes[0];
}

enum json_type json_type(const struct json *v)
{
    return v->type;
}

bool json_is(const struct json *v, enum json_type type)
{
    return v && v->type == type;
}

struct str json_string(const struct json *v)
{
    CHECK(v->type == JSON_STRING);
    return v->string;
}

struct str json_raw(const struct json *v)
{
    return v->raw;
}

double json_double(const struct json *v)
{
    CHECK(v->type == JSON_NUMBER);
    return strtod_l(v->raw.ptr, NULL, c_locale);
}

/* A number as sign, digits and a power of ten: value = digits * 10^exponent. */
struct decimal {
    bool negative;
    const char *digits; /* may hold one point */
    size_t n; /* bytes of digits */
    int64_t exponent;
};

static struct decimal decimal_of(struct str raw)
{
    struct decimal d = {.negative = raw.ptr[0] == '-'};
    d.digits = raw.ptr + d.negative;
    size_t n_all = raw.len - d.negative;
    while (d.n < n_all && (json_is_digit(d.digits[d.n]) || d.digits[d.n] == '.'))
        d.n++;
    if (d.n < n_all) {
        size_t i = d.n + 1;
        bool minus = d.digits[i] == '-';
        i += d.digits[i] == '-' || d.digits[i] == '+';
        for (; i < n_all; i++)
            if (d.exponent < 100000000)
                d.exponent = d.exponent * 10 + (d.digits[i] - '0');
        if (minus)
            d.exponent = -d.exponent;
    }
    const char *point = memchr(d.digits, '.', d.n);
    if (point)
        d.exponent -= (int64_t)(d.n - (size_t)(point - d.digits) - 1);
    return d;
}

/* False when the number is not whole or exceeds 2^64-1. */
static bool magnitude(const struct json *v, bool *negative, uint64_t *out)
{
    struct decimal d = decimal_of(v->raw);
    while (d.n && (d.digits[d.n - 1] == '0' || d.digits[d.n - 1] == '.')) {
        d.exponent += d.digits[d.n - 1] == '0';
        d.n--;
    }
    while (d.n && (d.digits[0] == '0' || d.digits[0] == '.')) {
        d.digits++;
        d.n--;
    }
    *negative = d.negative;
    *out = 0;
    if (d.n == 0)
        return true;
    if (d.exponent < 0 || d.exponent > 20)
        return false;
    uint64_t m = 0;
    for (size_t i = 0; i < d.n; i++)
        if (d.digits[i] != '.' && (__builtin_mul_overflow(m, 10u, &m) ||
                                   __builtin_add_overflow(m, (uint64_t)(d.digits[i] - '0'), &m)))
            return false;
    for (; d.exponent > 0; d.exponent--)
        if (__builtin_mul_overflow(m, 10u, &m))
            return false;
    *out = m;
    return true;
}

bool json_i64(const struct json *v, int64_t min, int64_t max, int64_t *out)
{
    bool negative;
    uint64_t m;
    if (!json_is(v, JSON_NUMBER) || !magnitude(v, &negative, &m))
        return false;
    if (m > (uint64_t)INT64_MAX + negative)
        return false;
    int64_t x = (int64_t)(negative ? 0 - m : m);
    if (x < min || x > max)
        return false;
    *out = x;
    return true;
}

bool json_u64(const struct json *v, uint64_t *out)
{
    bool negative;
    uint64_t m;
    if (!json_is(v, JSON_NUMBER) || !magnitude(v, &negative, &m) || (negative && m))
        return false;
    *out = m;
    return true;
}

size_t json_count(const struct json *v)
{
    return v->n_members;
}

const struct json *json_first(const struct json *v)
{
    return v->n_members ? v + 1 : NULL;
}

const struct json *json_next(const struct json *v)
{
    return v->to_next ? v + v->to_next : NULL;
}

struct str json_key(const struct json *v)
{
    return v->key;
}

const struct json *json_get(const struct json *v, const char *key)
{
    if (!json_is(v, JSON_OBJECT))
        return NULL;
    struct str wanted = str_of(key);
    for (const struct json *m = json_first(v); m; m = json_next(m))
        if (str_eq(m->key, wanted))
            return m;
    return NULL;
}
