/* A service's KV memory: what the engine, the device and kvpool/memory.h make of it together, and how the
 * scheduler sees it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "server/service_int.h"

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
    struct service *v = arg;
    sched_wake(v->sched); /* only a scheduler starts copies */
}

static enum status open_store(struct service *v, struct err *e)
{
    struct kv_memory *m = &v->kv;
    enum status status =
        engine_kv_store(v->engine, &m->layout, m->plan.n_frames, m->plan.n_host, &m->store, e);
    if (status)
        err_prefix(e, "kv.bytes %" PRIu64 ", kv.host_bytes %" PRIu64, v->set->kv_bytes,
                   v->set->kv_host_bytes);
    return status;
}

enum status service_open_kv(struct service *v, uint32_t wanted_context, struct err *e)
{
    struct kv_memory *m = &v->kv;
    const struct kv_plan_ask ask = kv_memory_ask(v->set, kv_free_bytes(), wanted_context);
    if (ask.kv_bytes > ask.free_bytes)
        log_warn("kv.bytes %" PRIu64 " exceeds the available memory, %" PRIu64
                 " bytes: the system may end the process when it is used",
                 ask.kv_bytes, ask.free_bytes);
    enum status status = engine_kv_layout(v->engine, v->set, &m->layout, e);
    if (!status)
        engine_kv_gate(v->engine, &m->layout);
    if (!status)
        status = kv_plan_make(&ask, &m->layout, &m->plan, e);
    if (!status && m->plan.max_context < wanted_context)
        log_warn("the KV blocks hold %u tokens: requests may use that many, not the model's %u",
                 m->plan.max_context, wanted_context);
    if (!status)
        status = open_store(v, e);
    if (status)
        return status;
    if (*v->set->prefix_disk_path)
        engine_digest(v->engine, m->model_digest);
    m->wake = wake;
    m->wake_arg = v;
    return kv_memory_open(m, v->set, tokenizer_pre(engine_tokenizer(v->engine)), e);
}

enum status service_sched_memory(struct service *v, struct sched_memory *out, struct err *e)
{
    struct kv_memory *m = &v->kv;
    *out = (struct sched_memory){.layout = &m->layout,
                                 .arena = &m->store->arena,
                                 .store = m->store,
                                 .tier_ops = m->tier ? &tier_ops : NULL,
                                 .tier = m->tier,
                                 .max_jobs = m->tier ? KV_MEMORY_MAX_JOBS : 0,
                                 .prefix = v->set->prefix_enabled,
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
