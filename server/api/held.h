/* Scored tokens whose text was not reported yet, because it may turn out to belong to a stop string: their
 * scores wait with it, so that the scores that are reported match the reported text.
 * One for each choice of a request that has stop strings. Thread: the loop of its job. */
#ifndef SERVER_API_HELD_H
#define SERVER_API_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/text/text.h"
#include "scheduler/request.h"

struct held {
    struct detok detok; /* tokens to text as the engine thread does it; tok NULL: not in use */
    struct buf text; /* scratch for it */
    uint64_t n_made; /* bytes of text that the tokens gave */
    uint64_t n_told; /* of them, reported */
    struct buf records; /* struct held_record, then alternatives */
    size_t at; /* first of records that was not taken */
};

void held_init(struct held *h, const struct tokenizer *tok, bool skip_special);
void held_release(struct held *h);
/* A token, with the text that it set free. shown: its own text counts; scored: it will be taken. */
void held_add(struct held *h, const struct event *ev, bool shown, bool scored);
/* The next token of whose text something was reported (all: the next one), or NULL. Without text of its
 * own, valid until the next call. */
const struct event *held_take(struct held *h, bool all);

#endif
