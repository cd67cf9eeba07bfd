/* Regular expressions as expressions: ECMA-262's syntax without the parts that no finite automaton can match.
 *
 * Accepted: literals, '.', classes, \d \D \w \W \s \S, escapes (\n \t \r \f \v \0 \xHH \uHHHH \u{H...} and any
 * punctuation), groups (capturing, named, (?:...)), alternation, * + ? {m} {m,} {m,n} and their lazy forms, ^ and $ at
 * the ends of the pattern. Refused by name and position: back references, look-around, \b and \B, \p{...},
 * anchors elsewhere. Thread: any. */
#ifndef ENGINE_GRAMMAR_REGEX_H
#define ENGINE_GRAMMAR_REGEX_H

#include "engine/grammar/expr.h"

/* How a code point of the matched text is written in the output. */
enum regex_form {
    REGEX_PLAIN, /* as itself */
    REGEX_JSON /* as inside a JSON string: quotes, backslashes and control characters escaped */
};

enum { REGEX_MAX_GROUPS = 200 }; /* limit of nested groups */

/* whole: the expression matches the whole text; otherwise it may match anywhere in it, unless it has ^ or $.
 * Errors go into x (exprs_fail) and into e: ERR_INVALID or ERR_UNSUPPORTED with the byte offset. */
expr_id regex_expr(struct exprs *x, struct str pattern, enum regex_form form, bool whole,
                   struct err *e);
/* Code points of a class in their form. */
expr_id regex_class(struct exprs *x, const struct expr_range *range, uint32_t n, bool negated,
                    enum regex_form form);

#endif
