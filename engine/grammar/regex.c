/* A recursive-descent parser of regular expressions; see regex.h. */
#include "engine/grammar/regex.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { MAX_RANGES = 512, LAST_CODE_POINT = 0x10ffff, NO_CODE_POINT = 0xffffffff };

struct parser {
    struct exprs *x;
    struct str s;
    size_t at;
    enum regex_form form;
    uint32_t depth;
    bool failed;
    struct err *e;
};

struct ranges {
    struct expr_range r[MAX_RANGES];
    uint32_t n;
};

static expr_id fail(struct parser *p, enum status status, const char *what)
{
    if (!p->failed)
        err_set(p->e, status, "%s at byte %zu of the regular expression", what, p->at);
    if (!p->failed)
        exprs_fail(p->x, p->e);
    p->failed = true;
    p->at = p->s.len;
    return expr_never(p->x);
}

/* An error of the expressions, such as too many, ends parsing too. */
static bool stopped(struct parser *p)
{
    if (!p->failed && p->x->error.status) {
        *p->e = p->x->error;
        p->failed = true;
        p->at = p->s.len;
    }
    return p->failed;
}

static bool at_end(const struct parser *p)
{
    return p->at >= p->s.len;
}

static bool next_is(const struct parser *p, const char *text)
{
    size_t n = strlen(text);
    return p->s.len - p->at >= n && memcmp(p->s.ptr + p->at, text, n) == 0;
}

static bool take(struct parser *p, const char *text)
{
    if (at_end(p) || !next_is(p, text))
        return false;
    p->at += strlen(text);
    return true;
}

/* ---- code points and classes ---- */

static void add_range(struct parser *p, struct ranges *r, uint32_t first, uint32_t last)
{
    if (r->n == MAX_RANGES)
        fail(p, ERR_TOO_LARGE, "a class of over 512 ranges");
    else
        r->r[r->n++] = (struct expr_range){first, last};
}

static void add_set(struct parser *p, struct ranges *r, char name)
{
    static const struct expr_range digit[] = {{'0', '9'}};
    static const struct expr_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct expr_range space[] = {
        {9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    char lower = (char)(name | 0x20);
    const struct expr_range *set = lower == 'd' ? digit : lower == 'w' ? word : space;
    size_t n = lower == 'd' ? 1 : lower == 'w' ? 4 : sizeof(space) / sizeof(space[0]);
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (name == lower)
            add_range(p, r, set[i].first, set[i].last);
        else if (set[i].first > next)
            add_range(p, r, next, set[i].first - 1);
        next = set[i].last + 1;
    }
    if (name != lower)
        add_range(p, r, next, LAST_CODE_POINT);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static uint32_t take_hex(struct parser *p, uint32_t n_digits)
{
    uint32_t c = 0;
    for (uint32_t i = 0; i < n_digits; i++, p->at++) {
        int value = at_end(p) ? -1 : hex_value(p->s.ptr[p->at]);
        if (value < 0) {
            fail(p, ERR_INVALID, "a hexadecimal digit is missing");
            return NO_CODE_POINT;
        }
        c = c << 4 | (uint32_t)value;
    }
    return c;
}

static uint32_t take_braced_hex(struct parser *p)
{
    uint32_t c = 0, n = 0;
    for (; !at_end(p) && hex_value(p->s.ptr[p->at]) >= 0 && n < 6; n++, p->at++)
        c = c << 4 | (uint32_t)hex_value(p->s.ptr[p->at]);
    if (n == 0 || c > LAST_CODE_POINT || !take(p, "}")) {
        fail(p, ERR_INVALID, "no code point in \\u{...}");
        return NO_CODE_POINT;
    }
    return c;
}

/* \uHHHH, followed by a second one after a high surrogate. */
static uint32_t take_unicode(struct parser *p)
{
    if (take(p, "{"))
        return take_braced_hex(p);
    uint32_t c = take_hex(p, 4);
    if (c >= 0xd800 && c < 0xdc00 && take(p, "\\u")) {
        uint32_t low = take_hex(p, 4);
        if (low >= 0xdc00 && low < 0xe000)
            return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        c = NO_CODE_POINT;
    }
    if (c >= 0xd800 && c < 0xe000)
        c = NO_CODE_POINT;
    if (c == NO_CODE_POINT)
        fail(p, ERR_INVALID, "half a surrogate pair");
    return c;
}

/* After a backslash: returns one code point, or NO_CODE_POINT with the set's name in *set. */
static uint32_t take_escape(struct parser *p, char *set)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    *set = 0;
    if (at_end(p)) {
        fail(p, ERR_INVALID, "a backslash at the end");
        return NO_CODE_POINT;
    }
    char c = p->s.ptr[p->at++];
    const char *known = memchr(from, c, sizeof(from) - 1);
    if (known)
        return (uint8_t)to[known - from];
    if (c == 'x')
        return take_hex(p, 2);
    if (c == 'u')
        return take_unicode(p);
    if (memchr("dDwWsS", c, 6)) {
        *set = c;
        return NO_CODE_POINT;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter || (uint8_t)c >= 0x80) {
        p->at--;
        fail(p, ERR_UNSUPPORTED,
             c >= '1' && c <= '9' ? "a back reference" : "an escape that is not supported");
        return NO_CODE_POINT;
    }
    return (uint8_t)c;
}

static uint32_t take_code_point(struct parser *p)
{
    uint32_t c;
    struct str rest = {p->s.ptr + p->at, p->s.len - p->at};
    int n = utf8_decode(rest, &c);
    if (n <= 0) {
        fail(p, ERR_INVALID, "invalid UTF-8");
        return NO_CODE_POINT;
    }
    p->at += (size_t)n;
    return c;
}

static uint32_t take_class_item(struct parser *p, char *set)
{
    *set = 0;
    if (take(p, "\\")) {
        if (take(p, "b"))
            return '\b';
        return take_escape(p, set);
    }
    return take_code_point(p);
}

static expr_id take_class(struct parser *p)
{
    struct ranges *r = mem_zalloc(sizeof(*r));
    bool negated = take(p, "^");
    char set = 0;
    while (!p->failed && !next_is(p, "]")) {
        if (at_end(p)) {
            fail(p, ERR_INVALID, "a class without its ]");
            break;
        }
        uint32_t first = take_class_item(p, &set), last = first;
        if (set) {
            add_set(p, r, set);
            continue;
        }
        if (next_is(p, "-") && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] != ']') {
            p->at++;
            last = take_class_item(p, &set);
            if (!p->failed && (set || last < first))
                fail(p, ERR_INVALID, "a range that ends before it begins");
        }
        if (!p->failed)
            add_range(p, r, first, last);
    }
    take(p, "]");
    expr_id id = p->failed ? expr_never(p->x) : regex_class(p->x, r->r, r->n, negated, p->form);
    mem_free(r);
    return id;
}

static expr_id one(struct parser *p, uint32_t c)
{
    struct expr_range r = {c, c};
    return regex_class(p->x, &r, 1, false, p->form);
}

/* ---- the form inside a JSON string ---- */

static bool range_holds(const struct expr_range *r, uint32_t n, uint32_t c)
{
    for (uint32_t i = 0; i < n; i++)
        if (c >= r[i].first && c <= r[i].last)
            return true;
    return false;
}

static expr_id escaped(struct exprs *x, uint32_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    static const char digits[] = "0123456789abcdef";
    const char *known = c ? memchr(from, (int)c, sizeof(from) - 1) : NULL;
    char text[8] = {'\\', 'u', '0', '0', digits[c >> 4 & 15], digits[c & 15]};
    if (known) {
        text[1] = to[known - from];
        text[2] = 0;
    }
    return expr_text(x, text);
}

/* Code points that must be escaped are; `raw` gets the others, for negated classes those of the complement. */
static expr_id json_class(struct exprs *x, const struct expr_range *range, uint32_t n, bool negated)
{
    struct expr_list list = {NULL, 0, 0};
    struct expr_range *raw = mem_alloc(mem_mul(3 * (size_t)n + 4, sizeof(*raw)));
    uint32_t n_raw = 0;
    for (uint32_t c = 0; c < 0x20; c++)
        if (range_holds(range, n, c) != negated)
            expr_list_add(&list, escaped(x, c));
    for (const char *c = "\"\\"; *c; c++)
        if (range_holds(range, n, (uint8_t)*c) != negated)
            expr_list_add(&list, escaped(x, (uint8_t)*c));
    if (negated) {
        if (n > 0) /* range may be NULL, which memcpy must not get */
            memcpy(raw, range, n * sizeof(*raw));
        raw[n] = (struct expr_range){0, 0x1f};
        raw[n + 1] = (struct expr_range){'"', '"'};
        raw[n + 2] = (struct expr_range){'\\', '\\'};
        n_raw = n + 3;
    } else {
        static const struct expr_range free_of[] = {
            {0x20, '!'}, {'#', '['}, {']', LAST_CODE_POINT}};
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < 3; k++) {
                uint32_t first =
                    range[i].first > free_of[k].first ? range[i].first : free_of[k].first;
                uint32_t last = range[i].last < free_of[k].last ? range[i].last : free_of[k].last;
                if (first <= last)
                    raw[n_raw++] = (struct expr_range){first, last};
            }
        }
    }
    expr_list_add(&list, expr_class(x, raw, n_raw, negated));
    expr_id id = expr_alt(x, list.id, list.n);
    mem_free(raw);
    expr_list_release(&list);
    return id;
}

expr_id regex_class(struct exprs *x, const struct expr_range *range, uint32_t n, bool negated,
                    enum regex_form form)
{
    if (form == REGEX_PLAIN)
        return expr_class(x, range, n, negated);
    return json_class(x, range, n, negated);
}

/* ---- structure ---- */

static expr_id take_alternatives(struct parser *p);

static expr_id take_group(struct parser *p)
{
    if (take(p, "?")) {
        bool named = next_is(p, "<") && !next_is(p, "<=") && !next_is(p, "<!");
        if (!named && !take(p, ":"))
            return fail(p, ERR_UNSUPPORTED,
                        "look-around, or a group of a kind that is not supported,");
        while (named && !at_end(p) && p->s.ptr[p->at++] != '>')
            continue;
    }
    if (++p->depth > REGEX_MAX_GROUPS)
        return fail(p, ERR_TOO_LARGE, "over 200 groups inside one another");
    expr_id id = take_alternatives(p);
    p->depth--;
    if (!p->failed && !take(p, ")"))
        return fail(p, ERR_INVALID, "a group without its )");
    return id;
}

static expr_id take_dot(struct parser *p)
{
    static const struct expr_range lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    return regex_class(p->x, lines, 3, true, p->form);
}

static expr_id take_atom(struct parser *p)
{
    char set;
    if (take(p, "("))
        return take_group(p);
    if (take(p, "["))
        return take_class(p);
    if (take(p, "."))
        return take_dot(p);
    if (take(p, "\\")) {
        uint32_t c = take_escape(p, &set);
        if (!set)
            return p->failed ? expr_never(p->x) : one(p, c);
        struct ranges *r = mem_zalloc(sizeof(*r));
        add_set(p, r, set);
        expr_id id = regex_class(p->x, r->r, r->n, false, p->form);
        mem_free(r);
        return id;
    }
    if (next_is(p, "^") || next_is(p, "$"))
        return fail(p, ERR_UNSUPPORTED, "an anchor that is not at an end");
    if (next_is(p, "*") || next_is(p, "+") || next_is(p, "?"))
        return fail(p, ERR_INVALID, "a quantifier with nothing to repeat");
    uint32_t c = take_code_point(p);
    return p->failed ? expr_never(p->x) : one(p, c);
}

static bool take_number(struct parser *p, uint32_t *out)
{
    size_t first = p->at;
    uint64_t x = 0;
    for (; !at_end(p) && p->s.ptr[p->at] >= '0' && p->s.ptr[p->at] <= '9'; p->at++)
        x = x > EXPR_MAX_REPEAT ? x : x * 10 + (uint64_t)(p->s.ptr[p->at] - '0');
    *out = (uint32_t)x;
    return p->at > first;
}

/* {m}, {m,} or {m,n}; anything else in braces is text, as in ECMA-262's annex B. */
static bool take_counts(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t before = p->at;
    if (!take(p, "{"))
        return false;
    bool counted = take_number(p, min);
    *max = *min;
    if (counted && take(p, ",") && !take_number(p, max))
        *max = EXPR_MANY;
    if (counted && take(p, "}"))
        return true;
    p->at = before;
    return false;
}

static expr_id take_repeated(struct parser *p)
{
    expr_id id = take_atom(p);
    uint32_t min, max;
    for (bool any = true; any && !p->failed;) {
        if (take(p, "*")) {
            min = 0;
            max = EXPR_MANY;
        } else if (take(p, "+")) {
            min = 1;
            max = EXPR_MANY;
        } else if (take(p, "?")) {
            min = 0;
            max = 1;
        } else if (!take_counts(p, &min, &max)) {
            break;
        }
        if (max < min)
            return fail(p, ERR_INVALID, "a repetition whose bounds are exchanged");
        id = expr_repeat(p->x, id, min, max);
        any = take(p, "?"); /* lazy: the same texts match; any other second quantifier is refused */
        if (!any && (next_is(p, "*") || next_is(p, "+")))
            return fail(p, ERR_INVALID, "a quantifier behind a quantifier");
        any = false;
    }
    return id;
}

static expr_id take_sequence(struct parser *p)
{
    struct expr_list list = {NULL, 0, 0};
    while (!stopped(p) && !at_end(p) && !next_is(p, "|") && !next_is(p, ")") &&
           !(next_is(p, "$") && p->at + 1 == p->s.len))
        expr_list_add(&list, take_repeated(p));
    expr_id id = expr_seq(p->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id take_alternatives(struct parser *p)
{
    struct expr_list list = {NULL, 0, 0};
    do
        expr_list_add(&list, take_sequence(p));
    while (!p->failed && take(p, "|"));
    expr_id id = expr_alt(p->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

/* In `a|^b` and `a$|b` an anchor belongs to one alternative: anchors are accepted only in patterns without |
 * outside groups. */
static bool alternates_at_top(struct str s)
{
    uint32_t depth = 0;
    bool in_class = false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '\\')
            i++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(')
            depth++;
        else if (c == ')')
            depth -= depth > 0;
        else if (c == '|' && depth == 0)
            return true;
    }
    return false;
}

static expr_id anything(struct exprs *x, enum regex_form form)
{
    return expr_repeat(x, regex_class(x, NULL, 0, true, form), 0, EXPR_MANY);
}

expr_id regex_expr(struct exprs *x, struct str pattern, enum regex_form form, bool whole,
                   struct err *e)
{
    struct parser p = {.x = x, .s = pattern, .form = form, .e = e};
    bool from_start = take(&p, "^");
    expr_id id = take_alternatives(&p);
    bool to_end = !p.failed && next_is(&p, "$") && p.at + 1 == p.s.len;
    if (to_end)
        p.at++;
    if (!p.failed && (from_start || to_end) && alternates_at_top(pattern))
        return fail(&p, ERR_UNSUPPORTED,
                    "an anchor of one alternative (put the others in a group)");
    if (!p.failed && !at_end(&p))
        return fail(&p, ERR_INVALID, "a ) without its (");
    expr_id before = whole || from_start ? expr_empty(x) : anything(x, form);
    expr_id after = whole || to_end ? expr_empty(x) : anything(x, form);
    return expr_seq3(x, before, id, after);
}
