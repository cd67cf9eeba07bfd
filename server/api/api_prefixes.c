/* /v1/prefixes: prompts and conversations under a name. Names belong to the key's tenant.
 *
 * PUT computes the prefix (a request without output), so that its KV is in the prefix cache when it
 * answers, then writes the table on the offload thread. With a disk prefix cache its blocks are pinned
 * there: kept whatever room they take, also by the next process. */
#include "server/api/api.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "config/metrics.h"
#include "scheduler/snapshot.h"
#include "server/exchange.h"
#include "server/api/messages.h"
#include "server/api/prefix.h"
#include "server/api/prepare.h"
#include "server/server.h"
#include "server/service.h"

static void add_prefix(struct buf *out, const struct kv_named_prefix *p)
{
    buf_add_c(out, "{\"object\":\"prefix\",\"name\":");
    json_add_string(out, p->name);
    buf_printf(out, ",\"created\":%lld,\"tokens\":%u", (long long)p->made_unix_s, p->n_tokens);
    buf_printf(out, ",\"kind\":\"%s\"", p->messages.len ? "messages" : "prompt");
}

/* ---- pins ---- */

static void pins_done(struct sched_ask *a, void *arg)
{
    (void)arg;
    mem_free(a);
}

/* Under prefix_lock. Either may be NULL, or of another model: then there is nothing to do for it. */
static void change_pins(const struct service *v, const struct kv_named_prefix *now,
                        const struct kv_named_prefix *old)
{
    uint64_t domain = v->prefix_domain;
    uint32_t n_pin = now ? now->n_keys : 0;
    uint32_t n_unpin = old && old->domain == domain ? old->n_keys : 0;
    if (domain == 0 || n_pin + n_unpin == 0)
        return;
    size_t n_bytes = mem_mul((size_t)n_pin + n_unpin, sizeof(struct kv_key));
    struct sched_ask *a = mem_zalloc(sizeof(*a) + n_bytes);
    struct kv_key *key = (struct kv_key *)(a + 1);
    if (n_pin)
        memcpy(key, now->keys, n_pin * sizeof(*key));
    if (n_unpin)
        memcpy(key + n_pin, old->keys, n_unpin * sizeof(*key));
    a->kind = ASK_PINS;
    a->item.key = key;
    a->n_pin = n_pin;
    a->n_unpin = n_unpin;
    a->done = pins_done;
    sched_ask(v->sched, a);
}

/* Those of blocks are counted by the engine thread. */
static void count_fault(const struct server *srv, enum status status)
{
    if (status == ERR_IO)
        metrics_add(srv->metrics, METRIC_DISK_ERRORS, NULL, 1);
}

/* ---- PUT ---- */

/* Ids, a text, or messages rendered without opening the next turn. */
static enum status encode(struct exchange *ex, struct params *p, struct tokens *out, struct err *e)
{
    if (p->messages && p->prompt)
        return err_set_field(e, ERR_INVALID, "messages", "invalid_value",
                             "\"prompt\" and \"messages\" are both given, one is wanted");
    p->add_generation_prompt = false;
    if (p->messages)
        return messages_encode(ex->service, p, out, e);
    if (!p->prompt)
        return err_set_field(e, ERR_INVALID, "prompt", "missing",
                             "\"prompt\" or \"messages\" is required");
    if (json_is(p->prompt, JSON_ARRAY))
        return prepare_ids(ex->service, p->prompt, "prompt", out, e);
    if (!json_is(p->prompt, JSON_STRING))
        return err_set_field(e, ERR_INVALID, "prompt", "invalid_type",
                             "\"prompt\" must be a string or a list of token ids");
    const struct encode_options options = {
        .add_special = p->add_special,
        .parse_special = p->parse_special,
    };
    return tokenizer_encode(ex->service->tok, json_string(p->prompt), &options, out, e);
}

static enum status prepare(struct exchange *ex, struct params *p, struct err *e)
{
    struct tokens tokens = {0};
    struct job *j = ex->job;
    struct request *r = prepare_new();
    j->prompt[0].req = r;
    buf_add_str(&j->salt, p->cache_salt);
    enum status status = prefix_check_name(str_of(ex->path_arg), "name", e);
    if (!status)
        status = prepare_request(ex, API_PREFIXES, p, r, e);
    if (!status)
        status = encode(ex, p, &tokens, e);
    if (!status && p->messages)
        json_add_value(&j->messages, p->messages);
    if (!status)
        status = ledger_take(&ex->held, LEDGER_REQUESTS, j->messages.cap + j->salt.cap, e);
    if (!status)
        status = prepare_fill(ex, r, &tokens, e);
    tokens_release(&tokens);
    return status;
}

/* The prefix is computed: it gets its name. */
static void keep(struct exchange *ex)
{
    struct server *srv = ex->srv;
    const struct job *j = ex->job;
    const struct request *r = j->prompt[0].req;
    struct kv_named_prefix *old = NULL;
    char owner[PREFIX_OWNER_CAP];
    struct err e = {0};
    struct kv_key *keys = mem_alloc(mem_mul(r->n_prompt, sizeof(*keys)));
    struct kv_named_prefix p = {.owner = prefix_owner(ex, owner),
                                .name = str_of(ex->path_arg),
                                .salt = buf_str(&j->salt),
                                .messages = buf_str(&j->messages),
                                .tokens = r->prompt,
                                .n_tokens = r->n_prompt - 1,
                                .keys = keys,
                                .domain = ex->service->prefix_domain,
                                .made_unix_s = clock_unix_s()};
    if (p.domain)
        p.n_keys = sched_prefix_keys(ex->service->sched, r, p.n_tokens, keys);
    mutex_lock(&srv->prefix_lock);
    enum status status = kv_named_put(ex->service->named, &p, &old, &e);
    if (!status)
        change_pins(ex->service, &p, old);
    mutex_unlock(&srv->prefix_lock);
    count_fault(srv, status);
    if (status) {
        reply_err(ex, &e);
    } else {
        reply_json(ex, 200);
        add_prefix(&ex->reply.body, &p);
        buf_printf(&ex->reply.body, ",\"cached_tokens\":%llu}",
                   (unsigned long long)j->n_cached_tokens);
    }
    kv_named_prefix_free(old);
    mem_free(keys);
}

void api_prefix_put(struct exchange *ex)
{
    struct json_doc *doc;
    struct params p;
    struct err e = {0};
    if (ex->job) {
        keep(ex);
        return;
    }
    if (prepare_params(ex, API_PREFIXES, &doc, &p) == OK) {
        enum status status = prepare_job(ex, API_PREFIXES, &p, 1, &e);
        if (!status)
            status = prepare(ex, &p, &e);
        if (status && !ex->reply.set)
            reply_err(ex, &e);
        if (status) {
            job_free(ex->job);
            ex->job = NULL;
        }
    }
    json_free(doc);
}

/* ---- the others ---- */

void api_prefix_delete(struct exchange *ex)
{
    struct server *srv = ex->srv;
    struct kv_named_prefix *old = NULL;
    char owner[PREFIX_OWNER_CAP];
    struct str name = str_of(ex->path_arg);
    struct err e = {0};
    mutex_lock(&srv->prefix_lock);
    enum status status =
        kv_named_delete(ex->service->named, prefix_owner(ex, owner), name, &old, &e);
    if (!status)
        change_pins(ex->service, NULL, old);
    mutex_unlock(&srv->prefix_lock);
    count_fault(srv, status);
    if (status == ERR_NOT_FOUND)
        err_set_field(&e, status, "name", "prefix_not_found", "there is no prefix \"%.*s\"",
                      KV_NAMED_NAME_BYTES, name.ptr);
    if (status) {
        reply_err(ex, &e);
    } else {
        reply_json(ex, 200);
        buf_add_c(&ex->reply.body, "{\"object\":\"prefix\",\"name\":");
        json_add_string(&ex->reply.body, name);
        buf_add_c(&ex->reply.body, ",\"deleted\":true}");
    }
    kv_named_prefix_free(old);
}

void api_prefix(struct exchange *ex)
{
    struct kv_named_prefix *p = NULL;
    struct err e = {0};
    if (prefix_get(ex, str_of(ex->path_arg), "name", &p, &e)) {
        reply_err(ex, &e);
        return;
    }
    reply_json(ex, 200);
    add_prefix(&ex->reply.body, p);
    buf_add_char(&ex->reply.body, '}');
    kv_named_prefix_free(p);
}

static void list_one(void *arg, const struct kv_named_prefix *p)
{
    struct buf *out = arg;
    if (out->ptr[out->len - 1] == '}')
        buf_add_char(out, ',');
    add_prefix(out, p);
    buf_add_char(out, '}');
}

void api_prefixes(struct exchange *ex)
{
    char owner[PREFIX_OWNER_CAP];
    reply_json(ex, 200);
    buf_add_c(&ex->reply.body, "{\"object\":\"list\",\"data\":[");
    kv_named_each(ex->service->named, prefix_owner(ex, owner), list_one, &ex->reply.body);
    buf_add_c(&ex->reply.body, "]}");
}
