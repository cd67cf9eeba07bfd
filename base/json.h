/* Reading and writing JSON with limits.
 *
 * Reading is one pass over the text; strings keep their lengths (U+0000 included) and numbers their
 * digits (64-bit integers are exact). A document takes sizeof(struct json) bytes per value, up to
 * twice that while it is read, beside its text. It is read-only after parsing and may be read by
 * any thread; it owns all it hands out. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json_limits {
    uint32_t depth; /* nesting of containers, for instance 64 */
    uint32_t n_nodes; /* values in total, for instance 1 Mi */
};

struct json_doc;
struct json; /* one value inside a document; borrows from it */

/* Errors (ERR_INVALID) name the problem and its byte offset. Refused: raw NUL bytes, invalid UTF-8,
 * depth or number of values over the limit, anything but whitespace after the value, lone surrogates,
 * duplicate keys in one object, U+0000 in a key. A UTF-8 BOM is skipped. */
enum status json_parse(struct str text, struct json_limits limits, struct json_doc **out,
                       struct err *e);
void json_free(struct json_doc *doc); /* NULL is fine */
const struct json *json_root(const struct json_doc *doc);

enum json_type json_type(const struct json *v);
bool json_is(const struct json *v, enum json_type type); /* false for NULL */
struct str json_string(const struct json *v); /* decoded, may hold U+0000; CHECKs the type */
struct str json_raw(const struct json *v); /* source text of the value */
double json_double(const struct json *v); /* may be infinite for 1e400: test isfinite */
/* The exact integer given by the digits; forms such as 5.0 and 1e3 are accepted when whole. False when
 * the number is not whole or is outside [min, max]. json_u64 does the same up to 2^64-1. */
bool json_i64(const struct json *v, int64_t min, int64_t max, int64_t *out);
bool json_u64(const struct json *v, uint64_t *out);

size_t json_count(const struct json *v); /* members of an array or object */
const struct json *json_first(const struct json *v); /* first member, NULL when empty */
const struct json *json_next(const struct json *v); /* next sibling, NULL at the end */
struct str json_key(const struct json *v); /* key of a member of an object */
/* The member with exactly this key, or NULL. Linear search. */
const struct json *json_get(const struct json *v, const char *key);

/* Writing: these append to a buf. Malformed UTF-8 becomes U+FFFD; control characters and all Unicode
 * line ends are escaped. */
void json_add_string(struct buf *out, struct str s); /* with quotes */
void json_add_escaped(struct buf *out, struct str s); /* without quotes */
void json_add_double(struct buf *out,
                     double x); /* the shortest form that reads back the same; null if not finite */
void json_add_value(struct buf *out, const struct json *v); /* compact copy of a parsed value */

#endif
