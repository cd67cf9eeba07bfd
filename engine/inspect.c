/* `millrace inspect`: what a GGUF file holds, what serving it would take, and everything in it that
 * is missing or unsupported. Main thread. */
#include "engine/engine.h"

#include <inttypes.h>

#include "base/mem.h"
#include "config/settings.h"
#include "engine/cpu/packed.h"
#include "engine/model/gguf.h"
#include "engine/model/hparams.h"
#include "engine/model/weights.h"

static double mib(uint64_t n_bytes)
{
    return (double)n_bytes / (1 << 20);
}

static void print_file(const struct gguf *g, FILE *out)
{
    struct str s;
    fprintf(out,
            "file: GGUF version %u, %.1f MiB, %" PRIu64 " metadata values, %" PRIu64
            " tensors, alignment %u\n",
            g->version, mib(g->n_bytes), g->n_values, g->n_tensors, g->alignment);
    if (gguf_string(g, "general.architecture", &s))
        fprintf(out, "architecture: %.*s\n", (int)s.len, s.ptr);
    if (gguf_string(g, "general.name", &s))
        fprintf(out, "name: %.*s\n", (int)s.len, s.ptr);
}

/* One line a tensor type that occurs. */
static void print_types(const struct gguf *g, FILE *out)
{
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        uint32_t type = g->tensor[i].type;
        uint64_t n = 0, n_bytes = 0, weights = 0;
        bool first = true;
        for (uint64_t j = 0; j < g->n_tensors; j++) {
            const struct gguf_tensor *t = &g->tensor[j];
            if (t->type != type)
                continue;
            first = first && j >= i;
            n++;
            n_bytes += t->n_bytes;
            weights += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        }
        if (first)
            fprintf(out, "tensors: %-6s %4" PRIu64 " tensors %13" PRIu64 " weights %9.1f MiB%s\n",
                    quant_name(type), n, weights, mib(n_bytes),
                    quant_supported(type) ? "" : " (type not supported)");
    }
}

static void print_hparams(const struct hparams *h, FILE *out)
{
    static const char *const scaling[] = {"none", "linear", "llama3", "yarn"};
    fprintf(out, "shape: %u layers, width %u, feed-forward %u, vocabulary %u, context %u\n",
            h->n_layers, h->n_embd, h->n_ff, h->n_vocab, h->n_ctx_train);
    fprintf(out, "attention: %u heads, %u KV heads, head size %u\n", h->n_heads, h->n_kv_heads,
            h->head_dim);
    fprintf(out, "rope: %s, %u of %u components, base %g, scaling %s",
            h->rope_kind == ROPE_NEOX ? "half-split" : "neighbours", h->rope_dims, h->head_dim,
            (double)h->rope_base, scaling[h->scaling]);
    if (h->scaling != ROPE_SCALING_NONE)
        fprintf(out, " factor %g, original context %u", (double)h->scaling_factor,
                h->scaling_orig_ctx);
    fprintf(out, "\nnorm epsilon: %g\nembeddings: %s\n", (double)h->rms_eps,
            h->tied_embeddings ? "tied to the output" : "separate from the output");
}

static void print_text(const struct gguf *g, FILE *out)
{
    struct err why;
    struct str s;
    struct tokenizer *t = NULL;
    if (tokenizer_new(g, &t, &why) == OK) {
        uint32_t n;
        const int32_t *stop = tokenizer_stop_tokens(t, &n);
        struct str model = STR_LIT("?"), pre = STR_LIT("default");
        gguf_string(g, "tokenizer.ggml.model", &model);
        gguf_string(g, "tokenizer.ggml.pre", &pre);
        fprintf(out, "tokenizer: %.*s, pre %.*s, %u tokens, bos %d%s, eos %d, end of generation:",
                (int)model.len, model.ptr, (int)pre.len, pre.ptr, tokenizer_n_vocab(t),
                tokenizer_bos(t), tokenizer_adds_bos(t) ? " (added)" : "", tokenizer_eos(t));
        for (uint32_t i = 0; i < n; i++) {
            struct str text = tokenizer_text(t, stop[i]);
            fprintf(out, " %d %.*s", stop[i], (int)text.len, text.ptr);
        }
        fprintf(out, "\n");
        tokenizer_free(t);
    } else {
        fprintf(out, "problem: %s\n", why.text);
    }
    if (!gguf_string(g, "tokenizer.chat_template", &s)) {
        fprintf(out, "chat template: none\n");
        return;
    }
    struct chat_template *template = NULL;
    enum status st = template_new(s, &template, &why);
    fprintf(out, "chat template: %zu bytes\n", s.len);
    if (st == OK)
        template_free(template);
    else
        fprintf(out, "problem: chat template: %s\n", why.text);
}

static uint64_t packed_size(const struct gguf_tensor *t)
{
    struct packed p;
    packed_plan(&p, t);
    return packed_bytes(&p);
}

static void print_memory(const struct hparams *h, const struct weights *w, FILE *out)
{
    uint64_t n_bytes = packed_size(w->output);
    struct kv_layout f16, f32;
    struct settings s;
    struct err e;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct layer_weights *l = &w->layer[i];
        const struct gguf_tensor *all[] = {l->q, l->k, l->v, l->attn_out, l->gate, l->up, l->down};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
            n_bytes += packed_size(all[j]);
    }
    fprintf(out, "memory: %.1f MiB of weights once repacked", mib(n_bytes));
    if (w->output != w->token_embd)
        fprintf(out, " and %.1f MiB of embeddings in the file", mib(w->token_embd->n_bytes));
    fprintf(out, "\n");
    settings_init(&s);
    uint32_t n_slots = (uint32_t)s.kv_block_tokens;
    settings_release(&s);
    if (kv_layout_init(&f16, h->n_layers, h->n_kv_heads, h->head_dim, n_slots, KV_F16, &e) != OK ||
        kv_layout_init(&f32, h->n_layers, h->n_kv_heads, h->head_dim, n_slots, KV_F32, &e) != OK)
        return;
    fprintf(out,
            "kv cache: %zu bytes a token in f16 (%.1f MiB for a full context of %u), %zu in f32\n",
            f16.bytes_per_token, mib((uint64_t)f16.bytes_per_token * h->n_ctx_train),
            h->n_ctx_train, f32.bytes_per_token);
}

/* Prints each line of what binding found with a label. */
static void print_problems(const struct buf *problems, FILE *out)
{
    struct str s = buf_str(problems);
    size_t start = 0;
    for (size_t i = 0; i <= s.len; i++) {
        if (i < s.len && s.ptr[i] != '\n')
            continue;
        if (i > start)
            fprintf(out, "problem: %.*s\n", (int)(i - start), s.ptr + start);
        start = i + 1;
    }
}

static bool print_model(const struct gguf *g, FILE *out)
{
    struct hparams h;
    struct weights w = {0};
    struct buf problems = {0};
    struct err why;
    if (hparams_read(g, &h, &why) != OK) {
        fprintf(out, "problem: %s\n", why.text);
        return false;
    }
    print_hparams(&h, out);
    bool bound = weights_bind(g, &h, &w, &problems, &why) == OK;
    if (bound)
        print_memory(&h, &w, out);
    print_problems(&problems, out);
    if (!bound && problems.len == 0)
        fprintf(out, "problem: %s\n", why.text);
    buf_release(&problems);
    weights_release(&w);
    return bound;
}

enum status engine_inspect(const char *path, FILE *out, struct err *e)
{
    struct gguf *g;
    enum status st = gguf_open(path, &g, e);
    if (st != OK)
        return st;
    print_file(g, out);
    print_types(g, out);
    bool servable = print_model(g, out);
    print_text(g, out);
    fprintf(out, "can be served: %s\n", servable ? "yes" : "no");
    gguf_close(g);
    return OK;
}
