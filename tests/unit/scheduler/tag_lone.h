/* The naive reference of the scheduler's random test: each choice of each request stepped alone, by the tag
 * of its own history. The part of a history that overflow=sinks keeps follows the rule in scheduler/request.h:
 * the first block and the later half (rounded down) of the rest, computed again from position 0. */
#ifndef TESTS_SCHEDULER_TAG_LONE_H
#define TESTS_SCHEDULER_TAG_LONE_H

#include <string.h>

#include "engine/fake/fake.h"
#include "scheduler/request.h"
#include "tests/unit/random_ops.h"

enum { LONE_HISTORY = 640, MAX_CHOICES = 5 };

/* What the reference needs to know of a world. */
struct lone_world {
    uint32_t n_slots, n_vocab;
    bool prefix;
};

/* One choice. */
struct lone {
    uint64_t chain; /* of the history that is left so far */
    uint32_t n; /* tokens given out */
    enum finish_reason reason; /* not FINISH_NONE: it has ended */
    bool finished; /* EVENT_FINISH came */
    /* overflow=sinks alone */
    uint32_t n_overflows, n_dropped;
    bool bad; /* values of what was computed anew are not finite */
    uint32_t n_history;
    int32_t history[LONE_HISTORY]; /* tokens that are left */
};

/* Values that are not finite, rarely. */
static inline bool tag_kv_finite(uint64_t chain)
{
    return chain % 4001 != 0;
}

static inline bool tag_logits_finite(uint64_t chain)
{
    return chain % 4003 != 0;
}

/* Positions of the prompt that are computed whatever comes. */
static inline uint32_t computed_prompt(const struct lone_world *w, const struct request *r)
{
    if (r->max_tokens > 0)
        return r->n_prompt;
    return r->prompt_logprobs || (r->fill && w->prefix) ? r->n_prompt - 1 : 0;
}

/* Tokens that a history comes to have at most. */
static inline uint32_t longest_history(const struct request *r)
{
    uint32_t n = r->n_prompt + r->max_tokens;
    return r->overflow_context && n > r->overflow_context ? r->overflow_context : n;
}

/* Output tokens that can stand in it. */
static inline uint32_t longest_output(const struct request *r)
{
    uint32_t n = longest_history(r);
    return n > r->n_prompt ? n - r->n_prompt : 0;
}

/* Behind the prompt; true: something of the prompt that must be computed is not finite. */
static inline bool lone_init(const struct lone_world *w, const struct request *r, struct lone *lone)
{
    uint64_t chain = fake_chain(NULL, 0);
    bool bad = false;
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        chain = fake_chain_next(chain, r->prompt[i]);
        bad |= i < computed_prompt(w, r) && !tag_kv_finite(chain);
        bad |= r->prompt_logprobs && i + 1 < r->n_prompt && !tag_logits_finite(chain);
    }
    for (uint32_t c = 0; c < r->n_choices; c++) {
        struct lone *o = &lone[c];
        o->chain = chain;
        o->n = o->n_overflows = o->n_dropped = o->n_history = 0;
        o->reason = FINISH_NONE;
        o->finished = o->bad = false;
        if (!r->overflow_context)
            continue;
        CHECK(r->overflow_context <= LONE_HISTORY);
        memcpy(o->history, r->prompt, r->n_prompt * sizeof(int32_t));
        o->n_history = r->n_prompt;
    }
    return bad;
}

static inline bool lone_stops(const struct request *r, const struct lone *o, int32_t token)
{
    for (uint32_t i = 0; i < r->n_stop_tokens && o->n > r->min_tokens; i++) {
        if (r->stop_tokens[i] == token)
            return true;
    }
    return false;
}

static inline void lone_overflow(const struct lone_world *w, struct lone *o)
{
    uint32_t n_first = w->n_slots, n_last = (o->n_history - n_first) / 2;
    const int32_t *last = o->history + o->n_history - n_last;
    o->n_dropped += o->n_history - n_first - n_last;
    o->n_overflows++;
    memmove(o->history + n_first, last, n_last * sizeof(int32_t));
    o->n_history = n_first + n_last;
    o->chain = fake_chain(NULL, 0);
    for (uint32_t i = 0; i < o->n_history; i++) {
        o->chain = fake_chain_next(o->chain, o->history[i]);
        o->bad |= !tag_kv_finite(o->chain);
    }
}

/* The next token of a choice; -1: something is not finite. */
static inline int32_t lone_step(const struct lone_world *w, const struct request *r, struct lone *o,
                                uint32_t choice)
{
    if (o->bad || !tag_kv_finite(o->chain) || !tag_logits_finite(o->chain))
        return -1;
    struct sample_job job = {.params = &r->sampling, .choice = choice, .given = -1};
    if (o->n < r->min_tokens) {
        job.ban = r->stop_tokens;
        job.n_ban = r->n_stop_tokens;
    }
    int32_t token = fake_chain_token(&job, o->chain, w->n_vocab);
    o->chain = fake_chain_next(o->chain, token);
    o->n++;
    if (lone_stops(r, o, token))
        o->reason = FINISH_STOP;
    else if (o->n == r->max_tokens)
        o->reason = FINISH_LENGTH;
    if (!r->overflow_context)
        return token;
    o->history[o->n_history++] = token;
    if (o->n_history == r->overflow_context && o->reason == FINISH_NONE)
        lone_overflow(w, o);
    return token;
}

/* Does a choice, stepped on from where it stands, come to something that is not finite? */
static inline bool lone_ends_in_nan(const struct lone_world *w, const struct request *r,
                                    const struct lone *from, uint32_t choice)
{
    static struct lone o;
    o = *from;
    while (o.reason == FINISH_NONE && o.n < r->max_tokens) {
        if (lone_step(w, r, &o, choice) < 0)
            return true;
    }
    return false;
}

#endif
