/* Refusals: from a status (or an HTTP-only fault) to an HTTP code and OpenAI's error object.
 * The table is errors.def. Thread: any. */
#ifndef SERVER_ERRORS_H
#define SERVER_ERRORS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* Faults that exist only in HTTP; numbered apart from enum status. */
enum http_fault {
    HTTP_FRAMING = -101,
    HTTP_UNAUTHORIZED = -102,
    HTTP_METHOD = -103,
    HTTP_SLOW_REQUEST = -104,
    HTTP_MEDIA = -105,
    HTTP_CONNECTIONS = -106,
    HTTP_FORBIDDEN = -107,
    HTTP_HEAD = -108,
    HTTP_EXPECT = -109,
    HTTP_VERSION = -110,
    HTTP_HOST = -111,
    HTTP_ORIGIN = -112
};

struct problem {
    int id; /* enum status or enum http_fault */
    int http;
    const char *type;
    const char *code;
    uint32_t retry_after_s; /* 0: no header */
};

/* The row of an id; an unknown id gives the row of ERR_INTERNAL. */
const struct problem *problem_find(int id);
const struct problem *problem_at(size_t i); /* NULL behind the last row */

/* Appends {"error":{"message","type","param","code"}}. extra: more members of the inner object,
 * beginning with a comma, or "". */
void problem_add_json(struct buf *out, const struct problem *p, const struct err *e,
                      const char *extra);

#endif
