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
#include "server/limits.h"
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
                             "\"prompt\" and \"messages\" are both given, but only one is allowed");
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

/* ---- what is kept of messages ---- */

/* Members that templates read by these names, a level each. */
static const char *const message_members[] = {
    "role",          "content",           "name",     "tool_calls",
    "tool_call_id",  "reasoning_content", "thinking", "reasoning",
    "function_call", "refusal",           NULL};
static const char *const call_members[] = {"id", "type", "function", "name", "arguments", NULL};

static const char *const part_members[] = {"type", "text", "refusal", NULL};

static bool is_one_of(struct str name, const char *const *list)
{
    while (*list && !str_eq_c(name, *list))
        list++;
    return *list != NULL;
}

static void add_known(struct buf *out, const struct json *v, const char *const *members);

static void add_member(struct buf *out, const struct json *m, const char *const *members)
{
    struct str name = json_key(m);
    json_add_string(out, name);
    buf_add_char(out, ':');
    if (str_eq_c(name, "tool_calls"))
        add_known(out, m, call_members);
    else if (str_eq_c(name, "content"))
        add_known(out, m, part_members);
    else if (str_eq_c(name, "function"))
        add_known(out, m, members);
    else
        json_add_value(out, m);
}

/* An object's known members, those of each object of an array, or the value as it is. */
static void add_known(struct buf *out, const struct json *v, const char *const *members)
{
    const char *comma = "";
    bool object = json_is(v, JSON_OBJECT);
    if (!object && !json_is(v, JSON_ARRAY)) {
        json_add_value(out, v);
        return;
    }
    buf_add_char(out, object ? '{' : '[');
    for (const struct json *m = json_first(v); m; m = json_next(m)) {
        if (object && !is_one_of(json_key(m), members))
            continue;
        buf_add_c(out, comma);
        comma = ",";
        if (object)
            add_member(out, m, members);
        else
            add_known(out, m, members);
    }
    buf_add_char(out, object ? '}' : ']');
}

/* Tokens of messages, alone or with a user's turn behind them. */
static enum status render(const struct exchange *ex, const struct params *given, struct str text,
                          bool followed, struct tokens *out)
{
    const struct json_limits limits = {.depth = JSON_DEPTH + 8, .n_nodes = 2 * JSON_NODES};
    struct params p = *given;
    struct json_doc *doc = NULL;
    struct buf all = {0};
    struct err e = {0};
    buf_add(&all, text.ptr, text.len - 1);
    buf_add_c(&all, followed ? ",{\"role\":\"user\",\"content\":\"a\"}]" : "]");
    enum status status = json_parse(buf_str(&all), limits, &doc, &e);
    if (!status) {
        p.messages = json_root(doc);
        p.add_generation_prompt = followed;
        status = messages_encode(ex->service, &p, out, &e);
    }
    json_free(doc);
    buf_release(&all);
    return status;
}

static bool same_prompt(const struct exchange *ex, const struct params *p, struct str a,
                        struct str b, bool followed)
{
    struct tokens x = {0}, y = {0};
    enum status first = render(ex, p, a, followed, &x), second = render(ex, p, b, followed, &y);
    bool same =
        first == second && x.n == y.n && (!x.n || memcmp(x.id, y.id, x.n * sizeof(*x.id)) == 0);
    tokens_release(&x);
    tokens_release(&y);
    return same;
}

/* Members that the template does not read stay out: they could be anything, of any size. */
static void keep_messages(const struct exchange *ex, const struct params *p, struct buf *out)
{
    struct buf known = {0};
    json_add_value(out, p->messages);
    add_known(&known, p->messages, message_members);
    if (known.len < out->len && same_prompt(ex, p, buf_str(out), buf_str(&known), false) &&
        same_prompt(ex, p, buf_str(out), buf_str(&known), true)) {
        buf_release(out);
        *out = known;
        return;
    }
    buf_release(&known);
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
        keep_messages(ex, p, &j->messages);
    if (!status)
        status = ledger_take(&ex->held, LEDGER_REQUESTS, j->messages.cap + j->salt.cap, e);
    if (!status)
        status = prepare_fill(ex, r, &tokens, e);
    tokens_release(&tokens);
    return status;
}

struct own_memory {
    struct str name; /* the one that is put */
    uint64_t n_bytes, n_old; /* of the others; of the one that it replaces */
};

static void add_memory(void *arg, const struct kv_named_prefix *p)
{
    struct own_memory *own = arg;
    uint64_t n = kv_named_prefix_memory(p);
    if (str_eq(p->name, own->name))
        own->n_old = n;
    else
        own->n_bytes += n;
}

/* Memory for a name, under prefix_lock: of the kind's share a key has at most what it leaves to others. */
static enum status take_memory(struct exchange *ex, const struct kv_named_prefix *p, struct err *e)
{
    struct ledger *l = ex->srv->ledger;
    struct own_memory own = {.name = p->name};
    uint64_t n = kv_named_prefix_memory(p);
    if (p->shared && l) {
        kv_named_each(ex->service->named, p->owner, add_memory, &own);
        uint64_t most = ledger_total(l) / 100 * ledger_kinds[LEDGER_NAMES].share;
        uint64_t all = ledger_used_by_kind(l, LEDGER_NAMES) - own.n_old + n;
        if (n > own.n_old && own.n_bytes + n > (most > all ? most - all : 0))
            return err_set_field(e, ERR_TOO_LARGE, NULL, "key_prefixes_full",
                                 "prefixes of this key would take %llu bytes of memory, more than "
                                 "is left for others",
                                 (unsigned long long)(own.n_bytes + n));
    }
    return ledger_take(&ex->srv->names, LEDGER_NAMES, n, e);
}

static enum status put_name(struct exchange *ex, struct kv_named_prefix *p,
                            struct kv_named_prefix **old, struct err *e)
{
    struct server *srv = ex->srv;
    mutex_lock(&srv->prefix_lock);
    enum status status = take_memory(ex, p, e);
    if (!status) {
        status = kv_named_put(ex->service->named, p, old, e);
        if (status || *old)
            ledger_give(&srv->names, LEDGER_NAMES, kv_named_prefix_memory(status ? p : *old));
    }
    if (!status)
        change_pins(ex->service, p, *old);
    mutex_unlock(&srv->prefix_lock);
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
                                .made_unix_s = clock_unix_s(),
                                .shared = ex->held.shared};
    if (p.domain)
        p.n_keys = sched_prefix_keys(ex->service->sched, r, p.n_tokens, keys);
    enum status status = put_name(ex, &p, &old, &e);
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
        ledger_give(&srv->names, LEDGER_NAMES, kv_named_prefix_memory(old));
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
