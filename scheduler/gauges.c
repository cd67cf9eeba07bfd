/* Metrics and the snapshot for sched_stats. Names and meaning: config/metrics.def.
 * Thread: engine, but for gauges_rejected. */
#include "scheduler/gauges.h"

#include "config/metrics.h"

static const char *const preempt_reason[] = {"swap", "recompute"};

#define REASON_QUEUE "max_num_queued_reqs" /* as vLLM calls it */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)NS_PER_S : 0;
}

static void publish(atomic_uint *to, uint32_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

/* Counters by reason stand at 0 from the start, and no step makes a new series. */
void gauges_init(struct sched *s)
{
    static const char *const reasons[] = {"stop", "length", "abort", "error"};
    if (!s->metrics)
        return;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        metrics_add(s->metrics, METRIC_REQUEST_SUCCESS, reasons[i], 0);
    metrics_add(s->metrics, METRIC_ADMISSION_REJECTIONS, REASON_QUEUE, 0);
    for (size_t i = 0; i < sizeof(preempt_reason) / sizeof(preempt_reason[0]); i++)
        metrics_add(s->metrics, METRIC_PREEMPTIONS_BY_REASON, preempt_reason[i], 0);
}

/* Per group: frames that no sequence holds, and the part of those held in the fullest group. */
static double usage(const struct sched *s, const struct kv_stats *st, uint32_t *n_free)
{
    double most = 0;
    *n_free = 0;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint32_t n = st->n_free[g] + st->n_cached[g];
        double part = 1 - (double)n / st->n_frames[g];
        *n_free += n;
        most = part > most ? part : most;
    }
    return most;
}

static void set_kv(struct sched *s, const struct kv_stats *st, double used, uint32_t n_free)
{
    struct metrics *m = s->metrics;
    uint32_t n_promised = 0, n_slots = 0, n_slots_used = 0;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        n_promised += st->n_promised[g];
        n_slots += st->n_slots_total[g];
        n_slots_used += st->n_slots_used[g];
    }
    metrics_set(m, METRIC_KV_CACHE_USAGE, NULL, used);
    metrics_set(m, METRIC_KV_BLOCKS, NULL, s->n_blocks);
    metrics_set(m, METRIC_KV_BLOCKS_FREE, NULL, n_free);
    metrics_set(m, METRIC_KV_BLOCKS_RESERVED, NULL, n_promised);
    metrics_set(m, METRIC_CPU_CACHE_USAGE, NULL, n_slots ? (double)n_slots_used / n_slots : 0);
    metrics_set(m, METRIC_KV_SLOTS_USED, NULL, n_slots_used);
    metrics_add(m, METRIC_KV_EVICTED, NULL, (double)(st->n_evicted - s->seen.kv.n_evicted));
    metrics_add(m, METRIC_KV_SPILLED, NULL, (double)(st->n_spilled - s->seen.kv.n_spilled));
    metrics_add(m, METRIC_KV_LOADED, NULL, (double)(st->n_loaded - s->seen.kv.n_loaded));
    metrics_add(m, METRIC_KV_COPIES_FAILED, NULL, (double)(st->n_failed - s->seen.kv.n_failed));
    for (uint32_t i = 0; i < 2; i++) {
        metrics_add(m, METRIC_KV_COPIED_BYTES, i ? "in" : "out",
                    (double)(s->copies.n_bytes[i] - s->seen.bytes[i]));
        s->seen.bytes[i] = s->copies.n_bytes[i];
    }
    s->seen.kv = *st;
}

void gauges_publish(struct sched *s)
{
    struct sched_door *d = &s->door;
    struct kv_stats st;
    uint32_t n_free;
    kv_cache_stats(s->kv, &st);
    double used = usage(s, &st, &n_free);
    publish(&d->n_running, s->running.n_held);
    publish(&d->blocks_free, n_free);
    atomic_store_explicit(&d->slots_allocated, st.slots_allocated, memory_order_relaxed);
    atomic_store_explicit(&d->slots_written, st.slots_written, memory_order_relaxed);
    if (!s->metrics)
        return;
    metrics_set(s->metrics, METRIC_NUM_REQUESTS_RUNNING, NULL, s->running.n_held - s->parked.n);
    metrics_set(s->metrics, METRIC_NUM_REQUESTS_SWAPPED, NULL, s->parked.n);
    metrics_set(s->metrics, METRIC_NUM_REQUESTS_WAITING, NULL, atomic_load(&d->n_waiting));
    metrics_set(s->metrics, METRIC_SEQUENCES_PAUSED, NULL, s->step.n_paused);
    set_kv(s, &st, used, n_free);
}

void gauges_preempted(struct sched *s, enum preempt_how how)
{
    s->n_preempted[how]++;
    if (!s->metrics)
        return;
    metrics_add(s->metrics, METRIC_NUM_PREEMPTIONS, NULL, 1);
    metrics_add(s->metrics, METRIC_PREEMPTIONS_BY_REASON, preempt_reason[how], 1);
}

/* Counted once, when the request starts, however often it was looked at before. */
void gauges_admitted(struct sched *s, const struct req *q)
{
    if (!s->memory.prefix)
        return;
    s->prefix.n_queries++;
    s->prefix.n_query_tokens += q->r->n_prompt;
    s->prefix.n_hit_tokens += q->n_cached;
    if (!s->metrics)
        return;
    metrics_add(s->metrics, METRIC_PREFIX_CACHE_QUERIES, NULL, q->r->n_prompt);
    metrics_add(s->metrics, METRIC_PREFIX_CACHE_HITS, NULL, q->n_cached);
}

void gauges_fetched(struct sched *s, uint32_t n_tokens)
{
    s->prefix.n_hit_tokens += n_tokens;
    if (!s->metrics)
        return;
    metrics_add(s->metrics, METRIC_PREFIX_CACHE_HITS, NULL, n_tokens);
    metrics_add(s->metrics, METRIC_DISK_HITS, NULL, n_tokens);
}

/* Gaps between tokens are mostly equal within a step: counted in runs. */
static void flush_gaps(struct sched *s)
{
    if (s->metrics && s->step.n_gaps)
        metrics_observe_n(s->metrics, METRIC_INTER_TOKEN_LATENCY, NULL,
                          (double)s->step.gap_ns / (double)NS_PER_S, s->step.n_gaps);
    s->step.n_gaps = 0;
}

void gauges_step(struct sched *s, struct step *t)
{
    flush_gaps(s);
    if (!s->metrics)
        return;
    metrics_add(s->metrics, METRIC_PROMPT_TOKENS_COMPUTED, NULL, t->n_prompt_new);
    metrics_add(s->metrics, METRIC_GENERATION_TOKENS, NULL, t->n_tokens);
    metrics_add(s->metrics, METRIC_RECOMPUTED_TOKENS, NULL, t->n_again);
    metrics_add(s->metrics, METRIC_ENGINE_STEPS, NULL, 1);
    metrics_observe(s->metrics, METRIC_ITERATION_TOKENS, NULL, t->batch.n_rows);
}

/* Once a request, when its prompt is done: what vLLM counts. */
static void count_prompt(struct sched *s, const struct req *q)
{
    metrics_add(s->metrics, METRIC_PROMPT_TOKENS, NULL, q->r->n_prompt - q->r->fill);
    metrics_add(s->metrics, METRIC_PROMPT_TOKENS_CACHED, NULL, q->n_cached);
}

void gauges_token(struct sched *s, struct step *t, const struct seq *q)
{
    if (!q->req->first_token_ns && s->metrics) {
        count_prompt(s, q->req);
        metrics_observe(s->metrics, METRIC_TIME_TO_FIRST_TOKEN, NULL,
                        seconds(q->req->r->arrive_ns, s->now_ns));
    }
    if (q->last_token_ns) {
        uint64_t gap = s->now_ns - q->last_token_ns;
        if (gap != t->gap_ns)
            flush_gaps(s);
        t->gap_ns = gap;
        t->n_gaps++;
    }
}

static const char *reason_name(const struct req *q, const struct err *e)
{
    if (e)
        return e->status == ERR_CANCELLED || e->status == ERR_DRAINING ? "abort" : "error";
    return q->reason == FINISH_STOP ? "stop" : "length";
}

static void end_times(struct sched *s, const struct req *q)
{
    struct metrics *m = s->metrics;
    uint64_t now = s->now_ns;
    metrics_observe(m, METRIC_E2E_REQUEST_LATENCY, NULL, seconds(q->r->arrive_ns, now));
    metrics_observe(m, METRIC_REQUEST_QUEUE_TIME, NULL, seconds(q->queued_ns, q->admitted_ns));
    metrics_observe(m, METRIC_REQUEST_INFERENCE_TIME, NULL, seconds(q->admitted_ns, now));
    if (!q->first_token_ns)
        return;
    metrics_observe(m, METRIC_REQUEST_PREFILL_TIME, NULL,
                    seconds(q->admitted_ns, q->first_token_ns));
    metrics_observe(m, METRIC_REQUEST_DECODE_TIME, NULL, seconds(q->first_token_ns, now));
    uint32_t n_each = q->n_output / q->r->n_choices;
    if (n_each > 1)
        metrics_observe(m, METRIC_TIME_PER_OUTPUT_TOKEN, NULL,
                        seconds(q->first_token_ns, now) / (n_each - 1));
}

void gauges_end(struct sched *s, const struct req *q, const struct err *e)
{
    struct metrics *m = s->metrics;
    if (!m)
        return;
    if (!e && !q->first_token_ns)
        count_prompt(s, q); /* a request without output */
    metrics_add(m, METRIC_REQUEST_SUCCESS, reason_name(q, e), 1);
    metrics_observe(m, METRIC_REQUEST_PROMPT_TOKENS, NULL, q->r->n_prompt);
    metrics_observe(m, METRIC_REQUEST_GENERATION_TOKENS, NULL, q->n_output);
    metrics_observe(m, METRIC_REQUEST_PARAMS_MAX_TOKENS, NULL, q->r->max_tokens);
    metrics_observe(m, METRIC_REQUEST_PARAMS_N, NULL, q->r->n_choices);
    if (!e)
        end_times(s, q);
}

void gauges_rejected(struct sched *s)
{
    if (s->metrics)
        metrics_add(s->metrics, METRIC_ADMISSION_REJECTIONS, REASON_QUEUE, 1);
}
