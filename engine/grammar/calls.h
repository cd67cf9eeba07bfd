/* Calls of tools as an expression: the format around them comes as texts, their arguments as JSON schemas.
 * Thread: any. */
#ifndef ENGINE_GRAMMAR_CALLS_H
#define ENGINE_GRAMMAR_CALLS_H

#include "base/json.h"
#include "engine/grammar/expr.h"

/* source: {"open", "separator", "close": texts, "most": calls at most, "calls": [{"begin", "end": texts,
 * "schema": of an object, "place": its JSON path in the request}]}. The output is open, 1 to `most` calls with
 * the separator between them, close. Sets rule 0 of x. Errors: schema_expr's, with the place in e->param. */
enum status calls_expr(struct exprs *x, const struct json *source, struct err *e);

#endif
