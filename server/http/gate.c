/* The program's recv(); see gate.h. */
#include "server/http/gate.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "server/http/loop.h"
#include "server/http/refusal.h"

static _Thread_local struct loop *loop_of_thread;

void gate_enter(struct loop *l)
{
    loop_of_thread = l;
}

static void grow(struct loop *l, size_t n)
{
    l->by_fd = mem_realloc(l->by_fd, mem_mul(n, sizeof(struct conn *)));
    memset(l->by_fd + l->n_by_fd, 0, (n - l->n_by_fd) * sizeof(struct conn *));
    l->n_by_fd = n;
}

void gate_add(struct conn *c)
{
    struct loop *l = c->loop;
    size_t fd = (size_t)c->fd;
    if (fd >= l->n_by_fd)
        grow(l, fd < 32 ? 64 : 2 * fd);
    l->by_fd[fd] = c;
    framing_init(&c->framing);
}

void gate_remove(struct conn *c)
{
    c->loop->by_fd[c->fd] = NULL;
}

void gate_release(struct loop *l)
{
    mem_free(l->by_fd);
    l->by_fd = NULL;
    l->n_by_fd = 0;
}

static ssize_t nothing_now(void)
{
    errno = EAGAIN;
    return -1;
}

/* Some bytes were dropped, and the end came right behind them: libmicrohttpd takes a short read for an
 * empty socket and would wait for an event that has been. */
static ssize_t bytes_and_end(struct conn *c, size_t n)
{
    shutdown(c->fd, SHUT_RD);
    return (ssize_t)n;
}

/* Of the n bytes those of earlier requests, which are answered first. */
static ssize_t refused(struct conn *c, size_t n)
{
    if (n > c->framing.n_partial)
        return (ssize_t)(n - c->framing.n_partial);
    refusal_when_answered(c);
    return nothing_now();
}

static ssize_t read_checked(struct conn *c, char *buf, size_t cap, int flags)
{
    size_t n = 0;
    if (c->deaf || c->framing.why)
        return c->ended ? 0 : nothing_now();
    for (;;) {
        size_t room = cap - n;
        ssize_t k = recvfrom(c->fd, buf + n, room, flags, NULL, NULL);
        if (k <= 0 && n == 0)
            return k;
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            return bytes_and_end(c, n);
        if (k < 0)
            return (ssize_t)n;
        n += framing_take(&c->framing, buf + n, (size_t)k);
        if (c->framing.why)
            return refused(c, n);
        if (n == cap)
            return (ssize_t)n;
        if ((size_t)k < room)
            return n ? (ssize_t)n : nothing_now();
    }
}

/* Takes the place of the C library's: the dynamic linker prefers the program's. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct loop *l = loop_of_thread;
    struct conn *c = l && fd >= 0 && (size_t)fd < l->n_by_fd ? l->by_fd[fd] : NULL;
    return c ? read_checked(c, buf, n, flags) : recvfrom(fd, buf, n, flags, NULL, NULL);
}
