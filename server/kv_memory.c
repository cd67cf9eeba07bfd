/* Opening and closing the KV memory; see kv_memory.h. */
#include "server/kv_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/siphash.h"
#include "config/settings.h"

enum {
    MAX_JOBS = 32, /* copies in flight: enough to keep a disk busy, few enough to change plans */
    COPY_DEADLINE_S = 30 /* a copy that takes longer has failed */
};

static uint32_t tier_room(void *tier)
{
    return kv_tier_room(tier);
}

static bool tier_push(void *tier, const struct kv_job *job)
{
    return kv_tier_push(tier, job);
}

static bool tier_pop(void *tier, struct kv_done *done)
{
    return kv_tier_pop(tier, done);
}

static struct kv_tier_costs tier_costs(void *tier)
{
    return kv_tier_costs(tier);
}

static const struct sched_tier_ops tier_ops = {tier_room, tier_push, tier_pop, tier_costs};

static void wake(void *arg)
{
    struct kv_memory *m = arg;
    sched_wake(m->sched); /* copies come from a scheduler only */
}

static enum status open_store(struct kv_memory *m, struct engine *en, const struct settings *set,
                              struct err *e)
{
    enum status status =
        engine_kv_store(en, &m->layout, m->plan.n_frames, m->plan.n_host, &m->store, e);
    if (status)
        err_prefix(e, "kv.bytes %" PRIu64 ", kv.host_bytes %" PRIu64, set->kv_bytes,
                   set->kv_host_bytes);
    return status;
}

static enum status open_tier(struct kv_memory *m, const struct settings *set, struct err *e)
{
    struct kv_tier_options o = {.store = m->store,
                                .layout = &m->layout,
                                .path = set->kv_spill_path,
                                .min_free_bytes = set->kv_spill_min_free,
                                .max_jobs = MAX_JOBS,
                                .deadline_ns = COPY_DEADLINE_S * NS_PER_S,
                                .threaded = true,
                                .wake = wake,
                                .wake_arg = m};
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
static enum status open_named(struct kv_memory *m, const struct engine *en,
                              const struct settings *set, struct err *e)
{
    static const uint64_t key[2] = {0, 0};
    const char *pre = tokenizer_pre(engine_tokenizer(en));
    struct siphash h;
    uint64_t identity[2];
    struct kv_named_options o = {.path = set->prefix_disk_path,
                                 .max_bytes = kv_named_share(set->prefix_disk_bytes)};
    siphash_init(&h, key);
    siphash_add(&h, m->model_digest, sizeof(o.model));
    siphash_add(&h, pre, strlen(pre));
    siphash_end(&h, identity);
    memcpy(o.model, identity, sizeof(o.model));
    return kv_named_open(&o, &m->named, e);
}

/* Named prefixes are there without a folder too, until the process ends. */
static enum status open_disk(struct kv_memory *m, const struct engine *en,
                             const struct settings *set, struct err *e)
{
    struct kv_disk_options o = {.layout = &m->layout,
                                .store = m->store,
                                .path = set->prefix_disk_path,
                                .max_bytes = set->prefix_disk_bytes,
                                .max_jobs = MAX_JOBS,
                                .deadline_ns = COPY_DEADLINE_S * NS_PER_S,
                                .threaded = true,
                                .wake = wake,
                                .wake_arg = m};
    if (*set->prefix_disk_path)
        engine_digest(en, m->model_digest);
    enum status status = open_named(m, en, set, e);
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
    if (set->sched_preempt == SCHED_PREEMPT_SWAP && !bytes && !set->kv_host_bytes)
        log_warn("sched.preempt is swap, but there is nothing to swap to (kv.host_bytes, "
                 "kv.spill.path): what is preempted is computed again");
    return check_disk(set, e);
}

enum status kv_memory_open(struct kv_memory *m, struct engine *en, const struct settings *set,
                           uint32_t wanted_context, struct err *e)
{
    const struct kv_plan_ask ask = kv_memory_ask(set, kv_free_bytes(), wanted_context);
    if (ask.kv_bytes > ask.free_bytes)
        log_warn("kv.bytes %" PRIu64 " is more than the memory there is, %" PRIu64
                 " bytes: the system may end the process when it is used",
                 ask.kv_bytes, ask.free_bytes);
    enum status status = engine_kv_layout(en, set, &m->layout, e);
    if (!status)
        engine_kv_gate(en, &m->layout);
    if (!status)
        status = kv_plan_make(&ask, &m->layout, &m->plan, e);
    if (!status && m->plan.max_context < wanted_context)
        log_warn("the KV blocks hold %u tokens: requests may use that many, not the model's %u",
                 m->plan.max_context, wanted_context);
    if (!status)
        status = open_store(m, en, set, e);
    if (!status)
        status = open_tier(m, set, e);
    if (status)
        return status;
    status = open_disk(m, en, set, e);
    if (status && status != ERR_INVALID)
        err_prefix(e, "prefix.disk.path");
    return status;
}

enum status kv_memory_for_sched(struct kv_memory *m, const struct settings *set,
                                struct sched_memory *out, struct err *e)
{
    *out = (struct sched_memory){.layout = &m->layout,
                                 .arena = &m->store->arena,
                                 .store = m->store,
                                 .tier_ops = m->tier ? &tier_ops : NULL,
                                 .tier = m->tier,
                                 .max_jobs = m->tier ? MAX_JOBS : 0,
                                 .prefix = set->prefix_enabled,
                                 .disk = m->disk,
                                 .domain = {.rope = "", .adapter = "", .salt = ""}};
    memcpy(out->n_file, m->plan.n_file, sizeof(out->n_file));
    memcpy(out->domain.model_digest, m->model_digest, sizeof(m->model_digest));
    if (m->disk) {
        kv_disk_secret(m->disk, out->secret); /* else no key of before would be known */
        return OK;
    }
    if (getrandom(out->secret, sizeof(out->secret), 0) != sizeof(out->secret))
        return err_set(e, ERR_IO, "no random bytes for the prefix keys: %s", strerror(errno));
    return OK;
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
