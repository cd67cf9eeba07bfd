/* Applies a step's results: commits KV, turns sampled tokens into events, ends what is done.
 *
 * Text goes detokenizer -> stop strings -> event; what may still become a stop string or half a code
 * point is held back there. The clock isn't read here: s->now_ns is the end of the step.
 * Thread: engine. */
#include "scheduler/retire.h"

#include <string.h>

#include "base/check.h"
#include "scheduler/copies.h"
#include "scheduler/disk.h"
#include "scheduler/emit.h"
#include "scheduler/gauges.h"
#include "scheduler/park.h"
#include "scheduler/room.h"
#include "scheduler/running.h"

static bool ends_choice(const struct sched *s, const struct request *r, int32_t token)
{
    bool ends =
        !r->ignore_eos || r->grammar; /* a grammar says when there is nothing more to come */
    if (ends && s->tok && tokenizer_is_stop(s->tok, token))
        return true;
    for (uint32_t i = 0; i < r->n_stop_tokens; i++) {
        if (r->stop_tokens[i] == token)
            return true;
    }
    return false;
}

struct cut {
    const char *text;
    uint32_t n_text;
    int stop_index; /* -1: none matched */
};

/* Text that the token releases. hidden: a stop token whose own text isn't shown. last: nothing more
 * will come unless a stop string is found, so nothing is held back. */
static struct cut text_of(struct sched *s, struct seq *q, int32_t token, bool hidden, bool last)
{
    const struct request *r = q->req->r;
    struct cut cut = {.text = s->text, .stop_index = -1};
    if (!s->tok)
        return cut;
    if (!hidden)
        cut.n_text = detok_push(&q->detok, token, s->text, s->text_cap);
    if (last)
        cut.n_text += detok_flush(&q->detok, s->text + cut.n_text, s->text_cap - cut.n_text);
    if (r->stops.n == 0 || q->n_out <= r->min_tokens)
        return cut;
    uint32_t n_safe = 0, n_held = 0;
    cut.stop_index = stop_scan_push(&q->scan, (struct str){s->text, cut.n_text}, r->include_stop,
                                    s->text_scanned, &n_safe);
    if (cut.stop_index < 0 && last)
        cut.stop_index = stop_scan_flush(&q->scan, s->text_scanned + n_safe, &n_held);
    cut.text = s->text_scanned;
    cut.n_text = n_safe + n_held;
    return cut;
}

static void explain_mask(struct sched *s, const struct seq *q, struct err *e)
{
    switch (gram_mask_limit(q->match, q->mask, s->gram)) {
    case GRAM_NO_LIMIT:
        err_set(e, ERR_INVALID,
                "every token that the grammar allows is banned at position %u of choice %u "
                "(logit_bias, min_tokens)",
                q->n_kv, q->choice);
        break;
    case GRAM_LIMIT_STEPS:
        err_set(e, ERR_INVALID,
                "the grammar is too ambiguous at position %u of choice %u: to find the tokens that "
                "it allows takes over %d steps",
                q->n_kv, q->choice, GRAM_MAX_STEPS);
        break;
    case GRAM_LIMIT_PLACES:
        err_set(e, ERR_INVALID,
                "the grammar is too ambiguous at position %u of choice %u: behind every token that "
                "it allows, the text is at over %d places of it at once",
                q->n_kv, q->choice, GRAM_MAX_PLACES);
        break;
    case GRAM_LIMIT_TOKENS:
        err_set(e, ERR_INVALID,
                "no token of the vocabulary is allowed by the grammar at position %u of choice %u",
                q->n_kv, q->choice);
        break;
    }
}

static void refuse_row(struct sched *s, struct seq *q, const struct sample_job *job)
{
    struct err e;
    if (job->token == SAMPLE_ALL_BANNED && q->match)
        explain_mask(s, q, &e);
    else if (job->token == SAMPLE_ALL_BANNED)
        err_set(&e, ERR_INVALID,
                "every token is banned at position %u of choice %u (logit_bias, min_tokens)",
                q->n_kv, q->choice);
    else
        err_set(&e, ERR_NUMERIC, "logits at position %u of choice %u are not finite", q->n_kv,
                q->choice);
    req_end(s, q->req, &e);
}

static void refuse_kv(struct sched *s, struct seq *q, const struct batch_span *span)
{
    struct err e;
    err_set(&e, ERR_NUMERIC, "keys or values at positions %u to %u of choice %u are not finite",
            span->pos0, span->pos0 + span->n_rows - 1, q->choice);
    req_end(s, q->req, &e);
}

/* Goes on in the grammar; *over: the output is whole, and nothing can follow. False: the token does not
 * match, which the mask rules out, and the request has ended. */
static bool follow_grammar(struct sched *s, struct seq *q, int32_t token, bool *over)
{
    struct err e;
    if (gram_match_token(q->match, token, s->gram)) {
        *over = gram_match_over(q->match);
        return true;
    }
    err_set(&e, ERR_INTERNAL, "token %d of choice %u does not match the grammar", token, q->choice);
    req_end(s, q->req, &e);
    return false;
}

/* Tokens and times of what was just sampled, for its request and the step. */
static void count_token(struct sched *s, struct step *t, struct seq *q)
{
    struct req *req = q->req;
    struct request_progress *progress = &req->r->progress;
    t->n_tokens++;
    q->n_out++;
    req->n_output++;
    atomic_store_explicit(&progress->n_output, req->n_output, memory_order_relaxed);
    tenant_charge(s->tenants, req->r->tenant, 0, 0, 1);
    gauges_token(s, t, q);
    if (!req->first_token_ns) {
        req->first_token_ns = s->now_ns;
        atomic_store_explicit(&progress->first_token_ns, s->now_ns, memory_order_relaxed);
    }
    q->last_token_ns = s->now_ns;
}

static void retire_token(struct sched *s, struct step *t, struct seq *q,
                         const struct sample_job *job)
{
    const struct request *r = q->req->r;
    q->tokens[q->n_tok++] = job->token;
    if (q->past)
        q->past[r->n_prompt + q->n_out] = job->token;
    count_token(s, t, q);
    bool stops = q->n_out > r->min_tokens && ends_choice(s, r, job->token), over = false;
    if (q->match && !stops && !follow_grammar(s, q, job->token, &over))
        return;
    bool last = stops || over || q->n_out == r->max_tokens;
    struct cut cut = text_of(s, q, job->token, stops && !r->include_stop, last);
    enum finish_reason reason = stops || over || cut.stop_index >= 0 ? FINISH_STOP
                                : last                               ? FINISH_LENGTH
                                                                     : FINISH_NONE;
    emit_token(s, q, job, cut.text, cut.n_text, stops ? FINISH_STOP : FINISH_NONE);
    if (reason != FINISH_NONE)
        running_finish(s, q, reason, cut.stop_index, stops ? job->token : -1);
    else if (q->past && q->n_tok == r->overflow_context)
        park_overflow(s, q);
}

/* Rows of the first choice that are computed for the first time and belong to the prompt. */
static uint32_t prompt_rows(const struct seq *q, const struct batch_span *span)
{
    uint32_t n_prompt = q->req->r->n_prompt, end = span->pos0 + span->n_rows;
    uint32_t first = span->pos0 > q->n_high ? span->pos0 : q->n_high;
    end = end < n_prompt ? end : n_prompt;
    return q->choice == 0 && end > first ? end - first : 0;
}

/* What the step computed is KV now, unless a staged block could not be read. */
static void commit_span(struct sched *s, struct seq *q, const struct batch_span *span)
{
    if (span->lost) {
        kv_seq_undo(s->kv, &q->kv);
        q->kv.lost = s->copies.has_lost = true;
        q->n_fly = 0;
        return;
    }
    q->n_kv += q->n_fly;
    q->n_fly = 0;
    kv_seq_retire(s->kv, &q->kv, q->tokens, span->finite && !q->nan);
    uint32_t n_prompt = prompt_rows(q, span);
    if (n_prompt > 0)
        tenant_charge(s->tenants, q->req->r->tenant, n_prompt, 0, 0);
    q->n_high = q->n_kv > q->n_high ? q->n_kv : q->n_high;
}

static void report_prompt(const struct seq *q)
{
    struct request *r = q->req->r;
    uint32_t n = q->n_high < r->n_prompt ? q->n_high : r->n_prompt;
    atomic_store_explicit(&r->progress.n_computed, n, memory_order_relaxed);
    atomic_store_explicit(&r->progress.first_scheduled_ns, q->req->first_scheduled_ns,
                          memory_order_relaxed);
}

static void commit_spans(struct sched *s, struct step *t)
{
    for (uint32_t i = 0; i < t->batch.n_outs; i++)
        t->out_seq[i]->nan |= t->batch.out[i].job.token == SAMPLE_BAD_LOGITS;
    for (uint32_t i = 0; i < t->batch.n_spans; i++) {
        struct seq *q = t->span_seq[i];
        commit_span(s, q, &t->batch.span[i]);
        q->step = t->batch.step;
        q->used_ns = s->now_ns;
        if (!q->req->first_scheduled_ns)
            q->req->first_scheduled_ns = t->begin_ns;
        if (q->choice == 0 && t->batch.span[i].pos0 < q->req->r->n_prompt)
            report_prompt(q); /* of rows behind the prompt it would say the same again */
        stopwatch_step(&q->req->watch, t->batch.step, t->begin_ns, s->now_ns,
                       q->req->first_token_ns != 0);
    }
    for (uint32_t i = 0; i < t->batch.n_spans; i++) {
        struct seq *q = t->span_seq[i];
        if (!t->batch.span[i].finite && q->state == SEQ_LIVE && !q->kv.lost)
            refuse_kv(s, q, &t->batch.span[i]);
    }
    if (t->n_prompt_rows > 0)
        s->epoch++; /* a request may be waiting for these blocks */
}

/* A prompt that is wholly computed and samples nothing itself: it forks, or was only to be scored. */
static void end_prompt(struct sched *s, struct seq *q)
{
    struct req *req = q->req;
    if (req->r->max_tokens == 0) {
        if (req->r->fill)
            disk_save(s, req, q->n_kv);
        for (uint32_t i = 0; i < req->r->n_choices; i++)
            running_finish(s, &req->seq[i], FINISH_LENGTH, -1, -1);
        return;
    }
    req_fork(req, s->kv);
    if (req->reserves)
        room_split_claim(s, req);
    for (uint32_t i = 1; i < req->r->n_choices; i++) {
        staged_count(s, &req->seq[i]);
        running_insert(s, &req->seq[i]);
    }
}

void retire_step(struct sched *s, struct step *t)
{
    commit_spans(s, t);
    for (uint32_t i = 0; i < t->batch.n_outs; i++) {
        struct seq *q = t->out_seq[i];
        const struct sample_job *job = &t->batch.out[i].job;
        if (q->state != SEQ_LIVE || q->kv.lost)
            continue; /* its request ended with an earlier row of this step, or the row is void */
        if (job->token < 0)
            refuse_row(s, q, job);
        else if (job->given >= 0)
            emit_prompt(s, q->req, job);
        else
            retire_token(s, t, q, job);
    }
    for (uint32_t i = 0; i < t->batch.n_spans; i++) {
        struct seq *q = t->span_seq[i];
        if (q->state == SEQ_LIVE && q->n_kv == q->n_tok)
            end_prompt(s, q);
    }
}

void retire_failed(struct sched *s, const struct step *t, const struct err *e)
{
    for (uint32_t i = 0; i < t->batch.n_spans; i++) {
        kv_seq_undo(s->kv, &t->span_seq[i]->kv);
        t->span_seq[i]->n_fly = 0;
    }
    for (uint32_t i = 0; i < t->batch.n_spans; i++) {
        if (t->span_seq[i]->req->state == REQ_RUNNING)
            req_end(s, t->span_seq[i]->req, e);
    }
}
