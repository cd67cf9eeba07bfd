/* Compiled grammars of a service: each schema, expression or grammar that requests name is compiled once and
 * kept while there is room for it. Thread: any but the engine's; compiling happens in the caller. */
#ifndef SERVER_GRAMMARS_H
#define SERVER_GRAMMARS_H

#include "base/ledger.h"
#include "engine/grammar/compile.h"

struct grammars;

/* ledger: what is kept is charged to it (NULL: nothing is). */
struct grammars *grammars_new(const struct tokenizer *tok, struct ledger *ledger);
void grammars_free(
    struct grammars *s); /* NULL is fine; no request may hold a grammar of it any more */

/* *out holds a reference. Errors as grammar_compile's. */
enum status grammars_get(struct grammars *s, enum grammar_kind kind, const struct json *source,
                         struct grammar **out, struct err *e);

#endif
