/* Internals of schema*.c. A conjunction is a list of schema objects that must all hold: a schema, the ones added
 * by its $ref and allOf, and the current branch of its anyOf or oneOf. */
#ifndef ENGINE_GRAMMAR_SCHEMA_INT_H
#define ENGINE_GRAMMAR_SCHEMA_INT_H

#include "base/json.h"
#include "engine/grammar/expr.h"

enum {
    CONJ_MAX = 24,
    SCHEMA_MAX_DEPTH = 64,
    SCHEMA_MAX_VISITS = 1 << 16,
    SCHEMA_MAX_MEMBERS = 1 << 12, /* of one object in it: members are looked up one by one */
    SCHEMA_MAX_COMPARED = 1 << 20, /* members and values, to see what excludes what */
    KEYWORD_STEPS = 24 /* to find the meaning of a keyword */
};

enum type_bit {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127
};

struct conj {
    const struct json *node[CONJ_MAX]; /* objects; a schema `true` adds none */
    uint32_t n;
    uint32_t n_expanded; /* number of them whose $ref and allOf have been added */
    uint32_t branched; /* bit i: a branch of node[i]'s anyOf or oneOf is among the nodes */
};

struct ref_rule {
    const struct json *target;
    uint32_t rule;
};

/* Members with the same schema, as text, share what follows their name: where they belong to different branches, a text
 * is at one place then, and not at one for each. */
struct shared_value {
    struct str raw; /* borrows */
    uint32_t hash;
    expr_id id;
};

struct schema {
    struct exprs *x;
    const struct json *root;
    struct ref_rule *ref; /* owns */
    uint32_t n_refs, cap_refs;
    struct shared_value *shared; /* owns */
    uint32_t n_shared, cap_shared;
    uint32_t depth, n_visits, n_compared;
    uint32_t any_value; /* rule, 0: not made yet */
    uint32_t string; /* rule for any string, likewise */
    bool failed;
    struct err *e;
};

/* ---- schema.c ---- */
/* Records the first error, with the pointer of node. Returns an expression that matches nothing. */
expr_id schema_fail(struct schema *s, enum status status, const struct json *node, const char *key,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Gives the expressions' first error a place: that of node. */
expr_id schema_place_error(struct schema *s, const struct json *node);
/* Counts steps of compiling before they are taken; false, and an error, when they are too many, or an error was before. */
bool schema_spend(struct schema *s, const struct json *node, uint64_t n_steps);
expr_id schema_value(struct schema *s, const struct json *node); /* a schema: object or boolean */
expr_id schema_all(struct schema *s, const struct json *const *node,
                   uint32_t n); /* all must hold */
/* The types that a schema's `type` leaves. */
uint32_t schema_types(struct schema *s, const struct json *node);

/* ---- schema_parts.c ---- */
expr_id schema_space(struct schema *s);
expr_id schema_any_value(struct schema *s);
expr_id schema_any_string(struct schema *s);
expr_id schema_literal(struct schema *s, const struct json *value); /* const, and members of enum */
struct str schema_text(struct schema *s, struct str text,
                       struct buf *out); /* quoted and escaped, in out */

/* ---- schema_conj.c ---- */
/* The only value of a keyword in a conjunction, NULL when none has it; several that differ are refused. */
const struct json *conj_one(struct schema *s, const struct conj *c, const char *key);
bool conj_has(const struct conj *c, const char *key);
/* A non-negative integer keyword: the largest (of minima) or the smallest value; false: no node has it. */
bool conj_count(struct schema *s, const struct conj *c, const char *key, bool largest,
                uint32_t *out);
/* An error for keywords that cannot be honoured. */
void conj_check_keywords(struct schema *s, const struct json *node);
/* True when the schema has no keywords but a, b and annotations. */
bool conj_only_has(struct schema *s, const struct json *node, const char *a, const char *b);
/* False: nothing matches, or an error occurred. */
bool conj_add(struct schema *s, struct conj *c, const struct json *node);
bool conj_expand(struct schema *s, struct conj *c); /* adds the schemas of $ref and allOf */

/* ---- schema_apart.c ---- */
/* False, and an error, when two branches of a oneOf are not seen to exclude one another. */
bool schema_check_one_of(struct schema *s, const struct json *node, const struct json *list);

/* ---- schema_ref.c ---- */
/* What a $ref points to; NULL, and an error, for nothing or a form that is not supported. */
const struct json *schema_target(struct schema *s, const struct json *node);
expr_id schema_ref_rule(struct schema *s, const struct json *target); /* one rule per target */

/* ---- per type ---- */
expr_id schema_object(struct schema *s, const struct conj *c);
/* Fails where an object has too many members to look each up by reading them all. */
void schema_check_sizes(struct schema *s, const struct json *node);
expr_id schema_array(struct schema *s, const struct conj *c);
expr_id schema_string(struct schema *s, const struct conj *c);
expr_id schema_number(struct schema *s, const struct conj *c, bool integer);

#endif
