/* A served model from its file to its engine thread; see service.h. */
#include "server/service.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "config/metrics.h"
#include "config/models.h"
#include "server/grammars.h"
#include "server/service_int.h"

/* ---- names ---- */

static void add_id(struct service *v, const char *name)
{
    v->id = mem_realloc(v->id, mem_mul(v->n_ids + 1, sizeof(char *)));
    v->id[v->n_ids++] = mem_strdup(name);
}

static enum status find_model(struct service *v, struct err *e)
{
    struct buf path = {0}, id = {0};
    if (!*v->set->model)
        return err_set_field(e, ERR_INVALID, "model", NULL,
                             "no model given: millrace serve MODEL, or --model MODEL: a GGUF "
                             "file, or a known name such as smollm2-135m");
    enum status status = model_path_find(v->set->model, &path, e);
    if (status) {
        buf_release(&path);
        return status;
    }
    v->path = buf_take(&path);
    for (size_t i = 0; i < v->set->model_alias.n; i++)
        add_id(v, v->set->model_alias.item[i]);
    if (!v->n_ids) {
        model_default_id(v->set->model, &id);
        add_id(v, buf_str(&id).ptr);
        buf_release(&id);
    }
    return OK;
}

enum status service_new(const struct settings *set, struct service **out, struct err *e)
{
    struct service *v = mem_zalloc(sizeof(*v));
    v->set = set;
    *out = v;
    return find_model(v, e);
}

static const char *find_id(const struct service *v, const struct str *name)
{
    if (!name)
        return v->id[0];
    for (size_t i = 0; i < v->n_ids; i++)
        if (str_eq_c(*name, v->id[i]))
            return v->id[i];
    return NULL;
}

struct service *service_find(struct service *const *list, uint32_t n, const struct str *name,
                             const char **id)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *found = find_id(list[i], name);
        if (found && id)
            *id = found;
        if (found)
            return list[i];
    }
    return NULL;
}

/* ---- loading ---- */

static uint32_t context_of(const struct service *v)
{
    const struct engine_info *info = engine_info(v->engine);
    int64_t asked = v->set->limits_max_context;
    if (asked <= 0)
        return info->n_ctx_train;
    if (asked <= info->n_ctx_train)
        return (uint32_t)asked;
    log_warn("limits.max_context is %lld, the model's context of %u tokens is used",
             (long long)asked, info->n_ctx_train);
    return info->n_ctx_train;
}

static struct backend_limits rows_of(const struct settings *set)
{
    return (struct backend_limits){.max_rows = (uint32_t)set->sched_max_batch_tokens,
                                   .max_spans = (uint32_t)set->sched_max_running,
                                   .max_outs = (uint32_t)set->sched_max_batch_tokens};
}

/* The smallest arena that kv_plan_make would take. */
static uint64_t least_kv_bytes(const struct service *v, const struct engine_needs *needs)
{
    const struct kv_layout *l = &needs->layout;
    const struct settings *set = v->set;
    uint32_t chunk = kv_memory_ask(set, 0, 1).chunk, context = needs->info.n_ctx_train;
    uint64_t n_bytes = 0;
    if (set->limits_max_context > 0 && set->limits_max_context < context)
        context = (uint32_t)set->limits_max_context;
    for (uint32_t g = 0; g < l->n_groups; g++)
        n_bytes +=
            l->group[g].block_bytes *
            (l->group[g].window ? kv_blocks_held(l->n_slots, l->group[g].window, context, chunk)
                                : 2);
    return n_bytes;
}

static enum status refuse_memory(const struct device_info *d, uint64_t kv, uint64_t rest,
                                 const struct kv_room *room, struct err *e)
{
    uint64_t other = d->scratch_bytes + kv + rest, sum = d->weight_bytes + other;
    uint64_t weights = room->free_bytes > other ? room->free_bytes - other : 0;
    return err_set_field(
        e, ERR_NO_MEMORY, "model", NULL,
        "the model does not fit into memory: weights %s, scratch %s, KV blocks at least %s and the "
        "process %s are %s, and %s are free (limit: %s %s); what fits is weights of %s, or a "
        "limit of %s",
        size_shown(d->weight_bytes).text, size_shown(d->scratch_bytes).text, size_shown(kv).text,
        size_shown(rest).text, size_shown(sum).text, size_shown(room->free_bytes).text,
        size_shown(room->limit_bytes).text, room->from, size_shown(weights).text,
        size_option(room->limit_bytes + (sum - room->free_bytes), UINT64_MAX).text);
}

/* Before a weight is read: a cgroup ends the process without a word once they are. */
static enum status check_memory(const struct service *v, struct err *e)
{
    enum { PROCESS_BYTES = 32 << 20, MAPPED_BYTES = 64 << 20 /* stacks and heaps of threads */ };
    struct engine_needs needs;
    enum status status = engine_plan(v->path, v->set, rows_of(v->set), &needs, e);
    if (status)
        return status;
    const struct kv_room room = kv_room_read();
    uint64_t kv = least_kv_bytes(v, &needs), rest = PROCESS_BYTES;
    if (room.address_space)
        rest += MAPPED_BYTES + needs.info.tensor_bytes;
    const struct device_info *d = &needs.info.device;
    if (d->weight_bytes + d->scratch_bytes + kv + rest > room.free_bytes)
        return refuse_memory(d, kv, rest, &room, e);
    return OK;
}

/* Words of the options stand for the scheduler's values, here, in the journal and in simulate. */
#define SAME(name)                                                                                 \
    _Static_assert((int)SET_##name == (int)SCHED_##name, "settings.def and scheduler.h")
SAME(RESERVE_QUANTILE);
SAME(RESERVE_NONE);
SAME(RESERVE_MAX);
SAME(PREEMPT_AUTO);
SAME(PREEMPT_SWAP);
SAME(PREEMPT_RECOMPUTE);
SAME(PREEMPT_NEVER);

static enum status open_sched(struct service *v, struct tenants *tenants, struct metrics *metrics,
                              struct err *e)
{
    const struct settings *set = v->set;
    struct backend_limits rows = rows_of(set);
    rows.max_staged = v->kv.plan.max_staged;
    const struct sched_limits limits = {
        .max_running = (uint32_t)set->sched_max_running,
        .max_queued = (uint32_t)set->sched_max_queued,
        .max_batch_tokens = (uint32_t)set->sched_max_batch_tokens,
        .chunk_max = (uint32_t)set->sched_chunk_max,
        .step_target_ms = (uint32_t)set->sched_step_target_ms,
        .max_context = v->kv.plan.max_context,
        .tenants = tenants,
        .journal_bytes = set->sched_journal,
        .reserve = (enum sched_reserve)set->sched_reserve,
        .preempt = (enum sched_preempt)set->sched_preempt,
    };
    struct sched_memory memory;
    enum status status =
        engine_backend(v->engine, v->kv.store, &v->kv.layout, rows, &v->backend, e);
    if (!status)
        status = service_sched_memory(v, &memory, e);
    if (status)
        return status;
    v->backend->tier = v->kv.tier;
    status =
        sched_new(&limits, v->backend, &memory, engine_tokenizer(v->engine), metrics, &v->sched, e);
    return status ? status : sched_start(v->sched, e);
}

static void take_facts(struct service *v)
{
    v->info = engine_info(v->engine);
    v->tok = engine_tokenizer(v->engine);
    v->tmpl = engine_template(v->engine);
    v->named = v->kv.named;
    v->max_context = v->kv.plan.max_context;
    v->n_vocab = tokenizer_n_vocab(v->tok);
    v->created = clock_unix_s();
    if (!v->kv.disk)
        return;
    v->prefix_domain = kv_disk_domain(v->kv.disk);
    kv_disk_secret(v->kv.disk, v->prefix_secret);
}

enum status service_load(struct service *v, struct tenants *tenants, struct metrics *metrics,
                         struct err *e)
{
    enum status status = check_memory(v, e);
    if (!status)
        status = engine_open(v->path, v->set, &v->engine, e);
    if (!status)
        status = service_open_kv(v, context_of(v), e);
    if (!status)
        status = open_sched(v, tenants, metrics, e);
    if (!status) {
        take_facts(v);
        v->grammars = grammars_new(v->tok);
    }
    return status;
}

void service_describe(const struct service *v, const char *version, struct metrics *metrics)
{
    char labels[256], kv_types[KV_DTYPES_CAP];
    const struct engine_info *info = v->info;
    uint32_t n_slots = 0;
    for (uint32_t g = 0; g < v->kv.layout.n_groups; g++)
        n_slots += v->kv.plan.n_host[g] + v->kv.plan.n_file[g];
    kv_layout_dtypes(&v->kv.layout, kv_types);
    snprintf(labels, sizeof(labels), "%s\x1f%s\x1f%s", version, info->device.level,
             info->architecture);
    metrics_set(metrics, METRIC_BUILD_INFO, labels, 1);
    snprintf(labels, sizeof(labels),
             "%u\x1f%s\x1f"
             "%s\x1f%u\x1f%u",
             v->kv.layout.n_slots, kv_types, v->set->prefix_enabled ? "True" : "False", n_slots,
             v->kv.plan.n_blocks);
    metrics_set(metrics, METRIC_CACHE_CONFIG_INFO, labels, 1);
    metrics_set(metrics, METRIC_MEMORY, "weights", (double)info->device.weight_bytes);
    metrics_set(metrics, METRIC_MEMORY, "scratch", (double)info->device.scratch_bytes);
    metrics_set(metrics, METRIC_MEMORY, "kv", (double)v->kv.store->arena.n_bytes);
}

/* ---- the end ---- */

void service_stop(struct service *v)
{
    if (v->sched)
        sched_stop(v->sched);
    kv_memory_stop(&v->kv);
}

void service_free(struct service *v)
{
    if (!v)
        return;
    sched_free(v->sched);
    grammars_free(v->grammars);
    if (v->backend)
        v->backend->ops->close(v->backend);
    kv_memory_close(&v->kv);
    if (v->engine)
        engine_close(v->engine);
    for (size_t i = 0; i < v->n_ids; i++)
        mem_free(v->id[i]);
    mem_free(v->id);
    mem_free(v->path);
    mem_free(v);
}
