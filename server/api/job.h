/* One API call's work: the requests handed to the scheduler, what has come back, and how it is reported.
 *
 * A call has n_req prompts of n choices each; choice i of prompt p has index p * n + i.
 * Made by a handler (any thread), then owned by the exchange and touched by its loop only. */
#ifndef SERVER_API_JOB_H
#define SERVER_API_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "scheduler/request.h"
#include "server/api/fields.h"
#include "server/api/held.h"
#include "server/api/think.h"
#include "server/api/tools.h"

struct exchange;
struct server;
struct service;

/* Log-probabilities of completions: four arrays under construction, without their brackets. */
struct logprob_lists {
    struct buf tokens, values, tops, offsets;
    uint32_t n;
    uint64_t n_chars; /* code points of the text before the next token */
};

struct job;

struct choice {
    struct job *job; /* with tools or reasoning */
    bool started; /* its first chunk went out */
    bool finished;
    enum finish_reason reason;
    uint32_t n_dropped; /* tokens that overflow=sinks cut out of its history */
    uint32_t n_tokens;
    double sum_logprob; /* of its tokens, when the best of several are looked for */
    struct buf text; /* not streaming: the whole text */
    struct buf logprobs; /* chat: array members, of the whole answer or of a chunk */
    struct logprob_lists lists; /* completions: the same */
    struct held held; /* with stop strings: scores that wait for their text */
    struct toolcall parser; /* with tools: finds calls in the text */
    struct buf calls; /* not streaming: array members */
    struct think think; /* with a template that knows reasoning */
    struct buf reasoning; /* not streaming */
};

struct job_prompt {
    struct request *req; /* a reference */
    struct buf echo; /* text of the prompt when it is echoed */
    struct logprob_lists scores; /* of the prompt, with echo and logprobs */
    uint32_t n_scored; /* prompt tokens in scores */
    bool at_start; /* the next of them begins a fragment, see tokenizer_shown */
    uint32_t n_read_bytes; /* of the ring, since the scheduler was last notified */
    bool ended;
};

struct job {
    struct exchange *ex;
    struct server *srv;
    const struct service *service;
    enum api api;
    bool stream, include_usage, continuous_usage, echo, logprobs;
    bool timings; /* report them beside usage */
    char id[48];
    int64_t created;
    const char *model; /* borrows from the service's ids */
    char any_model[260]; /* model points here when any name is taken */
    uint32_t n; /* choices computed per prompt */
    uint32_t n_told; /* of them, answered: the most likely ones when fewer (best_of) */
    uint32_t n_prompts;
    struct tools tools; /* of chat */
    bool thinks, think_opened; /* reasoning is split off; the prompt ends within it */
    struct buf said[2]; /* scratch: reasoning, and the rest */
    struct buf *out; /* borrows, while an event is taken: what goes out */
    struct job_prompt *prompt; /* owns [n_prompts] */
    struct choice *choice; /* owns [n_prompts * n] */
    uint32_t n_ended;
    uint64_t n_prompt_tokens, n_output_tokens, n_cached_tokens;
    uint64_t first_scheduled_ns, first_token_ns;
    struct request_timing timing; /* of the prompt that took longest */
    struct err error; /* first failure; status OK when there is none */
    struct buf salt, messages; /* API_PREFIXES: what is kept beside the tokens */
    struct buf prefix; /* of every chunk: up to and with "choices":[{"index": */
    uint64_t n_echo_held; /* stream: memory taken for the chunk with an echoed prompt */
    uint64_t n_kept, n_taken; /* bytes collected; memory taken from the exchange's hold for them */
    bool submitted;
    bool running; /* counted in its loop's n_jobs */
    bool cancelled;
    bool done; /* every request ended, or it was given up */
};

struct job *job_new(struct exchange *ex, enum api api, const struct params *p, uint32_t n_prompts);
void job_free(struct job *j); /* gives up what still runs */

/* Hands all requests to the scheduler; on an error none stays there. */
enum status job_submit(struct job *j, void (*wake)(struct request *r, void *arg), void *wake_arg,
                       uint32_t *retry_after_s, struct err *e);
void job_refuse(struct job *j, const struct err *e); /* the answer to an error of job_submit */
/* Cancels what runs and ends the job with this error (unless it has one). */
void job_cancel(struct job *j, enum status status, const char *text);

/* Place in the queue of its prompt that is nearest to running, 1 is next; 0: not waiting, or not known. */
uint32_t job_queue_position(const struct job *j);
/* Memory of a call with so many prompts of p's choices, before any event. */
uint64_t job_memory(const struct params *p, uint32_t n_prompts);
/* Takes the events that are there, at most about max_bytes of output. Streaming: appends SSE events
 * to out; else collects. True when events may be left. */
bool job_take(struct job *j, struct buf *out, size_t max_bytes);
/* Streaming, after done: usage, error, [DONE]. */
void job_add_last(struct job *j, struct buf *out);
/* Not streaming, after done: fills ex->reply. */
void job_reply(struct job *j);

#endif
