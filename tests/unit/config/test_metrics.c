/* config/metrics.def: Prometheus accepts the names and buckets, and those with a vllm prefix equal
 * vLLM's. */
#include <check.h>
#include <ctype.h>
#include <string.h>

#include "config/metrics.h"
#include "tests/unit/run_suite.h"

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

START_TEST(each_metric_has_a_legal_unique_name)
{
    const struct metric_desc *d = &metrics_table[_i];
    for (const char *p = d->name; *p; p++)
        ck_assert(islower((unsigned char)*p) || strchr("_:0123456789", *p));
    for (int k = 0; k < _i; k++)
        ck_assert_str_ne(d->name, metrics_table[k].name);
    ck_assert(strncmp(d->name, "vllm:", 5) == 0 || strncmp(d->name, "http_", 5) == 0 ||
              strncmp(d->name, "millrace_", 9) == 0);
    ck_assert(d->help[0] && !strpbrk(d->help, "\n\\"));
}
END_TEST

START_TEST(each_metric_is_named_after_its_kind)
{
    const struct metric_desc *d = &metrics_table[_i];
    if (d->kind == METRIC_COUNTER)
        ck_assert(ends_with(d->name, "_total"));
    if (d->kind == METRIC_GAUGE)
        ck_assert(!ends_with(d->name, "_total"));
    ck_assert((d->kind == METRIC_HISTOGRAM) == (d->n_bounds > 0));
    for (size_t i = 1; i < d->n_bounds; i++)
        ck_assert(d->bounds[i] > d->bounds[i - 1]);
    for (const char *p = d->labels; *p; p++)
        ck_assert(islower((unsigned char)*p) || *p == '_' || *p == ',');
    ck_assert_ptr_null(strstr(d->labels, "model_name"));
    ck_assert_ptr_null(strstr(d->labels, "engine"));
}
END_TEST

START_TEST(the_names_dashboards_ask_for_are_there)
{
    static const char *const names[] = {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:cache_config_info",
        "vllm:num_preemptions_total",
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens_cached_total",
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:request_inference_time_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_params_n",
        "vllm:iteration_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:admission_rejections_total",
        "http_requests_total",
        "http_request_duration_seconds",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t k = 0;
        while (k < metrics_table_n && strcmp(metrics_table[k].name, names[i]) != 0)
            k++;
        ck_assert_msg(k < metrics_table_n, "%s", names[i]);
    }
}
END_TEST

START_TEST(the_whole_table_renders)
{
    struct metrics *m = metrics_new(metrics_table, metrics_table_n);
    struct buf out = {0};
    metrics_add(m, METRIC_PROMPT_TOKENS, NULL, 12);
    metrics_set(m, METRIC_CACHE_CONFIG_INFO,
                "16\x1f"
                "f16\x1f"
                "False\x1f"
                "0\x1f"
                "512",
                1);
    metrics_render(m, &out);
    ck_assert_ptr_nonnull(strstr(out.ptr, "\nvllm:prompt_tokens_total 12\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "\nvllm:cache_config_info{block_size=\"16\",cache_dtype="
                                          "\"f16\",enable_prefix_caching=\"False\","
                                          "num_cpu_blocks=\"0\",num_gpu_blocks=\"512\"} 1\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "\nvllm:request_params_n_bucket{le=\"1.0\"} 0\n"));
    buf_release(&out);
    metrics_free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config/metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_loop_test(t, each_metric_has_a_legal_unique_name, 0, N_METRICS);
    tcase_add_loop_test(t, each_metric_is_named_after_its_kind, 0, N_METRICS);
    tcase_add_test(t, the_names_dashboards_ask_for_are_there);
    tcase_add_test(t, the_whole_table_renders);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
