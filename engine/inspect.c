/* `millrace inspect`: a model file described as text. Called by main with the file's path; main thread.
 *
 * Sections come in a fixed order and each prints what it can; inconsistencies are collected as problems and
 * listed at the end, so that the reasons why a file cannot be served appear in one place. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "config/settings.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "engine/model/weights.h"
#include "engine/template/template.h"
#include "kvpool/sizing.h"

struct inspection {
    const struct gguf *g;
    FILE *out;
    struct buf problems; /* owns; one line each */
    struct hparams h;
    bool has_hparams;
    uint64_t tensor_bytes;
};

static void add_problem(struct inspection *in, const struct err *e)
{
    buf_printf(&in->problems, "%s\n", e->text);
}

/* Text from the file made safe for a terminal: valid UTF-8, no control characters, at most max bytes. */
static void print_text(FILE *out, struct str s, size_t max)
{
    struct buf clean = {0};
    bool cut = s.len > max;
    s.len = cut ? max : s.len;
    utf8_add_lossy(&clean, s);
    for (size_t i = 0; i < clean.len; i++) {
        unsigned char c = (unsigned char)clean.ptr[i];
        bool c1 = c == 0xc2 && i + 1 < clean.len && (unsigned char)clean.ptr[i + 1] < 0xa0;
        fputc(c < ' ' || c == 127 || c1 ? '?' : c, out);
        i += c1;
    }
    if (cut)
        fputs("...", out);
    buf_release(&clean);
}

static void print_mib(FILE *out, uint64_t n_bytes)
{
    fprintf(out, "%" PRIu64 " bytes (%.1f MiB)", n_bytes, (double)n_bytes / (1 << 20));
}

/* ---- file and hyperparameters ---- */

static void print_string(struct inspection *in, const char *label, const char *key)
{
    struct str s;
    if (!gguf_string(in->g, key, &s))
        return;
    fprintf(in->out, "  %-24s ", label);
    print_text(in->out, s, 200);
    fputc('\n', in->out);
}

static void print_file(struct inspection *in, const char *path)
{
    fprintf(in->out, "file\n  %-24s %s\n  %-24s ", "path", path, "size");
    print_mib(in->out, in->g->n_bytes);
    fprintf(in->out,
            "\n  %-24s gguf version %u, alignment %u, %" PRIu64 " values, %" PRIu64 " tensors\n",
            "format", in->g->version, in->g->alignment, in->g->n_values, in->g->n_tensors);
    print_string(in, "name", "general.name");
    print_string(in, "licence", "general.license");
}

static void print_whole(struct inspection *in, const char *label, uint64_t value)
{
    fprintf(in->out, "  %-24s %" PRIu64 "\n", label, value);
}

static void print_real(struct inspection *in, const char *label, double value)
{
    fprintf(in->out, "  %-24s %g\n", label, value);
}

static void print_rope(struct inspection *in)
{
    static const char *const kinds[] = {
        [ROPE_NORMAL] = "neighbouring components", [ROPE_NEOX] = "halves of the head"};
    static const char *const scalings[] = {[ROPE_SCALING_NONE] = "none",
                                           [ROPE_SCALING_LINEAR] = "linear",
                                           [ROPE_SCALING_LLAMA3] = "llama3",
                                           [ROPE_SCALING_YARN] = "yarn"};
    const struct hparams *h = &in->h;
    fprintf(in->out, "  %-24s %u of %u dimensions, %s\n", "rope", h->rope_dims, h->head_dim,
            kinds[h->rope_kind]);
    print_real(in, "rope base", (double)h->rope_base);
    fprintf(in->out, "  %-24s %s", "rope scaling", scalings[h->scaling]);
    if (h->scaling != ROPE_SCALING_NONE)
        fprintf(in->out, ", factor %g, trained at %u", (double)h->scaling_factor,
                h->scaling_orig_ctx);
    fputc('\n', in->out);
}

static void print_window(struct inspection *in)
{
    const struct hparams *h = &in->h;
    uint32_t n_local = 0;
    for (uint32_t i = 0; i < h->n_layers; i++)
        n_local += h->local[i];
    if (!(h->features & ARCH_LOCAL_LAYERS) && n_local == 0)
        return;
    fprintf(in->out, "  %-24s %u positions in %u of %u layers", "sliding window", h->window,
            n_local, h->n_layers);
    if (h->features & ARCH_LOCAL_LAYERS)
        fprintf(in->out, ", rope base %g there", (double)h->rope_base_local);
    fputc('\n', in->out);
}

/* The architecture's differences from the common layer, if any. */
static void print_features(struct inspection *in)
{
    const struct hparams *h = &in->h;
    print_window(in);
    if (h->unrotated_every > 0)
        fprintf(in->out, "  %-24s every %u. layer\n", "without rope", h->unrotated_every);
    if (h->features & ARCH_SOFT_CAPS)
        fprintf(in->out, "  %-24s scores %g, logits %g\n", "soft caps", (double)h->attn_softcap,
                (double)h->logit_softcap);
    if (h->features & ARCH_SCALES)
        fprintf(in->out, "  %-24s embeddings %g, residual sums %g, logits %g\n", "factors",
                (double)h->embd_scale, (double)h->residual_scale, (double)h->logit_scale);
    if (h->features & (ARCH_QK_NORM | ARCH_POST_NORM))
        fprintf(in->out, "  %-24s %s%s%s\n", "norms besides",
                h->features & ARCH_QK_NORM ? "heads of q and k" : "",
                h->features & ARCH_QK_NORM && h->features & ARCH_POST_NORM ? ", " : "",
                h->features & ARCH_POST_NORM ? "what attention and feed-forward add" : "");
    fprintf(in->out, "  %-24s %s\n", "gate", h->features & ARCH_GELU ? "gelu" : "silu");
}

static void print_sampling(struct inspection *in)
{
    const struct hparams *h = &in->h;
    if (!isnan(h->sampling_temperature))
        print_real(in, "sampling temperature", (double)h->sampling_temperature);
    if (h->sampling_top_k >= 0)
        print_whole(in, "sampling top_k", (uint64_t)h->sampling_top_k);
    if (!isnan(h->sampling_top_p))
        print_real(in, "sampling top_p", (double)h->sampling_top_p);
    if (!isnan(h->sampling_min_p))
        print_real(in, "sampling min_p", (double)h->sampling_min_p);
}

static void print_hparams(struct inspection *in)
{
    const struct hparams *h = &in->h;
    print_whole(in, "layers", h->n_layers);
    print_whole(in, "embedding length", h->n_embd);
    print_whole(in, "feed-forward length", h->n_ff);
    print_whole(in, "heads", h->n_heads);
    print_whole(in, "kv heads", h->n_kv_heads);
    print_whole(in, "head size", h->head_dim);
    print_whole(in, "vocabulary", h->n_vocab);
    print_whole(in, "context length", h->n_ctx_train);
    print_real(in, "rms epsilon", (double)h->rms_eps);
    print_rope(in);
    print_features(in);
    fprintf(in->out, "  %-24s %s\n", "output matrix",
            h->tied_embeddings ? "the embeddings" : "its own");
    print_sampling(in);
}

static void print_scalar(FILE *out, const struct gguf *g, const struct gguf_value *v,
                         const char *key)
{
    uint64_t whole;
    double real;
    bool flag;
    struct str text;
    if (v->type == GGUF_ARRAY)
        fprintf(out, "[%" PRIu64 " elements]", v->n);
    else if (gguf_string(g, key, &text))
        print_text(out, text, 100);
    else if (gguf_bool(g, key, &flag))
        fputs(flag ? "true" : "false", out);
    else if (gguf_u64(g, key, &whole))
        fprintf(out, "%" PRIu64, whole);
    else if (gguf_f64(g, key, &real))
        fprintf(out, "%g", real);
}

/* The architecture's metadata as found in the file, when it could not be understood. */
static void print_raw_hparams(struct inspection *in, struct str architecture)
{
    char key[128];
    for (uint64_t i = 0; i < in->g->n_values; i++) {
        const struct gguf_value *v = &in->g->value[i];
        if (!str_starts(v->key, architecture) || v->key.len <= architecture.len + 1 ||
            v->key.ptr[architecture.len] != '.' || v->key.len >= sizeof(key))
            continue;
        gguf_printable(v->key, key, sizeof(key));
        fprintf(in->out, "  %-40s ", key + architecture.len + 1);
        print_scalar(in->out, in->g, v, key);
        fputc('\n', in->out);
    }
}

static void print_architecture(struct inspection *in)
{
    struct str name = {"", 0};
    struct err e;
    gguf_string(in->g, "general.architecture", &name);
    in->has_hparams = hparams_read(in->g, &in->h, &e) == OK;
    if (!in->has_hparams)
        add_problem(in, &e);
    fputs("\narchitecture\n  ", in->out);
    fprintf(in->out, "%-24s ", "name");
    print_text(in->out, name, 64);
    fputs(hparams_supported(name) ? "\n" : " (not supported yet)\n", in->out);
    if (in->has_hparams)
        print_hparams(in);
    else if (name.len)
        print_raw_hparams(in, name);
}

/* ---- tensors ---- */

enum { MAX_TYPES = 64 }; /* types with higher numbers are counted together in the last row */

static void print_tensors(struct inspection *in)
{
    uint64_t count[MAX_TYPES] = {0}, n_bytes[MAX_TYPES] = {0}, weights = 0;
    for (uint64_t i = 0; i < in->g->n_tensors; i++) {
        const struct gguf_tensor *t = &in->g->tensor[i];
        uint32_t row = (uint32_t)t->type < MAX_TYPES ? (uint32_t)t->type : MAX_TYPES - 1;
        count[row]++;
        n_bytes[row] += t->n_bytes;
        in->tensor_bytes += t->n_bytes;
        weights += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
    }
    fputs("\ntensors\n", in->out);
    for (uint32_t row = 0; row < MAX_TYPES; row++)
        if (count[row])
            fprintf(in->out, "  %-8s %6" PRIu64 " tensors %14" PRIu64 " bytes%s\n", quant_name(row),
                    count[row], n_bytes[row], quant_supported(row) ? "" : " (not supported)");
    fprintf(in->out, "  %-8s %6" PRIu64 " tensors %14" PRIu64 " bytes, %" PRIu64 " weights\n",
            "all", in->g->n_tensors, in->tensor_bytes, weights);
}

static void check_weights(struct inspection *in)
{
    struct weights w;
    struct err e;
    if (in->has_hparams && weights_bind(in->g, &in->h, &w, &in->problems, &e) == OK)
        weights_release(&w);
}

/* ---- tokenizer and template ---- */

static void print_token(struct inspection *in, const struct tokenizer *t, const char *label,
                        int32_t token)
{
    fprintf(in->out, "  %-24s ", label);
    if (token < 0) {
        fputs("none\n", in->out);
        return;
    }
    fprintf(in->out, "%" PRId32 " ", token);
    print_text(in->out, tokenizer_text(t, token), 64);
    fputc('\n', in->out);
}

static void print_tokenizer_facts(struct inspection *in, const struct tokenizer *t)
{
    uint32_t n_stop;
    const int32_t *stop = tokenizer_stop_tokens(t, &n_stop);
    if (tokenizer_pre(t)[0])
        fprintf(in->out, "  %-24s %s\n", "split as", tokenizer_pre(t));
    print_whole(in, "tokens", tokenizer_n_vocab(t));
    print_token(in, t, "begins with", tokenizer_bos(t));
    print_token(in, t, "ends with", tokenizer_eos(t));
    fprintf(in->out, "  %-24s begin %s, end %s\n", "added to prompts",
            tokenizer_adds_bos(t) ? "yes" : "no", tokenizer_adds_eos(t) ? "yes" : "no");
    for (uint32_t i = 0; i < n_stop; i++)
        print_token(in, t, i ? "" : "generation stops at", stop[i]);
}

/* Parts that a kind of vocabulary requires. */
static const struct part {
    const char *model; /* tokenizer.ggml.model, NULL for every model */
    const char *key;
} parts[] = {
    {NULL, "tokenizer.ggml.model"},     {NULL, "tokenizer.ggml.tokens"},
    {"gpt2", "tokenizer.ggml.pre"},     {"gpt2", "tokenizer.ggml.merges"},
    {"llama", "tokenizer.ggml.scores"}, {"llama", "tokenizer.ggml.token_type"},
};

/* Returns how many are missing. loads: the tokenizer loads, so a missing pre was recognised. */
static uint32_t list_missing_parts(struct inspection *in, struct str model, bool loads)
{
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i].model && !str_eq_c(model, parts[i].model))
            continue;
        bool recognised = loads && strcmp(parts[i].key, "tokenizer.ggml.pre") == 0;
        if (recognised || gguf_find(in->g, parts[i].key))
            continue;
        buf_printf(&in->problems, "%s is missing\n", parts[i].key);
        n++;
    }
    return n;
}

static void print_tokenizer(struct inspection *in)
{
    struct str model = {"", 0};
    struct tokenizer *t;
    struct err e;
    fputs("\ntokenizer\n", in->out);
    print_string(in, "model", "tokenizer.ggml.model");
    print_string(in, "pre-tokenizer", "tokenizer.ggml.pre");
    gguf_string(in->g, "tokenizer.ggml.model", &model);
    bool loads = tokenizer_new(in->g, STR_LIT(""), &t, &e) == OK;
    uint32_t n_missing = list_missing_parts(in, model, loads);
    if (loads) {
        print_tokenizer_facts(in, t);
        tokenizer_free(t);
        return;
    }
    const struct gguf_value *tokens = gguf_find(in->g, "tokenizer.ggml.tokens");
    if (tokens && tokens->type == GGUF_ARRAY)
        print_whole(in, "tokens", tokens->n);
    if (n_missing == 0) /* otherwise the tokenizer's error would only repeat one of them */
        add_problem(in, &e);
}

static void print_template(struct inspection *in)
{
    struct str source;
    struct chat_template *t;
    struct err e;
    fputs("\nchat template\n", in->out);
    if (!gguf_string(in->g, "tokenizer.chat_template", &source)) {
        fputs("  none: the chat endpoint needs one from --chat-template\n", in->out);
        return;
    }
    if (template_new(source, &t, &e) == OK) {
        bool ignores = template_ignores_messages(t);
        fprintf(in->out, "  %zu bytes, %s\n", source.len,
                ignores ? "does not show the messages" : "parses");
        template_free(t);
        if (ignores)
            buf_add_c(&in->problems, "the chat template does not show the messages\n");
        return;
    }
    fprintf(in->out, "  %zu bytes, does not parse\n", source.len);
    err_prefix(&e, "chat template");
    add_problem(in, &e);
}

/* ---- memory ---- */

/* The device that would be used here, and KV blocks under the default settings except for the type. */
static bool size_kv(struct inspection *in, struct device_info *info, struct kv_layout *f16,
                    struct kv_layout *f32)
{
    struct settings set;
    const struct device *d;
    struct err e;
    settings_init(&set);
    uint32_t n_slots = (uint32_t)set.kv_block_tokens;
    bool ok = device_pick(&set, &d, info, &e) == OK &&
              d->kv_layout(&in->h, n_slots, KV_F16, KV_F16, f16, &e) == OK &&
              d->kv_layout(&in->h, n_slots, KV_F32, KV_F32, f32, &e) == OK;
    settings_release(&set);
    if (!ok)
        add_problem(in, &e);
    return ok;
}

static void print_plan(struct inspection *in)
{
    struct device_info device;
    struct kv_layout f16, f32;
    const struct hparams *h = &in->h;
    if (!in->has_hparams || in->g->n_tensors == 0 || !size_kv(in, &device, &f16, &f32))
        return;
    uint64_t limit = thread_memory_limit();
    uint64_t room = limit > in->tensor_bytes ? limit - in->tensor_bytes : 0;
    fprintf(in->out, "\ndevice\n  %-24s %s\n", device.name, device.text);
    fputs("\nmemory\n", in->out);
    fprintf(in->out, "  %-24s ", "weights");
    print_mib(in->out, in->tensor_bytes);
    fprintf(in->out, "\n  %-24s %.0f bytes per token (f16), %.0f (f32)\n", "kv",
            kv_layout_bytes_per_token(&f16), kv_layout_bytes_per_token(&f32));
    fprintf(in->out, "  %-24s ", "kv of a full context");
    print_mib(in->out, kv_seq_bytes(&f16, h->n_ctx_train));
    fprintf(in->out, "\n  %-24s %" PRIu64 " tokens (f16)\n", "1 GiB of kv holds",
            kv_seq_tokens(&f16, (uint64_t)1 << 30));
    fprintf(in->out, "  %-24s ", "memory of this machine");
    print_mib(in->out, limit);
    fprintf(in->out, ": beside the weights %" PRIu64 " tokens (f16)\n", kv_seq_tokens(&f16, room));
}

static void print_problems(struct inspection *in)
{
    struct str s = buf_str(&in->problems);
    fputs("\nmissing or unsupported\n", in->out);
    if (s.len == 0)
        fputs("  nothing: this file can be served\n", in->out);
    for (size_t start = 0; start < s.len;) {
        const char *end = memchr(s.ptr + start, '\n', s.len - start);
        size_t n = end ? (size_t)(end - s.ptr) - start : s.len - start;
        fputs("  ", in->out);
        print_text(in->out, (struct str){s.ptr + start, n}, ERR_TEXT_CAP);
        fputc('\n', in->out);
        start += n + 1;
    }
}

enum status engine_inspect(const char *path, FILE *out, bool *servable, struct err *e)
{
    struct gguf *g;
    enum status st = gguf_open(path, &g, e);
    if (st)
        return st;
    struct inspection in = {.g = g, .out = out};
    print_file(&in, path);
    print_architecture(&in);
    print_tensors(&in);
    check_weights(&in);
    print_tokenizer(&in);
    print_template(&in);
    print_plan(&in);
    print_problems(&in);
    *servable = in.problems.len == 0;
    buf_release(&in.problems);
    gguf_close(g);
    return OK;
}
