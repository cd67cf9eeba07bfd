/* The fields that constrain the output: response_format and its relatives of other servers. Thread: any but a
 * loop's: compiling takes milliseconds. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include "base/status.h"
#include "server/api/fields.h"

struct gram_owner;
struct grammar;
struct service;

/* *out: what the output must match, in use; NULL: nothing was asked for. ERR_INVALID or ERR_UNSUPPORTED with the field
 * in e->param, when two fields ask for something, or when it cannot be honoured; or errors of ledger_take. */
enum status constraint_read(const struct service *service, const struct params *p,
                            const struct gram_owner *owner, struct grammar **out, struct err *e);

#endif
