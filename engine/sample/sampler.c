/* The chain from logits to a token; see sampler.h for its order and row.h for the passes. */
#include "engine/sample/sampler.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/grammar/grammar.h"
#include "engine/sample/kept.h"
#include "engine/sample/row.h"
#include "engine/sample/rules.h"

#define MIN_TEMPERATURE 1e-5f
#define BAN_BIAS -100.0f

/* At an acceptance rate of 1 in 64 or better, the probability that all attempts fail is under 1e-27; the
 * highest logit is taken then. */
enum { MAX_ATTEMPTS = 4096 };

struct sample_scratch {
    const struct row_passes *pass;
    uint32_t n_vocab;
    float *work; /* [n_vocab] logits after biases and penalties */
    float *block_max; /* [blocks] of the current row */
    float *block_p; /* [blocks] unnormalised probability of its maximum */
    double *before; /* [blocks] mass of the blocks before it */
    uint32_t *count; /* [n_vocab] all zero between calls */
    uint32_t *id; /* [n_vocab + 1] candidates, ascending */
    float *value; /* [n_vocab + 1] their logits */
    float *p; /* [n_vocab + 1] their unnormalised probabilities */
    struct gram_scratch *gram; /* owns */
};

struct sample_scratch *sample_scratch_new(uint32_t n_vocab, const struct row_passes *pass)
{
    struct sample_scratch *s = mem_zalloc(sizeof(*s));
    size_t n = (size_t)n_vocab + 1;
    s->pass = pass;
    s->n_vocab = n_vocab;
    s->work = mem_alloc(n * sizeof(float));
    s->block_max = mem_alloc(row_n_blocks(n_vocab) * sizeof(float));
    s->block_p = mem_alloc(row_n_blocks(n_vocab) * sizeof(float));
    s->before = mem_alloc(row_n_blocks(n_vocab) * sizeof(double));
    s->count = mem_zalloc(n * sizeof(uint32_t));
    s->id = mem_alloc(n * sizeof(uint32_t));
    s->value = mem_alloc(n * sizeof(float));
    s->p = mem_alloc(n * sizeof(float));
    s->gram = gram_scratch_new();
    return s;
}

void sample_scratch_free(struct sample_scratch *s)
{
    if (!s)
        return;
    mem_free(s->work);
    mem_free(s->block_max);
    mem_free(s->block_p);
    mem_free(s->before);
    mem_free(s->count);
    mem_free(s->id);
    mem_free(s->value);
    mem_free(s->p);
    gram_scratch_free(s->gram);
    mem_free(s);
}

/* The row in its current form: the raw logits, or s->work once anything has changed. */
struct row {
    const float *x;
    uint32_t n;
    float max;
    bool summed; /* total holds the sum of the softmax at temperature 1 */
    double total;
};

/* ---- log-probabilities of the raw row ---- */

static float logprob_of(const struct row *r, double log_total, uint32_t token)
{
    if (!isfinite(r->max))
        return -INFINITY;
    return (float)((double)r->x[token] - (double)r->max - log_total);
}

/* Inserts into a list that stays sorted by descending value; equal values keep their order. */
static uint32_t insert_top(struct sample_job *job, float *top, uint32_t n, uint32_t cap,
                           uint32_t id, float value)
{
    if (n == cap && !(value > top[n - 1]))
        return n;
    uint32_t at = n < cap ? n : n - 1;
    for (; at > 0 && value > top[at - 1]; at--) {
        top[at] = top[at - 1];
        job->top_token[at] = job->top_token[at - 1];
    }
    top[at] = value;
    job->top_token[at] = (int32_t)id;
    return n < cap ? n + 1 : n;
}

static void report_top(struct sample_job *job, const struct row *r, double log_total,
                       struct sample_scratch *s)
{
    float top[SAMPLE_MAX_TOP];
    uint32_t cap = (uint32_t)job->params->n_top;
    cap = cap < SAMPLE_MAX_TOP ? cap : SAMPLE_MAX_TOP;
    if (cap == 0)
        return;
    float threshold = row_floor_of_top(s->block_max, row_n_blocks(r->n), cap);
    uint32_t n_found = row_collect(r->x, r->n, s->block_max, threshold, s->id, s->value);
    for (uint32_t i = 0; i < n_found; i++)
        job->n_top = insert_top(job, top, job->n_top, cap, s->id[i], s->value[i]);
    for (uint32_t i = 0; i < job->n_top; i++)
        job->top_logprob[i] = logprob_of(r, log_total, (uint32_t)job->top_token[i]);
}

/* Fills top_*; returns the logarithm of the softmax sum relative to the maximum. */
static double report_logprobs(struct sample_job *job, struct row *r, struct sample_scratch *s)
{
    if (!isfinite(r->max))
        return 0;
    r->total = row_softmax(s->pass, r->x, r->n, s->block_max, r->max, 1);
    r->summed = true;
    double log_total = row_log(r->total);
    report_top(job, r, log_total, s);
    return log_total;
}

/* ---- biases, bans, penalties ---- */

static bool changes_row(const struct sample_job *job)
{
    const struct sampling_params *p = job->params;
    return p->n_bias || p->allowed || p->n_bad || job->n_ban || job->match ||
           p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 ||
           p->dry_multiplier > 0;
}

static void apply_bias(const struct sample_job *job, float *x, uint32_t n)
{
    const struct sampling_params *p = job->params;
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if ((uint32_t)p->bias[i].token < n)
            x[p->bias[i].token] =
                p->bias[i].bias <= BAN_BIAS ? -INFINITY : x[p->bias[i].token] + p->bias[i].bias;
    }
}

static void apply_bans(const struct sample_job *job, float *x, uint32_t n)
{
    for (uint32_t i = 0; i < job->n_ban; i++)
        if ((uint32_t)job->ban[i] < n)
            x[job->ban[i]] = -INFINITY;
}

static void apply_mask(const uint32_t *mask, float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32) {
        uint32_t bits = mask[i / 32], end = n - i < 32 ? n - i : 32;
        for (uint32_t k = 0; bits != UINT32_MAX && k < end; k++)
            x[i + k] = bits >> k & 1 ? x[i + k] : -INFINITY;
    }
}

static uint32_t first_penalised(const struct sample_job *job)
{
    uint32_t last = job->params->penalty_last_n;
    return last && last < job->n_history ? job->n_history - last : 0;
}

static void apply_repetition(const struct sample_job *job, float *x, uint32_t n, uint32_t *seen)
{
    float r = job->params->repetition_penalty;
    uint32_t first = first_penalised(job);
    for (uint32_t i = first; i < job->n_history; i++) {
        uint32_t t = (uint32_t)job->history[i];
        if (t >= n || seen[t])
            continue;
        seen[t] = 1;
        x[t] = x[t] > 0 ? x[t] / r : x[t] * r;
        if (x[t] > FLT_MAX)
            x[t] = FLT_MAX;
    }
    for (uint32_t i = first; i < job->n_history; i++)
        if ((uint32_t)job->history[i] < n)
            seen[job->history[i]] = 0;
}

static void apply_presence(const struct sample_job *job, float *x, uint32_t n, uint32_t *count)
{
    const struct sampling_params *p = job->params;
    uint32_t first = first_penalised(job);
    first = first > job->n_prompt ? first : job->n_prompt;
    for (uint32_t i = first; i < job->n_history; i++)
        if ((uint32_t)job->history[i] < n)
            count[job->history[i]]++;
    for (uint32_t i = first; i < job->n_history; i++) {
        uint32_t t = (uint32_t)job->history[i];
        if (t >= n || count[t] == 0)
            continue;
        x[t] -= p->presence_penalty + p->frequency_penalty * (float)count[t];
        count[t] = 0;
    }
}

/* Works on a copy, which r describes afterwards. False when nothing is left to choose from. */
static bool change_row(const struct sample_job *job, struct row *r, struct sample_scratch *s)
{
    const struct sampling_params *p = job->params;
    memcpy(s->work, r->x, r->n * sizeof(float));
    apply_bias(job, s->work, r->n);
    if (p->allowed)
        rules_allow(p, s->work, r->n, s->value);
    apply_bans(job, s->work, r->n);
    rules_bad_words(job, s->work, r->n);
    if (job->match)
        apply_mask(gram_mask(job->match, job->mask, s->gram), s->work, r->n);
    if (p->repetition_penalty != 1)
        apply_repetition(job, s->work, r->n, s->count);
    if (p->presence_penalty != 0 || p->frequency_penalty != 0)
        apply_presence(job, s->work, r->n, s->count);
    if (p->dry_multiplier > 0)
        rules_dry(job, s->work, r->n, s->id, s->n_vocab, s->count);
    float max;
    row_scan(s->pass, s->work, r->n, s->block_max, &max);
    if (!isfinite(max)) {
        row_scan(s->pass, r->x, r->n, s->block_max, &max);
        return false;
    }
    *r = (struct row){.x = s->work, .n = r->n, .max = max};
    return true;
}

/* ---- filters over a list of candidates ---- */

/* Keeps the values above the boundary and, of those equal to it, the first ones until target is reached. */
static uint32_t keep_over(struct sample_scratch *s, uint32_t n, float boundary, double above,
                          double target, bool by_mass)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->value[i] < boundary)
            continue;
        if (s->value[i] == boundary) {
            if (above >= target)
                continue;
            above += by_mass ? (double)s->p[i] : 1;
        }
        s->id[kept] = s->id[i];
        s->value[kept] = s->value[i];
        s->p[kept++] = s->p[i];
    }
    return kept;
}

static double mass_of(const struct sample_scratch *s, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)s->p[i];
    return sum;
}

static uint32_t filter_top_p(struct sample_scratch *s, uint32_t n, double target)
{
    double above;
    float boundary = select_boundary(s->value, s->p, n, target, &above);
    return keep_over(s, n, boundary, above, target, true);
}

static uint32_t filter_min_p(struct sample_scratch *s, uint32_t n, float min_p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->p[i] < min_p) /* the highest one has exp(0) = 1 */
            continue;
        s->id[kept] = s->id[i];
        s->p[kept++] = s->p[i];
    }
    return kept;
}

static uint32_t gather(const struct row *r, float threshold, float inv_t, struct sample_scratch *s)
{
    uint32_t n = row_collect(r->x, r->n, s->block_max, threshold, s->id, s->value);
    row_exp(s->pass, s->value, n, r->max, inv_t, s->p);
    return n;
}

static uint32_t gather_top_k(const struct row *r, uint32_t k, float inv_t, struct sample_scratch *s)
{
    double above;
    float threshold = row_floor_of_top(s->block_max, row_n_blocks(r->n), k);
    uint32_t n = gather(r, threshold, inv_t, s);
    if (n <= k)
        return n;
    float boundary = select_boundary(s->value, NULL, n, k, &above);
    return keep_over(s, n, boundary, above, k, false);
}

/* Candidates that hold at least target of the whole row's mass: those within some distance of the
 * maximum, and farther ones when these are not enough. */
static uint32_t gather_mass(const struct row *r, double target, float inv_t,
                            struct sample_scratch *s)
{
    static const float nats[] = {4, 10, 20};
    for (size_t i = 0; i < sizeof(nats) / sizeof(nats[0]); i++) {
        uint32_t n = gather(r, r->max - nats[i] / inv_t, inv_t, s);
        if (mass_of(s, n) >= target)
            return n;
    }
    return gather(r, -INFINITY, inv_t, s);
}

static double row_total(struct row *r, float inv_t, struct sample_scratch *s)
{
    if (r->summed && inv_t == 1)
        return r->total;
    return row_softmax(s->pass, r->x, r->n, s->block_max, r->max, inv_t);
}

/* ---- filters that look at all candidates ---- */

/* The lowest logit that top_n_sigma keeps. */
static float sigma_floor(const struct row *r, float n_sigma)
{
    double n = 0, sum = 0, squares = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->x[i] == -INFINITY)
            continue;
        n++;
        sum += (double)r->x[i];
    }
    for (uint32_t i = 0; i < r->n; i++) {
        double d = (double)r->x[i] - sum / n;
        squares += r->x[i] == -INFINITY ? 0 : d * d;
    }
    return (float)((double)r->max - (double)n_sigma * sqrt(squares / n));
}

static uint32_t keep_at_least(struct sample_scratch *s, uint32_t n, float floor)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->value[i] < floor)
            continue;
        s->id[kept] = s->id[i];
        s->value[kept] = s->value[i];
        s->p[kept++] = s->p[i];
    }
    return kept;
}

/* Candidates by how near -log p is to the entropy: the nearest has the highest value. */
static uint32_t filter_typical(const struct row *r, struct sample_scratch *s, uint32_t n,
                               float typical_p)
{
    double total = mass_of(s, n), entropy = 0, above;
    double log_total = row_log(total);
    for (uint32_t i = 0; i < n; i++)
        if (s->p[i] > 0)
            entropy += (double)s->p[i] / total * (log_total - row_log((double)s->p[i]));
    for (uint32_t i = 0; i < n; i++)
        s->value[i] =
            s->p[i] > 0 ? -(float)fabs(log_total - row_log((double)s->p[i]) - entropy) : -FLT_MAX;
    float boundary = select_boundary(s->value, s->p, n, (double)typical_p * total, &above);
    n = keep_over(s, n, boundary, above, (double)typical_p * total, true);
    for (uint32_t i = 0; i < n; i++)
        s->value[i] = r->x[s->id[i]];
    return n;
}

static float highest_p(const struct sample_scratch *s, uint32_t n)
{
    float max = 0;
    for (uint32_t i = 0; i < n; i++)
        max = s->p[i] > max ? s->p[i] : max;
    return max;
}

static uint32_t filter_xtc(struct sample_scratch *s, uint32_t n, float threshold)
{
    float floor = (float)((double)threshold * mass_of(s, n)), least = INFINITY;
    uint32_t kept = 0, stays = 0, n_top = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->p[i] < floor)
            continue;
        n_top++;
        if (s->p[i] <= least) {
            least = s->p[i];
            stays = i;
        }
    }
    if (n_top < 2)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        if (s->p[i] >= floor && i != stays)
            continue;
        s->id[kept] = s->id[i];
        s->p[kept++] = s->p[i];
    }
    return kept;
}

/* ---- the draw ---- */

/* The high half of the first counter numbers the attempts. */
static void random_words(const struct sample_job *job, uint32_t attempt, uint32_t word[4])
{
    philox4x32(job->params->seed, (uint64_t)attempt << 32 | job->choice,
               job->n_history - job->n_prompt, word);
}

/* An attempt that no draw reaches. */
static bool xtc_happens(const struct sample_job *job)
{
    enum { XTC_ATTEMPT = 1 << 30 };
    uint32_t word[4];
    if (!(job->params->xtc_probability > 0))
        return false;
    random_words(job, XTC_ATTEMPT, word);
    return row_uniform(word) < (double)job->params->xtc_probability;
}

static bool is_typical(const struct sampling_params *p)
{
    return p->typical_p > 0 && p->typical_p < 1;
}

static bool limits_k(const struct sampling_params *p, uint32_t n)
{
    return p->top_k > 0 && (uint32_t)p->top_k < n;
}

/* The whole chain over a list of all candidates. */
static uint32_t filter_all(const struct sample_job *job, const struct row *r, float inv_t,
                           struct sample_scratch *s)
{
    const struct sampling_params *p = job->params;
    float floor = p->top_n_sigma > 0 ? sigma_floor(r, p->top_n_sigma) : -INFINITY;
    uint32_t n = limits_k(p, r->n) ? gather_top_k(r, (uint32_t)p->top_k, inv_t, s)
                                   : gather(r, floor, inv_t, s);
    n = keep_at_least(s, n, floor);
    if (is_typical(p))
        n = filter_typical(r, s, n, p->typical_p);
    if (p->top_p < 1)
        n = filter_top_p(s, n, (double)p->top_p * mass_of(s, n));
    if (p->min_p > 0)
        n = filter_min_p(s, n, p->min_p * highest_p(s, n));
    return xtc_happens(job) ? filter_xtc(s, n, p->xtc_threshold) : n;
}

static bool looks_at_all(const struct sampling_params *p)
{
    return p->top_n_sigma > 0 || is_typical(p) || p->xtc_probability > 0;
}

static uint32_t filter_row(const struct sample_job *job, struct row *r, float inv_t,
                           struct sample_scratch *s)
{
    const struct sampling_params *p = job->params;
    uint32_t n;
    if (looks_at_all(p))
        return filter_all(job, r, inv_t, s);
    if (limits_k(p, r->n)) {
        n = gather_top_k(r, (uint32_t)p->top_k, inv_t, s);
        if (p->top_p < 1)
            n = filter_top_p(s, n, (double)p->top_p * mass_of(s, n));
    } else if (p->top_p < 1) {
        double target = (double)p->top_p * row_total(r, inv_t, s);
        n = filter_top_p(s, gather_mass(r, target, inv_t, s), target);
    } else {
        /* A little below the exact bound: filter_min_p decides. */
        n = gather(r, r->max + ((float)row_log((double)p->min_p) - 0.01f) / inv_t, inv_t, s);
    }
    return p->min_p > 0 ? filter_min_p(s, n, p->min_p) : n;
}

static uint32_t draw_row(const struct sample_job *job, const struct row *r, float inv_t,
                         struct sample_scratch *s)
{
    uint32_t word[4];
    double total =
        row_envelope(s->pass, r->x, r->n, s->block_max, r->max, inv_t, s->block_p, s->before);
    for (uint32_t attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        random_words(job, attempt, word);
        uint32_t token = row_try(s->pass, r->x, r->n, s->block_max, r->max, inv_t, s->block_p,
                                 s->before, total, word);
        if (token < r->n)
            return token;
    }
    return row_find(r->x, r->n, s->block_max, r->max);
}

static uint32_t draw_candidate(const struct sample_job *job, const struct sample_scratch *s,
                               uint32_t n)
{
    uint32_t word[4];
    random_words(job, 0, word);
    double target = row_uniform(word) * mass_of(s, n), sum = 0;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(s->p[i] > 0))
            continue;
        chosen = i;
        sum += (double)s->p[i];
        if (sum > target)
            break;
    }
    return s->id[chosen];
}

static bool filters(const struct sampling_params *p, uint32_t n)
{
    return limits_k(p, n) || p->top_p < 1 || p->min_p > 0 || looks_at_all(p);
}

static uint32_t draw(const struct sample_job *job, struct row *r, struct sample_scratch *s)
{
    const struct sampling_params *p = job->params;
    if (p->temperature < MIN_TEMPERATURE)
        return row_find(r->x, r->n, s->block_max, r->max);
    float inv_t = 1 / p->temperature;
    if (filters(p, r->n))
        return draw_candidate(job, s, filter_row(job, r, inv_t, s));
    return draw_row(job, r, inv_t, s);
}

static int32_t choose_token(const struct sample_job *job, struct row r, struct sample_scratch *s)
{
    if (!isfinite(r.max))
        return SAMPLE_BAD_LOGITS;
    if (changes_row(job) && !change_row(job, &r, s))
        return SAMPLE_ALL_BANNED;
    return (int32_t)draw(job, &r, s);
}

uint32_t sample_kept(const struct sample_job *job, const float *logits, uint32_t n_vocab,
                     struct sample_scratch *s, const uint32_t **id, const float **p)
{
    const struct sampling_params *params = job->params;
    struct row r = {.x = logits, .n = n_vocab};
    CHECK(params->temperature >= MIN_TEMPERATURE);
    *id = s->id;
    *p = s->p;
    if (!row_scan(s->pass, logits, n_vocab, s->block_max, &r.max) || !isfinite(r.max))
        return 0;
    if (changes_row(job) && !change_row(job, &r, s))
        return 0;
    float inv_t = 1 / params->temperature;
    return filters(params, n_vocab) ? filter_row(job, &r, inv_t, s)
                                    : gather(&r, -INFINITY, inv_t, s);
}

void sample_run(struct sample_job *job, const float *logits, uint32_t n_vocab,
                struct sample_scratch *scratch)
{
    CHECKF(n_vocab >= 1 && n_vocab <= scratch->n_vocab, "row of %u, scratch for %u", n_vocab,
           scratch->n_vocab);
    struct row r = {.x = logits, .n = n_vocab};
    double log_total = 0;
    bool report = job->params->n_top >= 0;
    job->token = SAMPLE_BAD_LOGITS;
    job->logprob = 0;
    job->n_top = 0;
    if (!row_scan(scratch->pass, logits, n_vocab, scratch->block_max, &r.max))
        return;
    if (report)
        log_total = report_logprobs(job, &r, scratch);
    job->token = job->given >= 0 ? job->given : choose_token(job, r, scratch);
    if (report && (uint32_t)job->token < n_vocab)
        job->logprob = logprob_of(&r, log_total, (uint32_t)job->token);
}
