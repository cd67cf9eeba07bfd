/* JSON Schema (draft 2020-12) as an expression over JSON text; fails closed: any text that matches the
 * expression validates against the schema. A schema that cannot be honoured is refused with a JSON pointer,
 * never relaxed.
 *
 * The converse does not hold: of all documents that validate, the expression accepts one spelling.
 *   - members in the order of `properties`; undeclared members only where `additionalProperties` (or
 *     `patternProperties` alone) describes them, or where no property is declared
 *   - white space after , : { [ and before } ]: none, one space, or a line end and up to 32 blanks
 *   - strings escape only what must be escaped; numbers have no leading +, and no exponent if they have a bound
 * Not supported, and hence refused: not, if, contains, propertyNames, dependent*, unevaluated* (except where it
 * means additionalProperties), $dynamicRef, $anchor, references to other documents, oneOf with branches that
 * cannot be shown to be mutually exclusive, pattern together with a length, enum together with other assertions.
 * Unknown keywords are annotations, as in the specification. Thread: any. */
#ifndef ENGINE_GRAMMAR_SCHEMA_H
#define ENGINE_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "engine/grammar/expr.h"

/* Sets rule 0 of x. Errors: ERR_INVALID or ERR_UNSUPPORTED with the pointer in the text, and in e->param as
 * much of it as fits. The schema may be freed afterwards. */
enum status schema_expr(struct exprs *x, const struct json *schema, struct err *e);
/* *out: objects that validate, as an expression among others of x. Errors as above. */
enum status schema_add_object(struct exprs *x, const struct json *schema, expr_id *out,
                              struct err *e);
/* Any object (json_object), or any value. */
void schema_any_object(struct exprs *x);

#endif
