/* Runs the splitting patterns of pretok.def with PCRE2 (JIT when the machine grants it).
 *
 * Only explicit ranges reach PCRE2: its own \s and \p{..} follow the host library's Unicode version
 * (10.42: Unicode 14, and U+180E as white space), the vocabularies follow unicode_tables.c.
 * Called by tokenizer.c; any thread, scratch per call. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretok.h"

#include <pcre2.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "engine/text/unicode.h"

enum { MAX_LEVELS = 6 };

enum family {
#define FAMILY(id, ...) FAMILY_##id,
#define PRE(name, family, adds_bos, whole_first)
#include "engine/text/pretok.def"
#undef FAMILY
#undef PRE
    N_FAMILIES
};

static const char *const family_patterns[N_FAMILIES][MAX_LEVELS + 1] = {
#define FAMILY(id, ...) [FAMILY_##id] = {__VA_ARGS__},
#define PRE(name, family, adds_bos, whole_first)
#include "engine/text/pretok.def"
#undef FAMILY
#undef PRE
};

struct pre_name {
    const char *name;
    enum family family;
    bool adds_bos;
    bool whole_first;
};

static const struct pre_name pre_names[] = {
#define FAMILY(id, ...)
#define PRE(name, family, adds_bos, whole_first) {name, FAMILY_##family, adds_bos, whole_first},
#include "engine/text/pretok.def"
#undef FAMILY
#undef PRE
};

struct pretok {
    const struct pre_name *rule; /* static */
    pcre2_code *code[MAX_LEVELS]; /* owns */
    int n_levels;
    pcre2_general_context *general; /* owns */
    pcre2_match_context *match; /* owns */
};

/* ---- class expansion ---- */

struct class_name {
    const char *name;
    uint8_t mask, value; /* of the category byte */
};

static const struct class_name class_names[] = {
    {"L", 0xf0, 0x10},    {"M", 0xf0, 0x20},    {"N", 0xf0, 0x30},     {"P", 0xf0, 0x40},
    {"S", 0xf0, 0x50},    {"Lu", 0xff, UNI_LU}, {"Ll", 0xff, UNI_LL},  {"Lt", 0xff, UNI_LT},
    {"Lm", 0xff, UNI_LM}, {"Lo", 0xff, UNI_LO}, {"Digit", 0xf0, 0x30},
};

static void add_range(struct buf *b, uint32_t first, uint32_t last)
{
    buf_printf(b, "\\x{%x}-\\x{%x}", first, last);
}

static void add_ranges(struct buf *b, const struct uni_range *r, unsigned n, uint8_t mask,
                       uint8_t value)
{
    bool open = false;
    uint32_t first = 0, last = 0;
    for (unsigned i = 0; i < n; i++) {
        if ((r[i].category & mask) != value)
            continue;
        if (open && r[i].first == last + 1) {
            last = r[i].last;
            continue;
        }
        if (open)
            add_range(b, first, last);
        open = true;
        first = r[i].first;
        last = r[i].last;
    }
    if (open)
        add_range(b, first, last);
}

/* p: behind "\p{". Returns the pattern text behind the closing brace. */
static const char *add_property(struct buf *b, const char *p)
{
    size_t len = strcspn(p, "}");
    for (unsigned i = 0; i < sizeof class_names / sizeof class_names[0]; i++) {
        const struct class_name *c = &class_names[i];
        if (!str_eq_c((struct str){p, len}, c->name))
            continue;
        add_ranges(b, uni_categories, uni_categories_n, c->mask, c->value);
        if (str_eq_c(STR_LIT("Digit"), c->name))
            add_ranges(b, uni_late_digits, uni_late_digits_n, 0, 0);
        return p + len + 1;
    }
    CHECKF(false, "pretok.def: unknown property %.20s", p);
}

static const char *add_escape(struct buf *b, const char *p, bool in_class)
{
    if (p[1] == 'p') {
        buf_add_c(b, in_class ? "" : "[");
        p = add_property(b, p + 3);
        buf_add_c(b, in_class ? "" : "]");
        return p;
    }
    if (p[1] == 's' || p[1] == 'S') {
        buf_add_c(b, in_class ? "" : p[1] == 's' ? "[" : "[^");
        add_ranges(b, uni_spaces, uni_spaces_n, 0, 0);
        buf_add_c(b, in_class ? "" : "]");
        return p + 2;
    }
    buf_add(b, p, 2);
    return p + 2;
}

static void expand(struct buf *b, const char *pattern)
{
    bool in_class = false;
    const char *p = pattern;
    while (*p) {
        if (*p == '\\') {
            p = add_escape(b, p, in_class);
            continue;
        }
        if (*p == '[')
            in_class = true;
        else if (*p == ']')
            in_class = false;
        buf_add_char(b, *p++);
    }
}

/* ---- compiling ---- */

static void *pcre_alloc(size_t n_bytes, void *arg)
{
    (void)arg;
    return mem_try_alloc(n_bytes);
}

static void pcre_free(void *p, void *arg)
{
    (void)arg;
    mem_free(p);
}

static enum status compile_level(struct pretok *p, const char *pattern, struct err *e)
{
    struct buf text = {0};
    expand(&text, pattern);
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *c = pcre2_compile_context_create(p->general);
    pcre2_code *re =
        c ? pcre2_compile((PCRE2_SPTR)text.ptr, text.len,
                          PCRE2_UTF | PCRE2_NEVER_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, c)
          : NULL;
    pcre2_compile_context_free(c);
    buf_release(&text);
    if (!re)
        return err_set(e, ERR_INTERNAL, "pre-tokenizer '%s': pattern does not compile",
                       p->rule->name);
    p->code[p->n_levels++] = re;
    (void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* refused by some hardened systems: slower */
    return OK;
}

static const struct pre_name *find_name(struct str name)
{
    for (unsigned i = 0; i < sizeof pre_names / sizeof pre_names[0]; i++)
        if (str_eq_c(name, pre_names[i].name))
            return &pre_names[i];
    return NULL;
}

enum status pretok_new(struct str name, struct pretok **out, struct err *e)
{
    const struct pre_name *rule = find_name(name);
    if (!rule)
        return err_set(e, ERR_UNSUPPORTED, "pre-tokenizer '%.*s' is not supported",
                       (int)(name.len < 64 ? name.len : 64), name.ptr);
    struct pretok *p = mem_zalloc(sizeof *p);
    p->rule = rule;
    p->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    p->match = p->general ? pcre2_match_context_create(p->general) : NULL;
    enum status status = p->match ? OK : err_set(e, ERR_NO_MEMORY, "pre-tokenizer: out of memory");
    if (p->match) {
        pcre2_set_match_limit(p->match, UINT32_MAX);
        pcre2_set_depth_limit(p->match, UINT32_MAX);
    }
    for (int i = 0; status == OK && family_patterns[rule->family][i]; i++)
        status = compile_level(p, family_patterns[rule->family][i], e);
    if (status != OK) {
        pretok_free(p);
        return status;
    }
    *out = p;
    return OK;
}

void pretok_free(struct pretok *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_levels; i++)
        pcre2_code_free(p->code[i]);
    pcre2_match_context_free(p->match);
    pcre2_general_context_free(p->general);
    mem_free(p);
}

bool pretok_adds_bos(const struct pretok *p)
{
    return p->rule->adds_bos;
}

bool pretok_whole_first(const struct pretok *p)
{
    return p->rule->whole_first;
}

/* ---- splitting ---- */

void pretok_work_release(struct pretok_work *w)
{
    pcre2_match_data_free(w->match_data);
    w->match_data = NULL;
}

struct split {
    const struct pretok *p;
    pcre2_match_data *data;
    bool (*emit)(void *arg, struct str piece);
    void *arg;
    int failed; /* a PCRE2 error code */
};

/* PCRE2_NO_UTF_CHECK: the caller checked the whole text, and pieces end at code points. */
static int match_at(const struct split *s, int level, struct str text, size_t at)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text.ptr;
    int rc = pcre2_match(s->p->code[level], subject, text.len, at, PCRE2_NO_UTF_CHECK, s->data,
                         s->p->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(s->p->code[level], subject, text.len, at,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->p->match);
    return rc;
}

/* Recursion: at most MAX_LEVELS deep. False: stop. */
static bool split_level(struct split *s, int level, struct str text)
{
    if (text.len == 0)
        return true;
    if (level == s->p->n_levels)
        return s->emit(s->arg, text);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->data);
    size_t at = 0;
    while (at < text.len) {
        int rc = match_at(s, level, text, at);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0 || span[1] <= span[0]) {
            s->failed = rc < 0 ? rc : PCRE2_ERROR_INTERNAL;
            return false;
        }
        size_t start = span[0], end = span[1];
        if (!split_level(s, level + 1, (struct str){text.ptr + at, start - at}) ||
            !split_level(s, level + 1, (struct str){text.ptr + start, end - start}))
            return false;
        at = end;
    }
    return split_level(s, level + 1, (struct str){text.ptr + at, text.len - at});
}

enum status pretok_split(const struct pretok *p, struct pretok_work *w, struct str text,
                         bool (*emit)(void *arg, struct str piece), void *arg, struct err *e)
{
    if (!w->match_data)
        w->match_data = pcre2_match_data_create(1, p->general);
    if (!w->match_data)
        return err_set(e, ERR_NO_MEMORY, "pre-tokenizer: out of memory");
    struct split s = {.p = p, .data = w->match_data, .emit = emit, .arg = arg};
    split_level(&s, 0, text);
    if (s.failed)
        return err_set(e, ERR_INTERNAL,
                       "pre-tokenizer '%s' failed on a text of %zu bytes (code %d)", p->rule->name,
                       text.len, s.failed);
    return OK;
}
