/* JSON Schema (draft 2020-12) as an expression over JSON text, fail closed: whatever matches the expression
 * validates against the schema. A schema that cannot be honoured is refused with a JSON pointer, never
 * relaxed.
 *
 * The other direction is not promised: of all documents that validate, the expression has one spelling.
 *   - members in the order of `properties`; those that are not declared only where `additionalProperties` (or
 *     a `patternProperties` alone) says what they are, or where no property is declared
 *   - white space after , : { [ and before } ]: none, one space, or a line end and up to 32 blanks
 *   - strings escape only what must be escaped; numbers have no leading +, and no exponent under a bound
 * Not supported, hence refused: not, if, contains, propertyNames, dependent*, unevaluated* (but for what
 * additionalProperties would say), $dynamicRef, $anchor, references to other documents, oneOf whose branches are not
 * seen to exclude one another, pattern beside a length, enum beside other assertions.
 * Unknown keywords are annotations, as the specification has it. Thread: any. */
#ifndef ENGINE_GRAMMAR_SCHEMA_H
#define ENGINE_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "engine/grammar/expr.h"

/* Sets rule 0 of x. Errors: ERR_INVALID or ERR_UNSUPPORTED with the pointer in the text, and in e->param as
 * far as it fits. The schema may be freed afterwards. */
enum status schema_expr(struct exprs *x, const struct json *schema, struct err *e);
/* *out: objects that validate, as an expression among others of x. Errors as above. */
enum status schema_add_object(struct exprs *x, const struct json *schema, expr_id *out,
                              struct err *e);
/* Any object (json_object), or any value. */
void schema_any_object(struct exprs *x);

#endif
