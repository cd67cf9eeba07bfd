/* A grammar as tables: one deterministic automaton per rule over byte classes, with calls between them
 * (a recursive transition network). match.c runs it with a stack of return states.
 *
 * The states of all rules share one numbering, from 1; 0 is dead. A state may have byte transitions, calls,
 * and be final (its rule may end here). Left recursion is refused, so that entering a state follows a
 * bounded number of calls. Read-only once built. */
#ifndef ENGINE_GRAMMAR_AUTOMATON_H
#define ENGINE_GRAMMAR_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/grammar/expr.h"

enum {
    AUTOMATON_MAX_STATES = 65535,
    AUTOMATON_MAX_BYTES = 16 << 20, /* limit of the transition table, in bytes */
    AUTOMATON_MAX_WORK = 30 << 20 /* steps of building: seconds at worst, on a preparation thread */
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
    uint16_t *start; /* owns [n_rules] */
    uint32_t n_rules;
};

/* ERR_TOO_LARGE with the limit, ERR_INVALID for left recursion, or the error in x. */
/* n_steps: of building so far, counted on; several may share AUTOMATON_MAX_WORK. */
enum status automaton_build(const struct exprs *x, uint64_t *n_steps, struct automaton *out,
                            struct err *e);
void automaton_find_plain(struct automaton *a); /* plain.c; the last step of automaton_build */
void automaton_release(struct automaton *a);
uint64_t automaton_bytes(const struct automaton *a);

static inline uint16_t automaton_next(const struct automaton *a, uint16_t state, uint8_t byte)
{
    return a->next[(uint32_t)state * a->n_classes + a->class_of[byte]];
}

#endif
