/* See origin.h. */
#include "server/http/origin.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "server/http/framing.h"

static bool same(struct str a, struct str b)
{
    return a.len == b.len && strncasecmp(a.ptr, b.ptr, a.len) == 0;
}

/* Cuts text off s; false when s does not begin with it. */
static bool cut(struct str *s, const char *text)
{
    size_t n = strlen(text);
    if (s->len < n || strncasecmp(s->ptr, text, n) != 0)
        return false;
    s->ptr += n;
    s->len -= n;
    return true;
}

/* ---- hosts ---- */

/* Without port, brackets and the point that ends a full name. */
static struct str name_of(struct str host)
{
    const char *end = host.len && host.ptr[0] == '[' ? memchr(host.ptr, ']', host.len) : NULL;
    if (end)
        return (struct str){host.ptr + 1, (size_t)(end - host.ptr) - 1};
    end = memchr(host.ptr, ':', host.len);
    if (end && !memchr(end + 1, ':', host.len - (size_t)(end + 1 - host.ptr)))
        host.len = (size_t)(end - host.ptr);
    if (host.len > 1 && host.ptr[host.len - 1] == '.')
        host.len--;
    return host;
}

static bool loopback_address(struct str name)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (name.len >= sizeof(text))
        return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = 0;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool origin_host_is_ours(const struct settings *set, struct str host)
{
    struct str name = name_of(host);
    if (!name.len)
        return false;
    bool ours = same(name, str_of("localhost")) || loopback_address(name) ||
                same(name, name_of(str_of(set->host)));
    for (size_t i = 0; i < set->server_allowed_hosts.n && !ours; i++)
        ours = same(name, name_of(str_of(set->server_allowed_hosts.item[i])));
    return ours;
}

/* ---- origins ---- */

static bool is_origin(struct str text)
{
    struct str rest = text;
    if (str_eq_c(text, "*") || str_eq_c(text, "null"))
        return true;
    const char *colon = memchr(text.ptr, ':', text.len);
    if (!colon || colon == text.ptr)
        return false;
    rest.ptr = colon;
    rest.len = text.len - (size_t)(colon - text.ptr);
    return cut(&rest, "://") && rest.len && framing_host_valid(rest.ptr, rest.len);
}

enum status origin_check_settings(const struct settings *set, struct err *e)
{
    for (size_t i = 0; i < set->server_cors_origin.n; i++) {
        const char *item = set->server_cors_origin.item[i];
        if (*item && !is_origin(str_of(item)))
            return err_set_field(e, ERR_INVALID, "server.cors_origin", NULL,
                                 "option server.cors_origin: \"%.100s\" is not an origin: "
                                 "https://HOST or https://HOST:PORT without a path, or *",
                                 item);
    }
    return OK;
}

bool origin_star(const struct settings *set)
{
    for (size_t i = 0; i < set->server_cors_origin.n; i++)
        if (strcmp(set->server_cors_origin.item[i], "*") == 0)
            return true;
    return false;
}

/* HOST[:PORT] of host without the port that the scheme has anyway. */
static struct str without_port(struct str host, const char *port)
{
    size_t n = strlen(port);
    if (host.len > n && memcmp(host.ptr + host.len - n, port, n) == 0)
        host.len -= n;
    return host;
}

/* A proxy in front may speak https where this server sees http: the scheme may be either. */
static bool own(struct str origin, struct str host)
{
    const char *port = cut(&origin, "http://") ? ":80" : cut(&origin, "https://") ? ":443" : NULL;
    return port && origin.len && same(without_port(origin, port), without_port(host, port));
}

enum origin origin_of(const struct settings *set, struct str origin, struct str host)
{
    if (!origin.ptr)
        return ORIGIN_OWN;
    for (size_t i = 0; i < set->server_cors_origin.n; i++)
        if (same(origin, str_of(set->server_cors_origin.item[i])) && !str_eq_c(origin, "*"))
            return ORIGIN_NAMED;
    if (host.ptr && own(origin, host))
        return ORIGIN_OWN;
    return origin_star(set) ? ORIGIN_BY_STAR : ORIGIN_FOREIGN;
}
