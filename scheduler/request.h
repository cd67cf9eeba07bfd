/* What an HTTP thread hands to the engine thread, and the events that come back.
 *
 * Life: request_new (HTTP) -> fill -> sched_submit (engine thread owns the engine part) -> events ->
 * EVENT_END -> both sides request_unref. Fields before "delivery" are read-only after submit, but
 * for progress.
 * The event ring is single producer (engine thread), single consumer (the HTTP loop). */
#ifndef SCHEDULER_REQUEST_H
#define SCHEDULER_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/ring.h"
#include "base/status.h"
#include "engine/sample/sampler.h"
#include "engine/text/text.h"

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCEL, FINISH_ERROR };

/* Parts of a request's time from arrive_ns to its end, in the order in which they are shown:
 *   queue    before it was admitted; reading and tokenising it count
 *   prefill  steps that computed its prompt
 *   wait     admitted, but left out of a step: the budget went to others, or its consumer is slow
 *   decode   steps after its first token
 *   swap     its blocks were taken away, or were on their way back */
#define TIMING_PARTS(X) X(queue) X(prefill) X(wait) X(decode) X(swap)

enum timing_part {
#define X(name) TIMING_##name,
    TIMING_PARTS(X)
#undef X
        N_TIMING_PARTS
};

struct request_timing {
    uint64_t ns[N_TIMING_PARTS];
};

/* How far a request is, whatever its end: written by the engine thread, read by any. Times are clock_ns(), 0
 * until it came to that. */
struct request_progress {
    atomic_uint n_computed; /* prompt tokens whose KV is there, cached ones counted */
    atomic_uint n_output; /* tokens of all choices */
    atomic_ullong first_scheduled_ns, first_token_ns;
};

struct request {
    atomic_uint refs;
    uint64_t id; /* process-wide, ascending */
    char name[80]; /* request id shown to users and logs */
    uint64_t arrive_ns; /* clock_ns() when it was read */
    uint64_t queue_deadline_ns; /* still queued then: ERR_TIMEOUT; 0 = none */
    uint64_t
        deadline_ns; /* its first token is wanted by then; still queued: ERR_DEADLINE; 0 = none */
    atomic_uint *tenant_uses; /* borrows, or NULL: counted down when the request is freed */
    int32_t priority; /* lower first */
    /* overflow=sinks: when the history reaches so many tokens (at least 4 blocks), its first block and the
     * later half (rounded down) of the rest are kept, and the answer goes on; 0: it ends there */
    uint32_t overflow_context;
    bool reserve; /* kv_reserve: starts only with its worst case of blocks promised to it */
    char *salt; /* owns: only requests of equal bytes share prefix blocks; NULL: shared by all */
    uint32_t n_salt_bytes;

    int32_t *prompt; /* owns */
    uint32_t n_choices; /* n: sequences that share the prompt */
    bool prompt_logprobs; /* echo with logprobs: EVENT_PROMPT for each but the first prompt token */
    struct logit_bias *bias; /* owns; sampling.bias points here, and likewise for the next three */
    int32_t *allowed, *bad; /* own */
    uint32_t *dry_breakers; /* owns */
    uint32_t n_dry_words; /* in it */
    struct stop_set stops;
    char *stop_text; /* owns the bytes of stops */
    struct sampling_params sampling;

    /* What each token needs, on one cache line; of these progress alone changes after submit. */
    _Alignas(64) struct request_progress progress;
    struct grammar *grammar; /* holds a reference; the output matches it; NULL: free */
    int32_t *stop_tokens; /* owns: stop_token_ids */
    uint32_t n_stop_tokens;
    uint32_t n_prompt;
    uint32_t tenant; /* slot in struct tenants */
    uint32_t max_tokens; /* output tokens per choice, clamped already; 0 with echo: score only */
    uint32_t min_tokens;
    bool ignore_eos;
    bool include_stop; /* include_stop_str_in_output */
    bool skip_special; /* skip_special_tokens, default true */
    bool
        fill; /* with max_tokens 0: computes all but the last prompt token for the prefix cache, and saves
                * that to the disk, if there is one */

    /* delivery */
    struct byte_ring ring;
    void (*wake)(struct request *r, void *arg); /* engine thread, at most once per step */
    void *wake_arg;
    atomic_bool cancelled; /* set by the HTTP side through sched_cancel */
    /* Place in the queue as of the engine thread's last look, 1 is next; 0: not queued, or too far
     * back to be reported. */
    atomic_uint queue_position;

    struct ledger_hold held; /* its memory; given back when it is freed */
    void *engine_part; /* scheduler's own; NULL for others */

    /* HTTP side's own: the loop's list of woken requests. */
    void *owner; /* loop thread only: the consumer of the ring; NULL once given up */
    struct request *wake_next; /* link in that list */
    atomic_bool wake_queued; /* already in that list */
};

enum event_type {
    /* One output token: text that became safe to emit (may be empty), logprobs. reason FINISH_STOP: a
     * stop token; its own text is not in n_text unless include_stop. */
    EVENT_TOKEN,
    EVENT_PROMPT, /* logprobs of one prompt token (echo) */
    EVENT_FINISH, /* one choice ended: reason; its last text came in the EVENT_TOKEN before */
    /* The request ended: usage or error; the last record. After an error some choices have no
     * EVENT_FINISH. wake may be called until it has been pushed and once after. */
    EVENT_END
};

/* Record in the ring: this header, then n_text bytes, then n_top * struct event_top. */
struct event {
    uint8_t type;
    uint8_t reason; /* enum finish_reason */
    uint16_t choice;
    int32_t token; /* -1: text only (a flush at the end) */
    float logprob; /* NaN when not asked for */
    uint32_t n_text;
    uint32_t n_top;
    int32_t stop_index; /* EVENT_FINISH by a stop string: its index, else -1 */
    int32_t stop_token; /* EVENT_FINISH by a stop token: its id, else -1 */
    uint32_t n_dropped; /* EVENT_FINISH: tokens that overflow=sinks cut out of its history */
    /* EVENT_END */
    int32_t status; /* enum status; OK or why it failed */
    uint32_t n_prompt, n_output, n_cached;
    uint64_t first_scheduled_ns, first_token_ns;
    struct request_timing timing;
};
struct event_top {
    int32_t token;
    float logprob;
};
/* Error text of EVENT_END stands in the n_text bytes. */

static inline const char *event_text(const struct event *ev)
{
    return (const char *)(ev + 1);
}
/* n_text is padded to 4 bytes in the record. */
static inline const struct event_top *event_tops(const struct event *ev)
{
    return (const struct event_top *)((const char *)(ev + 1) + ((ev->n_text + 3u) & ~3u));
}

/* Smallest ring that sched_submit takes for this request (fields filled; tok as the scheduler's). */
uint32_t request_ring_bytes(const struct request *r, const struct tokenizer *tok);
/* Memory that the request takes until its end, with all that the scheduler makes for it. */
uint64_t request_memory(const struct request *r);
struct request *request_new(uint32_t ring_bytes);
void request_ref(struct request *r);
void request_unref(struct request *r); /* the last one frees */

#endif
