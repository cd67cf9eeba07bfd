/* `millrace health`: one GET over a plain socket, for HEALTHCHECK lines of images without curl. */
#include "server/serve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMEOUT_S = 4 };

struct target {
    char host[256];
    char port[8];
};

/* http://HOST[:PORT][/...] with IPv6 hosts in brackets. */
static enum status read_url(const char *url, struct target *t, struct err *e)
{
    const char *p = strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
    size_t n = !p ? 0 : *p == '[' ? strcspn(p, "]") : strcspn(p, ":/");
    if (!p || n == 0 || n >= sizeof(t->host))
        return err_set(e, ERR_INVALID, "the url \"%.200s\" is not http://HOST:PORT", url);
    bool v6 = *p == '[';
    snprintf(t->host, sizeof(t->host), "%.*s", (int)(n - v6), p + v6);
    p += n + v6;
    snprintf(t->port, sizeof(t->port), "%.*s", *p == ':' ? (int)strcspn(p + 1, "/") : 2,
             *p == ':' ? p + 1 : "80");
    return OK;
}

static void read_settings(const struct settings *set, struct target *t)
{
    const char *host = set->host;
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    if (strcmp(host, "::") == 0)
        host = "::1";
    snprintf(t->host, sizeof(t->host), "%s", host);
    snprintf(t->port, sizeof(t->port), "%u", (unsigned)set->port);
}

static int connect_to(const struct target *t)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct timeval limit = {.tv_sec = TIMEOUT_S};
    struct addrinfo *list;
    int fd = -1;
    if (getaddrinfo(t->host, t->port, &hints, &list))
        return -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

enum status serve_ask_health(const struct settings *set, const char *url, const char *path,
                             struct err *e)
{
    struct target t;
    char text[512];
    int http = 0;
    enum status status = OK;
    if (*url)
        status = read_url(url, &t, e);
    else
        read_settings(set, &t);
    if (status)
        return status;
    int fd = connect_to(&t);
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot connect to %s port %s: %s", t.host, t.port,
                       strerror(errno));
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, t.host);
    ssize_t got = send(fd, text, (size_t)n, MSG_NOSIGNAL) == n
                      ? recv(fd, text, sizeof(text) - 1, MSG_WAITALL)
                      : -1;
    close(fd);
    text[got > 0 ? got : 0] = 0;
    if (sscanf(text, "HTTP/1.%*d %d", &http) != 1)
        return err_set(e, ERR_IO, "%s port %s gave no HTTP answer", t.host, t.port);
    if (http != 200)
        return err_set(e, ERR_BUSY, "%s answered %d", path, http);
    return OK;
}
