/* Counters, gauges and histograms; see metrics.h.
 *
 * A metric holds an array of pointers to its series, filled in order and published by a release store
 * of n_series: readers walk it without a lock; only creating a series takes the mutex. Doubles are
 * stored as their bits in 64-bit atomics. */
#include "base/metrics.h"
#include "base/base_test.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"

/* Beyond this many, values go to one more series whose labels are all "other". */
enum { MAX_SERIES = 256, MAX_LABELS = 8 };

struct series {
    char *key; /* owns; the label values as passed in */
    char *labels; /* owns; a="x",b="y", escaped */
    atomic_uint_fast64_t value; /* bits of a double: counter, gauge; histogram: the sum */
    atomic_uint_fast64_t counts[]; /* histogram: one per bucket, not cumulative, +Inf last */
};

struct metric {
    struct metric_desc desc;
    _Atomic(struct series *) series[MAX_SERIES + 1]; /* owns; the last is "other" */
    atomic_size_t n_series;
};

struct metrics {
    struct mutex lock; /* protects the creation of series, and const_labels */
    char *const_labels; /* owns; under lock */
    size_t n;
    struct metric metrics[];
};

static double as_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t as_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static size_t count_labels(const char *labels)
{
    size_t n = *labels != 0;
    for (const char *p = labels; *p; p++)
        n += *p == ',';
    return n;
}

static void add_label_value(struct buf *out, struct str value)
{
    struct buf clean = {0};
    utf8_add_lossy(&clean, value);
    for (size_t i = 0; i < clean.len; i++) {
        char c = clean.ptr[i];
        if (c == '\n') {
            buf_add_c(out, "\\n");
            continue;
        }
        if (c == '\\' || c == '"')
            buf_add_char(out, '\\');
        buf_add_char(out, c);
    }
    buf_release(&clean);
}

/* values NULL: "other" for each label. */
static char *label_text(const char *names, const char *values)
{
    struct buf out = {0};
    while (*names) {
        size_t n_name = strcspn(names, ",");
        size_t n_value = values ? strcspn(values, "\x1f") : 0;
        if (out.len)
            buf_add_char(&out, ',');
        buf_add(&out, names, n_name);
        buf_add_c(&out, "=\"");
        add_label_value(&out, values ? (struct str){values, n_value} : STR_LIT("other"));
        buf_add_char(&out, '"');
        names += n_name + (names[n_name] == ',');
        if (values)
            values += n_value + (values[n_value] != 0);
    }
    return buf_take(&out);
}

static struct series *series_new(const struct metric_desc *desc, const char *key)
{
    size_t n_counts = desc->kind == METRIC_HISTOGRAM ? desc->n_bounds + 1 : 0;
    struct series *s = mem_zalloc(sizeof(*s) + n_counts * sizeof(s->counts[0]));
    s->key = mem_strdup(key ? key : "");
    s->labels = label_text(desc->labels, key);
    return s;
}

static struct series *series_find(const struct metric *m, const char *key)
{
    size_t n = atomic_load_explicit(&m->n_series, memory_order_acquire);
    for (size_t i = 0; i < n; i++) {
        struct series *s = atomic_load_explicit(&m->series[i], memory_order_relaxed);
        if (strcmp(s->key, key) == 0)
            return s;
    }
    return n > MAX_SERIES ? atomic_load_explicit(&m->series[MAX_SERIES], memory_order_relaxed)
                          : NULL;
}

static struct series *series_add(struct metrics *m, struct metric *metric, const char *key)
{
    mutex_lock(&m->lock);
    struct series *s = series_find(metric, key);
    if (!s) {
        size_t n = atomic_load_explicit(&metric->n_series, memory_order_relaxed);
        s = series_new(&metric->desc, n < MAX_SERIES ? key : NULL);
        atomic_store_explicit(&metric->series[n], s, memory_order_relaxed);
        atomic_store_explicit(&metric->n_series, n + 1, memory_order_release);
    }
    mutex_unlock(&m->lock);
    return s;
}

static struct series *series_for(struct metrics *m, int id, const char *key, enum metric_kind kind)
{
    CHECKF(id >= 0 && (size_t)id < m->n, "metric id %d of %zu", id, m->n);
    struct metric *metric = &m->metrics[id];
    CHECKF(metric->desc.kind == kind, "%s is of another kind", metric->desc.name);
    key = key ? key : "";
    struct series *s = series_find(metric, key);
    return s ? s : series_add(m, metric, key);
}

struct metrics *metrics_new(const struct metric_desc *table, size_t n)
{
    struct metrics *m = mem_zalloc(sizeof(*m) + mem_mul(n, sizeof(m->metrics[0])));
    mutex_init(&m->lock);
    m->const_labels = mem_strdup("");
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        m->metrics[i].desc = table[i];
        CHECK(count_labels(table[i].labels) <= MAX_LABELS);
        /* A metric without labels is 0 from the start; one with labels appears on first use. */
        if (!table[i].labels[0])
            series_add(m, &m->metrics[i], "");
    }
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        for (size_t k = 0; k < m->metrics[i].n_series; k++) {
            struct series *s = m->metrics[i].series[k];
            mem_free(s->key);
            mem_free(s->labels);
            mem_free(s);
        }
    }
    mutex_release(&m->lock);
    mem_free(m->const_labels);
    mem_free(m);
}

void metrics_set_const_labels(struct metrics *m, const char *const_labels)
{
    mutex_lock(&m->lock);
    mem_free(m->const_labels);
    m->const_labels = mem_strdup(const_labels);
    mutex_unlock(&m->lock);
}

static void value_add(struct series *s, double delta)
{
    uint_fast64_t old = atomic_load_explicit(&s->value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->value, &old, as_bits(as_double(old) + delta),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void metrics_add(struct metrics *m, int id, const char *label_values, double delta)
{
    CHECK(id >= 0 && (size_t)id < m->n);
    enum metric_kind kind = m->metrics[id].desc.kind;
    CHECKF(kind != METRIC_HISTOGRAM, "%s is a histogram", m->metrics[id].desc.name);
    CHECKF(kind != METRIC_COUNTER || delta >= 0, "%s falls", m->metrics[id].desc.name);
    value_add(series_for(m, id, label_values, kind), delta);
}

void metrics_set(struct metrics *m, int id, const char *label_values, double value)
{
    struct series *s = series_for(m, id, label_values, METRIC_GAUGE);
    atomic_store_explicit(&s->value, as_bits(value), memory_order_relaxed);
}

void metrics_observe(struct metrics *m, int id, const char *label_values, double value)
{
    metrics_observe_n(m, id, label_values, value, 1);
}

void metrics_observe_n(struct metrics *m, int id, const char *label_values, double value,
                       uint64_t n)
{
    struct series *s = series_for(m, id, label_values, METRIC_HISTOGRAM);
    const struct metric_desc *d = &m->metrics[id].desc;
    size_t bucket = 0;
    while (bucket < d->n_bounds && !(value <= d->bounds[bucket]))
        bucket++;
    atomic_fetch_add_explicit(&s->counts[bucket], n, memory_order_relaxed);
    value_add(s, value * (double)n);
}

static uint64_t total_count(const struct metric_desc *d, const struct series *s)
{
    uint64_t total = 0;
    for (size_t i = 0; i <= d->n_bounds; i++)
        total += atomic_load_explicit(&s->counts[i], memory_order_relaxed);
    return total;
}

double metrics_value(const struct metrics *m, int id, const char *label_values)
{
    CHECK(id >= 0 && (size_t)id < m->n);
    const struct metric *metric = &m->metrics[id];
    const struct series *s = series_find(metric, label_values ? label_values : "");
    if (!s)
        return 0;
    if (metric->desc.kind == METRIC_HISTOGRAM)
        return (double)total_count(&metric->desc, s);
    return as_double(atomic_load_explicit(&s->value, memory_order_relaxed));
}

static void add_number(struct buf *out, double x)
{
    if (isnan(x))
        buf_add_c(out, "NaN");
    else if (isinf(x))
        buf_add_c(out, x > 0 ? "+Inf" : "-Inf");
    else
        json_add_double(out, x);
}

/* Bounds as Prometheus' Python client writes them ("1.0", "0.025", "1e+06"), so that recording rules and
 * dashboards written for servers that use it match. */
static void add_bound(struct buf *out, double bound)
{
    size_t start = out->len;
    if (bound >= 1e6) {
        buf_printf(out, "%g", bound);
        return;
    }
    json_add_double(out, bound);
    if (!strpbrk(out->ptr + start, ".e"))
        buf_add_c(out, ".0");
}

/* name{const,labels,le="bound"} up to and including the space before the value; le < 0: no bound. */
struct line_parts {
    const char *name;
    const char *suffix;
    const char *const_labels;
    const char *labels;
};

static void add_line_start(struct buf *out, const struct line_parts *p, const double *bound)
{
    const char *separator = "{";
    buf_add_c(out, p->name);
    buf_add_c(out, p->suffix);
    const char *parts[2] = {p->const_labels, p->labels};
    for (int i = 0; i < 2; i++) {
        if (!parts[i][0])
            continue;
        buf_add_c(out, separator);
        buf_add_c(out, parts[i]);
        separator = ",";
    }
    if (bound) {
        buf_add_c(out, separator);
        buf_add_c(out, "le=\"");
        if (isinf(*bound))
            buf_add_c(out, "+Inf");
        else
            add_bound(out, *bound);
        buf_add_char(out, '"');
        separator = ",";
    }
    buf_add_c(out, *separator == ',' ? "} " : " ");
}

static void render_histogram(const struct metric_desc *d, const struct series *s,
                             struct line_parts *p, struct buf *out)
{
    const double infinity = INFINITY;
    uint64_t total = 0;
    p->suffix = "_bucket";
    for (size_t i = 0; i <= d->n_bounds; i++) {
        total += atomic_load_explicit(&s->counts[i], memory_order_relaxed);
        add_line_start(out, p, i < d->n_bounds ? &d->bounds[i] : &infinity);
        buf_printf(out, "%llu\n", (unsigned long long)total);
    }
    p->suffix = "_sum";
    add_line_start(out, p, NULL);
    add_number(out, as_double(atomic_load_explicit(&s->value, memory_order_relaxed)));
    p->suffix = "_count";
    buf_add_char(out, '\n');
    add_line_start(out, p, NULL);
    buf_printf(out, "%llu\n", (unsigned long long)total);
}

static void add_head(const struct metric_desc *d, struct buf *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", d->name, d->help, d->name, kinds[d->kind]);
}

static void render_metric(const struct metric *m, const char *const_labels, struct buf *out)
{
    const struct metric_desc *d = &m->desc;
    size_t n = atomic_load_explicit(&m->n_series, memory_order_acquire);
    if (n == 0)
        return;
    add_head(d, out);
    for (size_t i = 0; i < n; i++) {
        const struct series *s = atomic_load_explicit(&m->series[i], memory_order_relaxed);
        struct line_parts p = {d->name, "", const_labels, s->labels};
        if (d->kind == METRIC_HISTOGRAM) {
            render_histogram(d, s, &p, out);
            continue;
        }
        add_line_start(out, &p, NULL);
        add_number(out, as_double(atomic_load_explicit(&s->value, memory_order_relaxed)));
        buf_add_char(out, '\n');
    }
}

/* The lock protects only the text of the constant labels; values are lock-free. */
static char *copy_const_labels(const struct metrics *m)
{
    struct mutex *lock = (struct mutex *)&m->lock;
    mutex_lock(lock);
    char *text = mem_strdup(m->const_labels);
    mutex_unlock(lock);
    return text;
}

void metrics_render_value(const struct metrics *m, int id, const char *label_values, double value,
                          bool first, struct buf *out)
{
    CHECK(id >= 0 && (size_t)id < m->n);
    const struct metric_desc *d = &m->metrics[id].desc;
    CHECKF(d->kind != METRIC_HISTOGRAM, "%s is a histogram", d->name);
    char *const_labels = copy_const_labels(m), *labels = label_text(d->labels, label_values);
    struct line_parts p = {d->name, "", const_labels, labels};
    if (first)
        add_head(d, out);
    add_line_start(out, &p, NULL);
    add_number(out, value);
    buf_add_char(out, '\n');
    mem_free(const_labels);
    mem_free(labels);
}

void metrics_render(const struct metrics *m, struct buf *out)
{
    char *const_labels = copy_const_labels(m);
    for (size_t i = 0; i < m->n; i++)
        render_metric(&m->metrics[i], const_labels, out);
    mem_free(const_labels);
}
