/* The table of endpoints (routes.def). Thread: any. */
#ifndef SERVER_HTTP_ROUTES_H
#define SERVER_HTTP_ROUTES_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

enum method {
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_PUT,
    METHOD_DELETE,
    METHOD_OPTIONS,
    METHOD_OTHER
};

enum route_needs { NEEDS_NOTHING, NEEDS_KEY, NEEDS_ADMIN };

/* Web pages of other origins that may ask: any; where no key is needed those of server.cors_origin; only
 * those that it names, for which * is not enough. */
enum route_pages { PAGES_ANY, PAGES_LISTED, PAGES_NAMED };

struct route {
    enum method method; /* GET, POST, PUT or DELETE */
    const char *path;
    void (*handle)(struct exchange *ex);
    enum route_needs needs;
    enum route_pages pages;
    bool model, body;
    const char *label;
    const char *doc;
};

enum method method_of(const char *name);
const char *method_label(enum method m); /* for metrics: bounded */
const struct route *route_at(size_t i); /* NULL behind the last */

/* Finds the row of a path and method. path_arg (path_arg_cap bytes) receives what {id} stood for.
 * Slashes are normalised, a leading /v1 is dropped. NULL when the path is unknown or does not take the
 * method; allow[64] then holds the methods it takes ("" for an unknown path). */
const struct route *route_find(enum method m, const char *path, char *path_arg, size_t path_arg_cap,
                               char *allow);

#endif
