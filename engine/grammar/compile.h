/* From what a request says to a grammar. Thread: any but the engine's. */
#ifndef ENGINE_GRAMMAR_COMPILE_H
#define ENGINE_GRAMMAR_COMPILE_H

#include "base/json.h"
#include "engine/grammar/grammar.h"

enum grammar_kind {
    GRAMMAR_OBJECT, /* any JSON object; no source */
    GRAMMAR_SCHEMA, /* source: a JSON schema */
    GRAMMAR_REGEX, /* source: a string; the whole output matches it */
    GRAMMAR_CHOICE, /* source: an array of strings, one of which is the output */
    GRAMMAR_GBNF, /* source: a string of rules, the first being `root` */
    GRAMMAR_CALLS /* source: calls of tools, see calls.h; made by the server, not checked */
};

/* Errors: ERR_INVALID, ERR_UNSUPPORTED, ERR_TOO_LARGE with the place (a JSON pointer, a byte offset, a line);
 * what the grammar costs is bounded by the limits of expr.h and automaton.h. */
enum status grammar_compile(enum grammar_kind kind, const struct json *source,
                            const struct gram_vocab *vocab, struct grammar **out, struct err *e);

#endif
