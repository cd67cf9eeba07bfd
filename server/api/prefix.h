/* Named prefixes in requests: the field `prefix` of completions and chat. Their endpoints stand in
 * api_prefixes.c. Thread: any. */
#ifndef SERVER_API_PREFIX_H
#define SERVER_API_PREFIX_H

#include "kvpool/named.h"
#include "server/api/fields.h"

struct exchange;

/* What a request's parameters borrow while it is prepared. */
struct prefix_use {
    struct kv_named_prefix *named; /* owns; NULL: none is named */
    struct json_doc *messages; /* owns: chat, its messages and the request's */
};

/* Who the prefixes of this exchange belong to: a key's name, or a hash of a key that has none. */
enum { PREFIX_OWNER_CAP = KV_NAMED_OWNER_BYTES + 1 };
struct str prefix_owner(const struct exchange *ex, char text[PREFIX_OWNER_CAP]);
/* 1 to 64 letters, digits, `_`, `.` and `-`. param: what is wrong then. */
enum status prefix_check_name(struct str name, const char *param, struct err *e);
/* ERR_NOT_FOUND, code prefix_not_found. */
enum status prefix_get(const struct exchange *ex, struct str name, const char *param,
                       struct kv_named_prefix **out, struct err *e);

/* Looks up p->prefix, if it is given: sets p->named, and p->cache_salt where the request has none; for
 * chat puts the prefix's messages in front of p->messages. u zeroed; release it after the last use of
 * p. */
enum status prefix_use(const struct exchange *ex, enum api api, struct params *p,
                       struct prefix_use *u, struct err *e);
void prefix_release(struct prefix_use *u);

#endif
