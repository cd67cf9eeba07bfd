/* POST /v1/chat/completions: a conversation becomes one request. */
#include "server/api/api.h"

#include "server/exchange.h"
#include "server/api/messages.h"
#include "server/api/prefix.h"
#include "server/api/prepare.h"
#include "server/server.h"

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
