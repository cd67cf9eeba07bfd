/* The table of metrics and their bucket bounds (vLLM's); see metrics.h. */
#include "config/metrics.h"

/* X(list, bounds...): upper bounds of histogram buckets, ascending, in the metric's unit. */
#define BOUNDS_TABLE(X)                                                                            \
    X(FIRST_TOKEN_S, 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5,   \
      5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)                                      \
    X(TOKEN_S, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,  \
      10.0, 20.0, 40.0, 80.0)                                                                      \
    X(REQUEST_S, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, \
      120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)                                                  \
    X(TOKENS, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,   \
      200000, 500000, 1000000)                                                                     \
    X(CHOICES, 1, 2, 5, 10, 20)                                                                    \
    X(STEP_TOKENS, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)                 \
    X(HTTP_S, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,     \
      30.0, 60.0)

#define X(list, ...) static const double bounds_##list[] = {__VA_ARGS__};
BOUNDS_TABLE(X)
#undef X

enum {
    n_bounds_NONE = 0,
#define X(list, ...) n_bounds_##list = sizeof(bounds_##list) / sizeof(double),
    BOUNDS_TABLE(X)
#undef X
};

#define bounds_NONE NULL

const struct metric_desc metrics_table[] = {
#define X(id, name, kind, labels, bounds, help)                                                    \
    {name, METRIC_##kind, labels, bounds_##bounds, n_bounds_##bounds, help},
#include "config/metrics.def"
#undef X
};

const size_t metrics_table_n = N_METRICS;
