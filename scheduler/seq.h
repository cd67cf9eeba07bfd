/* The engine thread's side of a request and of its sequences.
 *
 * Work of a sequence = n_tok - n_kv: tokens whose KV is not there yet. Prefill, decode, a prefix hit, a
 * fork's first row and computing again after a preemption are that one rule and differ only in the
 * number.
 *
 *   REQ_NEW ──► REQ_QUEUED ──► REQ_RUNNING ──► REQ_DONE        (req_set_state aborts on other edges)
 *      └────────────┴──────────────────────────────▲
 *
 *   SEQ_IDLE ──► SEQ_LIVE ◄──► SEQ_PARKED      any of them ──► SEQ_DONE
 *   SEQ_LIVE ──► SEQ_FETCHING ──► SEQ_LIVE or SEQ_PARKED
 *
 * A parked sequence was preempted: its blocks wait in a tier or in frames that others may take once
 * they are copied, or it holds none and computes again.
 *
 * A request with n choices runs its first sequence over all of the prompt but the last token, then
 * forks: the others share its blocks, and each computes the last prompt token itself, so that every
 * choice samples from logits of its own row.
 *
 * Thread: engine, but for struct req's birth in sched_submit. */
#ifndef SCHEDULER_SEQ_H
#define SCHEDULER_SEQ_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/grammar/grammar.h"
#include "kvpool/cache.h"
#include "kvpool/disk_seq.h"
#include "scheduler/request.h"
#include "scheduler/tenant.h"
#include "scheduler/timing.h"

enum req_state { REQ_NEW, REQ_QUEUED, REQ_RUNNING, REQ_DONE, REQ_N_STATES };

enum seq_state {
    SEQ_IDLE, /* waits for the fork */
    SEQ_LIVE, /* in sched.running: n_kv < n_tok between steps */
    SEQ_PARKED, /* in sched.parked */
    SEQ_FETCHING, /* in sched.disk.fetching: a prompt whose blocks come from the disk */
    SEQ_DONE /* holds no block */
};

struct seq {
    struct req *req;
    uint32_t choice;
    enum seq_state state;
    int32_t *tokens; /* inside req.slab: [req_history] */
    int32_t *past; /* overflow=sinks: the history with what was cut out of tokens; else NULL */
    struct gram_match *match; /* borrows from req.match; NULL: no grammar */
    uint32_t n_dropped; /* tokens that were cut out */
    uint32_t n_tok; /* tokens of the history that may be computed now */
    uint32_t n_kv; /* tokens whose KV is computed and retired */
    uint32_t n_fly; /* rows in the step that runs now */
    uint32_t n_out; /* tokens sampled */
    uint32_t n_high; /* most n_kv ever: rows below are computed again */
    uint64_t step, used_ns; /* the last step it had rows in, and that step's end */
    uint64_t since_step; /* the step before which it last came to run */
    bool forked; /* computes the last prompt token for its own logits */
    uint32_t granted; /* rows that this turn's room covers; UINT32_MAX: all that it may have */
    bool paused; /* the last plan left it out for a full ring */
    bool nan; /* a row of the step that retires has logits that are not finite */
    uint64_t pass; /* step in which its prompt was looked at */
    uint32_t n_preempted; /* times it was parked */
    uint32_t n_staged; /* of its blocks read from the spill file in each step */
    uint64_t last_token_ns;
    struct kv_seq kv;
    uint64_t look_epoch; /* sched.epoch when it was last seen not to fit */
    uint32_t *mask; /* borrows from req.mask: room for a bit per token; NULL: no grammar */
    struct detok detok;
    struct stop_scan scan;
};

struct req {
    struct tenant_item item; /* first: the queue casts back */
    struct request *r; /* holds a reference */
    enum req_state state;
    uint64_t ticket; /* order of admission: the age of its sequences */
    struct req *prev, *next; /* all queued, or all running requests */
    struct req *dirty_next;
    bool dirty; /* events pushed since the last wake */
    uint32_t n_bypassed; /* requests admitted past it while it was head of the queue */
    uint64_t look_epoch; /* sched.epoch when it was last seen not to fit; 0: not looked at yet */
    bool shares; /* then: another sequence was about to fill the block it needs next */
    bool reserves; /* its worst case is promised at admission: never preempted */
    struct kv_need promised; /* then, from admission on: frames kept from others at most */

    uint32_t token_bytes; /* ring bytes that one token's event can take */
    uint32_t prompt_bytes; /* ring bytes of one EVENT_PROMPT */
    uint32_t end_bytes; /* ring bytes kept for EVENT_FINISH of all choices and EVENT_END */
    uint64_t ring_step; /* step in which ring_planned was last reset */
    uint32_t ring_planned; /* ring bytes that this step's rows may take */

    /* from the first look on (req_prepare) */
    struct kv_key root;
    struct seq *seq; /* owns [n_choices] */
    uint32_t n_live; /* sequences not SEQ_DONE */
    struct gram_match *match; /* owns [n_choices]; NULL: no grammar */
    uint32_t *mask; /* owns: of all choices */
    int32_t *slab; /* owns: token histories of all choices */
    uint32_t n_preempted; /* times that one of its sequences was parked */
    uint32_t n_cached; /* prompt positions that came from the prefix index or the disk */
    struct kv_fetch fetch; /* of the first sequence */
    struct req *fetch_next; /* link in sched.disk.fetching */
    uint32_t n_scored; /* prompt tokens whose EVENT_PROMPT is out */
    const int32_t *ban; /* inside slab: stop tokens, banned before min_tokens */
    uint32_t n_ban;
    uint32_t *print; /* owns: fingerprints of the prompt's blocks for the journal, or NULL */
    uint32_t n_print;
    uint64_t print_state; /* behind the last of them */
    uint64_t queued_ns, admitted_ns;
    uint64_t first_scheduled_ns, first_token_ns;
    struct stopwatch watch;
    uint32_t n_output;
    enum finish_reason reason; /* of the choice that finished last */
};

/* Engine part of r. */
struct req *req_new(struct request *r, const struct tokenizer *tok);
void req_free(struct req *q); /* drops its reference of the request */
void req_set_state(struct req *q, enum req_state to);
/* Of its prefix chain: only requests of equal domain and salt share blocks. Any thread. */
struct kv_key req_root(const struct kv_cache *c, const struct kv_domain *domain,
                       const struct request *r);
/* Memory and sequences: the only allocation a request makes on the engine thread; at most once. */
void req_prepare(struct req *q, struct kv_cache *c, const struct tokenizer *tok,
                 struct kv_key root);
/* Undoes req_prepare of a request that never started. */
void req_unprepare(struct req *q, struct kv_cache *c);
/* Blocks of a full-attention group that n choices of n_prompt tokens can come to hold, sharing
 * counted. */
uint64_t req_blocks_worst(uint64_t n_prompt, uint64_t max_tokens, uint64_t n_choices,
                          uint32_t n_slots);
/* The first sequence has computed all but the last prompt token: the others share its blocks. */
void req_fork(struct req *q, struct kv_cache *c);
/* Lets the sequence go: its blocks and what was promised to it. */
void seq_finish(struct seq *q, struct kv_cache *c);

/* Tokens that a choice's history comes to have at most. */
static inline uint32_t req_history(const struct request *r)
{
    uint32_t n = r->n_prompt + r->max_tokens;
    return r->overflow_context && r->overflow_context < n ? r->overflow_context : n;
}
/* Positions that a choice comes to hold at most: the last token sampled needs no slot. */
static inline uint32_t req_positions(const struct request *r)
{
    return req_history(r) - 1;
}
/* One row is missing, and it gives the next token (or a fork's first one). */
static inline bool seq_decodes(const struct seq *q)
{
    return (q->n_out > 0 || q->forked) && q->n_tok - q->n_kv == 1;
}
static inline bool seq_older(const struct seq *a, const struct seq *b)
{
    if (a->req->ticket != b->req->ticket)
        return a->req->ticket < b->req->ticket;
    return a->choice < b->choice;
}
/* The prompt's history is all there, so that its last row is sampled. */
static inline bool seq_samples(const struct seq *q)
{
    return (q->n_out > 0 || q->n_tok >= q->req->r->n_prompt) && q->req->r->max_tokens > 0;
}

#endif
