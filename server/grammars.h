/* Compiled grammars of a service: each schema, expression or grammar that requests name is compiled once and kept.
 * Its memory is in the ledger from then until the last request that uses it has ended, and the cache has dropped it: on the
 * account of the key whose request first used it, or on nobody's while only the cache has it. What only the cache
 * has is dropped when other grammars need room. Thread: any but the engine's; compiling happens in the caller. */
#ifndef SERVER_GRAMMARS_H
#define SERVER_GRAMMARS_H

#include "base/ledger.h"
#include "engine/grammar/compile.h"

struct grammars;

struct grammars *grammars_new(const struct tokenizer *tok);
void grammars_free(
    struct grammars *s); /* NULL is fine; no request may hold a grammar of it any more */

/* *out: in use once more, until grammar_unref. Errors: those of ledger_take; or ERR_INVALID and ERR_UNSUPPORTED for a
 * source that cannot be honoured, which grammars_is_bad tells from the others. */
enum status grammars_get(struct grammars *s, enum grammar_kind kind, const struct json *source,
                         const struct gram_owner *owner, struct grammar **out, struct err *e);
bool grammars_is_bad(const struct err *e);
enum status grammars_bad(struct err *e); /* makes e such an error; returns its status */

#endif
