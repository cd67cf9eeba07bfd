/* The verb around scheduler/sim/simulate.h; see simulate.h. */
#include "server/cli/simulate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "config/settings.h"
#include "scheduler/sim/simulate.h"
#include "kvpool/memory.h"
#include "server/cli/verb.h"

enum {
    MAX_FILE_BYTES = 512 << 20,
    LOG_BLOCK_BYTES = 384 << 10, /* where a load has no figure: copies cost by it */
    MAX_RUNS = 8
};

struct run {
    const char *name;
    struct sim_options options;
    struct sim_result *result; /* owns */
};

struct simulation {
    struct sim_trace trace;
    struct settings set; /* the recorded limits, then the command line */
    struct sim_options base;
    struct run run[MAX_RUNS];
    uint32_t n_runs;
    bool json, once, help;
    bool cost_given;
    uint32_t n_calibrations; /* base runs that fitted the cost of a step to measured times */
    bool kv_given;
};

/* ---- the file ---- */

static enum status read_file(const char *path, struct buf *out, struct err *e)
{
    char chunk[1 << 16];
    size_t n;
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (!f)
        return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0 && out->len <= MAX_FILE_BYTES)
        buf_add(out, chunk, n);
    bool failed = ferror(f);
    if (!is_stdin)
        fclose(f);
    if (failed)
        return err_set(e, ERR_IO, "%s: cannot read", path);
    if (out->len > MAX_FILE_BYTES)
        return err_set(e, ERR_TOO_LARGE, "%s: over %d bytes", path, MAX_FILE_BYTES);
    return OK;
}

/* What a writer that was cut off leaves: a last line without its end. An object of JSON is whole without
 * one too. */
static void cut_unfinished_line(const char *path, struct buf *text)
{
    const struct json_limits limits = {.depth = 8, .n_nodes = 4096};
    struct json_doc *doc = NULL;
    size_t at = text->len;
    while (at > 0 && text->ptr[at - 1] != '\n')
        at--;
    struct str last = {text->ptr + at, text->len - at};
    if (last.len == 0)
        return;
    if (json_parse(last, limits, &doc, NULL) == OK) {
        json_free(doc);
        return;
    }
    log_warn("%s: the last line is cut off: its %zu bytes are ignored", path, last.len);
    text->len = at;
}

static enum status read_load(struct simulation *m, const char *path, struct err *e)
{
    struct buf text = {0};
    enum status st = read_file(path, &text, e);
    if (!st) {
        cut_unfinished_line(path, &text);
        st = sim_trace_read(&m->trace, buf_str(&text), e);
        if (st)
            err_prefix(e, "%s", path);
    }
    buf_release(&text);
    return st;
}

/* ---- conditions ---- */

static uint64_t kv_bytes_of(const struct journal_config *c)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < c->n_groups; g++)
        n += c->group[g].n_frames * c->group[g].block_bytes;
    return n;
}

/* An access log contains no limits: the options' defaults, and an arena that holds everything. */
static void assume_limits(struct simulation *m)
{
    struct journal_config *c = &m->trace.config;
    struct settings plain;
    uint32_t longest = 0;
    settings_init(&plain);
    for (uint32_t i = 0; i < m->trace.n_requests; i++) {
        const struct sim_request *q = &m->trace.request[i];
        longest = q->n_prompt + q->max_tokens > longest ? q->n_prompt + q->max_tokens : longest;
    }
    *c = (struct journal_config){
        .max_running = (uint32_t)plain.sched_max_running,
        .max_queued = (uint32_t)plain.sched_max_queued,
        .max_batch_tokens = (uint32_t)plain.sched_max_batch_tokens,
        .chunk_max = (uint32_t)plain.sched_chunk_max,
        .step_target_ms = (uint32_t)plain.sched_step_target_ms,
        .max_context = longest + 1,
        .block_tokens = (uint32_t)plain.kv_block_tokens,
        .n_groups = 1,
        .prefix = plain.prefix_enabled,
    };
    c->group[0].block_bytes = LOG_BLOCK_BYTES;
    c->group[0].n_frames = c->max_running * (longest / c->block_tokens + 2);
    settings_release(&plain);
}

/* The recorded limits as options, so that the command line overrides them by their usual names. */
static void preset(struct simulation *m)
{
    const struct journal_config *c = &m->trace.config;
    struct settings *s = &m->set;
    s->sched_max_running = c->max_running;
    s->sched_max_queued = c->max_queued;
    s->sched_max_batch_tokens = c->max_batch_tokens;
    s->sched_chunk_max = c->chunk_max;
    s->sched_step_target_ms = c->step_target_ms;
    s->limits_max_context = c->max_context;
    s->kv_block_tokens = c->block_tokens;
    s->kv_bytes = kv_bytes_of(c);
    for (uint32_t g = 0; g < c->n_groups; g++) {
        s->kv_host_bytes += c->group[g].n_host * c->group[g].block_bytes;
        s->kv_spill_bytes += c->group[g].n_file * kv_tier_slot_bytes(c->group[g].block_bytes);
    }
    s->prefix_enabled = c->prefix != 0;
    s->sched_reserve = (int)c->reserve;
    s->sched_preempt = (int)c->preempt;
}

/* Blocks of each group for these sizes, as a server would have them. */
static enum status size_kv(const struct simulation *m, uint64_t kv_bytes, struct journal_config *c,
                           struct err *e)
{
    const struct journal_config *was = &m->trace.config;
    struct kv_layout l = {.n_groups = c->n_groups, .n_slots = c->block_tokens};
    struct kv_plan plan;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        l.group[g].window = c->group[g].window;
        l.group[g].block_bytes = (size_t)(was->group[g].block_bytes * c->block_tokens /
                                          (was->block_tokens ? was->block_tokens : 1));
        c->group[g].block_bytes = l.group[g].block_bytes;
    }
    struct kv_plan_ask ask = kv_memory_ask(&m->set, UINT64_MAX, c->max_context);
    ask.kv_bytes = kv_bytes;
    enum status st = kv_plan_make(&ask, &l, &plan, e);
    for (uint32_t g = 0; g < c->n_groups && !st; g++) {
        c->group[g].n_frames = plan.n_frames[g];
        c->group[g].n_host = plan.n_host[g];
        c->group[g].n_file = plan.n_file[g];
    }
    return st;
}

/* What the command line says; sizes that it does not touch stay as they were recorded. */
static enum status take_options(struct simulation *m, struct err *e)
{
    const struct settings *s = &m->set;
    const struct journal_config *was = &m->trace.config;
    struct settings before;
    struct simulation old = {.trace = m->trace};
    struct journal_config *c = &m->base.config;
    settings_init(&before);
    old.set = before;
    preset(&old);
    *c = *was;
    c->max_running = (uint32_t)s->sched_max_running;
    c->max_queued = (uint32_t)s->sched_max_queued;
    c->max_batch_tokens = (uint32_t)s->sched_max_batch_tokens;
    c->chunk_max = (uint32_t)s->sched_chunk_max;
    c->step_target_ms = (uint32_t)s->sched_step_target_ms;
    c->max_context = (uint32_t)s->limits_max_context;
    c->block_tokens = (uint32_t)s->kv_block_tokens;
    c->prefix = s->prefix_enabled;
    c->reserve = (uint32_t)s->sched_reserve;
    c->preempt = (uint32_t)s->sched_preempt;
    bool same = old.set.kv_bytes == s->kv_bytes && old.set.kv_host_bytes == s->kv_host_bytes &&
                old.set.kv_spill_bytes == s->kv_spill_bytes && c->block_tokens == was->block_tokens;
    settings_release(&before);
    return same ? OK : size_kv(m, s->kv_bytes, c, e);
}

static enum status read_cost(const char *text, struct sim_cost *cost, struct err *e)
{
    int n = 0;
    if (sscanf(text, "%lf,%lf,%lf%n", &cost->base_ns, &cost->row_ns, &cost->kv_ns, &n) == 3 &&
        !text[n] && cost->base_ns >= 0 && cost->row_ns >= 0 && cost->kv_ns >= 0 &&
        cost->base_ns < 1e12 && cost->row_ns < 1e12 && cost->kv_ns < 1e12)
        return OK;
    return err_set_field(e, ERR_INVALID, "cost", NULL,
                         "option --cost: '%.60s' is not BASE,ROW,KV in ns", text);
}

static const struct verb_option own_options[] = {
    {"kv", "SIZE", "memory for the KV arena instead of the recorded size (same as --kv.bytes)"},
    {"rate", "X", "factor by which requests arrive faster (default 1)"},
    {"cost", "A,B,C", "ns per step: A + B * rows + C * positions read (default: from the file)"},
    {"once", NULL, "replay only as recorded, without runs with more or less memory"},
    {"json", NULL, "print numbers as JSON"},
    {NULL, NULL, NULL},
};

static enum status read_args(struct simulation *m, int argc, char **argv, struct err *e)
{
    const char *kv = NULL, *rate = NULL, *cost = NULL, *once = NULL, *json = NULL;
    const char **value[] = {&kv, &rate, &cost, &once, &json};
    struct verb_args args;
    verb_args_init(&args, argc, argv);
    m->help = verb_wants_help(&args);
    const char *path = m->help ? NULL : verb_word(&args);
    enum status st = m->help ? OK : verb_take(&args, own_options, value, e);
    if (!st && path)
        st = read_load(m, path, e);
    if (!st && path && !m->trace.config.block_tokens)
        assume_limits(m);
    for (uint32_t g = 0; g < m->trace.config.n_groups; g++)
        if (!m->trace.config.group[g].block_bytes)
            m->trace.config.group[g].block_bytes = LOG_BLOCK_BYTES;
    if (!st && path)
        preset(m);
    m->json = json != NULL;
    m->once = once != NULL;
    m->base.rate = 1;
    m->base.cost = m->trace.cost;
    if (!st && !m->help)
        st = settings_load(&m->set, args.n, args.arg, NULL, &m->help, e);
    if (!st && kv)
        st = settings_set(&m->set, "kv.bytes", kv, e);
    if (!st && rate)
        st = verb_number("rate", rate, 1e-6, 1e6, &m->base.rate, e);
    m->cost_given = cost != NULL;
    if (!st && cost)
        st = read_cost(cost, &m->base.cost, e);
    verb_args_release(&args);
    if (!st && !m->help && !path)
        st = err_set(e, ERR_INVALID, "no file given: millrace simulate JOURNAL|ACCESS-LOG");
    return st;
}

/* ---- does the base run match the measured times? ---- */

static double ratio_of(const struct sim_times *measured, const struct sim_times *run, double part)
{
    double a = (double)sim_times_quantile(measured, part),
           b = (double)sim_times_quantile(run, part);
    return a > 0 && b > 0 ? a / b : 1;
}

static double damped(double ratio)
{
    double x = pow(ratio, 0.7);
    return x < 0.25 ? 0.25 : x > 4 ? 4 : x;
}

/* An access log does not say what a step costs: a prompt's time holds the steps of all that ran beside it.
 * The terms are scaled until a run as recorded has the measured medians. */
static enum status calibrate(struct simulation *m, struct err *e)
{
    enum { MOST_ROUNDS = 16 };
    enum status st = OK;
    struct sim_result *r = mem_zalloc(sizeof(*r));
    bool fits = false;
    while (!st && !fits && m->n_calibrations < MOST_ROUNDS) {
        st = sim_run(&m->trace, &m->base, r, e);
        m->n_calibrations++;
        double first = ratio_of(m->trace.first_token, &r->first_token, 0.5);
        double gap = ratio_of(m->trace.gap, &r->gap, 0.5);
        fits = fabs(first - 1) < 0.03 && fabs(gap - 1) < 0.03;
        m->base.cost.row_ns *= damped(first);
        m->base.cost.base_ns *= damped(gap);
    }
    mem_free(r);
    return st;
}

/* Half to twice the measured first tokens, or within a few ms of them. */
static bool base_fits(const struct simulation *m)
{
    static const double parts[] = {0.5, 0.9};
    enum { CLOSE_MS = 10 };
    const struct sim_times *a = m->trace.first_token, *b = &m->run[0].result->first_token;
    for (size_t i = 0; a->n && b->n && i < sizeof(parts) / sizeof(parts[0]); i++) {
        double x = (double)sim_times_quantile(a, parts[i]),
               y = (double)sim_times_quantile(b, parts[i]);
        if (fabs(x - y) > CLOSE_MS * (double)NS_PER_MS && (x > 2 * y || y > 2 * x))
            return false;
    }
    return true;
}

/* ---- runs ---- */

static struct run *add_run(struct simulation *m, const char *name)
{
    struct run *r = &m->run[m->n_runs++];
    *r = (struct run){.name = name, .options = m->base};
    return r;
}

/* A size too small to hold a sequence has no result. */
static void add_kv_run(struct simulation *m, const char *name, double factor)
{
    struct run *r = add_run(m, name);
    uint64_t bytes = (uint64_t)((double)kv_bytes_of(&m->base.config) * factor);
    struct err e;
    if (size_kv(m, bytes, &r->options.config, &e) != OK)
        m->n_runs--;
}

static void add_runs(struct simulation *m)
{
    add_run(m, "base");
    if (m->once)
        return;
    add_kv_run(m, "kv x0.5", 0.5);
    add_kv_run(m, "kv x2", 2);
    add_kv_run(m, "kv x4", 4);
    struct run *r = add_run(m, "running x2");
    r->options.config.max_running *= 2;
    if (r->options.config.max_batch_tokens < r->options.config.max_running)
        r->options.config.max_batch_tokens = r->options.config.max_running;
    r = add_run(m, "machine x2");
    r->options.cost.base_ns /= 2;
    r->options.cost.row_ns /= 2;
    r->options.cost.kv_ns /= 2;
}

static enum status run_all(struct simulation *m, struct err *e)
{
    enum status st = OK;
    for (uint32_t i = 0; i < m->n_runs && !st; i++) {
        m->run[i].result = mem_zalloc(sizeof(struct sim_result));
        st = sim_run(&m->trace, &m->run[i].options, m->run[i].result, e);
    }
    return st;
}

/* ---- what would help ---- */

static double goodput(const struct sim_result *r)
{
    return r->span_ns ? (double)r->n_output_tokens * (double)NS_PER_S / (double)r->span_ns : 0;
}

static double hit_rate(const struct sim_result *r)
{
    return r->n_query_tokens ? (double)r->n_hit_tokens / (double)r->n_query_tokens : 0;
}

static double p90_s(const struct sim_times *t)
{
    return (double)sim_times_quantile(t, 0.9) / (double)NS_PER_S;
}

/* How much better than the first run: tokens a second, less refused work, first tokens sooner. */
static double gain(const struct sim_result *base, const struct sim_result *r)
{
    double tokens = goodput(base) > 0 ? goodput(r) / goodput(base) : 1;
    double served = (1.0 + r->n_finished) / (1.0 + base->n_finished);
    double first = (p90_s(&base->first_token) + 1e-3) / (p90_s(&r->first_token) + 1e-3);
    double best = tokens > served ? tokens : served;
    return best > first ? best : first;
}

enum { LEAST_GAIN_PERCENT = 10 };

/* NULL: nothing changes much. */
static const struct run *best_run(const struct simulation *m)
{
    const struct run *best = NULL;
    double most = 1 + LEAST_GAIN_PERCENT / 100.0;
    for (uint32_t i = 1; i < m->n_runs; i++) {
        double x = gain(m->run[0].result, m->run[i].result);
        if (x > most) {
            most = x;
            best = &m->run[i];
        }
    }
    return best;
}

/* ---- words ---- */

static void print_ms(uint64_t ns)
{
    double ms = (double)ns / (double)NS_PER_MS;
    if (ms < 10000)
        printf(" %8.1f", ms);
    else
        printf(" %7.1fs", ms / 1000);
}

static void print_times(const struct sim_times *t)
{
    static const double parts[] = {0.5, 0.9, 0.99};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (t->n)
            print_ms(sim_times_quantile(t, parts[i]));
        else
            printf(" %8s", "-");
}

static void print_run(const struct run *run)
{
    const struct sim_result *r = run->result;
    printf("%-12s", run->name);
    print_times(&r->first_token);
    print_times(&r->gap);
    printf(" %9" PRIu64 " %5.1f%% %8.1f %7u", r->n_preempted, 100 * hit_rate(r), goodput(r),
           r->n_refused + r->n_failed);
    printf(" %4.0f%% %4.0f%%\n", 100 * r->mean_used,
           r->span_ns ? 100 * (double)r->busy_ns / (double)r->span_ns : 0);
}

static void print_load(const struct simulation *m)
{
    const struct sim_trace *t = &m->trace;
    const struct journal_config *c = &m->base.config;
    const struct sim_cost *cost = &m->base.cost;
    uint64_t n_prompt = 0, n_output = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        n_prompt += t->request[i].n_prompt;
        n_output += (uint64_t)t->request[i].n_output * t->request[i].n_choices;
    }
    printf("load      %u requests in %.1f s, at %gx: %" PRIu64 " prompt tokens, %" PRIu64
           " output tokens\n",
           t->n_requests, (double)t->span_ns / (double)NS_PER_S, m->base.rate, n_prompt, n_output);
    printf("step      %.3f ms + %.4f ms per row + %.4f us per position read", cost->base_ns / 1e6,
           cost->row_ns / 1e6, cost->kv_ns / 1e3);
    if (t->n_steps)
        printf(" (of %" PRIu64 " recorded steps)", t->n_steps);
    else if (m->n_calibrations)
        printf(" (fitted to the measured times in %u runs)", m->n_calibrations);
    printf("\nkv       ");
    for (uint32_t g = 0; g < c->n_groups; g++)
        printf(" %u + %u RAM + %u file", c->group[g].n_frames, c->group[g].n_host,
               c->group[g].n_file);
    printf(" blocks of %u tokens, %s\nlimits    %u running, %u queued, %u tokens per step\n\n",
           c->block_tokens, size_shown(kv_bytes_of(c)).text, c->max_running, c->max_queued,
           c->max_batch_tokens);
}

static void print_table(const struct simulation *m)
{
    printf("%-12s %26s %26s\n", "", "first token (ms)", "between tokens (ms)");
    printf("%-12s %8s %8s %8s %8s %8s %8s %9s %6s %8s %7s %5s %5s\n", "", "p50", "p90", "p99",
           "p50", "p90", "p99", "preempted", "hits", "tokens/s", "refused", "kv", "busy");
    printf("%-12s", "measured");
    print_times(m->trace.first_token);
    putchar('\n');
    for (uint32_t i = 0; i < m->n_runs; i++)
        print_run(&m->run[i]);
}

static void print_help_line(const struct simulation *m)
{
    const struct run *best = best_run(m);
    const struct sim_result *a = m->run[0].result, *b = best ? best->result : NULL;
    if (!base_fits(m) && m->base.rate == 1)
        puts("\nthe base run does not match the measured times: do not rely on these numbers");
    if (m->once)
        return;
    if (!best) {
        puts("\nnothing is scarce: none of these runs is more than 10 % better");
        return;
    }
    printf(
        "\n%s helps most: first token p90 %.2f s -> %.2f s, %.1f -> %.1f tokens/s, refused %u -> "
        "%u, preempted %" PRIu64 " -> %" PRIu64 "\n",
        best->name, p90_s(&a->first_token), p90_s(&b->first_token), goodput(a), goodput(b),
        a->n_refused + a->n_failed, b->n_refused + b->n_failed, a->n_preempted, b->n_preempted);
}

/* ---- JSON ---- */

static void add_count(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, ",\"%s\":%" PRIu64, name, value);
}

static void add_real(struct buf *out, const char *name, double value)
{
    buf_printf(out, ",\"%s\":", name);
    json_add_double(out, value);
}

static void add_times(struct buf *out, const char *name, const struct sim_times *t)
{
    buf_printf(out, ",\"%s\":{\"n\":%" PRIu64, name, t->n);
    add_count(out, "p50_ns", sim_times_quantile(t, 0.5));
    add_count(out, "p90_ns", sim_times_quantile(t, 0.9));
    add_count(out, "p99_ns", sim_times_quantile(t, 0.99));
    add_count(out, "max_ns", t->max_ns);
    buf_add_char(out, '}');
}

static void add_run_json(struct buf *out, const struct run *run)
{
    const struct sim_result *r = run->result;
    buf_printf(out, "{\"name\":\"%s\"", run->name);
    add_times(out, "first_token", &r->first_token);
    add_times(out, "between_tokens", &r->gap);
    add_times(out, "queue", &r->queue);
    add_count(out, "finished", r->n_finished);
    add_count(out, "refused", r->n_refused);
    add_count(out, "cancelled", r->n_cancelled);
    add_count(out, "failed", r->n_failed);
    add_count(out, "preemptions", r->n_preempted);
    add_count(out, "spilled_blocks", r->n_spilled);
    add_count(out, "loaded_blocks", r->n_loaded);
    add_count(out, "evicted_blocks", r->n_evicted);
    add_count(out, "query_tokens", r->n_query_tokens);
    add_count(out, "hit_tokens", r->n_hit_tokens);
    add_count(out, "steps", r->n_steps);
    add_count(out, "rows", r->n_rows);
    add_count(out, "span_ns", r->span_ns);
    add_count(out, "busy_ns", r->busy_ns);
    add_count(out, "output_tokens", r->n_output_tokens);
    add_real(out, "tokens_per_s", goodput(r));
    add_real(out, "mean_running", r->mean_running);
    add_real(out, "mean_kv_used", r->mean_used);
    add_count(out, "peak_running", r->peak_running);
    add_count(out, "peak_kv_blocks", r->peak_used);
    buf_add_char(out, '}');
}

static void print_json(const struct simulation *m)
{
    struct buf out = {0};
    const struct run *best = best_run(m);
    buf_printf(&out, "{\"requests\":%u", m->trace.n_requests);
    add_count(&out, "skipped", m->trace.n_skipped);
    add_count(&out, "recorded_steps", m->trace.n_steps);
    add_real(&out, "rate", m->base.rate);
    add_real(&out, "step_base_ns", m->base.cost.base_ns);
    add_real(&out, "step_row_ns", m->base.cost.row_ns);
    add_real(&out, "step_kv_ns", m->base.cost.kv_ns);
    add_times(&out, "measured_first_token", m->trace.first_token);
    add_times(&out, "measured_queue", m->trace.queue);
    buf_printf(&out, ",\"base_fits\":%s", base_fits(m) ? "true" : "false");
    buf_add_c(&out, ",\"runs\":[");
    for (uint32_t i = 0; i < m->n_runs; i++) {
        if (i)
            buf_add_char(&out, ',');
        add_run_json(&out, &m->run[i]);
    }
    if (best)
        buf_printf(&out, "],\"helps\":\"%s\"}", best->name);
    else
        buf_add_c(&out, "],\"helps\":null}");
    puts(out.ptr);
    buf_release(&out);
}

static enum status simulate(struct simulation *m, struct err *e)
{
    enum status st = take_options(m, e);
    if (!st && m->base.cost.base_ns + m->base.cost.row_ns <= 0)
        st = err_set(e, ERR_INVALID, "the file contains no step costs: give --cost");
    if (st)
        return st;
    if (!m->trace.n_steps && !m->cost_given && m->base.rate == 1)
        st = calibrate(m, e);
    add_runs(m);
    if (!st)
        st = run_all(m, e);
    if (!st && m->json) {
        print_json(m);
    } else if (!st) {
        print_load(m);
        print_table(m);
        print_help_line(m);
    }
    return st;
}

enum status simulate_run(int argc, char **argv, struct err *e)
{
    struct simulation *m = mem_zalloc(sizeof(*m));
    settings_init(&m->set);
    enum status st = read_args(m, argc, argv, e);
    if (!st && m->help) {
        verb_print_help(
            "simulate JOURNAL|ACCESS-LOG|- [options]", SIMULATE_WHAT, own_options,
            "JOURNAL: the answer of GET /debug/journal. The limits of `millrace serve` are "
            "accepted too, for instance --sched.max_running 128, --kv.host_bytes 4GiB, "
            "--prefix.enabled=false.");
    } else if (!st) {
        st = simulate(m, e);
    }
    for (uint32_t i = 0; i < m->n_runs; i++)
        mem_free(m->run[i].result);
    sim_trace_release(&m->trace);
    settings_release(&m->set);
    mem_free(m);
    return st;
}
