/* The vocabulary as a byte tree, walked once per token mask. Made once per tokenizer; read-only afterwards. */
#ifndef ENGINE_GRAMMAR_VOCAB_H
#define ENGINE_GRAMMAR_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/text/text.h"

enum { GRAM_PLAIN_CHARS = 16 };

/* Nodes in preorder: a node's children follow it, and `skip` leads past all of them. Node 0 is the root. */
struct gram_tree {
    uint32_t n_nodes;
    uint8_t *byte; /* owns [n_nodes]: the last byte of the node's text */
    uint8_t *depth; /* owns [n_nodes]: bytes of its text */
    uint32_t *skip; /* owns [n_nodes] */
    int32_t *token; /* owns [n_nodes]: the token with the node's text, or -1 */
};

struct gram_vocab {
    const struct tokenizer *tok; /* borrows */
    uint32_t n_vocab, n_words; /* tokens; 32-bit words of a mask */
    struct gram_tree all, rest; /* all tokens; those that are not plain */
    uint32_t *
        plain_mask; /* owns [n_words]: tokens of at most GRAM_PLAIN_CHARS whole code points, none of which a
                           * JSON string must escape: all are allowed in the middle of a string */
    int32_t *twin; /* owns [n_vocab]: another token with the same bytes, or -1 */
    uint32_t *end_mask; /* owns [n_words]: tokens that end an answer */
    bool drops_space; /* a first token is shown without its leading space (tokenizer_shown) */
    int32_t
        *odd; /* owns [n_odd]: tokens whose leading space is kept even there: not allowed first */
    uint32_t n_odd;
};

/* Control, unknown and unused tokens, and tokens of more than 255 bytes, are not in the tree: they never
 * match. */
struct gram_vocab *gram_vocab_new(const struct tokenizer *tok);
void gram_vocab_free(struct gram_vocab *v); /* NULL is fine */

#endif
