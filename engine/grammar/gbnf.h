/* GBNF, llama.cpp's notation for grammars: `name ::= alternatives`, with literals, classes, groups, * + ? {m,n},
 * and comments from # to the line's end. Thread: any. */
#ifndef ENGINE_GRAMMAR_GBNF_H
#define ENGINE_GRAMMAR_GBNF_H

#include "engine/grammar/expr.h"

/* Sets rule 0 of x to the rule `root`. ERR_INVALID with line and column. */
enum status gbnf_expr(struct exprs *x, struct str text, struct err *e);

#endif
