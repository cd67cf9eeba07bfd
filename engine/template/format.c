/* String formatting of chat templates: Python's `format % args` and str.format.
 *
 * Called by engine/template. Thread: the one that renders. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/interp.h"

enum { MAX_WIDTH = 4096, MAX_PRECISION = 60 };

struct spec {
    uint32_t fill; /* code point */
    char align; /* < > ^ = or 0 */
    char sign; /* + - space */
    bool alternate, zero;
    char group; /* , or _ or 0 */
    int width, precision; /* precision -1: none */
    char type; /* 0: none given */
};

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

/* Reads decimal digits at *at; fails past the limit. */
static int read_number(struct tmpl *c, const struct tm_str *f, uint32_t *at, int limit)
{
    int n = 0;
    for (; *at < f->len && is_digit(f->p[*at]); (*at)++) {
        n = n * 10 + (f->p[*at] - '0');
        if (n > limit)
            tm_fail(c, ERR_TOO_LARGE, "width or precision of a format over %d", limit);
    }
    return n;
}

static void add_fill(struct tm_sb *b, uint32_t fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        tm_sb_add_char(b, fill, false);
}

static void add_padded(struct tm_sb *b, const struct tm_str *s, const struct spec *f, char align)
{
    int64_t pad = (int64_t)f->width - tm_str_chars(b->c, s);
    if (pad < 0)
        pad = 0;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    add_fill(b, f->fill, left);
    tm_sb_add_str(b, s);
    add_fill(b, f->fill, pad - left);
}

/* ---- numbers ---- */

/* Digits of |v| in a base, without sign and prefix. */
static const char *int_digits(int64_t v, char type, char *text, size_t cap)
{
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : (type | 32) == 'x' ? 16 : 10;
    char *p = text + cap - 1;
    *p = 0;
    do
        *--p = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    return p;
}

/* Puts a separator every `every` digits of the whole part. */
static void add_grouped(struct tm_sb *b, const char *digits, char group, int every)
{
    int whole = (int)strspn(digits, "0123456789abcdefABCDEF");
    for (int i = 0; i < whole; i++) {
        if (group && i && (whole - i) % every == 0)
            tm_sb_add(b, &group, 1, false);
        tm_sb_add(b, digits + i, 1, false);
    }
    tm_sb_add_c(b, digits + whole);
}

static void add_number(struct tm_sb *b, bool negative, const char *prefix, const char *digits,
                       const struct spec *f)
{
    struct tm_sb body, head;
    tm_sb_init(&head, b->c);
    tm_sb_init(&body, b->c);
    tm_sb_add_c(&head, negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "");
    tm_sb_add_c(&head, prefix);
    bool based = f->type && strchr("boxX", f->type);
    add_grouped(&body, digits, f->group, based ? 4 : 3);
    int64_t pad = (int64_t)f->width - head.len - body.len;
    char align = f->align ? f->align : f->zero ? '=' : '>';
    if (align == '=' && f->group && pad > 0)
        tm_fail(b->c, ERR_UNSUPPORTED, "zero padding with a thousands separator is not supported");
    struct tm_sb all;
    tm_sb_init(&all, b->c);
    tm_sb_add_str(&all, tm_sb_done(&head));
    if (align == '=' && pad > 0)
        add_fill(&all, f->zero && !f->align ? '0' : f->fill, pad);
    tm_sb_add_str(&all, tm_sb_done(&body));
    add_padded(b, tm_sb_done(&all), f, align == '=' ? '>' : align);
}

static void add_int(struct tm_sb *b, int64_t v, const struct spec *f)
{
    char text[80];
    const char *prefix = "";
    if (f->alternate && f->type)
        prefix = f->type == 'b'   ? "0b"
                 : f->type == 'o' ? "0o"
                 : f->type == 'x' ? "0x"
                 : f->type == 'X' ? "0X"
                                  : "";
    add_number(b, v < 0, prefix, int_digits(v, f->type, text, sizeof(text)), f);
}

static void add_real(struct tm_sb *b, double v, const struct spec *f)
{
    char text[450];
    bool negative = signbit(v) && !isnan(v);
    double size = fabs(v);
    int precision = f->precision < 0 ? 6 : f->precision;
    if (isnan(v) || isinf(v)) {
        bool upper = f->type == 'F' || f->type == 'E' || f->type == 'G';
        snprintf(text, sizeof(text), "%s",
                 isnan(v) ? (upper ? "NAN" : "nan")
                 : upper  ? "INF"
                          : "inf");
    } else if (f->type == '%') {
        snprintf(text, sizeof(text), "%.*f%%", precision, size * 100);
    } else {
        char format[] = "%#.*f";
        size_t at = f->alternate ? 0 : 1; /* without '#' the format starts one later */
        format[4] = f->type;
        if (at)
            format[1] = '%';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof(text), format + at, precision, size);
#pragma GCC diagnostic pop
    }
    add_number(b, negative, "", text, f);
}

/* ---- % ---- */

struct percent {
    struct tmpl *c;
    const struct tm_str *f;
    uint32_t at;
    struct tm_val args;
    uint32_t next; /* argument */
};

static struct tm_val percent_arg(struct percent *p)
{
    if (p->args.type == TM_TUPLE) {
        if (p->next >= p->args.list->n)
            tm_fail(p->c, ERR_INVALID, "not enough arguments for format string");
        return p->args.list->v[p->next++];
    }
    if (p->next++)
        tm_fail(p->c, ERR_INVALID, "not enough arguments for format string");
    return p->args;
}

static struct tm_val percent_key(struct percent *p)
{
    uint32_t start = ++p->at, depth = 1;
    for (; p->at < p->f->len; p->at++) {
        depth += p->f->p[p->at] == '(';
        depth -= p->f->p[p->at] == ')';
        if (!depth)
            break;
    }
    if (p->at >= p->f->len)
        tm_fail(p->c, ERR_INVALID, "incomplete format key");
    if (p->args.type != TM_DICT)
        tm_fail(p->c, ERR_INVALID, "format requires a mapping");
    const struct tm_str *key = tm_sub(p->c, p->f, start, p->at++);
    const struct tm_val *v = tm_dict_get_str(p->c, p->args.dict, key);
    if (!v)
        tm_fail(p->c, ERR_INVALID, "key '%.*s' missing for a format",
                key->len > 80 ? 80 : (int)key->len, key->p);
    p->next = 1;
    return *v;
}

static int percent_number(struct percent *p, int limit)
{
    if (p->at < p->f->len && p->f->p[p->at] == '*')
        tm_fail(p->c, ERR_UNSUPPORTED, "'*' in a format is not supported");
    return read_number(p->c, p->f, &p->at, limit);
}

static void percent_spec(struct percent *p, struct spec *s)
{
    *s = (struct spec){.fill = ' ', .precision = -1};
    for (; p->at < p->f->len && strchr("-+ #0", p->f->p[p->at]) && p->f->p[p->at]; p->at++) {
        char ch = p->f->p[p->at];
        if (ch == '-')
            s->align = '<';
        else if (ch == '+' || (ch == ' ' && s->sign != '+'))
            s->sign = ch;
        else if (ch == '#')
            s->alternate = true;
        else if (ch == '0')
            s->zero = true;
    }
    if (s->align)
        s->zero = false;
    s->width = percent_number(p, MAX_WIDTH);
    if (p->at < p->f->len && p->f->p[p->at] == '.') {
        p->at++;
        s->precision = percent_number(p, MAX_PRECISION);
    }
    while (p->at < p->f->len && strchr("hlL", p->f->p[p->at]) && p->f->p[p->at])
        p->at++;
    if (p->at >= p->f->len)
        tm_fail(p->c, ERR_INVALID, "incomplete format");
    s->type = p->f->p[p->at++];
}

static void percent_text(struct percent *p, struct tm_sb *b, struct spec *s, struct tm_val v)
{
    const struct tm_str *text;
    if (s->type == 'r') {
        struct tm_sb repr;
        tm_sb_init(&repr, p->c);
        tm_repr(&repr, v);
        text = tm_sb_done(&repr);
    } else {
        text = tm_to_str(p->c, v);
    }
    if (s->precision >= 0)
        text = tm_sub(p->c, text, 0, tm_str_offset(p->c, text, (uint32_t)s->precision));
    add_padded(b, text, s, s->align ? s->align : '>');
}

static void percent_int(struct percent *p, struct tm_sb *b, struct spec *s, struct tm_val v)
{
    bool decimal = strchr("diu", s->type) != NULL;
    if (v.type == TM_FLOAT && decimal && fabs(v.f) < 9e18)
        v = tm_int((int64_t)v.f);
    if (v.type != TM_INT && v.type != TM_BOOL)
        tm_fail(p->c, ERR_INVALID, "format %%%c needs an integer, not %s", s->type,
                tm_type_name(v));
    if (s->precision >= 0)
        tm_fail(p->c, ERR_UNSUPPORTED, "precision of an integer format is not supported");
    if (decimal)
        s->type = 'd';
    add_int(b, v.type == TM_BOOL ? v.b : v.i, s);
}

static void percent_one(struct percent *p, struct tm_sb *b)
{
    struct spec s;
    struct tm_val v = {.type = TM_ABSENT};
    if (p->at < p->f->len && p->f->p[p->at] == '(')
        v = percent_key(p);
    percent_spec(p, &s);
    if (s.type == '%') {
        tm_sb_add(b, "%", 1, false);
        return;
    }
    if (v.type == TM_ABSENT)
        v = percent_arg(p);
    if (s.type != 's' && s.type != 'r')
        tm_need_defined(p->c, v);
    switch (s.type) {
    case 's':
    case 'r':
        percent_text(p, b, &s, v);
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        percent_int(p, b, &s, v);
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!tm_is_number(v))
            tm_fail(p->c, ERR_INVALID, "format %%%c needs a number, not %s", s.type,
                    tm_type_name(v));
        add_real(b, tm_number(v), &s);
        break;
    case 'a':
    case 'c':
        tm_fail(p->c, ERR_UNSUPPORTED, "format %%%c is not supported", s.type);
    default:
        tm_fail(p->c, ERR_INVALID, "unsupported format character after '%%'");
    }
}

const struct tm_str *tm_percent(struct tmpl *c, const struct tm_str *format, struct tm_val args)
{
    struct percent p = {.c = c, .f = format, .args = args};
    struct tm_sb b;
    tm_sb_init(&b, c);
    if (format->markup)
        tm_fail(c, ERR_UNSUPPORTED, "formatting of markup is not supported");
    uint32_t from = 0;
    while (p.at < format->len) {
        if (format->p[p.at] != '%') {
            p.at++;
            continue;
        }
        tm_sb_add_sub(&b, format, from, p.at++);
        percent_one(&p, &b);
        from = p.at;
    }
    tm_sb_add_sub(&b, format, from, format->len);
    bool unused = args.type == TM_TUPLE ? p.next < args.list->n
                                        : !p.next && args.type != TM_DICT && args.type != TM_LIST &&
                                              args.type != TM_RANGE;
    if (unused)
        tm_fail(c, ERR_INVALID, "not all arguments converted during string formatting");
    return tm_sb_done(&b);
}

/* ---- str.format ---- */

struct brace {
    struct tmpl *c;
    const struct tm_str *f;
    uint32_t at, end;
    const struct tm_args *args;
    uint32_t next;
    bool automatic, manual;
};

static bool parse_align(const struct tm_str *s, uint32_t *at, struct spec *f)
{
    uint32_t cp;
    if (*at >= s->len)
        return false;
    int n = tm_decode(s, *at, &cp);
    uint32_t after = *at + (uint32_t)n;
    if (after < s->len && s->p[after] && strchr("<>=^", s->p[after])) {
        f->fill = cp;
        f->align = s->p[after];
        *at = after + 1;
        return true;
    }
    if (s->p[*at] && strchr("<>=^", s->p[*at])) {
        f->align = s->p[(*at)++];
        return true;
    }
    return false;
}

static void parse_spec(struct tmpl *c, const struct tm_str *s, struct spec *f)
{
    uint32_t at = 0;
    *f = (struct spec){.fill = ' ', .precision = -1};
    parse_align(s, &at, f);
    if (at < s->len && s->p[at] && strchr("+- ", s->p[at]))
        f->sign = s->p[at++];
    if (at < s->len && s->p[at] == '#') {
        f->alternate = true;
        at++;
    }
    if (at < s->len && s->p[at] == '0') {
        f->zero = true;
        at++;
    }
    f->width = read_number(c, s, &at, MAX_WIDTH);
    if (at < s->len && (s->p[at] == ',' || s->p[at] == '_'))
        f->group = s->p[at++];
    if (at < s->len && s->p[at] == '.') {
        at++;
        if (at >= s->len || !is_digit(s->p[at]))
            tm_fail(c, ERR_INVALID, "format specifier missing precision");
        f->precision = read_number(c, s, &at, MAX_PRECISION);
    }
    if (at < s->len)
        f->type = s->p[at++];
    if (at < s->len)
        tm_fail(c, ERR_INVALID, "invalid format specifier");
}

static void format_real(struct tm_sb *b, struct tm_val v, struct spec *f)
{
    if (!f->type && f->precision < 0 && isfinite(tm_number(v))) {
        struct tm_sb text;
        tm_sb_init(&text, b->c);
        tm_add_float(&text, fabs(tm_number(v)));
        tm_sb_add_char(&text, 0, false);
        add_number(b, signbit(tm_number(v)), "", text.p, f);
        return;
    }
    if (!f->type)
        tm_fail(b->c, ERR_UNSUPPORTED, "format of a float with a precision but no type");
    add_real(b, tm_number(v), f);
}

static void format_value(struct tm_sb *b, struct tm_val v, const struct tm_str *spec)
{
    struct spec f;
    if (!spec->len) {
        tm_sb_add_str(b, tm_to_str(b->c, v));
        return;
    }
    parse_spec(b->c, spec, &f);
    bool integer = v.type == TM_INT || v.type == TM_BOOL;
    if (v.type == TM_STR) {
        if ((f.type && f.type != 's') || f.sign || f.group || f.align == '=')
            tm_fail(b->c, ERR_INVALID, "invalid format specifier for a string");
        const struct tm_str *s = v.s;
        if (f.precision >= 0)
            s = tm_sub(b->c, s, 0, tm_str_offset(b->c, s, (uint32_t)f.precision));
        if (f.zero && !f.align)
            f.fill = '0';
        add_padded(b, s, &f, f.align ? f.align : '<');
    } else if (integer && (!f.type || strchr("bdoxX", f.type))) {
        if (f.precision >= 0)
            tm_fail(b->c, ERR_INVALID, "precision not allowed in an integer format");
        add_int(b, v.type == TM_BOOL ? v.b : v.i, &f);
    } else if (tm_is_number(v) && (!f.type || strchr("eEfFgG%", f.type))) {
        format_real(b, v, &f);
    } else {
        tm_need_defined(b->c, v);
        tm_fail(b->c, ERR_INVALID, "format specifier that %s doesn't know", tm_type_name(v));
    }
}

/* The argument a replacement field names: "", a number or a keyword. */
static struct tm_val brace_arg(struct brace *r, const struct tm_str *name)
{
    bool number = name->len > 0;
    for (uint32_t i = 0; i < name->len; i++)
        number = number && is_digit(name->p[i]);
    if (!name->len || number) {
        r->manual |= number;
        r->automatic |= !number;
        uint32_t at = 0;
        uint32_t i = number ? (uint32_t)read_number(r->c, name, &at, MAX_WIDTH) : r->next++;
        if (r->manual && r->automatic)
            tm_fail(r->c, ERR_INVALID, "format mixes automatic and manual field numbers");
        if (i >= r->args->n)
            tm_fail(r->c, ERR_INVALID, "format index %u out of range", i);
        return r->args->v[i];
    }
    for (uint32_t i = 0; i < r->args->n_kw; i++)
        if (tm_str_eq(r->args->kw[i].name, name))
            return r->args->kw[i].v;
    tm_fail(r->c, ERR_INVALID, "format argument '%.*s' missing",
            name->len > 80 ? 80 : (int)name->len, name->p);
}

static uint32_t scan(const struct brace *r, uint32_t at, const char *stops)
{
    while (at < r->end && !(r->f->p[at] && strchr(stops, r->f->p[at])))
        at++;
    return at;
}

static struct tm_val brace_field(struct brace *r)
{
    uint32_t stop = scan(r, r->at, ".[!:");
    struct tm_val v = brace_arg(r, tm_sub(r->c, r->f, r->at, stop));
    r->at = stop;
    while (r->at < r->end && (r->f->p[r->at] == '.' || r->f->p[r->at] == '[')) {
        bool dot = r->f->p[r->at++] == '.';
        stop = scan(r, r->at, dot ? ".[!:" : "]");
        const struct tm_str *key = tm_sub(r->c, r->f, r->at, stop);
        int64_t index;
        if (dot)
            v = tm_getattr(r->c, v, key);
        else if (tm_parse_int(key, 10, &index) && is_digit(key->p[0]))
            v = tm_getitem(r->c, v, tm_int(index));
        else
            v = tm_getitem(r->c, v, tm_string(key));
        r->at = stop + !dot;
    }
    return v;
}

/* One {...}; r->at is after the brace, r->end at the closing one. */
static void brace_one(struct brace *r, struct tm_sb *b)
{
    struct tm_val v = brace_field(r);
    if (r->at < r->end && r->f->p[r->at] == '!') {
        char how = r->at + 1 < r->end ? r->f->p[r->at + 1] : 0;
        r->at += 2;
        if (how == 'r') {
            struct tm_sb repr;
            tm_sb_init(&repr, r->c);
            tm_repr(&repr, v);
            v = tm_string(tm_sb_done(&repr));
        } else if (how == 's') {
            v = tm_string(tm_to_str(r->c, v));
        } else {
            tm_fail(r->c, ERR_UNSUPPORTED, "conversion in a format is not supported");
        }
    }
    const struct tm_str *spec = tm_str_lit(r->c, "");
    if (r->at < r->end && r->f->p[r->at] == ':')
        spec = tm_sub(r->c, r->f, r->at + 1, r->end);
    else if (r->at < r->end)
        tm_fail(r->c, ERR_INVALID, "malformed replacement field in a format");
    format_value(b, v, spec);
}

const struct tm_str *tm_format(struct tmpl *c, const struct tm_str *format,
                               const struct tm_args *args)
{
    struct brace r = {.c = c, .f = format, .args = args};
    struct tm_sb b;
    tm_sb_init(&b, c);
    if (format->markup)
        tm_fail(c, ERR_UNSUPPORTED, "formatting of markup is not supported");
    for (uint32_t at = 0; at < format->len; at++) {
        char ch = format->p[at];
        if (ch != '{' && ch != '}') {
            tm_sb_add_sub(&b, format, at, at + 1);
            continue;
        }
        if (at + 1 < format->len && format->p[at + 1] == ch) {
            tm_sb_add_sub(&b, format, at, at + 1);
            at++;
            continue;
        }
        const char *close = memchr(format->p + at, '}', format->len - at);
        if (ch == '}' || !close)
            tm_fail(c, ERR_INVALID, "single '%c' in a format", ch);
        r.at = at + 1;
        r.end = (uint32_t)(close - format->p);
        if (memchr(format->p + r.at, '{', r.end - r.at))
            tm_fail(c, ERR_UNSUPPORTED, "nested fields in a format are not supported");
        brace_one(&r, &b);
        at = r.end;
    }
    return tm_sb_done(&b);
}
