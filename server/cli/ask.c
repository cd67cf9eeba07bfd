/* `millrace health`: one GET over a plain socket, for HEALTHCHECK lines of images without curl. */
#include "server/cli/ask.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "config/settings.h"
#include "server/cli/verb.h"

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
    const char *port = *p == ':' ? p + 1 : "80";
    n = strcspn(port, "/");
    if (n == 0 || n > 5 || strspn(port, "0123456789") < n || strtol(port, NULL, 10) > 65535)
        return err_set(e, ERR_INVALID, "the url \"%.200s\" has no port from 0 to 65535", url);
    snprintf(t->port, sizeof(t->port), "%.*s", (int)n, port);
    return OK;
}

static void read_settings(const struct settings *set, struct target *t)
{
    const char *host = set->host;
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    if (strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0)
        host = "::1";
    size_t n = strlen(host);
    bool bracketed = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(t->host, sizeof(t->host), "%.*s", (int)n - 2 * bracketed, host + bracketed);
    snprintf(t->port, sizeof(t->port), "%u", (unsigned)set->port);
}

/* The first address that takes a connection. *fd: -1 on errors, which name the last reason. */
static enum status connect_to(const struct target *t, int *fd, struct err *e)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct timeval limit = {.tv_sec = TIMEOUT_S};
    struct addrinfo *list;
    int error = 0, code = getaddrinfo(t->host, t->port, &hints, &list);
    *fd = -1;
    if (code)
        return err_set(e, ERR_IO, "cannot find the host %s: %s", t->host,
                       code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    for (struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
        *fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (*fd < 0) {
            error = errno;
            continue;
        }
        setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(*fd, a->ai_addr, a->ai_addrlen) < 0) {
            error = errno == EINPROGRESS ? ETIMEDOUT : errno; /* the limit was SO_SNDTIMEO */
            close(*fd);
            *fd = -1;
        }
    }
    freeaddrinfo(list);
    if (*fd >= 0)
        return OK;
    return err_set(e, ERR_IO, "cannot connect to %s port %s: %s", t->host, t->port,
                   strerror(error));
}

static enum status ask(const struct target *t, const char *path, struct err *e)
{
    char text[512];
    int http = 0, fd;
    enum status status = connect_to(t, &fd, e);
    if (status)
        return status;
    bool v6 = strchr(t->host, ':') != NULL;
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.0\r\nHost: %s%s%s\r\n\r\n", path,
                     v6 ? "[" : "", t->host, v6 ? "]" : "");
    ssize_t got = send(fd, text, (size_t)n, MSG_NOSIGNAL) == n
                      ? recv(fd, text, sizeof(text) - 1, MSG_WAITALL)
                      : -1;
    close(fd);
    text[got > 0 ? got : 0] = 0;
    if (sscanf(text, "HTTP/1.%*d %d", &http) != 1)
        return err_set(e, ERR_IO, "%s port %s gave no HTTP answer", t->host, t->port);
    if (http != 200)
        return err_set(e, ERR_BUSY, "%s answered %d", path, http);
    return OK;
}

static const struct verb_option own_options[] = {
    {"ready", NULL,
     "check that the model is loaded and requests are accepted, not only that the server is alive"},
    {"url", "URL", "http://HOST:PORT of the server (default: the options host and port)"},
    {NULL, NULL, NULL},
};

static enum status read_target(struct verb_args *args, char **env, struct target *t,
                               const char **path, struct err *e)
{
    struct settings set;
    const char *ready = NULL, *url = NULL;
    const char **value[] = {&ready, &url};
    bool help = false;
    settings_init(&set);
    enum status st = verb_take(args, own_options, value, e);
    if (!st)
        st = settings_load(&set, args->n, args->arg, env, &help, e);
    if (!st && url)
        st = read_url(url, t, e);
    else if (!st)
        read_settings(&set, t);
    settings_release(&set);
    *path = ready ? "/ready" : "/health";
    return st;
}

enum status ask_run(int argc, char **argv, char **env, struct err *e)
{
    struct verb_args args;
    struct target t;
    const char *path;
    enum status st = OK;
    verb_args_init(&args, argc, argv);
    if (verb_wants_help(&args)) {
        verb_print_help("health [--ready] [--url http://HOST:PORT]", HEALTH_WHAT, own_options,
                        "The options of `millrace serve` and the environment give host and port "
                        "too.");
    } else {
        st = read_target(&args, env, &t, &path, e);
        if (!st)
            st = ask(&t, path, e);
    }
    verb_args_release(&args);
    return st;
}
