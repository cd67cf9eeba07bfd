/* Filters of chat templates that work on texts and numbers, and the lookup of all filters.
 *
 * Called through tm_invoke. Thread: the one that renders. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/interp.h"

#define FILTER(name)                                                                               \
    static struct tm_val name(struct tmpl *c, struct tm_val v, const struct tm_val *a,             \
                              const struct tm_args *raw)
#define UNUSED (void)c, (void)v, (void)a, (void)raw

static bool given(struct tm_val v)
{
    return v.type != TM_ABSENT;
}

static int64_t int_or(struct tmpl *c, struct tm_val v, int64_t otherwise, const char *what)
{
    return given(v) ? tm_need_int(c, v, what) : otherwise;
}

/* Keeps markup as it is, everything else becomes a plain string. */
static const struct tm_str *soft(struct tmpl *c, struct tm_val v)
{
    return v.type == TM_STR ? v.s : tm_to_str(c, v);
}

FILTER(f_upper)
{
    UNUSED;
    return tm_string(tm_recase(c, soft(c, v), TM_UPPER));
}

FILTER(f_lower)
{
    UNUSED;
    return tm_string(tm_recase(c, soft(c, v), TM_LOWER));
}

FILTER(f_capitalize)
{
    UNUSED;
    return tm_string(tm_recase(c, soft(c, v), TM_CAPITALIZE));
}

FILTER(f_title)
{
    UNUSED;
    return tm_string(tm_as_markup(c, tm_recase(c, soft(c, v), TM_JINJA_TITLE), false));
}

FILTER(f_trim)
{
    UNUSED;
    const struct tm_str *chars = NULL;
    if (given(a[0]) && a[0].type != TM_NONE)
        chars = tm_need_str(c, a[0], "trim argument");
    return tm_string(tm_strip(c, soft(c, v), chars, true, true));
}

FILTER(f_string)
{
    UNUSED;
    return tm_string(soft(c, v));
}

FILTER(f_safe)
{
    UNUSED;
    return tm_string(tm_as_markup(c, soft(c, v), true));
}

FILTER(f_escape)
{
    UNUSED;
    return tm_string(tm_escape_html(c, soft(c, v)));
}

FILTER(f_forceescape)
{
    UNUSED;
    return tm_string(tm_escape_html(c, tm_to_str(c, v)));
}

FILTER(f_default)
{
    UNUSED;
    bool falsy = given(a[1]) && tm_truthy(c, a[1]) && !tm_truthy(c, v);
    if (v.type != TM_UNDEF && !falsy)
        return v;
    return given(a[0]) ? a[0] : tm_string(tm_str_lit(c, ""));
}

FILTER(f_replace)
{
    UNUSED;
    int64_t count =
        given(a[2]) && a[2].type != TM_NONE ? tm_need_int(c, a[2], "replace count") : -1;
    return tm_string(tm_replace(c, tm_to_str(c, v), tm_to_str(c, a[0]), tm_to_str(c, a[1]), count));
}

FILTER(f_format)
{
    UNUSED;
    if (raw->n && raw->n_kw)
        tm_fail(c, ERR_INVALID, "format takes positional or keyword arguments, not both");
    struct tm_list *l = tm_list_new(c, raw->n);
    for (uint32_t i = 0; i < raw->n; i++)
        tm_list_add(c, l, raw->v[i]);
    struct tm_val args = {.type = TM_TUPLE, .list = l};
    if (raw->n_kw) {
        args = tm_dict_val(tm_dict_new(c));
        for (uint32_t i = 0; i < raw->n_kw; i++)
            tm_dict_set(c, args.dict, tm_string(raw->kw[i].name), raw->kw[i].v);
    }
    return tm_string(tm_percent(c, soft(c, v), args));
}

FILTER(f_indent)
{
    UNUSED;
    const struct tm_str *s = tm_need_str(c, v, "indent input"), *with;
    bool first = given(a[1]) && tm_truthy(c, a[1]), blank = given(a[2]) && tm_truthy(c, a[2]);
    if (given(a[0]) && a[0].type == TM_STR)
        with = a[0].s;
    else
        with = tm_binary(c, TO_MUL, tm_string(tm_str_new(c, " ", 1, true)),
                         tm_int(int_or(c, a[0], 4, "indent width")))
                   .s;
    bool trusted = s->taint == TM_TRUSTED;
    const struct tm_str *ended =
        tm_concat(c, tm_as_markup(c, s, false), tm_str_new(c, "\n", 1, trusted));
    const struct tm_list *lines = tm_split_lines(c, ended, false);
    struct tm_sb b;
    tm_sb_init(&b, c);
    for (uint32_t i = 0; i < lines->n; i++) {
        const struct tm_str *line = lines->v[i].s;
        if (i)
            tm_sb_add(&b, "\n", 1, trusted);
        if ((i == 0 && first) || (i > 0 && (blank || line->len)))
            tm_sb_add_str(&b, with);
        tm_sb_add_str(&b, line);
    }
    return tm_string(tm_as_markup(c, tm_sb_done(&b), s->markup));
}

/* ---- numbers ---- */

/* As Python's int(): spaces around, a sign, single underscores between digits. */
bool tm_parse_int(const struct tm_str *s, int base, int64_t *out)
{
    const char *p = s->p, *end = s->p + s->len;
    while (p < end && tm_is_space((unsigned char)*p) && (unsigned char)*p < 0x80)
        p++;
    while (end > p && tm_is_space((unsigned char)end[-1]) && (unsigned char)end[-1] < 0x80)
        end--;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    char second = end - p > 1 ? p[1] | 32 : 0;
    if (end - p > 2 && *p == '0' &&
        ((base == 16 && second == 'x') || (base == 2 && second == 'b') ||
         (base == 8 && second == 'o')))
        p += 2;
    int64_t n = 0;
    bool digit = false;
    for (; p < end; p++) {
        int d = *p >= '0' && *p <= '9'                 ? *p - '0'
                : (*p | 32) >= 'a' && (*p | 32) <= 'z' ? (*p | 32) - 'a' + 10
                                                       : 99;
        if (*p == '_' && digit && p + 1 < end) {
            digit = false;
            continue;
        }
        if (d >= base || __builtin_mul_overflow(n, base, &n) ||
            __builtin_sub_overflow(n, d, &n)) /* negative: INT64_MIN fits */
            return false;
        digit = true;
    }
    if (!digit || (!negative && n == INT64_MIN))
        return false;
    *out = negative ? n : -n;
    return true;
}

bool tm_parse_float(struct tmpl *c, const struct tm_str *s, double *out)
{
    s = tm_strip(c, s, NULL, true, true);
    char *text = tm_alloc(c, (size_t)s->len + 1), *end;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->len; i++) {
        char ch = s->p[i];
        if (!ch || ch == 'x' || ch == 'X' || ch == 'p' || ch == '(')
            return false; /* forms that strtod accepts and Python does not */
        if (ch == '_') {
            bool between = i && i + 1 < s->len && s->p[i - 1] >= '0' && s->p[i - 1] <= '9' &&
                           s->p[i + 1] >= '0' && s->p[i + 1] <= '9';
            if (!between)
                return false;
            continue;
        }
        text[n++] = ch;
    }
    text[n] = 0;
    *out = strtod(text, &end);
    return n && *end == 0;
}

static struct tm_val whole_of(struct tmpl *c, double f, struct tm_val otherwise)
{
    if (isnan(f) || isinf(f))
        return otherwise;
    if (fabs(f) >= 9.2e18)
        tm_fail(c, ERR_UNSUPPORTED, "integer beyond 64 bits");
    return tm_int((int64_t)f);
}

FILTER(f_int)
{
    UNUSED;
    struct tm_val otherwise = given(a[0]) ? a[0] : tm_int(0);
    int64_t base = int_or(c, a[1], 10, "int base"), i;
    double f;
    tm_need_defined(c, v);
    switch (v.type) {
    case TM_INT:
    case TM_BIG:
        return v;
    case TM_BOOL:
        return tm_int(v.b);
    case TM_FLOAT:
        return whole_of(c, v.f, otherwise);
    case TM_STR:
        if (base != 10 && base != 2 && base != 8 && base != 16)
            tm_fail(c, ERR_UNSUPPORTED, "int with base %lld is not supported", (long long)base);
        if (tm_parse_int(v.s, (int)base, &i))
            return tm_int(i);
        return tm_parse_float(c, v.s, &f) ? whole_of(c, f, otherwise) : otherwise;
    default:
        return otherwise;
    }
}

FILTER(f_float)
{
    UNUSED;
    double f;
    tm_need_defined(c, v);
    if (tm_is_number(v))
        return tm_float(tm_number(v));
    if ((v.type == TM_STR || v.type == TM_BIG) && tm_parse_float(c, v.s, &f))
        return tm_float(f);
    return given(a[0]) ? a[0] : tm_float(0);
}

FILTER(f_abs)
{
    UNUSED;
    tm_need_defined(c, v);
    if (v.type == TM_FLOAT)
        return tm_float(fabs(v.f));
    int64_t i = tm_need_int(c, v, "abs input");
    return i < 0 ? tm_negate(c, tm_int(i), true) : tm_int(i);
}

FILTER(f_round)
{
    UNUSED;
    int64_t digits = int_or(c, a[0], 0, "round precision");
    struct str how =
        given(a[1]) ? tm_view_str(tm_need_str(c, a[1], "round method")) : STR_LIT("common");
    bool ceiling = str_eq_c(how, "ceil"), flooring = str_eq_c(how, "floor");
    tm_need_defined(c, v);
    if (!ceiling && !flooring && !str_eq_c(how, "common"))
        tm_fail(c, ERR_INVALID, "method must be common, ceil or floor");
    if (!tm_is_number(v))
        tm_fail(c, ERR_INVALID, "round of a value of type '%s'", tm_type_name(v));
    if (digits < 0 || digits > 30)
        tm_fail(c, ERR_UNSUPPORTED, "round to %lld digits is not supported", (long long)digits);
    if (ceiling || flooring) {
        double scale = pow(10, (double)digits), f = tm_number(v) * scale;
        return tm_float((ceiling ? ceil(f) : floor(f)) / scale);
    }
    if (v.type != TM_FLOAT)
        return tm_int(v.type == TM_BOOL ? v.b : v.i);
    char text[400];
    snprintf(text, sizeof(text), "%.*f", (int)digits, v.f);
    return tm_float(strtod(text, NULL));
}

/* ---- longer texts ---- */

FILTER(f_wordcount)
{
    UNUSED;
    const struct tm_str *s = soft(c, v);
    int64_t n = 0;
    bool inside = false;
    for (uint32_t at = 0; at < s->len;) {
        uint32_t cp;
        at += (uint32_t)tm_decode(s, at, &cp);
        bool word = tm_is_alpha(cp) || tm_is_digit(cp) || tm_is_numeric(cp) || cp == '_';
        n += word && !inside;
        inside = word;
    }
    return tm_int(n);
}

FILTER(f_center)
{
    UNUSED;
    const struct tm_str *s = soft(c, v);
    int64_t width = int_or(c, a[0], 80, "center width"), pad = width - tm_str_chars(c, s);
    if (pad <= 0)
        return tm_string(s);
    if (pad > TM_MAX_STRING_BYTES)
        tm_fail(c, ERR_TOO_LARGE, "makes a text of more than %d bytes", TM_MAX_STRING_BYTES);
    int64_t left = pad / 2 + (pad & width & 1);
    struct tm_sb b;
    tm_sb_init(&b, c);
    for (int64_t i = 0; i < left; i++)
        tm_sb_add(&b, " ", 1, false);
    tm_sb_add_str(&b, s);
    for (int64_t i = left; i < pad; i++)
        tm_sb_add(&b, " ", 1, false);
    return tm_string(tm_as_markup(c, tm_sb_done(&b), s->markup));
}

FILTER(f_truncate)
{
    UNUSED;
    const struct tm_str *s = tm_need_str(c, v, "truncate input");
    const struct tm_str *end =
        given(a[2]) ? tm_need_str(c, a[2], "truncate end") : tm_str_lit(c, "...");
    int64_t length = int_or(c, a[0], 255, "truncate length");
    int64_t leeway =
        given(a[3]) && a[3].type != TM_NONE ? tm_need_int(c, a[3], "truncate leeway") : 5;
    int64_t tail = tm_str_chars(c, end);
    if (length < tail || leeway < 0)
        tm_fail(c, ERR_INVALID, "truncate to %lld with a leeway of %lld", (long long)length,
                (long long)leeway);
    if (tm_str_chars(c, s) <= (__int128)length + leeway)
        return tm_string(s);
    const struct tm_str *cut = tm_sub(c, s, 0, tm_str_offset(c, s, (uint32_t)(length - tail)));
    if (!(given(a[1]) && tm_truthy(c, a[1]))) {
        int64_t space = tm_find(c, cut, tm_str_lit(c, " "), 0, cut->len, true);
        if (space >= 0)
            cut = tm_sub(c, cut, 0, (uint32_t)space);
    }
    return tm_string(tm_concat(c, cut, end));
}

static void add_quoted(struct tm_sb *b, struct tmpl *c, struct tm_val v, bool query)
{
    const struct tm_str *s = tm_to_str(c, v);
    for (uint32_t i = 0; i < s->len; i++) {
        unsigned char ch = (unsigned char)s->p[i];
        bool plain = (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'z') ||
                     (ch && strchr("_.-~", ch)) || (ch == '/' && !query);
        if (plain)
            tm_sb_add(b, s->p + i, 1, false);
        else if (ch == ' ' && query)
            tm_sb_add_c(b, "+");
        else
            tm_sb_printf(b, "%%%02X", ch);
    }
}

FILTER(f_urlencode)
{
    UNUSED;
    struct tm_sb b;
    tm_sb_init(&b, c);
    if (v.type == TM_STR || !tm_iterable(v)) {
        add_quoted(&b, c, v, false);
        return tm_string(tm_sb_done(&b));
    }
    const struct tm_list *pairs =
        v.type == TM_DICT ? tm_view_list(c, v.dict, 'i') : tm_to_list(c, v);
    for (uint32_t i = 0; i < pairs->n; i++) {
        const struct tm_list *pair = tm_to_list(c, pairs->v[i]);
        if (pair->n != 2)
            tm_fail(c, ERR_INVALID, "urlencode needs pairs");
        if (i)
            tm_sb_add_c(&b, "&");
        add_quoted(&b, c, pair->v[0], true);
        tm_sb_add_c(&b, "=");
        add_quoted(&b, c, pair->v[1], true);
    }
    return tm_string(tm_sb_done(&b));
}

/* json.dumps of Python, not jinja2's own filter: transformers replaces it. */
FILTER(f_tojson)
{
    UNUSED;
    struct tm_json_style style = {.ascii = given(a[0]) && tm_truthy(c, a[0]),
                                  .sort_keys = given(a[3]) && tm_truthy(c, a[3]),
                                  .item_sep = tm_str_lit(c, ", "),
                                  .key_sep = tm_str_lit(c, ": ")};
    if (given(a[1]) && a[1].type != TM_NONE) {
        style.item_sep = tm_str_lit(c, ",");
        if (a[1].type == TM_STR)
            style.indent = a[1].s;
        else
            style.indent = tm_binary(c, TO_MUL, tm_string(tm_str_lit(c, " ")),
                                     tm_int(tm_need_int(c, a[1], "tojson indent")))
                               .s;
    }
    if (given(a[2]) && a[2].type != TM_NONE) {
        const struct tm_list *l = tm_to_list(c, a[2]);
        if (l->n != 2)
            tm_fail(c, ERR_INVALID, "tojson separators must be a pair");
        style.item_sep = tm_need_str(c, l->v[0], "tojson separator");
        style.key_sep = tm_need_str(c, l->v[1], "tojson separator");
    }
    struct tm_sb b;
    tm_sb_init(&b, c);
    tm_add_json(&b, v, &style, 0);
    return tm_string(tm_sb_done(&b));
}

const struct tm_builtin tm_str_filters[] = {
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", f_tojson},
    {"trim", "chars?", f_trim},
    {"default", "default_value? boolean?", f_default},
    {"d", "default_value? boolean?", f_default},
    {"string", "", f_string},
    {"safe", "", f_safe},
    {"upper", "", f_upper},
    {"lower", "", f_lower},
    {"capitalize", "", f_capitalize},
    {"title", "", f_title},
    {"replace", "old new count?", f_replace},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"forceescape", "", f_forceescape},
    {"indent", "width? first? blank?", f_indent},
    {"int", "default? base?", f_int},
    {"float", "default?", f_float},
    {"abs", "/", f_abs},
    {"round", "precision? method?", f_round},
    {"format", NULL, f_format},
    {"wordcount", "", f_wordcount},
    {"center", "width?", f_center},
    {"truncate", "length? killwords? end? leeway?", f_truncate},
    {"urlencode", "", f_urlencode},
    {NULL, NULL, NULL},
};

const struct tm_builtin *tm_filter_find(struct str name)
{
    const struct tm_builtin *const tables[] = {tm_str_filters, tm_seq_filters};
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct tm_builtin *f = tables[t]; f->name; f++)
            if (str_eq_c(name, f->name))
                return f;
    return NULL;
}
