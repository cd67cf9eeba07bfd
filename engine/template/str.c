/* Strings of the chat template interpreter: immutable UTF-8 with marks for the bytes that the
 * template itself wrote. A control token may later be read only from marked bytes.
 *
 * Rule: a byte is marked only when it came from the template's source (or a trusted argument); a byte
 * of unclear origin is data. Called by engine/template. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/template/interp.h"

/* ---- builder ---- */

void tm_sb_init(struct tm_sb *b, struct tmpl *c)
{
    *b = (struct tm_sb){.c = c};
}

static void reserve(struct tm_sb *b, size_t n)
{
    if (n > TM_MAX_STRING_BYTES - (size_t)b->len)
        tm_fail(b->c, ERR_TOO_LARGE, "makes a text of more than %d bytes", TM_MAX_STRING_BYTES);
    size_t need = b->len + n;
    if (need <= b->cap)
        return;
    size_t cap = b->cap ? (size_t)b->cap * 2 : 64;
    if (cap < need)
        cap = need;
    b->p = tm_grow(b->c, b->p, b->cap, cap);
    b->cap = (uint32_t)cap;
}

static void add_mark(struct tm_sb *b, uint32_t start, uint32_t end)
{
    if (start == end)
        return;
    if (b->n_marks && b->marks[b->n_marks - 1].end == start) {
        b->marks[b->n_marks - 1].end = end;
        return;
    }
    if (b->n_marks == b->cap_marks) {
        uint32_t cap = b->cap_marks ? b->cap_marks * 2 : 4;
        b->marks = tm_grow(b->c, b->marks, b->n_marks * sizeof(*b->marks), cap * sizeof(*b->marks));
        b->cap_marks = cap;
    }
    b->marks[b->n_marks++] = (struct tm_mark){start, end};
}

void tm_sb_add(struct tm_sb *b, const char *p, size_t n, bool trusted)
{
    if (!n)
        return;
    tm_step(b->c, 1 + n / 64);
    reserve(b, n);
    memcpy(b->p + b->len, p, n);
    if (trusted)
        add_mark(b, b->len, b->len + (uint32_t)n);
    b->len += (uint32_t)n;
}

void tm_sb_add_c(struct tm_sb *b, const char *text)
{
    tm_sb_add(b, text, strlen(text), false);
}

void tm_sb_add_char(struct tm_sb *b, uint32_t code_point, bool trusted)
{
    char bytes[4];
    int n = utf8_encode(code_point, bytes);
    tm_sb_add(b, bytes, (size_t)n, trusted);
}

void tm_sb_add_sub(struct tm_sb *b, const struct tm_str *s, uint32_t from, uint32_t to)
{
    uint32_t base = b->len;
    tm_sb_add(b, s->p + from, to - from, s->taint == TM_TRUSTED);
    if (s->taint != TM_MIXED)
        return;
    for (uint32_t i = 0; i < s->n_marks; i++) {
        uint32_t start = s->marks[i].start < from ? from : s->marks[i].start;
        uint32_t end = s->marks[i].end > to ? to : s->marks[i].end;
        if (start < end)
            add_mark(b, base + start - from, base + end - from);
    }
    tm_step(b->c, s->n_marks);
}

void tm_sb_add_str(struct tm_sb *b, const struct tm_str *s)
{
    tm_sb_add_sub(b, s, 0, s->len);
}

void tm_sb_printf(struct tm_sb *b, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n > 0)
        tm_sb_add(b, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1, false);
}

static void set_marks(struct tm_str *s, const struct tm_mark *marks, uint32_t n)
{
    if (n == 0) {
        s->taint = TM_DATA;
    } else if (n == 1 && marks[0].start == 0 && marks[0].end == s->len) {
        s->taint = TM_TRUSTED;
    } else {
        s->taint = TM_MIXED;
        s->marks = marks;
        s->n_marks = n;
    }
}

const struct tm_str *tm_sb_done(struct tm_sb *b)
{
    struct tm_str *s = tm_zalloc(b->c, sizeof(*s));
    s->p = b->p ? b->p : "";
    s->len = b->len;
    set_marks(s, b->marks, b->n_marks);
    return s;
}

/* ---- making ---- */

const struct tm_str *tm_str_new(struct tmpl *c, const char *p, size_t n, bool trusted)
{
    if (n > TM_MAX_STRING_BYTES)
        tm_fail(c, ERR_TOO_LARGE, "text of %zu bytes, at most %d", n, TM_MAX_STRING_BYTES);
    struct tm_str *s = tm_zalloc(c, sizeof(*s));
    s->p = n ? p : "";
    s->len = (uint32_t)n;
    s->taint = trusted ? TM_TRUSTED : TM_DATA;
    return s;
}

const struct tm_str *tm_str_lit(struct tmpl *c, const char *literal)
{
    return tm_str_new(c, literal, strlen(literal), false);
}

const struct tm_str *tm_sub(struct tmpl *c, const struct tm_str *s, uint32_t from, uint32_t to)
{
    if (from == 0 && to == s->len)
        return s;
    struct tm_str *r = tm_zalloc(c, sizeof(*r));
    r->p = s->p + from;
    r->len = to > from ? to - from : 0;
    r->markup = s->markup;
    r->taint = s->taint;
    if (s->taint != TM_MIXED)
        return r;
    struct tm_mark *marks = tm_alloc(c, (s->n_marks + 1) * sizeof(*marks));
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_marks; i++) {
        uint32_t start = s->marks[i].start < from ? from : s->marks[i].start;
        uint32_t end = s->marks[i].end > to ? to : s->marks[i].end;
        if (start < end)
            marks[n++] = (struct tm_mark){start - from, end - from};
    }
    tm_step(c, s->n_marks);
    set_marks(r, marks, n);
    return r;
}

const struct tm_str *tm_as_markup(struct tmpl *c, const struct tm_str *s, bool markup)
{
    if (s->markup == markup)
        return s;
    struct tm_str *r = tm_alloc(c, sizeof(*r));
    *r = *s;
    r->markup = markup;
    return r;
}

const struct tm_str *tm_concat(struct tmpl *c, const struct tm_str *a, const struct tm_str *b)
{
    if (a->markup == b->markup && (!a->len || !b->len))
        return a->len ? a : b;
    struct tm_sb sb;
    tm_sb_init(&sb, c);
    reserve(&sb, (size_t)a->len + b->len);
    tm_sb_add_str(&sb, a);
    tm_sb_add_str(&sb, b);
    return tm_as_markup(c, tm_sb_done(&sb), a->markup && b->markup);
}

const struct tm_str *tm_escape_html(struct tmpl *c, const struct tm_str *s)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char special[] = "&<>'\"";
    if (s->markup)
        return s;
    struct tm_sb b;
    tm_sb_init(&b, c);
    uint32_t from = 0, cursor = 0;
    for (uint32_t i = 0; i < s->len; i++) {
        const char *hit = s->p[i] ? strchr(special, s->p[i]) : NULL;
        if (!hit)
            continue;
        tm_sb_add_sub(&b, s, from, i);
        const char *name = names[hit - special];
        tm_sb_add(&b, name, strlen(name), tm_trusted_at(s, i, &cursor));
        from = i + 1;
    }
    tm_sb_add_sub(&b, s, from, s->len);
    return tm_as_markup(c, tm_sb_done(&b), true);
}

/* ---- reading ---- */

bool tm_str_eq(const struct tm_str *a, const struct tm_str *b)
{
    return a == b || (a->len == b->len && memcmp(a->p, b->p, a->len) == 0);
}

bool tm_str_is(const struct tm_str *a, const char *literal)
{
    return a->len == strlen(literal) && memcmp(a->p, literal, a->len) == 0;
}

/* UTF-8 sorts in the order of its code points. */
int tm_str_cmp(const struct tm_str *a, const struct tm_str *b)
{
    int order = memcmp(a->p, b->p, a->len < b->len ? a->len : b->len);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

uint32_t tm_str_chars(struct tmpl *c, const struct tm_str *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->len; i++)
        n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    tm_step(c, s->len / 64);
    return n;
}

uint32_t tm_str_offset(struct tmpl *c, const struct tm_str *s, uint32_t i)
{
    uint32_t at = 0;
    for (; at < s->len; at++) {
        if (((unsigned char)s->p[at] & 0xc0) == 0x80)
            continue;
        if (i-- == 0)
            break;
    }
    tm_step(c, at / 64);
    return at;
}

int tm_decode(const struct tm_str *s, uint32_t at, uint32_t *code_point)
{
    *code_point = 0;
    int n = utf8_decode((struct str){s->p + at, s->len - at}, code_point);
    return n > 0 ? n : 1;
}

bool tm_trusted_at(const struct tm_str *s, uint32_t at, uint32_t *cursor)
{
    if (s->taint != TM_MIXED)
        return s->taint == TM_TRUSTED;
    while (*cursor < s->n_marks && s->marks[*cursor].end <= at)
        (*cursor)++;
    return *cursor < s->n_marks && s->marks[*cursor].start <= at;
}

int64_t tm_find(struct tmpl *c, const struct tm_str *s, const struct tm_str *needle, uint32_t from,
                uint32_t to, bool last)
{
    if (to > s->len)
        to = s->len;
    if (from > to || needle->len > to - from)
        return -1;
    tm_step(c, 1 + (to - from) / 64);
    if (!last) {
        const char *hit =
            needle->len ? memmem(s->p + from, to - from, needle->p, needle->len) : s->p + from;
        return hit ? hit - s->p : -1;
    }
    for (int64_t at = (int64_t)to - needle->len; at >= (int64_t)from; at--)
        if (memcmp(s->p + at, needle->p, needle->len) == 0)
            return at;
    return -1;
}
