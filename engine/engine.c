/* Opens a model and assembles its parts: file, hyperparameters, tokenizer and template, weights on a device.
 * See engine.h. */
#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "base/text_file.h"
#include "config/models.h"
#include "config/settings.h"
#include "engine/device.h"
#include "engine/kv_gate.h"
#include "engine/kv_shape.h"
#include "engine/template/template.h"

struct engine {
    struct engine_info info;
    struct gguf *gguf; /* owns; the tokenizer reads its head */
    struct hparams h;
    struct weights w;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    const struct device *device;
    struct device_model *model; /* owns */
};

enum { TEMPLATE_MAX_BYTES = 1 << 20 };

static void copy_text(char *to, size_t cap, struct str s)
{
    size_t n = s.len < cap - 1 ? s.len : cap - 1;
    memcpy(to, s.ptr, n);
    to[n] = 0;
}

/* Name of the type with the most bytes in matrices. */
static const char *main_type(const struct gguf *g)
{
    const char *best = "none";
    uint64_t best_bytes = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        uint64_t sum = 0;
        for (uint64_t j = 0; j < g->n_tensors; j++)
            if (g->tensor[j].type == g->tensor[i].type)
                sum += g->tensor[j].n_bytes;
        if (sum > best_bytes) {
            best_bytes = sum;
            best = quant_name(g->tensor[i].type);
        }
    }
    return best;
}

static uint64_t count_params(const struct gguf *g, uint64_t *n_bytes)
{
    uint64_t params = 0;
    *n_bytes = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        params += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        *n_bytes += t->n_bytes;
    }
    return params;
}

/* Where the file has no sampling defaults, uses those that its makers recommend. */
static void advise_sampling(struct engine *en)
{
    struct engine_info *info = &en->info;
    struct str basename;
    bool silent = isnan(info->sampling_temperature) && isnan(info->sampling_top_p);
    if (!silent || !en->template || !gguf_string(en->gguf, "general.basename", &basename))
        return;
    const struct known_sampling *known = known_sampling_find(basename);
    if (!known)
        return;
    info->sampling_temperature = known->temperature;
    info->sampling_top_p = known->top_p;
    info->sampling_advised = true;
}

static void fill_info(struct engine *en)
{
    struct engine_info *info = &en->info;
    const struct hparams *h = &en->h;
    struct str name;
    copy_text(info->architecture, sizeof info->architecture, str_of(h->architecture));
    if (gguf_string(en->gguf, "general.name", &name))
        copy_text(info->name, sizeof info->name, name);
    copy_text(info->file_type, sizeof info->file_type, str_of(main_type(en->gguf)));
    info->device = en->model->info;
    info->n_vocab = h->n_vocab;
    info->n_layers = h->n_layers;
    info->n_heads = h->n_heads;
    info->n_kv_heads = h->n_kv_heads;
    info->head_dim = h->head_dim;
    info->n_embd = h->n_embd;
    info->n_ff = h->n_ff;
    info->n_ctx_train = h->n_ctx_train;
    info->n_params = count_params(en->gguf, &info->tensor_bytes);
    info->has_template = en->template != NULL;
    info->sampling_temperature = h->sampling_temperature;
    info->sampling_top_p = h->sampling_top_p;
    info->sampling_min_p = h->sampling_min_p;
    info->sampling_top_k = h->sampling_top_k;
    advise_sampling(en);
}

static enum status take_template(struct str source, struct chat_template **out, struct err *e)
{
    enum status s = template_new(source, out, e);
    if (s != OK || !template_ignores_messages(*out))
        return s;
    bool blank = true;
    for (size_t i = 0; i < source.len; i++)
        blank = blank && memchr(" \t\r\n", source.ptr[i], 4);
    template_free(*out);
    *out = NULL;
    return err_set(e, ERR_INVALID, "%s",
                   blank ? "the chat template is empty"
                         : "the chat template prints the same whatever the user's messages say");
}

/* The option's template, else the model's. If the model's cannot be used, only a warning is logged. */
static enum status open_template(struct engine *en, const char *path, struct err *e)
{
    if (path && path[0]) {
        struct buf source = {0};
        enum status s = text_file_read("chat template", path, TEMPLATE_MAX_BYTES, &source, e);
        if (s == OK) {
            s = take_template(buf_str(&source), &en->template, e);
            if (s != OK)
                err_prefix(e, "%s", path);
        }
        buf_release(&source);
        return s;
    }
    struct str source;
    struct err why;
    if (!gguf_string(en->gguf, "tokenizer.chat_template", &source))
        return OK;
    if (take_template(source, &en->template, &why) != OK)
        log_warn("the model's chat template cannot be used, chat requests are refused: %s",
                 why.text);
    return OK;
}

static void log_problems(const struct buf *problems)
{
    struct str s = buf_str(problems);
    size_t start = 0;
    for (size_t i = 0; i <= s.len; i++) {
        if (i < s.len && s.ptr[i] != '\n')
            continue;
        if (i > start)
            log_warn("%.*s", (int)(i - start), s.ptr + start);
        start = i + 1;
    }
}

/* Everything that comes before the first weight is read. quiet: problems that do not stop it are not logged. */
static enum status bind_weights(struct engine *en, const struct settings *s, bool quiet,
                                struct err *e)
{
    struct device_info unloaded;
    struct buf problems = {0};
    enum status st = weights_bind(en->gguf, &en->h, &en->w, &problems, e);
    if (!quiet)
        log_problems(&problems);
    buf_release(&problems);
    return st == OK ? device_pick(s, &en->device, &unloaded, e) : st;
}

static enum status open_all(struct engine *en, const char *path, const struct settings *s,
                            struct err *e)
{
    enum status st = gguf_open(path, &en->gguf, e);
    if (st == OK)
        st = hparams_read(en->gguf, &en->h, e);
    if (st == OK)
        st = tokenizer_new(en->gguf, str_of(s->tokenizer_pre), &en->tokenizer, e);
    if (st == OK)
        st = open_template(en, s->chat_template, e);
    if (st == OK)
        st = bind_weights(en, s, false, e);
    return st != OK ? st : en->device->load(s, en->gguf, &en->h, &en->w, &en->model, e);
}

enum status engine_open(const char *path, const struct settings *s, struct engine **out,
                        struct err *e)
{
    uint64_t start = clock_ns();
    struct engine *en = mem_zalloc(sizeof *en);
    enum status st = open_all(en, path, s, e);
    if (st != OK) {
        engine_close(en);
        return st;
    }
    fill_info(en);
    log_info("model loaded: %s %s, %" PRIu64 " MB of weights in %" PRIu64 " ms",
             en->info.architecture, en->info.file_type, en->info.device.weight_bytes / 1000000,
             (uint64_t)((clock_ns() - start) / NS_PER_MS));
    *out = en;
    return OK;
}

/* Two 128-bit hashes: they do not resist models made to collide, and need not, because anyone who
 * can write the model's file controls the answers anyway. */
void engine_digest(const struct engine *en, uint8_t digest[32])
{
    static const uint64_t key[2] = {0, 0};
    uint64_t out[4];
    struct siphash h;
    siphash_128(key, en->gguf->map, en->gguf->n_bytes, out);
    siphash_init(&h, key);
    siphash_add(&h, en->info.device.numerics, sizeof en->info.device.numerics);
    const char *pre = tokenizer_pre(en->tokenizer);
    siphash_add(&h, pre, strlen(pre));
    siphash_end(&h, out + 2);
    memcpy(digest, out, sizeof out);
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    if (en->model)
        en->device->unload(en->model);
    template_free(en->template);
    tokenizer_free(en->tokenizer);
    weights_release(&en->w);
    if (en->gguf)
        gguf_close(en->gguf);
    mem_free(en);
}

const struct engine_info *engine_info(const struct engine *en)
{
    return &en->info;
}

const struct tokenizer *engine_tokenizer(const struct engine *en)
{
    return en->tokenizer;
}

const struct chat_template *engine_template(const struct engine *en)
{
    return en->template;
}

enum status engine_kv_layout(const struct engine *en, const struct settings *s,
                             struct kv_layout *out, struct err *e)
{
    return kv_layout_of_settings(en->device, &en->h, s, out, e);
}

void engine_kv_gate(struct engine *en, const struct kv_layout *layout)
{
    char types[KV_DTYPES_CAP];
    struct kv_gate gate;
    struct err e;
    if (!kv_dtype_quantised(layout->dtype_k) && !kv_dtype_quantised(layout->dtype_v))
        return;
    kv_layout_dtypes(layout, types);
    enum status st = kv_gate_run(en->model, &en->h, en->tokenizer, layout, &gate, &e);
    if (st != OK) {
        log_warn("the quality loss of kv.dtype %s could not be measured: %s", types, e.text);
        return;
    }
    log_info("kv %s against f16: KL %.5f, %.1f %% of first choices equal (%u positions, %" PRIu64
             " ms)",
             types, gate.kl, 100 * gate.top1, gate.n_positions, (uint64_t)(gate.ns / NS_PER_MS));
    bool agrees = gate.top1 >= KV_GATE_MIN_TOP1 || gate.n_positions < KV_GATE_FEW_POSITIONS;
    if (!(gate.kl <= KV_GATE_MAX_KL) || !agrees)
        log_warn(
            "kv.dtype %s lowers this model's quality: KL %.5f (good: at most %.3f), %.1f %% of "
            "first choices equal (good: at least %.0f %%)",
            types, gate.kl, KV_GATE_MAX_KL, 100 * gate.top1, 100 * KV_GATE_MIN_TOP1);
}

enum status engine_kv_store(struct engine *en, const struct kv_layout *layout,
                            const uint32_t *n_frames, const uint32_t *n_host, struct kv_store **out,
                            struct err *e)
{
    return en->device->kv_new(en->model, layout, n_frames, n_host, out, e);
}

enum status engine_backend(struct engine *en, struct kv_store *kv, const struct kv_layout *layout,
                           struct backend_limits limits, struct backend **out, struct err *e)
{
    enum status st = en->device->backend_new(en->model, false, kv, layout, limits, out, e);
    en->info.device = en->model->info;
    return st;
}

/* A backend without KV memory, made only to measure what it allocates. */
static enum status plan_backend(struct engine *en, struct backend_limits limits,
                                struct engine_needs *out, struct err *e)
{
    struct backend *be;
    enum status st = engine_backend(en, NULL, &out->layout, limits, &be, e);
    if (st == OK)
        be->ops->close(be);
    return st;
}

enum status engine_plan(const char *path, const struct settings *s, struct backend_limits limits,
                        struct engine_needs *out, struct err *e)
{
    struct engine *en = mem_zalloc(sizeof *en);
    enum status st = gguf_open(path, &en->gguf, e);
    if (st == OK)
        st = hparams_read(en->gguf, &en->h, e);
    if (st == OK)
        st = bind_weights(en, s, true, e);
    if (st == OK)
        st = en->device->plan(s, &en->h, &en->w, &en->model, e);
    if (st == OK) {
        fill_info(en);
        st = engine_kv_layout(en, s, &out->layout, e);
    }
    if (st == OK)
        st = plan_backend(en, limits, out, e);
    out->info = en->info;
    engine_close(en);
    return st;
}
