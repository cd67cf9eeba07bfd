/* The checks of a head, in the order of admit() at the end; see admit.h. */
#include "server/http/admit.h"

#include <string.h>
#include <strings.h>

#include "server/http/loop.h"
#include "server/http/origin.h"
#include "server/http/routes.h"
#include "server/server.h"

static void refuse(struct exchange *ex, int problem_id, const char *text)
{
    struct err e;
    err_set(&e, ERR_INVALID, "%s", text);
    reply_problem(ex, problem_id, &e);
}

/* Without a key on a loopback address it is only this that keeps web pages out: a page's own name, pointed
 * to this machine, makes the browser take the server for a part of the page. */
static bool names_matter(struct server *srv)
{
    return srv->set->server_allowed_hosts.n > 0 || (srv->loopback && !auth_needs_key(&srv->auth));
}

static void check_host(struct exchange *ex, const char *url)
{
    struct err e;
    struct str host = header_value(ex->conn, "Host");
    const char *scheme = *url == '/' ? NULL : strstr(url, "://");
    if (!names_matter(ex->srv))
        return;
    if (scheme) /* counts in place of Host (RFC 9112 3.2.2) */
        host = (struct str){scheme + 3, strcspn(scheme + 3, "/?")};
    if (!host.ptr || origin_host_is_ours(ex->srv->set, host))
        return;
    err_set(&e, ERR_INVALID,
            "the host \"%.*s\" is not a name of this machine; to allow it, start the server with "
            "--server.allowed_hosts %.*s, or with a key",
            (int)host.len, host.ptr, (int)host.len, host.ptr);
    reply_problem(ex, HTTP_HOST, &e);
}

/* A page of another origin can send a request that changes something, or costs, without a question in
 * advance (preflight): text/plain needs none. */
static void check_origin(struct exchange *ex)
{
    struct err e;
    struct str given = header_value(ex->conn, "Origin");
    enum route_pages pages = ex->route->pages;
    enum origin o = origin_of(ex->srv->set, given, header_value(ex->conn, "Host"));
    bool fine = o == ORIGIN_OWN || o == ORIGIN_NAMED || pages == PAGES_ANY;
    if (!fine && pages == PAGES_LISTED)
        fine = o == ORIGIN_BY_STAR || auth_needs_key(&ex->srv->auth);
    if (fine)
        return;
    err_set(
        &e, ERR_INVALID,
        "web pages of \"%.*s\" may not use this server; the option server.cors_origin names those "
        "that may",
        given.len < 100 ? (int)given.len : 100, given.ptr);
    reply_problem(ex, HTTP_ORIGIN, &e);
}

static void find_route(struct exchange *ex, const char *url, enum method m)
{
    struct err e;
    ex->route = route_find(m, url, ex->path_arg, sizeof(ex->path_arg), ex->reply.allow);
    if (m == METHOD_OPTIONS && (ex->reply.allow[0] || strcmp(url, "*") == 0)) {
        reply_json(ex, 204);
    } else if (!ex->route && ex->reply.allow[0]) {
        err_set(&e, ERR_INVALID, "this path accepts %s", ex->reply.allow);
        reply_problem(ex, HTTP_METHOD, &e);
    } else if (!ex->route) {
        err_set(&e, ERR_NOT_FOUND, "no endpoint at \"%.200s\"", url);
        reply_err(ex, &e);
    }
}

static void check_key(struct exchange *ex)
{
    struct str authorization = header_value(ex->conn, "Authorization");
    struct str x_api_key = header_value(ex->conn, "X-Api-Key");
    if (!auth_check(&ex->srv->auth, authorization, x_api_key, &ex->grant))
        refuse(ex, HTTP_UNAUTHORIZED,
               "a valid key is required: Authorization: Bearer KEY, or X-Api-Key: KEY");
    else if (ex->route->needs == NEEDS_ADMIN && !ex->grant.admin)
        refuse(ex, HTTP_FORBIDDEN,
               "this path shows the requests of all keys: it requires a key with admin=true in the "
               "key "
               "file");
    if (!ex->grant.tenant)
        return;
    ex->held.key = ex->grant.tenant->slot;
    ex->held.shared = ex->grant.policy->n_live > 1;
}

static void check_phase(struct exchange *ex)
{
    struct err e;
    enum phase phase = server_phase(ex->srv);
    if (!ex->route->model || phase == PHASE_READY)
        return;
    if (phase == PHASE_LOADING)
        err_set(&e, ERR_BUSY, "the model is loading");
    else
        err_set(&e, ERR_DRAINING, "the server is shutting down");
    reply_err(ex, &e);
}

static void check_media(struct exchange *ex)
{
    struct str type = header_value(ex->conn, "Content-Type");
    struct str coding = header_value(ex->conn, "Content-Encoding");
    if (type.len >= 10 && strncasecmp(type.ptr, "multipart/", 10) == 0)
        refuse(ex, HTTP_MEDIA, "multipart bodies are not supported: send JSON");
    else if (coding.len && !header_is(coding, "identity"))
        refuse(ex, HTTP_MEDIA, "compressed bodies are not supported: send plain JSON");
}

static void check_size(struct exchange *ex, const struct body_framing *f)
{
    struct err e;
    uint64_t most = ex->srv->set->server_max_body;
    if (!f->sized || f->length <= most)
        return;
    err_set(&e, ERR_TOO_LARGE, "the body has %llu bytes, the limit is %llu",
            (unsigned long long)f->length, (unsigned long long)most);
    reply_err(ex, &e);
}

void admit(struct exchange *ex, const char *url, const char *method, const struct body_framing *f)
{
    check_host(ex, url);
    if (!ex->reply.set)
        find_route(ex, url, method_of(method));
    if (!ex->reply.set)
        check_origin(ex);
    if (!ex->reply.set && ex->route->needs != NEEDS_NOTHING)
        check_key(ex);
    if (!ex->reply.set)
        check_phase(ex);
    if (!ex->reply.set && ex->route->body)
        check_media(ex);
    if (!ex->reply.set)
        check_size(ex, f);
}
