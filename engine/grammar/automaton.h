/* A grammar as tables: one deterministic automaton per rule over byte classes, with calls between them
 * (a recursive transition network). match.c runs it with a stack of return states.
 *
 * The states of all rules share one numbering, from 1; 0 is dead. A state may have byte transitions, calls,
 * and be final (its rule may end here). Left recursion is refused, so that entering a state follows a
 * bounded number of calls. No state is a dead end: from each, its rule can be ended. Read-only once built. */
#ifndef ENGINE_GRAMMAR_AUTOMATON_H
#define ENGINE_GRAMMAR_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/grammar/expr.h"

enum {
    AUTOMATON_MAX_STATES = 65535,
    AUTOMATON_MAX_BYTES = 16 << 20, /* limit of the transition table, in bytes */
    AUTOMATON_NEED_MAX = 255
};

struct automaton_call {
    uint16_t rule, back; /* the state to continue in when the rule has ended */
};

enum { STATE_READS = 1, STATE_FINAL = 2, STATE_CALLS = 4 };

struct automaton {
    uint8_t class_of[256]; /* byte -> class */
    uint32_t n_classes;
    uint32_t n_states; /* including the dead state */
    uint16_t *next; /* owns [n_states][n_classes] */
    uint8_t *flags; /* owns [n_states]: STATE_* */
    uint32_t *call0; /* owns [n_states + 1]: its calls are [call0[s], call0[s + 1]) */
    struct automaton_call *call; /* owns */
    bool *
        plain; /* owns [n_states]: accepts any GRAM_PLAIN_CHARS code points that a JSON string need not
                  * escape, and can continue after them */
    uint8_t *
        need; /* owns [n_states]: the fewest return states on the stack, beyond those there are, with which
                    * its rule can be ended; AUTOMATON_NEED_MAX: as many or more */
    uint16_t *start; /* owns [n_rules] */
    uint32_t n_rules;
};

/* ERR_TOO_LARGE with the limit, ERR_INVALID for left recursion, or the error in x. */
enum status automaton_build(struct exprs *x, struct automaton *out, struct err *e);
/* The last steps of automaton_build; errors go into x. */
void automaton_find_ends(struct automaton *a,
                         struct exprs *x); /* ends.c: dead ends, left recursion, need */
void automaton_find_plain(struct automaton *a, struct exprs *x); /* plain.c */
void automaton_release(struct automaton *a);
uint64_t automaton_bytes(const struct automaton *a);

static inline uint16_t automaton_next(const struct automaton *a, uint16_t state, uint8_t byte)
{
    return a->next[(uint32_t)state * a->n_classes + a->class_of[byte]];
}

#endif
