/* Handlers of large bodies; see offload.h. */
#include "server/http/offload.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/ring.h"
#include "base/thread.h"
#include "server/exchange.h"
#include "server/http/loop.h"
#include "server/http/routes.h"

enum { QUEUE_CAP = 256 };

struct offload {
    struct mpsc *queue; /* owns; struct exchange, borrowed until loop_prepared */
    struct thread thread;
    atomic_bool stopping;
};

static void offload_main(void *arg)
{
    struct offload *o = arg;
    for (;;) {
        struct exchange *ex = mpsc_pop(o->queue);
        if (ex) {
            struct loop *l = ex->conn->loop;
            ex->route->handle(ex);
            loop_prepared(l, ex);
        } else if (atomic_load_explicit(&o->stopping, memory_order_acquire)) {
            return;
        } else {
            mpsc_wait(o->queue, -1);
        }
    }
}

enum status offload_new(struct offload **out, struct err *e)
{
    struct offload *o = mem_zalloc(sizeof(*o));
    o->queue = mpsc_new(QUEUE_CAP, e);
    enum status status = o->queue ? OK : e->status;
    if (!status)
        status = thread_start(&o->thread, "offload", offload_main, o, e);
    if (status) {
        mpsc_free(o->queue);
        mem_free(o);
        o = NULL;
    }
    *out = o;
    return status;
}

void offload_free(struct offload *o)
{
    if (!o)
        return;
    atomic_store_explicit(&o->stopping, true, memory_order_release);
    mpsc_wake(o->queue);
    thread_join(&o->thread);
    mpsc_free(o->queue);
    mem_free(o);
}

bool offload_push(struct offload *o, struct exchange *ex)
{
    return mpsc_push(o->queue, ex);
}
