/* Finding the row of a request; see routes.h. */
#include "server/http/routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "server/api/api.h"

static const struct route routes[] = {
#define X(method, path, handler, needs, pages, model, body, label, doc)                            \
    {METHOD_##method, path, handler, NEEDS_##needs, PAGES_##pages, model, body, label, doc},
#include "server/http/routes.def"
#undef X
};

enum { N_ROUTES = sizeof(routes) / sizeof(routes[0]), MAX_PATH = 512 };

const struct route *route_at(size_t i)
{
    return i < N_ROUTES ? &routes[i] : NULL;
}

enum method method_of(const char *name)
{
    static const struct {
        const char *name;
        enum method m;
    } known[] = {{"GET", METHOD_GET}, {"HEAD", METHOD_HEAD},     {"POST", METHOD_POST},
                 {"PUT", METHOD_PUT}, {"DELETE", METHOD_DELETE}, {"OPTIONS", METHOD_OPTIONS}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].m;
    return METHOD_OTHER;
}

const char *method_label(enum method m)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other"};
    return names[m];
}

/* A client that takes us for a proxy asks for http://HOST/PATH (RFC 9112, 3.2.2): the path counts. */
static const char *path_of(const char *target)
{
    static const struct str schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strncasecmp(target, schemes[i].ptr, schemes[i].len) != 0)
            continue;
        const char *path = strchr(target + schemes[i].len, '/');
        return path ? path : "/";
    }
    return target;
}

/* Collapses runs of slashes, drops the last one and a leading /v1. False when too long. */
static bool normalise(const char *path, char out[MAX_PATH])
{
    size_t n = 0;
    for (const char *p = path; *p; p++) {
        if (*p == '/' && n && out[n - 1] == '/')
            continue;
        if (n + 1 >= MAX_PATH)
            return false;
        out[n++] = *p;
    }
    if (n > 1 && out[n - 1] == '/')
        n--;
    out[n] = 0;
    if (strncmp(out, "/v1/", 4) == 0)
        memmove(out, out + 3, n - 3 + 1);
    return true;
}

static bool matches(const struct route *r, const char *path, char *path_arg, size_t cap)
{
    const char *arg = strchr(r->path, '{');
    if (!arg)
        return strcmp(r->path, path) == 0;
    size_t n = (size_t)(arg - r->path);
    if (strncmp(path, r->path, n) != 0 || !path[n] || strlen(path + n) >= cap)
        return false;
    snprintf(path_arg, cap, "%s", path + n);
    return true;
}

static void allow_method(char *allow, enum method m)
{
    size_t n = strlen(allow);
    snprintf(allow + n, 64 - n, "%s%s", n ? ", " : "",
             m == METHOD_GET ? "GET, HEAD" : method_label(m));
}

const struct route *route_find(enum method m, const char *path, char *path_arg, size_t path_arg_cap,
                               char *allow)
{
    char clean[MAX_PATH];
    allow[0] = path_arg[0] = 0;
    if (!normalise(path_of(path), clean))
        return NULL;
    enum method want = m == METHOD_HEAD ? METHOD_GET : m;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!matches(&routes[i], clean, path_arg, path_arg_cap))
            continue;
        if (routes[i].method == want) {
            allow[0] = 0; /* of rows before it, with the same path */
            return &routes[i];
        }
        allow_method(allow, routes[i].method);
    }
    if (allow[0])
        strncat(allow, ", OPTIONS", 64 - strlen(allow) - 1);
    return NULL;
}
