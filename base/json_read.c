/* Reading JSON: one pass over the text checks each token against RFC 8259 (UTF-8, escapes,
 * surrogate pairs, number forms, control characters), the grammar and the limits, and stores the
 * values in a flat array. Nothing recurses. Keys are checked for duplicates after the end of the
 * text. See json.h. */
#include "base/json_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { KEY_SHOWN_MAX = 64, PAIRWISE_MAX = 8, FIRST_NODES = 16 };

/* One open container, by array indices, because the array moves when it grows. */
struct level {
    uint32_t container;
    uint32_t last; /* last member so far; the container itself before the first one */
};

/* What may come next. */
enum expected { VALUE, FIRST_MEMBER, SEPARATOR, END };

struct reader {
    struct json_doc *doc;
    const char *text; /* doc->text: NUL-terminated, text[len] may be read */
    size_t len, at;
    char *decoded; /* where the next decoded string is written, in doc->decoded */
    size_t cap_nodes; /* of doc->nodes */
    struct level *levels; /* [limits.depth] */
    uint32_t depth; /* open containers */
    struct json_limits limits;
    struct err *e;
};

static enum status bad(struct err *e, size_t at, const char *what)
{
    return err_set(e, ERR_INVALID, "invalid json: %s at byte %zu", what, at);
}

static enum status no_memory(const struct reader *r)
{
    return err_set(r->e, ERR_NO_MEMORY, "out of memory for a json text of %zu bytes", r->len);
}

/* Reports what is at r->at as unexpected. The first value already has a node. */
static enum status unexpected(const struct reader *r)
{
    struct str rest = {r->text + r->at, r->len - r->at};
    if (rest.len == 0)
        return bad(r->e, r->at,
                   r->doc->nodes[0].raw.ptr == rest.ptr ? "no value" : "unexpected end");
    if (*rest.ptr == 0)
        return bad(r->e, r->at, "raw nul byte");
    if ((uint8_t)*rest.ptr >= 0x80 && utf8_error_at(rest) == 0)
        return bad(r->e, r->at, "invalid utf-8");
    if (*rest.ptr == ']' || *rest.ptr == '}')
        return bad(r->e, r->at,
                   r->depth ? "unexpected closing bracket"
                            : "closing bracket without an opening one");
    return bad(r->e, r->at, "unexpected character");
}

/* ---- strings ---- */

static int hex_value(char c)
{
    if (json_is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of the 4 digits of a \u escape; -1 when they are not hex. p may be read up to its NUL. */
static int32_t hex4(const char *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(p[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static bool is_high_surrogate(int32_t c)
{
    return c >= 0xD800 && c <= 0xDBFF;
}

static bool is_low_surrogate(int32_t c)
{
    return c >= 0xDC00 && c <= 0xDFFF;
}

/* At the backslash of \u: the code point of one escape or of a surrogate pair. */
static enum status read_code_point(struct reader *r, uint32_t *code_point)
{
    const char *p = r->text + r->at;
    int32_t c = hex4(p + 2);
    if (c < 0)
        return bad(r->e, r->at, "\\u without four hex digits");
    if (is_low_surrogate(c) ||
        (is_high_surrogate(c) && (p[6] != '\\' || p[7] != 'u' || !is_low_surrogate(hex4(p + 8)))))
        return bad(r->e, r->at, "lone surrogate");
    r->at += is_high_surrogate(c) ? 12 : 6;
    *code_point = is_high_surrogate(c)
                      ? 0x10000 + (((uint32_t)c - 0xD800) << 10) + ((uint32_t)hex4(p + 8) - 0xDC00)
                      : (uint32_t)c;
    return OK;
}

/* At a backslash: appends the escaped character to the decoded bytes. */
static enum status read_escape(struct reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = r->text[r->at + 1];
    const char *name = c ? strchr(names, c) : NULL;
    uint32_t code_point = 0;
    if (name) {
        *r->decoded++ = values[name - names];
        r->at += 2;
        return OK;
    }
    if (c != 'u')
        return bad(r->e, r->at, "unknown escape");
    enum status st = read_code_point(r, &code_point);
    if (st == OK)
        r->decoded += utf8_encode(code_point, r->decoded);
    return st;
}

/* Skips literal characters, up to a quote or backslash. */
static enum status skip_plain(struct reader *r)
{
    while (r->at < r->len) {
        uint8_t c = (uint8_t)r->text[r->at];
        uint32_t code_point;
        int n = 1;
        if (c == '"' || c == '\\')
            return OK;
        if (c == 0)
            return bad(r->e, r->at, "raw nul byte");
        if (c < 0x20)
            return bad(r->e, r->at, "raw control character in a string");
        if (c >= 0x80)
            n = utf8_decode((struct str){r->text + r->at, r->len - r->at}, &code_point);
        if (n == 0)
            return bad(r->e, r->at, "invalid utf-8");
        r->at += (size_t)n;
    }
    return OK;
}

static void add_decoded(struct reader *r, size_t from)
{
    memcpy(r->decoded, r->text + from, r->at - from);
    r->decoded += r->at - from;
}

/* Decoded strings are never longer than their source: one buffer of the remaining length is enough
 * for all of them. */
static enum status start_decoding(struct reader *r, size_t from)
{
    if (r->decoded)
        return OK;
    r->doc->decoded = r->decoded = mem_try_alloc(r->len - from);
    return r->decoded ? OK : no_memory(r);
}

/* At an opening quote. Without escapes, *out is a view of the text. */
static enum status read_string(struct reader *r, struct str *out)
{
    size_t start = r->at++, from = r->at; /* from: not decoded yet */
    char *decoded = NULL; /* NULL until the first escape */
    for (;;) {
        enum status st = skip_plain(r);
        if (st == OK && r->at == r->len)
            st = bad(r->e, start, "string without an end");
        if (st == OK && r->text[r->at] == '"')
            break;
        if (st == OK)
            st = start_decoding(r, from);
        if (st != OK)
            return st;
        decoded = decoded ? decoded : r->decoded;
        add_decoded(r, from);
        st = read_escape(r);
        if (st != OK)
            return st;
        from = r->at;
    }
    if (decoded)
        add_decoded(r, from);
    *out = decoded ? (struct str){decoded, (size_t)(r->decoded - decoded)}
                   : (struct str){r->text + from, r->at - from};
    r->at++;
    return OK;
}

/* ---- numbers and words ---- */

static size_t skip_digits(const struct reader *r, size_t at)
{
    while (json_is_digit(r->text[at]))
        at++;
    return at;
}

static enum status skip_number(struct reader *r)
{
    size_t start = r->at;
    const char *t = r->text;
    size_t at = start + (t[start] == '-');
    size_t end = skip_digits(r, at);
    if (end == at || (t[at] == '0' && end - at > 1))
        return bad(r->e, start, end == at ? "minus without a digit" : "number with a leading zero");
    at = end;
    if (t[at] == '.') {
        end = skip_digits(r, at + 1);
        if (end == at + 1)
            return bad(r->e, start, "number without a digit after its point");
        at = end;
    }
    if (t[at] == 'e' || t[at] == 'E') {
        at += 1 + (t[at + 1] == '+' || t[at + 1] == '-');
        end = skip_digits(r, at);
        if (end == at)
            return bad(r->e, start, "number without a digit in its exponent");
        at = end;
    }
    r->at = at;
    return OK;
}

static enum status read_word(struct reader *r, enum json_type *type)
{
    static const struct {
        struct str text;
        enum json_type type;
    } word[] = {
        {STR_LIT("true"), JSON_TRUE}, {STR_LIT("false"), JSON_FALSE}, {STR_LIT("null"), JSON_NULL}};
    struct str rest = {r->text + r->at, r->len - r->at};
    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        if (str_starts(rest, word[i].text)) {
            r->at += word[i].text.len;
            *type = word[i].type;
            return OK;
        }
    }
    return unexpected(r);
}

/* ---- values ---- */

static void skip_space(struct reader *r)
{
    while (json_is_space(r->text[r->at]))
        r->at++;
}

static enum status grow(struct reader *r)
{
    size_t cap = r->cap_nodes ? 2 * r->cap_nodes : FIRST_NODES;
    cap = cap < r->limits.n_nodes ? cap : r->limits.n_nodes;
    void *nodes = mem_try_realloc(r->doc->nodes, mem_mul(cap, sizeof(*r->doc->nodes)));
    if (!nodes)
        return no_memory(r);
    r->doc->nodes = nodes;
    r->cap_nodes = cap;
    return OK;
}

/* Takes the next node, as a member of the innermost open container. */
static enum status add_node(struct reader *r, struct json **out)
{
    struct json_doc *doc = r->doc;
    if (doc->n_nodes == r->limits.n_nodes)
        return err_set(r->e, ERR_INVALID, "invalid json: more than the limit of %u values",
                       (unsigned)r->limits.n_nodes);
    if (doc->n_nodes == r->cap_nodes && grow(r) != OK)
        return ERR_NO_MEMORY;
    uint32_t i = (uint32_t)doc->n_nodes++;
    if (r->depth > 0) {
        struct level *level = &r->levels[r->depth - 1];
        if (doc->nodes[level->container].n_members++ > 0)
            doc->nodes[level->last].to_next = i - level->last;
        level->last = i;
    }
    doc->nodes[i] = (struct json){0};
    *out = &doc->nodes[i];
    return OK;
}

static bool in_object(const struct reader *r)
{
    return r->depth > 0 && r->doc->nodes[r->levels[r->depth - 1].container].type == JSON_OBJECT;
}

/* Reads a member's "key": up to its value. */
static enum status read_key(struct reader *r, struct str *key)
{
    if (r->text[r->at] != '"')
        return unexpected(r);
    size_t begin = r->at;
    enum status st = read_string(r, key);
    if (st != OK)
        return st;
    if (key->len && memchr(key->ptr, 0, key->len))
        return err_set(r->e, ERR_INVALID, "invalid json: U+0000 in the name at byte %zu", begin);
    skip_space(r);
    if (r->text[r->at] != ':')
        return unexpected(r);
    r->at++;
    skip_space(r);
    return OK;
}

static enum status open_container(struct reader *r, struct json *v)
{
    if (r->depth == r->limits.depth)
        return err_set(r->e, ERR_INVALID,
                       "invalid json: nested deeper than the limit of %u at byte %zu",
                       (unsigned)r->limits.depth, r->at);
    uint32_t i = (uint32_t)(v - r->doc->nodes);
    v->type = r->text[r->at++] == '{' ? JSON_OBJECT : JSON_ARRAY;
    r->levels[r->depth++] = (struct level){i, i};
    return OK;
}

/* Reads one value; a container is only opened here, its members come later. */
static enum status read_value(struct reader *r, enum expected *next)
{
    struct json *v = NULL;
    struct str key = {0};
    enum status st = in_object(r) ? read_key(r, &key) : OK;
    if (st == OK)
        st = add_node(r, &v);
    if (st != OK)
        return st;
    size_t start = r->at;
    char c = r->text[start];
    v->key = key;
    v->raw.ptr = r->text + start;
    *next = c == '{' || c == '[' ? FIRST_MEMBER : SEPARATOR;
    if (*next == FIRST_MEMBER)
        return open_container(r, v);
    if (c == '"') {
        v->type = JSON_STRING;
        st = read_string(r, &v->string);
    } else if (c == '-' || json_is_digit(c)) {
        v->type = JSON_NUMBER;
        st = skip_number(r);
    } else {
        st = read_word(r, &v->type);
    }
    v->raw.len = r->at - start;
    return st;
}

/* Reads a comma or the end of the innermost container. */
static enum status read_separator(struct reader *r, enum expected *next)
{
    struct json *v = &r->doc->nodes[r->levels[r->depth - 1].container];
    char c = r->text[r->at];
    if (c == ',' && *next == SEPARATOR) {
        r->at++;
        *next = VALUE;
        return OK;
    }
    if (c != (v->type == JSON_OBJECT ? '}' : ']'))
        return unexpected(r);
    r->at++;
    r->depth--;
    v->raw.len = (size_t)(r->text + r->at - v->raw.ptr);
    *next = SEPARATOR;
    return OK;
}

static bool is_closing(char c)
{
    return c == ']' || c == '}';
}

static enum status read_all(struct reader *r)
{
    enum expected next = VALUE;
    while (next != END) {
        skip_space(r);
        bool separates = next == SEPARATOR || (next == FIRST_MEMBER && is_closing(r->text[r->at]));
        enum status st = separates ? read_separator(r, &next) : read_value(r, &next);
        if (st != OK)
            return st;
        if (r->depth == 0)
            next = END;
    }
    skip_space(r);
    if (r->at == r->len)
        return OK;
    return r->text[r->at] ? bad(r->e, r->at, "text after the value") : unexpected(r);
}

/* ---- duplicate keys ---- */

static int compare_keys(const void *a, const void *b)
{
    struct str x = (*(const struct json *const *)a)->key;
    struct str y = (*(const struct json *const *)b)->key;
    if (x.len != y.len)
        return x.len < y.len ? -1 : 1;
    return x.len ? memcmp(x.ptr, y.ptr, x.len) : 0;
}

static enum status duplicate(const struct json_doc *doc, const struct json *v, struct err *e)
{
    struct buf shown = {0};
    json_add_escaped(&shown, v->key);
    struct str cut = {shown.ptr, shown.len < KEY_SHOWN_MAX ? shown.len : KEY_SHOWN_MAX};
    cut.len = utf8_complete_len(cut);
    err_set(e, ERR_INVALID, "invalid json: duplicate key \"%.*s\" in the object member at byte %zu",
            (int)cut.len, cut.len ? cut.ptr : "", (size_t)(v->raw.ptr - doc->text));
    buf_release(&shown);
    return ERR_INVALID;
}

/* scratch has room for one pointer per member of the object. */
static enum status check_keys(const struct json_doc *doc, const struct json *object,
                              const struct json **scratch, struct err *e)
{
    size_t n = 0;
    for (const struct json *v = json_first(object); v; v = json_next(v)) {
        for (size_t i = 0; object->n_members <= PAIRWISE_MAX && i < n; i++)
            if (str_eq(scratch[i]->key, v->key))
                return duplicate(doc, v, e);
        scratch[n++] = v;
    }
    if (n <= PAIRWISE_MAX)
        return OK;
    qsort(scratch, n, sizeof(*scratch), compare_keys);
    for (size_t i = 1; i < n; i++)
        if (str_eq(scratch[i - 1]->key, scratch[i]->key))
            return duplicate(doc, scratch[i] > scratch[i - 1] ? scratch[i] : scratch[i - 1], e);
    return OK;
}

static enum status check_all_keys(const struct json_doc *doc, struct err *e)
{
    size_t most = 0;
    for (size_t i = 0; i < doc->n_nodes; i++)
        if (doc->nodes[i].type == JSON_OBJECT && doc->nodes[i].n_members > most)
            most = doc->nodes[i].n_members;
    if (most < 2)
        return OK;
    const struct json **scratch = mem_try_alloc(mem_mul(most, sizeof(*scratch)));
    if (!scratch)
        return err_set(e, ERR_NO_MEMORY, "out of memory for a json object of %zu members", most);
    enum status st = OK;
    for (size_t i = 0; i < doc->n_nodes && st == OK; i++)
        if (doc->nodes[i].type == JSON_OBJECT && doc->nodes[i].n_members > 1)
            st = check_keys(doc, &doc->nodes[i], scratch, e);
    mem_free(scratch);
    return st;
}

/* ---- the document ---- */

static enum status read_doc(struct json_doc *doc, size_t len, struct json_limits limits,
                            struct err *e)
{
    struct reader r = {.doc = doc, .text = doc->text, .len = len, .limits = limits, .e = e};
    r.levels = mem_try_alloc(mem_mul((size_t)limits.depth + 1, sizeof(*r.levels)));
    enum status st = r.levels ? read_all(&r) : no_memory(&r);
    mem_free(r.levels);
    return st == OK ? check_all_keys(doc, e) : st;
}

enum status json_parse(struct str text, struct json_limits limits, struct json_doc **out,
                       struct err *e)
{
    *out = NULL;
    if (str_starts(text, STR_LIT("\xEF\xBB\xBF")))
        text = (struct str){text.ptr + 3, text.len - 3};
    struct json_doc *doc = mem_zalloc(sizeof(*doc));
    doc->text = mem_try_alloc(text.len + 1);
    if (!doc->text) {
        json_free(doc);
        return err_set(e, ERR_NO_MEMORY, "out of memory for a json text of %zu bytes", text.len);
    }
    if (text.len)
        memcpy(doc->text, text.ptr, text.len);
    doc->text[text.len] = 0;
    enum status st = read_doc(doc, text.len, limits, e);
    if (st == OK)
        *out = doc;
    else
        json_free(doc);
    return st;
}
