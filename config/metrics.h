/* The metrics of the server, from metrics.def: METRIC_<ID> names one in the calls of
 * base/metrics.h, metrics_table is what metrics_new takes. */
#ifndef CONFIG_METRICS_H
#define CONFIG_METRICS_H

#include <stddef.h>

#include "base/metrics.h"

enum metric_id {
#define X(id, name, kind, labels, bounds, help) METRIC_##id,
#include "config/metrics.def"
#undef X
    N_METRICS
};

extern const struct metric_desc metrics_table[];
extern const size_t metrics_table_n; /* N_METRICS */

#endif
