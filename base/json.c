/* JSON in and out; see json.h.
 *
 * Reading goes in three passes, none of which recurses:
 * 1. scan: one look at every byte, no memory taken. Checks each token by RFC 8259 (UTF-8, escapes,
 *    surrogate pairs, number forms, control characters) and the limits on depth and values, so that
 *    the passes after it work on bounded input.
 * 2. cJSON checks the grammar.
 * 3. build: one walk that lays the values in a flat array in document order. The first member of a
 *    container stands right behind it, and each value knows the distance to its next sibling. */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <locale.h>
#include <math.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"

/* cJSON copies a number into 64 bytes and takes the rest for garbage: longer ones are hidden from
 * it. */
enum { CJSON_NUMBER_MAX = 60, KEY_SHOWN_MAX = 64, PAIRWISE_MAX = 8 };

struct json {
    enum json_type type;
    uint32_t n_members;
    uint32_t to_next; /* distance to the next sibling in the array; 0 = none */
    struct str raw; /* borrows from doc->text */
    struct str key; /* decoded; borrows from doc */
    struct str string; /* decoded; borrows from doc */
};

struct json_doc {
    char *text; /* owns; the source without BOM, NUL-terminated */
    char *decoded; /* owns; strings that had escapes; NULL while there are none */
    struct json *nodes; /* owns, n_nodes of them in document order */
    size_t n_nodes;
};

static locale_t c_locale;
static _Thread_local bool cjson_starved;

static void *cjson_alloc(size_t n_bytes)
{
    void *p = mem_try_alloc(n_bytes);
    cjson_starved |= p == NULL;
    return p;
}

__attribute__((constructor)) static void json_set_up(void)
{
    cJSON_Hooks hooks = {.malloc_fn = cjson_alloc, .free_fn = mem_free};
    cJSON_InitHooks(&hooks);
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* ---- pass 1 ---- */

struct scan {
    const char *text;
    size_t len;
    size_t at;
    uint32_t depth;
    uint64_t n_values; /* keys included */
    uint64_t n_colons;
    bool has_escape;
    bool has_long_number;
    struct err *e;
};

static enum status bad(struct err *e, size_t at, const char *what)
{
    return err_set(e, ERR_INVALID, "invalid json: %s at byte %zu", what, at);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The 4 digits of a \u escape; -1 when they are none. p may be read up to its NUL. */
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

/* At a backslash. */
static enum status scan_escape(struct scan *s)
{
    const char *p = s->text + s->at;
    s->has_escape = true;
    if (p[1] != 'u') {
        if (p[1] == 0 || !strchr("\"\\/bfnrt", p[1]))
            return bad(s->e, s->at, "unknown escape");
        s->at += 2;
        return OK;
    }
    int32_t c = hex4(p + 2);
    if (c < 0)
        return bad(s->e, s->at, "\\u without four hex digits");
    s->at += 6;
    if (!is_high_surrogate(c) && !is_low_surrogate(c))
        return OK;
    if (is_low_surrogate(c) || p[6] != '\\' || p[7] != 'u' || !is_low_surrogate(hex4(p + 8)))
        return bad(s->e, s->at - 6, "lone surrogate");
    s->at += 6;
    return OK;
}

static enum status scan_string(struct scan *s)
{
    size_t start = s->at++;
    s->n_values++;
    while (s->at < s->len) {
        uint8_t c = (uint8_t)s->text[s->at];
        if (c == '"') {
            s->at++;
            return OK;
        }
        if (c == 0)
            return bad(s->e, s->at, "raw nul byte");
        if (c < 0x20)
            return bad(s->e, s->at, "raw control character in a string");
        if (c == '\\') {
            enum status st = scan_escape(s);
            if (st)
                return st;
        } else if (c < 0x80) {
            s->at++;
        } else {
            uint32_t code_point;
            int n = utf8_decode((struct str){s->text + s->at, s->len - s->at}, &code_point);
            if (n == 0)
                return bad(s->e, s->at, "invalid utf-8");
            s->at += (size_t)n;
        }
    }
    return bad(s->e, start, "string without an end");
}

static size_t skip_digits(const struct scan *s, size_t at)
{
    while (at < s->len && is_digit(s->text[at]))
        at++;
    return at;
}

static enum status scan_number(struct scan *s)
{
    size_t start = s->at;
    const char *t = s->text; /* NUL-terminated: t[len] may be looked at */
    size_t at = start + (t[start] == '-');
    size_t end = skip_digits(s, at);
    if (end == at || (t[at] == '0' && end - at > 1))
        return bad(s->e, start, end == at ? "minus without a digit" : "number with a leading zero");
    at = end;
    if (t[at] == '.') {
        end = skip_digits(s, at + 1);
        if (end == at + 1)
            return bad(s->e, start, "number without a digit after its point");
        at = end;
    }
    if (t[at] == 'e' || t[at] == 'E') {
        at += 1 + (t[at + 1] == '+' || t[at + 1] == '-');
        end = skip_digits(s, at);
        if (end == at)
            return bad(s->e, start, "number without a digit in its exponent");
        at = end;
    }
    s->n_values++;
    s->has_long_number |= at - start > CJSON_NUMBER_MAX;
    s->at = at;
    return OK;
}

static enum status scan_word(struct scan *s)
{
    static const struct str words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    struct str rest = {s->text + s->at, s->len - s->at};
    for (size_t i = 0; i < 3; i++) {
        if (str_starts(rest, words[i])) {
            s->at += words[i].len;
            s->n_values++;
            return OK;
        }
    }
    if (rest.ptr[0] == 0)
        return bad(s->e, s->at, "raw nul byte");
    if ((uint8_t)rest.ptr[0] >= 0x80 && utf8_error_at(rest) == 0)
        return bad(s->e, s->at, "invalid utf-8");
    return bad(s->e, s->at, "unexpected character");
}

static enum status scan_token(struct scan *s, const struct json_limits *limits)
{
    char c = s->text[s->at];
    if (c == '"')
        return scan_string(s);
    if (c == '-' || is_digit(c))
        return scan_number(s);
    if (c == '{' || c == '[') {
        s->n_values++;
        if (s->depth++ == limits->depth)
            return err_set(s->e, ERR_INVALID,
                           "invalid json: nested deeper than the limit of %u at byte %zu",
                           (unsigned)limits->depth, s->at);
    } else if (c == '}' || c == ']') {
        if (s->depth-- == 0)
            return bad(s->e, s->at, "closing bracket without an opening one");
    } else if (c == ':') {
        s->n_colons++;
    } else if (c != ',') {
        return scan_word(s);
    }
    s->at++;
    return OK;
}

static enum status scan_all(struct scan *s, const struct json_limits *limits)
{
    while (s->at < s->len) {
        if (is_space(s->text[s->at])) {
            s->at++;
            continue;
        }
        enum status st = scan_token(s, limits);
        if (st)
            return st;
        /* Keys are counted with their colon one token later. */
        if (s->n_values > s->n_colons + limits->n_nodes + 1)
            break;
    }
    if (s->n_values > s->n_colons + limits->n_nodes)
        return err_set(s->e, ERR_INVALID, "invalid json: more than the limit of %u values",
                       (unsigned)limits->n_nodes);
    if (s->n_values == 0)
        return bad(s->e, s->len, "no value");
    return OK;
}

/* ---- pass 2 ---- */

/* A copy in which every number too long for cJSON is 0 and spaces. */
static char *without_long_numbers(const char *text, size_t len)
{
    char *copy = mem_dup(text, len);
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else
                in_string = text[i] != '"';
        } else if (text[i] == '"') {
            in_string = true;
        } else if (is_digit(text[i])) {
            struct scan number = {.text = text, .len = len, .at = i};
            CHECK(scan_number(&number) == OK);
            if (number.at - i >= CJSON_NUMBER_MAX) {
                memset(copy + i, ' ', number.at - i);
                copy[i] = '0';
            }
            i = number.at - 1;
        }
    }
    return copy;
}

static enum status check_grammar(const struct json_doc *doc, const struct scan *s)
{
    char *copy = s->has_long_number ? without_long_numbers(doc->text, s->len) : NULL;
    const char *text = copy ? copy : doc->text;
    const char *end = text;
    cjson_starved = false;
    cJSON *tree = cJSON_ParseWithLengthOpts(text, s->len + 1, &end, false);
    size_t at = end ? (size_t)(end - text) : 0;
    bool parsed = tree != NULL;
    cJSON_Delete(tree);
    while (parsed && at < s->len && is_space(text[at]))
        at++;
    mem_free(copy);
    if (!parsed && cjson_starved)
        return err_set(s->e, ERR_NO_MEMORY, "out of memory for a json text of %zu bytes", s->len);
    if (!parsed)
        return bad(s->e, at, at >= s->len ? "unexpected end" : "syntax error");
    if (at < s->len)
        return bad(s->e, at, "text after the value");
    return OK;
}

/* ---- pass 3 ---- */

struct level {
    struct json *container;
    struct json *last; /* last member so far, NULL before the first */
};

struct build {
    struct json_doc *doc;
    const char *at; /* in doc->text; its NUL ends the walk */
    char *decoded; /* where the next decoded string goes */
    struct level *levels;
    uint32_t depth; /* open containers */
    size_t cap_nodes; /* of doc->nodes */
};

/* Decodes the string that starts at the quote *p and moves *p behind it. */
static struct str decode_string(struct build *b, const char **p)
{
    const char *from = *p + 1;
    size_t plain = strcspn(from, "\"\\");
    if (from[plain] == '"') {
        *p = from + plain + 1;
        return (struct str){from, plain};
    }
    char *start = b->decoded, *to = start;
    while (*from != '"') {
        if (*from != '\\') {
            *to++ = *from++;
            continue;
        }
        from++;
        static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
        const char *name = strchr(names, *from);
        if (*from == 'u') {
            uint32_t c = (uint32_t)hex4(from + 1);
            from += 5;
            if (is_high_surrogate((int32_t)c)) {
                c = 0x10000 + ((c - 0xD800) << 10) + ((uint32_t)hex4(from + 2) - 0xDC00);
                from += 6;
            }
            to += utf8_encode(c, to);
        } else {
            *to++ = name ? values[name - names] : *from;
            from++;
        }
    }
    *p = from + 1;
    b->decoded = to;
    return (struct str){start, (size_t)(to - start)};
}

static void skip_space(struct build *b)
{
    while (is_space(*b->at))
        b->at++;
}

static enum json_type type_at(const char *p)
{
    switch (*p) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    default:
        return JSON_NUMBER;
    }
}

/* Reads "key": of a member; false when the text has something else there. */
static bool build_key(struct build *b, struct json *v)
{
    if (*b->at != '"')
        return false;
    v->key = decode_string(b, &b->at);
    skip_space(b);
    if (*b->at != ':')
        return false;
    b->at++;
    skip_space(b);
    return *b->at && !strchr(",:]}", *b->at);
}

/* Bytes of a number or word that the scan has checked. */
static size_t scalar_len(const char *at, enum json_type type)
{
    if (type != JSON_NUMBER)
        return type == JSON_FALSE ? 5 : 4;
    struct scan number = {.text = at, .len = SIZE_MAX};
    CHECK(scan_number(&number) == OK);
    return number.at;
}

/* Reads one value; a container is opened: its members follow. */
static bool build_value(struct build *b)
{
    if (b->doc->n_nodes == b->cap_nodes)
        return false;
    struct json *v = &b->doc->nodes[b->doc->n_nodes++];
    *v = (struct json){0};
    struct level *level = b->depth ? &b->levels[b->depth - 1] : NULL;
    if (level) {
        if (level->container->type == JSON_OBJECT && !build_key(b, v))
            return false;
        if (level->last)
            level->last->to_next = (uint32_t)(v - level->last);
        level->last = v;
        level->container->n_members++;
    }
    v->type = type_at(b->at);
    v->raw.ptr = b->at;
    if (v->type == JSON_OBJECT || v->type == JSON_ARRAY) {
        b->levels[b->depth++] = (struct level){v, NULL};
        b->at++;
        return true;
    }
    if (v->type == JSON_STRING)
        v->string = decode_string(b, &b->at);
    else
        b->at += scalar_len(b->at, v->type);
    v->raw.len = (size_t)(b->at - v->raw.ptr);
    return true;
}

static bool build_close(struct build *b)
{
    struct json *closed = b->levels[b->depth - 1].container;
    if (*b->at != (closed->type == JSON_OBJECT ? '}' : ']'))
        return false;
    b->depth--;
    b->at++;
    closed->raw.len = (size_t)(b->at - closed->raw.ptr);
    return true;
}

/* False, with b->at at the place, when the text is not one value. cJSON has found it to be one
 * before: the walk does not take its word, since a parser that lets more pass must not bring the
 * process down. */
static bool build_all(struct build *b)
{
    bool after_value = false; /* a comma or the end of the container is next */
    bool after_comma = false;
    for (skip_space(b); *b->at; skip_space(b)) {
        bool closes = *b->at == '}' || *b->at == ']';
        if (closes ? b->depth == 0 || after_comma || !build_close(b)
                   : *b->at == ',' && (b->depth == 0 || !after_value))
            return false;
        if (closes) {
            after_value = true;
        } else if (*b->at == ',') {
            b->at++;
            after_value = false;
            after_comma = true;
        } else {
            uint32_t depth = b->depth;
            if (after_value || *b->at == ':' || !build_value(b))
                return false;
            after_value = b->depth == depth;
            after_comma = false;
        }
    }
    return after_value && b->depth == 0;
}

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

/* scratch holds as many pointers as the object has members. */
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

static enum status build_doc(struct json_doc *doc, const struct scan *s,
                             const struct json_limits *limits)
{
    if (s->n_values <= s->n_colons)
        return bad(s->e, s->len, "syntax error");
    size_t n_nodes = (size_t)(s->n_values - s->n_colons);
    doc->nodes = mem_try_alloc(mem_mul(n_nodes, sizeof(*doc->nodes)));
    doc->decoded = s->has_escape ? mem_try_alloc(s->len) : NULL;
    struct level *levels = mem_try_alloc(mem_mul((size_t)limits->depth + 1, sizeof(*levels)));
    enum status st = OK;
    if (!doc->nodes || !levels || (s->has_escape && !doc->decoded)) {
        st = err_set(s->e, ERR_NO_MEMORY, "out of memory for a json text of %zu bytes", s->len);
    } else {
        struct build b = {doc, doc->text, doc->decoded, levels, 0, n_nodes};
        st = build_all(&b) ? check_all_keys(doc, s->e)
                           : bad(s->e, (size_t)(b.at - doc->text), "syntax error");
    }
    mem_free(levels);
    return st;
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
    struct scan s = {.text = doc->text, .len = text.len, .e = e};
    enum status st = scan_all(&s, &limits);
    if (st == OK)
        st = check_grammar(doc, &s);
    if (st == OK)
        st = build_doc(doc, &s, &limits);
    if (st == OK)
        *out = doc;
    else
        json_free(doc);
    return st;
}

void json_free(struct json_doc *doc)
{
    if (!doc)
        return;
    mem_free(doc->text);
    mem_free(doc->decoded);
    mem_free(doc->nodes);
    mem_free(doc);
}

/* ---- looking at values ---- */

const struct json *json_root(const struct json_doc *doc)
{
    return &doc->nodes[0];
}

enum json_type json_type(const struct json *v)
{
    return v->type;
}

bool json_is(const struct json *v, enum json_type type)
{
    return v && v->type == type;
}

struct str json_string(const struct json *v)
{
    CHECK(v->type == JSON_STRING);
    return v->string;
}

struct str json_raw(const struct json *v)
{
    return v->raw;
}

double json_double(const struct json *v)
{
    CHECK(v->type == JSON_NUMBER);
    return strtod_l(v->raw.ptr, NULL, c_locale);
}

/* A number as sign, digits and a power of ten: value = digits * 10^exponent. */
struct decimal {
    bool negative;
    const char *digits; /* may hold one point */
    size_t n; /* bytes of digits */
    int64_t exponent;
};

static struct decimal decimal_of(struct str raw)
{
    struct decimal d = {.negative = raw.ptr[0] == '-'};
    d.digits = raw.ptr + d.negative;
    size_t n_all = raw.len - d.negative;
    while (d.n < n_all && (is_digit(d.digits[d.n]) || d.digits[d.n] == '.'))
        d.n++;
    if (d.n < n_all) {
        size_t i = d.n + 1;
        bool minus = d.digits[i] == '-';
        i += d.digits[i] == '-' || d.digits[i] == '+';
        for (; i < n_all; i++)
            if (d.exponent < 100000000)
                d.exponent = d.exponent * 10 + (d.digits[i] - '0');
        if (minus)
            d.exponent = -d.exponent;
    }
    const char *point = memchr(d.digits, '.', d.n);
    if (point)
        d.exponent -= (int64_t)(d.n - (size_t)(point - d.digits) - 1);
    return d;
}

/* False when not whole or over 2^64-1. */
static bool magnitude(const struct json *v, bool *negative, uint64_t *out)
{
    struct decimal d = decimal_of(v->raw);
    while (d.n && (d.digits[d.n - 1] == '0' || d.digits[d.n - 1] == '.')) {
        d.exponent += d.digits[d.n - 1] == '0';
        d.n--;
    }
    while (d.n && (d.digits[0] == '0' || d.digits[0] == '.')) {
        d.digits++;
        d.n--;
    }
    *negative = d.negative;
    *out = 0;
    if (d.n == 0)
        return true;
    if (d.exponent < 0 || d.exponent > 20)
        return false;
    uint64_t m = 0;
    for (size_t i = 0; i < d.n; i++)
        if (d.digits[i] != '.' && (__builtin_mul_overflow(m, 10u, &m) ||
                                   __builtin_add_overflow(m, (uint64_t)(d.digits[i] - '0'), &m)))
            return false;
    for (; d.exponent > 0; d.exponent--)
        if (__builtin_mul_overflow(m, 10u, &m))
            return false;
    *out = m;
    return true;
}

bool json_i64(const struct json *v, int64_t min, int64_t max, int64_t *out)
{
    bool negative;
    uint64_t m;
    if (!json_is(v, JSON_NUMBER) || !magnitude(v, &negative, &m))
        return false;
    if (m > (uint64_t)INT64_MAX + negative)
        return false;
    int64_t x = (int64_t)(negative ? 0 - m : m);
    if (x < min || x > max)
        return false;
    *out = x;
    return true;
}

bool json_u64(const struct json *v, uint64_t *out)
{
    bool negative;
    uint64_t m;
    if (!json_is(v, JSON_NUMBER) || !magnitude(v, &negative, &m) || (negative && m))
        return false;
    *out = m;
    return true;
}

size_t json_count(const struct json *v)
{
    return v->n_members;
}

const struct json *json_first(const struct json *v)
{
    return v->n_members ? v + 1 : NULL;
}

const struct json *json_next(const struct json *v)
{
    return v->to_next ? v + v->to_next : NULL;
}

struct str json_key(const struct json *v)
{
    return v->key;
}

const struct json *json_get(const struct json *v, const char *key)
{
    if (!json_is(v, JSON_OBJECT))
        return NULL;
    struct str wanted = str_of(key);
    for (const struct json *m = json_first(v); m; m = json_next(m))
        if (str_eq(m->key, wanted))
            return m;
    return NULL;
}

/* ---- writing ---- */

/* c is below U+10000. */
static void add_escape(struct buf *out, uint32_t c)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    const char *value = c && c < 0x80 ? strchr(values, (int)c) : NULL;
    if (value) {
        buf_add_char(out, '\\');
        buf_add_char(out, names[value - values]);
    } else {
        static const char hex[] = "0123456789abcdef";
        char text[6] = {'\\',       'u', hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15],
                        hex[c & 15]};
        buf_add(out, text, sizeof(text));
    }
}

/* Line ends of Unicode above ASCII: they may stand in JSON as they are, but readers of event streams
 * and logs that cut text by Unicode's rules would cut there. */
static bool is_line_end(uint32_t c)
{
    return c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* Bytes from the start of s that go out as they are. */
static size_t plain_len(struct str s)
{
    size_t i = 0;
    while (i < s.len) {
        uint8_t c = (uint8_t)s.ptr[i];
        uint32_t code_point;
        if (c < 0x20 || c == '"' || c == '\\')
            return i;
        int n = c < 0x80 ? 1 : utf8_decode((struct str){s.ptr + i, s.len - i}, &code_point);
        if (n == 0 || (c >= 0x80 && is_line_end(code_point)))
            return i;
        i += (size_t)n;
    }
    return i;
}

void json_add_escaped(struct buf *out, struct str s)
{
    while (s.len) {
        size_t n = plain_len(s);
        buf_add(out, s.ptr, n);
        s = (struct str){s.ptr + n, s.len - n};
        if (s.len == 0)
            return;
        uint32_t c;
        n = (size_t)utf8_decode(s, &c);
        if (n) {
            add_escape(out, c);
        } else {
            buf_add(out, "\xEF\xBF\xBD", 3);
            n = (size_t)utf8_malformed_len(s);
        }
        s = (struct str){s.ptr + n, s.len - n};
    }
}

void json_add_string(struct buf *out, struct str s)
{
    buf_add_char(out, '"');
    json_add_escaped(out, s);
    buf_add_char(out, '"');
}

void json_add_double(struct buf *out, double x)
{
    if (!isfinite(x)) {
        buf_add_c(out, "null");
        return;
    }
    /* 15 digits always survive the way through a normal double; subnormals hold fewer. */
    char text[40];
    locale_t old = uselocale(c_locale);
    for (int digits = fabs(x) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod_l(text, NULL, c_locale) == x)
            break;
    }
    uselocale(old);
    buf_add_c(out, text);
}

void json_add_value(struct buf *out, const struct json *v)
{
    bool in_string = false;
    for (size_t i = 0; i < v->raw.len; i++) {
        char c = v->raw.ptr[i];
        if (!in_string && is_space(c))
            continue;
        buf_add_char(out, c);
        if (in_string && c == '\\')
            buf_add_char(out, v->raw.ptr[++i]);
        else if (c == '"')
            in_string = !in_string;
    }
}
