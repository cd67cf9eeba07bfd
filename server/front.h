/* The life of the HTTP front end as a whole. Thread: main.
 *
 * server_new -> server_listen -> the loops answer /health, and 503 elsewhere -> server_set_ready ->
 * server_leave -> server_drain -> server_stop -> server_free. */
#ifndef SERVER_FRONT_H
#define SERVER_FRONT_H

#include "server/server.h"

struct tenants;

/* service: its names are set; loaded before server_set_ready. tenants: where the keys' weights and caps go; ledger: the budget of client memory (borrows, or NULL; both outlive the services). Errors: ERR_IO,
 * ERR_INVALID from the key file. */
enum status server_new(const struct settings *set, const char *version, struct metrics *metrics,
                       struct service *service, struct tenants *tenants, struct ledger *ledger,
                       struct server **out, struct err *e);
/* Binds and starts the loops. ERR_IO names address, port and, when it is known, the process that holds it. */
enum status server_listen(struct server *srv, struct err *e);
/* New keys, weights, caps and limits from now on; what was let in goes on under the old ones. Other
 * options are not looked at. On an error all stays as it was. Main thread. */
enum status server_reload(struct server *srv, const struct settings *set, struct err *e);
void server_set_ready(struct server *srv); /* every service is loaded */
/* The way out. server_leave: /ready and new requests get 503 from now on, on new connections too. Then
 * server_may_close is polled: it ends what still runs after server.drain_timeout, and says true when nothing
 * runs any more and the time of server.lame_duck is over. at_once: no balancer routes around this server, so
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

#endif
