/* Counters, gauges and histograms in Prometheus' text format.
 *
 * config/metrics.def declares every metric once; config/metrics.h turns it into the ids (enum metric)
 * and the table passed to metrics_new. Values are relaxed atomics (any thread may add); a series of
 * a labelled metric is created when its label value is first used, up to a bound per metric.
 * Once a series exists, using it does not allocate. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_desc {
    const char *name; /* as exposed, for instance "vllm:num_requests_running" */
    enum metric_kind kind;
    const char *labels; /* comma-separated label names besides the constant ones, "" for none */
    const double *bounds; /* histogram: n_bounds upper bounds, ascending, without +Inf */
    size_t n_bounds;
    const char *help;
};

struct metrics;
/* const_labels: text such as model_name="m",engine="0" that is put on every series; may be "". */
struct metrics *metrics_new(const struct metric_desc *table, size_t n);
void metrics_free(struct metrics *m);
void metrics_set_const_labels(struct metrics *m, const char *const_labels);

/* label_values: NULL, or the values joined by '\x1f' in the order of desc.labels. */
void metrics_add(struct metrics *m, int id, const char *label_values,
                 double delta); /* counter, gauge */
void metrics_set(struct metrics *m, int id, const char *label_values, double value); /* gauge */
void metrics_observe(struct metrics *m, int id, const char *label_values, double value);
void metrics_observe_n(struct metrics *m, int id, const char *label_values, double value,
                       uint64_t n);
/* One line of a counter or gauge whose values are kept elsewhere; first: preceded by HELP and TYPE. */
void metrics_render_value(const struct metrics *m, int id, const char *label_values, double value,
                          bool first, struct buf *out);
void metrics_render(const struct metrics *m, struct buf *out); /* text/plain; version=0.0.4 */

#endif
