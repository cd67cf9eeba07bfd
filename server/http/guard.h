/* Framing that libmicrohttpd 0.9.75 lets pass but that two parsers could read in two ways (request
 * smuggling): checked in the first handler call of each request. Pure; thread: any. */
#ifndef SERVER_HTTP_GUARD_H
#define SERVER_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct guard {
    uint32_t n_length, n_encoding, n_host; /* headers seen */
    bool bad_name, bad_length, other_encoding, chunked, expects_continue;
    uint64_t length; /* Content-Length; UINT64_MAX when absent */
    size_t n_bytes; /* about what libmicrohttpd keeps of the head */
};

void guard_init(struct guard *g);
/* One header field as parsed; lengths exclude the NUL. */
void guard_header(struct guard *g, const char *name, size_t n_name, const char *value,
                  size_t n_value);
/* One argument of the query. */
void guard_argument(struct guard *g, size_t n_name, size_t n_value);
/* After the last one. ERR_INVALID says what is wrong with the framing. */
enum status guard_check(const struct guard *g, const char *http_version, struct err *e);

#endif
