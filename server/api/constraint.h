/* The fields that constrain the output: response_format and its relatives of other servers. Thread: any but a
 * loop's: compiling takes milliseconds. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include "base/status.h"
#include "engine/grammar/compile.h"
#include "server/api/fields.h"

struct gram_owner;
struct grammar;
struct json_doc;
struct service;

/* What a request asks for. */
struct constraint {
    const char *field; /* NULL: nothing */
    enum grammar_kind kind;
    const struct json *source; /* borrows from the body, or from doc */
    struct json_doc *doc; /* owns, or NULL: of a schema that came as text */
};

/* ERR_INVALID or ERR_UNSUPPORTED with the field in e->param. Call constraint_release in any case. */
enum status constraint_take(const struct params *p, struct constraint *out, struct err *e);
void constraint_release(struct constraint *c);
/* Compiles what was taken, as grammars_get. */
enum status constraint_compile(const struct service *service, struct constraint *c,
                               const struct gram_owner *owner, struct grammar **out, struct err *e);

/* *out: what the output must match, in use; NULL: nothing was asked for. ERR_INVALID or ERR_UNSUPPORTED with the field
 * in e->param, when two fields ask for something, or when it cannot be honoured; or errors of ledger_take. */
enum status constraint_read(const struct service *service, const struct params *p,
                            const struct gram_owner *owner, struct grammar **out, struct err *e);

#endif
