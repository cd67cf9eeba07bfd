/* Expressions over text: the common form of schemas, regular expressions and grammars before they become
 * an automaton (automaton.h).
 *
 * An expression is a number inside a struct exprs, which owns all expressions and the named rules that they
 * refer to; rules may be recursive. Text is UTF-8: a class holds code points, a literal holds bytes.
 * Builders do not fail individually: the first error (too many expressions) stays in `status`, and every later
 * call returns an expression that matches nothing, so callers need to check only once, at the end.
 * Thread: one at a time. */
#ifndef ENGINE_GRAMMAR_EXPR_H
#define ENGINE_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/status.h"
#include "base/str.h"

enum {
    EXPR_MAX =
        1 << 18, /* limit of expressions in a grammar, and of all their children and ranges */
    EXPR_MAX_RULES = 1 << 12,
    EXPR_MAX_REPEAT = 1 << 16, /* limit of a counted repetition; EXPR_MANY: unbounded */
    EXPR_MAX_DEPTH = 512,
    EXPRS_MAX_STEPS = 48 << 20 /* of one compilation: about 250 ms at worst on 2 vCPU EPYC Zen 4 */
};
#define EXPR_MANY UINT32_MAX

typedef uint32_t expr_id;

enum expr_kind {
    EXPR_NEVER, /* matches nothing */
    EXPR_EMPTY, /* matches the empty text */
    EXPR_CLASS, /* one code point from given ranges */
    EXPR_BYTES, /* a literal */
    EXPR_SEQ, /* children in sequence */
    EXPR_ALT, /* one of the children */
    EXPR_REPEAT, /* a child, min to max times */
    EXPR_RULE /* a named rule */
};

struct expr_range {
    uint32_t first, last; /* code points; surrogates are never matched */
};

struct expr {
    enum expr_kind kind;
    uint32_t at,
        n; /* its children, ranges or bytes in the arrays of struct exprs; EXPR_RULE: at is the rule's number */
    uint32_t min, max; /* EXPR_REPEAT */
    uint32_t depth; /* of the tree below it, without entering rules */
};

struct exprs {
    struct expr *expr; /* owns */
    uint32_t n, cap;
    expr_id *child; /* owns */
    uint32_t n_children, cap_children;
    struct expr_range *range; /* owns */
    uint32_t n_ranges, cap_ranges;
    char *byte; /* owns */
    uint32_t n_bytes, cap_bytes;
    expr_id *rule; /* owns; bodies of the rules; a match starts at rule 0 */
    uint32_t n_rules, cap_rules;
    uint64_t n_steps; /* of compiling so far, from the first notation to the last table */
    struct ledger_hold *
        held; /* borrows, or NULL: what compiling needs is taken from it, and given back at the end */
    struct err error; /* status is OK until the first error */
};

void exprs_init(struct exprs *x); /* with rule 0, whose body is EXPR_NEVER until it is set */
void exprs_release(struct exprs *x);

expr_id expr_never(struct exprs *x);
expr_id expr_empty(struct exprs *x);
/* Ranges need not be sorted; negated: all other code points. */
expr_id expr_class(struct exprs *x, const struct expr_range *range, uint32_t n, bool negated);
expr_id expr_literal(struct exprs *x, struct str bytes); /* valid UTF-8 */
expr_id expr_seq(struct exprs *x, const expr_id *child, uint32_t n);
expr_id expr_alt(struct exprs *x, const expr_id *child, uint32_t n); /* n = 0: never */
expr_id expr_repeat(struct exprs *x, expr_id child, uint32_t min, uint32_t max);
expr_id expr_rule(struct exprs *x, uint32_t rule);

/* Shorthands. */
expr_id expr_text(struct exprs *x, const char *c_string);
expr_id expr_seq2(struct exprs *x, expr_id a, expr_id b);
expr_id expr_seq3(struct exprs *x, expr_id a, expr_id b, expr_id c);
expr_id expr_alt2(struct exprs *x, expr_id a, expr_id b);
static inline expr_id expr_maybe(struct exprs *x, expr_id a)
{
    return expr_repeat(x, a, 0, 1);
}

uint32_t exprs_add_rule(struct exprs *x); /* returns the rule's number; its body is EXPR_NEVER */
void exprs_set_rule(struct exprs *x, uint32_t rule, expr_id body);
/* Marks x as failed (the first error stays). Returns an expression that matches nothing. */
expr_id exprs_fail(struct exprs *x, const struct err *e);

/* Grows an array of compiling from n to n_more items in all. A refusal of the ledger is an error of x; the array grows
 * all the same, once, and the error ends what fills it. */
void *exprs_grow(struct exprs *x, void *array, size_t n, size_t n_more, size_t size);
void exprs_take(struct exprs *x,
                uint64_t n_bytes); /* as exprs_grow, of memory that the caller allocates */
void exprs_give(struct exprs *x, uint64_t n_bytes);
bool exprs_overspent(struct exprs *x); /* false; the error names the limit */
/* Counts steps of compiling before they are taken: one is about 4 ns. False, and an error, when they are more than
 * EXPRS_MAX_STEPS. */
static inline bool exprs_spend(struct exprs *x, uint64_t n_steps)
{
    x->n_steps += n_steps;
    return x->n_steps <= EXPRS_MAX_STEPS || exprs_overspent(x);
}

/* A growing list of expressions, for callers that collect children. Zero-initialised is valid. */
struct expr_list {
    expr_id *id; /* owns */
    uint32_t n, cap;
};
void expr_list_add(struct expr_list *l, expr_id id);
void expr_list_release(struct expr_list *l);

#endif
