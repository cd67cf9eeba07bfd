/* Answers of an exchange; see exchange.h. */
#include "server/exchange.h"

#include <stdio.h>

#include "config/ledger.h"
#include "server/server.h"

void reply_json(struct exchange *ex, int http)
{
    buf_clear(&ex->reply.body);
    ex->reply.set = true;
    ex->reply.http = http;
    ex->reply.content_type = NULL;
    ex->reply.retry_after_s = 0;
}

void reply_problem_extra(struct exchange *ex, int problem_id, const struct err *e,
                         const char *extra)
{
    const struct problem *p = problem_find(problem_id);
    uint32_t retry_after_s = ex->reply.retry_after_s;
    reply_json(ex, p->http);
    ex->reply.retry_after_s = p->retry_after_s > retry_after_s ? p->retry_after_s : retry_after_s;
    problem_add_json(&ex->reply.body, p, e, extra);
}

void reply_problem(struct exchange *ex, int problem_id, const struct err *e)
{
    reply_problem_extra(ex, problem_id, e, "");
}

void reply_too_long(struct exchange *ex, const struct err *e, uint32_t n_prompt, uint32_t most)
{
    char extra[96];
    snprintf(extra, sizeof(extra), ",\"input_length\":%u,\"max_allowed\":%u", n_prompt, most);
    reply_problem_extra(ex, ERR_CONTEXT_LENGTH, e, extra);
}

void reply_err(struct exchange *ex, const struct err *e)
{
    reply_problem(ex, e->status, e);
}

void exchange_new_id(struct server *srv, char id[REQUEST_ID_CAP])
{
    uint64_t n = atomic_fetch_add_explicit(&srv->next_id, 1, memory_order_relaxed);
    snprintf(id, REQUEST_ID_CAP, "req-%016llx%08llx", (unsigned long long)srv->id_salt,
             (unsigned long long)n);
}

void reply_hold(struct exchange *ex)
{
    enum { SMALL_BYTES = 4096 };
    struct reply *reply = &ex->reply;
    struct err e;
    ledger_give(&ex->held, LEDGER_ANSWERS, ex->held.n_bytes[LEDGER_ANSWERS]);
    if (reply->body.len <= SMALL_BYTES)
        return;
    buf_fit(&reply->body);
    if (ledger_take(&ex->held, LEDGER_ANSWERS, reply->body.cap, &e)) {
        buf_release(&reply->body);
        reply_err(ex, &e);
    }
}

void exchange_release(struct exchange *ex)
{
    ledger_drop(&ex->held); /* the key's account may be another's once the grant is dropped */
    auth_drop(&ex->grant);
    buf_release(&ex->body);
    buf_release(&ex->ignored);
    buf_release(&ex->reply.body);
    buf_release(&ex->stash);
}
