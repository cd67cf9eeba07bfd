/* Inside of the chat template interpreter: values, marked strings, syntax tree, shared helpers.
 *
 * A template is parsed once into a read-only tree (struct chat_template) and may be rendered by many
 * threads at once: everything that a rendering makes lives in its own arena (struct tmpl), which is
 * freed whole. Errors leave through tm_fail, which jumps back to the door (template.c); since only the
 * arena owns memory, nothing leaks. Language: Jinja2 as documented, with Python's semantics.
 *
 * Used by engine/template only. Thread: the one that renders or parses. */
#ifndef ENGINE_TEMPLATE_INTERP_H
#define ENGINE_TEMPLATE_INTERP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "engine/template/template.h"

/* Bounds of the sandbox. */
enum {
    TM_MAX_SOURCE_BYTES = 1 << 20,
    TM_MAX_STRING_BYTES = 16 << 20, /* any string, so the output too */
    TM_MAX_ARENA_BYTES = 256 << 20, /* one rendering */
    TM_MAX_STEPS = 50 * 1000 * 1000,
    TM_MAX_PROBE_STEPS = 1000 * 1000, /* of each rendering that template_new tries */
    TM_MAX_RANGE = 100000, /* as jinja2's sandbox */
    TM_MAX_PARSE_DEPTH = 240,
    TM_MAX_TREE_DEPTH = 400, /* height of an expression: long chains of operators */
    TM_MAX_EVAL_DEPTH = 1800, /* nested evaluations: under 1 MiB of stack */
    TM_MAX_VALUE_DEPTH = 200, /* containers inside one another when printed or compared */
    TM_MAX_PARAMS = 8
};

/* ---- context: arena, error exit, bounds ---- */

struct tm_chunk;
struct tm_loop;
struct tm_node;

struct tmpl {
    struct tm_chunk *chunks;
    size_t arena_left; /* bytes that may still be taken from the system */
    jmp_buf trap;
    struct err *err;
    enum status status;
    uint32_t line; /* of the construct at work */
    uint64_t steps_left;
    uint32_t depth; /* of nested evaluations */
    uint32_t value_depth;
    const struct chat_template *tpl;
    int64_t now_unix_s;
};

void *tm_alloc(struct tmpl *c, size_t n_bytes); /* 16-byte aligned, uninitialised */
void *tm_zalloc(struct tmpl *c, size_t n_bytes);
/* Larger copy; extends in place when p was the last allocation. */
void *tm_grow(struct tmpl *c, void *p, size_t old_bytes, size_t new_bytes);
void tm_arena_release(struct tmpl *c);

/* "chat template, line N: text" */
__attribute__((noreturn, format(printf, 3, 4))) void tm_fail(struct tmpl *c, enum status status,
                                                             const char *format, ...);
/* The template's own message, unchanged (truncated at a code point when too long). */
__attribute__((noreturn)) void tm_raise(struct tmpl *c, struct str message);
__attribute__((noreturn)) void tm_fail_steps(struct tmpl *c);

static inline void tm_step(struct tmpl *c, uint64_t n)
{
    if (c->steps_left < n)
        tm_fail_steps(c);
    c->steps_left -= n;
}
void tm_value_enter(struct tmpl *c);
static inline void tm_value_leave(struct tmpl *c)
{
    c->value_depth--;
}

/* ---- strings: bytes plus which of them the template itself wrote ---- */

enum tm_taint { TM_DATA, TM_TRUSTED, TM_MIXED };

struct tm_mark {
    uint32_t start, end; /* trusted bytes; ascending, not touching */
};

/* Valid UTF-8, immutable, may share bytes with others. */
struct tm_str {
    const char *p;
    uint32_t len;
    uint32_t n_marks; /* of TM_MIXED */
    const struct tm_mark *marks;
    uint8_t taint;
    bool markup; /* made by |safe or |escape: jinja2's Markup, which escapes what is added to it */
};

struct tm_sb { /* grows a string in the arena */
    struct tmpl *c;
    char *p;
    uint32_t len, cap;
    struct tm_mark *marks;
    uint32_t n_marks, cap_marks;
};

void tm_sb_init(struct tm_sb *b, struct tmpl *c);
void tm_sb_add(struct tm_sb *b, const char *p, size_t n, bool trusted);
void tm_sb_add_c(struct tm_sb *b, const char *text); /* as data */
void tm_sb_add_char(struct tm_sb *b, uint32_t code_point, bool trusted);
void tm_sb_add_str(struct tm_sb *b, const struct tm_str *s);
void tm_sb_add_sub(struct tm_sb *b, const struct tm_str *s, uint32_t from, uint32_t to);
__attribute__((format(printf, 2, 3))) void tm_sb_printf(struct tm_sb *b, const char *format, ...);
const struct tm_str *tm_sb_done(struct tm_sb *b);

const struct tm_str *tm_str_new(struct tmpl *c, const char *p, size_t n,
                                bool trusted); /* borrows p */
const struct tm_str *tm_str_lit(struct tmpl *c, const char *literal); /* data */
const struct tm_str *tm_sub(struct tmpl *c, const struct tm_str *s, uint32_t from, uint32_t to);
const struct tm_str *tm_concat(struct tmpl *c, const struct tm_str *a, const struct tm_str *b);
const struct tm_str *tm_escape_html(struct tmpl *c, const struct tm_str *s); /* gives markup */
const struct tm_str *tm_as_markup(struct tmpl *c, const struct tm_str *s, bool markup);
bool tm_str_eq(const struct tm_str *a, const struct tm_str *b);
bool tm_str_is(const struct tm_str *a, const char *literal);
int tm_str_cmp(const struct tm_str *a, const struct tm_str *b); /* by code points */
uint32_t tm_str_chars(struct tmpl *c, const struct tm_str *s);
/* Byte offset of the i-th code point; s->len when there are fewer. */
uint32_t tm_str_offset(struct tmpl *c, const struct tm_str *s, uint32_t i);
int tm_decode(const struct tm_str *s, uint32_t at, uint32_t *code_point); /* length in bytes */
/* Is the byte trusted? *cursor starts at 0 and only moves forward with at. */
bool tm_trusted_at(const struct tm_str *s, uint32_t at, uint32_t *cursor);
/* Offset of needle in s[from, to), or -1; from the end when last. */
int64_t tm_find(struct tmpl *c, const struct tm_str *s, const struct tm_str *needle, uint32_t from,
                uint32_t to, bool last);
static inline struct str tm_view_str(const struct tm_str *s)
{
    return (struct str){s->p, s->len};
}

/* ---- unicode (unicode.c) ---- */

enum tm_case { TM_UPPER, TM_LOWER, TM_TITLE_WORDS, TM_CAPITALIZE, TM_SWAPCASE, TM_JINJA_TITLE };
bool tm_is_space(uint32_t cp); /* Python's str.isspace */
bool tm_is_printable(uint32_t cp); /* Python's str.isprintable */
bool tm_is_alpha(uint32_t cp);
bool tm_is_digit(uint32_t cp);
bool tm_is_decimal(uint32_t cp);
bool tm_is_numeric(uint32_t cp);
bool tm_is_lower(uint32_t cp);
bool tm_is_upper(uint32_t cp);
bool tm_is_title(uint32_t cp);
bool tm_is_ident(uint32_t cp, bool start);
bool tm_is_line_end(uint32_t cp); /* what str.splitlines breaks at */
const struct tm_str *tm_recase(struct tmpl *c, const struct tm_str *s, enum tm_case how);

/* ---- values ---- */

enum tm_type {
    TM_ABSENT, /* an argument that was not given; never a value of the language */
    TM_UNDEF,
    TM_NONE,
    TM_BOOL,
    TM_INT,
    TM_FLOAT,
    TM_BIG, /* an integer beyond int64, kept as its digits: prints and compares, no arithmetic */
    TM_STR,
    TM_LIST,
    TM_TUPLE,
    TM_DICT,
    TM_NAMESPACE,
    TM_RANGE,
    TM_ITER, /* a one-pass iterator such as map() gives */
    TM_VIEW, /* dict.keys(), values(), items() */
    TM_FUNC, /* a global */
    TM_METHOD,
    TM_MACRO,
    TM_LOOP
};

struct tm_val {
    enum tm_type type;
    union {
        bool b;
        int64_t i;
        double f;
        const struct tm_str *s;
        struct tm_list *list;
        struct tm_dict *dict; /* also of TM_NAMESPACE */
        const struct tm_range *range;
        struct tm_iter *iter;
        const struct tm_view *view;
        const struct tm_builtin *func;
        const struct tm_method *method;
        const struct tm_macro *macro;
        struct tm_loop *loop;
        const struct tm_undef *undef; /* may be NULL */
    };
};

struct tm_list {
    struct tm_val *v;
    uint32_t n, cap;
    bool group; /* a pair made by groupby: its members have names */
};

struct tm_entry {
    struct tm_val key, value;
    uint64_t hash;
};

struct tm_dict { /* keeps the order of insertion */
    struct tm_entry *e;
    uint32_t n, cap;
    uint32_t *slots; /* index + 1, open addressing; NULL while small */
    uint32_t n_slots;
};

struct tm_range {
    int64_t start, stop, step;
    uint32_t n;
};

struct tm_view {
    const struct tm_dict *dict;
    char kind; /* k, v, i */
};

struct tm_undef {
    const char *hint; /* or NULL: built from what follows */
    const struct tm_str *name; /* or NULL when the key was no string */
    struct tm_val key; /* then this is it */
    const char *object; /* name of the object's type, NULL for a variable */
};

struct tm_kwarg {
    const struct tm_str *name;
    struct tm_val v;
};

struct tm_args {
    struct tm_val *v;
    uint32_t n;
    struct tm_kwarg *kw;
    uint32_t n_kw;
};

/* A filter, test, global function or method. params: names of the parameters after self, separated
 * by spaces; '?' after a name: optional (TM_ABSENT when left out); "/" first: no keywords allowed;
 * NULL: fn reads the raw arguments. */
struct tm_builtin {
    const char *name;
    const char *params;
    struct tm_val (*fn)(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                        const struct tm_args *raw);
};

struct tm_method {
    struct tm_val self;
    const struct tm_builtin *fn;
};

/* Filled on first use by applying fn to all of source, as generators run late. */
struct tm_iter {
    struct tm_list *items; /* NULL until filled */
    uint32_t at;
    struct tm_list *(*fill)(struct tmpl *c, struct tm_iter *it);
    struct tm_val source;
    const struct tm_builtin *via; /* filter or test to apply */
    struct tm_args args;
    struct tm_val attribute, fallback;
    bool negate, has_attribute;
};

/* Reads any iterable item by item. */
struct tm_cursor {
    struct tm_list *list;
    struct tm_iter *iter;
    uint32_t at;
};

static inline struct tm_val tm_none(void)
{
    return (struct tm_val){.type = TM_NONE};
}
static inline struct tm_val tm_bool(bool b)
{
    return (struct tm_val){.type = TM_BOOL, .b = b};
}
static inline struct tm_val tm_int(int64_t i)
{
    return (struct tm_val){.type = TM_INT, .i = i};
}
static inline struct tm_val tm_float(double f)
{
    return (struct tm_val){.type = TM_FLOAT, .f = f};
}
static inline struct tm_val tm_string(const struct tm_str *s)
{
    return (struct tm_val){.type = TM_STR, .s = s};
}
static inline struct tm_val tm_list_val(struct tm_list *l)
{
    return (struct tm_val){.type = TM_LIST, .list = l};
}
static inline struct tm_val tm_dict_val(struct tm_dict *d)
{
    return (struct tm_val){.type = TM_DICT, .dict = d};
}
struct tm_val tm_undef_hint(struct tmpl *c, const char *hint);
struct tm_val tm_undef_name(struct tmpl *c, const struct tm_str *name);
struct tm_val tm_undef_member(struct tmpl *c, struct tm_val object, struct tm_val key);

__attribute__((noreturn)) void tm_fail_undef(struct tmpl *c, struct tm_val undefined);
/* Fails when v is undefined: for every operation that jinja2 refuses on it. */
static inline void tm_need_defined(struct tmpl *c, struct tm_val v)
{
    if (v.type == TM_UNDEF)
        tm_fail_undef(c, v);
}

const char *tm_type_name(struct tm_val v); /* as Python names it */
bool tm_truthy(struct tmpl *c, struct tm_val v);
bool tm_equal(struct tmpl *c, struct tm_val a, struct tm_val b);
bool tm_same(struct tm_val a, struct tm_val b); /* Python's `is` */
int tm_order(struct tmpl *c, struct tm_val a, struct tm_val b); /* -1, 0, 1; 2 = unordered */
bool tm_less(struct tmpl *c, struct tm_val a, struct tm_val b);
bool tm_contains(struct tmpl *c, struct tm_val container, struct tm_val item);
bool tm_is_number(struct tm_val v); /* bool, int or float */
double tm_number(struct tm_val v);
int64_t tm_need_int(struct tmpl *c, struct tm_val v, const char *what);
const struct tm_str *tm_need_str(struct tmpl *c, struct tm_val v, const char *what);
int64_t tm_length(struct tmpl *c, struct tm_val v); /* Python's len */

struct tm_list *tm_list_new(struct tmpl *c, uint32_t cap);
void tm_list_add(struct tmpl *c, struct tm_list *l, struct tm_val v);
struct tm_dict *tm_dict_new(struct tmpl *c);
void tm_dict_set(struct tmpl *c, struct tm_dict *d, struct tm_val key, struct tm_val value);
const struct tm_val *tm_dict_get(struct tmpl *c, const struct tm_dict *d, struct tm_val key);
const struct tm_val *tm_dict_get_str(struct tmpl *c, const struct tm_dict *d,
                                     const struct tm_str *key);
struct tm_list *tm_view_list(struct tmpl *c, const struct tm_dict *d, char kind);
struct tm_val tm_pair(struct tmpl *c, struct tm_val a, struct tm_val b);
struct tm_val tm_range_item(const struct tm_range *r, uint32_t i);

bool tm_iterable(struct tm_val v);
struct tm_cursor tm_iterate(struct tmpl *c, struct tm_val v); /* fails when not iterable */
bool tm_next(struct tmpl *c, struct tm_cursor *k, struct tm_val *item);
struct tm_list *tm_to_list(struct tmpl *c,
                           struct tm_val v); /* may be v's own list: don't change it */
struct tm_val tm_iter_of(struct tmpl *c, struct tm_list *items); /* a filled one-pass iterator */

/* ---- printing (print.c) ---- */

const struct tm_str *tm_to_str(struct tmpl *c, struct tm_val v); /* Python's str() */
void tm_repr(struct tm_sb *b, struct tm_val v);
void tm_add_float(struct tm_sb *b, double f); /* Python's repr */
struct tm_json_style {
    bool ascii, sort_keys;
    const struct tm_str *indent; /* NULL: all on one line */
    const struct tm_str *item_sep, *key_sep;
};
void tm_add_json(struct tm_sb *b, struct tm_val v, const struct tm_json_style *style,
                 uint32_t level);
/* printf-style formatting (str % args) and str.format. */
const struct tm_str *tm_percent(struct tmpl *c, const struct tm_str *format, struct tm_val args);
const struct tm_str *tm_format(struct tmpl *c, const struct tm_str *format,
                               const struct tm_args *args);

/* ---- syntax tree ---- */

enum tm_kind {
    /* statements */
    TN_DATA,
    TN_PRINT,
    TN_IF,
    TN_FOR,
    TN_SET,
    TN_SET_BLOCK,
    TN_MACRO,
    TN_CALL_BLOCK,
    TN_FILTER_BLOCK,
    TN_WITH,
    TN_GENERATION,
    TN_BREAK,
    TN_CONTINUE,
    /* expressions */
    TN_CONST,
    TN_NAME,
    TN_NSREF, /* name.attr as a target of set */
    TN_TUPLE,
    TN_LIST,
    TN_DICT,
    TN_ATTR,
    TN_ITEM,
    TN_SLICE,
    TN_CALL,
    TN_FILTER,
    TN_TEST,
    TN_COND,
    TN_AND,
    TN_OR,
    TN_NOT,
    TN_NEG,
    TN_POS,
    TN_COMPARE,
    TN_CONCAT,
    TN_BINARY
};

enum tm_op {
    TO_ADD,
    TO_SUB,
    TO_MUL,
    TO_DIV,
    TO_FLOORDIV,
    TO_MOD,
    TO_POW,
    TO_EQ,
    TO_NE,
    TO_LT,
    TO_LE,
    TO_GT,
    TO_GE,
    TO_IN,
    TO_NOT_IN
};

struct tm_nodes {
    struct tm_node **v;
    uint32_t n, cap;
};

struct tm_kwnode {
    uint32_t name;
    struct tm_node *value;
};

struct tm_callargs {
    struct tm_nodes args;
    struct tm_kwnode *kw;
    uint32_t n_kw, cap_kw;
    struct tm_node *star, *star_star;
};

/* Contents of the fields, by kind:
 *   DATA text | PRINT list | IF list = conditions, bodies in lists pairwise, body2 = else
 *   FOR a = target, b = iterable, c = filter or NULL, body, body2 = else, flag = recursive
 *   SET a = target, b = value | SET_BLOCK a = target, b = filters (innermost has a = NULL) or NULL, body
 *   MACRO name, list = parameters (NAME), list2 = defaults of the last ones, body, uses
 *   CALL_BLOCK b = call, list, list2, body, uses as MACRO | FILTER_BLOCK b = filters, body
 *   WITH list = targets, list2 = values, body | GENERATION body
 *   CONST value | NAME name | NSREF name, text | TUPLE LIST list | DICT list = keys, list2 = values
 *   ATTR a, text | ITEM a, b | SLICE list[3] (may be NULL)
 *   CALL a, call | FILTER TEST a, text = name, builtin, call | COND a if b else c (NULL)
 *   AND OR BINARY a, b, op | NOT NEG POS a | COMPARE a, list = operands, ops | CONCAT list */
struct tm_node {
    enum tm_kind kind;
    uint32_t line;
    uint32_t name;
    uint32_t height; /* of the expression below */
    enum tm_op op;
    bool flag;
    const struct tm_str *text;
    struct tm_val value;
    struct tm_node *a, *b, *c;
    struct tm_nodes list, list2, body, body2;
    struct tm_nodes *bodies; /* of IF */
    uint8_t *ops; /* of COMPARE */
    struct tm_callargs *call;
    const struct tm_builtin *builtin;
    /* Names that are undefined when the scope of FOR body, MACRO ... starts although an outer scope
     * knows them: jinja2 decides at compile time that a scope owns a name it assigns first. */
    uint32_t *shadow, *shadow2; /* shadow2: of FOR's else */
    uint32_t n_shadow, n_shadow2;
    uint8_t uses; /* of MACRO, CALL_BLOCK: bits of enum tm_uses */
};

enum tm_uses { TM_USES_CALLER = 1, TM_USES_KWARGS = 2, TM_USES_VARARGS = 4 };

/* Names the interpreter itself looks up, in this order in every name table. */
#define TM_NAMES(X)                                                                                \
    X(messages)                                                                                    \
    X(tools)                                                                                       \
    X(documents)                                                                                   \
    X(add_generation_prompt) X(bos_token) X(eos_token) X(loop) X(caller) X(kwargs) X(varargs)
enum {
#define X(n) TM_NAME_##n,
    TM_NAMES(X)
#undef X
        TM_N_NAMES
};

struct chat_template {
    struct tmpl parse; /* its arena owns the tree */
    struct tm_nodes body;
    uint32_t *shadow; /* of the outermost scope */
    uint32_t n_shadow;
    const struct tm_str **names;
    uint32_t n_names, cap_names;
    uint32_t *name_slots; /* open addressing over names, index + 1 */
    uint32_t n_name_slots;
    struct buf source; /* for template_mentions */
    bool mentions_developer; /* the template knows the role itself */
    bool mentions_content;
    bool wants_parts; /* it renders content only as a list of parts */
    bool ignores_messages; /* the user's messages make no difference to the text */
};

uint32_t tm_intern(struct tmpl *c, struct chat_template *t, struct str name);
bool tm_name_find(const struct chat_template *t, struct str name, uint32_t *id);

/* ---- lexer (lex.c) ---- */

enum tm_tok {
    TT_EOF,
    TT_DATA,
    TT_VAR_BEGIN,
    TT_VAR_END,
    TT_BLOCK_BEGIN,
    TT_BLOCK_END,
    TT_NAME,
    TT_STRING,
    TT_INT,
    TT_BIG,
    TT_FLOAT,
    TT_OP /* its text tells which */
};

struct tm_token {
    enum tm_tok type;
    uint32_t line;
    struct str text; /* DATA, NAME, STRING (unescaped), BIG, OP */
    int64_t i;
    double f;
};

struct tm_tokens {
    struct tm_token *v;
    uint32_t n, cap;
};

void tm_lex(struct tmpl *c, struct str source, struct tm_tokens *out);

/* ---- parser (parse.c), scopes (scope.c) ---- */

void tm_parse(struct tmpl *c, struct chat_template *t, const struct tm_tokens *tokens);
/* Fills shadow and uses everywhere; refuses unknown filters and tests where jinja2 does. */
void tm_analyse(struct tmpl *c, struct chat_template *t);

/* ---- builtins ---- */

const struct tm_builtin *tm_filter_find(struct str name); /* filter.c */
const struct tm_builtin *tm_test_find(struct str name); /* test.c */
const struct tm_builtin *tm_global_find(struct str name); /* global.c */
/* Method of a value, or NULL; *unsafe: it exists but the sandbox forbids it. method.c */
const struct tm_builtin *tm_method_find(struct tmpl *c, struct tm_val v, const struct tm_str *name,
                                        bool *unsafe);
/* Tables of filters and methods that stand in files of their own. */
extern const struct tm_builtin tm_seq_filters[];
extern const struct tm_builtin tm_str_filters[];
extern const struct tm_builtin tm_str_methods[];

struct tm_val tm_invoke(struct tmpl *c, const struct tm_builtin *fn, struct tm_val self,
                        const struct tm_args *args);
const struct tm_str *tm_strip(struct tmpl *c, const struct tm_str *s, const struct tm_str *chars,
                              bool left, bool right);
const struct tm_str *tm_replace(struct tmpl *c, const struct tm_str *s, const struct tm_str *from,
                                const struct tm_str *to, int64_t count);
const struct tm_str *tm_join(struct tmpl *c, const struct tm_str *sep, const struct tm_list *items);
struct tm_list *tm_split_lines(struct tmpl *c, const struct tm_str *s, bool keep_ends);
bool tm_parse_int(const struct tm_str *s, int base, int64_t *out);
bool tm_parse_float(struct tmpl *c, const struct tm_str *s, double *out);
struct tm_list *tm_sorted(struct tmpl *c, const struct tm_list *keys, const struct tm_list *items,
                          bool reverse);

/* ---- interpreter ---- */

struct tm_scope;
/* eval.c */
struct tm_val tm_eval(struct tmpl *c, struct tm_scope *s, const struct tm_node *n);
struct tm_args tm_eval_args(struct tmpl *c, struct tm_scope *s, const struct tm_callargs *call);
struct tm_val tm_getattr(struct tmpl *c, struct tm_val v, const struct tm_str *name);
struct tm_val tm_getitem(struct tmpl *c, struct tm_val v, struct tm_val key);
struct tm_val tm_slice(struct tmpl *c, struct tm_val v, struct tm_val start, struct tm_val stop,
                       struct tm_val step);
struct tm_val tm_call(struct tmpl *c, struct tm_val f, const struct tm_args *args);
struct tm_val tm_apply_filter(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                              struct tm_val v);
/* arith.c */
struct tm_val tm_binary(struct tmpl *c, enum tm_op op, struct tm_val a, struct tm_val b);
struct tm_val tm_negate(struct tmpl *c, struct tm_val v, bool minus);

/* exec.c */
struct tm_scope {
    struct tm_scope *parent;
    uint32_t *names;
    struct tm_val *values; /* TM_ABSENT: owned here, not assigned yet */
    uint32_t n, cap;
};
struct tm_scope *tm_scope_new(struct tmpl *c, struct tm_scope *parent, const uint32_t *shadow,
                              uint32_t n_shadow);
void tm_scope_set(struct tmpl *c, struct tm_scope *s, uint32_t name, struct tm_val v);
struct tm_val tm_scope_get(struct tmpl *c, const struct tm_scope *s, uint32_t name);

struct tm_macro {
    const struct tm_node *node; /* MACRO or CALL_BLOCK */
    struct tm_scope *scope; /* where it was defined */
};

struct tm_loop {
    const struct tm_node *node; /* FOR */
    struct tm_scope *scope; /* around the loop */
    struct tm_cursor source;
    struct tm_list *seen; /* items fetched; the first at + 1 of them were returned */
    int64_t at;
    int64_t known_length; /* of the iterable when it has one, else -1 */
    bool drained;
    uint32_t depth0;
    struct tm_val last_changed; /* TM_ABSENT before the first */
};

void tm_run(struct tmpl *c, const struct chat_template *t, struct tm_scope *globals,
            struct tm_sb *out);
struct tm_val tm_call_macro(struct tmpl *c, const struct tm_macro *m, const struct tm_args *args);
struct tm_val tm_call_loop(struct tmpl *c, struct tm_loop *loop, const struct tm_args *args);
struct tm_val tm_loop_attr(struct tmpl *c, struct tm_loop *loop, const struct tm_str *name);

/* data.c: JSON to values */
struct tm_val tm_from_json(struct tmpl *c, const struct json *v);

/* ---- messages (template.c), the final one continued (continue.c) ---- */

struct tm_val tm_key(struct tmpl *c, const char *key);
const struct tm_val *tm_member(struct tmpl *c, const struct tm_dict *d, const char *key);
/* ERR_INVALID at a field of the request. */
__attribute__((noreturn)) void tm_refuse(struct tmpl *c, const char *field, const char *text);

enum tm_tag { TM_TAG_CUT, TM_TAG_CHECK };
/* Puts the tag behind the text of the last message; returns the text as it was. */
const struct tm_str *tm_tag_final(struct tmpl *c, struct tm_list *messages, enum tm_tag tag);
/* s up to the tag, without white space that the template trims off the message. */
const struct tm_str *tm_cut_final(struct tmpl *c, const struct tm_str *s, const struct tm_str *text,
                                  enum tm_tag tag);

#endif
