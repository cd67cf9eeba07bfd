/* Bodies and the ledger; see body.h. */
#include "server/http/body.h"

#include <string.h>

#include "base/mem.h"
#include "config/ledger.h"
#include "server/exchange.h"
#include "server/http/routes.h"
#include "server/limits.h"

/* Doubles, but not beyond the length that the head announced: most bodies are held without waste. */
static enum status grow(struct exchange *ex, size_t need, struct err *e)
{
    enum { LEAST_BYTES = 512 };
    struct buf *b = &ex->body;
    size_t cap = b->cap < LEAST_BYTES / 2 ? LEAST_BYTES : 2 * b->cap;
    if (ex->n_announced < cap)
        cap = (size_t)ex->n_announced + 1;
    if (cap < need)
        cap = need;
    enum status status = ledger_resize(&ex->held, LEDGER_BODIES, cap, e);
    if (status)
        return status;
    b->ptr = mem_realloc(b->ptr, cap);
    b->cap = cap;
    return OK;
}

enum status body_add(struct exchange *ex, const char *data, size_t n, struct err *e)
{
    size_t need = ex->body.len + n + 1; /* a NUL ends it */
    enum status status = need > ex->body.cap ? grow(ex, need, e) : OK;
    if (status)
        body_release(ex);
    else
        buf_add(&ex->body, data, n);
    return status;
}

static bool holds(const struct buf *body, const char *text)
{
    return memmem(body->ptr, body->len, text, strlen(text)) != NULL;
}

bool body_may_be_large(const struct exchange *ex)
{
    /* An escape may spell any of the others. */
    static const char *const costly[] = {"\\u",     "prefix",          "tools",
                                         "grammar", "guided_",         "json_schema",
                                         "regex",   "response_format", "structured_outputs",
                                         "dry_"};
    const struct buf *body = &ex->body;
    if (!body->len || body->len > LOOP_BODY_BYTES)
        return body->len > 0;
    if (strcmp(ex->route->label, "completions") == 0 && holds(body, "["))
        return true;
    for (size_t i = 0; i < sizeof(costly) / sizeof(costly[0]); i++)
        if (holds(body, costly[i]))
            return true;
    return false;
}

void body_release(struct exchange *ex)
{
    buf_release(&ex->body);
    ledger_give(&ex->held, LEDGER_BODIES, ex->held.n_bytes[LEDGER_BODIES]);
}
