/* Runs the splitting patterns of pretok.def with PCRE2 (JIT when the machine grants it).
 *
 * PCRE2 sees one byte a character (pretok_class.h), never the text: its own \s and \p{..} follow the
 * host library's Unicode version (10.42: Unicode 14, and U+180E as white space), the vocabularies
 * follow unicode_tables.c. ASCII text is its own symbols and is not copied.
 * Called by tokenizer.c; any thread, scratch per call. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretok.h"

#include <pcre2.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/gguf.h"
#include "engine/text/pretok_class.h"

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
    uint32_t match_options;
    struct class_table classes;
    pcre2_general_context *general; /* owns */
    pcre2_match_context *match; /* owns */
};

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

static enum status compile_level(struct pretok *p, struct str pattern, struct err *e)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *c = pcre2_compile_context_create(p->general);
    pcre2_code *re = NULL;
    if (c)
        re = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len, 0, &code, &at, c);
    pcre2_compile_context_free(c);
    if (!re)
        return err_set(e, ERR_INTERNAL, "pre-tokenizer '%s': pattern does not compile",
                       p->rule->name);
    p->code[p->n_levels++] = re;
    (void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* refused by some hardened systems: slower */
    return OK;
}

static enum status compile_all(struct pretok *p, struct err *e)
{
    const char *const *patterns = family_patterns[p->rule->family];
    struct buf text[MAX_LEVELS] = {0};
    class_table_init(&p->classes, patterns, text);
    enum status status = OK;
    for (int i = 0; i < MAX_LEVELS; i++) {
        if (status == OK && patterns[i])
            status = compile_level(p, buf_str(&text[i]), e);
        buf_release(&text[i]);
    }
    return status;
}

void pretok_test_without_jit(struct pretok *p)
{
    p->match_options |= PCRE2_NO_JIT;
}

static const struct pre_name *find_name(struct str name)
{
    for (unsigned i = 0; i < sizeof pre_names / sizeof pre_names[0]; i++)
        if (str_eq_c(name, pre_names[i].name))
            return &pre_names[i];
    return NULL;
}

enum status pretok_refuse(struct err *e, const char *problem)
{
    struct buf names = {0};
    for (unsigned i = 0; i < sizeof pre_names / sizeof pre_names[0]; i++)
        if (i == 0 || pre_names[i].family != pre_names[i - 1].family)
            buf_printf(&names, "%s%s", i ? ", " : "", pre_names[i].name);
    err_set(e, ERR_UNSUPPORTED, "%s; --tokenizer.pre NAME chooses one of %.*s", problem,
            (int)names.len, names.ptr);
    buf_release(&names);
    return ERR_UNSUPPORTED;
}

enum status pretok_new(struct str name, struct pretok **out, struct err *e)
{
    const struct pre_name *rule = find_name(name);
    char shown[65], problem[128];
    if (!rule) {
        snprintf(problem, sizeof problem, "pre-tokenizer '%s' is not supported",
                 gguf_printable(name, shown, sizeof(shown)));
        return pretok_refuse(e, problem);
    }
    struct pretok *p = mem_zalloc(sizeof *p);
    p->rule = rule;
    p->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    p->match = p->general ? pcre2_match_context_create(p->general) : NULL;
    enum status status = p->match ? OK : err_set(e, ERR_NO_MEMORY, "pre-tokenizer: out of memory");
    if (p->match) {
        pcre2_set_match_limit(p->match, UINT32_MAX);
        pcre2_set_depth_limit(p->match, UINT32_MAX);
    }
    if (status == OK)
        status = compile_all(p, e);
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
    class_table_release(&p->classes);
    pcre2_match_context_free(p->match);
    pcre2_general_context_free(p->general);
    mem_free(p);
}

const char *pretok_name(const struct pretok *p)
{
    return p->rule->name;
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
    buf_release(&w->symbols);
}

struct split {
    const struct pretok *p;
    pcre2_match_data *data;
    bool (*emit)(void *arg, struct str piece);
    void *arg;
    const char *text; /* what the next piece starts with */
    bool ascii; /* symbols are the text itself */
    int failed; /* a PCRE2 error code */
};

/* Pieces come in order and without gaps, so the text moves on with them. */
static bool emit_piece(struct split *s, size_t n_symbols)
{
    const char *start = s->text, *end = start;
    if (s->ascii)
        end += n_symbols;
    else
        for (; n_symbols; n_symbols--) {
            uint8_t lead = (uint8_t)*end;
            end += lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        }
    s->text = end;
    return s->emit(s->arg, (struct str){start, (size_t)(end - start)});
}

static int match_at(const struct split *s, int level, struct str symbols, size_t at)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)symbols.ptr;
    const pcre2_code *code = s->p->code[level];
    uint32_t options = s->p->match_options;
    int rc = pcre2_match(code, subject, symbols.len, at, options, s->data, s->p->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, subject, symbols.len, at, options | PCRE2_NO_JIT, s->data,
                         s->p->match);
    return rc;
}

/* Recursion: at most MAX_LEVELS deep. False: stop. */
static bool split_level(struct split *s, int level, struct str symbols)
{
    if (symbols.len == 0)
        return true;
    if (level == s->p->n_levels)
        return emit_piece(s, symbols.len);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->data);
    size_t at = 0;
    while (at < symbols.len) {
        int rc = match_at(s, level, symbols, at);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0 || span[1] <= span[0]) {
            s->failed = rc < 0 ? rc : PCRE2_ERROR_INTERNAL;
            return false;
        }
        size_t start = span[0], end = span[1];
        if (!split_level(s, level + 1, (struct str){symbols.ptr + at, start - at}) ||
            !split_level(s, level + 1, (struct str){symbols.ptr + start, end - start}))
            return false;
        at = end;
    }
    return split_level(s, level + 1, (struct str){symbols.ptr + at, symbols.len - at});
}

static size_t ascii_len(struct str s)
{
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) {
        uint64_t v;
        memcpy(&v, s.ptr + i, 8);
        if (v & 0x8080808080808080u)
            break;
    }
    while (i < s.len && (uint8_t)s.ptr[i] < 0x80)
        i++;
    return i;
}

/* Valid UTF-8, so no sequence is cut. */
static struct str make_symbols(const struct pretok *p, struct pretok_work *w, struct str text)
{
    buf_clear(&w->symbols);
    buf_reserve(&w->symbols, text.len);
    char *out = w->symbols.ptr;
    size_t n = 0, at = 0;
    while (at < text.len) {
        size_t plain = ascii_len((struct str){text.ptr + at, text.len - at});
        memcpy(out + n, text.ptr + at, plain);
        n += plain;
        at += plain;
        if (at == text.len)
            break;
        uint32_t c = 0;
        at += (size_t)utf8_decode((struct str){text.ptr + at, text.len - at}, &c);
        out[n++] = (char)class_symbol(&p->classes, c);
    }
    return (struct str){out, n};
}

enum status pretok_split(const struct pretok *p, struct pretok_work *w, struct str text,
                         bool (*emit)(void *arg, struct str piece), void *arg, struct err *e)
{
    if (!w->match_data)
        w->match_data = pcre2_match_data_create(1, p->general);
    if (!w->match_data)
        return err_set(e, ERR_NO_MEMORY, "pre-tokenizer: out of memory");
    bool ascii = ascii_len(text) == text.len;
    struct split s = {
        .p = p, .data = w->match_data, .emit = emit, .arg = arg, .text = text.ptr, .ascii = ascii};
    split_level(&s, 0, ascii ? text : make_symbols(p, w, text));
    if (s.failed)
        return err_set(e, ERR_INTERNAL,
                       "pre-tokenizer '%s' failed on a text of %zu bytes (code %d)", p->rule->name,
                       text.len, s.failed);
    return OK;
}
