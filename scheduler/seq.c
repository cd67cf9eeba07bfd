/* Birth, admission, fork and end of requests and sequences; see seq.h. */
#include "scheduler/seq.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

static const bool legal[REQ_N_STATES][REQ_N_STATES] = {
    [REQ_NEW] = {[REQ_QUEUED] = true, [REQ_DONE] = true},
    [REQ_QUEUED] = {[REQ_RUNNING] = true, [REQ_DONE] = true},
    [REQ_RUNNING] = {[REQ_DONE] = true},
};

/* Ring bytes of a record with n_text bytes of text and n_top alternatives: its header, padding. */
static uint32_t record_bytes(uint32_t n_text, uint32_t n_top)
{
    uint32_t n = (uint32_t)sizeof(struct event) + ((n_text + 3u) & ~3u) +
                 n_top * (uint32_t)sizeof(struct event_top);
    return 8 + ((n + 7u) & ~7u);
}

static void ring_needs(const struct request *r, const struct tokenizer *tok, struct req *q)
{
    uint32_t n_top = r->sampling.n_top > 0 ? (uint32_t)r->sampling.n_top : 0;
    uint32_t n_text = tok ? 2 * detok_bound(tok) + (r->stops.n ? STOP_MAX_BYTES : 0) : 0;
    q->token_bytes = record_bytes(n_text, n_top);
    q->prompt_bytes = record_bytes(0, n_top);
    q->end_bytes = record_bytes(ERR_TEXT_CAP, 0) + r->n_choices * record_bytes(0, 0);
}

/* Twice what one token and the end take: a ring of 2n always has n contiguous bytes when empty. */
uint32_t request_ring_bytes(const struct request *r, const struct tokenizer *tok)
{
    struct req need;
    ring_needs(r, tok, &need);
    uint32_t once = need.token_bytes + need.end_bytes;
    if (r->prompt_logprobs)
        once += need.prompt_bytes;
    uint32_t n = 1024;
    while (n < 2 * once + 64)
        n *= 2;
    return n;
}

/* req_new and req_prepare below make the larger part of it. Tables of blocks: three numbers a block of 8
 * tokens at least, a group. */
uint64_t request_memory(const struct request *r)
{
    enum { TABLE_BYTES = KV_MAX_GROUPS * 3 * sizeof(uint32_t) };
    uint64_t cap = req_history(r), n_past = (uint64_t)r->n_prompt + r->max_tokens;
    uint64_t n_history = n_past > cap ? cap + n_past : cap;
    uint64_t choice =
        sizeof(struct seq) + n_history * sizeof(int32_t) + (cap / 8 + 2) * TABLE_BYTES;
    if (r->grammar)
        choice += sizeof(struct gram_match) + grammar_mask_words(r->grammar) * sizeof(uint32_t);
    return sizeof(*r) + sizeof(struct req) + r->ring.cap +
           (uint64_t)r->n_prompt * (sizeof(int32_t) + sizeof(uint32_t)) +
           r->sampling.n_bias * sizeof(struct logit_bias) +
           ((uint64_t)r->sampling.n_allowed + r->sampling.n_bad + r->n_dry_words) *
               sizeof(int32_t) +
           r->n_salt_bytes + r->n_choices * choice;
}

uint64_t req_blocks_worst(uint64_t n_prompt, uint64_t max_tokens, uint64_t n_choices,
                          uint32_t n_slots)
{
    uint64_t shared = n_prompt - 1; /* positions that the first sequence computes for all */
    if (max_tokens == 0)
        return shared / n_slots + (shared % n_slots != 0);
    uint64_t most = shared + max_tokens; /* the last token sampled needs no slot */
    uint64_t n_full = n_choices > 1 ? shared / n_slots : 0;
    return n_full + n_choices * (most / n_slots + (most % n_slots != 0) - n_full);
}

struct req *req_new(struct request *r, const struct tokenizer *tok)
{
    struct req *q = mem_zalloc(sizeof(*q));
    ring_needs(r, tok, q);
    q->r = r;
    request_ref(r);
    r->engine_part = q;
    return q;
}

void req_free(struct req *q)
{
    CHECK(q->n_live == 0);
    q->r->engine_part = NULL;
    request_unref(q->r);
    mem_free(q->print);
    mem_free(q->seq);
    mem_free(q->slab);
    mem_free(q->match);
    mem_free(q->mask);
    mem_free(q);
}

void req_set_state(struct req *q, enum req_state to)
{
    CHECKF(legal[q->state][to], "request %s: state %d to %d", q->r->name, q->state, to);
    q->state = to;
}

/* Tokens that end a choice, each once: banned while min_tokens isn't reached. */
static uint32_t add_bans(const struct request *r, const struct tokenizer *tok, int32_t *ban)
{
    uint32_t n = 0, n_eog = 0;
    const int32_t *eog = tok && !r->ignore_eos ? tokenizer_stop_tokens(tok, &n_eog) : NULL;
    for (uint32_t i = 0; i < n_eog; i++)
        ban[n++] = eog[i];
    for (uint32_t i = 0; i < r->n_stop_tokens; i++)
        ban[n++] = r->stop_tokens[i];
    return n;
}

struct kv_key req_root(const struct kv_cache *c, const struct kv_domain *domain,
                       const struct request *r)
{
    struct kv_domain own = *domain;
    own.salt = r->salt ? r->salt : "";
    own.n_salt_bytes = r->n_salt_bytes;
    return kv_root(c, &own);
}

/* Where each choice is in the grammar, and room for its mask. */
static void prepare_grammar(struct req *q)
{
    const struct grammar *g = q->r->grammar;
    uint32_t n_words = grammar_mask_words(g);
    struct gram_scratch *scratch = gram_scratch_new();
    q->match = mem_alloc(mem_mul(q->r->n_choices, sizeof(*q->match)));
    q->mask = mem_alloc(mem_mul(mem_mul(q->r->n_choices, n_words), sizeof(*q->mask)));
    for (uint32_t i = 0; i < q->r->n_choices; i++) {
        q->seq[i].match = &q->match[i];
        q->seq[i].mask = q->mask + (size_t)i * n_words;
        gram_match_init(q->seq[i].match, g, scratch);
    }
    gram_scratch_free(scratch);
}

void req_prepare(struct req *q, struct kv_cache *c, const struct tokenizer *tok, struct kv_key root)
{
    struct request *r = q->r;
    size_t cap = req_history(r), n_past = (size_t)r->n_prompt + r->max_tokens;
    n_past = n_past > cap ? n_past : 0;
    uint32_t n_eog = 0;
    if (q->seq)
        return;
    if (tok)
        tokenizer_stop_tokens(tok, &n_eog);
    size_t n_ints = mem_mul(cap + n_past, r->n_choices) + n_eog + r->n_stop_tokens;
    q->root = root;
    q->seq = mem_zalloc(mem_mul(r->n_choices, sizeof(*q->seq)));
    q->slab = mem_alloc(mem_mul(n_ints, sizeof(int32_t)));
    q->n_ban = add_bans(r, tok, q->slab + (cap + n_past) * r->n_choices);
    q->ban = q->slab + (cap + n_past) * r->n_choices;
    q->n_live = r->n_choices;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        struct seq *s = &q->seq[i];
        s->req = q;
        s->choice = i;
        s->tokens = q->slab + (cap + n_past) * i;
        memcpy(s->tokens, r->prompt, r->n_prompt * sizeof(int32_t));
        if (n_past > 0) {
            s->past = s->tokens + cap;
            memcpy(s->past, r->prompt, r->n_prompt * sizeof(int32_t));
        }
        kv_seq_init(c, &s->kv, (uint32_t)cap, root);
        if (tok) {
            detok_init(&s->detok, tok, r->skip_special);
            s->detok.at_start =
                false; /* output goes on behind the prompt: its first space counts */
        }
        if (r->stops.n)
            stop_scan_init(&s->scan, &r->stops);
    }
    q->seq[0].n_tok = r->n_prompt - (r->n_choices > 1 || r->max_tokens == 0);
    if (r->grammar)
        prepare_grammar(q);
}

void req_unprepare(struct req *q, struct kv_cache *c)
{
    for (uint32_t i = 0; i < q->n_live; i++)
        kv_seq_release(c, &q->seq[i].kv);
    q->n_live = 0;
}

void req_fork(struct req *q, struct kv_cache *c)
{
    struct seq *parent = &q->seq[0];
    CHECK(parent->n_kv + 1 == q->r->n_prompt && parent->n_fly == 0 && !parent->forked);
    for (uint32_t i = 0; i < q->r->n_choices; i++) {
        struct seq *s = &q->seq[i];
        if (i > 0)
            kv_seq_fork(c, &parent->kv, &s->kv);
        s->n_kv = s->n_high = parent->n_kv;
        s->n_tok = q->r->n_prompt;
        s->forked = true;
        s->state = SEQ_LIVE;
        s->granted = UINT32_MAX;
    }
}

void seq_finish(struct seq *s, struct kv_cache *c)
{
    CHECK(s->state != SEQ_DONE && s->state != SEQ_FETCHING && s->n_fly == 0);
    s->state = SEQ_DONE;
    kv_seq_drop(c, &s->kv);
    kv_seq_release(c, &s->kv);
    s->req->n_live--;
}
