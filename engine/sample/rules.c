/* Rules that name tokens or follow the history; see rules.h, and sampler.h for their place in the order. */
#include "engine/sample/rules.h"

#include <math.h>
#include <stddef.h>

/* A penalty beyond this bans in effect, and stays a number. */
#define DRY_MOST 1e30

void rules_allow(const struct sampling_params *p, float *x, uint32_t n, float *room)
{
    for (uint32_t i = 0; i < p->n_allowed; i++)
        if ((uint32_t)p->allowed[i] < n)
            room[i] = x[p->allowed[i]];
    for (uint32_t i = 0; i < n; i++)
        x[i] = -INFINITY;
    for (uint32_t i = 0; i < p->n_allowed; i++)
        if ((uint32_t)p->allowed[i] < n)
            x[p->allowed[i]] = room[i];
}

static bool output_ends_with(const struct sample_job *job, const int32_t *token, uint32_t n)
{
    if (job->n_history - job->n_prompt < n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (job->history[job->n_history - n + i] != token[i])
            return false;
    return true;
}

void rules_bad_words(const struct sample_job *job, float *x, uint32_t n)
{
    const struct sampling_params *p = job->params;
    for (uint32_t i = 0; i < p->n_bad; i += 1 + (uint32_t)p->bad[i]) {
        const int32_t *word = p->bad + i + 1;
        uint32_t n_before = (uint32_t)p->bad[i] - 1;
        if ((uint32_t)word[n_before] < n && output_ends_with(job, word, n_before))
            x[word[n_before]] = -INFINITY;
    }
}

/* ---- DRY ---- */

/* The history from its end, as far as the penalty sees: token i before the last one. */
struct tail {
    const int32_t *last;
    uint32_t n;
};

static int32_t tail_token(const struct tail *t, uint32_t i)
{
    return t->last[-(ptrdiff_t)i];
}

static bool breaks(const struct sampling_params *p, int32_t token, uint32_t n)
{
    return (uint32_t)token < n && p->dry_breakers[token / 32] >> (token % 32) & 1;
}

/* match[k]: for how many tokens the tail from k on equals the tail itself (the Z function: each token is compared
 * once, except where a comparison ends). */
static void match_tail(const struct tail *t, uint32_t *match)
{
    uint32_t from = 0, end = 0; /* the match that reaches farthest covers [from, end) */
    for (uint32_t k = 1; k < t->n; k++) {
        uint32_t m = 0;
        if (k < end)
            m = match[k - from] < end - k ? match[k - from] : end - k;
        while (k + m < t->n && tail_token(t, m) == tail_token(t, k + m))
            m++;
        match[k] = m;
        if (k + m > end) {
            from = k;
            end = k + m;
        }
    }
}

/* multiplier * base^n by squaring: the same bits on every machine, unlike pow. */
static float dry_penalty(const struct sampling_params *p, uint32_t n)
{
    double result = (double)p->dry_multiplier, square = (double)p->dry_base;
    for (; n; n >>= 1) {
        if (n & 1)
            result *= square;
        if (result > DRY_MOST)
            return (float)DRY_MOST;
        square = square < DRY_MOST ? square * square : square;
    }
    return (float)result;
}

static struct tail tail_of(const struct sample_job *job, uint32_t cap)
{
    uint32_t n = job->n_history, last = job->params->dry_last_n;
    n = last && last < n ? last : n;
    return (struct tail){job->history + job->n_history - 1, n < cap ? n : cap};
}

void rules_dry(const struct sample_job *job, float *x, uint32_t n, uint32_t *match, uint32_t cap,
               uint32_t *longest)
{
    const struct sampling_params *p = job->params;
    struct tail t = tail_of(job, cap);
    uint32_t reach = 0; /* tokens behind the last breaker: no match goes past it */
    while (reach < t.n && !breaks(p, tail_token(&t, reach), n))
        reach++;
    if (reach < p->dry_allowed_length || reach == 0)
        return;
    match_tail(&t, match);
    for (uint32_t k = 1; k < t.n; k++) {
        uint32_t token = (uint32_t)tail_token(&t, k - 1);
        uint32_t m = match[k] < reach ? match[k] : reach;
        if (token < n && m > longest[token])
            longest[token] = m;
    }
    for (uint32_t k = 1; k < t.n; k++) {
        uint32_t token = (uint32_t)tail_token(&t, k - 1);
        if (token >= n || longest[token] == 0)
            continue;
        if (longest[token] >= p->dry_allowed_length)
            x[token] -= dry_penalty(p, longest[token] - p->dry_allowed_length);
        longest[token] = 0;
    }
}
