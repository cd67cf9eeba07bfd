/* Splitting patterns -> classes -> symbols (see pretok_class.h). Runs once a model, at load. */
#include "engine/text/pretok_class.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/text/unicode.h"

enum { N_POINTS = 0x110000 };

struct class_name {
    const char *name;
    uint8_t mask, value; /* of the category byte */
};

static const struct class_name class_names[] = {
    {"L", 0xf0, 0x10},    {"M", 0xf0, 0x20},    {"N", 0xf0, 0x30},     {"P", 0xf0, 0x40},
    {"S", 0xf0, 0x50},    {"Lu", 0xff, UNI_LU}, {"Ll", 0xff, UNI_LL},  {"Lt", 0xff, UNI_LT},
    {"Lm", 0xff, UNI_LM}, {"Lo", 0xff, UNI_LO}, {"Digit", 0xf0, 0x30},
};

/* The classes of all patterns in order of appearance, and for each code point the set it is in: bit i,
 * class i. */
struct classes {
    uint64_t *of; /* owns; N_POINTS */
    unsigned n;
    const char *start[CLASS_MAX_ATOMS], *behind[CLASS_MAX_ATOMS]; /* where class i stands */
};

static void mark(struct classes *c, uint32_t first, uint32_t last)
{
    for (uint32_t p = first; p <= last; p++)
        c->of[p] |= 1ull << c->n;
}

static void mark_ranges(struct classes *c, const struct uni_range *r, unsigned n, uint8_t mask,
                        uint8_t value)
{
    for (unsigned i = 0; i < n; i++)
        if ((r[i].category & mask) == value)
            mark(c, r[i].first, r[i].last);
}

/* p: behind "\p". Returns the text behind the closing brace. */
static const char *mark_property(struct classes *c, const char *p)
{
    size_t len = strcspn(++p, "}");
    for (unsigned i = 0; i < sizeof class_names / sizeof class_names[0]; i++) {
        const struct class_name *name = &class_names[i];
        if (!str_eq_c((struct str){p, len}, name->name))
            continue;
        mark_ranges(c, uni_categories, uni_categories_n, name->mask, name->value);
        if (str_eq_c((struct str){p, len}, "Digit"))
            mark_ranges(c, uni_late_digits, uni_late_digits_n, 0, 0);
        return p + len + 1;
    }
    CHECKF(false, "pretok.def: unknown property %.20s", p);
}

/* One character, plain or escaped. */
static const char *read_char(const char *p, uint32_t *c)
{
    if (*p != '\\') {
        *c = (uint8_t)*p;
        return p + 1;
    }
    p++;
    if (*p == 'x') {
        char *end;
        *c = (uint32_t)strtoul(p + 2, &end, 16);
        return end + 1;
    }
    *c = *p == 'r' ? '\r' : *p == 'n' ? '\n' : (uint8_t)*p;
    return p + 1;
}

/* p: behind "[" and "^". Returns the text behind "]". */
static const char *mark_items(struct classes *c, const char *p)
{
    while (*p != ']') {
        CHECKF(*p, "pretok.def: class without end");
        if (p[0] == '\\' && p[1] == 'p') {
            p = mark_property(c, p + 2);
        } else if (p[0] == '\\' && p[1] == 's') {
            mark_ranges(c, uni_spaces, uni_spaces_n, 0, 0);
            p += 2;
        } else {
            uint32_t first, last;
            p = read_char(p, &first);
            last = first;
            if (p[0] == '-' && p[1] != ']')
                p = read_char(p + 1, &last);
            mark(c, first, last);
        }
    }
    return p + 1;
}

static void invert(struct classes *c)
{
    for (uint32_t p = 0; p < N_POINTS; p++)
        c->of[p] ^= 1ull << c->n;
}

/* When a class starts at p, makes it class c->n and returns the text behind it; else NULL. */
static const char *mark_class(struct classes *c, const char *p)
{
    bool negated = false;
    if (p[0] == '[') {
        negated = p[1] == '^';
        p = mark_items(c, p + 1 + negated);
    } else if (p[0] == '\\' && p[1] == 'p') {
        p = mark_property(c, p + 2);
    } else if (p[0] == '\\' && (p[1] == 's' || p[1] == 'S')) {
        negated = p[1] == 'S';
        mark_ranges(c, uni_spaces, uni_spaces_n, 0, 0);
        p += 2;
    } else {
        return NULL;
    }
    if (negated)
        invert(c);
    return p;
}

static const char *next_part(const char *p)
{
    return p + (*p == '\\' ? 2 : 1);
}

static void mark_all(struct classes *c, const char *const *patterns)
{
    for (; *patterns; patterns++)
        for (const char *p = *patterns; *p;) {
            CHECKF(c->n < CLASS_MAX_ATOMS, "pretok.def: over %d classes in a rule",
                   CLASS_MAX_ATOMS - 1);
            const char *behind = mark_class(c, p);
            if (behind) {
                c->start[c->n] = p;
                c->behind[c->n++] = behind;
            }
            p = behind ? behind : next_part(p);
        }
}

/* ---- symbols ---- */

struct symbols {
    uint64_t set[CLASS_MAX_SYMBOLS]; /* classes of symbol 0x80 + i */
    unsigned n;
};

static uint8_t symbol_of(struct symbols *s, uint64_t set)
{
    unsigned i = 0;
    while (i < s->n && s->set[i] != set)
        i++;
    CHECKF(i < CLASS_MAX_SYMBOLS, "pretok.def: over %d kinds of characters", CLASS_MAX_SYMBOLS);
    if (i == s->n)
        s->set[s->n++] = set;
    return (uint8_t)(0x80 + i);
}

static void fill_pages(struct class_table *t, struct symbols *s, const struct classes *c)
{
    uint32_t n_pages = 0, cap = 0;
    uint32_t *number = mem_alloc(CLASS_PAGES * sizeof *number);
    for (uint32_t p = 0; p < CLASS_PAGES; p++) {
        if (n_pages == cap) {
            cap = cap ? cap * 2 : 64;
            t->pool = mem_realloc(t->pool, mem_mul(cap, CLASS_PAGE));
        }
        uint8_t *page = t->pool + (size_t)n_pages * CLASS_PAGE;
        for (uint32_t i = 0; i < CLASS_PAGE; i++) {
            uint32_t point = p * CLASS_PAGE + i;
            page[i] = point < 0x80 ? (uint8_t)point : symbol_of(s, c->of[point]);
        }
        uint32_t same = 0;
        while (memcmp(t->pool + (size_t)same * CLASS_PAGE, page, CLASS_PAGE) != 0)
            same++;
        number[p] = same;
        n_pages += same == n_pages;
    }
    for (uint32_t p = 0; p < CLASS_PAGES; p++)
        t->page[p] = t->pool + (size_t)number[p] * CLASS_PAGE;
    mem_free(number);
}

/* Class k as a PCRE2 class of bytes. */
static void write_class(struct buf *out, const struct classes *c, const struct symbols *s,
                        unsigned k)
{
    bool any = false;
    buf_add_char(out, '[');
    for (uint32_t b = 0; b < 0x80 + s->n; b++) {
        uint64_t set = b < 0x80 ? c->of[b] : s->set[b - 0x80];
        if (set >> k & 1) {
            buf_printf(out, "\\x%02x", b);
            any = true;
        }
    }
    buf_add_c(out, any ? "]" : "^\\x00-\\xff]");
}

static void write_pattern(struct buf *out, const char *pattern, const struct classes *c,
                          const struct symbols *s, unsigned *k)
{
    for (const char *p = pattern; *p;) {
        if (*k < c->n && p == c->start[*k]) {
            write_class(out, c, s, *k);
            p = c->behind[(*k)++];
        } else {
            buf_add(out, p, (size_t)(next_part(p) - p));
            p = next_part(p);
        }
    }
}

void class_table_init(struct class_table *t, const char *const *patterns, struct buf *text)
{
    struct classes c = {.of = mem_zalloc(mem_mul(N_POINTS, sizeof *c.of))};
    struct symbols s = {0};
    unsigned k = 0;
    *t = (struct class_table){0};
    mark_all(&c, patterns);
    fill_pages(t, &s, &c);
    for (unsigned i = 0; patterns[i]; i++)
        write_pattern(&text[i], patterns[i], &c, &s, &k);
    mem_free(c.of);
}

void class_table_release(struct class_table *t)
{
    mem_free(t->pool);
    t->pool = NULL;
}
