/* Texts that match a grammar, drawn without a model: for people who want to see what theirs allows. Thread: one at a
 * time. */
#ifndef ENGINE_GRAMMAR_EXAMPLES_H
#define ENGINE_GRAMMAR_EXAMPLES_H

#include "base/buf.h"
#include "engine/grammar/grammar.h"

enum { GRAM_EXAMPLE_MAX = 2048 /* bytes of an example */ };

struct gram_examples;

struct gram_examples *gram_examples_new(const struct grammar *g); /* g must stay in use */
void gram_examples_free(struct gram_examples *x); /* NULL is fine */
/* Appends a text that matches as a whole: the shortest for seed 0, else one that is a function of the seed and the
 * grammar. False, with nothing appended, when none of at most GRAM_EXAMPLE_MAX bytes was found in a bounded number of
 * steps. */
bool gram_example(struct gram_examples *x, uint64_t seed, struct buf *out);

#endif
