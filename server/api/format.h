/* Pieces of JSON that answers are made of: tokens, log-probabilities, usage. Append only; no
 * allocation once the buffer has grown. Thread: any. */
#ifndef SERVER_API_FORMAT_H
#define SERVER_API_FORMAT_H

#include "base/buf.h"
#include "engine/text/text.h"
#include "scheduler/request.h"
#include "server/api/job.h"

/* Shortest decimal that reads back as the same float; JSON has no infinity: the floor is -9999. */
void format_logprob(struct buf *out, float x);

/* One member of chat's logprobs.content: token, logprob, bytes, top_logprobs. */
void format_chat_logprob(struct buf *out, const struct tokenizer *tok, const struct event *ev);

/* One scored token of a completions answer. has_value false: null (first prompt token). n_chars: code
 * points that the token adds to the text. */
void lists_add(struct logprob_lists *l, const struct tokenizer *tok, const struct event *ev,
               bool has_value, uint64_t n_chars);
void lists_clear(struct logprob_lists *l); /* keeps n_chars and memory */
void lists_release(struct logprob_lists *l);
/* {"tokens":[...],...}: the members of a, then those of b (either may be NULL). */
void lists_add_json(struct buf *out, const struct logprob_lists *a, const struct logprob_lists *b);

uint64_t count_chars(struct str s); /* code points that begin there */

void format_usage(struct buf *out, uint64_t n_prompt, uint64_t n_output, uint64_t n_cached);

/* {"queue_ms":...,...,"total_ms":...}: the parts, and their sum. */
void format_timings(struct buf *out, const struct request_timing *t);
/* Value of a Server-Timing header: queue;dur=1.250, ... in ms; parts of 0 are left out. */
void format_server_timing(struct buf *out, const struct request_timing *t);
uint64_t timing_total_ns(const struct request_timing *t);

const char *finish_text(enum finish_reason reason); /* as OpenAI names it */

#endif
