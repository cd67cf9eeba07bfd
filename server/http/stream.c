/* Direct writes of server-sent events; see stream.h. */
#include "server/http/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "config/ledger.h"
#include "server/exchange.h"
#include "server/api/job.h"
#include "server/limits.h"

struct str stream_frame(struct buf *out, bool chunked)
{
    size_t n = out->len - STREAM_HEAD_BYTES;
    if (!chunked)
        return (struct str){out->ptr + STREAM_HEAD_BYTES, n};
    char head[STREAM_HEAD_BYTES + 1];
    int n_head = snprintf(head, sizeof(head), "%zx\r\n", n);
    memcpy(out->ptr + STREAM_HEAD_BYTES - n_head, head, (size_t)n_head);
    buf_add_c(out, "\r\n");
    return (struct str){out->ptr + STREAM_HEAD_BYTES - n_head, n + (size_t)n_head + 2};
}

static void begin(struct buf *out)
{
    static const char room[STREAM_HEAD_BYTES];
    buf_clear(out);
    buf_add(out, room, sizeof(room));
}

/* Bytes taken, 0 when the socket is full, -1 when it failed. */
static ssize_t put(int fd, const char *p, size_t n)
{
    ssize_t k;
    do
        k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    return k;
}

static enum stream_state flush_stash(struct exchange *ex, int fd)
{
    while (ex->stash_at < ex->stash.len) {
        ssize_t k = put(fd, ex->stash.ptr + ex->stash_at, ex->stash.len - ex->stash_at);
        if (k <= 0)
            return k ? STREAM_BROKEN : STREAM_BLOCKED;
        ex->stash_at += (size_t)k;
    }
    ledger_give(&ex->held, LEDGER_ANSWERS, ex->n_stash_held);
    ex->n_stash_held = 0;
    buf_release(&ex->stash);
    ex->stash_at = 0;
    return STREAM_OPEN;
}

/* Without asking: stream_pump takes little at a time while memory is short. */
static void hold_stash(struct exchange *ex)
{
    size_t had = ex->job->n_echo_held;
    ex->n_stash_held = ex->stash.cap > had ? ex->stash.cap - had : 0;
    ledger_add(&ex->held, LEDGER_ANSWERS, ex->n_stash_held);
}

static enum stream_state write_frame(struct exchange *ex, int fd, struct buf *out)
{
    struct str frame = stream_frame(out, ex->http11);
    ssize_t k = put(fd, frame.ptr, frame.len);
    if (k < 0)
        return STREAM_BROKEN;
    ex->n_sent += frame.len;
    if ((size_t)k == frame.len)
        return STREAM_OPEN;
    buf_add(&ex->stash, frame.ptr + k, frame.len - (size_t)k);
    hold_stash(ex);
    return flush_stash(ex, fd);
}

/* What is taken in one go may have to be kept. */
static size_t take_bytes(const struct exchange *ex)
{
    return ledger_has_room(&ex->held, TAKE_BYTES) ? TAKE_BYTES : SCARCE_TAKE_BYTES;
}

enum stream_state stream_pump(struct exchange *ex, int fd, struct buf *out)
{
    struct job *j = ex->job;
    enum stream_state state = flush_stash(ex, fd);
    while (state == STREAM_OPEN && !ex->last_added) {
        begin(out);
        bool more = job_take(j, out, take_bytes(ex));
        if (j->done) {
            job_add_last(j, out);
            ex->last_added = true;
        }
        if (out->len == STREAM_HEAD_BYTES)
            return STREAM_OPEN;
        state = write_frame(ex, fd, out);
        if (!more && !ex->last_added)
            break;
    }
    return state == STREAM_OPEN && ex->last_added ? STREAM_ENDED : state;
}

/* One line, no blank line after it: a lone comment is legal, joins the next event, and does not make
 * clients dispatch an empty one. */
enum stream_state stream_ping(struct exchange *ex, int fd, struct buf *out)
{
    enum stream_state state = flush_stash(ex, fd);
    if (state != STREAM_OPEN || ex->last_added)
        return state;
    begin(out);
    uint32_t position = job_queue_position(ex->job);
    if (position)
        buf_printf(out, ": queued position=%u\n", position);
    else
        buf_add_c(out, ": ping\n");
    return write_frame(ex, fd, out);
}
