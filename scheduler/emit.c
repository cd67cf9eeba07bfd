/* Events into the requests' rings, and one wake per request and step. The planner has made sure of the
 * room: a ring that overflows here is a bug. Thread: engine. */
#include "scheduler/emit.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

static void mark_dirty(struct sched *s, struct req *q)
{
    if (q->dirty)
        return;
    q->dirty = true;
    q->dirty_next = s->dirty;
    s->dirty = q;
}

/* Reserves the record and writes the header; the caller fills what follows it, then push_done. */
static struct event *push(struct sched *s, struct req *q, const struct event *ev)
{
    uint32_t n = (uint32_t)sizeof(*ev) + ((ev->n_text + 3u) & ~3u) +
                 ev->n_top * (uint32_t)sizeof(struct event_top);
    struct event *at = byte_ring_reserve(&q->r->ring, n);
    CHECKF(at, "event of %u bytes finds no room in the ring of request %s", n, q->r->name);
    *at = *ev;
    mark_dirty(s, q);
    return at;
}

static void put_text(struct event *at, const char *text)
{
    if (at->n_text)
        memcpy(at + 1, text, at->n_text);
}

static void put_tops(struct event *at, const struct sample_job *job)
{
    struct event_top *top = (struct event_top *)((char *)(at + 1) + ((at->n_text + 3u) & ~3u));
    for (uint32_t i = 0; i < at->n_top; i++)
        top[i] = (struct event_top){job->top_token[i], job->top_logprob[i]};
}

static struct event event_of(enum event_type type, uint32_t choice)
{
    return (struct event){.type = (uint8_t)type,
                          .choice = (uint16_t)choice,
                          .token = -1,
                          .logprob = NAN,
                          .stop_index = -1,
                          .stop_token = -1};
}

static void set_logprobs(struct event *ev, const struct request *r, const struct sample_job *job)
{
    if (r->sampling.n_top < 0)
        return;
    ev->logprob = job->logprob;
    ev->n_top =
        job->n_top <= (uint32_t)r->sampling.n_top ? job->n_top : (uint32_t)r->sampling.n_top;
}

void emit_token(struct sched *s, struct seq *q, const struct sample_job *job, const char *text,
                uint32_t n_text, enum finish_reason reason)
{
    struct event ev = event_of(EVENT_TOKEN, q->choice);
    ev.reason = (uint8_t)reason;
    ev.token = job->token;
    ev.n_text = n_text;
    set_logprobs(&ev, q->req->r, job);
    struct event *at = push(s, q->req, &ev);
    put_text(at, text);
    put_tops(at, job);
    byte_ring_commit(&q->req->r->ring);
}

void emit_prompt(struct sched *s, struct req *q, const struct sample_job *job)
{
    struct event ev = event_of(EVENT_PROMPT, 0);
    ev.token = job->token;
    set_logprobs(&ev, q->r, job);
    put_tops(push(s, q, &ev), job);
    byte_ring_commit(&q->r->ring);
    q->n_scored++;
}

void emit_finish(struct sched *s, struct seq *q, enum finish_reason reason, int stop_index,
                 int32_t stop_token)
{
    struct event ev = event_of(EVENT_FINISH, q->choice);
    ev.reason = (uint8_t)reason;
    ev.stop_index = stop_index;
    ev.stop_token = stop_token;
    ev.n_dropped = q->n_dropped;
    push(s, q->req, &ev);
    byte_ring_commit(&q->req->r->ring);
}

void emit_end(struct sched *s, struct req *q, const struct err *e)
{
    struct event ev = event_of(EVENT_END, 0);
    ev.status = e ? (int32_t)e->status : OK;
    ev.n_text = e ? (uint32_t)strnlen(e->text, ERR_TEXT_CAP) : 0;
    ev.n_prompt = q->r->n_prompt;
    ev.n_output = q->n_output;
    ev.n_cached = q->n_cached;
    ev.first_scheduled_ns = q->first_scheduled_ns;
    ev.first_token_ns = q->first_token_ns;
    ev.timing = stopwatch_end(&q->watch, s->now_ns);
    put_text(push(s, q, &ev), e ? e->text : "");
    byte_ring_commit(&q->r->ring);
}

void emit_wake(struct sched *s)
{
    while (s->dirty) {
        struct req *q = s->dirty;
        s->dirty = q->dirty_next;
        q->dirty = false;
        if (q->r->wake)
            q->r->wake(q->r, q->r->wake_arg);
        if (q->state == REQ_DONE)
            req_free(q);
    }
}
