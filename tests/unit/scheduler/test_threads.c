/* The real engine thread, several threads that submit, read and cancel, and a stop in between.
 * Consumers sleep on a semaphore that wake posts and read slowly, so that rings fill. Clean under the
 * thread sanitizer. */
#include <semaphore.h>

#include "base/thread.h"
#include "tests/unit/scheduler/rig.h"

enum { N_THREADS = 4, N_EACH = 120, N_OPEN = 6 };

struct client {
    struct rig *g;
    struct thread thread;
    sem_t more; /* posted by wake: one of the streams has events */
    uint32_t seed;
    uint32_t n_ok, n_cancelled, n_refused, n_stopped;
};

struct stream {
    struct request *r;
    struct seen seen;
    uint32_t cancel_at; /* tokens after which the client goes away */
    bool cancelled;
};

static void post(struct request *r, void *arg)
{
    (void)r;
    sem_post(&((struct client *)arg)->more);
}

static uint32_t next(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static bool open_stream(struct client *c, struct stream *st)
{
    struct err e;
    uint32_t retry = 0;
    struct request *r =
        rig_random(c->g, next(&c->seed), 1 + next(&c->seed) % 60, 1 + next(&c->seed) % 40);
    r->n_choices = 1 + next(&c->seed) % 2;
    r->arrive_ns = clock_ns();
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, request_ring_bytes(r, NULL));
    r->wake = post;
    r->wake_arg = c;
    st->r = r;
    st->cancel_at = next(&c->seed) % 80;
    st->cancelled = false;
    seen_init(&st->seen, r);
    enum status status = sched_submit(c->g->s, r, &retry, &e);
    if (status == OK)
        return true;
    ck_assert(status == ERR_QUEUE_FULL || status == ERR_DRAINING);
    c->n_refused++;
    seen_release(&st->seen);
    request_unref(r);
    st->r = NULL;
    return false;
}

/* True when the stream has ended. */
static bool read_stream(struct client *c, struct stream *st)
{
    if (seen_read(&st->seen, st->r, UINT32_MAX) > 0)
        sched_resume(c->g->s, st->r);
    if (st->seen.n_end == 0) {
        if (!st->cancelled && st->seen.n_token[0] >= st->cancel_at) {
            st->cancelled = true;
            sched_cancel(c->g->s, st->r);
        }
        return false;
    }
    c->n_ok += st->seen.status == OK;
    c->n_cancelled += st->seen.status == ERR_CANCELLED;
    c->n_stopped += st->seen.status == ERR_DRAINING;
    seen_release(&st->seen);
    /* The engine may be about to wake a last time: it holds its reference until it has. */
    while (atomic_load(&st->r->refs) > 1)
        sched_yield();
    request_unref(st->r);
    return true;
}

static void read_streams(struct client *c, struct stream *st, uint32_t n)
{
    while (n > 0) {
        while (sem_wait(&c->more) != 0)
            ;
        if (next(&c->seed) % 4 == 0) { /* a slow reader: rings may fill meanwhile */
            sem_post(&c->more);
            sched_yield();
            continue;
        }
        for (uint32_t k = 0; k < n;) {
            if (read_stream(c, &st[k]))
                st[k] = st[--n];
            else
                k++;
        }
    }
}

static void client(void *arg)
{
    struct client *c = arg;
    struct stream st[N_OPEN];
    for (uint32_t i = 0; i < N_EACH; i += N_OPEN) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < N_OPEN; k++)
            n += open_stream(c, &st[n]);
        read_streams(c, st, n);
    }
}

static void run_clients(struct rig *g, struct client *c, bool stop_early)
{
    struct err e;
    ck_assert_int_eq(sched_start(g->s, &e), OK);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        c[i] = (struct client){.g = g, .seed = 77 + i};
        sem_init(&c[i].more, 0, 0);
        ck_assert_int_eq(thread_start(&c[i].thread, "client", client, &c[i], &e), OK);
    }
    struct sched_stats st = {0};
    while (stop_early && st.n_steps < 50) {
        sched_stats(g->s, &st);
        sched_yield();
    }
    if (stop_early)
        sched_stop(g->s);
    for (uint32_t i = 0; i < N_THREADS; i++)
        thread_join(&c[i].thread);
    for (uint32_t i = 0; i < N_THREADS; i++)
        sem_destroy(&c[i].more);
}

START_TEST(threads_submit_read_and_cancel_without_a_race)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 96;
    opt.limits.max_running = 8;
    rig_init(&g, &opt);
    struct client c[N_THREADS];
    run_clients(&g, c, false);
    uint32_t n_ok = 0, n = 0;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        n_ok += c[i].n_ok;
        n += c[i].n_ok + c[i].n_cancelled + c[i].n_refused;
    }
    ck_assert_uint_eq(n, N_THREADS * N_EACH);
    ck_assert_uint_gt(n_ok, N_EACH);
    rig_release(&g);
}
END_TEST

START_TEST(stop_ends_every_request_whoever_submits_meanwhile)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.n_blocks = 96;
    opt.limits.max_running = 4;
    rig_init(&g, &opt);
    struct client c[N_THREADS];
    run_clients(&g, c, true);
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_THREADS; i++)
        n += c[i].n_ok + c[i].n_cancelled + c[i].n_refused + c[i].n_stopped;
    ck_assert_uint_eq(n, N_THREADS * N_EACH);
    rig_release(&g);
}
END_TEST

START_TEST(an_idle_engine_sleeps_and_wakes_for_a_request)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct err e;
    struct sched_stats st = {0};
    ck_assert_int_eq(sched_start(g.s, &e), OK);
    while (!st.idle) {
        sched_yield();
        sched_stats(g.s, &st);
    }
    struct client c = {.g = &g, .seed = 5};
    struct stream stream;
    sem_init(&c.more, 0, 0);
    ck_assert(open_stream(&c, &stream));
    read_streams(&c, &stream, 1);
    ck_assert_uint_eq(c.n_ok + c.n_cancelled, 1);
    sem_destroy(&c.more);
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/threads");
    TCase *tc = tcase_create("threads");
    tcase_add_test(tc, threads_submit_read_and_cancel_without_a_race);
    tcase_add_loop_test(tc, stop_ends_every_request_whoever_submits_meanwhile, 0, 5);
    tcase_add_test(tc, an_idle_engine_sleeps_and_wakes_for_a_request);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
