/* The first form of a rule: a nondeterministic automaton (Thompson's construction) over bytes and calls.
 * Only automaton.c uses it. */
#ifndef ENGINE_GRAMMAR_NFA_H
#define ENGINE_GRAMMAR_NFA_H

#include "engine/grammar/expr.h"

enum { NFA_MAX_EDGES = 1 << 21 };

enum nfa_kind { NFA_EMPTY, NFA_BYTES, NFA_CALL };

struct nfa_edge {
    uint32_t to, next; /* state; next edge of the same state, 0: none */
    uint16_t rule; /* NFA_CALL */
    uint8_t kind, first, last; /* NFA_BYTES: of a range */
};

struct nfa {
    uint32_t *edge0; /* owns; per state its first edge, 0: none */
    uint32_t n_states, cap_states;
    struct nfa_edge *edge; /* owns; [0] is unused */
    uint32_t n_edges, cap_edges;
    uint32_t *start, *end; /* own [n_rules]: states of each rule */
    struct exprs *x; /* borrows */
    bool failed; /* too many edges, or steps */
};

/* Builds all rules of x. False: the error is in x. Call nfa_release in any case. */
bool nfa_build(struct exprs *x, struct nfa *out);
void nfa_release(struct nfa *a);

#endif
