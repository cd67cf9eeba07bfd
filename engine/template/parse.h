/* The two halves of the template parser: expressions (expr.c, with tokens and nodes) and
 * statements (parse.c). */
#ifndef ENGINE_TEMPLATE_PARSE_H
#define ENGINE_TEMPLATE_PARSE_H

#include "engine/template/interp.h"

struct parser {
    struct tmpl *c;
    struct chat_template *t;
    const struct tm_token *tok; /* current */
    uint32_t depth;
    uint32_t loops; /* for loops around, within the same function */
    uint32_t fors; /* for statements around */
};

/* What the members of a tuple are. */
enum tm_tuple_of { OF_EXPRESSIONS, OF_OR, OF_TARGETS, OF_SET_TARGETS };

/* tp_is_ looks at the current token, tp_skip_ takes it when it fits, tp_want_ takes it or fails. */
bool tp_is_op(const struct parser *p, const char *op);
bool tp_is_name(const struct parser *p, const char *name);
bool tp_skip_op(struct parser *p, const char *op);
bool tp_skip_name(struct parser *p, const char *name);
__attribute__((noreturn)) void tp_unexpected(struct parser *p, const char *wanted);
void tp_want_op(struct parser *p, const char *op);
struct str tp_want_name(struct parser *p, const char *wanted);
void tp_want_block_end(struct parser *p);
void tp_enter(struct parser *p);
struct tm_node *tp_node_new(struct parser *p, enum tm_kind kind, uint32_t line);
void tp_nodes_add(struct parser *p, struct tm_nodes *l, struct tm_node *n);
void tp_add_child(struct parser *p, struct tm_node *n, struct tm_nodes *l, struct tm_node *child);
struct tm_node *tp_node_name(struct parser *p, uint32_t line, struct str name);
const struct tm_str *tp_literal(struct parser *p, struct str s);
struct tm_node *tp_tuple(struct parser *p, enum tm_tuple_of of, bool may_be_empty);
struct tm_node *tp_expression(struct parser *p);
struct tm_node *tp_one_filter(struct parser *p, struct tm_node *of);

#endif
