/* Checked parameters -> requests; see prepare.h. */
#include "server/api/prepare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "server/api/constraint.h"
#include "server/api/token_lists.h"
#include "server/api/tools.h"
#include "server/exchange.h"
#include "server/limits.h"
#include "server/server.h"
#include "server/service.h"

static enum status refuse(struct exchange *ex, const struct err *e)
{
    reply_err(ex, e);
    return e->status;
}

/* A bound and the option or word that sets it. */
struct bound {
    int64_t most;
    const char *name;
};

static int64_t word_of(const struct exchange *ex, enum policy_word word)
{
    const struct policy_tenant *t = ex->grant.tenant;
    return t->given[word] ? t->word[word] : INT64_MAX;
}

static struct bound lesser(struct bound a, int64_t most, const char *name)
{
    return most < a.most ? (struct bound){most, name} : a;
}

/* Sequences of the request's key that can run at once. */
static struct bound running_bound(const struct exchange *ex)
{
    struct bound b = {ex->srv->set->sched_max_running, "sched.max_running"};
    return lesser(b, word_of(ex, POLICY_max_running), "max_running of the key");
}

/* Before anything is sized by it. A batch holds all choices of a request at once. */
static enum status check_n(const struct exchange *ex, const struct params *p, struct err *e)
{
    struct bound b = {ex->srv->set->limits_n, "limits.n"}, running = running_bound(ex);
    b = lesser(b, running.most, running.name);
    const char *name = p->n > b.most ? "n" : "best_of";
    int64_t value = p->n > b.most ? p->n : p->best_of;
    if (value > b.most)
        return err_set_field(e, ERR_INVALID, name, "out_of_range",
                             "\"%s\" must be from 1 to %lld (%s), not %lld", name,
                             (long long)b.most, b.name, (long long)value);
    if (!p->given[FIELD_best_of])
        return OK;
    if (p->best_of < p->n)
        return err_set_field(e, ERR_INVALID, "best_of", "out_of_range",
                             "\"best_of\" is %lld, less than n, which is %lld",
                             (long long)p->best_of, (long long)p->n);
    if (p->stream && p->best_of > p->n)
        return err_set_field(
            e, ERR_INVALID, "best_of", "invalid_value",
            "\"best_of\" above n cannot be streamed: the best is known at the end");
    return OK;
}

/* The prompts of a list are queued at once, each for all of its choices: more than can run and wait
 * together would get 429 however often they are sent. */
static enum status check_count(const struct exchange *ex, const struct params *p,
                               uint32_t n_prompts, struct err *e)
{
    int64_t n = p->best_of > p->n ? p->best_of : p->n;
    int64_t all = ex->srv->set->sched_max_queued + ex->srv->set->sched_max_running / n;
    struct bound b = {all, "sched.max_queued and sched.max_running"};
    int64_t queued = word_of(ex, POLICY_max_queued);
    if (queued != INT64_MAX)
        b = lesser(b, queued + running_bound(ex).most / n, "max_queued and max_running of the key");
    if (n_prompts == 1 || n_prompts <= b.most)
        return OK;
    return err_set_field(e, ERR_INVALID, "prompt", "out_of_range",
                         "\"prompt\" has %u prompts of %lld choices each, at most %lld of them can "
                         "run and wait together (%s)",
                         n_prompts, (long long)n, (long long)b.most, b.name);
}

enum status prepare_job(struct exchange *ex, enum api api, const struct params *p,
                        uint32_t n_prompts, struct err *e)
{
    enum status status = check_count(ex, p, n_prompts, e);
    if (!status)
        status = ledger_take(&ex->held, LEDGER_REQUESTS, job_memory(p, n_prompts), e);
    if (!status)
        ex->job = job_new(ex, api, p, n_prompts);
    return status;
}

enum status prepare_params(struct exchange *ex, enum api api, struct json_doc **doc,
                           struct params *p)
{
    struct err e = {0};
    const struct json_limits limits = {.depth = JSON_DEPTH, .n_nodes = JSON_NODES};
    *doc = NULL;
    params_init(p);
    if (json_parse(buf_str(&ex->body), limits, doc, &e)) {
        snprintf(e.code, sizeof(e.code), "invalid_json");
        return refuse(ex, &e);
    }
    if (params_read(p, api, json_root(*doc), &ex->ignored, &e) || prepare_model(ex, p, &e) ||
        check_n(ex, p, &e))
        return refuse(ex, &e);
    return OK;
}

enum status prepare_model(struct exchange *ex, const struct params *p, struct err *e)
{
    const struct server *srv = ex->srv;
    const struct service *v =
        service_find(srv->service, srv->n_services, p->given[FIELD_model] ? &p->model : NULL, NULL);
    if (v)
        ex->service = v;
    if (v || srv->set->model_any_name)
        return OK;
    return err_set_field(e, ERR_NOT_FOUND, "model", "model_not_found",
                         "the model \"%.*s\" does not exist, this server has \"%s\"",
                         (int)p->model.len, p->model.ptr, ex->service->id[0]);
}

/* ---- stop ---- */

static enum status add_stop(const struct json *v, const char *path, struct request *r,
                            struct buf *text, struct err *e)
{
    if (!json_is(v, JSON_STRING))
        return err_set_field(e, ERR_INVALID, path, "invalid_type", "\"%s\" must be a string", path);
    struct str s = json_string(v);
    if (s.len == 0 || s.len > STOP_MAX_BYTES)
        return err_set_field(e, ERR_INVALID, path, "out_of_range",
                             "\"%s\" must have 1 to %d bytes, not %zu", path, STOP_MAX_BYTES,
                             s.len);
    if (memchr(s.ptr, 0, s.len))
        return err_set_field(e, ERR_INVALID, path, "invalid_value", "\"%s\" holds a NUL character",
                             path);
    struct stop_set *set = &r->stops;
    set->s[set->n++] = (struct str){NULL, s.len};
    if (s.len > set->longest)
        set->longest = (uint32_t)s.len;
    buf_add_str(text, s);
    return OK;
}

static enum status read_stops(const struct server *srv, const struct json *v, struct request *r,
                              struct err *e)
{
    int64_t most = srv->set->limits_stops;
    struct buf text = {0};
    enum status status = OK;
    if (most > STOP_MAX_STRINGS)
        most = STOP_MAX_STRINGS;
    if (json_is(v, JSON_ARRAY) && (int64_t)json_count(v) > most)
        return err_set_field(e, ERR_INVALID, "stop", "out_of_range",
                             "\"stop\" has %zu strings, at most %lld are allowed", json_count(v),
                             (long long)most);
    if (json_is(v, JSON_STRING)) {
        status = add_stop(v, "stop", r, &text, e);
    } else if (json_is(v, JSON_ARRAY)) {
        size_t i = 0;
        for (const struct json *m = json_first(v); m && !status; m = json_next(m)) {
            char path[32];
            snprintf(path, sizeof(path), "stop[%zu]", i++);
            status = add_stop(m, path, r, &text, e);
        }
    } else {
        status = err_set_field(e, ERR_INVALID, "stop", "invalid_type",
                               "\"stop\" must be a string or an array of strings");
    }
    r->stop_text = buf_take(&text);
    size_t at = 0;
    for (uint32_t i = 0; i < r->stops.n; i++) {
        r->stops.s[i].ptr = r->stop_text + at;
        at += r->stops.s[i].len;
    }
    return status;
}

/* ---- ids ---- */

enum status prepare_ids(const struct service *service, const struct json *array, const char *path,
                        struct tokens *out, struct err *e)
{
    int64_t top = (int64_t)service->n_vocab - 1;
    size_t i = 0;
    for (const struct json *v = json_first(array); v; v = json_next(v), i++) {
        int64_t id;
        if (json_is(v, JSON_NUMBER) && json_i64(v, 0, top, &id)) {
            tokens_add(out, (int32_t)id);
            continue;
        }
        char where[ERR_PARAM_CAP];
        struct str raw = json_raw(v);
        snprintf(where, sizeof(where), "%s[%zu]", path, i);
        return err_set_field(e, ERR_INVALID, where, "invalid_token_id",
                             "\"%s\" must be a token id from 0 to %lld, not %.*s", where,
                             (long long)top, (int)(raw.len < 32 ? raw.len : 32), raw.ptr);
    }
    return OK;
}

/* ---- combinations ---- */

static enum status check_together(enum api api, const struct params *p, struct err *e)
{
    int64_t asked = p->given[FIELD_max_completion_tokens] ? p->max_completion_tokens
                    : p->given[FIELD_max_tokens]          ? p->max_tokens
                                                          : INT64_MAX;
    if (p->given[FIELD_top_logprobs] && p->top_logprobs > 0 && !p->logprobs)
        return err_set_field(e, ERR_INVALID, "top_logprobs", "invalid_value",
                             "\"top_logprobs\" needs \"logprobs\" true");
    if (asked == 0 && !(api == API_COMPLETIONS && p->echo))
        return err_set_field(e, ERR_INVALID, "max_tokens", "out_of_range",
                             "\"max_tokens\" must be at least 1%s",
                             api == API_COMPLETIONS ? " without echo" : "");
    if (p->min_tokens > asked)
        return err_set_field(e, ERR_INVALID, "min_tokens", "out_of_range",
                             "\"min_tokens\" is %lld, more than max_tokens, which is %lld",
                             (long long)p->min_tokens, (long long)asked);
    if (p->given[FIELD_truncate_prompt_tokens] && (p->truncate_prompt_tokens == 0 || p->echo))
        return err_set_field(
            e, ERR_INVALID, "truncate_prompt_tokens", "invalid_value",
            "\"truncate_prompt_tokens\" must be -1 or at least 1, without \"echo\"");
    if (p->given[FIELD_overflow] && !str_eq_c(p->overflow, "stop") &&
        !str_eq_c(p->overflow, "sinks"))
        return err_set_field(e, ERR_INVALID, "overflow", "invalid_value",
                             "\"overflow\" must be \"stop\" or \"sinks\"");
    return OK;
}

/* Where no model recommends anything. */
static void fill_filters(const struct params *p, struct sampling_params *s)
{
    s->typical_p = (float)p->typical_p;
    s->xtc_probability = (float)p->xtc_probability;
    s->xtc_threshold = (float)p->xtc_threshold;
    s->top_n_sigma = (float)p->top_n_sigma;
    s->penalty_last_n = p->repeat_last_n > 0 ? (uint32_t)p->repeat_last_n : 0;
    if (!p->given[FIELD_repeat_last_n] || p->repeat_last_n != 0)
        return;
    s->presence_penalty = s->frequency_penalty = 0;
    s->repetition_penalty = 1;
}

/* The model's own recommendation stands where the request is silent. */
static void fill_sampling(const struct service *service, enum api api, const struct params *p,
                          struct sampling_params *s)
{
    const struct engine_info *info = service->info;
    /* Advice for a known model is for requests that say nothing of sampling: it is one whole. */
    bool silent = !p->given[FIELD_temperature] && !p->given[FIELD_top_p] &&
                  !p->given[FIELD_top_k] && !p->given[FIELD_min_p];
    bool take = silent || !info->sampling_advised;
    s->temperature = (float)p->temperature;
    s->top_p = (float)p->top_p;
    s->min_p = (float)p->min_p;
    s->top_k = (int32_t)p->top_k;
    if (take && !p->given[FIELD_temperature] && !isnan(info->sampling_temperature))
        s->temperature = info->sampling_temperature;
    if (take && !p->given[FIELD_top_p] && !isnan(info->sampling_top_p))
        s->top_p = info->sampling_top_p;
    if (!p->given[FIELD_min_p] && !isnan(info->sampling_min_p))
        s->min_p = info->sampling_min_p;
    if (!p->given[FIELD_top_k] && info->sampling_top_k > 0)
        s->top_k = info->sampling_top_k;
    /* The sampler takes (0, 1]: the smallest share above 0 keeps the most likely token only. */
    if (!(s->top_p > 0))
        s->top_p = 1e-30f;
    s->presence_penalty = (float)p->presence_penalty;
    s->frequency_penalty = (float)p->frequency_penalty;
    s->repetition_penalty = (float)p->repetition_penalty;
    fill_filters(p, s);
    s->n_top = -1;
    if (api == API_CHAT && p->logprobs)
        s->n_top = (int32_t)p->top_logprobs;
    if (api == API_COMPLETIONS && p->best_of > p->n)
        s->n_top = 0; /* choices are compared by the tokens' own */
    if (api == API_COMPLETIONS && p->given[FIELD_n_logprobs])
        s->n_top = (int32_t)p->n_logprobs;
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    CHECK(getrandom(&seed, sizeof(seed), 0) == sizeof(seed));
    return seed;
}

/* Bytes that only requests which may share prefixes have in common. A client can add to them and not
 * take away: lengths make the parts unambiguous. */
static void fill_salt(const struct exchange *ex, const struct params *p, struct request *r)
{
    struct buf salt = {0};
    int isolation = ex->srv->set->prefix_isolation;
    const struct policy_tenant *t = ex->grant.tenant;
    if (isolation == SET_ISOLATION_TENANT) {
        buf_printf(&salt, "t%u:", t->n_id);
        buf_add(&salt, t->id, t->n_id);
    }
    if (isolation != SET_ISOLATION_OFF && p->cache_salt.len) {
        buf_printf(&salt, "s%zu:", p->cache_salt.len);
        buf_add_str(&salt, p->cache_salt);
    }
    r->n_salt_bytes = (uint32_t)salt.len;
    if (salt.len)
        r->salt = buf_take(&salt);
}

/* What decides when it runs, and beside which requests. */
static void fill_service(const struct exchange *ex, const struct params *p, struct request *r)
{
    const struct settings *set = ex->srv->set;
    r->arrive_ns = ex->start_ns;
    if (set->server_queue_timeout)
        r->queue_deadline_ns = ex->start_ns + (uint64_t)set->server_queue_timeout * NS_PER_MS;
    if (p->given[FIELD_deadline_ms])
        r->deadline_ns = ex->start_ns + (uint64_t)p->deadline_ms * NS_PER_MS;
    r->priority = (int32_t)p->priority;
    r->reserve = p->kv_reserve;
    r->tenant = ex->grant.tenant->slot;
    r->tenant_uses = ex->grant.uses;
    atomic_fetch_add(r->tenant_uses, 1);
    fill_salt(ex, p, r);
}

struct gram_owner prepare_owner(const struct exchange *ex)
{
    return (struct gram_owner){.ledger = ex->srv->ledger,
                               .key = ex->held.key,
                               .shared = ex->held.shared,
                               .uses = ex->grant.uses};
}

enum status prepare_request(struct exchange *ex, enum api api, const struct params *p,
                            struct request *r, struct err *e)
{
    const struct server *srv = ex->srv;
    const struct gram_owner owner = prepare_owner(ex);
    enum status status = check_together(api, p, e);
    if (!status && p->stop)
        status = read_stops(srv, p->stop, r, e);
    if (!status)
        status = token_lists_read(ex->service, p, r, e);
    if (!status)
        status = constraint_read(ex->service, p, &owner, &r->grammar, e);
    if (!status && api == API_CHAT)
        status = tools_read(ex->service, p, &owner, &ex->job->tools, &r->grammar, e);
    if (status)
        return status;
    fill_sampling(ex->service, api, p, &r->sampling);
    r->sampling.seed = p->given[FIELD_seed] ? p->seed : random_seed();
    r->id = atomic_fetch_add_explicit(&ex->srv->next_id, 1, memory_order_relaxed);
    snprintf(r->name, sizeof(r->name), "%s", ex->id);
    fill_service(ex, p, r);
    r->n_choices = (uint32_t)(p->best_of > p->n ? p->best_of : p->n);
    r->ignore_eos = p->ignore_eos;
    r->include_stop = p->include_stop;
    r->skip_special = p->skip_special &&
                      !(api == API_CHAT && ex->job->tools.listens && ex->job->tools.control_marks);
    r->prompt_logprobs = api == API_COMPLETIONS && p->echo && p->given[FIELD_n_logprobs];
    return OK;
}

/* Twice the least that the scheduler takes: it pauses a sequence when the free room is below a quarter
 * of the ring, see made_room in job.c. */
static void size_ring(const struct service *service, struct request *r)
{
    uint32_t need = 2 * request_ring_bytes(r, service->tok);
    if (need <= r->ring.cap)
        return;
    byte_ring_release(&r->ring);
    byte_ring_init(&r->ring, need);
}

/* The request is complete: its memory, and what the scheduler will make for it, is its own from now on. */
static enum status charge(const struct exchange *ex, struct request *r, struct err *e)
{
    r->held = (struct ledger_hold){
        .ledger = ex->srv->ledger, .key = ex->held.key, .shared = ex->held.shared};
    return ledger_take(&r->held, LEDGER_REQUESTS, request_memory(r), e);
}

struct request *prepare_new(void)
{
    enum { LEAST_RING_BYTES = 4096 };
    return request_new(LEAST_RING_BYTES);
}

static enum status refuse_length(struct exchange *ex, const char *param, uint32_t n_prompt,
                                 uint32_t most, const struct limits_in_force *l, struct err *e)
{
    bool by_input = l->is.max_input <= most;
    err_set_field(e, ERR_CONTEXT_LENGTH, param, NULL,
                  "the prompt has %u tokens, at most %u are allowed (%s is %u)", n_prompt, most,
                  by_input ? l->input_from : l->context_from,
                  by_input ? l->is.max_input : l->is.max_context);
    reply_too_long(ex, e, n_prompt, most);
    return ERR_CONTEXT_LENGTH;
}

/* Longest prompt under the limits, with room for an output of at least so many tokens. */
static uint32_t longest_prompt(const struct limits_in_force *l, uint32_t n_output)
{
    uint32_t most = l->is.max_context - n_output;
    return l->is.max_input < most ? l->is.max_input : most;
}

/* Output beyond the context: what was cut out of it still counts for a key or a route that is allowed
 * less than the server's own context. */
static uint32_t longest_overflow(const struct exchange *ex, const struct limits_in_force *l,
                                 uint32_t n_prompt)
{
    return l->is.max_context < ex->service->max_context ? l->is.max_context - n_prompt
                                                        : OVERFLOW_MAX_TOKENS;
}

static void keep_end(struct request *r, int64_t n)
{
    if (n >= r->n_prompt)
        return;
    memmove(r->prompt, r->prompt + (r->n_prompt - n), (size_t)n * sizeof(*r->prompt));
    r->n_prompt = (uint32_t)n;
}

enum status prepare_prompt(struct exchange *ex, enum api api, const struct params *p,
                           struct request *r, struct tokens *tokens, struct err *e)
{
    const struct server *srv = ex->srv;
    const char *param = api == API_CHAT ? "messages" : "prompt";
    struct limits_in_force l;
    int64_t asked = p->max_tokens;
    if (api == API_CHAT && !p->given[FIELD_max_tokens])
        asked = srv->set->limits_default_max_tokens;
    if (p->given[FIELD_max_completion_tokens])
        asked = p->max_completion_tokens;
    r->prompt = tokens->id;
    r->n_prompt = tokens->n;
    *tokens = (struct tokens){0};
    if (r->n_prompt == 0)
        return err_set_field(e, ERR_INVALID, param, "empty_prompt", "the prompt has no tokens");
    policy_limits(ex->grant.policy, ex->grant.tenant,
                  api == API_CHAT ? ROUTE_CHAT : ROUTE_COMPLETIONS, ex->service->max_context, &l);
    uint32_t most = longest_prompt(&l, asked != 0), room = 0;
    if (p->given[FIELD_truncate_prompt_tokens])
        keep_end(r, p->truncate_prompt_tokens < 0 ? most : p->truncate_prompt_tokens);
    if (r->n_prompt > most)
        return refuse_length(ex, param, r->n_prompt, most, &l, e);
    if (asked > 0 && !sched_room(ex->service->sched, r->n_prompt, r->n_choices, &room)) {
        err_set_field(e, ERR_CONTEXT_LENGTH, param, NULL,
                      "%u choices of a prompt of %u tokens do not fit into the KV blocks",
                      r->n_choices, r->n_prompt);
        r->max_tokens = 1; /* the least that could be asked for */
        reply_too_long(ex, e, r->n_prompt, sched_longest_prompt(ex->service->sched, r));
        return ERR_CONTEXT_LENGTH;
    }
    if (l.is.max_context - r->n_prompt < room)
        room = l.is.max_context - r->n_prompt;
    uint32_t beyond = longest_overflow(ex, &l, r->n_prompt);
    if (asked > room && beyond > room && str_eq_c(p->overflow, "sinks")) {
        r->overflow_context = r->n_prompt + room;
        room = beyond;
    }
    if (l.is.max_output < room)
        room = l.is.max_output;
    r->max_tokens = asked < room ? (uint32_t)asked : room;
    r->min_tokens = p->min_tokens < r->max_tokens ? (uint32_t)p->min_tokens : r->max_tokens;
    size_ring(ex->service, r);
    return charge(ex, r, e);
}

enum status prepare_fill(struct exchange *ex, struct request *r, struct tokens *tokens,
                         struct err *e)
{
    struct limits_in_force l;
    uint32_t n = tokens->n;
    if (n == 0)
        return err_set_field(e, ERR_INVALID, "prompt", "empty_prompt", "the prefix has no tokens");
    tokens_add(tokens, tokens->id[0]); /* the last one is not computed */
    r->prompt = tokens->id;
    r->n_prompt = tokens->n;
    *tokens = (struct tokens){0};
    policy_limits(ex->grant.policy, ex->grant.tenant, ROUTE_COMPLETIONS, ex->service->max_context,
                  &l);
    uint32_t most = longest_prompt(&l, 1);
    if (n > most)
        return refuse_length(ex, "prompt", n, most, &l, e);
    r->fill = true;
    size_ring(ex->service, r);
    return charge(ex, r, e);
}
