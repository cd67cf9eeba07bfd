/* The life of a serving process; see serve.h.
 *
 * Listening comes first: /health answers and everything else says 503 while a loader thread opens the
 * model, so that orchestrators see a live process and the main thread can still take signals. */
#include "server/serve.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "config/ledger.h"
#include "config/metrics.h"
#include "scheduler/scheduler.h"
#include "scheduler/tenant.h"
#include "server/cli/banner.h"
#include "server/budget.h"
#include "server/front.h"
#include "server/service.h"

struct app {
    const struct settings *set;
    const struct serve_source *from;
    const char *version;
    int signal_fd, loaded_fd;
    struct metrics *metrics; /* owns */
    struct tenants *tenants; /* owns */
    struct ledger *ledger; /* owns */
    uint64_t memory_bytes; /* that the process may have in all */
    struct server *srv; /* owns */
    struct thread loader;
    enum status load_status; /* the loader's, valid once loaded_fd is readable */
    struct err load_error;
    struct service *service; /* owns */
};

/* ---- before the model ---- */

static enum status open_signals(struct app *a, struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write over ulimit -f fails like one to a full disk */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_set(e, ERR_IO, "cannot block signals: %s", strerror(errno));
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    a->loaded_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->signal_fd < 0 || a->loaded_fd < 0)
        return err_set(e, ERR_IO, "cannot make a descriptor: %s", strerror(errno));
    return OK;
}

/* Prometheus label values escape backslash, quote and newline. */
static void add_label(struct buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            buf_add_char(out, '\\');
        if (*value == '\n')
            buf_add_c(out, "\\n");
        else
            buf_add_char(out, *value);
    }
}

static void make_metrics(struct app *a)
{
    struct buf labels = {0};
    buf_add_c(&labels, "model_name=\"");
    add_label(&labels, a->service->id[0]);
    buf_add_c(&labels, "\",engine=\"0\"");
    a->metrics = metrics_new(metrics_table, metrics_table_n);
    metrics_set_const_labels(a->metrics, labels.ptr);
    buf_release(&labels);
}

static void apply_log_settings(const struct settings *set)
{
    static const enum log_level level[] = {[SET_LOG_DEBUG] = LOG_DEBUG,
                                           [SET_LOG_INFO] = LOG_INFO,
                                           [SET_LOG_WARN] = LOG_WARN,
                                           [SET_LOG_ERROR] = LOG_ERROR};
    log_set_level(level[set->log_level]);
    log_set_json(set->log_format == SET_LOG_JSON);
}

static enum status open_front(struct app *a, struct err *e)
{
    apply_log_settings(a->set);
    enum status status = kv_memory_check(a->set, e);
    if (!status)
        status = open_signals(a, e);
    if (!status)
        status = service_new(a->set, &a->service, e);
    if (status)
        return status;
    make_metrics(a);
    a->tenants = tenants_new(
        (uint64_t)a->set->sched_age * NS_PER_MS, (uint32_t)a->set->sched_max_running,
        (uint32_t)a->set->sched_spare_running, (uint64_t)a->set->sched_max_queued_tokens);
    a->memory_bytes = kv_free_bytes();
    a->ledger = ledger_new(ledger_kinds, N_LEDGER_KINDS, TENANT_MAX);
    ledger_set_total(a->ledger, budget_bytes(a->set, a->memory_bytes, a->memory_bytes / 2));
    status =
        server_new(a->set, a->version, a->metrics, a->service, a->tenants, a->ledger, &a->srv, e);
    return status ? status : server_listen(a->srv, e);
}

/* ---- loading ---- */

static void load(void *arg)
{
    struct app *a = arg;
    uint64_t one = 1;
    a->load_status = service_load(a->service, a->tenants, a->metrics, &a->load_error);
    if (write(a->loaded_fd, &one, sizeof(one)) < 0)
        log_error("cannot report that the model is loaded: %s", strerror(errno));
}

/* ---- running and ending ---- */

/* Number of the signal that came, 0 when none did within timeout_ms, -1 when the model is loaded. */
static int wait_event(struct app *a, int timeout_ms, bool loading)
{
    struct pollfd p[2] = {{.fd = a->signal_fd, .events = POLLIN},
                          {.fd = loading ? a->loaded_fd : -1, .events = POLLIN}};
    struct signalfd_siginfo info;
    if (poll(p, 2, timeout_ms) <= 0)
        return 0;
    if (p[0].revents && read(a->signal_fd, &info, sizeof(info)) == sizeof(info))
        return (int)info.ssi_signo;
    return p[1].revents ? -1 : 0;
}

static void reload(struct app *a)
{
    struct settings set;
    struct err e = {0};
    bool help;
    settings_init(&set);
    enum status status =
        settings_load_model(&set, a->from->argc, a->from->argv, a->from->environ, &help, &e);
    if (!status)
        status = server_reload(a->srv, &set, &e);
    if (status)
        log_error("reload: %s: keys and limits are unchanged", e.text);
    else
        log_info("reload: keys and limits were read again");
    settings_release(&set);
}

/* The next signal that ends serving, after those that don't; 0 and -1 as wait_event. */
static int wait_end(struct app *a, int timeout_ms, bool loading)
{
    int event = wait_event(a, timeout_ms, loading);
    if (event == SIGHUP)
        reload(a);
    return event == SIGHUP ? 0 : event;
}

/* Lets running requests finish, and others see that this server leaves; a second signal ends the wait. Whoever
 * presses Ctrl-C sits in front of it, and no balancer is behind: only what runs is waited for. */
static void drain(struct app *a, int signo, enum serve_end *how)
{
    enum { POLL_MS = 10 };
    struct leaving leaving;
    log_info("shutting down: %u requests running, up to %lld ms for them (Ctrl-C or SIGTERM again "
             "ends at once)",
             server_n_jobs(a->srv), (long long)a->set->server_drain_timeout);
    server_leave(a->srv, signo == SIGINT, &leaving);
    sched_drain(a->service->sched); /* also for a request whose body was still on its way */
    while (!*how && !server_may_close(a->srv, &leaving))
        *how = wait_end(a, POLL_MS, false) > 0 ? SERVE_CUT_SHORT : SERVE_ENDED;
    server_drain(a->srv);
}

/* Closing waits for a step, for writes to a disk, for clients: not for longer than is wanted. */
static void let_signals_end(const struct app *a)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGTERM, a->from->cut_short);
    signal(SIGINT, a->from->cut_short);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void close_all(struct app *a)
{
    if (a->srv)
        server_stop(a->srv);
    if (a->service)
        service_stop(a->service);
    server_free(a->srv);
    service_free(a->service);
    tenants_free(a->tenants);
    ledger_free(a->ledger);
    if (a->metrics)
        metrics_free(a->metrics);
    if (a->signal_fd >= 0)
        close(a->signal_fd);
    if (a->loaded_fd >= 0)
        close(a->loaded_fd);
}

/* What the model took is known now. */
static void size_ledger(struct app *a)
{
    const struct service *v = a->service;
    uint64_t fixed =
        v->info->device.weight_bytes + v->info->device.scratch_bytes + v->kv.store->arena.n_bytes;
    uint64_t memory = budget_within_limits(a->memory_bytes, fixed);
    ledger_set_total(a->ledger, budget_bytes(a->set, memory, fixed));
}

static enum status run(struct app *a, enum serve_end *end, struct err *e)
{
    enum status status = open_front(a, e);
    if (!status)
        status = thread_start(&a->loader, "loader", load, a, e);
    if (status)
        return status;
    int event;
    while ((event = wait_end(a, -1, true)) == 0)
        continue;
    if (event > 0) {
        *end = SERVE_LEFT_LOADING;
        return OK;
    }
    thread_join(&a->loader);
    if (a->load_status) {
        *e = a->load_error;
        return a->load_status;
    }
    size_ledger(a);
    service_describe(a->service, a->version, a->metrics);
    server_set_ready(a->srv);
    banner_print(a->srv, a->service, a->version, auth_needs_key(&a->srv->auth));
    while ((event = wait_end(a, -1, false)) == 0)
        continue;
    drain(a, event, end);
    let_signals_end(a);
    return OK;
}

enum status serve_run(const struct settings *set, const struct serve_source *from,
                      const char *version, enum serve_end *end, struct err *e)
{
    struct app *a = mem_zalloc(sizeof(*a));
    *a = (struct app){
        .set = set, .from = from, .version = version, .signal_fd = -1, .loaded_fd = -1};
    *end = SERVE_ENDED;
    enum status status = run(a, end, e);
    if (*end)
        return status; /* threads still use it */
    close_all(a);
    mem_free(a);
    return status;
}
