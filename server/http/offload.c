/* Preparation in turns; see offload.h. */
#include "server/http/offload.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "config/metrics.h"
#include "scheduler/scheduler.h"
#include "scheduler/tenant.h"
#include "server/api/job.h"
#include "server/exchange.h"
#include "server/http/loop.h"
#include "server/http/routes.h"
#include "server/server.h"
#include "server/service.h"
#include "server/turns.h"

enum {
    N_THREADS = 2,
    MOST_OF_A_KEY = N_THREADS - 1,
    NOBODY = TENANT_MAX, /* the queue of requests without a key's account */
    BYTE_NS = 10 /* least cost of a byte of the body */
};

struct offload {
    void (*prepared)(struct loop *l, struct exchange *ex);
    struct mutex lock;
    struct cond changed; /* something waits, or a turn is over, or stopping */
    struct turns *turns; /* owns; under lock, as all below */
    bool stopping; /* nothing runs any more */
    bool ended; /* the threads leave */
    struct thread thread[N_THREADS];
};

static struct exchange *exchange_of(struct turn *item)
{
    return (struct exchange *)((char *)item - offsetof(struct exchange, turn));
}

static void refuse_stopping(struct exchange *ex)
{
    struct err e;
    err_set(&e, ERR_DRAINING, "the server is shutting down");
    reply_err(ex, &e);
}

/* Only what has not begun yet can be too late. */
static bool is_late(const struct exchange *ex, uint64_t now)
{
    uint64_t most = (uint64_t)ex->srv->set->server_queue_timeout * NS_PER_MS;
    return most && !ex->job && !ex->question && now > ex->start_ns && now - ex->start_ns > most;
}

static void refuse_late(struct exchange *ex, uint64_t now)
{
    struct err e;
    err_set(&e, ERR_TIMEOUT, "the request waited %llu ms to be prepared, the limit is %lld ms",
            (unsigned long long)((now - ex->start_ns) / NS_PER_MS),
            (long long)ex->srv->set->server_queue_timeout);
    reply_err(ex, &e);
}

static void run(struct exchange *ex, bool stopping)
{
    uint64_t now = clock_ns();
    if (stopping)
        refuse_stopping(ex);
    else if (is_late(ex, now))
        refuse_late(ex, now);
    else if (ex->job && ex->job->done && (ex->job->api != API_PREFIXES || ex->job->error.status))
        job_reply(ex->job);
    else
        ex->route->handle(ex);
}

/* Under lock, which is let go while the handler runs. */
static void take_turn(struct offload *o, struct turn *item)
{
    struct exchange *ex = exchange_of(item);
    struct loop *l = ex->conn->loop;
    uint32_t key = item->key;
    uint64_t n_bytes = ex->body.len, start = clock_thread_ns();
    bool stopping = o->stopping;
    mutex_unlock(&o->lock);
    atomic_fetch_sub(&ex->srv->n_preparing, 1);
    run(ex, stopping);
    o->prepared(l, ex);
    uint64_t cost = clock_thread_ns() - start;
    mutex_lock(&o->lock);
    turns_done(o->turns, key, cost > n_bytes * BYTE_NS ? cost : n_bytes * BYTE_NS);
    cond_broadcast(&o->changed);
}

static void offload_main(void *arg)
{
    struct offload *o = arg;
    mutex_lock(&o->lock);
    for (;;) {
        struct turn *item = turns_next(o->turns, o->stopping ? N_THREADS : MOST_OF_A_KEY);
        if (item)
            take_turn(o, item);
        else if (o->ended)
            break;
        else
            cond_wait(&o->changed, &o->lock);
    }
    mutex_unlock(&o->lock);
}

enum status offload_new(void (*prepared)(struct loop *l, struct exchange *ex), struct offload **out,
                        struct err *e)
{
    struct offload *o = mem_zalloc(sizeof(*o));
    enum status status = OK;
    mutex_init(&o->lock);
    cond_init(&o->changed);
    o->turns = turns_new(NOBODY + 1);
    o->prepared = prepared;
    for (int i = 0; i < N_THREADS && !status; i++)
        status = thread_start(&o->thread[i], "prepare", offload_main, o, e);
    *out = o;
    return status;
}

void offload_stop(struct offload *o)
{
    mutex_lock(&o->lock);
    o->stopping = true;
    cond_broadcast(&o->changed);
    mutex_unlock(&o->lock);
}

void offload_free(struct offload *o)
{
    if (!o)
        return;
    mutex_lock(&o->lock);
    o->ended = true;
    cond_broadcast(&o->changed);
    mutex_unlock(&o->lock);
    for (int i = 0; i < N_THREADS; i++)
        thread_join(&o->thread[i]);
    turns_free(o->turns);
    cond_release(&o->changed);
    mutex_release(&o->lock);
    mem_free(o);
}

/* ---- the way in ---- */

static uint32_t key_of(const struct exchange *ex)
{
    return ex->grant.tenant ? ex->grant.tenant->slot : NOBODY;
}

static void put(struct offload *o, struct exchange *ex)
{
    const struct policy_tenant *t = ex->grant.tenant;
    turns_put(o->turns, &ex->turn, key_of(ex), t ? policy_weight(t) : 1);
    atomic_fetch_add(&ex->srv->n_preparing, 1);
    cond_broadcast(&o->changed);
}

void offload_push(struct offload *o, struct exchange *ex)
{
    mutex_lock(&o->lock);
    put(o, ex);
    mutex_unlock(&o->lock);
}

static uint32_t places(uint32_t most, uint32_t n_running)
{
    return most > n_running ? most - n_running : 0;
}

/* As the scheduler's own bounds (tenant_gate.c): requests that could run at once do not count. */
static enum status check_waiting(const struct exchange *ex, uint32_t n_all, uint32_t n_own,
                                 struct err *e)
{
    const struct settings *set = ex->srv->set;
    const struct policy_tenant *t = ex->grant.tenant;
    struct sched_stats st;
    struct tenant_view v = {0};
    if (!t || !ex->service->sched)
        return OK;
    sched_stats(ex->service->sched, &st);
    if (ex->srv->auth.tenants)
        tenant_look(ex->srv->auth.tenants, t->slot, &v);
    uint32_t most = (uint32_t)set->sched_max_running, open = places(most, st.n_running);
    n_all += st.n_waiting;
    if (n_all >= (uint64_t)set->sched_max_queued + open)
        return err_set(e, ERR_QUEUE_FULL, "%u requests are waiting, the limit is %lld", n_all,
                       (long long)set->sched_max_queued);
    if (t->given[POLICY_max_running] && t->word[POLICY_max_running] < (int64_t)most)
        most = (uint32_t)t->word[POLICY_max_running];
    n_own += v.n_waiting;
    if (places(most, v.n_running) < open)
        open = places(most, v.n_running);
    if (t->given[POLICY_max_queued] && n_own >= (uint64_t)t->word[POLICY_max_queued] + open)
        return err_set_field(e, ERR_QUEUE_FULL, NULL, "key_queue_full",
                             "%u requests of this key are waiting, its limit is %lld", n_own,
                             (long long)t->word[POLICY_max_queued]);
    return OK;
}

static void count_refusal(const struct exchange *ex)
{
    struct server *srv = ex->srv;
    metrics_add(srv->metrics, METRIC_ADMISSION_REJECTIONS, "max_num_queued_reqs", 1);
    if (srv->auth.tenants)
        tenant_refused(srv->auth.tenants, ex->grant.tenant->slot);
}

enum status offload_enter(struct offload *o, struct exchange *ex, struct err *e)
{
    mutex_lock(&o->lock);
    enum status status =
        check_waiting(ex, turns_waiting(o->turns), turns_waiting_of(o->turns, key_of(ex)), e);
    if (!status)
        put(o, ex);
    mutex_unlock(&o->lock);
    if (status)
        count_refusal(ex);
    return status;
}

bool offload_forget(struct offload *o, struct exchange *ex)
{
    mutex_lock(&o->lock);
    bool waited = turns_take(o->turns, &ex->turn);
    if (waited)
        atomic_fetch_sub(&ex->srv->n_preparing, 1);
    mutex_unlock(&o->lock);
    return waited;
}
