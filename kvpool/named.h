/* Named prefixes: token ids under a name (PUT /v1/prefixes/NAME), which requests can begin with.
 * They outlive the process as kv/names/OWNER-NAME (hex digits) under prefix.disk.path, one file
 * each, written whole or not at all, mode 0600; without a folder they live in memory.
 *
 * A name belongs to an owner (a tenant's name, "" for everybody's); nobody else sees it. The table
 * also keeps the chain keys of the prefix's blocks, so that the disk cache can pin them at a start
 * (kvpool/disk.h), and the domain they belong to: keys of another model, layout or secret mean
 * nothing.
 *
 * Thread: any, but not the engine thread: put and delete wait for the disk. */
#ifndef KVPOOL_NAMED_H
#define KVPOOL_NAMED_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "kvpool/cache.h"

enum {
    KV_NAMED_MAX = 1024, /* names in all */
    KV_NAMED_OWNER_BYTES = 48,
    KV_NAMED_NAME_BYTES = 64,
    KV_NAMED_SALT_BYTES = 512,
    KV_NAMED_MESSAGES_BYTES = 4 << 20,
    KV_NAMED_TOKENS = 1 << 20, /* of one prefix */
    KV_NAMED_ALL_TOKENS = 1 << 22 /* of all together */
};

struct kv_named;

/* Views: of the caller's memory when handed in, of its own allocation when handed out. */
struct kv_named_prefix {
    struct str owner, name; /* 1..KV_NAMED_NAME_BYTES bytes of any kind; owner may be empty */
    struct str salt; /* cache_salt that came with it */
    struct str messages; /* JSON text it was rendered from; empty: none */
    const int32_t *tokens;
    uint32_t n_tokens;
    const struct kv_key *keys; /* of its full blocks, in order */
    uint32_t n_keys;
    uint64_t domain; /* kv_disk_domain(), or 0 */
    int64_t made_unix_s;
    uint64_t place; /* the table's own: order in which names came, kept when one is put again */
};

/* path: prefix.disk.path, "" none. Files that are not sound are left out with a warning. Errors:
 * ERR_IO, ERR_BUSY (another process has the folder). */
enum status kv_named_open(const char *path, struct kv_named **out, struct err *e);
void kv_named_close(struct kv_named *n); /* NULL is fine */

/* Adds p or replaces the one of the same owner and name. *old (may be NULL): the one that was
 * replaced, or NULL; the caller frees it. Errors: ERR_INVALID (a length), ERR_TOO_LARGE (a bound),
 * ERR_IO. */
enum status kv_named_put(struct kv_named *n, const struct kv_named_prefix *p,
                         struct kv_named_prefix **old, struct err *e);
/* A copy for the caller to free, or ERR_NOT_FOUND. */
enum status kv_named_get(struct kv_named *n, struct str owner, struct str name,
                         struct kv_named_prefix **out, struct err *e);
/* *old as above. ERR_NOT_FOUND, ERR_IO. */
enum status kv_named_delete(struct kv_named *n, struct str owner, struct str name,
                            struct kv_named_prefix **old, struct err *e);
void kv_named_prefix_free(struct kv_named_prefix *p); /* NULL is fine */
/* fn for each of an owner's, in order of place; it must not call in here. */
void kv_named_each(struct kv_named *n, struct str owner,
                   void (*fn)(void *arg, const struct kv_named_prefix *p), void *arg);

/* For kvpool/disk.c at its start, before other threads run. */
uint64_t kv_named_n_keys(const struct kv_named *n);
void kv_named_each_key(const struct kv_named *n,
                       void (*fn)(void *arg, uint64_t domain, const struct kv_key *key), void *arg);

#endif
