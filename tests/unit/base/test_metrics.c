/* base/metrics: values, bounded series, and the text that Prometheus reads. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/base_test.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "tests/unit/run_suite.h"

enum { COUNT, LEVEL, LATENCY, BY_LABELS, TIMES_BY_PATH };

static const double bounds[] = {0.5, 1, 2.5, 1000000};

static const struct metric_desc table[] = {
    {"t_count_total", METRIC_COUNTER, "", NULL, 0, "Things"},
    {"t:level", METRIC_GAUGE, "", NULL, 0, "How high"},
    {"t_latency_seconds", METRIC_HISTOGRAM, "", bounds, 4, "How long"},
    {"t_requests_total", METRIC_COUNTER, "method,status", NULL, 0, "Requests"},
    {"t_times_seconds", METRIC_HISTOGRAM, "path", bounds, 4, "Times"},
};

static struct metrics *make(void)
{
    return metrics_new(table, sizeof(table) / sizeof(table[0]));
}

static void expect_text(const struct metrics *m, const char *wanted)
{
    struct buf out = {0};
    metrics_render(m, &out);
    ck_assert_str_eq(out.ptr, wanted);
    buf_release(&out);
}

START_TEST(metrics_without_labels_read_zero_from_the_start)
{
    struct metrics *m = make();
    expect_text(m, "# HELP t_count_total Things\n# TYPE t_count_total counter\nt_count_total 0\n"
                   "# HELP t:level How high\n# TYPE t:level gauge\nt:level 0\n"
                   "# HELP t_latency_seconds How long\n# TYPE t_latency_seconds histogram\n"
                   "t_latency_seconds_bucket{le=\"0.5\"} 0\n"
                   "t_latency_seconds_bucket{le=\"1.0\"} 0\n"
                   "t_latency_seconds_bucket{le=\"2.5\"} 0\n"
                   "t_latency_seconds_bucket{le=\"1e+06\"} 0\n"
                   "t_latency_seconds_bucket{le=\"+Inf\"} 0\n"
                   "t_latency_seconds_sum 0\nt_latency_seconds_count 0\n");
    metrics_free(m);
}
END_TEST

START_TEST(values_kept_elsewhere_are_rendered_like_the_others)
{
    struct metrics *m = make();
    struct buf out = {0};
    metrics_set_const_labels(m, "model_name=\"m\"");
    metrics_render_value(m, BY_LABELS,
                         "a\"b\x1f"
                         "200",
                         3, true, &out);
    metrics_render_value(m, BY_LABELS,
                         "c\x1f"
                         "404",
                         1e6, false, &out);
    metrics_render_value(m, LEVEL, NULL, 0.5, true, &out);
    ck_assert_str_eq(out.ptr,
                     "# HELP t_requests_total Requests\n# TYPE t_requests_total counter\n"
                     "t_requests_total{model_name=\"m\",method=\"a\\\"b\",status=\"200\"} 3\n"
                     "t_requests_total{model_name=\"m\",method=\"c\",status=\"404\"} 1000000\n"
                     "# HELP t:level How high\n# TYPE t:level gauge\n"
                     "t:level{model_name=\"m\"} 0.5\n");
    buf_release(&out);
    metrics_free(m);
}
END_TEST

START_TEST(values_labels_and_cumulative_buckets_are_rendered)
{
    struct metrics *m = make();
    metrics_set_const_labels(m, "model_name=\"m\",engine=\"0\"");
    metrics_add(m, COUNT, NULL, 2.5);
    metrics_set(m, LEVEL, NULL, 7);
    metrics_add(m, LEVEL, NULL, -3);
    metrics_add(m, BY_LABELS,
                "GET\x1f"
                "200",
                1);
    metrics_add(m, BY_LABELS,
                "POST\x1f"
                "400",
                1);
    metrics_add(m, BY_LABELS,
                "GET\x1f"
                "200",
                1);
    metrics_observe(m, LATENCY, NULL, 0.5); /* a bound belongs to its bucket */
    metrics_observe(m, LATENCY, NULL, 0.75);
    metrics_observe_n(m, LATENCY, NULL, 2, 10);
    metrics_observe(m, LATENCY, NULL, 5e6);
#define L "{model_name=\"m\",engine=\"0\""
    expect_text(m, "# HELP t_count_total Things\n# TYPE t_count_total counter\n"
                   "t_count_total" L "} 2.5\n"
                   "# HELP t:level How high\n# TYPE t:level gauge\nt:level" L "} 4\n"
                   "# HELP t_latency_seconds How long\n# TYPE t_latency_seconds histogram\n"
                   "t_latency_seconds_bucket" L ",le=\"0.5\"} 1\n"
                   "t_latency_seconds_bucket" L ",le=\"1.0\"} 2\n"
                   "t_latency_seconds_bucket" L ",le=\"2.5\"} 12\n"
                   "t_latency_seconds_bucket" L ",le=\"1e+06\"} 12\n"
                   "t_latency_seconds_bucket" L ",le=\"+Inf\"} 13\n"
                   "t_latency_seconds_sum" L "} 5000021.25\nt_latency_seconds_count" L "} 13\n"
                   "# HELP t_requests_total Requests\n# TYPE t_requests_total counter\n"
                   "t_requests_total" L ",method=\"GET\",status=\"200\"} 2\n"
                   "t_requests_total" L ",method=\"POST\",status=\"400\"} 1\n");
#undef L
    ck_assert(metrics_value(m, COUNT, NULL) == 2.5);
    ck_assert(metrics_value(m, LATENCY, NULL) == 13);
    ck_assert(metrics_value(m, BY_LABELS,
                            "GET\x1f"
                            "200") == 2);
    ck_assert(metrics_value(m, BY_LABELS,
                            "PUT\x1f"
                            "200") == 0);
    metrics_free(m);
}
END_TEST

static bool renders(const struct metrics *m, const char *part)
{
    struct buf out = {0};
    metrics_render(m, &out);
    bool found = strstr(out.ptr, part) != NULL;
    buf_release(&out);
    return found;
}

START_TEST(label_values_are_escaped_and_made_valid)
{
    struct metrics *m = make();
    metrics_add(m, BY_LABELS, "a\"b\\c\nd\x1f\xFF", 1);
    ck_assert(renders(m, "{method=\"a\\\"b\\\\c\\nd\",status=\"\xEF\xBF\xBD\"} 1\n"));
    metrics_add(m, BY_LABELS, "alone", 1);
    ck_assert(renders(m, "{method=\"alone\",status=\"\"} 1\n"));
    metrics_free(m);
}
END_TEST

START_TEST(values_that_are_no_numbers_have_prometheus_names)
{
    struct metrics *m = make();
    metrics_set(m, LEVEL, NULL, INFINITY);
    ck_assert(renders(m, "t:level +Inf\n"));
    metrics_set(m, LEVEL, NULL, -INFINITY);
    ck_assert(renders(m, "t:level -Inf\n"));
    metrics_set(m, LEVEL, NULL, NAN);
    ck_assert(renders(m, "t:level NaN\n"));
    metrics_observe(m, LATENCY, NULL, NAN);
    ck_assert(renders(m, "t_latency_seconds_bucket{le=\"1e+06\"} 0\n"));
    ck_assert(renders(m, "t_latency_seconds_bucket{le=\"+Inf\"} 1\n"));
    metrics_free(m);
}
END_TEST

START_TEST(series_beyond_the_bound_are_counted_together)
{
    struct metrics *m = make();
    char value[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(value, sizeof(value), "p%d", i);
        metrics_observe(m, TIMES_BY_PATH, value, 1);
    }
    ck_assert(metrics_value(m, TIMES_BY_PATH, "p255") == 1);
    ck_assert(renders(m, "t_times_seconds_count{path=\"p255\"} 1\n"));
    ck_assert(!renders(m, "path=\"p256\""));
    ck_assert(renders(m, "t_times_seconds_count{path=\"other\"} 744\n"));
    metrics_observe(m, TIMES_BY_PATH, "p0", 1);
    ck_assert(metrics_value(m, TIMES_BY_PATH, "p0") == 2);
    metrics_free(m);
}
END_TEST

START_TEST(known_series_take_no_memory)
{
    struct metrics *m = make();
    metrics_add(m, BY_LABELS,
                "GET\x1f"
                "200",
                1);
    uint64_t before = mem_thread_allocs();
    for (int i = 0; i < 100; i++) {
        metrics_add(m, BY_LABELS,
                    "GET\x1f"
                    "200",
                    1);
        metrics_add(m, COUNT, NULL, 1);
        metrics_set(m, LEVEL, NULL, i);
        metrics_observe(m, LATENCY, NULL, i);
    }
    ck_assert_uint_eq(mem_thread_allocs(), before);
    metrics_free(m);
}
END_TEST

static void add_many(void *arg)
{
    struct metrics *m = arg;
    char value[16];
    for (int i = 0; i < 20000; i++) {
        snprintf(value, sizeof(value), "p%d", i % 100);
        metrics_add(m, COUNT, NULL, 1);
        metrics_observe(m, TIMES_BY_PATH, value, 1);
    }
}

START_TEST(nothing_is_lost_between_threads)
{
    struct metrics *m = make();
    struct thread threads[3];
    struct err e;
    struct buf out = {0};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(thread_start(&threads[i], "adder", add_many, m, &e), OK);
    for (int i = 0; i < 20; i++) {
        buf_clear(&out);
        metrics_render(m, &out);
    }
    for (int i = 0; i < 3; i++)
        thread_join(&threads[i]);
    ck_assert(metrics_value(m, COUNT, NULL) == 60000);
    double total = metrics_value(m, TIMES_BY_PATH, "in no series of its own");
    for (int i = 0; i < 100; i++) {
        char value[64];
        snprintf(value, sizeof(value), "_count{path=\"p%d\"} 600\n", i);
        total += renders(m, value) ? 600 : 0;
    }
    ck_assert(total == 60000);
    buf_release(&out);
    metrics_free(m);
}
END_TEST

START_TEST(a_falling_counter_is_a_bug)
{
    metrics_add(make(), COUNT, NULL, -1);
}
END_TEST

START_TEST(an_unknown_metric_is_a_bug)
{
    metrics_add(make(), (int)(sizeof(table) / sizeof(table[0])), NULL, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_test(t, metrics_without_labels_read_zero_from_the_start);
    tcase_add_test(t, values_labels_and_cumulative_buckets_are_rendered);
    tcase_add_test(t, label_values_are_escaped_and_made_valid);
    tcase_add_test(t, values_that_are_no_numbers_have_prometheus_names);
    tcase_add_test(t, series_beyond_the_bound_are_counted_together);
    tcase_add_test(t, known_series_take_no_memory);
    tcase_add_test(t, nothing_is_lost_between_threads);
    tcase_add_test(t, values_kept_elsewhere_are_rendered_like_the_others);
    tcase_add_test_raise_signal(t, a_falling_counter_is_a_bug, SIGABRT);
    tcase_add_test_raise_signal(t, an_unknown_metric_is_a_bug, SIGABRT);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
