/* server/turns and server/http/offload: the choice of the next request to prepare, counted in turns, and that no
 * key waits for another key's long turn. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "server/exchange.h"
#include "server/http/loop.h"
#include "server/http/offload.h"
#include "server/http/routes.h"
#include "server/server.h"
#include "server/service.h"
#include "server/turns.h"
#include "tests/unit/run_suite.h"

/* ---- the order ---- */

enum { KEYS = 8, MANY = 1000 };

static struct turn item[KEYS][MANY];

/* One turn at a time, each at the cost of its key; gives the key. */
static uint32_t one_turn(struct turns *t, const uint64_t *cost)
{
    struct turn *next = turns_next(t, 1);
    ck_assert_ptr_nonnull(next);
    turns_done(t, next->key, cost[next->key]);
    return next->key;
}

START_TEST(a_key_is_served_in_order_and_alone_without_a_wait)
{
    struct turns *t = turns_new(KEYS);
    for (int i = 0; i < 10; i++)
        turns_put(t, &item[3][i], 3, 1);
    ck_assert_uint_eq(turns_waiting(t), 10);
    ck_assert_uint_eq(turns_waiting_of(t, 3), 10);
    for (int i = 0; i < 10; i++) {
        ck_assert_ptr_eq(turns_next(t, 1), &item[3][i]);
        ck_assert_ptr_null(turns_next(t, 1));
        turns_done(t, 3, 5);
    }
    ck_assert_ptr_null(turns_next(t, 1));
    turns_free(t);
}
END_TEST

START_TEST(a_flood_delays_a_newcomer_by_the_turn_in_progress_only)
{
    const uint64_t cost[KEYS] = {1000000, 10};
    struct turns *t = turns_new(KEYS);
    for (int i = 0; i < MANY; i++)
        turns_put(t, &item[0][i], 0, 1);
    for (int i = 0; i < 20; i++) {
        struct turn *running = turns_next(t, 1);
        ck_assert_uint_eq(running->key, 0);
        turns_put(t, &item[1][i], 1, 1); /* while a turn of the flood is in progress */
        turns_done(t, 0, cost[0]);
        ck_assert_uint_eq(one_turn(t, cost), 1);
    }
    while (turns_waiting(t))
        one_turn(t, cost);
    turns_free(t);
}
END_TEST

START_TEST(keys_that_wait_share_by_weight_and_cost)
{
    static const uint32_t weight[3] = {1, 3, 1};
    const uint64_t cost[KEYS] = {1000, 1000, 4000};
    struct turns *t = turns_new(KEYS);
    uint32_t n[3] = {0, 0, 0};
    for (uint32_t key = 0; key < 3; key++)
        for (int i = 0; i < MANY; i++)
            turns_put(t, &item[key][i], key, weight[key]);
    for (int i = 0; i < 850; i++)
        n[one_turn(t, cost)]++;
    ck_assert(abs((int)n[0] - 200) <= 2);
    ck_assert(abs((int)n[1] - 600) <= 2);
    ck_assert(abs((int)n[2] - 50) <= 2);
    while (turns_waiting(t))
        one_turn(t, cost);
    turns_free(t);
}
END_TEST

START_TEST(being_idle_saves_nothing_up)
{
    const uint64_t cost[KEYS] = {1000, 1000};
    struct turns *t = turns_new(KEYS);
    for (int i = 0; i < MANY; i++)
        turns_put(t, &item[0][i], 0, 1);
    for (int i = 0; i < 500; i++)
        one_turn(t, cost);
    for (int i = 0; i < 100; i++)
        turns_put(t, &item[1][i], 1, 1);
    int n = 0;
    for (int i = 0; i < 100; i++)
        n += one_turn(t, cost) == 1;
    ck_assert(n >= 49 && n <= 51);
    while (turns_waiting(t))
        one_turn(t, cost);
    turns_free(t);
}
END_TEST

/* Random puts, takes and turns: none is lost, and among keys that always wait what each was served by
 * weight differs by the largest turns only. */
START_TEST(random_turns_lose_nothing_and_stay_fair)
{
    enum { N = 60000, MOST = 1000 };
    static const uint32_t weight[KEYS] = {1, 2, 3, 1, 5, 1, 1, 2};
    struct turns *t = turns_new(KEYS);
    uint32_t head[KEYS] = {0}, tail[KEYS] = {0};
    int64_t served[2] = {0, 0}; /* of keys 0 and 1, which always wait */
    memset(item, 0, sizeof(item));
    srand(7);
    for (int i = 0; i < N; i++) {
        for (uint32_t key = 0; key < 2; key++)
            while (tail[key] - head[key] < 5)
                turns_put(t, &item[key][tail[key]++ % MANY], key, weight[key]);
        uint32_t key = 2 + (uint32_t)rand() % (KEYS - 2);
        if (rand() % 3 == 0 && tail[key] - head[key] < 50)
            turns_put(t, &item[key][tail[key]++ % MANY], key, weight[key]);
        if (rand() % 10 == 0 && tail[key] != head[key]) /* the first of a queue leaves */
            EXPECT(turns_take(t, &item[key][head[key]++ % MANY]));
        struct turn *next = turns_next(t, 1);
        EXPECT(next && next == &item[next->key][head[next->key] % MANY] && !turns_take(t, next));
        head[next->key]++;
        uint64_t cost = (uint64_t)(rand() % MOST);
        if (next->key < 2)
            served[next->key] += (int64_t)(cost / weight[next->key]) + 1;
        turns_done(t, next->key, cost);
        EXPECT(served[0] - served[1] < 2 * MOST && served[1] - served[0] < 2 * MOST);
    }
    uint32_t left = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        EXPECT(turns_waiting_of(t, key) == tail[key] - head[key]);
        left += tail[key] - head[key];
    }
    ck_assert_uint_eq(turns_waiting(t), left);
    while (turns_next(t, UINT32_MAX))
        left--;
    ck_assert_uint_eq(left, 0);
    turns_free(t);
}
END_TEST

/* ---- the threads ---- */

static struct server srv;
static struct settings set;
static struct service service;
static struct loop loop;
static struct conn conn = {.loop = &loop};
static struct policy_tenant tenant[3];
static struct mutex lock;
static struct cond changed;
static uint32_t n_begun, n_allowed, order[64];

/* A handler that begins, then waits until it is let go; key 1's are never held. */
static void held_handler(struct exchange *ex)
{
    mutex_lock(&lock);
    order[n_begun++] = ex->grant.tenant->slot;
    cond_broadcast(&changed);
    while (ex->grant.tenant->slot != 1 && n_allowed == 0)
        cond_wait(&changed, &lock);
    n_allowed -= ex->grant.tenant->slot != 1;
    mutex_unlock(&lock);
}

static const struct route route = {.handle = held_handler};

static void set_up(void)
{
    struct err e;
    mutex_init(&lock);
    cond_init(&changed);
    settings_init(&set);
    memset(&srv, 0, sizeof(srv));
    srv.set = &set;
    loop.event_fd = eventfd(0, EFD_NONBLOCK);
    for (uint32_t i = 0; i < 3; i++)
        tenant[i].slot = i;
    ck_assert_int_eq(offload_new(loop_prepared, &srv.offload, &e), OK);
}

static void tear_down(void)
{
    offload_free(srv.offload);
    close(loop.event_fd);
    settings_release(&set);
    cond_release(&changed);
    mutex_release(&lock);
}

static struct exchange *enter(uint32_t key)
{
    struct exchange *ex = mem_zalloc(sizeof(*ex));
    struct err e;
    *ex = (struct exchange){.srv = &srv,
                            .service = &service,
                            .conn = &conn,
                            .route = &route,
                            .start_ns = UINT64_MAX,
                            .grant = {.tenant = &tenant[key]}};
    ck_assert_int_eq(offload_enter(srv.offload, ex, &e), OK);
    return ex;
}

static void wait_begun(uint32_t n)
{
    mutex_lock(&lock);
    while (n_begun < n)
        cond_wait(&changed, &lock);
    mutex_unlock(&lock);
}

static void allow(uint32_t n)
{
    mutex_lock(&lock);
    n_allowed += n;
    cond_broadcast(&changed);
    mutex_unlock(&lock);
}

static uint32_t free_prepared(void)
{
    uint32_t n = 0;
    struct exchange *ex = atomic_exchange(&loop.prepared, NULL);
    for (struct exchange *next; ex; ex = next, n++) {
        next = ex->next;
        exchange_release(ex);
        mem_free(ex);
    }
    return n;
}

START_TEST(a_key_whose_turns_take_long_holds_nobody_up)
{
    set_up();
    for (int i = 0; i < 10; i++)
        enter(0);
    wait_begun(1); /* held: its end is not in sight */
    for (uint32_t i = 0; i < 5; i++) {
        enter(1);
        wait_begun(2 + i);
    }
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(order[i], i > 0);
    ck_assert_uint_eq(srv.n_preparing, 9);
    allow(10);
    wait_begun(15);
    tear_down();
    ck_assert_uint_eq(free_prepared(), 15);
}
END_TEST

START_TEST(with_all_threads_held_another_key_waits_for_one_turn)
{
    set_up();
    for (int i = 0; i < 10; i++) {
        enter(0);
        enter(2);
    }
    wait_begun(2);
    enter(1); /* both threads are held now */
    allow(1);
    wait_begun(4); /* the newcomer, and one of the flood in the place that it left */
    ck_assert_uint_eq(order[2], 1);
    allow(19);
    wait_begun(21);
    tear_down();
    ck_assert_uint_eq(free_prepared(), 21);
}
END_TEST

START_TEST(who_leaves_while_it_waits_is_given_back_at_once)
{
    set_up();
    struct exchange *first = enter(0), *second = enter(0);
    wait_begun(1);
    ck_assert(!offload_forget(srv.offload, first));
    ck_assert(offload_forget(srv.offload, second));
    ck_assert(!offload_forget(srv.offload, second));
    ck_assert_uint_eq(srv.n_preparing, 0);
    mem_free(second);
    allow(1);
    tear_down();
    ck_assert_uint_eq(n_begun, 1);
    ck_assert_uint_eq(free_prepared(), 1);
}
END_TEST

START_TEST(what_waits_at_the_end_is_answered_without_being_prepared)
{
    set_up();
    for (int i = 0; i < 5; i++)
        enter(0);
    wait_begun(1);
    offload_stop(srv.offload);
    allow(1);
    tear_down();
    ck_assert_uint_eq(n_begun, 1);
    uint32_t n_refused = 0;
    for (struct exchange *ex = loop.prepared; ex; ex = ex->next)
        n_refused += ex->reply.set && ex->reply.http == 503;
    ck_assert_uint_eq(n_refused, 4);
    ck_assert_uint_eq(free_prepared(), 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/turns");
    TCase *t = tcase_create("order");
    tcase_add_test(t, a_key_is_served_in_order_and_alone_without_a_wait);
    tcase_add_test(t, a_flood_delays_a_newcomer_by_the_turn_in_progress_only);
    tcase_add_test(t, keys_that_wait_share_by_weight_and_cost);
    tcase_add_test(t, being_idle_saves_nothing_up);
    tcase_add_test(t, random_turns_lose_nothing_and_stay_fair);
    suite_add_tcase(suite, t);
    t = tcase_create("threads");
    tcase_add_test(t, a_key_whose_turns_take_long_holds_nobody_up);
    tcase_add_test(t, with_all_threads_held_another_key_waits_for_one_turn);
    tcase_add_test(t, who_leaves_while_it_waits_is_given_back_at_once);
    tcase_add_test(t, what_waits_at_the_end_is_answered_without_being_prepared);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
