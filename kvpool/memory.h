/* The KV memory of one served model as a whole: where its blocks live (the device's store, the tiers, the disk
 * prefix cache, named prefixes), sized by sizing.h and opened together.
 *
 * Opened by the loader thread, before the scheduler; then read-only but for its parts. */
#ifndef KVPOOL_MEMORY_H
#define KVPOOL_MEMORY_H

#include "kvpool/disk.h"
#include "kvpool/layout.h"
#include "kvpool/named.h"
#include "kvpool/sizing.h"
#include "kvpool/store.h"
#include "kvpool/tier.h"

struct settings;

enum {
    KV_MEMORY_MAX_JOBS = 32
}; /* copies in flight: keeps a disk busy, and plans can still change */

struct kv_memory {
    struct kv_layout layout; /* set by the caller, as are plan and store, before kv_memory_open */
    struct kv_plan plan;
    struct kv_store *store; /* owns */
    struct kv_tier *tier; /* owns; NULL: no tier */
    struct kv_named *named; /* owns */
    struct kv_disk *disk; /* owns; NULL: no disk prefix cache */
    uint8_t model_digest[32]; /* set by the caller where there is a disk cache: see engine_digest */
    void (*wake)(void *arg); /* any thread: a copy is done. Set by the caller */
    void *wake_arg;
};

/* The question to kv_plan_make under these settings. context: prompt and output tokens of a request. */
struct kv_plan_ask kv_memory_ask(const struct settings *set, uint64_t free_bytes, uint32_t context);
/* Checks the options that belong together, before a model is opened. */
enum status kv_memory_check(const struct settings *set, struct err *e);
/* Opens tier, names and disk cache. splitter: the rule that splits texts into tokens (tokenizer_pre). */
enum status kv_memory_open(struct kv_memory *m, const struct settings *set, const char *splitter,
                           struct err *e);
void kv_memory_stop(struct kv_memory *m); /* ends all copies; after the scheduler has stopped */
void kv_memory_close(struct kv_memory *m);

#endif
