/* What keys and values live in: the arena's frames, the RAM tier, the spill file, the disk prefix cache.
 * Opened once
 * by the loader thread, before the scheduler; sizes by kvpool/sizing.h. */
#ifndef SERVER_KV_MEMORY_H
#define SERVER_KV_MEMORY_H

#include "engine/engine.h"
#include "kvpool/disk.h"
#include "kvpool/layout.h"
#include "kvpool/named.h"
#include "kvpool/store.h"
#include "kvpool/tier.h"
#include "scheduler/scheduler.h"
#include "kvpool/sizing.h"

struct settings;

struct kv_memory {
    struct kv_layout layout;
    struct kv_plan plan;
    struct kv_store *store; /* owns */
    struct kv_tier *tier; /* owns; NULL: no tier */
    struct kv_named *named; /* owns */
    struct kv_disk *disk; /* owns; NULL: no disk prefix cache */
    uint8_t model_digest[32]; /* with a disk cache */
    struct sched *sched; /* borrows; woken when a copy is done; set before it starts */
};

/* What kv_plan_make is asked for under these settings. context: prompt and output tokens of a request. */
struct kv_plan_ask kv_memory_ask(const struct settings *set, uint64_t free_bytes, uint32_t context);
/* What the options alone tell, before a model is opened: those that belong together. */
enum status kv_memory_check(const struct settings *set, struct err *e);
/* wanted_context: prompt and output tokens of a request. m zeroed. */
enum status kv_memory_open(struct kv_memory *m, struct engine *en, const struct settings *set,
                           uint32_t wanted_context, struct err *e);
/* What the scheduler is told of it. */
enum status kv_memory_for_sched(struct kv_memory *m, const struct settings *set,
                                struct sched_memory *out, struct err *e);
void kv_memory_stop(struct kv_memory *m); /* no copy goes on; after sched_stop, before sched_free */
void kv_memory_close(struct kv_memory *m);

#endif
