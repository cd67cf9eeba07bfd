/* Named prefixes: token ids under a name (PUT /v1/prefixes/NAME), which requests can begin with.
 * They outlive the process as kv/names/MODEL-OWNER-NAME (hex digits) under prefix.disk.path, one file
 * each, written whole or not at all, mode 0600; without a folder they live in memory.
 *
 * A name belongs to a model and an owner (a tenant's name, "" for everybody's). Token ids mean nothing
 * to another model or tokenizer: names of others on the same folder are not seen, replaced or deleted,
 * but their files count and their blocks stay pinned. The chat template is not part of it: chat renders
 * the messages of a prefix anew, and what was rendered once stays readable to the model.
 *
 * The table also keeps the chain keys of the prefix's blocks, so that the disk cache can pin them at a
 * start (kvpool/disk.h), and the domain they belong to: keys of another model, layout or secret mean
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
    bool shared; /* handed in: others have names too, so that its owner may have what it leaves */
    uint64_t place; /* the table's own: order in which names came, kept when one is put again */
};

struct kv_named_options {
    const char *path; /* prefix.disk.path, "" none */
    uint64_t max_bytes; /* that files may take: kv_named_share() */
    uint8_t model[16]; /* what must be equal for token ids to mean the same */
};

/* Of prefix.disk.bytes: an eighth, 256 MiB at most. */
uint64_t kv_named_share(uint64_t disk_bytes);
/* Files that are not sound, or that others could have written, are left out with a warning. Errors:
 * ERR_IO, ERR_BUSY (another process has the folder), ERR_UNSUPPORTED (others could have written it). */
enum status kv_named_open(const struct kv_named_options *o, struct kv_named **out, struct err *e);
void kv_named_close(struct kv_named *n); /* NULL is fine */

/* Adds p or replaces the one of the same owner and name. Where the table is shared an owner has at most as
 * many names, tokens and bytes of files as it leaves free: nobody takes all. *old (may be NULL): the one that was
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

uint64_t kv_named_prefix_memory(const struct kv_named_prefix *p); /* that a copy of it takes */
uint64_t kv_named_memory(struct kv_named *n); /* of all copies in the table */
uint64_t kv_named_max_bytes(const struct kv_named *n); /* 0 without a folder */
uint64_t kv_named_bytes(const struct kv_named *n); /* that files take, those of other models too */

/* For kvpool/disk.c at its start, before other threads run: of all models. */
uint64_t kv_named_n_keys(const struct kv_named *n);
void kv_named_each_key(const struct kv_named *n,
                       void (*fn)(void *arg, uint64_t domain, const struct kv_key *key), void *arg);

#endif
