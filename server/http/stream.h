/* Server-sent events, written straight to the socket while libmicrohttpd keeps the connection
 * suspended. Thread: the loop's. */
#ifndef SERVER_HTTP_STREAM_H
#define SERVER_HTTP_STREAM_H

#include <stdbool.h>

#include "base/buf.h"

struct exchange;

enum stream_state {
    STREAM_OPEN, /* more is to come */
    STREAM_BLOCKED, /* the socket takes no more */
    STREAM_ENDED, /* all is sent */
    STREAM_BROKEN /* the socket failed */
};

/* Writes what there is; out is scratch memory. */
enum stream_state stream_pump(struct exchange *ex, int fd, struct buf *out);
/* Writes a comment line that keeps proxies from closing a silent stream; in the queue it reports the
 * place there. */
enum stream_state stream_ping(struct exchange *ex, int fd, struct buf *out);

/* Room that stream_frame needs in front of the payload, and the framing itself: out holds
 * STREAM_HEAD_BYTES of anything, then the payload; returns the framed bytes. chunked: HTTP/1.1's chunk
 * around it, else the bare payload. */
enum { STREAM_HEAD_BYTES = 16 };
struct str stream_frame(struct buf *out, bool chunked);

#endif
