/* base/ring: records come out unchanged wherever they wrap; both queues between threads (run
 * under TSan by the preset tsan). */
#include <check.h>
#include <string.h>

#include "base/mem.h"
#include "base/ring.h"
#include "base/thread.h"
#include "tests/unit/run_suite.h"

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool push(struct byte_ring *r, uint32_t n, uint8_t fill)
{
    void *p = byte_ring_reserve(r, n);
    if (!p)
        return false;
    EXPECT((uintptr_t)p % 8 == 0);
    memset(p, fill, n);
    byte_ring_commit(r);
    return true;
}

static void expect_pop(struct byte_ring *r, uint32_t n, uint8_t fill)
{
    uint32_t n_got;
    const uint8_t *p = byte_ring_peek(r, &n_got);
    EXPECT(p && n_got == n);
    for (uint32_t i = 0; i < n; i++)
        EXPECT(p[i] == fill);
    byte_ring_pop(r);
}

START_TEST(an_empty_ring_gives_nothing_and_has_room_for_all_but_a_header)
{
    struct byte_ring r;
    uint32_t n;
    byte_ring_init(&r, 64);
    ck_assert_ptr_null(byte_ring_peek(&r, &n));
    ck_assert_uint_eq(byte_ring_room(&r), 56);
    ck_assert_ptr_null(byte_ring_reserve(&r, 57));
    ck_assert(push(&r, 56, 1));
    ck_assert_uint_eq(byte_ring_room(&r), 0);
    ck_assert_ptr_null(byte_ring_reserve(&r, 0));
    expect_pop(&r, 56, 1);
    ck_assert_ptr_null(byte_ring_peek(&r, &n));
    byte_ring_release(&r);
}
END_TEST

START_TEST(a_record_that_would_cross_the_end_starts_over)
{
    struct byte_ring r;
    uint32_t n;
    byte_ring_init(&r, 64);
    ck_assert(push(&r, 24, 1)); /* 0..32 */
    ck_assert(push(&r, 8, 2)); /* 32..48 */
    expect_pop(&r, 24, 1);
    /* 16 bytes at the end, 32 at the start. */
    ck_assert_uint_eq(byte_ring_room(&r), 24);
    ck_assert_ptr_null(byte_ring_reserve(&r, 25));
    ck_assert(push(&r, 24, 3));
    ck_assert_uint_eq(byte_ring_room(&r), 0);
    expect_pop(&r, 8, 2);
    expect_pop(&r, 24, 3);
    ck_assert_ptr_null(byte_ring_peek(&r, &n));
    byte_ring_release(&r);
}
END_TEST

START_TEST(half_the_ring_less_a_head_fits_wherever_an_empty_ring_stands)
{
    struct byte_ring r;
    byte_ring_init(&r, 64);
    for (int i = 0; i < 16; i++) {
        ck_assert_uint_ge(byte_ring_room(&r), 24);
        ck_assert(push(&r, 24, 7));
        expect_pop(&r, 24, 7);
        ck_assert(push(&r, 0, 0)); /* moves on by 8 */
        expect_pop(&r, 0, 0);
    }
    byte_ring_release(&r);
}
END_TEST

START_TEST(an_uncommitted_record_is_not_seen_and_may_be_replaced)
{
    struct byte_ring r;
    uint32_t n;
    byte_ring_init(&r, 64);
    ck_assert_ptr_nonnull(byte_ring_reserve(&r, 40));
    ck_assert_ptr_null(byte_ring_peek(&r, &n));
    ck_assert(push(&r, 3, 9));
    expect_pop(&r, 3, 9);
    ck_assert_ptr_null(byte_ring_peek(&r, &n));
    byte_ring_release(&r);
}
END_TEST

START_TEST(a_refused_reservation_changes_nothing)
{
    struct byte_ring r;
    byte_ring_init(&r, 64);
    ck_assert(push(&r, 40, 1)); /* 0..48 */
    ck_assert_ptr_null(byte_ring_reserve(&r, 16));
    ck_assert_uint_eq(byte_ring_room(&r), 8);
    ck_assert(push(&r, 8, 2));
    expect_pop(&r, 40, 1);
    expect_pop(&r, 8, 2);
    byte_ring_release(&r);
}
END_TEST

/* Against a plain queue: 200,000 random pushes and pops; reserve succeeds exactly when room says so. */
START_TEST(random_records_come_out_in_order_and_room_is_exact)
{
    enum { MAX_QUEUED = 64 };
    struct byte_ring r;
    uint64_t state = 1 + (uint64_t)_i;
    uint32_t sizes[MAX_QUEUED];
    uint8_t fills[MAX_QUEUED];
    size_t first = 0, n_queued = 0;
    byte_ring_init(&r, 16u << _i);
    for (int i = 0; i < 200000; i++) {
        uint32_t n = (uint32_t)(next_random(&state) % (r.cap + 8));
        if (next_random(&state) % 3)
            n %= 24;
        if (n_queued < MAX_QUEUED && next_random(&state) % 2) {
            uint32_t room = byte_ring_room(&r);
            bool fits = push(&r, n, (uint8_t)i);
            EXPECT(n == 0 || fits == (n <= room));
            if (fits) {
                sizes[(first + n_queued) % MAX_QUEUED] = n;
                fills[(first + n_queued++) % MAX_QUEUED] = (uint8_t)i;
            }
        } else if (n_queued) {
            expect_pop(&r, sizes[first], fills[first]);
            first = (first + 1) % MAX_QUEUED;
            n_queued--;
        } else {
            EXPECT(!byte_ring_peek(&r, &n));
        }
    }
    byte_ring_release(&r);
}
END_TEST

enum { N_RECORDS = 50000 };

static uint32_t size_of_record(uint32_t i)
{
    return 4 + i * 2654435761u % 50;
}

static void produce(void *arg)
{
    struct byte_ring *r = arg;
    for (uint32_t i = 0; i < N_RECORDS;) {
        uint8_t *p = byte_ring_reserve(r, size_of_record(i));
        if (!p)
            continue;
        memset(p, (int)(i & 0xFF), size_of_record(i));
        memcpy(p, &i, sizeof(i));
        byte_ring_commit(r);
        i++;
    }
}

START_TEST(two_threads_exchange_records_unharmed)
{
    struct byte_ring r;
    struct thread t;
    struct err e;
    byte_ring_init(&r, 256);
    ck_assert_int_eq(thread_start(&t, "producer", produce, &r, &e), OK);
    for (uint32_t i = 0; i < N_RECORDS;) {
        uint32_t n, id;
        const uint8_t *p = byte_ring_peek(&r, &n);
        if (!p)
            continue;
        memcpy(&id, p, sizeof(id));
        EXPECT(id == i && n == size_of_record(i));
        for (uint32_t k = sizeof(id); k < n; k++)
            EXPECT(p[k] == (i & 0xFF));
        byte_ring_pop(&r);
        i++;
    }
    thread_join(&t);
    byte_ring_release(&r);
}
END_TEST

START_TEST(mpsc_keeps_order_and_refuses_when_full)
{
    struct err e;
    struct mpsc *q = mpsc_new(3, &e);
    int items[5];
    ck_assert_ptr_nonnull(q);
    for (int round = 0; round < 5; round++) {
        ck_assert_ptr_null(mpsc_pop(q));
        ck_assert(mpsc_push(q, &items[0]) && mpsc_push(q, &items[1]) && mpsc_push(q, &items[2]));
        ck_assert(!mpsc_push(q, &items[3]));
        ck_assert_ptr_eq(mpsc_pop(q), &items[0]);
        ck_assert(mpsc_push(q, &items[4]));
        ck_assert_ptr_eq(mpsc_pop(q), &items[1]);
        ck_assert_ptr_eq(mpsc_pop(q), &items[2]);
        ck_assert_ptr_eq(mpsc_pop(q), &items[4]);
    }
    mpsc_free(q);
}
END_TEST

/* Would hang, and end by the suite's time limit, if a wait missed something. */
START_TEST(mpsc_wait_returns_for_items_wakes_and_time)
{
    struct err e;
    struct mpsc *q = mpsc_new(3, &e);
    int item;
    ck_assert(mpsc_push(q, &item) && mpsc_push(q, &item));
    mpsc_wait(q, -1);
    mpsc_pop(q);
    mpsc_wait(q, -1); /* one is still queued */
    mpsc_pop(q);
    mpsc_wake(q);
    mpsc_wait(q, -1);
    mpsc_wait(q, 1); /* nothing: ends by time */
    mpsc_free(q);
}
END_TEST

enum { N_PRODUCERS = 4, N_ITEMS = 20000 };

struct producer {
    struct mpsc *q;
    uint32_t items[N_ITEMS];
};

static void push_all(void *arg)
{
    struct producer *p = arg;
    for (uint32_t i = 0; i < N_ITEMS;) {
        p->items[i] = i;
        i += mpsc_push(p->q, &p->items[i]);
    }
}

START_TEST(mpsc_loses_nothing_and_keeps_each_producers_order)
{
    struct err e;
    struct mpsc *q = mpsc_new(64, &e);
    struct producer *producers = mem_zalloc(N_PRODUCERS * sizeof(*producers));
    struct thread threads[N_PRODUCERS];
    uint32_t next[N_PRODUCERS] = {0};
    for (int i = 0; i < N_PRODUCERS; i++) {
        producers[i].q = q;
        ck_assert_int_eq(thread_start(&threads[i], "producer", push_all, &producers[i], &e), OK);
    }
    for (int n = 0; n < N_PRODUCERS * N_ITEMS;) {
        uint32_t *item = mpsc_pop(q);
        if (!item) {
            mpsc_wait(q, -1);
            continue;
        }
        size_t from = (size_t)((char *)item - (char *)producers) / sizeof(*producers);
        EXPECT(*item == next[from]++);
        n++;
    }
    for (int i = 0; i < N_PRODUCERS; i++)
        thread_join(&threads[i]);
    ck_assert_ptr_null(mpsc_pop(q));
    mem_free(producers);
    mpsc_free(q);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/ring");
    TCase *t = tcase_create("ring");
    tcase_add_test(t, an_empty_ring_gives_nothing_and_has_room_for_all_but_a_header);
    tcase_add_test(t, a_record_that_would_cross_the_end_starts_over);
    tcase_add_test(t, half_the_ring_less_a_head_fits_wherever_an_empty_ring_stands);
    tcase_add_test(t, an_uncommitted_record_is_not_seen_and_may_be_replaced);
    tcase_add_test(t, a_refused_reservation_changes_nothing);
    tcase_add_loop_test(t, random_records_come_out_in_order_and_room_is_exact, 0, 6);
    tcase_add_test(t, two_threads_exchange_records_unharmed);
    tcase_add_test(t, mpsc_keeps_order_and_refuses_when_full);
    tcase_add_test(t, mpsc_wait_returns_for_items_wakes_and_time);
    tcase_add_test(t, mpsc_loses_nothing_and_keeps_each_producers_order);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
