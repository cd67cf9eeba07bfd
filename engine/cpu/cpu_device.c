/* The CPU as a device: which kernels, how many workers, the model repacked for them. See engine/device.h. */
#include "engine/cpu/cpu_device.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/thread.h"
#include "config/settings.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_kv.h"
#include "engine/cpu/levels.h"
#include "engine/kv_shape.h"

struct cpu_device_model {
    struct device_model base; /* first: the part that the engine sees */
    const struct kernels *kernels;
    struct pool *pool; /* owns */
    struct cpu_model *model; /* owns */
    int activations; /* enum settings_cpu_activations */
};

static uint32_t count_threads(const struct settings *s)
{
    int64_t n = s->cpu_threads > 0 ? s->cpu_threads : thread_cpu_count();
    return (uint32_t)(n < POOL_MAX_THREADS ? n : POOL_MAX_THREADS);
}

static enum status cpu_probe(const struct settings *s, struct device_info *out, struct err *e)
{
    static const char *const activations[] = {
        [SET_ACT_INT8] = "int8", [SET_ACT_INT16] = "int16", [SET_ACT_F32] = "f32"};
    const struct kernels *k;
    enum status st = levels_choose(s->cpu_isa, &k, e);
    if (st != OK)
        return st;
    snprintf(out->name, sizeof out->name, "%s", cpu_device.name);
    snprintf(out->level, sizeof out->level, "%s", k->name);
    snprintf(out->text, sizeof out->text, "%s (available: %s), %u threads, %s activations", k->name,
             levels_names(), count_threads(s), activations[s->cpu_activations]);
    snprintf(out->numerics, sizeof out->numerics, "%s %u %s", k->name, k->revision,
             activations[s->cpu_activations]);
    return OK;
}

static void cpu_unload(struct device_model *base)
{
    struct cpu_device_model *m = (struct cpu_device_model *)base;
    if (!m)
        return;
    cpu_model_free(m->model);
    pool_free(m->pool);
    mem_free(m);
}

/* Everything except the weights. */
static enum status open_model(const struct settings *s, struct cpu_device_model **out,
                              struct err *e)
{
    struct cpu_device_model *m = mem_zalloc(sizeof *m);
    m->base.device = &cpu_device;
    m->activations = s->cpu_activations;
    *out = m;
    enum status st = cpu_probe(s, &m->base.info, e);
    if (st == OK)
        st = levels_choose(s->cpu_isa, &m->kernels, e);
    return st == OK ? pool_new(count_threads(s), s->cpu_pin, &m->pool, e) : st;
}

static enum status take_model(struct cpu_device_model *m, enum status st, struct device_model **out)
{
    if (st != OK) {
        cpu_unload(&m->base);
        return st;
    }
    m->base.info.weight_bytes = m->model->n_bytes;
    *out = &m->base;
    return OK;
}

static enum status cpu_load(const struct settings *s, const struct gguf *g, const struct hparams *h,
                            const struct weights *w, struct device_model **out, struct err *e)
{
    struct cpu_device_model *m;
    enum status st = open_model(s, &m, e);
    if (st == OK)
        st = cpu_model_load(g, h, w, m->kernels->format, m->pool, &m->model, e);
    return take_model(m, st, out);
}

static enum status cpu_plan(const struct settings *s, const struct hparams *h,
                            const struct weights *w, struct device_model **out, struct err *e)
{
    struct cpu_device_model *m;
    enum status st = open_model(s, &m, e);
    if (st == OK)
        m->model = cpu_model_plan(h, w, m->kernels->format);
    return take_model(m, st, out);
}

static void cpu_each(struct device_model *base, device_fn *fn, void *ctx, uint32_t n)
{
    pool_run(((struct cpu_device_model *)base)->pool, fn, ctx, n);
}

/* The order of kvpool/layout.c: K by channel, V by slot. */
static enum status layout(const struct hparams *h, uint32_t n_slots, enum kv_dtype dtype_k,
                          enum kv_dtype dtype_v, struct kv_layout *out, struct err *e)
{
    enum status st = kv_layout_of_model(h, n_slots, dtype_k, dtype_v, out, e);
    if (st == OK)
        snprintf(out->order, sizeof out->order, "kd-vs-1");
    return st;
}

static enum status new_kv(struct device_model *base, const struct kv_layout *layout,
                          const uint32_t *n_frames, const uint32_t *n_host, struct kv_store **out,
                          struct err *e)
{
    (void)base;
    return cpu_kv_new(layout, n_frames, n_host, out, e);
}

static enum status cpu_backend(struct device_model *base, bool fine, struct kv_store *kv,
                               const struct kv_layout *layout, struct backend_limits limits,
                               struct backend **out, struct err *e)
{
    struct cpu_device_model *m = (struct cpu_device_model *)base;
    uint64_t before = mem_thread_bytes();
    enum status st =
        cpu_backend_new(m->model, m->kernels, m->pool, fine ? SET_ACT_INT16 : m->activations, kv,
                        layout, limits, out, e);
    m->base.info.scratch_bytes = mem_thread_bytes() - before;
    return st;
}

const struct device cpu_device = {.name = "cpu",
                                  .probe = cpu_probe,
                                  .load = cpu_load,
                                  .plan = cpu_plan,
                                  .unload = cpu_unload,
                                  .each = cpu_each,
                                  .kv_layout = layout,
                                  .kv_new = new_kv,
                                  .backend_new = cpu_backend};
