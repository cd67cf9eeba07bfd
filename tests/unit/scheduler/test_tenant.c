/* The choice of the next request to serve: order, ageing, fairness. The oracles are sorted lists and sums made
 * here, not the table's own counts. */
#include "tests/unit/scheduler/tenant_rig.h"

/* ---- order.h ---- */

static int by_key(const void *a, const void *b)
{
    const struct order_link *x = *(struct order_link *const *)a,
                            *y = *(struct order_link *const *)b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->ticket < y->ticket ? -1 : 1;
}

static void expect_order(const struct order *o, struct order_link **in, size_t n)
{
    qsort(in, n, sizeof(*in), by_key);
    struct order_link *l = o->first;
    for (size_t i = 0; i < n; i++, l = order_next(l))
        EXPECT(l == in[i]);
    EXPECT(l == NULL);
}

START_TEST(an_ordered_set_equals_a_sorted_list_after_any_inserts_and_removes)
{
    enum { N = 200 };
    static struct order_link link[N], *in[N];
    struct order o = {0};
    size_t n = 0;
    srand(11);
    for (uint64_t op = 0; op < 20000; op++) {
        struct order_link *l = &link[rand() % N];
        if (order_holds(l)) {
            order_remove(&o, l);
            for (size_t i = 0; i < n; i++)
                if (in[i] == l)
                    in[i] = in[--n];
        } else {
            order_insert(&o, l, (uint64_t)rand() % 50, op);
            in[n++] = l;
        }
        if (op % 16 == 0)
            expect_order(&o, in, n);
    }
}
END_TEST

static size_t depth(const struct order_link *l)
{
    size_t n = 0;
    for (; l; l = l->up)
        n++;
    return n;
}

START_TEST(an_ordered_set_stays_shallow_when_keys_come_in_order)
{
    enum { N = 100000 };
    struct order_link *link = mem_zalloc(N * sizeof(*link));
    struct order o = {0};
    size_t deepest = 0;
    for (uint64_t i = 0; i < N; i++)
        order_insert(&o, &link[i], i, i);
    for (size_t i = 0; i < N; i++)
        deepest = depth(&link[i]) > deepest ? depth(&link[i]) : deepest;
    ck_assert_uint_lt(deepest, 64);
    mem_free(link);
}
END_TEST

/* ---- order of service ---- */

START_TEST(one_tenant_is_served_in_order_of_arrival)
{
    struct tenant_item *it[5];
    setup(1);
    for (int i = 0; i < 5; i++, now += NS_PER_S / 100)
        it[i] = put(0, 10);
    for (int i = 0; i < 5; i++) {
        ck_assert_ptr_eq(tenant_first(table, now), it[i]);
        drop(it[i]);
    }
    finish();
}
END_TEST

START_TEST(within_a_tenant_class_then_deadline_then_ticket)
{
    setup(1);
    struct tenant_item plain = {.n_tokens = 1}, urgent = plain, sooner = plain, back = plain;
    urgent.deadline_ns = now + 5 * NS_PER_S;
    sooner.deadline_ns = now + 2 * NS_PER_S;
    back.priority = 1;
    back.deadline_ns = now + 1;
    struct tenant_item *want[5];
    want[4] = put_full(back);
    want[2] = put_full(plain);
    want[3] = put_full(plain);
    want[1] = put_full(urgent);
    want[0] = put_full(sooner);
    for (int i = 0; i < 5; i++) {
        ck_assert_ptr_eq(tenant_first(table, now), want[i]);
        drop(want[i]);
    }
    finish();
}
END_TEST

START_TEST(a_better_class_goes_before_every_tenant_of_a_worse_one)
{
    setup(3);
    struct tenant_item *late;
    put(0, 1);
    put_full((struct tenant_item){.tenant = 1, .n_tokens = 1, .priority = 2});
    late = put_full((struct tenant_item){.tenant = 2, .n_tokens = 100, .priority = -1});
    tenant_charge(table, 2, 100000, 0, 0);
    ck_assert_ptr_eq(tenant_first(table, now), late);
    finish();
}
END_TEST

START_TEST(a_request_cannot_pass_the_best_priority_of_its_key)
{
    setup(2);
    set.row[0].priority = 3;
    set.row[1].priority = 1;
    tenants_apply(table, &set);
    put_full((struct tenant_item){.tenant = 0, .n_tokens = 1, .priority = -31});
    struct tenant_item *second = put_full((struct tenant_item){.tenant = 1, .n_tokens = 1});
    ck_assert_ptr_eq(tenant_first(table, now), second);
    finish();
}
END_TEST

START_TEST(priorities_far_out_of_range_count_as_the_last_class)
{
    setup(2);
    struct tenant_item *a, *b;
    a = put_full((struct tenant_item){.tenant = 0, .n_tokens = 1, .priority = INT32_MAX});
    b = put_full((struct tenant_item){.tenant = 1, .n_tokens = 1, .priority = INT32_MIN});
    ck_assert_uint_eq(a->class_index, TENANT_CLASSES - 1);
    ck_assert_uint_eq(b->class_index, 0);
    ck_assert_ptr_eq(tenant_first(table, now), b);
    finish();
}
END_TEST

/* The bound of tenant.h point 3 and 1: (difference of priorities + 1) steps. */
START_TEST(the_lowest_class_waits_no_longer_than_its_steps_of_ageing)
{
    setup(2);
    enum { P = 3 };
    put_full((struct tenant_item){.tenant = 1, .n_tokens = 1, .priority = P});
    uint64_t begin = now;
    int got = 0;
    while (got != 1) {
        put(0, 1); /* a better one is always there */
        got = serve();
        tenant_stop(table, (uint32_t)got, 1);
        now += NS_PER_S / 2;
    }
    ck_assert_uint_ge(now - begin, P * AGE_S * NS_PER_S);
    ck_assert_uint_le(now - begin, (P + 1) * AGE_S * NS_PER_S + NS_PER_S);
    finish();
}
END_TEST

START_TEST(the_lowest_class_of_the_same_tenant_is_aged_too)
{
    setup(1);
    uint64_t begin = now;
    put_full((struct tenant_item){.n_tokens = 7, .priority = 2});
    for (;;) {
        put(0, 1);
        struct tenant_item *it = tenant_first(table, now);
        bool low = it->n_tokens == 7;
        drop(it);
        if (low)
            break;
        now += NS_PER_S / 2;
    }
    ck_assert_uint_le(now - begin, 3 * AGE_S * NS_PER_S + NS_PER_S);
    finish();
}
END_TEST

START_TEST(ageing_takes_a_flood_up_to_the_others_and_not_past_them)
{
    setup(2);
    for (int i = 0; i < 100; i++)
        put(0, 1000);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(serve(), 0);
        tenant_stop(table, 0, 1);
    }
    now += 3600 * NS_PER_S;
    struct tenant_item *light = put(1, 10);
    ck_assert_ptr_eq(tenant_first(table, now), light);
    finish();
}
END_TEST

/* ---- scan ---- */

START_TEST(a_scan_gives_every_request_once_alternating_between_tenants)
{
    setup(2);
    for (int i = 0; i < 3; i++)
        put(0, 100);
    for (int i = 0; i < 3; i++)
        put(1, 100);
    uint32_t want[] = {0, 1, 0, 1, 0, 1};
    int n = 0;
    for (struct tenant_item *it = tenant_first(table, now); it; it = tenant_next(table))
        ck_assert_uint_eq(it->tenant, want[n++]);
    ck_assert_int_eq(n, 6);
    finish();
}
END_TEST

START_TEST(what_a_scan_gave_out_may_be_started_or_taken_and_the_scan_goes_on)
{
    setup(2);
    for (int i = 0; i < 20; i++)
        put(i % 2, 10);
    int n = 0;
    for (struct tenant_item *it = tenant_first(table, now); it; it = tenant_next(table), n++) {
        tenants_audit(table);
        if (n % 3 == 0) {
            tenant_start(table, it, now);
            tenant_charge(table, it->tenant, 10, 0, 0);
            tenant_stop(table, it->tenant, 1);
            mem_free(it);
        } else if (n % 3 == 1) {
            drop(it);
        }
    }
    ck_assert_int_eq(n, 20);
    ck_assert_uint_eq(tenants_n_queued(table), 6);
    finish();
}
END_TEST

START_TEST(another_request_than_the_last_may_go_while_a_scan_stands_on_it)
{
    setup(1);
    struct tenant_item *it[4];
    for (int i = 0; i < 4; i++)
        it[i] = put(0, 10);
    ck_assert_ptr_eq(tenant_first(table, now), it[0]);
    drop(it[1]);
    ck_assert_ptr_eq(tenant_next(table), it[2]);
    drop(it[3]);
    ck_assert_ptr_null(tenant_next(table));
    finish();
}
END_TEST

static uint32_t n_told;
static uint64_t told[8]; /* tickets */

static void note_place(struct tenant_item *it, uint32_t place)
{
    ck_assert_uint_eq(place, n_told + 1);
    told[n_told++] = it->ticket;
}

static uint32_t tell_places(uint32_t n_most)
{
    n_told = 0;
    tenants_tell_places(table, now, n_most, note_place);
    return n_told;
}

START_TEST(places_are_told_in_order_of_service_even_at_the_cap)
{
    setup(2);
    set.row[0].max_running = 1;
    tenants_apply(table, &set);
    put(0, 1);
    ck_assert_int_eq(serve(), 0);
    put(0, 100);
    put(0, 100);
    put(1, 100);
    ck_assert(tenant_at_cap(table, 0));
    ck_assert_uint_eq(tell_places(8), 3);
    ck_assert(told[0] == 3 && told[1] == 1 && told[2] == 2);
    tenant_stop(table, 0, 1);
    finish();
}
END_TEST

START_TEST(places_are_told_again_when_the_queue_changed_and_not_too_often)
{
    setup(1);
    for (int i = 0; i < 3; i++)
        put(0, 1);
    ck_assert_uint_eq(tell_places(2), 2);
    now += NS_PER_S;
    ck_assert_uint_eq(tell_places(8), 0);
    drop(tenant_first(table, now));
    ck_assert_uint_eq(tell_places(8), 2);
    drop(tenant_first(table, now));
    now += TENANT_PLACES_MS * NS_PER_MS - 1;
    ck_assert_uint_eq(tell_places(8), 0);
    now++;
    ck_assert_uint_eq(tell_places(8), 1);
    finish();
}
END_TEST

/* ---- virtual counters ---- */

/* Both always wait; each pick runs to its end at once. Service differs by no more than twice the cost
 * of the largest request (the bound of virtual token counters with one request at a time). */
static void check_bound(uint32_t weight_a, uint32_t weight_b)
{
    enum { LONGEST = 2000, MOST_OUT = 300 };
    const double largest = LONGEST * TENANT_COST_PROMPT + MOST_OUT * TENANT_COST_OUTPUT;
    setup(2);
    set.row[0].weight = weight_a;
    set.row[1].weight = weight_b;
    tenants_apply(table, &set);
    double served[2] = {0, 0};
    srand(weight_a * 31 + weight_b);
    for (int i = 0; i < 20; i++) {
        put(0, LONGEST);
        put(1, 1);
    }
    for (int i = 0; i < 20000; i++, now += NS_PER_MS) {
        struct tenant_item *it = tenant_first(table, now);
        uint32_t x = it->tenant, n_out = 1 + (uint32_t)rand() % MOST_OUT, n = it->n_tokens;
        tenant_start(table, it, now);
        tenant_charge(table, x, n, 0, n_out);
        tenant_stop(table, x, 1);
        served[x] += n * TENANT_COST_PROMPT + n_out * TENANT_COST_OUTPUT;
        mem_free(it);
        put(x, 1 + (uint32_t)rand() % (x ? 50 : LONGEST)); /* 0 asks for far more */
        double gap = served[0] / weight_a - served[1] / weight_b;
        double bound = 2 * largest / (weight_a < weight_b ? weight_a : weight_b);
        EXPECT(gap < bound && gap > -bound);
    }
    finish();
}

START_TEST(two_backlogged_tenants_are_served_alike_within_the_vtc_bound)
{
    check_bound(1, 1);
}
END_TEST

START_TEST(two_backlogged_tenants_are_served_by_weight_within_the_vtc_bound)
{
    check_bound(3, 1);
    check_bound(1, 1000);
}
END_TEST

START_TEST(a_tenant_that_was_idle_has_saved_nothing_up)
{
    setup(2);
    for (int i = 0; i < 50; i++)
        put(0, 100);
    for (int i = 0; i < 40; i++) {
        ck_assert_int_eq(serve(), 0);
        tenant_stop(table, 0, 1);
    }
    for (int i = 0; i < 20; i++)
        put(1, 100);
    int n[2] = {0, 0};
    for (int i = 0; i < 10; i++) {
        int x = serve();
        n[x]++;
        tenant_stop(table, (uint32_t)x, 1);
    }
    ck_assert_int_eq(n[0], 5);
    ck_assert_int_eq(n[1], 5);
    finish();
}
END_TEST

START_TEST(idle_lift_counts_when_nobody_waits_any_more)
{
    setup(2);
    for (int i = 0; i < 9; i++)
        put(0, 100);
    while (table->n_queued)
        tenant_stop(table, (uint32_t)serve(), 1);
    put(1, 100);
    ck_assert_uint_ge(tenant_counter(table, 1), tenant_counter(table, 0) - 100 * 8 * 65536);
    finish();
}
END_TEST

START_TEST(cached_tokens_cost_an_eighth_and_output_twice)
{
    setup(2);
    tenant_charge(table, 0, 1, 0, 0);
    uint64_t one = tenant_counter(table, 0);
    tenant_charge(table, 1, 0, 8, 0);
    ck_assert_uint_eq(tenant_counter(table, 1), one);
    tenant_charge(table, 1, 0, 0, 1);
    ck_assert_uint_eq(tenant_counter(table, 1), 3 * one);
    finish();
}
END_TEST

/* A server of SLOTS places, a step a ms: every request runs 40 steps. The flood refills its queue. */
static uint64_t light_wait(bool flood)
{
    enum { STEPS = 40, N = 200 };
    struct {
        uint32_t tenant;
        int left;
    } run[SLOTS] = {0};
    uint64_t worst = 0;
    int n_run = 0, n_light = 0;
    struct tenant_item *light = NULL;
    setup(2);
    while (n_light < N) {
        while (flood && table->tenant[0].n_queued < 100)
            put(0, 512);
        if (!light)
            light = put(1, 512);
        for (struct tenant_item *it = tenant_first(table, now); it && n_run < SLOTS;
             it = tenant_next(table)) {
            tenant_start(table, it, now);
            tenant_charge(table, it->tenant, 512, 0, 0);
            run[n_run].tenant = it->tenant;
            run[n_run++].left = STEPS;
            if (it == light) {
                worst = now - it->queued_ns > worst ? now - it->queued_ns : worst;
                light = NULL;
                n_light++;
            }
            mem_free(it);
        }
        now += NS_PER_MS;
        for (int i = 0; i < n_run; i++) {
            tenant_charge(table, run[i].tenant, 0, 0, 1);
            if (--run[i].left == 0) {
                tenant_stop(table, run[i].tenant, 1);
                run[i--] = run[--n_run];
            }
        }
    }
    for (int i = 0; i < n_run; i++)
        tenant_stop(table, run[i].tenant, 1);
    finish();
    return worst;
}

START_TEST(a_flood_delays_the_light_tenant_by_no_more_than_the_places_it_left)
{
    uint64_t alone = light_wait(false), flooded = light_wait(true);
    /* Alone it fills its own share and waits for its own; the flood adds no more than one request. */
    ck_assert_uint_le(flooded, alone + 41 * NS_PER_MS);
}
END_TEST

START_TEST(one_tenant_leaves_places_to_others_and_alone_takes_all)
{
    setup(2);
    for (int i = 0; i < 2 * SLOTS; i++)
        put(0, 1);
    int n = 0;
    while (serve() == 0)
        n++;
    ck_assert_int_eq(n, SLOTS - 4);
    ck_assert(tenant_at_cap(table, 0));
    put(1, 1);
    ck_assert_int_eq(serve(), 1);
    tenant_stop(table, 1, 1);
    tenant_stop(table, 0, SLOTS - 4);
    set.n = 1;
    tenants_apply(table, &set);
    for (n = 0; n < SLOTS && serve() == 0; n++)
        ;
    ck_assert_int_eq(n, SLOTS);
    tenant_stop(table, 0, SLOTS);
    finish();
}
END_TEST

/* ---- any operations ---- */

/* The first of all by the rules of tenant.h, looked for in a plain list. */
static struct tenant_item *naive_first(struct tenant_item **in, size_t n)
{
    struct tenant_item *head[TENANT_MAX] = {0}, *best = NULL;
    uint32_t top = TENANT_CLASSES, best_class = 0;
    for (size_t i = 0; i < n; i++) {
        struct tenant_item *it = in[i], **h = &head[it->tenant];
        if (it->class_index < top)
            top = it->class_index;
        if (!*h || it->order.key < (*h)->order.key ||
            (it->order.key == (*h)->order.key && it->ticket < (*h)->ticket))
            *h = it;
    }
    for (uint32_t i = 0; i < TENANT_MAX; i++) {
        struct tenant_item *it = head[i];
        if (!it)
            continue;
        int64_t aged =
            (int64_t)it->class_index - (int64_t)((now - it->queued_ns) / (AGE_S * NS_PER_S));
        uint32_t c = aged > (int64_t)top ? (uint32_t)aged : top;
        uint64_t counter = tenant_counter(table, i);
        if (best && c == best_class && counter == tenant_counter(table, best->tenant)) {
            uint32_t a = table->tenant[i].n_queued, b = table->tenant[best->tenant].n_queued;
            if (a < b || (a == b && it->ticket < best->ticket))
                best = it;
        } else if (!best || c < best_class ||
                   (c == best_class && counter < tenant_counter(table, best->tenant))) {
            best = it;
            best_class = c;
        }
    }
    return best;
}

START_TEST(any_operations_leave_the_table_whole_and_the_first_one_right)
{
    enum { N = 300, TENANTS = 5 };
    struct tenant_item *in[N];
    size_t n = 0;
    setup(TENANTS);
    srand(5);
    for (int op = 0; op < 40000; op++) {
        int what = rand() % 8;
        if (what < 4 && n < N) {
            in[n++] = put_full((struct tenant_item){
                .tenant = (uint32_t)rand() % TENANTS,
                .n_tokens = 1 + (uint32_t)rand() % 500,
                .priority = rand() % 5 - 2,
                .deadline_ns = rand() % 3 ? 0 : now + (uint64_t)rand() % (20 * NS_PER_S),
                .expire_ns = rand() % 3 ? 0 : now + (uint64_t)rand() % (20 * NS_PER_S)});
        } else if (what < 5 && n) {
            size_t i = (size_t)rand() % n;
            drop(in[i]);
            in[i] = in[--n];
        } else if (n) {
            struct tenant_item *it = tenant_first(table, now);
            EXPECT(it == naive_first(in, n));
            for (size_t i = 0; i < n; i++)
                if (in[i] == it)
                    in[i] = in[--n];
            tenant_start(table, it, now);
            tenant_charge(table, it->tenant, it->n_tokens, 0, (uint64_t)rand() % 100);
            tenant_stop(table, it->tenant, 1);
            mem_free(it);
        }
        now += (uint64_t)rand() % NS_PER_S;
        if (op % 64 == 0)
            tenants_audit(table);
    }
    finish();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scheduler/tenant");
    TCase *order = tcase_create("order");
    TCase *fair = tcase_create("fair");
    TCase *any = tcase_create("any");
    tcase_add_test(order, an_ordered_set_equals_a_sorted_list_after_any_inserts_and_removes);
    tcase_add_test(order, an_ordered_set_stays_shallow_when_keys_come_in_order);
    tcase_add_test(order, one_tenant_is_served_in_order_of_arrival);
    tcase_add_test(order, within_a_tenant_class_then_deadline_then_ticket);
    tcase_add_test(order, a_better_class_goes_before_every_tenant_of_a_worse_one);
    tcase_add_test(order, a_request_cannot_pass_the_best_priority_of_its_key);
    tcase_add_test(order, priorities_far_out_of_range_count_as_the_last_class);
    tcase_add_test(order, the_lowest_class_waits_no_longer_than_its_steps_of_ageing);
    tcase_add_test(order, the_lowest_class_of_the_same_tenant_is_aged_too);
    tcase_add_test(order, ageing_takes_a_flood_up_to_the_others_and_not_past_them);
    tcase_add_test(order, a_scan_gives_every_request_once_alternating_between_tenants);
    tcase_add_test(order, what_a_scan_gave_out_may_be_started_or_taken_and_the_scan_goes_on);
    tcase_add_test(order, another_request_than_the_last_may_go_while_a_scan_stands_on_it);
    tcase_add_test(order, places_are_told_in_order_of_service_even_at_the_cap);
    tcase_add_test(order, places_are_told_again_when_the_queue_changed_and_not_too_often);
    tcase_add_test(fair, two_backlogged_tenants_are_served_alike_within_the_vtc_bound);
    tcase_add_test(fair, two_backlogged_tenants_are_served_by_weight_within_the_vtc_bound);
    tcase_add_test(fair, a_tenant_that_was_idle_has_saved_nothing_up);
    tcase_add_test(fair, idle_lift_counts_when_nobody_waits_any_more);
    tcase_add_test(fair, cached_tokens_cost_an_eighth_and_output_twice);
    tcase_add_test(fair, a_flood_delays_the_light_tenant_by_no_more_than_the_places_it_left);
    tcase_add_test(fair, one_tenant_leaves_places_to_others_and_alone_takes_all);
    tcase_add_test(any, any_operations_leave_the_table_whole_and_the_first_one_right);
    suite_add_tcase(s, order);
    suite_add_tcase(s, fair);
    suite_add_tcase(s, any);
    return run_suite(s);
}
