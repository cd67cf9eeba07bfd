/* Named prefixes: token ids under a name (PUT /v1/prefixes/NAME), which requests can start with.
 * They outlive the process as kv/names/MODEL-OWNER-NAME (hex digits) under prefix.disk.path, one file
 * each, written whole or not at all, mode 0600; without a folder they exist in memory only.
 *
 * A name belongs to a model and an owner (a tenant's name, or "" for a shared one). Token ids mean nothing
 * to another model or tokenizer: names of other models in the same folder are not visible, replaced or
 * deleted, but their files count and their blocks stay pinned. The chat template is not part of the name:
 * chat renders the messages of a prefix again, and a prefix rendered earlier remains readable to the model.
 *
 * The table also keeps the chain keys of the prefix's blocks, so that the disk cache can pin them at
 * start (kvpool/disk.h), and their domain: keys of another model, layout or secret mean
 * nothing. Files take at most their share of prefix.disk.bytes.
 *
 * Thread: any, but not the engine thread: put and delete wait for the disk. */
#ifndef KVPOOL_NAMED_H
#define KVPOOL_NAMED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "kvpool/cache.h"

enum {
    KV_NAMED_MAX = 1024, /* limit of names */
    KV_NAMED_OWNER_BYTES = 48,
    KV_NAMED_NAME_BYTES = 64,
    KV_NAMED_SALT_BYTES = 512,
    KV_NAMED_MESSAGES_BYTES = 4 << 20,
    KV_NAMED_TOKENS = 1 << 20, /* of one prefix */
    KV_NAMED_ALL_TOKENS = 1 << 22 /* of all prefixes together */
};

struct kv_named;

/* Views: of the caller's memory when passed in, of its own allocation when returned. */
struct kv_named_prefix {
    struct str owner, name; /* 1..KV_NAMED_NAME_BYTES bytes of any kind; owner may be empty */
    struct str salt; /* cache_salt of the request that made it */
    struct str messages; /* the JSON text that it was rendered from; empty: none */
    const int32_t *tokens;
    uint32_t n_tokens;
    const struct kv_key *keys; /* of its full blocks, in order */
    uint32_t n_keys;
    uint64_t domain; /* kv_disk_domain(), or 0 */
    int64_t made_unix_s;
    bool shared; /* passed in: others have names too, so an owner uses at most what stays free */
    uint64_t place; /* set by the table: the order in which names were first put */
};

struct kv_named_options {
    const char *path; /* prefix.disk.path, "" none */
    uint64_t max_bytes; /* limit of bytes of files: kv_named_share() */
    uint8_t model[16]; /* identifies the model and tokenizer that the token ids belong to */
};

/* The share of prefix.disk.bytes: an eighth, at most 256 MiB. */
uint64_t kv_named_share(uint64_t disk_bytes);
/* Files that are invalid, or that other users could have written, are ignored with a warning. Errors:
 * ERR_IO, ERR_BUSY (another process uses the folder), ERR_UNSUPPORTED (other users could write to it). */
enum status kv_named_open(const struct kv_named_options *o, struct kv_named **out, struct err *e);
void kv_named_close(struct kv_named *n); /* NULL is fine */

/* Adds p, or replaces the prefix with the same owner and name. Where the table is shared, an owner has at most
 * as many names, tokens and bytes of files as stay free, so that no owner can take everything. *old (may be
 * NULL): the replaced prefix, or NULL; the caller frees it. Errors: ERR_INVALID (a length), ERR_TOO_LARGE (a
 * bound), ERR_IO. */
enum status kv_named_put(struct kv_named *n, const struct kv_named_prefix *p,
                         struct kv_named_prefix **old, struct err *e);
/* Returns a copy that the caller frees, or ERR_NOT_FOUND. */
enum status kv_named_get(struct kv_named *n, struct str owner, struct str name,
                         struct kv_named_prefix **out, struct err *e);
/* *old as above. ERR_NOT_FOUND, ERR_IO. */
enum status kv_named_delete(struct kv_named *n, struct str owner, struct str name,
                            struct kv_named_prefix **old, struct err *e);
void kv_named_prefix_free(struct kv_named_prefix *p); /* NULL is fine */
/* Calls fn for each of an owner's prefixes, in table order; fn must not call these functions. */
void kv_named_each(struct kv_named *n, struct str owner,
                   void (*fn)(void *arg, const struct kv_named_prefix *p), void *arg);

uint64_t kv_named_prefix_memory(const struct kv_named_prefix *p); /* bytes of a copy of it */
uint64_t kv_named_memory(struct kv_named *n); /* of all copies in the table */
uint64_t kv_named_max_bytes(const struct kv_named *n); /* 0 without a folder */
uint64_t
kv_named_bytes(const struct kv_named *n); /* bytes of files, including those of other models */

/* For kvpool/disk.c at its start, before other threads run: prefixes of all models. */
uint64_t kv_named_n_keys(const struct kv_named *n);
void kv_named_each_key(const struct kv_named *n,
                       void (*fn)(void *arg, uint64_t domain, const struct kv_key *key), void *arg);

#endif
