/* The HTTP front end as a whole: what every loop and handler shares, and its life.
 *
 * server_new (main thread) -> server_listen -> the loops answer /health, and 503 elsewhere ->
 * server_set_ready -> server_leave -> server_drain -> server_stop -> server_free.
 * Everything a handler reads is set before `phase` becomes PHASE_READY (release), or never changes. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/thread.h"
#include "config/settings.h"
#include "server/auth.h"

enum phase { PHASE_LOADING, PHASE_READY, PHASE_DRAINING };

struct loop;
struct offload;
struct service;

struct server {
    const struct settings *set; /* borrows */
    const char *version; /* borrows; static */
    struct metrics *metrics; /* borrows */
    struct auth auth;
    struct ledger *ledger; /* borrows; NULL: no bounds */
    struct ledger_hold names; /* of named prefixes; under prefix_lock */
    struct service **service; /* owns the table; each borrowed until server_stop returned */
    uint32_t n_services; /* at least 1: the first serves requests that name no model */
    char fingerprint[64]; /* system_fingerprint of answers */
    atomic_int phase; /* enum phase */
    atomic_uint n_connections; /* open, over all loops */
    atomic_uint n_preparing; /* exchanges that wait for their turn in preparation */
    atomic_uint_fast64_t next_id;
    uint64_t id_salt; /* makes ids of two processes differ */
    struct mutex prefix_lock; /* changes of named prefixes and their pins: in one order */
    struct offload *offload; /* owns */
    struct loop **loop; /* owns [n_loops] */
    uint32_t n_loops;
    uint16_t port; /* bound; after server_listen */
    bool loopback; /* bound to an address that only this machine reaches */
};

/* service: its names are set; loaded before server_set_ready. tenants: where the keys' weights and caps go; ledger: the budget of client memory (borrows, or NULL; both outlive the services). Errors: ERR_IO,
 * ERR_INVALID from the key file. */
enum status server_new(const struct settings *set, const char *version, struct metrics *metrics,
                       struct service *service, struct tenants *tenants, struct ledger *ledger,
                       struct server **out, struct err *e);
/* Binds and starts the loops. ERR_IO names address, port and, when it can be told, who holds it. */
enum status server_listen(struct server *srv, struct err *e);
/* New keys, weights, caps and limits from now on; what was let in goes on under the old ones. Other
 * options are not looked at. On an error all stays as it was. Main thread. */
enum status server_reload(struct server *srv, const struct settings *set, struct err *e);
void server_set_ready(struct server *srv); /* every service is loaded */
/* The way out. server_leave: /ready and new requests get 503 from now on, on new connections too. Then
 * server_may_close is polled: it ends what still runs after server.drain_timeout, and says true when nothing
 * runs any more and the time of server.lame_duck is over. at_once: nobody routes around this server, so
 * that there is nothing to wait for but what runs. server_drain closes the listeners and idle connections. */
struct leaving {
    uint64_t duck_ns, cut_ns; /* times on the clock */
    bool cut;
};
void server_leave(struct server *srv, bool at_once, struct leaving *l);
bool server_may_close(struct server *srv, struct leaving *l);
void server_drain(struct server *srv);
uint32_t server_n_jobs(const struct server *srv); /* requests being answered */
/* Ends what still runs with an error event, closes every connection, joins the loops. */
void server_stop(struct server *srv);
void server_free(struct server *srv);

static inline enum phase server_phase(const struct server *srv)
{
    return (enum phase)atomic_load_explicit(&srv->phase, memory_order_acquire);
}

#endif
