/* A request body -> struct params, or one precise 400. The table is fields.def. Thread: any. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

/* Letters of the apis column. */
enum api {
    API_CHAT = 'C',
    API_COMPLETIONS = 'P',
    API_TOKENIZE = 'T',
    API_DETOKENIZE = 'D',
    API_PREFIXES = 'N',
    API_GRAMMAR = 'G'
};

enum field_id {
#define X(id, apis, name, type, member, min, max, def, doc) FIELD_##id,
#include "server/api/fields.def"
#undef X
    N_FIELDS
};

enum field_type {
    FIELD_TYPE_BOOL,
    FIELD_TYPE_INT,
    FIELD_TYPE_CUT, /* an integer, of any size: max stands for larger ones */
    FIELD_TYPE_NUM,
    FIELD_TYPE_STR,
    FIELD_TYPE_SEED,
    FIELD_TYPE_JSON,
    FIELD_TYPE_OPTIONS,
    FIELD_TYPE_LATER,
    FIELD_TYPE_HARMLESS
};

struct field {
    const char *apis;
    const char *name;
    enum field_type type;
    size_t offset; /* in struct params; 0 for types that store nothing */
    double min, max;
    const char *def;
    const char *doc;
};
extern const struct field fields[N_FIELDS];

/* What a row adds to struct params; strings and JSON borrow from the body. */
#define FIELD_MEMBER_BOOL(member) bool member;
#define FIELD_MEMBER_INT(member) int64_t member;
#define FIELD_MEMBER_CUT(member) int64_t member;
#define FIELD_MEMBER_NUM(member) double member;
#define FIELD_MEMBER_STR(member) struct str member;
#define FIELD_MEMBER_SEED(member) uint64_t member;
#define FIELD_MEMBER_JSON(member) const struct json *member;
#define FIELD_MEMBER_OPTIONS(member)                                                               \
    const struct json *member;                                                                     \
    bool include_usage, continuous_usage;
#define FIELD_MEMBER_LATER(member)
#define FIELD_MEMBER_HARMLESS(member)

struct params {
    bool given[N_FIELDS]; /* present and not null */

#define X(id, apis, name, type, member, min, max, def, doc) FIELD_MEMBER_##type(member)
#include "server/api/fields.def"
#undef X
    const struct kv_named_prefix *named; /* what `prefix` names; see prefix.h */
};

/* The defaults of the table. Where another takes its place on an endpoint or model, given[] decides. */
void params_init(struct params *p);
/* body: an object. Names of fields that no row knows are appended to ignored, joined by ", ", safe for
 * a header, at most IGNORED_MAX_BYTES. */
enum { IGNORED_MAX_BYTES = 512 };
enum status params_read(struct params *p, enum api api, const struct json *body,
                        struct buf *ignored, struct err *e);

#endif
