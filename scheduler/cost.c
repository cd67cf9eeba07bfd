/* Online model of step time; see cost.h. */
#include "scheduler/cost.h"

#include <string.h>

/* Terms are scaled to about 1 so that one ridge suits all: ms, 64 rows, 16 Ki positions read. */
#define NS_UNIT 1e6
#define ROWS_UNIT 64.0
#define KV_UNIT 16384.0
#define DECAY 0.9 /* per observation of a bucket: about ten steps count */
#define RIDGE 1e-3 /* weight of the prior against one observation */
#define OUTLIER                                                                                    \
    8.0 /* a step slower than this times the model counts as so much: a stopped process */

#define OVER_QUANTILE 0.95
#define OVER_RATE 0.04 /* a step moves the quantile by at most so much */
#define MOST_OVER 1.5
#define NO_WAVER 2.0 /* slower than this times the model: it is the model that is wrong */

/* Sums of all buckets, the ridge added: n_terms equations, the right side in the last column. */
static void gather(const struct cost *c, int n_terms, double m[COST_TERMS][COST_TERMS + 1])
{
    for (int i = 0; i < n_terms; i++) {
        for (int j = 0; j < n_terms; j++)
            m[i][j] = i == j ? RIDGE : 0;
        m[i][n_terms] = RIDGE * c->prior[i];
    }
    for (int k = 0; k < COST_BUCKETS; k++) {
        if (c->bucket[k].xx[0][0] == 0)
            continue;
        for (int i = 0; i < n_terms; i++) {
            for (int j = 0; j < n_terms; j++)
                m[i][j] += c->bucket[k].xx[i][j];
            m[i][n_terms] += c->bucket[k].xy[i];
        }
    }
}

/* Gauss without pivoting: the matrix is symmetric and positive definite. */
static void solve_terms(const struct cost *c, int n_terms, double x[COST_TERMS])
{
    double m[COST_TERMS][COST_TERMS + 1];
    gather(c, n_terms, m);
    for (int i = 0; i < n_terms; i++) {
        for (int r = i + 1; r < n_terms; r++) {
            double f = m[r][i] / m[i][i];
            for (int j = i; j <= n_terms; j++)
                m[r][j] -= f * m[i][j];
        }
    }
    for (int i = n_terms - 1; i >= 0; i--) {
        x[i] = m[i][n_terms];
        for (int j = i + 1; j < n_terms; j++)
            x[i] -= m[i][j] * x[j];
        x[i] /= m[i][i];
    }
}

static void solve(struct cost *c)
{
    double x[COST_TERMS] = {0};
    solve_terms(c, COST_TERMS, x);
    if (x[2] < 0) { /* reading more never takes less time: then rows explain it all */
        x[2] = 0;
        solve_terms(c, COST_TERMS - 1, x);
    }
    double least_row = c->prior[1] * 1e-4; /* keeps the budget finite */
    c->base_ns = (x[0] > 0 ? x[0] : 0) * NS_UNIT;
    c->row_ns = (x[1] > least_row ? x[1] : least_row) * NS_UNIT / ROWS_UNIT;
    c->kv_ns = x[2] * NS_UNIT / KV_UNIT;
}

void cost_init(struct cost *c, uint64_t target_ns, uint32_t prior_rows)
{
    memset(c, 0, sizeof(*c));
    c->target_ns = (double)target_ns;
    c->over = 1;
    c->prior[1] = (double)target_ns / NS_UNIT * ROWS_UNIT / (double)(prior_rows ? prior_rows : 1);
    solve(c);
}

static int bucket_of(uint32_t n_rows)
{
    int k = 0;
    while (n_rows > 1 && k + 1 < COST_BUCKETS) {
        n_rows >>= 1;
        k++;
    }
    return k;
}

/* Follows the quantile: up where a step took longer, down a little where it did not. Short steps waver in another
 * way and need no bound. */
static void note_over(struct cost *c, double foreseen_ns, double took_ns)
{
    if (foreseen_ns < c->target_ns / 2 || took_ns > NO_WAVER * foreseen_ns)
        return;
    c->over += OVER_RATE * (took_ns > c->over * foreseen_ns ? OVER_QUANTILE : OVER_QUANTILE - 1);
    c->over = c->over < 1 ? 1 : c->over > MOST_OVER ? MOST_OVER : c->over;
}

double cost_budget_ns(const struct cost *c)
{
    return c->target_ns / c->over;
}

void cost_observe(struct cost *c, uint32_t n_rows, uint64_t kv_read, uint64_t took_ns)
{
    int k = bucket_of(n_rows);
    double y = (double)took_ns / NS_UNIT;
    double foreseen = cost_step_ns(c, n_rows, kv_read);
    double most = foreseen / NS_UNIT * OUTLIER;
    note_over(c, foreseen, (double)took_ns);
    if (c->bucket[k].xx[0][0] > 0 && y > most)
        y = most;
    double x[COST_TERMS] = {1, n_rows / ROWS_UNIT, (double)kv_read / KV_UNIT};
    for (int i = 0; i < COST_TERMS; i++) {
        for (int j = 0; j < COST_TERMS; j++)
            c->bucket[k].xx[i][j] = DECAY * c->bucket[k].xx[i][j] + x[i] * x[j];
        c->bucket[k].xy[i] = DECAY * c->bucket[k].xy[i] + x[i] * y;
    }
    solve(c);
}

double cost_step_ns(const struct cost *c, uint32_t n_rows, uint64_t kv_read)
{
    return c->base_ns + c->row_ns * n_rows + c->kv_ns * (double)kv_read;
}

uint32_t cost_rows(const struct cost *c, double left_ns, uint32_t pos)
{
    if (left_ns <= 0)
        return 0;
    double n = left_ns / (c->row_ns + c->kv_ns * (pos + 1.0));
    n = left_ns / (c->row_ns + c->kv_ns * (pos + 1.0 + n / 2));
    return n < 1e9 ? (uint32_t)n : 1000000000u;
}
