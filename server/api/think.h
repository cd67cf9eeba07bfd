/* Reasoning in front of an answer, <think>...</think>, split from the rest while it streams. Blanks around both parts
 * are dropped; text without the marks comes out unchanged, however it was cut. Thread: one at a time. */
#ifndef SERVER_API_THINK_H
#define SERVER_API_THINK_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

#define THINK_OPEN "<think>"
#define THINK_CLOSE "</think>"

struct think {
    enum {
        THINK_START, /* nothing but blanks came */
        THINK_INSIDE,
        THINK_AFTER, /* behind the closing mark, nothing but blanks came */
        THINK_OVER
    } state;
    bool said; /* some reasoning was given */
    struct buf held; /* owns; bytes that are not decided yet */
};

/* Appends what is decided to reasoning and to rest. */
void think_feed(struct think *t, struct str text, struct buf *reasoning, struct buf *rest);
/* No more text comes. */
void think_end(struct think *t, struct buf *reasoning, struct buf *rest);
/* Does a text end within reasoning, as a prompt that opens it does? */
bool think_is_open(struct str text);

#endif
