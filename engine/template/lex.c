/* Lexer of chat templates: text, tags and the tokens inside tags, with jinja2's whitespace control
 * (trim_blocks and lstrip_blocks on, as chat templates expect; the last newline dropped).
 *
 * Called by template_new. Thread: any, one per template. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/template/interp.h"

struct lexer {
    struct tmpl *c;
    const char *p; /* source with \n line ends, without the last one */
    uint32_t len, at;
    bool line_start; /* the last tag's end took a newline (or nothing was read yet) */
    struct tm_tokens *out;
    uint32_t line_at; /* where `line` holds */
    uint32_t line;
    char closers[TM_MAX_PARSE_DEPTH]; /* brackets still open in this tag */
    uint32_t n_closers;
};

/* Lines are counted as tokens are made, never backwards. */
static uint32_t line_of(struct lexer *l, uint32_t at)
{
    for (; l->line_at < at; l->line_at++)
        l->line += l->p[l->line_at] == '\n';
    return l->line;
}

__attribute__((noreturn)) static void lex_fail(struct lexer *l, const char *text)
{
    l->c->line = line_of(l, l->at);
    tm_fail(l->c, ERR_FORMAT, "%s", text);
}

static struct tm_token *add_token(struct lexer *l, enum tm_tok type, uint32_t start, uint32_t end)
{
    struct tm_tokens *t = l->out;
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 256;
        t->v = tm_grow(l->c, t->v, t->n * sizeof(*t->v), cap * sizeof(*t->v));
        t->cap = cap;
    }
    t->v[t->n] = (struct tm_token){
        .type = type, .line = line_of(l, start), .text = {l->p + start, end - start}};
    return &t->v[t->n++];
}

static bool looking_at(const struct lexer *l, uint32_t at, const char *text)
{
    size_t n = strlen(text);
    return l->len - at >= n && memcmp(l->p + at, text, n) == 0;
}

static uint32_t decode_at(const struct lexer *l, uint32_t at, int *n)
{
    uint32_t cp = 0;
    *n = utf8_decode((struct str){l->p + at, l->len - at}, &cp);
    return cp;
}

static uint32_t skip_space(const struct lexer *l, uint32_t at)
{
    while (at < l->len) {
        int n;
        if (!tm_is_space(decode_at(l, at, &n)))
            break;
        at += (uint32_t)n;
    }
    return at;
}

/* First byte after the text before end once trailing whitespace is dropped. */
static uint32_t trim_end(const struct lexer *l, uint32_t start, uint32_t end)
{
    while (end > start) {
        uint32_t prev = end - 1;
        while (prev > start && ((unsigned char)l->p[prev] & 0xc0) == 0x80)
            prev--;
        int n;
        if (!tm_is_space(decode_at(l, prev, &n)))
            break;
        end = prev;
    }
    return end;
}

/* Text before a tag, trimmed as the tag's sign says ('-', '+' or 0). */
static void add_text(struct lexer *l, uint32_t start, uint32_t end, char sign, bool variable)
{
    if (sign == '-') {
        end = trim_end(l, start, end);
    } else if (sign != '+' && !variable) {
        uint32_t line = end;
        while (line > start && l->p[line - 1] != '\n')
            line--;
        if ((line > start || l->line_start) && trim_end(l, line, end) == line)
            end = line;
    }
    if (end > start)
        add_token(l, TT_DATA, start, end);
}

static char sign_at(const struct lexer *l, uint32_t at)
{
    return at < l->len && (l->p[at] == '-' || l->p[at] == '+') ? l->p[at] : 0;
}

/* Advances past the end of a tag; newline: also past a newline right after it. */
static void finish_tag(struct lexer *l, uint32_t end, bool strip, bool newline)
{
    if (strip)
        end = skip_space(l, end);
    else if (newline && end < l->len && l->p[end] == '\n')
        end++;
    l->at = end;
    l->line_start = l->p[end - 1] == '\n';
}

static void lex_comment(struct lexer *l, uint32_t at)
{
    for (; at < l->len; at++) {
        if (looking_at(l, at, "-#}")) {
            finish_tag(l, at + 3, true, false);
            return;
        }
        if (looking_at(l, at, "+#}")) {
            finish_tag(l, at + 3, false, false);
            return;
        }
        if (looking_at(l, at, "#}")) {
            finish_tag(l, at + 2, false, true);
            return;
        }
    }
    if (l->at + 2 + (sign_at(l, l->at + 2) != 0) < l->len)
        lex_fail(l, "comment without end");
    l->at = l->len; /* jinja2 lets one pass that starts where the source ends */
}

/* End of "{%[-+] raw %}" when one starts at `at`, else 0. */
static uint32_t raw_begin(const struct lexer *l, uint32_t at)
{
    at += 2;
    if (sign_at(l, at))
        at++;
    at = skip_space(l, at);
    if (!looking_at(l, at, "raw"))
        return 0;
    at = skip_space(l, at + 3);
    if (looking_at(l, at, "-%}"))
        return skip_space(l, at + 3);
    return looking_at(l, at, "%}") ? at + 2 : 0;
}

/* "{%[-+] endraw %}" at `at`: where the end mark starts, else 0. */
static uint32_t raw_end(const struct lexer *l, uint32_t at)
{
    at += 2;
    if (sign_at(l, at))
        at++;
    at = skip_space(l, at);
    if (!looking_at(l, at, "endraw"))
        return 0;
    at = skip_space(l, at + 6);
    bool end = looking_at(l, at, "%}") || looking_at(l, at, "-%}") || looking_at(l, at, "+%}");
    return end ? at : 0;
}

static void lex_raw(struct lexer *l, uint32_t start)
{
    l->line_start = start > 0 && l->p[start - 1] == '\n';
    for (uint32_t at = start; at < l->len; at++) {
        if (!looking_at(l, at, "{%"))
            continue;
        uint32_t mark = raw_end(l, at);
        if (!mark)
            continue;
        add_text(l, start, at, sign_at(l, at + 2), false);
        bool sign = l->p[mark] != '%';
        finish_tag(l, mark + 2 + sign, l->p[mark] == '-', !sign);
        return;
    }
    if (start < l->len)
        lex_fail(l, "raw without endraw");
    l->at = l->len;
}

/* ---- tokens inside a tag ---- */

static void add_escape_number(struct lexer *l, struct tm_sb *b, uint32_t *at, uint32_t end,
                              int digits)
{
    uint32_t cp = 0;
    for (int i = 0; i < digits; i++, (*at)++) {
        char ch = *at < end ? l->p[*at] : 0;
        int v = ch >= '0' && ch <= '9'                 ? ch - '0'
                : (ch | 32) >= 'a' && (ch | 32) <= 'f' ? (ch | 32) - 'a' + 10
                                                       : -1;
        if (v < 0)
            lex_fail(l, "truncated escape in a string");
        cp = cp * 16 + (uint32_t)v;
    }
    if (cp > 0x10ffff)
        lex_fail(l, "escape in a string beyond U+10FFFF");
    if (cp >= 0xd800 && cp < 0xe000) {
        l->c->line = line_of(l, l->at);
        tm_fail(l->c, ERR_UNSUPPORTED, "escape of a surrogate in a string");
    }
    tm_sb_add_char(b, cp, true);
}

static void add_octal(struct lexer *l, struct tm_sb *b, uint32_t *at, uint32_t end)
{
    uint32_t cp = 0;
    for (int i = 0; i < 3 && *at < end && l->p[*at] >= '0' && l->p[*at] <= '7'; i++, (*at)++)
        cp = cp * 8 + (uint32_t)(l->p[*at] - '0');
    tm_sb_add_char(b, cp, true);
}

/* One escape; *at is just after the backslash. As Python's unicode-escape codec; before it, characters
 * beyond ASCII were themselves written as escapes, so that a backslash before them quotes theirs. */
static void add_escape(struct lexer *l, struct tm_sb *b, uint32_t *at, uint32_t end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char ch = l->p[*at];
    const char *known = ch ? strchr(from, ch) : NULL;
    if (known) {
        tm_sb_add(b, &to[known - from], 1, true);
        (*at)++;
    } else if (ch == '\n') {
        (*at)++;
    } else if (ch >= '0' && ch <= '7') {
        add_octal(l, b, at, end);
    } else if (ch == 'x' || ch == 'u' || ch == 'U') {
        (*at)++;
        add_escape_number(l, b, at, end, ch == 'x' ? 2 : ch == 'u' ? 4 : 8);
    } else if (ch == 'N') {
        l->c->line = line_of(l, l->at);
        tm_fail(l->c, ERR_UNSUPPORTED, "\\N escape in a string");
    } else {
        tm_sb_add(b, "\\", 1, true);
        if ((unsigned char)ch < 0x80)
            return;
        int n;
        uint32_t cp = decode_at(l, *at, &n);
        tm_sb_printf(b, cp < 0x100 ? "x%02x" : cp < 0x10000 ? "u%04x" : "U%08x", cp);
        *at += (uint32_t)n;
    }
}

static void lex_string(struct lexer *l)
{
    char quote = l->p[l->at];
    uint32_t start = l->at + 1, end = start;
    bool escapes = false;
    while (end < l->len && l->p[end] != quote) {
        if (l->p[end] == '\\') {
            escapes = true;
            end++;
        }
        end++;
    }
    if (end >= l->len)
        lex_fail(l, "string without end");
    struct tm_token *t = add_token(l, TT_STRING, l->at, end);
    t->text = (struct str){l->p + start, end - start};
    if (escapes) {
        struct tm_sb b;
        tm_sb_init(&b, l->c);
        for (uint32_t at = start; at < end;) {
            if (l->p[at] == '\\') {
                at++;
                add_escape(l, &b, &at, end);
            } else {
                tm_sb_add(&b, l->p + at++, 1, true);
            }
        }
        t->text = tm_view_str(tm_sb_done(&b));
    }
    l->at = end + 1;
}

static bool digit_of(char ch, int base)
{
    if (base == 16)
        return (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'f');
    return ch >= '0' && ch < '0' + base;
}

/* End of "digits with single underscores between them" from `at`; at itself when there are none. */
static uint32_t digits_end(const struct lexer *l, uint32_t at, int base)
{
    uint32_t end = at;
    for (;;) {
        uint32_t next = end + (end > at && end < l->len && l->p[end] == '_');
        if (next >= l->len || !digit_of(l->p[next], base))
            break;
        end = next + 1;
    }
    return end;
}

/* End of a float literal that starts at l->at, or 0. */
static uint32_t float_end(const struct lexer *l)
{
    if (l->at > 0 && l->p[l->at - 1] == '.')
        return 0;
    uint32_t end = digits_end(l, l->at, 10);
    if (end == l->at)
        return 0;
    bool is_float = false;
    if (end + 1 < l->len && l->p[end] == '.' && digit_of(l->p[end + 1], 10)) {
        end = digits_end(l, end + 1, 10);
        is_float = true;
    }
    if (end < l->len && (l->p[end] | 32) == 'e') {
        uint32_t digits = end + 1;
        if (digits < l->len && (l->p[digits] == '+' || l->p[digits] == '-'))
            digits++;
        uint32_t exp_end = digits_end(l, digits, 10);
        if (exp_end > digits) {
            end = exp_end;
            is_float = true;
        }
    }
    return is_float ? end : 0;
}

/* Copies a number without its underscores; NUL-terminated. */
static struct str plain_digits(struct lexer *l, uint32_t start, uint32_t end)
{
    char *text = tm_alloc(l->c, end - start + 1);
    size_t n = 0;
    for (uint32_t i = start; i < end; i++)
        if (l->p[i] != '_')
            text[n++] = l->p[i];
    text[n] = 0;
    return (struct str){text, n};
}

static void lex_number(struct lexer *l)
{
    uint32_t start = l->at, end = float_end(l);
    if (end) {
        struct tm_token *t = add_token(l, TT_FLOAT, start, end);
        t->f = strtod(plain_digits(l, start, end).ptr, NULL);
        l->at = end;
        return;
    }
    int base = 10;
    char second = start + 1 < l->len ? l->p[start + 1] | 32 : 0;
    if (l->p[start] == '0' && (second == 'b' || second == 'o' || second == 'x'))
        base = second == 'b' ? 2 : second == 'o' ? 8 : 16;
    uint32_t digits = base == 10 ? start : start + 2;
    if (base != 10 && digits < l->len && l->p[digits] == '_')
        digits++;
    end = digits_end(l, digits, base);
    if (base != 10 && end == digits) {
        base = 10;
        digits = start;
        end = start + 1;
    }
    if (base == 10 && l->p[start] == '0')
        for (end = start + 1; end < l->len && l->p[end] == '0';)
            end++;
    struct tm_token *t = add_token(l, TT_INT, start, end);
    struct str text = plain_digits(l, digits, end);
    struct tm_str s = {.p = text.ptr, .len = (uint32_t)text.len};
    if (!tm_parse_int(&s, base, &t->i)) {
        if (base != 10)
            lex_fail(l, "integer too large");
        t->type = TT_BIG;
        t->text = text;
    }
    l->at = end;
}

static void lex_name(struct lexer *l)
{
    uint32_t end = l->at;
    while (end < l->len) {
        int n;
        if (!tm_is_ident(decode_at(l, end, &n), end == l->at))
            break;
        end += (uint32_t)n;
    }
    if (end == l->at)
        lex_fail(l, "unexpected character in a tag");
    add_token(l, TT_NAME, l->at, end);
    l->at = end;
}

__attribute__((noreturn)) static void lex_too_deep(struct lexer *l)
{
    l->c->line = line_of(l, l->at);
    tm_fail(l->c, ERR_TOO_LARGE, "brackets nested deeper than %d", TM_MAX_PARSE_DEPTH);
}

static void balance(struct lexer *l, char ch)
{
    const char *open = strchr("({[", ch), *close = strchr(")}]", ch);
    if (open) {
        if (l->n_closers == sizeof(l->closers))
            lex_too_deep(l);
        l->closers[l->n_closers++] = ")}]"[open - "({["];
    } else if (close) {
        if (l->n_closers == 0 || l->closers[l->n_closers - 1] != ch)
            lex_fail(l, "closing bracket that doesn't match");
        l->n_closers--;
    }
}

static bool lex_operator(struct lexer *l)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof(two) / sizeof(two[0]); i++) {
        if (looking_at(l, l->at, two[i])) {
            add_token(l, TT_OP, l->at, l->at + 2);
            l->at += 2;
            return true;
        }
    }
    char ch = l->p[l->at];
    if (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch))
        return false;
    balance(l, ch);
    add_token(l, TT_OP, l->at, l->at + 1);
    l->at++;
    return true;
}

/* The end of the tag, when it is here. */
static bool lex_tag_end(struct lexer *l, bool variable)
{
    const char *mark = variable ? "}}" : "%}";
    bool sign = l->p[l->at] == '-' || (!variable && l->p[l->at] == '+');
    if (l->n_closers || !looking_at(l, l->at + sign, mark))
        return false;
    bool strip = l->p[l->at] == '-';
    add_token(l, variable ? TT_VAR_END : TT_BLOCK_END, l->at, l->at + 2 + sign);
    finish_tag(l, l->at + 2 + sign, strip, !variable && !sign);
    return true;
}

static void lex_tag(struct lexer *l, bool variable)
{
    l->n_closers = 0;
    for (;;) {
        if (l->at >= l->len)
            lex_fail(l, variable ? "print tag without end" : "statement tag without end");
        if (lex_tag_end(l, variable))
            return;
        int n;
        char ch = l->p[l->at];
        if (tm_is_space(decode_at(l, l->at, &n)))
            l->at = skip_space(l, l->at);
        else if (ch >= '0' && ch <= '9')
            lex_number(l);
        else if (ch == '\'' || ch == '"')
            lex_string(l);
        else if (!lex_operator(l))
            lex_name(l);
    }
}

/* Reads text up to the next tag and the tag. */
static void lex_one(struct lexer *l)
{
    uint32_t start = l->at, at = start;
    while (at + 1 < l->len && !(l->p[at] == '{' && (l->p[at + 1] == '%' || l->p[at + 1] == '{' ||
                                                    l->p[at + 1] == '#')))
        at++;
    if (at + 1 >= l->len) {
        add_token(l, TT_DATA, start, l->len);
        l->at = l->len;
        return;
    }
    char kind = l->p[at + 1], sign = sign_at(l, at + 2);
    uint32_t raw = kind == '%' ? raw_begin(l, at) : 0;
    add_text(l, start, at, sign, kind == '{');
    l->at = at;
    if (raw) {
        lex_raw(l, raw);
        return;
    }
    uint32_t inner = at + 2 + (sign != 0);
    if (kind == '#') {
        lex_comment(l, inner);
        return;
    }
    add_token(l, kind == '{' ? TT_VAR_BEGIN : TT_BLOCK_BEGIN, at, inner);
    l->at = inner;
    lex_tag(l, kind == '{');
}

/* Copy with \r\n and \r as \n and without the last newline. */
static struct str normalise(struct tmpl *c, struct str source)
{
    char *p = tm_alloc(c, source.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        char ch = source.ptr[i];
        if (ch == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n')
            continue;
        p[n++] = ch == '\r' ? '\n' : ch;
    }
    if (n && p[n - 1] == '\n')
        n--;
    p[n] = 0;
    return (struct str){p, n};
}

void tm_lex(struct tmpl *c, struct str source, struct tm_tokens *out)
{
    struct str text = normalise(c, source);
    struct lexer l = {.c = c,
                      .p = text.ptr,
                      .len = (uint32_t)text.len,
                      .line_start = true,
                      .out = out,
                      .line = 1};
    while (l.at < l.len)
        lex_one(&l);
    add_token(&l, TT_EOF, l.len, l.len);
    c->line = l.line;
}
