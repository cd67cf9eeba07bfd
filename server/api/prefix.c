/* The field `prefix` of requests; see prefix.h. */
#include "server/api/prefix.h"

#include <stdio.h>
#include <string.h>

#include "base/siphash.h"
#include "server/exchange.h"
#include "server/limits.h"
#include "server/server.h"
#include "server/service.h"

/* Tenants of keys without a name are distinguished by the key itself, which no file may show. */
struct str prefix_owner(const struct exchange *ex, char text[PREFIX_OWNER_CAP])
{
    const struct policy_tenant *t = ex->grant.tenant;
    uint64_t hash[2];
    if (t->id[0] == 'n') {
        snprintf(text, PREFIX_OWNER_CAP, "%s", t->name);
        return str_of(text);
    }
    siphash_128(ex->service->prefix_secret, t->id, t->n_id, hash);
    snprintf(text, PREFIX_OWNER_CAP, "key:%016llx%016llx", (unsigned long long)hash[0],
             (unsigned long long)hash[1]);
    return str_of(text);
}

enum status prefix_check_name(struct str name, const char *param, struct err *e)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    bool ok = name.len >= 1 && name.len <= KV_NAMED_NAME_BYTES;
    for (size_t i = 0; ok && i < name.len; i++)
        ok = name.ptr[i] && strchr(allowed, name.ptr[i]);
    if (ok)
        return OK;
    return err_set_field(e, ERR_INVALID, param, "invalid_value",
                         "a prefix's name has 1 to %d letters, digits, _ . -", KV_NAMED_NAME_BYTES);
}

enum status prefix_get(const struct exchange *ex, struct str name, const char *param,
                       struct kv_named_prefix **out, struct err *e)
{
    char owner[PREFIX_OWNER_CAP];
    enum status status = prefix_check_name(name, param, e);
    if (status)
        return status;
    status = kv_named_get(ex->service->named, prefix_owner(ex, owner), name, out, NULL);
    if (status)
        return err_set_field(e, ERR_NOT_FOUND, param, "prefix_not_found",
                             "there is no prefix \"%.*s\"", (int)name.len, name.ptr);
    for (uint32_t i = 0; i < (*out)->n_tokens; i++) {
        if ((uint32_t)(*out)->tokens[i] < ex->service->n_vocab)
            continue;
        kv_named_prefix_free(*out);
        *out = NULL;
        return err_set_field(e, ERR_NOT_FOUND, param, "prefix_not_found",
                             "the prefix \"%.*s\" was made with another vocabulary", (int)name.len,
                             name.ptr);
    }
    return OK;
}

/* [a, b] and [c] -> [a, b, c] */
static enum status join_messages(struct params *p, struct prefix_use *u, struct err *e)
{
    const struct json_limits limits = {.depth = JSON_DEPTH + 8, .n_nodes = 2 * JSON_NODES};
    struct str first = u->named->messages;
    struct buf all = {0};
    if (!json_is(p->messages, JSON_ARRAY) || json_count(p->messages) == 0)
        return OK; /* refused where messages are read */
    struct str rest = json_raw(p->messages);
    buf_add(&all, first.ptr, first.len - 1);
    buf_add_char(&all, ',');
    buf_add(&all, rest.ptr + 1, rest.len - 1);
    enum status status = json_parse(buf_str(&all), limits, &u->messages, e);
    if (!status)
        p->messages = json_root(u->messages);
    buf_release(&all);
    return status;
}

enum status prefix_use(const struct exchange *ex, enum api api, struct params *p,
                       struct prefix_use *u, struct err *e)
{
    if (!p->given[FIELD_prefix])
        return OK;
    enum status status = prefix_get(ex, p->prefix, "prefix", &u->named, e);
    if (status)
        return status;
    p->named = u->named;
    if (!p->given[FIELD_cache_salt])
        p->cache_salt = u->named->salt;
    if (api != API_CHAT)
        return OK;
    if (u->named->messages.len == 0)
        return err_set_field(e, ERR_INVALID, "prefix", "invalid_value",
                             "the prefix \"%.*s\" was made from a prompt: chat takes prefixes made "
                             "from messages",
                             (int)p->prefix.len, p->prefix.ptr);
    return join_messages(p, u, e);
}

void prefix_release(struct prefix_use *u)
{
    kv_named_prefix_free(u->named);
    json_free(u->messages);
}
