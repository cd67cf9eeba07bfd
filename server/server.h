/* State that every loop and handler of the HTTP front end shares. Its life is in front.h.
 *
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

static inline enum phase server_phase(const struct server *srv)
{
    return (enum phase)atomic_load_explicit(&srv->phase, memory_order_acquire);
}

#endif
