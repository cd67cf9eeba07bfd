/* A recursive-descent parser of GBNF; see gbnf.h. */
#include "engine/grammar/gbnf.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { MAX_CLASS = 512, MAX_NESTING = 200, NAME_SLOTS = 2 * EXPR_MAX_RULES };

struct named {
    struct str name;
    uint32_t rule;
    bool defined;
    size_t used_at; /* first use, for an error */
};

struct parser {
    struct exprs *x;
    struct str s;
    size_t at;
    struct named *rule; /* owns */
    uint16_t *slot; /* owns [NAME_SLOTS]: place in rule + 1 by the hash of its name, 0: empty */
    uint32_t n_rules, cap_rules, depth;
    bool failed;
    struct err *e;
};

static expr_id fail_at(struct parser *p, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    if (p->failed)
        return expr_never(p->x);
    for (size_t i = 0; i < at && i < p->s.len; i++) {
        column = p->s.ptr[i] == '\n' ? 1 : column + 1;
        line += p->s.ptr[i] == '\n';
    }
    p->failed = true;
    err_set(p->e, ERR_INVALID, "the grammar, line %zu, column %zu: %s", line, column, what);
    p->at = p->s.len;
    return exprs_fail(p->x, p->e);
}

static expr_id fail(struct parser *p, const char *what)
{
    return fail_at(p, p->at, what);
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

static char peek(const struct parser *p)
{
    return p->at < p->s.len ? p->s.ptr[p->at] : 0;
}

static bool take(struct parser *p, const char *text)
{
    size_t n = strlen(text);
    if (p->s.len - p->at < n || memcmp(p->s.ptr + p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* Skips blanks and comments; line ends too inside groups and between rules. */
static void skip(struct parser *p, bool lines)
{
    for (;; p->at++) {
        char c = peek(p);
        if (c == '#') {
            while (p->at < p->s.len && peek(p) != '\n')
                p->at++;
            c = peek(p);
        }
        bool line = c == '\n' || c == '\r';
        if (p->at >= p->s.len || !(c == ' ' || c == '\t' || (line && lines)))
            return;
    }
}

/* ---- names ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static struct str take_name(struct parser *p)
{
    size_t first = p->at;
    while (is_name(peek(p)))
        p->at++;
    return (struct str){p->s.ptr + first, p->at - first};
}

static uint16_t *find_slot(const struct parser *p, struct str name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        hash = (hash ^ (uint8_t)name.ptr[i]) * 16777619u;
    uint32_t at = hash % NAME_SLOTS;
    while (p->slot[at] && !str_eq(p->rule[p->slot[at] - 1].name, name))
        at = (at + 1) % NAME_SLOTS;
    return &p->slot[at];
}

/* Its place in p->rule; 0 when there are too many, which fails. */
static uint32_t find_rule(struct parser *p, struct str name, size_t at)
{
    uint16_t *slot = find_slot(p, name);
    if (*slot)
        return *slot - 1u;
    uint32_t rule = exprs_add_rule(p->x);
    if (stopped(p))
        return 0;
    if (p->n_rules == p->cap_rules) {
        p->cap_rules = p->cap_rules ? 2 * p->cap_rules : 32;
        p->rule = mem_realloc(p->rule, mem_mul(p->cap_rules, sizeof(*p->rule)));
    }
    p->rule[p->n_rules] = (struct named){.name = name, .rule = rule, .used_at = at};
    *slot = (uint16_t)(p->n_rules + 1);
    return p->n_rules++;
}

/* ---- characters ---- */

static uint32_t take_hex(struct parser *p, int n_digits)
{
    uint32_t c = 0;
    for (int i = 0; i < n_digits; i++, p->at++) {
        char d = peek(p);
        int value = d >= '0' && d <= '9'   ? d - '0'
                    : d >= 'a' && d <= 'f' ? d - 'a' + 10
                    : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                           : -1;
        if (value < 0) {
            fail(p, "a hexadecimal digit is missing");
            return 0;
        }
        c = c << 4 | (uint32_t)value;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        fail(p, "no code point");
    return c;
}

static uint32_t take_char(struct parser *p)
{
    static const char from[] = "nrt\\\"[]", to[] = "\n\r\t\\\"[]";
    uint32_t c = 0;
    if (take(p, "\\")) {
        char e = peek(p);
        const char *known = e ? memchr(from, e, sizeof(from) - 1) : NULL;
        p->at++;
        if (known)
            return (uint8_t)to[known - from];
        if (e == 'x' || e == 'u' || e == 'U')
            return take_hex(p, e == 'x' ? 2 : e == 'u' ? 4 : 8);
        p->at--;
        fail(p, "an escape that is not known");
        return 0;
    }
    int n = utf8_decode((struct str){p->s.ptr + p->at, p->s.len - p->at}, &c);
    if (n <= 0)
        fail(p, "invalid UTF-8");
    p->at += n > 0 ? (size_t)n : 0;
    return c;
}

static expr_id one(struct parser *p, uint32_t c)
{
    struct expr_range r = {c, c};
    return expr_class(p->x, &r, 1, false);
}

static expr_id take_literal(struct parser *p)
{
    struct expr_list list = {NULL, 0, 0};
    while (!p->failed && !take(p, "\"")) {
        if (p->at >= p->s.len || peek(p) == '\n')
            fail(p, "a literal without its end");
        else
            expr_list_add(&list, one(p, take_char(p)));
    }
    expr_id id = expr_seq(p->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id take_class(struct parser *p)
{
    struct expr_range *r = mem_alloc(MAX_CLASS * sizeof(*r));
    bool negated = take(p, "^");
    uint32_t n = 0;
    while (!p->failed && !take(p, "]")) {
        if (p->at >= p->s.len || n == MAX_CLASS) {
            fail(p, n == MAX_CLASS ? "a class of over 512 ranges" : "a class without its ]");
            break;
        }
        r[n].first = r[n].last = take_char(p);
        if (peek(p) == '-' && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] != ']') {
            p->at++;
            r[n].last = take_char(p);
            if (!p->failed && r[n].last < r[n].first)
                fail(p, "a range that ends before it begins");
        }
        n++;
    }
    expr_id id = expr_class(p->x, r, n, negated);
    mem_free(r);
    return id;
}

/* ---- structure ---- */

static expr_id take_alternatives(struct parser *p, bool in_group);

static expr_id take_group(struct parser *p)
{
    if (++p->depth > MAX_NESTING)
        return fail(p, "over 200 groups inside one another");
    skip(p, true);
    expr_id id = take_alternatives(p, true);
    p->depth--;
    if (!p->failed && !take(p, ")"))
        return fail(p, "a group without its )");
    return id;
}

static bool take_number(struct parser *p, uint32_t *out)
{
    size_t first = p->at;
    uint64_t x = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        x = x > EXPR_MAX_REPEAT ? x : x * 10 + (uint64_t)(peek(p) - '0');
    *out = (uint32_t)x;
    return p->at > first;
}

static expr_id take_repetition(struct parser *p, expr_id id)
{
    uint32_t min, max;
    if (take(p, "*"))
        return expr_repeat(p->x, id, 0, EXPR_MANY);
    if (take(p, "+"))
        return expr_repeat(p->x, id, 1, EXPR_MANY);
    if (take(p, "?"))
        return expr_repeat(p->x, id, 0, 1);
    if (!take(p, "{"))
        return id;
    bool counted = take_number(p, &min);
    max = min;
    if (take(p, ",") && !take_number(p, &max))
        max = EXPR_MANY;
    if (!take(p, "}") || (!counted && max == EXPR_MANY) || max < min)
        return fail(p, "no repetition of the form {m}, {m,} or {m,n}");
    return expr_repeat(p->x, id, counted ? min : 0, max);
}

static expr_id take_element(struct parser *p)
{
    size_t at = p->at;
    if (take(p, "\""))
        return take_literal(p);
    if (take(p, "["))
        return take_class(p);
    if (take(p, "("))
        return take_group(p);
    if (take(p, ".")) {
        static const struct expr_range none;
        return expr_class(p->x, &none, 0, true);
    }
    struct str name = take_name(p);
    if (name.len == 0)
        return fail(p, "neither a literal nor a class, group or rule");
    uint32_t i = find_rule(p, name, at);
    return stopped(p) ? expr_never(p->x) : expr_rule(p->x, p->rule[i].rule);
}

/* A line end ends a rule's body, unless the next line continues it with |. */
static bool ends_sequence(struct parser *p, bool in_group)
{
    size_t before = p->at;
    skip(p, in_group);
    char c = peek(p);
    if (p->at >= p->s.len || c == '|' || c == ')')
        return true;
    if (c != '\n' && c != '\r')
        return false;
    p->at = before;
    return true;
}

static expr_id take_sequence(struct parser *p, bool in_group)
{
    struct expr_list list = {NULL, 0, 0};
    while (!stopped(p) && !ends_sequence(p, in_group)) {
        expr_id id = take_element(p);
        if (!p->failed)
            id = take_repetition(p, id);
        expr_list_add(&list, id);
    }
    expr_id id = expr_seq(p->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static bool take_bar(struct parser *p)
{
    size_t before = p->at;
    skip(p, true);
    if (take(p, "|")) {
        skip(p, true);
        return true;
    }
    p->at = before;
    return false;
}

static expr_id take_alternatives(struct parser *p, bool in_group)
{
    struct expr_list list = {NULL, 0, 0};
    do
        expr_list_add(&list, take_sequence(p, in_group));
    while (!p->failed && take_bar(p));
    if (in_group)
        skip(p, true);
    expr_id id = expr_alt(p->x, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static void take_rule(struct parser *p)
{
    size_t at = p->at;
    struct str name = take_name(p);
    if (name.len == 0) {
        fail(p, "a rule's name is missing");
        return;
    }
    uint32_t i = find_rule(p, name, at);
    if (stopped(p))
        return;
    skip(p, false);
    if (!take(p, "::=")) {
        fail(p, "::= is missing");
        return;
    }
    if (p->rule[i].defined) {
        fail_at(p, at, "the rule is defined twice");
        return;
    }
    p->rule[i].defined = true;
    skip(p, true);
    expr_id body = take_alternatives(p, false);
    if (!p->failed)
        exprs_set_rule(p->x, p->rule[i].rule, body);
    skip(p, false);
    if (!p->failed && p->at < p->s.len && peek(p) != '\n' && peek(p) != '\r')
        fail(p, "a ) without its (");
}

enum status gbnf_expr(struct exprs *x, struct str text, struct err *e)
{
    struct parser p = {.x = x, .s = text, .e = e};
    p.slot = mem_zalloc(NAME_SLOTS * sizeof(*p.slot));
    for (skip(&p, true); p.at < p.s.len && !p.failed; skip(&p, true))
        take_rule(&p);
    uint32_t root = 0;
    for (uint32_t i = 0; i < p.n_rules && !p.failed; i++) {
        if (!p.rule[i].defined)
            fail_at(&p, p.rule[i].used_at, "the rule is not defined");
        if (str_eq_c(p.rule[i].name, "root"))
            root = p.rule[i].rule;
    }
    if (!root && !p.failed)
        fail_at(&p, 0, "there is no rule \"root\"");
    if (!p.failed)
        exprs_set_rule(x, 0, expr_rule(x, root));
    mem_free(p.rule);
    mem_free(p.slot);
    return stopped(&p) ? e->status : OK;
}
