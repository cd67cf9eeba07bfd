/* POST /v1/chat/completions: a conversation becomes one request. */
#include "server/api/api.h"

#include "engine/template/template.h"
#include "server/exchange.h"
#include "server/api/messages.h"
#include "server/api/prefix.h"
#include "server/api/prepare.h"
#include "server/server.h"
#include "server/service.h"

/* Text of the last tokens, enough for a mark and blanks behind it. */
static void add_tail(const struct tokenizer *tok, const struct tokens *tokens, struct buf *out)
{
    enum { N_TAIL = 16 };
    for (uint32_t i = tokens->n > N_TAIL ? tokens->n - N_TAIL : 0; i < tokens->n; i++)
        buf_add_str(out, tokenizer_bytes(tok, tokens->id[i]));
}

/* Reasoning is split off where the template knows it. An answer that a grammar constrains has none: where the
 * prompt opens it, it is closed. */
static enum status prepare_reasoning(const struct service *service, const struct params *p,
                                     struct job *j, bool constrained, struct tokens *tokens,
                                     struct err *e)
{
    const struct encode_options options = {.parse_special = true};
    struct buf tail = {0};
    if (p->continue_final || !template_mentions(service->tmpl, THINK_OPEN))
        return OK;
    add_tail(service->tok, tokens, &tail);
    bool opened = think_is_open(buf_str(&tail));
    buf_release(&tail);
    if (constrained)
        return opened ? tokenizer_encode(service->tok, STR_LIT("\n" THINK_CLOSE "\n\n"), &options,
                                         tokens, e)
                      : OK;
    j->thinks = true;
    j->think_opened = opened;
    return OK;
}

static enum status prepare(struct exchange *ex, const struct params *p, struct err *e)
{
    struct tokens tokens = {0};
    struct job *j = ex->job;
    struct request *r = prepare_new();
    j->prompt[0].req = r;
    enum status status = prepare_request(ex, API_CHAT, p, r, e);
    if (!status)
        status = messages_encode(ex->service, p, &tokens, e);
    if (!status)
        status = prepare_reasoning(ex->service, p, j, r->grammar != NULL, &tokens, e);
    if (!status)
        status = tools_open_prompt(ex->service, &j->tools, &tokens, e);
    if (!status)
        status = prepare_prompt(ex, API_CHAT, p, r, &tokens, e);
    tokens_release(&tokens);
    return status;
}

void api_chat(struct exchange *ex)
{
    struct json_doc *doc;
    struct params p;
    struct prefix_use use = {0};
    struct err e = {0};
    if (prepare_params(ex, API_CHAT, &doc, &p) == OK) {
        enum status status = prefix_use(ex, API_CHAT, &p, &use, &e);
        if (!status)
            status = prepare_job(ex, API_CHAT, &p, 1, &e);
        if (!status)
            status = prepare(ex, &p, &e);
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
