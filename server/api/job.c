/* Events of the engine -> SSE chunks or collected text; see job.h. */
#include "server/api/job.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "server/exchange.h"
#include "server/api/format.h"
#include "server/api/listen.h"
#include "server/server.h"
#include "server/service.h"

uint64_t job_memory(const struct params *p, uint32_t n_prompts)
{
    uint64_t n = (uint64_t)(p->best_of > p->n ? p->best_of : p->n);
    return sizeof(struct job) + n_prompts * (sizeof(struct job_prompt) + n * sizeof(struct choice));
}

struct job *job_new(struct exchange *ex, enum api api, const struct params *p, uint32_t n_prompts)
{
    struct job *j = mem_zalloc(sizeof(*j));
    struct server *srv = ex->srv;
    bool chat = api == API_CHAT;
    j->ex = ex;
    j->srv = srv;
    j->api = api;
    j->stream = p->stream;
    j->include_usage = p->include_usage;
    j->timings = p->timings;
    j->continuous_usage = p->continuous_usage;
    j->echo = !chat && p->echo;
    j->logprobs = chat ? p->logprobs : p->given[FIELD_n_logprobs];
    j->n = (uint32_t)(p->best_of > p->n ? p->best_of : p->n);
    j->n_told = (uint32_t)p->n;
    j->n_prompts = n_prompts;
    j->prompt = mem_zalloc(mem_mul(n_prompts, sizeof(*j->prompt)));
    j->choice = mem_zalloc(mem_mul(mem_mul(n_prompts, j->n), sizeof(*j->choice)));
    j->created = clock_unix_s();
    uint64_t id = atomic_fetch_add_explicit(&srv->next_id, 1, memory_order_relaxed);
    snprintf(j->id, sizeof(j->id), "%s-%016llx%08llx", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)srv->id_salt, (unsigned long long)id);
    const char *known = NULL;
    j->service = ex->service;
    if (!service_find(srv->service, srv->n_services, p->given[FIELD_model] ? &p->model : NULL,
                      &known)) {
        snprintf(j->any_model, sizeof(j->any_model), "%.*s", (int)p->model.len, p->model.ptr);
        known = j->any_model;
    }
    j->model = known;
    return j;
}

static void prompt_release(struct job *j, struct job_prompt *p)
{
    if (p->req) {
        p->req->owner = NULL;
        if (j->submitted && !p->ended)
            sched_cancel(j->service->sched, p->req);
        request_unref(p->req);
    }
}

static void release_collected(struct job *j)
{
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        buf_release(&j->prompt[i].echo);
        lists_release(&j->prompt[i].scores);
    }
    for (uint32_t i = 0; i < j->n_prompts * j->n; i++) {
        buf_release(&j->choice[i].text);
        buf_release(&j->choice[i].logprobs);
        lists_release(&j->choice[i].lists);
        held_release(&j->choice[i].held);
        toolcall_release(&j->choice[i].parser);
        buf_release(&j->choice[i].calls);
        buf_release(&j->choice[i].reasoning);
        buf_release(&j->choice[i].think.held);
    }
}

void job_free(struct job *j)
{
    if (!j)
        return;
    release_collected(j);
    for (uint32_t i = 0; i < j->n_prompts; i++)
        prompt_release(j, &j->prompt[i]);
    mem_free(j->prompt);
    mem_free(j->choice);
    buf_release(&j->prefix);
    buf_release(&j->salt);
    buf_release(&j->messages);
    tools_release(&j->tools);
    buf_release(&j->said[0]);
    buf_release(&j->said[1]);
    mem_free(j);
}

/* Members that every answer of the call begins with. */
static void add_head(const struct job *j, struct buf *out, const char *object)
{
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", j->id, object,
               (long long)j->created);
    json_add_string(out, str_of(j->model));
    buf_printf(out, ",\"system_fingerprint\":\"%s\",\"choices\":[", j->srv->fingerprint);
}

static const char *object_name(const struct job *j)
{
    if (j->api == API_COMPLETIONS)
        return "text_completion";
    return j->stream ? "chat.completion.chunk" : "chat.completion";
}

/* The first prompt token has no probability: it opens the lists with null. */
static void score_first_token(struct job *j, struct job_prompt *p)
{
    if (!j->echo || !j->logprobs)
        return;
    struct event first = {.token = p->req->prompt[0]};
    const struct tokenizer *tok = j->service->tok;
    bool hidden = first.token == tokenizer_bos(tok) &&
                  !str_starts(buf_str(&p->echo), tokenizer_bytes(tok, first.token));
    p->at_start = true;
    struct str shown = tokenizer_shown(tok, first.token, false, &p->at_start);
    lists_add(&p->scores, tok, &first, false, hidden ? 0 : count_chars(shown));
    p->n_scored = 1;
}

static void give_up_requests(struct job *j)
{
    for (uint32_t i = 0; i < j->n_prompts; i++)
        if (!j->prompt[i].ended)
            sched_cancel(j->service->sched, j->prompt[i].req);
}

enum status job_submit(struct job *j, void (*wake)(struct request *r, void *arg), void *wake_arg,
                       uint32_t *retry_after_s, struct err *e)
{
    if (j->stream) {
        buf_add_c(&j->prefix, "data: ");
        add_head(j, &j->prefix, object_name(j));
        buf_add_c(&j->prefix, "{\"index\":");
    }
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        struct request *r = j->prompt[i].req;
        r->owner = j;
        r->wake = wake;
        r->wake_arg = wake_arg;
        score_first_token(j, &j->prompt[i]);
        enum status status = sched_submit(j->service->sched, r, retry_after_s, e);
        if (status) {
            for (uint32_t k = i; k < j->n_prompts; k++)
                j->prompt[k].ended = true;
            j->submitted = true; /* job_free gives up those before i */
            return status;
        }
    }
    j->submitted = true;
    return OK;
}

void job_refuse(struct job *j, const struct err *e)
{
    uint32_t i = 0;
    if (e->status != ERR_CONTEXT_LENGTH) {
        reply_err(j->ex, e);
        return;
    }
    while (i + 1 < j->n_prompts && !j->prompt[i].ended)
        i++; /* to the one that was refused */
    const struct request *r = j->prompt[i].req;
    reply_too_long(j->ex, e, r->n_prompt - r->fill, sched_longest_prompt(j->service->sched, r));
}

void job_cancel(struct job *j, enum status status, const char *text)
{
    if (!j->error.status)
        err_set(&j->error, status, "%s", text);
    if (j->submitted && !j->cancelled)
        give_up_requests(j);
    j->cancelled = true;
    j->done = true;
}

uint32_t job_queue_position(const struct job *j)
{
    uint32_t least = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        uint32_t at = atomic_load_explicit(&j->prompt[i].req->queue_position, memory_order_relaxed);
        if (!j->prompt[i].ended && at && (!least || at < least))
            least = at;
    }
    for (uint32_t i = 0; i < j->n_prompts * j->n; i++)
        if (j->choice[i].started)
            return 0;
    return least;
}

/* ---- events ---- */

static void usage_so_far(const struct job *j, struct buf *out)
{
    uint64_t n_prompt = 0, n_output = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++)
        n_prompt += j->prompt[i].req->n_prompt;
    for (uint32_t i = 0; i < j->n_prompts * j->n; i++)
        n_output += j->choice[i].n_tokens;
    format_usage(out, n_prompt, n_output, j->n_cached_tokens);
}

void job_end_chunk(const struct job *j, struct buf *out)
{
    buf_add_c(out, "}]");
    if (j->continuous_usage) {
        buf_add_c(out, ",\"usage\":");
        usage_so_far(j, out);
    } else if (j->include_usage) {
        buf_add_c(out, ",\"usage\":null");
    }
    buf_add_c(out, "}\n\n");
}

void job_begin_chunk(const struct job *j, struct buf *out, uint32_t index)
{
    char digits[16];
    int n = 0;
    do
        digits[n++] = (char)('0' + index % 10);
    while (index /= 10);
    buf_add_str(out, buf_str(&j->prefix));
    while (n)
        buf_add_char(out, digits[--n]);
}

static bool has_scores(const struct choice *c)
{
    return c->logprobs.len || c->lists.n;
}

void job_add_chunk(struct job *j, struct buf *out, uint32_t index, struct str text)
{
    struct choice *c = &j->choice[index];
    bool chat = j->api == API_CHAT;
    job_begin_chunk(j, out, index);
    buf_add_c(out, chat ? ",\"delta\":{\"content\":\"" : ",\"text\":\"");
    json_add_escaped(out, text);
    buf_add_c(out, chat ? "\"},\"logprobs\":" : "\",\"logprobs\":");
    if (!has_scores(c)) {
        buf_add_c(out, "null");
    } else if (chat) {
        buf_add_c(out, "{\"content\":[");
        buf_add_str(out, buf_str(&c->logprobs));
        buf_add_c(out, "],\"refusal\":null}");
    } else {
        lists_add_json(out, &c->lists, NULL);
    }
    buf_add_c(out, ",\"finish_reason\":null");
    job_end_chunk(j, out);
}

/* Chat opens each choice with the role, completions with the echoed prompt. */
static void open_choice(struct job *j, struct buf *out, uint32_t index)
{
    struct choice *c = &j->choice[index];
    struct job_prompt *p = &j->prompt[index / j->n];
    if (c->started)
        return;
    c->started = true;
    c->lists.n_chars = p->scores.n_chars;
    if (j->logprobs && p->req->stops.n)
        held_init(&c->held, j->service->tok, p->req->skip_special);
    if (listen_needed(j))
        listen_begin(j, c);
    if (j->api == API_CHAT && j->stream) {
        job_begin_chunk(j, out, index);
        buf_add_c(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                       "\"finish_reason\":null");
        job_end_chunk(j, out);
    } else if (j->echo && j->stream) {
        job_begin_chunk(j, out, index);
        buf_add_c(out, ",\"text\":");
        json_add_string(out, buf_str(&p->echo));
        buf_add_c(out, ",\"logprobs\":");
        if (j->logprobs)
            lists_add_json(out, &p->scores, NULL);
        else
            buf_add_c(out, "null");
        buf_add_c(out, ",\"finish_reason\":null");
        job_end_chunk(j, out);
    }
}

/* A token that ended its choice and is not in the text: it was not asked for, or cannot be seen. */
static bool is_hidden_end(const struct job *j, const struct request *r, const struct event *ev)
{
    bool control = tokenizer_type(j->service->tok, ev->token) == TOKEN_CONTROL;
    return ev->reason == FINISH_STOP && (!r->include_stop || (r->skip_special && control));
}

/* An end token is scored in completions (scoring clients count on it), but is no content of a chat. */
static bool is_scored(const struct job *j, const struct request *r, const struct event *ev)
{
    if (!j->logprobs || ev->token < 0)
        return false;
    return j->api != API_CHAT || !is_hidden_end(j, r, ev);
}

static uint64_t visible_chars(const struct job *j, const struct request *r, const struct event *ev)
{
    bool at_start = false;
    if (is_hidden_end(j, r, ev))
        return 0;
    return count_chars(tokenizer_shown(j->service->tok, ev->token, r->skip_special, &at_start));
}

static void add_score(struct job *j, const struct request *r, struct choice *c,
                      const struct event *ev)
{
    const struct tokenizer *tok = j->service->tok;
    if (j->api != API_CHAT) {
        lists_add(&c->lists, tok, ev, true, visible_chars(j, r, ev));
        return;
    }
    if (c->logprobs.len)
        buf_add_char(&c->logprobs, ',');
    format_chat_logprob(&c->logprobs, tok, ev);
}

static void add_held(struct job *j, const struct request *r, struct choice *c, bool all)
{
    const struct event *ev;
    while ((ev = held_take(&c->held, all)))
        add_score(j, r, c, ev);
}

/* The scores that are reported with the text of this event. */
static void add_scores(struct job *j, const struct request *r, struct choice *c,
                       const struct event *ev)
{
    bool scored = is_scored(j, r, ev);
    if (r->stops.n) {
        held_add(&c->held, ev, ev->token >= 0 && !is_hidden_end(j, r, ev), scored);
        add_held(j, r, c, false);
    } else if (scored) {
        add_score(j, r, c, ev);
    }
}

static void clear_scores(struct choice *c)
{
    buf_clear(&c->logprobs);
    lists_clear(&c->lists);
}

static void stream_token(struct job *j, struct buf *out, const struct request *r, uint32_t index,
                         const struct event *ev)
{
    struct choice *c = &j->choice[index];
    if (j->logprobs) {
        clear_scores(c);
        add_scores(j, r, c, ev);
    }
    struct str text = {event_text(ev), ev->n_text};
    if (listen_needed(j)) {
        if (has_scores(c))
            job_add_chunk(j, out, index, STR_LIT(""));
        clear_scores(c);
        listen_text(c, text);
    } else if (ev->n_text || has_scores(c)) {
        job_add_chunk(j, out, index, text);
    }
}

static void collect_token(struct job *j, const struct request *r, uint32_t index,
                          const struct event *ev)
{
    struct choice *c = &j->choice[index];
    if (listen_needed(j))
        listen_text(c, (struct str){event_text(ev), ev->n_text});
    else
        buf_add(&c->text, event_text(ev), ev->n_text);
    if (j->logprobs)
        add_scores(j, r, c, ev);
}

/* Held scores at the end of a choice: those of a stop string are dropped with its text. */
static void end_scores(struct job *j, struct buf *out, const struct request *r, uint32_t index,
                       const struct event *ev)
{
    struct choice *c = &j->choice[index];
    if (j->stream)
        clear_scores(c);
    if (ev->stop_index < 0)
        add_held(j, r, c, true);
    if (j->stream && has_scores(c))
        job_add_chunk(j, out, index, STR_LIT(""));
}

static void add_finish(struct buf *out, const struct choice *c)
{
    bool called = c->parser.n_calls && c->reason == FINISH_STOP;
    buf_printf(out, ",\"finish_reason\":\"%s\"", called ? "tool_calls" : finish_text(c->reason));
    if (c->n_dropped > 0)
        buf_printf(out, ",\"dropped_tokens\":%u", c->n_dropped);
}

static void on_finish(struct job *j, struct buf *out, const struct request *r, uint32_t index,
                      const struct event *ev)
{
    struct choice *c = &j->choice[index];
    c->finished = true;
    c->reason = (enum finish_reason)ev->reason;
    c->n_dropped = ev->n_dropped;
    open_choice(j, out, index);
    if (c->reason == FINISH_ERROR || c->reason == FINISH_CANCEL)
        return;
    if (listen_needed(j))
        listen_end(c);
    if (j->logprobs && r->stops.n)
        end_scores(j, out, r, index, ev);
    if (!j->stream)
        return;
    job_begin_chunk(j, out, index);
    buf_add_c(out, j->api == API_CHAT ? ",\"delta\":{}" : ",\"text\":\"\"");
    buf_add_c(out, ",\"logprobs\":null");
    add_finish(out, c);
    job_end_chunk(j, out);
}

static void on_prompt(struct job *j, struct job_prompt *p, const struct event *ev)
{
    if (!j->echo || !j->logprobs || p->n_scored >= p->req->n_prompt)
        return;
    const struct tokenizer *tok = j->service->tok;
    p->n_scored++;
    struct str shown = tokenizer_shown(tok, ev->token, false, &p->at_start);
    lists_add(&p->scores, tok, ev, true, count_chars(shown));
}

static void on_end(struct job *j, struct job_prompt *p, const struct event *ev)
{
    p->ended = true;
    j->n_ended++;
    j->n_prompt_tokens += ev->n_prompt;
    j->n_output_tokens += ev->n_output;
    j->n_cached_tokens += ev->n_cached;
    j->first_scheduled_ns = ns_earlier(j->first_scheduled_ns, ev->first_scheduled_ns);
    j->first_token_ns = ns_earlier(j->first_token_ns, ev->first_token_ns);
    if (timing_total_ns(&ev->timing) >= timing_total_ns(&j->timing))
        j->timing = ev->timing;
    if (ev->status != OK && !j->error.status) {
        err_set(&j->error, (enum status)ev->status, "%.*s", (int)ev->n_text, event_text(ev));
        give_up_requests(j);
        j->cancelled = true;
    }
    if (j->n_ended == j->n_prompts)
        j->done = true;
}

static void on_event(struct job *j, uint32_t i_prompt, struct buf *out, const struct event *ev)
{
    struct job_prompt *p = &j->prompt[i_prompt];
    uint32_t index = i_prompt * j->n + ev->choice;
    j->out = out;
    switch ((enum event_type)ev->type) {
    case EVENT_TOKEN:
        open_choice(j, out, index); /* its chunk counts no token yet */
        j->choice[index].n_tokens += ev->token >= 0;
        if (j->n_told < j->n && ev->token >= 0)
            j->choice[index].sum_logprob += ev->logprob;
        if (j->stream)
            stream_token(j, out, p->req, index, ev);
        else
            collect_token(j, p->req, index, ev);
        break;
    case EVENT_PROMPT:
        on_prompt(j, p, ev);
        break;
    case EVENT_FINISH:
        on_finish(j, out, p->req, index, ev);
        break;
    case EVENT_END:
        on_end(j, p, ev);
        break;
    }
}

/* Tells the scheduler about new room each time a quarter of the ring was read. It pauses a sequence
 * only when less than a quarter is free (size_ring in prepare.c), so that at least one of these calls
 * comes after a pause and finds room, and a stream that keeps up costs no call at each token. */
static void made_room(struct job *j, struct job_prompt *p, uint32_t n_bytes)
{
    enum { RECORD_BYTES = 8 }; /* a ring's header of each record */
    p->n_read_bytes += n_bytes + RECORD_BYTES;
    if (p->n_read_bytes < p->req->ring.cap / 4)
        return;
    p->n_read_bytes = 0;
    if (!p->ended)
        sched_resume(j->service->sched, p->req);
}

static uint64_t lists_bytes(const struct logprob_lists *l)
{
    return l->tokens.len + l->values.len + l->tops.len + l->offsets.len;
}

static uint64_t kept_bytes(const struct job_prompt *p, const struct choice *c)
{
    return c->text.len + c->calls.len + c->reasoning.len + c->think.held.len + c->parser.in.len +
           c->logprobs.len + c->held.records.len + lists_bytes(&c->lists) + lists_bytes(&p->scores);
}

/* Buffers double, so twice their length counts. When no more memory can be had the call ends with that
 * error. */
static void keep(struct job *j, uint64_t n_more)
{
    enum { LEAST_BYTES = 4096 };
    struct err e;
    j->n_kept += n_more;
    if (2 * j->n_kept <= j->n_taken)
        return;
    uint64_t n = 2 * j->n_kept - j->n_taken + j->n_taken / 4 + LEAST_BYTES;
    if (ledger_take(&j->ex->held, LEDGER_ANSWERS, n, &e) == OK) {
        j->n_taken += n;
        return;
    }
    if (!j->error.status)
        j->error = e;
    give_up_requests(j);
    j->cancelled = j->done = true;
}

static void take_event(struct job *j, uint32_t i_prompt, struct buf *out, const struct event *ev)
{
    const struct job_prompt *p = &j->prompt[i_prompt];
    const struct choice *c = &j->choice[i_prompt * j->n + ev->choice];
    uint64_t before = kept_bytes(p, c);
    on_event(j, i_prompt, out, ev);
    uint64_t after = kept_bytes(p, c);
    if (after < before)
        j->n_kept -= before - after;
    else if (after > before && !j->done)
        keep(j, after - before);
}

bool job_take(struct job *j, struct buf *out, size_t max_bytes)
{
    for (uint32_t i = 0; i < j->n_prompts && !j->done; i++) {
        struct request *r = j->prompt[i].req;
        const struct event *ev;
        uint32_t n;
        while (!j->done && !j->prompt[i].ended && (ev = byte_ring_peek(&r->ring, &n))) {
            if (out && out->len >= max_bytes)
                return true;
            take_event(j, i, out, ev);
            byte_ring_pop(&r->ring);
            made_room(j, &j->prompt[i], n);
        }
    }
    return false;
}

static void add_usage(const struct job *j, struct buf *out)
{
    buf_add_c(out, "],\"usage\":");
    format_usage(out, j->n_prompt_tokens, j->n_output_tokens, j->n_cached_tokens);
    if (j->timings) {
        buf_add_c(out, ",\"timings\":");
        format_timings(out, &j->timing);
    }
}

void job_add_last(struct job *j, struct buf *out)
{
    if (j->error.status) {
        buf_add_c(out, "data: ");
        problem_add_json(out, problem_find(j->error.status), &j->error, "");
        buf_add_c(out, "\n\n");
    } else if (j->include_usage || j->timings) {
        buf_add_c(out, "data: ");
        add_head(j, out, object_name(j));
        add_usage(j, out);
        buf_add_c(out, "}\n\n");
    }
    buf_add_c(out, "data: [DONE]\n\n");
}

/* ---- whole answers ---- */

static double mean_logprob(const struct choice *c)
{
    return c->n_tokens ? c->sum_logprob / c->n_tokens : 0;
}

/* How many choices of the same prompt are more likely a token; of equal ones the first counts. */
static uint32_t rank(const struct job *j, uint32_t index)
{
    uint32_t first = index - index % j->n, n = 0;
    double mine = mean_logprob(&j->choice[index]);
    for (uint32_t i = first; i < first + j->n; i++) {
        double other = mean_logprob(&j->choice[i]);
        n += other > mine || (other == mine && i < index);
    }
    return n;
}

/* Index of the choice that is answered as number i_told. */
static uint32_t told_choice(const struct job *j, uint32_t i_told)
{
    if (j->n_told == j->n)
        return i_told;
    uint32_t index = i_told / j->n_told * j->n;
    while (rank(j, index) != i_told % j->n_told)
        index++;
    return index;
}

static void reply_choice(struct job *j, struct buf *out, uint32_t i_told)
{
    uint32_t index = told_choice(j, i_told);
    struct choice *c = &j->choice[index];
    struct job_prompt *p = &j->prompt[index / j->n];
    buf_printf(out, "%s{\"index\":%u,", i_told ? "," : "", i_told);
    if (j->api == API_CHAT) {
        buf_add_c(out, "\"message\":{\"role\":\"assistant\",\"content\":");
        listen_add_message(c, out);
        buf_add_c(out, "},\"logprobs\":");
        if (j->logprobs) {
            buf_add_c(out, "{\"content\":[");
            buf_add_str(out, buf_str(&c->logprobs));
            buf_add_c(out, "],\"refusal\":null}");
        }
    } else {
        buf_add_c(out, "\"text\":\"");
        if (j->echo)
            json_add_escaped(out, buf_str(&p->echo));
        json_add_escaped(out, buf_str(&c->text));
        buf_add_c(out, "\",\"logprobs\":");
        if (j->logprobs)
            lists_add_json(out, j->echo ? &p->scores : NULL, &c->lists);
    }
    if (!j->logprobs)
        buf_add_c(out, "null");
    add_finish(out, c);
    buf_add_char(out, '}');
}

void job_reply(struct job *j)
{
    struct exchange *ex = j->ex;
    if (j->error.status) {
        reply_err(ex, &j->error);
        return;
    }
    struct err e;
    if (ledger_take(&ex->held, LEDGER_ANSWERS, j->n_kept, &e)) { /* both are there for a while */
        reply_err(ex, &e);
        return;
    }
    reply_json(ex, 200);
    struct buf *out = &ex->reply.body;
    add_head(j, out, object_name(j));
    for (uint32_t i = 0; i < j->n_prompts * j->n_told; i++)
        reply_choice(j, out, i);
    add_usage(j, out);
    buf_add_char(out, '}');
    release_collected(j);
}
