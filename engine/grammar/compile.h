/* Compiles a request's constraint to a grammar. Thread: any except the engine's. */
#ifndef ENGINE_GRAMMAR_COMPILE_H
#define ENGINE_GRAMMAR_COMPILE_H

#include "base/json.h"
#include "engine/grammar/grammar.h"

enum grammar_kind {
    GRAMMAR_OBJECT, /* any JSON object; no source */
    GRAMMAR_SCHEMA, /* source: a JSON schema */
    GRAMMAR_REGEX, /* source: a string; the whole output matches it */
    GRAMMAR_CHOICE, /* source: an array of strings; the output is one of them */
    GRAMMAR_GBNF, /* source: a string of rules; matching starts at `root` */
    GRAMMAR_CALLS /* source: tool calls, see calls.h; made by the server, not checked */
};

/* Errors: ERR_INVALID, ERR_UNSUPPORTED, ERR_TOO_LARGE with the location (a JSON pointer, a byte offset, a line).
 * The cost of a grammar is bounded by the limits in expr.h and automaton.h. held (NULL: none): the memory that compiling
 * needs is taken from it, and given back; errors of ledger_take, which have their codes. */
enum status grammar_compile(enum grammar_kind kind, const struct json *source,
                            const struct gram_vocab *vocab, struct ledger_hold *held,
                            struct grammar **out, struct err *e);

#endif
