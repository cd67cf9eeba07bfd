/* Calls of tools in the text of an answer, recognised while it streams, in the formats of toolcall.def.
 *
 * Text that is no call comes out unchanged, however it was cut. A call begins as soon as its name is known to be
 * one of the request's tools; from then on its arguments come out as they arrive, as pieces of one JSON object.
 * What is not decided yet is held, at most TOOLCALL_MAX_HELD bytes of it: longer text is no call.
 * Thread: one at a time. */
#ifndef SERVER_API_TOOLCALL_H
#define SERVER_API_TOOLCALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum { TOOLCALL_MAX_HELD = 16 << 10, TOOLCALL_MAX_NAME = 128, TOOLCALL_MAX_DEPTH = 64 };

enum toolcall_format {
#define X(id, opener, kind) TOOLCALL_##id,
#include "server/api/toolcall.def"
#undef X
    N_TOOLCALL_FORMATS
};

enum toolcall_kind { TOOLCALL_JSON, TOOLCALL_NAMED, TOOLCALL_PAIRS, TOOLCALL_PLAIN };

/* What comes out: neighbouring pieces of one kind are joined as far as one call of toolcall_feed brings them. */
struct toolcall_sink {
    void *arg;
    bool (*known)(void *arg, struct str name); /* a tool of the request? */
    void (*text)(void *arg, struct str text);
    void (*begin)(void *arg, struct str name);
    void (*arguments)(void *arg, struct str piece);
    void (*end)(void *arg);
};

/* The end of a JSON value. */
struct toolcall_scan {
    uint32_t depth;
    bool in_string, escaped;
};

/* Gemma's {key:value} on its way to JSON. */
struct toolcall_pairs {
    uint64_t lists; /* bit d: the container d levels deep is a list */
    uint32_t depth;
    uint8_t state; /* enum pairs_state in toolcall_pairs.c */
    uint8_t n_word;
    char word[64]; /* a value without marks */
};

struct toolcall {
    struct toolcall_sink sink;
    struct buf in; /* owns; bytes that are not decided yet, from `start` on */
    size_t start, at; /* at: next byte to look at */
    struct buf run; /* owns; pieces that are told together */
    bool run_is_text;
    bool ended; /* no more bytes come */
    bool said_text; /* something but blanks came out as text */
    uint32_t n_calls;

    uint8_t state; /* enum state in toolcall.c */
    enum toolcall_format format;
    bool is_list;
    /* of the call at hand */
    bool begun;
    uint8_t head; /* enum head in toolcall.c */
    bool inner; /* inside "function": {...} */
    char key[16], name[TOOLCALL_MAX_NAME];
    uint32_t n_key, n_name;
    size_t body, args_from, args_to; /* places in `in`; args_to 0: no arguments yet */
    struct toolcall_scan scan;
    struct toolcall_pairs pairs;
};

void toolcall_init(struct toolcall *p, const struct toolcall_sink *sink);
/* The prompt ended with the opener of this format: the answer begins behind it. */
void toolcall_opened(struct toolcall *p, enum toolcall_format format);
void toolcall_release(struct toolcall *p);
void toolcall_feed(struct toolcall *p, struct str text);
/* No more text comes: what is held comes out as text, a call that was cut off ends as it is. */
void toolcall_end(struct toolcall *p);

/* An id for call number n of a choice: call_ and hex digits, or 9 letters and digits, as Mistral's templates ask. */
enum { TOOLCALL_ID_CAP = 32 };
void toolcall_id(const char *answer, uint32_t choice, uint32_t n, bool is_short,
                 char out[TOOLCALL_ID_CAP]);

/* ---- between toolcall.c and toolcall_pairs.c ---- */
enum toolcall_step { STEP_MORE, STEP_WAIT, STEP_DONE };
void toolcall_pairs_begin(struct toolcall_pairs *g, struct buf *out);
/* Reads from in[*at] on and appends JSON to out. WAIT: nothing was read, more bytes are needed. */
enum toolcall_step toolcall_pairs_step(struct toolcall_pairs *g, struct str in, size_t *at,
                                       bool ended, struct buf *out);

#endif
