/* One step's plan: which rows of which sequences run. Thread: engine.
 *
 * Every sequence that decodes has one row in every step (unless its consumer's ring is full). What the
 * token budget leaves goes to prefill: of the tenant that was served least so far the oldest request
 * first, a prompt to its end before the next one's begin, so that requests that come together get their
 * first tokens one after the other. The oldest prompt of all waits SCHED_STILL_STEPS steps at most,
 * whatever its tenant was served. A sequence that computes again after a preemption counts as prefill.
 * The budget is max_batch_tokens, less where the cost model says that the step would pass its target; a request
 * that is alone has no target. At least SCHED_MIN_CHUNK prefill rows always go in.
 *
 * Pure: a function of the scheduler's state; no clock, no allocation. */
#include "scheduler/plan.h"

#include <string.h>

#include "base/check.h"

/* What is left of the step's bounds. */
struct budget {
    uint32_t n_rows;
    uint32_t n_outs;
    double ns; /* of the step target, by the cost model */
    bool unlimited; /* no target */
    bool prefills; /* a prefill row has gone in */
};

/* May this sequence's consumer take `n_bytes` more in this step, the end's records kept free? */
static bool ring_takes(struct step *t, struct req *q, uint32_t n_bytes)
{
    if (q->ring_step != t->batch.step) {
        q->ring_step = t->batch.step;
        q->ring_planned = 0;
    }
    if (q->ring_planned + n_bytes + q->end_bytes > byte_ring_room(&q->r->ring))
        return false;
    q->ring_planned += n_bytes;
    return true;
}

static void add_out(struct sched *s, struct step *t, struct seq *q, uint32_t row,
                    uint32_t n_history, int32_t given)
{
    const struct request *r = q->req->r;
    struct batch *b = &t->batch;
    CHECK(b->n_outs < s->max_outs);
    struct batch_out *o = &b->out[b->n_outs];
    t->out_seq[b->n_outs++] = q;
    o->row = row;
    o->logits = NULL;
    o->job.params = &r->sampling;
    o->job.history = q->past ? q->past : q->tokens;
    o->job.n_prompt = r->n_prompt;
    o->job.n_history = n_history + q->n_dropped;
    o->job.choice = q->choice;
    bool bans = given < 0 && q->n_out < r->min_tokens;
    o->job.ban = bans ? q->req->ban : NULL;
    o->job.n_ban = bans ? q->req->n_ban : 0;
    o->job.match = given < 0 ? q->match : NULL;
    o->job.mask = q->mask;
    o->job.given = given;
}

/* The prompt's rows of this sequence are reported, each once: q->req->n_scored of them are. */
static bool scores(const struct seq *q)
{
    return q->req->r->prompt_logprobs && q->choice == 0 && !q->forked && q->n_out == 0;
}

/* Puts n_rows rows of q into the step and gives them their slots. False: no frame for them. */
static bool add_span(struct sched *s, struct step *t, struct seq *q, uint32_t n_rows)
{
    struct batch *b = &t->batch;
    const struct request *r = q->req->r;
    DCHECK(n_rows >= 1 && q->n_kv + n_rows <= q->n_tok && b->n_rows + n_rows <= b->cap_rows);
    if (!kv_seq_grow(s->kv, &q->kv, n_rows, t->copy, &t->n_copies))
        return false;
    struct batch_span *span = &b->span[b->n_spans];
    *span = (struct batch_span){.row0 = b->n_rows,
                                .n_rows = n_rows,
                                .pos0 = q->n_kv,
                                .n_staged = q->n_staged,
                                .finite = true};
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        span->table[g] = q->kv.t[g].phys;
    t->span_seq[b->n_spans++] = q;
    memcpy(b->token + b->n_rows, q->tokens + q->n_kv, n_rows * sizeof(int32_t));
    for (uint32_t i = 0; scores(q) && i < n_rows && q->n_kv + i + 1 < r->n_prompt; i++) {
        uint32_t at = q->n_kv + i + 1;
        if (at > q->req->n_scored)
            add_out(s, t, q, b->n_rows + i, at, q->tokens[at]);
    }
    if (q->n_kv + n_rows == q->n_tok && seq_samples(q))
        add_out(s, t, q, b->n_rows + n_rows - 1, q->n_tok, -1);
    t->kv_read += cost_kv_read(q->n_kv, n_rows);
    b->n_rows += n_rows;
    q->n_fly = n_rows;
    return true;
}

/* Who has rows in this step at all. */
static bool takes_part(const struct seq *q)
{
    return q->granted > 0 && kv_seq_resident(&q->kv);
}

static void plan_decodes(struct sched *s, struct step *t, struct budget *left)
{
    for (uint32_t i = 0; i < s->running.n; i++) {
        struct seq *q = s->running.seq[i];
        if (i + 2 < s->running.n) {
            __builtin_prefetch(s->running.seq[i + 2]->kv.t[0].phys);
            __builtin_prefetch((const char *)&s->running.seq[i + 2]->req->r->ring.tail);
        }
        if (!seq_decodes(q))
            continue;
        t->n_decodes++;
        if (!takes_part(q))
            continue; /* and leaves the ring to the other choices of its request */
        q->paused = !ring_takes(t, q->req, q->req->token_bytes);
        t->n_paused += q->paused;
        if (q->paused || !add_span(s, t, q, 1))
            continue;
        t->n_prompt_rows += q->n_out == 0;
        t->n_prompt_new += q->n_out == 0 && q->choice == 0; /* a fork's last prompt token */
        left->n_rows--;
        left->n_outs--;
    }
    left->ns -= cost_step_ns(&s->cost, t->batch.n_rows, t->kv_read);
}

/* Rows that the consumer's ring and the outputs allow for a prompt whose every row is reported. */
static uint32_t scored_rows(struct step *t, struct seq *q, uint32_t n_rows, uint32_t n_outs)
{
    const struct req *req = q->req;
    uint32_t n_known = req->n_scored > q->n_kv ? req->n_scored - q->n_kv : 0; /* computed again */
    if (n_rows <= n_known)
        return n_rows;
    n_rows -= n_known;
    uint32_t room = byte_ring_room(&req->r->ring), kept = req->end_bytes + req->token_bytes;
    uint32_t most = room > kept ? (room - kept) / req->prompt_bytes : 0;
    if (n_outs < most)
        most = n_outs;
    n_rows = n_rows < most ? n_rows : most;
    if (n_rows == 0 || !ring_takes(t, q->req, n_rows * req->prompt_bytes))
        return n_known;
    return n_known + n_rows;
}

static uint32_t chunk_rows(struct sched *s, struct step *t, struct seq *q,
                           const struct budget *left)
{
    uint32_t n = q->n_tok - q->n_kv;
    uint32_t most = left->n_rows < s->limits.chunk_max ? left->n_rows : s->limits.chunk_max;
    if (!left->unlimited) {
        uint32_t fits = cost_rows(&s->cost, left->ns, q->n_kv);
        if (!left->prefills && fits < SCHED_MIN_CHUNK)
            fits = SCHED_MIN_CHUNK;
        most = most < fits ? most : fits;
    }
    most = most < q->granted ? most : q->granted;
    n = n < most ? n : most;
    bool granted = n > 0;
    if (n > 0 && scores(q))
        n = scored_rows(t, q, n, left->n_outs);
    /* The last row samples: it needs an output and room for its event, else it waits. */
    if (n > 0 && q->n_kv + n == q->n_tok && seq_samples(q) &&
        (left->n_outs < 1 || !ring_takes(t, q->req, q->req->token_bytes)))
        n--;
    q->paused = granted && n == 0;
    t->n_paused += q->paused;
    return n;
}

/* What of these rows is new. */
static void count_rows(struct step *t, const struct seq *q, uint32_t n)
{
    uint32_t end = q->n_kv + n, again = q->n_high > q->n_kv ? q->n_high - q->n_kv : 0;
    uint32_t first = q->n_kv + again, n_prompt = q->req->r->n_prompt;
    t->n_prompt_rows += n;
    t->n_again += again < n ? again : n;
    end = end < n_prompt ? end : n_prompt;
    if (end > first && q->choice == 0)
        t->n_prompt_new += end - first;
}

/* Its next rows, if any. */
static void plan_prefill(struct sched *s, struct step *t, struct seq *q, struct budget *left)
{
    uint32_t n = chunk_rows(s, t, q, left);
    uint32_t outs_before = t->batch.n_outs;
    if (n == 0 || !add_span(s, t, q, n))
        return;
    left->ns -= s->cost.row_ns * n + s->cost.kv_ns * (double)cost_kv_read(q->n_kv, n);
    left->n_rows -= n;
    count_rows(t, q, n);
    left->n_outs -= t->batch.n_outs - outs_before;
    left->prefills = true;
}

/* It has rows to compute, and its turn in this step is yet to come. */
static bool may_prefill(const struct step *t, const struct seq *q)
{
    return q->pass != t->batch.step && !seq_decodes(q) && q->n_fly == 0 && takes_part(q);
}

/* The oldest prompt, if others' have kept it from its rows for too long. */
static struct seq *overdue_prefill(const struct sched *s, const struct step *t)
{
    uint32_t i = 0;
    while (i < s->running.n && !may_prefill(t, s->running.seq[i]))
        i++;
    if (i == s->running.n || PLANTED(s, SCHED_FAULT_SERVED))
        return NULL;
    struct seq *q = s->running.seq[i];
    uint64_t since = q->step > q->since_step ? q->step : q->since_step;
    return t->batch.step - since > SCHED_STILL_STEPS ? q : NULL;
}

/* The sequence whose prompt is next: of the tenant that was served least, the oldest. */
static struct seq *next_prefill(const struct sched *s, const struct step *t)
{
    struct seq *best = NULL;
    uint64_t least = 0;
    for (uint32_t i = 0; i < s->running.n; i++) {
        struct seq *q = s->running.seq[i];
        if (!may_prefill(t, q))
            continue;
        uint64_t served = tenant_counter(s->tenants, q->req->r->tenant);
        if (!best || served < least) {
            best = q;
            least = served;
        }
    }
    return best;
}

static void plan_prefills(struct sched *s, struct step *t, struct budget *left)
{
    if (t->n_decodes == s->running.n)
        return;
    for (struct seq *q = overdue_prefill(s, t); left->n_rows > 0; q = NULL) {
        if (!q)
            q = next_prefill(s, t);
        if (!q)
            return;
        q->pass = t->batch.step;
        plan_prefill(s, t, q, left);
    }
}

void plan_step(struct sched *s, struct step *t)
{
    batch_clear(&t->batch);
    t->batch.step = ++s->n_planned;
    t->n_copies = 0;
    t->n_paused = t->n_decodes = 0;
    t->kv_read = 0;
    t->n_prompt_rows = t->n_prompt_new = t->n_again = 0;
    struct budget left = {.n_rows = s->limits.max_batch_tokens,
                          .n_outs = s->max_outs,
                          .ns = cost_budget_ns(&s->cost),
                          .unlimited = s->running.n == 1 && s->parked.n == 0 &&
                                       tenants_n_queued(s->tenants) == 0};
    plan_decodes(s, t, &left);
    plan_prefills(s, t, &left);
}
