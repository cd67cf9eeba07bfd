/* Reading a load from a journal or an access log; see simulate.h. */
#include "scheduler/sim/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

enum {
    MAX_REQUESTS = 10000000,
    MAX_TOKENS = 1 << 24, /* of a prompt or an output */
    MAX_CHOICES = 1024,
    ACCESS_BLOCK_TOKENS = 16
};

/* A line of prints before they are sorted to their requests. */
struct chunk {
    uint32_t request; /* index */
    uint32_t first, n; /* in reader.print */
};

struct step {
    double x[3]; /* 1, rows, positions read */
    double ns;
};

struct reader {
    struct sim_trace *t;
    uint32_t cap_requests, cap_prints, cap_chunks, n_chunks, n_prints;
    uint32_t *print; /* owns: in order of the file */
    struct chunk *chunk; /* owns */
    uint32_t *slot; /* owns [mask + 1]: request index + 1 by id */
    uint32_t mask;
    struct step *step; /* owns */
    uint32_t n_steps, cap_steps;
    double xx[3][3], xy[3]; /* weighted sums of the steps */
    double *row_ns, *gap_ns; /* own [cap_requests]: an access log's guesses of the cost */
    uint32_t n_row, n_gap;
    uint64_t out_sum, n_out; /* of ended requests, for those that had not */
};

static void *grown(void *p, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return p;
    *cap = *cap ? *cap * 2 : 256;
    return mem_realloc(p, mem_mul(*cap, size));
}

/* ---- requests by id ---- */

static uint32_t *slot_of(struct reader *r, uint32_t id)
{
    uint32_t i = (id * 2654435769u) & r->mask;
    while (r->slot[i] && r->t->request[r->slot[i] - 1].id != id)
        i = (i + 1) & r->mask;
    return &r->slot[i];
}

static struct sim_request *find(struct reader *r, uint32_t id)
{
    uint32_t at = r->slot ? *slot_of(r, id) : 0;
    return at ? &r->t->request[at - 1] : NULL;
}

static void grow_slots(struct reader *r)
{
    if (r->slot && r->t->n_requests < r->mask / 2)
        return;
    mem_free(r->slot);
    r->mask = r->mask ? r->mask * 2 + 1 : 1023;
    r->slot = mem_zalloc(mem_mul((size_t)r->mask + 1, sizeof(*r->slot)));
    for (uint32_t i = 0; i < r->t->n_requests; i++)
        *slot_of(r, r->t->request[i].id) = i + 1;
}

static bool plausible(const struct sim_request *q)
{
    return q->n_prompt >= 1 && q->n_prompt <= MAX_TOKENS && q->max_tokens <= MAX_TOKENS &&
           q->n_choices >= 1 && q->n_choices <= MAX_CHOICES;
}

static struct sim_request *add_request(struct reader *r, const struct sim_request *q)
{
    struct sim_trace *t = r->t;
    if (t->n_requests == MAX_REQUESTS || !plausible(q)) {
        t->n_skipped++;
        return NULL;
    }
    t->request = grown(t->request, t->n_requests, &r->cap_requests, sizeof(*t->request));
    t->request[t->n_requests++] = *q;
    return &t->request[t->n_requests - 1];
}

static void known_output(struct reader *r, struct sim_request *q, uint64_t n_output)
{
    uint64_t each = n_output / q->n_choices;
    q->n_output = each < q->max_tokens ? (uint32_t)each : q->max_tokens;
    q->ended = true;
    r->out_sum += q->n_output;
    r->n_out++;
}

/* ---- journal ---- */

static void on_submit(struct reader *r, const struct journal_record *rec)
{
    struct sim_request q = {.at_ns = rec->at_ns,
                            .id = rec->request,
                            .n_prompt = rec->u.submit.n_prompt,
                            .max_tokens = rec->u.submit.max_tokens,
                            .n_choices = rec->n_choices,
                            .tenant = rec->u.submit.tenant,
                            .priority = rec->u.submit.priority};
    grow_slots(r);
    if (add_request(r, &q))
        *slot_of(r, q.id) = r->t->n_requests;
}

static void on_prompt(struct reader *r, const struct journal_record *rec)
{
    struct sim_request *q = find(r, rec->request);
    if (!q) {
        r->t->n_skipped++;
        return;
    }
    r->chunk = grown(r->chunk, r->n_chunks, &r->cap_chunks, sizeof(*r->chunk));
    struct chunk *c = &r->chunk[r->n_chunks++];
    *c = (struct chunk){.request = (uint32_t)(q - r->t->request), .first = r->n_prints};
    for (uint32_t i = 0; i < JOURNAL_PROMPT_PRINTS && rec->u.print[i]; i++) {
        r->print = grown(r->print, r->n_prints, &r->cap_prints, sizeof(*r->print));
        r->print[r->n_prints++] = rec->u.print[i];
        c->n++;
    }
}

static void on_end(struct reader *r, const struct journal_record *rec)
{
    struct sim_request *q = find(r, rec->request);
    if (!q) {
        r->t->n_skipped++;
        return;
    }
    sim_times_add(r->t->queue, rec->u.end.queue_ns);
    if (rec->u.end.first_token_ns)
        sim_times_add(r->t->first_token, rec->u.end.first_token_ns);
    if (rec->status == 0)
        known_output(r, q, rec->u.end.n_output);
}

static void on_cancel(struct reader *r, const struct journal_record *rec)
{
    struct sim_request *q = find(r, rec->request);
    if (q)
        q->cancel_ns = rec->at_ns > q->at_ns ? rec->at_ns - q->at_ns : 1;
}

static void on_step(struct reader *r, const struct journal_record *rec)
{
    uint64_t ns = rec->u.step.took_ns + rec->u.step.between_ns;
    if (ns == 0)
        return;
    r->step = grown(r->step, r->n_steps, &r->cap_steps, sizeof(*r->step));
    r->step[r->n_steps++] =
        (struct step){.x = {1, rec->u.step.n_rows, (double)rec->u.step.kv_read}, .ns = (double)ns};
}

static enum status read_record(struct reader *r, struct str line, struct err *e)
{
    struct journal_record rec;
    enum status st = journal_read(line, &rec, &r->t->config, e);
    if (st != OK)
        return st;
    switch ((enum journal_kind)rec.kind) {
    case JOURNAL_SUBMIT:
        on_submit(r, &rec);
        break;
    case JOURNAL_PROMPT:
        on_prompt(r, &rec);
        break;
    case JOURNAL_CANCEL:
        on_cancel(r, &rec);
        break;
    case JOURNAL_STEP:
        on_step(r, &rec);
        break;
    case JOURNAL_END:
        on_end(r, &rec);
        break;
    case JOURNAL_NONE:
    case JOURNAL_CONFIG:
    case N_JOURNAL_KINDS:
        break;
    }
    return OK;
}

/* ---- access log ---- */

/* The number behind " name=" in the line, if it is below 1e12: milliseconds stay below 2^64 ns. */
static bool number(struct str line, const char *name, double *out)
{
    char key[32], digits[32];
    size_t n_key = (size_t)snprintf(key, sizeof(key), " %s=", name), n = 0;
    const char *at = memmem(line.ptr, line.len, key, n_key);
    if (!at)
        return false;
    at += n_key;
    while (at + n < line.ptr + line.len && n + 1 < sizeof(digits) && strchr("0123456789.", at[n]) &&
           at[n])
        n++;
    memcpy(digits, at, n);
    digits[n] = 0;
    double value = strtod(digits, NULL);
    if (n == 0 || value >= 1e12)
        return false;
    *out = value;
    return true;
}

/* YYYY-MM-DDTHH:MM:SS.mmmZ somewhere before the message. */
static bool stamp(struct str line, uint64_t *ns)
{
    struct tm utc = {0};
    char text[25];
    int ms;
    const char *at = memchr(line.ptr, 'T', line.len < 64 ? line.len : 64);
    if (!at || at - line.ptr < 10 || line.ptr + line.len - at < 14)
        return false;
    memcpy(text, at - 10, 24);
    text[24] = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
               &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &ms) != 7)
        return false;
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    time_t s = timegm(&utc);
    *ns = (uint64_t)(s > 0 ? s : 0) * NS_PER_S + (uint64_t)(ms >= 0 ? ms : 0) * NS_PER_MS;
    return s > 0;
}

/* Rough: a prompt token costs what prefill took a token, a step of one row what a token took. */
static void guess_cost(struct reader *r, double in, double out, double ms, double queue,
                       double first)
{
    enum { LEAST_TOKENS = 16 };
    if (in >= LEAST_TOKENS && first > queue)
        r->row_ns[r->n_row++] = (first - queue) / in * (double)NS_PER_MS;
    if (out >= LEAST_TOKENS && ms > first)
        r->gap_ns[r->n_gap++] = (ms - first) / (out - 1) * (double)NS_PER_MS;
}

static void read_access(struct reader *r, struct str line)
{
    double ms, queue = 0, first = 0, in, out, most, n = 1;
    uint64_t end_ns;
    if (!memmem(line.ptr, line.len, "request id=", 11) || !stamp(line, &end_ns) ||
        !number(line, "ms", &ms) || !number(line, "tokens_in", &in) ||
        !number(line, "tokens_out", &out) || in < 1) {
        r->t->n_skipped++;
        return;
    }
    number(line, "queue_ms", &queue);
    number(line, "ttft_ms", &first);
    number(line, "n", &n);
    if (!number(line, "max_tokens", &most) || most < out / (n < 1 ? 1 : n))
        most = out / (n < 1 ? 1 : n);
    uint64_t took = (uint64_t)(ms * (double)NS_PER_MS);
    struct sim_request q = {.at_ns = end_ns > took ? end_ns - took : 0,
                            .id = r->t->n_requests,
                            .n_prompt = (uint32_t)(in < UINT32_MAX ? in : UINT32_MAX),
                            .max_tokens = (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX),
                            .n_choices = (uint32_t)(n >= 1 && n < UINT32_MAX ? n : 1)};
    uint32_t cap = r->cap_requests;
    struct sim_request *added = add_request(r, &q);
    if (!added)
        return;
    if (cap != r->cap_requests) {
        r->row_ns = mem_realloc(r->row_ns, mem_mul(r->cap_requests, sizeof(double)));
        r->gap_ns = mem_realloc(r->gap_ns, mem_mul(r->cap_requests, sizeof(double)));
    }
    known_output(r, added, (uint64_t)out);
    sim_times_add(r->t->queue, (uint64_t)(queue * (double)NS_PER_MS));
    if (first > 0)
        sim_times_add(r->t->first_token, (uint64_t)(first * (double)NS_PER_MS));
    double each = out / (n < 1 ? 1 : n);
    if (each > 1 && ms > first)
        sim_times_add(r->t->gap, (uint64_t)((ms - first) / (each - 1) * (double)NS_PER_MS));
    guess_cost(r, in, each, ms, queue, first);
}

/* ---- cost ---- */

/* Solves the first n equations; false when they do not determine the terms. */
static bool solve(const struct reader *r, int n, double x[3])
{
    double m[3][4];
    for (int i = 0; i < n; i++) {
        memcpy(m[i], r->xx[i], (size_t)n * sizeof(double));
        m[i][n] = r->xy[i];
    }
    for (int i = 0; i < n; i++) {
        if (m[i][i] <= 1e-9 * r->xx[i][i])
            return false;
        for (int k = i + 1; k < n; k++) {
            double f = m[k][i] / m[i][i];
            for (int j = i; j <= n; j++)
                m[k][j] -= f * m[i][j];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = m[i][n];
        for (int j = i + 1; j < n; j++)
            x[i] -= m[i][j] * x[j];
        x[i] /= m[i][i];
    }
    return true;
}

static double predicted(const struct sim_cost *c, const struct step *s)
{
    return c->base_ns * s->x[0] + c->row_ns * s->x[1] + c->kv_ns * s->x[2];
}

/* Weighed by the time expected, so that short steps count as much as long ones and a step that was
 * disturbed counts with all it took. */
static void sum_steps(struct reader *r)
{
    memset(r->xx, 0, sizeof(r->xx));
    memset(r->xy, 0, sizeof(r->xy));
    for (uint32_t n = 0; n < r->n_steps; n++) {
        const struct step *s = &r->step[n];
        double expected = predicted(&r->t->cost, s), scale = expected > 0 ? expected : 1;
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 3; k++)
                r->xx[i][k] += s->x[i] / scale * (s->x[k] / scale);
            r->xy[i] += s->x[i] / scale * (s->ns / scale);
        }
    }
}

/* A term below 0 says nothing: it is left out, the last ones first. */
static void fit_once(struct reader *r)
{
    sum_steps(r);
    for (int n = 3; n >= 1; n--) {
        double x[3] = {0};
        if (!solve(r, n, x) || x[0] < 0 || x[1] < 0 || x[2] < 0)
            continue;
        r->t->cost = (struct sim_cost){x[0], x[1], x[2]};
        return;
    }
}

static void fit_steps(struct reader *r)
{
    enum { ROUNDS = 4 }; /* the weights settle within two */
    for (int i = 0; i < ROUNDS; i++)
        fit_once(r);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, uint32_t n)
{
    if (n == 0)
        return 0;
    qsort(x, n, sizeof(*x), by_value);
    return x[n / 2];
}

static void find_cost(struct reader *r)
{
    r->t->n_steps = r->n_steps;
    if (r->n_steps) {
        fit_steps(r);
        return;
    }
    double row = median(r->row_ns, r->n_row), gap = median(r->gap_ns, r->n_gap);
    r->t->cost = (struct sim_cost){gap > row ? gap - row : 0, row > 0 ? row : gap, 0};
}

/* ---- all of it ---- */

static struct str next_line(struct str *text)
{
    const char *end = memchr(text->ptr, '\n', text->len);
    size_t n = end ? (size_t)(end - text->ptr) : text->len;
    struct str line = {text->ptr, n};
    text->ptr += n + (end != NULL);
    text->len -= n + (end != NULL);
    return line;
}

static bool is_journal(struct str text)
{
    struct str line = next_line(&text);
    return memmem(line.ptr, line.len, "\"kind\":\"", 8) != NULL;
}

static enum status read_lines(struct reader *r, struct str text, struct err *e)
{
    bool journal = is_journal(text);
    for (uint32_t n = 1; text.len; n++) {
        struct str line = next_line(&text);
        if (line.len == 0)
            continue;
        if (!journal) {
            read_access(r, line);
        } else if (read_record(r, line, e) != OK) {
            err_prefix(e, "line %u", n);
            return ERR_FORMAT;
        }
    }
    if (!journal)
        r->t->config.block_tokens = 0;
    return OK;
}

/* Gives every request its prints in one piece, prompt before output. */
static void sort_prints(struct reader *r)
{
    struct sim_trace *t = r->t;
    t->n_prints = r->n_prints;
    t->print = mem_alloc(mem_mul(r->n_prints, sizeof(*t->print)));
    for (uint32_t i = 0; i < r->n_chunks; i++)
        t->request[r->chunk[i].request].n_prints += r->chunk[i].n;
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        t->request[i].first_print = at;
        at += t->request[i].n_prints;
        t->request[i].n_prints = 0;
    }
    for (uint32_t i = 0; i < r->n_chunks; i++) {
        struct sim_request *q = &t->request[r->chunk[i].request];
        memcpy(t->print + q->first_print + q->n_prints, r->print + r->chunk[i].first,
               r->chunk[i].n * sizeof(*t->print));
        q->n_prints += r->chunk[i].n;
    }
}

static int by_arrival(const void *a, const void *b)
{
    const struct sim_request *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Times count from the first arrival; a request that had not ended gets the mean length. */
static void finish(struct reader *r)
{
    struct sim_trace *t = r->t;
    uint64_t mean = r->n_out ? r->out_sum / r->n_out : 0;
    qsort(t->request, t->n_requests, sizeof(*t->request), by_arrival);
    uint64_t start = t->request[0].at_ns;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        struct sim_request *q = &t->request[i];
        q->at_ns -= start;
        if (q->cancel_ns)
            q->n_output = q->max_tokens; /* it went on until the client left */
        else if (!q->ended)
            q->n_output = mean && mean < q->max_tokens ? (uint32_t)mean : q->max_tokens;
        if (q->n_output == 0 && q->max_tokens > 0)
            q->n_output = 1;
    }
    t->span_ns = t->request[t->n_requests - 1].at_ns;
}

enum status sim_trace_read(struct sim_trace *t, struct str text, struct err *e)
{
    memset(t, 0, sizeof(*t));
    t->first_token = mem_zalloc(sizeof(*t->first_token));
    t->queue = mem_zalloc(sizeof(*t->queue));
    t->gap = mem_zalloc(sizeof(*t->gap));
    struct reader r = {.t = t};
    enum status st = read_lines(&r, text, e);
    if (st == OK && t->n_requests == 0)
        st = err_set(e, ERR_FORMAT, "no request in it, %llu lines or records skipped",
                     (unsigned long long)t->n_skipped);
    if (st == OK) {
        sort_prints(&r);
        find_cost(&r);
        finish(&r);
    }
    mem_free(r.print);
    mem_free(r.chunk);
    mem_free(r.slot);
    mem_free(r.step);
    mem_free(r.row_ns);
    mem_free(r.gap_ns);
    if (st != OK)
        sim_trace_release(t);
    return st;
}

void sim_trace_release(struct sim_trace *t)
{
    mem_free(t->request);
    mem_free(t->print);
    mem_free(t->first_token);
    mem_free(t->queue);
    mem_free(t->gap);
    memset(t, 0, sizeof(*t));
}

/* ---- times ---- */

static uint32_t bucket_of(uint64_t ns)
{
    if (ns < SIM_SUB_BUCKETS)
        return (uint32_t)ns;
    int top = 63 - __builtin_clzll(ns); /* >= 6 */
    uint32_t i = (uint32_t)(top - 5) * SIM_SUB_BUCKETS + (uint32_t)((ns >> (top - 6)) & 63);
    return i < SIM_BUCKETS ? i : SIM_BUCKETS - 1;
}

/* The middle of a bucket. */
static uint64_t value_of(uint32_t i)
{
    if (i < SIM_SUB_BUCKETS)
        return i;
    uint32_t top = i / SIM_SUB_BUCKETS + 5;
    uint64_t width = 1ull << (top - 6);
    return (1ull << top) + (uint64_t)(i % SIM_SUB_BUCKETS) * width + width / 2;
}

void sim_times_add(struct sim_times *t, uint64_t ns)
{
    t->bucket[bucket_of(ns)]++;
    t->n++;
    t->max_ns = ns > t->max_ns ? ns : t->max_ns;
}

uint64_t sim_times_quantile(const struct sim_times *t, double part)
{
    uint64_t rank = (uint64_t)(part * (double)t->n), before = 0;
    if (rank >= t->n)
        rank = t->n ? t->n - 1 : 0;
    for (uint32_t i = 0; i < SIM_BUCKETS; i++) {
        before += t->bucket[i];
        if (before > rank)
            return value_of(i) < t->max_ns ? value_of(i) : t->max_ns;
    }
    return 0;
}
