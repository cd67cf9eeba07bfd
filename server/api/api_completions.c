/* POST /v1/completions: each prompt (text or token ids) becomes one request. */
#include "server/api/api.h"

#include <stdio.h>

#include "config/ledger.h"
#include "server/exchange.h"
#include "server/limits.h"
#include "server/api/prefix.h"
#include "server/api/prepare.h"
#include "server/server.h"
#include "server/service.h"

static bool holds_ids(const struct json *v)
{
    return json_is(v, JSON_ARRAY) && json_is(json_first(v), JSON_NUMBER);
}

/* Number of prompts in "prompt": a string or a list of ids is one. */
static enum status count_prompts(const struct params *p, uint32_t *n, struct err *e)
{
    const struct json *v = p->prompt;
    *n = 1;
    if (!v)
        return err_set_field(e, ERR_INVALID, "prompt", "missing", "\"prompt\" is required");
    if (json_is(v, JSON_STRING) || holds_ids(v))
        return OK;
    if (!json_is(v, JSON_ARRAY) || json_count(v) == 0)
        return err_set_field(e, ERR_INVALID, "prompt", "invalid_type",
                             "\"prompt\" must be a string, a list of strings, a list of token ids "
                             "or a list of such lists, and not empty");
    if (json_count(v) > MAX_PROMPTS)
        return err_set_field(e, ERR_INVALID, "prompt", "out_of_range",
                             "\"prompt\" has %zu prompts, at most %d are allowed", json_count(v),
                             MAX_PROMPTS);
    *n = (uint32_t)json_count(v);
    return OK;
}

static enum status encode_text(struct exchange *ex, const struct params *p, struct str text,
                               struct tokens *out, struct err *e)
{
    const struct tokenizer *tok = ex->service->tok;
    const struct encode_options options = {
        .add_special = p->add_special && (!p->named || p->given[FIELD_add_special_tokens]),
        .parse_special = p->parse_special,
    };
    enum status status = tokenizer_encode(tok, text, &options, out, e);
    /* An empty text of a model that adds no BOS: begin where a document begins. */
    if (!status && out->n == 0 && !p->named) {
        int32_t start = tokenizer_bos(tok) >= 0 ? tokenizer_bos(tok) : tokenizer_eos(tok);
        if (start >= 0)
            tokens_add(out, start);
    }
    return status;
}

/* The named prefix goes in front of a prompt. */
static enum status put_prefix(struct exchange *ex, const struct params *p, struct tokens *out,
                              struct buf *echo, struct err *e)
{
    if (!p->named)
        return OK;
    for (uint32_t i = 0; i < p->named->n_tokens; i++)
        tokens_add(out, p->named->tokens[i]);
    if (!p->echo)
        return OK;
    return tokenizer_decode(ex->service->tok, out->id, out->n, false, echo, e);
}

static enum status add_prompt(struct exchange *ex, const struct params *p, const struct json *v,
                              const char *path, struct tokens *out, struct buf *echo, struct err *e)
{
    uint32_t n = out->n;
    if (json_is(v, JSON_STRING)) {
        if (p->echo)
            buf_add_str(echo, json_string(v));
        return encode_text(ex, p, json_string(v), out, e);
    }
    if (!json_is(v, JSON_ARRAY))
        return err_set_field(e, ERR_INVALID, path, "invalid_type",
                             "\"%s\" must be a string or a list of token ids", path);
    enum status status = prepare_ids(ex->service, v, path, out, e);
    if (status || !p->echo)
        return status;
    return tokenizer_decode(ex->service->tok, out->id + n, out->n - n, false, echo, e);
}

/* The text, and for a stream the chunk that has all of it, in which a byte takes up to six (\u0001): the
 * socket may take nothing of it. One chunk at a time is kept, so the longest counts. */
static enum status hold_echo(struct exchange *ex, const struct buf *echo, struct err *e)
{
    enum { ESCAPED_BYTES = 6 };
    struct job *j = ex->job;
    uint64_t n_chunk = j->stream ? ESCAPED_BYTES * echo->len : 0;
    uint64_t n_more = n_chunk > j->n_echo_held ? n_chunk - j->n_echo_held : 0;
    enum status status = ledger_take(&ex->held, LEDGER_REQUESTS, echo->cap + n_more, e);
    if (!status)
        j->n_echo_held += n_more;
    return status;
}

static enum status prepare_one(struct exchange *ex, const struct params *p, const struct json *v,
                               const char *path, struct job_prompt *out, struct err *e)
{
    struct tokens tokens = {0};
    struct request *r = prepare_new();
    out->req = r;
    enum status status = prepare_request(ex, API_COMPLETIONS, p, r, e);
    if (status)
        return status;
    status = put_prefix(ex, p, &tokens, &out->echo, e);
    if (!status)
        status = add_prompt(ex, p, v, path, &tokens, &out->echo, e);
    if (!status)
        status = prepare_prompt(ex, API_COMPLETIONS, p, r, &tokens, e);
    if (!status)
        status = hold_echo(ex, &out->echo, e);
    tokens_release(&tokens);
    return status;
}

static enum status prepare_all(struct exchange *ex, const struct params *p, struct err *e)
{
    struct job *j = ex->job;
    const struct json *v = p->prompt;
    if (!json_is(v, JSON_ARRAY) || holds_ids(v))
        return prepare_one(ex, p, v, "prompt", &j->prompt[0], e);
    const struct json *m = json_first(v);
    enum status status = OK;
    for (uint32_t i = 0; i < j->n_prompts && !status; i++, m = json_next(m)) {
        char path[32];
        snprintf(path, sizeof(path), "prompt[%u]", i);
        status = prepare_one(ex, p, m, path, &j->prompt[i], e);
    }
    return status;
}

void api_completions(struct exchange *ex)
{
    struct json_doc *doc;
    struct params p;
    struct err e = {0};
    uint32_t n_prompts;
    struct prefix_use use = {0};
    if (prepare_params(ex, API_COMPLETIONS, &doc, &p) == OK) {
        enum status status = count_prompts(&p, &n_prompts, &e);
        if (!status)
            status = prefix_use(ex, API_COMPLETIONS, &p, &use, &e);
        if (!status)
            status = prepare_job(ex, API_COMPLETIONS, &p, n_prompts, &e);
        if (!status)
            status = prepare_all(ex, &p, &e);
        if (status && !ex->reply.set)
            reply_err(ex, &e);
        if (status) {
            job_free(ex->job);
            ex->job = NULL;
        }
    }
    prefix_release(&use);
    json_free(doc);
}
