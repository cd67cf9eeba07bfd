/* Caps, bounds, deadlines and reloads of tenants. */
#include "tests/unit/scheduler/tenant_rig.h"
#include "base/base_test.h"

/* ---- caps and bounds ---- */

START_TEST(no_more_sequences_of_a_tenant_run_than_its_cap_and_others_go_on)
{
    setup(2);
    set.row[0].max_running = 3;
    tenants_apply(table, &set);
    for (int i = 0; i < 5; i++)
        put_full((struct tenant_item){.tenant = 0, .n_tokens = 1, .n_seqs = 2});
    put(1, 100000);
    ck_assert_int_eq(serve(), 1);
    ck_assert_int_eq(serve(), 0);
    ck_assert_int_eq(serve(), -1);
    tenant_stop(table, 0, 2);
    ck_assert_int_eq(serve(), 0);
    ck_assert_int_eq(serve(), -1);
    tenant_stop(table, 0, 2);
    tenant_stop(table, 1, 1);
    finish();
}
END_TEST

START_TEST(a_request_wider_than_a_cap_that_was_lowered_runs_alone)
{
    setup(1);
    put_full((struct tenant_item){.n_tokens = 1, .n_seqs = 8});
    set.row[0].max_running = 2;
    tenants_apply(table, &set);
    ck_assert_int_eq(serve(), 0);
    ck_assert(tenant_at_cap(table, 0));
    tenant_stop(table, 0, 8);
    finish();
}
END_TEST

START_TEST(the_queue_of_a_key_is_bounded_by_requests_at_its_very_limit)
{
    setup(2);
    set.row[0].max_queued = 3;
    tenants_apply(table, &set);
    for (int i = 0; i < 3; i++)
        put(0, 1);
    uint32_t retry_s = 0;
    struct err e = {0};
    ck_assert_int_eq(enter(0, 1, &retry_s, &e), ERR_QUEUE_FULL);
    ck_assert_str_eq(e.code, "key_queue_full");
    ck_assert_ptr_nonnull(strstr(e.text, "3 requests"));
    ck_assert_uint_ge(retry_s, 1);
    struct tenant_view v;
    tenant_look(table, 0, &v);
    ck_assert_uint_eq(v.n_refused, 1);
    ck_assert_uint_eq(v.n_waiting, 3);
    struct tenant_item *other = put(1, 1);
    drop(other);
    drop(tenant_first(table, now));
    put(0, 1);
    finish();
}
END_TEST

START_TEST(places_that_are_open_do_not_count_as_waiting)
{
    setup(1);
    set.row[0].max_queued = 1;
    set.row[0].max_running = 2;
    tenants_apply(table, &set);
    struct tenant_ask ask = {.n_tokens = 1, .n_seqs = 1, .n_open = 10, .now_ns = now};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), ERR_QUEUE_FULL);
    for (int i = 0; i < 3; i++)
        tenant_retract(table, &ask);
    finish();
}
END_TEST

/* Three places hold one request of two choices: the next one waits. */
START_TEST(choices_count_as_places)
{
    setup(1);
    set.row[0].max_queued = 1;
    set.row[0].max_running = 3;
    tenants_apply(table, &set);
    struct tenant_ask ask = {.n_tokens = 1, .n_seqs = 2, .n_open = 10, .now_ns = now};
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), ERR_QUEUE_FULL);
    for (int i = 0; i < 2; i++)
        tenant_retract(table, &ask);
    finish();
}
END_TEST

/* By itself it would start, whatever the cap: nothing of its key runs. */
START_TEST(more_choices_than_the_key_may_run_are_refused)
{
    setup(1);
    set.row[0].max_running = 3;
    tenants_apply(table, &set);
    struct err e;
    struct tenant_view v;
    for (uint32_t n = 1; n <= 5; n++) {
        struct tenant_ask ask = {.n_tokens = 1, .n_seqs = n, .n_open = 10, .now_ns = now};
        enum status st = tenant_enter(table, &ask, NULL, &e);
        ck_assert_int_eq(st, n <= 3 ? OK : ERR_INVALID);
        if (st == OK)
            tenant_retract(table, &ask);
        else
            ck_assert(strcmp(e.param, "n") == 0 && strstr(e.text, "max_running"));
    }
    tenant_look(table, 0, &v);
    ck_assert_uint_eq(v.n_waiting, 0);
    finish();
}
END_TEST

START_TEST(the_queue_of_a_key_is_bounded_by_tokens_at_its_very_limit)
{
    setup(1);
    set.row[0].max_queued_tokens = 100;
    tenants_apply(table, &set);
    put(0, 60);
    put(0, 40);
    ck_assert_int_eq(enter(0, 1, NULL, NULL), ERR_QUEUE_FULL);
    drop(tenant_first(table, now));
    put(0, 60);
    drop(tenant_first(table, now));
    drop(tenant_first(table, now));
    put(0, 101); /* nothing before it */
    finish();
}
END_TEST

START_TEST(the_queue_of_all_is_bounded_by_tokens)
{
    setup(1);
    tenants_free(table);
    table = tenants_new(NS_PER_S, SLOTS, 0, 100);
    set.n = 2;
    set.row[1] = set.row[0];
    tenants_apply(table, &set);
    put(0, 60);
    put(1, 40);
    struct err e = {0};
    ck_assert_int_eq(enter(1, 1, NULL, &e), ERR_QUEUE_FULL);
    ck_assert_ptr_nonnull(strstr(e.text, "100"));
    finish();
}
END_TEST

START_TEST(retry_after_comes_from_the_measured_rate)
{
    setup(1);
    set.row[0].max_queued = 10;
    tenants_apply(table, &set);
    for (int i = 0; i < 10; i++)
        put(0, 1);
    for (int i = 0; i < 8; i++, now += 2 * NS_PER_S) {
        drop(tenant_first(table, now));
        put(0, 1);
    }
    uint32_t retry_s;
    ck_assert_int_eq(enter(0, 1, &retry_s, NULL), ERR_QUEUE_FULL);
    ck_assert_uint_eq(retry_s, 20);
    ck_assert_uint_eq(tenants_retry_s(table, 3), 6);
    ck_assert_uint_eq(tenants_retry_s(table, 1000000), TENANT_RETRY_MAX_S);
    finish();
}
END_TEST

START_TEST(tokens_per_minute_refuse_and_come_back_with_time)
{
    setup(1);
    set.row[0].tokens_per_minute = 600; /* 10 a second */
    tenants_apply(table, &set);
    struct tenant_ask ask = {.n_tokens = 100, .n_seqs = 1, .n_output = 200, .now_ns = now};
    uint32_t retry_s = 0;
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
        tenant_uncount(table, 0, 0, 100);
    }
    ck_assert_int_eq(tenant_enter(table, &ask, &retry_s, &e), ERR_QUEUE_FULL);
    ck_assert_str_eq(e.code, "tokens_per_minute");
    ck_assert_uint_eq(retry_s, 30);
    ask.now_ns += 29 * NS_PER_S;
    ck_assert_int_eq(tenant_enter(table, &ask, &retry_s, NULL), ERR_QUEUE_FULL);
    ck_assert_uint_eq(retry_s, 1);
    tenant_refund(table, 0, 10);
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    tenant_retract(table, &ask);
    finish();
}
END_TEST

START_TEST(more_than_a_minute_holds_goes_through_when_nothing_is_owed)
{
    setup(1);
    set.row[0].tokens_per_minute = 60;
    tenants_apply(table, &set);
    struct tenant_ask ask = {.n_tokens = 600, .n_seqs = 1, .now_ns = now};
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    tenant_uncount(table, 0, 0, 600);
    ask.n_tokens = 1;
    ask.now_ns += 9 * 60 * NS_PER_S;
    uint32_t retry_s;
    ck_assert_int_eq(tenant_enter(table, &ask, &retry_s, NULL), ERR_QUEUE_FULL);
    ck_assert_uint_eq(retry_s, 1);
    finish();
}
END_TEST

/* ---- deadlines ---- */

START_TEST(a_deadline_that_cannot_be_met_is_refused_before_it_waits)
{
    setup(2);
    put(0, 1000);
    struct tenant_ask ask = {.n_tokens = 500,
                             .n_seqs = 1,
                             .now_ns = now,
                             .deadline_ns = now + 1500 * NS_PER_MS,
                             .prefill_ns_token = 1e6}; /* 1 ms a token */
    uint32_t retry_s = 0;
    struct err e = {0};
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK); /* exactly met */
    tenant_retract(table, &ask);
    ask.deadline_ns -= NS_PER_MS;
    ck_assert_int_eq(tenant_enter(table, &ask, &retry_s, &e), ERR_QUEUE_FULL);
    ck_assert_str_eq(e.code, "deadline_unreachable");
    ck_assert_uint_eq(retry_s, 1);
    /* Of the other tenant only its fair part is ahead: as much as it asks for itself. */
    ask.tenant = 1;
    ask.deadline_ns = now + 1000 * NS_PER_MS;
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    tenant_retract(table, &ask);
    /* Worse classes are not ahead. */
    ask.tenant = 0;
    ask.priority = -1;
    ask.deadline_ns = now + 500 * NS_PER_MS;
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    tenant_retract(table, &ask);
    ask.prefill_ns_token = 0; /* nothing measured yet: nothing is predicted */
    ask.priority = 0;
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    tenant_retract(table, &ask);
    finish();
}
END_TEST

START_TEST(expired_requests_come_earliest_first_and_never_early)
{
    setup(2);
    struct tenant_item *b, *a;
    b = put_full((struct tenant_item){.tenant = 0, .n_tokens = 1, .expire_ns = now + 200});
    a = put_full((struct tenant_item){.tenant = 1, .n_tokens = 1, .expire_ns = now + 100});
    put(0, 1);
    ck_assert_uint_eq(tenants_next_expiry(table), now + 100);
    ck_assert_ptr_null(tenant_expired(table, now + 99));
    ck_assert_ptr_eq(tenant_expired(table, now + 100), a);
    drop(a);
    ck_assert_ptr_null(tenant_expired(table, now + 199));
    ck_assert_ptr_eq(tenant_expired(table, now + 300), b);
    drop(b);
    ck_assert_ptr_null(tenant_expired(table, UINT64_MAX));
    ck_assert_uint_eq(tenants_next_expiry(table), 0);
    finish();
}
END_TEST

/* ---- reload ---- */

START_TEST(a_reload_keeps_what_waits_and_runs)
{
    setup(3);
    put(2, 10);
    put(2, 10);
    ck_assert_int_eq(serve(), 2);
    set.n = 2; /* the key is gone */
    tenants_apply(table, &set);
    tenants_audit(table);
    ck_assert_int_eq(serve(), 2);
    tenant_stop(table, 2, 2);
    finish();
}
END_TEST

START_TEST(a_slot_that_goes_to_another_tenant_begins_anew)
{
    setup(3);
    tenant_charge(table, 2, 1000000, 0, 0);
    set.row[2].generation = 99;
    tenants_apply(table, &set);
    struct tenant_view v;
    tenant_look(table, 2, &v);
    ck_assert_uint_eq(v.n_computed, 0);
    ck_assert_uint_eq(v.counter, 0);
    finish();
}
END_TEST

START_TEST(bounds_hold_as_soon_as_they_are_published_and_are_not_forgotten_at_the_poll)
{
    setup(2);
    set.row[1].generation = 77;
    set.row[1].tokens_per_minute = 100;
    set.row[1].max_queued = 1;
    tenants_publish(table, mem_dup(&set, sizeof(set)));
    struct tenant_ask ask = {.tenant = 1, .n_tokens = 70, .n_seqs = 1, .now_ns = now};
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), OK);
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), ERR_QUEUE_FULL); /* max_queued */
    tenant_uncount(table, 1, 0, 70);
    ck_assert(tenants_poll(table));
    ck_assert_int_eq(tenant_enter(table, &ask, NULL, NULL), ERR_QUEUE_FULL); /* tokens_per_minute */
    finish();
}
END_TEST

START_TEST(what_is_published_is_applied_once_and_the_newest_wins)
{
    setup(2);
    ck_assert(!tenants_poll(table));
    for (uint32_t weight = 5; weight < 7; weight++) {
        set.row[1].weight = weight;
        tenants_publish(table, mem_dup(&set, sizeof(set)));
    }
    struct tenant_view v;
    ck_assert(tenants_poll(table));
    tenant_look(table, 1, &v);
    ck_assert_uint_eq(v.weight, 6);
    ck_assert(!tenants_poll(table));
    tenants_publish(table, mem_dup(&set, sizeof(set))); /* freed with the table */
    finish();
}
END_TEST

START_TEST(a_tenant_that_stays_keeps_its_counter_over_a_reload)
{
    setup(3);
    tenant_charge(table, 2, 1000, 0, 0);
    uint64_t before = tenant_counter(table, 2);
    set.row[2].weight = 7;
    tenants_apply(table, &set);
    ck_assert_uint_eq(tenant_counter(table, 2), before);
    finish();
}
END_TEST

START_TEST(nothing_allocates_after_the_start)
{
    setup(2);
    struct tenant_item it = {.n_tokens = 1, .n_seqs = 1};
    uint64_t before = mem_thread_allocs();
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(enter(0, 1, NULL, NULL), OK);
        tenant_put(table, &it);
        tenant_start(table, tenant_first(table, now), now);
        tenant_stop(table, 0, 1);
    }
    ck_assert_uint_eq(mem_thread_allocs(), before);
    finish();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scheduler/tenant_bounds");
    TCase *bounds = tcase_create("bounds");
    tcase_add_test(bounds, no_more_sequences_of_a_tenant_run_than_its_cap_and_others_go_on);
    tcase_add_test(bounds, a_request_wider_than_a_cap_that_was_lowered_runs_alone);
    tcase_add_test(bounds, the_queue_of_a_key_is_bounded_by_requests_at_its_very_limit);
    tcase_add_test(bounds, places_that_are_open_do_not_count_as_waiting);
    tcase_add_test(bounds, choices_count_as_places);
    tcase_add_test(bounds, more_choices_than_the_key_may_run_are_refused);
    tcase_add_test(bounds, the_queue_of_a_key_is_bounded_by_tokens_at_its_very_limit);
    tcase_add_test(bounds, the_queue_of_all_is_bounded_by_tokens);
    tcase_add_test(bounds, retry_after_comes_from_the_measured_rate);
    tcase_add_test(bounds, tokens_per_minute_refuse_and_come_back_with_time);
    tcase_add_test(bounds, more_than_a_minute_holds_goes_through_when_nothing_is_owed);
    tcase_add_test(bounds, a_deadline_that_cannot_be_met_is_refused_before_it_waits);
    tcase_add_test(bounds, expired_requests_come_earliest_first_and_never_early);
    tcase_add_test(bounds, a_reload_keeps_what_waits_and_runs);
    tcase_add_test(bounds, a_slot_that_goes_to_another_tenant_begins_anew);
    tcase_add_test(bounds,
                   bounds_hold_as_soon_as_they_are_published_and_are_not_forgotten_at_the_poll);
    tcase_add_test(bounds, what_is_published_is_applied_once_and_the_newest_wins);
    tcase_add_test(bounds, a_tenant_that_stays_keeps_its_counter_over_a_reload);
    tcase_add_test(bounds, nothing_allocates_after_the_start);
    suite_add_tcase(s, bounds);
    return run_suite(s);
}
