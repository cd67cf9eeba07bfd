/* Header values of a request. Thread: the loop's. */
#ifndef SERVER_HTTP_HEADERS_H
#define SERVER_HTTP_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct conn;

/* Without the blanks around it, which are no part of a value (RFC 9112 5.1); ptr is NULL when the header
 * is not there. Borrows from the request. */
struct str header_value(const struct conn *c, const char *name);
bool header_is(struct str value, const char *want); /* in any case */

/* How the body comes, as its head says; the gate has checked that it says one thing. */
struct body_framing {
    bool sized, chunked, expects_continue;
    uint64_t length; /* when sized */
};
struct body_framing header_framing(const struct conn *c);

#endif
