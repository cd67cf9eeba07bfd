/* The body of a request while it arrives: its memory is taken from the ledger before it grows. Thread:
 * the loop's. */
#ifndef SERVER_HTTP_BODY_H
#define SERVER_HTTP_BODY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct exchange;

/* n bytes more. Errors of ledger_take: the body so far is let go then. */
enum status body_add(struct exchange *ex, const char *data, size_t n, struct err *e);
/* More than a loop should prepare. A few bytes can name much: a prefix that is kept here, a grammar to be
 * compiled (names of members may be escaped), or a list of prompts. */
bool body_may_be_large(const struct exchange *ex);
void body_release(struct exchange *ex); /* it was prepared, or is not wanted */

#endif
