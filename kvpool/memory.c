/* Opening and closing the KV memory; see memory.h. */
#include "kvpool/memory.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/siphash.h"
#include "config/settings.h"

enum { COPY_DEADLINE_S = 30 }; /* a copy that takes longer has failed */

static enum status open_tier(struct kv_memory *m, const struct settings *set, struct err *e)
{
    struct kv_tier_options o = {.store = m->store,
                                .layout = &m->layout,
                                .path = set->kv_spill_path,
                                .min_free_bytes = set->kv_spill_min_free,
                                .max_jobs = KV_MEMORY_MAX_JOBS,
                                .deadline_ns = COPY_DEADLINE_S * NS_PER_S,
                                .threaded = true,
                                .wake = m->wake,
                                .wake_arg = m->wake_arg};
    uint32_t n = 0;
    for (uint32_t g = 0; g < m->layout.n_groups; g++) {
        o.n_file[g] = m->plan.n_file[g];
        n += m->plan.n_file[g] + m->plan.n_host[g];
    }
    enum status status = n ? kv_tier_open(&o, &m->tier, e) : OK;
    if (status && strcmp(e->param, "kv.spill.bytes") == 0)
        err_prefix(e, "kv.spill.bytes %" PRIu64, set->kv_spill_bytes);
    else if (status && *e->param)
        err_prefix(e, "%s", e->param);
    return status;
}

/* Names belong to the file (the digest's first half: weights and vocabulary) and to the rule that splits
 * texts: what token ids mean doesn't change with the machine or the KV types. */
static enum status open_named(struct kv_memory *m, const struct settings *set, const char *splitter,
                              struct err *e)
{
    static const uint64_t key[2] = {0, 0};
    struct siphash h;
    uint64_t identity[2];
    struct kv_named_options o = {.path = set->prefix_disk_path,
                                 .max_bytes = kv_named_share(set->prefix_disk_bytes)};
    siphash_init(&h, key);
    siphash_add(&h, m->model_digest, sizeof(o.model));
    siphash_add(&h, splitter, strlen(splitter));
    siphash_end(&h, identity);
    memcpy(o.model, identity, sizeof(o.model));
    return kv_named_open(&o, &m->named, e);
}

/* Named prefixes are there without a folder too, until the process ends. */
static enum status open_disk(struct kv_memory *m, const struct settings *set, const char *splitter,
                             struct err *e)
{
    struct kv_disk_options o = {.layout = &m->layout,
                                .store = m->store,
                                .path = set->prefix_disk_path,
                                .max_bytes = set->prefix_disk_bytes,
                                .max_jobs = KV_MEMORY_MAX_JOBS,
                                .deadline_ns = COPY_DEADLINE_S * NS_PER_S,
                                .threaded = true,
                                .wake = m->wake,
                                .wake_arg = m->wake_arg};
    enum status status = open_named(m, set, splitter, e);
    if (status || !*set->prefix_disk_path)
        return status;
    memcpy(o.model_digest, m->model_digest, sizeof(o.model_digest));
    o.named = m->named;
    status = kv_disk_open(&o, &m->disk, e);
    if (status)
        return status;
    struct kv_disk_stats st = kv_disk_stats(m->disk);
    log_info("prefix.disk.path %s: %u KV blocks of this model, %u of others, %llu MB",
             set->prefix_disk_path, st.n_blocks, st.n_foreign,
             (unsigned long long)(st.n_bytes / 1000000));
    return OK;
}

struct kv_plan_ask kv_memory_ask(const struct settings *set, uint64_t free_bytes, uint32_t context)
{
    return (struct kv_plan_ask){
        .kv_bytes = set->kv_bytes,
        .free_bytes = free_bytes,
        .host_bytes = set->kv_host_bytes,
        .spill_bytes = set->kv_spill_bytes,
        .max_running = (uint32_t)set->sched_max_running,
        .chunk = (uint32_t)(set->sched_chunk_max < set->sched_max_batch_tokens
                                ? set->sched_chunk_max
                                : set->sched_max_batch_tokens),
        .context = context,
    };
}

static enum status check_disk(const struct settings *set, struct err *e)
{
    if (!*set->prefix_disk_path)
        return OK;
    if (!set->prefix_enabled)
        return err_set_field(e, ERR_INVALID, "prefix.disk.path", NULL,
                             "prefix.disk.path needs prefix.enabled, which is false");
    if (!set->prefix_disk_bytes)
        return err_set_field(e, ERR_INVALID, "prefix.disk.bytes", NULL,
                             "prefix.disk.path and prefix.disk.bytes belong together: "
                             "prefix.disk.bytes is 0");
    return OK;
}

enum status kv_memory_check(const struct settings *set, struct err *e)
{
    bool path = *set->kv_spill_path != 0, bytes = set->kv_spill_bytes != 0;
    if (path != bytes)
        return err_set_field(e, ERR_INVALID, path ? "kv.spill.bytes" : "kv.spill.path", NULL,
                             "kv.spill.path and kv.spill.bytes belong together: %s is not given",
                             path ? "kv.spill.bytes" : "kv.spill.path");
    if (set->sched_preempt == SET_PREEMPT_SWAP && !bytes && !set->kv_host_bytes)
        log_warn("sched.preempt is swap, but there is nothing to swap to (kv.host_bytes, "
                 "kv.spill.path): what is preempted is computed again");
    return check_disk(set, e);
}

enum status kv_memory_open(struct kv_memory *m, const struct settings *set, const char *splitter,
                           struct err *e)
{
    enum status status = open_tier(m, set, e);
    if (status)
        return status;
    status = open_disk(m, set, splitter, e);
    if (status && status != ERR_INVALID)
        err_prefix(e, "prefix.disk.path");
    return status;
}

void kv_memory_stop(struct kv_memory *m)
{
    if (m->tier)
        kv_tier_stop(m->tier);
}

void kv_memory_close(struct kv_memory *m)
{
    kv_tier_close(m->tier);
    m->tier = NULL;
    kv_disk_close(m->disk);
    kv_named_close(m->named);
    m->disk = NULL;
    m->named = NULL;
    kv_store_close(m->store);
    m->store = NULL;
}
