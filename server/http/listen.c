/* Listening sockets; see listen.h. */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/settings.h"

enum { BACKLOG = 4096, KEEPALIVE_IDLE_S = 30, KEEPALIVE_EVERY_S = 10, KEEPALIVE_TRIES = 3 };

bool listen_is_loopback(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return false;
    if (a.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)&a)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((struct sockaddr_in6 *)&a)->sin6_addr;
    return a.ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127));
}

/* ---- which process holds a port ---- */

/* Inodes of sockets in state LISTEN (0A) on the port. */
static size_t listening_inodes(const char *path, uint16_t port, unsigned long *inode, size_t cap)
{
    char line[512];
    size_t n = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    while (n < cap && fgets(line, sizeof(line), f)) {
        unsigned local_port, state;
        unsigned long found;
        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %lu",
                   &local_port, &state, &found) == 3 &&
            local_port == port && state == 0x0A)
            inode[n++] = found;
    }
    fclose(f);
    return n;
}

static bool has_inode(const char *pid, const unsigned long *inode, size_t n)
{
    char path[300], target[64];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
    DIR *d = opendir(path);
    if (!d)
        return false;
    for (struct dirent *f; !found && (f = readdir(d));) {
        unsigned long x;
        snprintf(path, sizeof(path), "/proc/%.16s/fd/%.16s", pid, f->d_name);
        ssize_t k = readlink(path, target, sizeof(target) - 1);
        if (k <= 0)
            continue;
        target[k] = 0;
        if (sscanf(target, "socket:[%lu]", &x) == 1)
            for (size_t i = 0; i < n; i++)
                found |= inode[i] == x;
    }
    closedir(d);
    return found;
}

static void add_process(const char *pid, struct buf *out)
{
    char path[64], name[64] = "";
    snprintf(path, sizeof(path), "/proc/%.16s/comm", pid);
    FILE *f = fopen(path, "r");
    if (f && fgets(name, sizeof(name), f))
        name[strcspn(name, "\n")] = 0;
    if (f)
        fclose(f);
    buf_printf(out, "process %s%s%s%s", pid, *name ? " (" : "", name, *name ? ")" : "");
}

void listen_holder(uint16_t port, struct buf *out)
{
    unsigned long inode[64];
    size_t n = listening_inodes("/proc/net/tcp", port, inode, 32);
    n += listening_inodes("/proc/net/tcp6", port, inode + n, 32);
    DIR *proc = n ? opendir("/proc") : NULL;
    if (!proc)
        return;
    bool found = false;
    for (struct dirent *p; !found && (p = readdir(proc));) {
        found = isdigit((unsigned char)p->d_name[0]) && has_inode(p->d_name, inode, n);
        if (found)
            add_process(p->d_name, out);
    }
    closedir(proc);
}

/* ---- sockets ---- */

static void set_int(int fd, int level, int name, int value)
{
    /* Each is an improvement, none a condition: a kernel that refuses one still serves. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* Accepted sockets inherit all of these. */
static void set_options(int fd, const struct settings *set)
{
    int64_t user_ms =
        set->server_slow_client_timeout > 30000 ? set->server_slow_client_timeout : 30000;
    set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)set->server_sndbuf / 2); /* the kernel doubles it */
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TRIES);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)user_ms);
}

static uint16_t *port_of(struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port
                                    : &((struct sockaddr_in *)a)->sin_port;
}

/* share: the port may be bound by more sockets that also say so. */
static int bind_one(const struct settings *set, const struct sockaddr_storage *a, socklen_t n,
                    bool share)
{
    int fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ss_family == AF_INET6)
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (share)
        set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    set_options(fd, set);
    if (bind(fd, (const struct sockaddr *)a, n) < 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    return fd;
}

static enum status busy(const struct settings *set, int64_t port, struct err *e)
{
    struct buf who = {0};
    int why = errno;
    if (why != EADDRINUSE)
        return err_set(e, ERR_IO, "cannot listen on %s port %lld: %s", set->host, (long long)port,
                       strerror(why));
    listen_holder((uint16_t)port, &who);
    err_set(e, ERR_IO,
            "port %lld on %s is in use%s%s; choose another with --port N (or MILLRACE_PORT=N), "
            "--port 0 picks any free one",
            (long long)port, set->host, who.len ? " by " : "", who.len ? who.ptr : "");
    buf_release(&who);
    return ERR_IO;
}

static enum status resolve(const struct settings *set, struct sockaddr_storage *a, socklen_t *n,
                           struct err *e)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found;
    char port[8], host[256];
    size_t n_host = strlen(set->host);
    bool bracketed = n_host > 2 && set->host[0] == '[' && set->host[n_host - 1] == ']';
    snprintf(port, sizeof(port), "%u", (unsigned)set->port);
    snprintf(host, sizeof(host), "%.*s", (int)n_host - 2 * bracketed, set->host + bracketed);
    /* The name always means this machine (RFC 6761, 6.3), also where no file says so. */
    if (strcasecmp(host, "localhost") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc)
        return err_set_field(e, ERR_INVALID, "host", NULL, "cannot resolve the host \"%s\": %s",
                             set->host, gai_strerror(rc));
    memset(a, 0, sizeof(*a));
    memcpy(a, found->ai_addr, found->ai_addrlen);
    *n = found->ai_addrlen;
    freeaddrinfo(found);
    return OK;
}

enum status listen_open(const struct settings *set, int *fd, uint32_t n, uint16_t *port,
                        struct err *e)
{
    struct sockaddr_storage a;
    socklen_t n_addr;
    enum status status = resolve(set, &a, &n_addr, e);
    if (status)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        fd[i] = bind_one(set, &a, n_addr, i > 0);
        if (fd[i] < 0) {
            status = busy(set, ntohs(*port_of(&a)), e);
        } else if (i == 0 && getsockname(fd[0], (struct sockaddr *)&a, &n_addr) < 0) {
            status = err_set(e, ERR_IO, "cannot read the bound address: %s", strerror(errno));
            i++;
        }
        if (status) {
            while (i)
                close(fd[--i]);
            return status;
        }
    }
    for (uint32_t i = 0; i < n && !status; i++)
        if (listen(fd[i], BACKLOG) < 0)
            status = busy(set, ntohs(*port_of(&a)), e);
    for (uint32_t i = 0; i < n && status; i++)
        close(fd[i]);
    *port = ntohs(*port_of(&a));
    return status;
}
