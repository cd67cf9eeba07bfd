/* The front end as a whole; see front.h. */
#include "server/front.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "config/ledger.h"
#include "server/http/listen.h"
#include "server/http/loop.h"
#include "server/http/offload.h"
#include "server/http/origin.h"
#include "server/service.h"

enum status server_new(const struct settings *set, const char *version, struct metrics *metrics,
                       struct service *service, struct tenants *tenants, struct ledger *ledger,
                       struct server **out, struct err *e)
{
    struct server *srv = mem_zalloc(sizeof(*srv));
    *out = srv;
    auth_init(&srv->auth, tenants);
    mutex_init(&srv->prefix_lock);
    srv->set = set;
    srv->version = version;
    srv->metrics = metrics;
    srv->ledger = ledger;
    srv->names = (struct ledger_hold){.ledger = ledger, .key = LEDGER_NOBODY};
    snprintf(srv->fingerprint, sizeof(srv->fingerprint), "millrace-%s", version);
    if (getrandom(&srv->id_salt, sizeof(srv->id_salt), 0) != sizeof(srv->id_salt))
        return err_set(e, ERR_IO, "no random bytes: %s", strerror(errno));
    srv->service = mem_zalloc(sizeof(*srv->service));
    srv->service[0] = service;
    srv->n_services = 1;
    enum status status = auth_load(&srv->auth, set, e);
    return status ? status : offload_new(loop_prepared, &srv->offload, e);
}

/* Each connection is a descriptor; files, epolls and the like need some more. */
static void check_descriptors(const struct settings *set)
{
    enum { OTHERS = 128 };
    struct rlimit limit;
    rlim_t need = (rlim_t)set->server_max_connections + OTHERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= need)
        return;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < need)
        log_warn("only %llu file descriptors are allowed, server.max_connections=%lld needs %llu: "
                 "connections beyond that get 503 (raise the limit with ulimit -n)",
                 (unsigned long long)limit.rlim_cur, (long long)set->server_max_connections,
                 (unsigned long long)need);
}

static uint32_t loop_count(const struct settings *set)
{
    if (set->server_threads)
        return (uint32_t)set->server_threads;
    int cores = thread_cpu_count();
    if (cores <= 4)
        return 1;
    return cores / 4 > 4 ? 4 : (uint32_t)(cores / 4);
}

enum status server_listen(struct server *srv, struct err *e)
{
    int fd[64];
    uint32_t n = loop_count(srv->set);
    check_descriptors(srv->set);
    enum status status = origin_check_settings(srv->set, e);
    if (!status)
        status = listen_open(srv->set, fd, n, &srv->port, e);
    if (status)
        return status;
    srv->loopback = listen_is_loopback(fd[0]);
    if (!srv->loopback && !auth_needs_key(&srv->auth))
        log_warn("listening on %s without a key: anyone who reaches this address can use the "
                 "server (set MILLRACE_API_KEY or server.api_key_file)",
                 srv->set->host);
    srv->loop = mem_zalloc(mem_mul(n, sizeof(*srv->loop)));
    for (uint32_t i = 0; i < n && !status; i++) {
        status = loop_new(srv, fd[i], &srv->loop[i], e);
        srv->n_loops = i + 1;
    }
    for (uint32_t i = 0; i < n && !status; i++)
        status = loop_start(srv->loop[i], e);
    return status;
}

enum status server_reload(struct server *srv, const struct settings *set, struct err *e)
{
    return auth_load(&srv->auth, set, e);
}

void server_set_ready(struct server *srv)
{
    for (uint32_t i = 0; i < srv->n_services; i++) /* names that were found on the disk */
        ledger_add(&srv->names, LEDGER_NAMES, kv_named_memory(srv->service[i]->named));
    atomic_store_explicit(&srv->phase, PHASE_READY, memory_order_release);
}

static void poke_all(struct server *srv)
{
    for (uint32_t i = 0; i < srv->n_loops; i++)
        loop_poke(srv->loop[i]);
}

void server_leave(struct server *srv, bool at_once, struct leaving *l)
{
    uint64_t now = clock_ns();
    *l = (struct leaving){
        .duck_ns = now + (at_once ? 0 : (uint64_t)srv->set->server_lame_duck * NS_PER_MS),
        .cut_ns = now + (uint64_t)srv->set->server_drain_timeout * NS_PER_MS,
    };
    atomic_store_explicit(&srv->phase, PHASE_DRAINING, memory_order_release);
}

static void cut(struct server *srv)
{
    log_warn("%u requests are cut short", server_n_jobs(srv));
    for (uint32_t i = 0; i < srv->n_loops; i++)
        atomic_store_explicit(&srv->loop[i]->cutting, true, memory_order_release);
    poke_all(srv);
}

bool server_may_close(struct server *srv, struct leaving *l)
{
    uint64_t now = clock_ns();
    bool busy = server_n_jobs(srv) > 0;
    if (busy && now >= l->cut_ns && !l->cut) {
        l->cut = true;
        cut(srv);
    }
    return now >= l->duck_ns && (!busy || l->cut);
}

void server_drain(struct server *srv)
{
    for (uint32_t i = 0; i < srv->n_loops; i++)
        atomic_store_explicit(&srv->loop[i]->draining, true, memory_order_release);
    poke_all(srv);
}

uint32_t server_n_jobs(const struct server *srv)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < srv->n_loops; i++)
        n += atomic_load_explicit(&srv->loop[i]->n_jobs, memory_order_acquire);
    return n;
}

void server_stop(struct server *srv)
{
    if (srv->offload)
        offload_stop(srv->offload); /* loops end when their exchanges have */
    for (uint32_t i = 0; i < srv->n_loops; i++)
        atomic_store_explicit(&srv->loop[i]->stopping, true, memory_order_release);
    poke_all(srv);
    for (uint32_t i = 0; i < srv->n_loops; i++)
        loop_join(srv->loop[i]);
}

void server_free(struct server *srv)
{
    if (!srv)
        return;
    offload_free(srv->offload);
    for (uint32_t i = 0; i < srv->n_loops; i++)
        loop_free(srv->loop[i]);
    mem_free(srv->loop);
    mem_free(srv->service);
    auth_release(&srv->auth);
    ledger_drop(&srv->names);
    mutex_release(&srv->prefix_lock);
    mem_free(srv);
}
