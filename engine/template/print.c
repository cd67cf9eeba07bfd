/* Values as text: Python's str() and repr(), floats, and json.dumps.
 *
 * Called by engine/template. Thread: the one that renders. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/interp.h"

/* Python prints the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on. */
void tm_add_float(struct tm_sb *b, double f)
{
    if (isnan(f) || isinf(f)) {
        tm_sb_add_c(b, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char text[40], digits[24];
    int precision = 0;
    do
        snprintf(text, sizeof(text), "%.*e", precision, f);
    while (strtod(text, NULL) != f && ++precision < 17);
    char *e = strchr(text, 'e');
    int exponent = (int)strtol(e + 1, NULL, 10), n = 0;
    for (const char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    if (signbit(f))
        tm_sb_add_c(b, "-");
    if (exponent < -4 || exponent >= 16) {
        tm_sb_printf(b, n > 1 ? "%c.%.*se%c%02d" : "%c%.*se%c%02d", digits[0], n - 1, digits + 1,
                     exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        tm_sb_printf(b, "0.%.*s%.*s", -exponent - 1, "0000", n, digits);
    } else {
        int whole = exponent + 1;
        int zeros = whole > n ? whole - n : 0;
        tm_sb_printf(b, "%.*s%.*s.%s%.*s", whole < n ? whole : n, digits, zeros,
                     "00000000000000000", whole < n ? "" : "0", whole < n ? n - whole : 0,
                     digits + whole);
    }
}

/* ---- repr ---- */

static void repr_char(struct tm_sb *b, uint32_t cp, char quote)
{
    if (cp == '\\' || cp == (uint32_t)quote)
        tm_sb_printf(b, "\\%c", (int)cp);
    else if (cp == '\n')
        tm_sb_add_c(b, "\\n");
    else if (cp == '\r')
        tm_sb_add_c(b, "\\r");
    else if (cp == '\t')
        tm_sb_add_c(b, "\\t");
    else if (tm_is_printable(cp))
        tm_sb_add_char(b, cp, false);
    else
        tm_sb_printf(b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

static void repr_str(struct tm_sb *b, const struct tm_str *s)
{
    bool single = memchr(s->p, '\'', s->len) != NULL, both = single && memchr(s->p, '"', s->len);
    char quote = single && !both ? '"' : '\'';
    if (s->markup)
        tm_sb_add_c(b, "Markup(");
    tm_sb_add(b, &quote, 1, false);
    for (uint32_t at = 0; at < s->len;) {
        uint32_t cp;
        at += (uint32_t)tm_decode(s, at, &cp);
        repr_char(b, cp, quote);
    }
    tm_sb_add(b, &quote, 1, false);
    if (s->markup)
        tm_sb_add_c(b, ")");
}

static void repr_items(struct tm_sb *b, const struct tm_list *l, const char *open,
                       const char *close)
{
    tm_sb_add_c(b, open);
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            tm_sb_add_c(b, ", ");
        tm_repr(b, l->v[i]);
    }
    tm_sb_add_c(b, close);
}

static void repr_dict(struct tm_sb *b, const struct tm_dict *d)
{
    tm_sb_add_c(b, "{");
    for (uint32_t i = 0; i < d->n; i++) {
        if (i)
            tm_sb_add_c(b, ", ");
        tm_repr(b, d->e[i].key);
        tm_sb_add_c(b, ": ");
        tm_repr(b, d->e[i].value);
    }
    tm_sb_add_c(b, "}");
}

static void repr_view(struct tm_sb *b, struct tm_val v)
{
    tm_sb_add_c(b, tm_type_name(v));
    repr_items(b, tm_view_list(b->c, v.view->dict, v.view->kind), "([", "])");
}

static void repr_range(struct tm_sb *b, const struct tm_range *r)
{
    tm_sb_printf(b, "range(%lld, %lld", (long long)r->start, (long long)r->stop);
    if (r->step != 1)
        tm_sb_printf(b, ", %lld", (long long)r->step);
    tm_sb_add_c(b, ")");
}

void tm_repr(struct tm_sb *b, struct tm_val v)
{
    tm_value_enter(b->c);
    switch (v.type) {
    case TM_ABSENT:
    case TM_UNDEF:
        tm_sb_add_c(b, "Undefined");
        break;
    case TM_NONE:
        tm_sb_add_c(b, "None");
        break;
    case TM_BOOL:
        tm_sb_add_c(b, v.b ? "True" : "False");
        break;
    case TM_INT:
        tm_sb_printf(b, "%lld", (long long)v.i);
        break;
    case TM_FLOAT:
        tm_add_float(b, v.f);
        break;
    case TM_BIG:
        tm_sb_add(b, v.s->p, v.s->len, false);
        break;
    case TM_STR:
        repr_str(b, v.s);
        break;
    case TM_LIST:
        repr_items(b, v.list, "[", "]");
        break;
    case TM_TUPLE:
        repr_items(b, v.list, "(", v.list->n == 1 ? ",)" : ")");
        break;
    case TM_DICT:
        repr_dict(b, v.dict);
        break;
    case TM_NAMESPACE:
        tm_sb_add_c(b, "<Namespace ");
        repr_dict(b, v.dict);
        tm_sb_add_c(b, ">");
        break;
    case TM_RANGE:
        repr_range(b, v.range);
        break;
    case TM_VIEW:
        repr_view(b, v);
        break;
    case TM_MACRO:
        if (v.macro->node->kind == TN_MACRO)
            tm_sb_printf(b, "<Macro '%.*s'>", (int)(v.macro->node->text->len & 0xff),
                         v.macro->node->text->p);
        else
            tm_sb_add_c(b, "<Macro anonymous>");
        break;
    default:
        tm_fail(b->c, ERR_UNSUPPORTED, "printing a value of type '%s' is not supported",
                tm_type_name(v));
    }
    tm_value_leave(b->c);
}

const struct tm_str *tm_to_str(struct tmpl *c, struct tm_val v)
{
    if (v.type == TM_STR)
        return tm_as_markup(c, v.s, false);
    struct tm_sb b;
    tm_sb_init(&b, c);
    if (v.type != TM_UNDEF)
        tm_repr(&b, v);
    return tm_sb_done(&b);
}

/* ---- JSON ---- */

static void json_unicode(struct tm_sb *b, uint32_t cp)
{
    if (cp >= 0x10000) {
        cp -= 0x10000;
        tm_sb_printf(b, "\\u%04x\\u%04x", 0xd800 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
    } else {
        tm_sb_printf(b, "\\u%04x", cp);
    }
}

static void json_str(struct tm_sb *b, const struct tm_str *s, bool ascii)
{
    static const char special[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
    tm_sb_add_c(b, "\"");
    uint32_t from = 0;
    for (uint32_t at = 0; at < s->len;) {
        unsigned char ch = (unsigned char)s->p[at];
        if (ch >= 0x20 && ch != '"' && ch != '\\' && (ch < 0x7f || !ascii)) {
            at++;
            continue;
        }
        uint32_t cp;
        int n = tm_decode(s, at, &cp);
        tm_sb_add(b, s->p + from, at - from, false);
        const char *hit = cp && cp < 0x80 ? strchr(special, (int)cp) : NULL;
        if (hit)
            tm_sb_printf(b, "\\%c", names[hit - special]);
        else
            json_unicode(b, cp);
        at += (uint32_t)n;
        from = at;
    }
    tm_sb_add(b, s->p + from, s->len - from, false);
    tm_sb_add_c(b, "\"");
}

static void json_float(struct tm_sb *b, double f)
{
    if (isnan(f))
        tm_sb_add_c(b, "NaN");
    else if (isinf(f))
        tm_sb_add_c(b, f < 0 ? "-Infinity" : "Infinity");
    else
        tm_add_float(b, f);
}

static void json_line(struct tm_sb *b, const struct tm_json_style *style, uint32_t level)
{
    if (!style->indent)
        return;
    tm_sb_add_c(b, "\n");
    for (uint32_t i = 0; i < level; i++)
        tm_sb_add(b, style->indent->p, style->indent->len, false);
}

static void json_dict_key(struct tm_sb *b, struct tm_val key, const struct tm_json_style *style)
{
    switch (key.type) {
    case TM_STR:
        json_str(b, key.s, style->ascii);
        break;
    case TM_NONE:
        tm_sb_add_c(b, "\"null\"");
        break;
    case TM_BOOL:
    case TM_INT:
    case TM_BIG:
    case TM_FLOAT:
        tm_sb_add_c(b, "\"");
        tm_add_json(b, key, style, 0);
        tm_sb_add_c(b, "\"");
        break;
    default:
        tm_fail(b->c, ERR_INVALID, "key of type %s can't be JSON", tm_type_name(key));
    }
}

static void json_dict(struct tm_sb *b, const struct tm_dict *d, const struct tm_json_style *style,
                      uint32_t level)
{
    struct tm_list *items = tm_view_list(b->c, d, 'i');
    if (style->sort_keys) {
        struct tm_list *keys = tm_view_list(b->c, d, 'k');
        items = tm_sorted(b->c, keys, items, false);
    }
    tm_sb_add_c(b, "{");
    for (uint32_t i = 0; i < items->n; i++) {
        if (i)
            tm_sb_add(b, style->item_sep->p, style->item_sep->len, false);
        json_line(b, style, level + 1);
        json_dict_key(b, items->v[i].list->v[0], style);
        tm_sb_add(b, style->key_sep->p, style->key_sep->len, false);
        tm_add_json(b, items->v[i].list->v[1], style, level + 1);
    }
    if (items->n)
        json_line(b, style, level);
    tm_sb_add_c(b, "}");
}

static void json_list(struct tm_sb *b, const struct tm_list *l, const struct tm_json_style *style,
                      uint32_t level)
{
    tm_sb_add_c(b, "[");
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            tm_sb_add(b, style->item_sep->p, style->item_sep->len, false);
        json_line(b, style, level + 1);
        tm_add_json(b, l->v[i], style, level + 1);
    }
    if (l->n)
        json_line(b, style, level);
    tm_sb_add_c(b, "]");
}

void tm_add_json(struct tm_sb *b, struct tm_val v, const struct tm_json_style *style,
                 uint32_t level)
{
    tm_value_enter(b->c);
    switch (v.type) {
    case TM_NONE:
        tm_sb_add_c(b, "null");
        break;
    case TM_BOOL:
        tm_sb_add_c(b, v.b ? "true" : "false");
        break;
    case TM_INT:
    case TM_BIG:
        tm_repr(b, v);
        break;
    case TM_FLOAT:
        json_float(b, v.f);
        break;
    case TM_STR:
        json_str(b, v.s, style->ascii);
        break;
    case TM_LIST:
    case TM_TUPLE:
        json_list(b, v.list, style, level);
        break;
    case TM_DICT:
        json_dict(b, v.dict, style, level);
        break;
    default:
        tm_fail(b->c, ERR_INVALID, "value of type %s can't be JSON", tm_type_name(v));
    }
    tm_value_leave(b->c);
}
