/* Any bytes as a model file: the directory, every accessor, hyperparameters, rope frequencies, weights
 * with their first and last blocks expanded, and the tokenizer with a short text. Nothing may be read
 * outside the bytes (the sanitizer checks), and accepted files must have the properties stated in the headers. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/model/weights.h"
#include "engine/text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keeps reads from being optimised away. */
static volatile uint64_t sink;

static void read_value(const struct gguf_value *v)
{
    struct str s;
    size_t cursor = 0;
    uint64_t n = 0;
    if (v->type != GGUF_ARRAY)
        return;
    if (v->elem_type == GGUF_STRING) {
        while (gguf_array_next_string(v, &cursor, &s)) {
            n++;
            if (s.len)
                sink += (uint8_t)s.ptr[0] + (uint8_t)s.ptr[s.len - 1];
        }
        CHECK(n == v->n);
        return;
    }
    for (uint64_t i = 0; i < v->n; i += 1 + v->n / 8)
        sink += (uint64_t)gguf_array_i64(v, i) + (uint64_t)isnan(gguf_array_f64(v, i));
}

static void read_values(const struct gguf *g)
{
    char key[256];
    uint64_t u;
    double d;
    bool b;
    struct str s;
    for (uint64_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *v = &g->value[i];
        read_value(v);
        gguf_printable(v->key, key, sizeof(key));
        if (gguf_u64(g, key, &u))
            sink += u;
        if (gguf_f64(g, key, &d))
            sink += (uint64_t)isnan(d);
        if (gguf_bool(g, key, &b))
            sink += b;
        if (gguf_string(g, key, &s) && s.len)
            sink += (uint8_t)s.ptr[0] + (uint8_t)s.ptr[s.len - 1];
    }
}

static void read_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
    float y[256];
    char name[256];
    uint64_t n = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
    CHECK(t->data >= g->map && t->n_bytes <= g->n_bytes);
    CHECK((size_t)(t->data - g->map) <= g->n_bytes - t->n_bytes);
    if (t->name.len < sizeof(name) - 1) {
        gguf_printable(t->name, name, sizeof(name));
        const struct gguf_tensor *found = gguf_tensor_find(g, name);
        CHECK(found == t || !str_eq_c(t->name, name));
    }
    if (!quant_supported(t->type))
        return;
    uint32_t block = quant_block_weights(t->type), bytes = quant_block_bytes(t->type);
    CHECK(n % block == 0 && t->dim[0] % block == 0 && t->n_bytes == n / block * bytes);
    quant_dequant(t->type, t->data, y, block);
    quant_dequant(t->type, t->data + t->n_bytes - bytes, y, block);
}

static void read_model(const struct gguf *g, const struct hparams *h)
{
    struct buf problems = {0};
    struct weights w;
    struct err e;
    double freq[HPARAMS_MAX_HEAD_DIM / 2];
    float factors[HPARAMS_MAX_HEAD_DIM / 2], magnitude;
    CHECK(h->n_heads % h->n_kv_heads == 0 && h->head_dim % 2 == 0 && h->rope_dims <= h->head_dim);
    CHECK(h->head_dim <= HPARAMS_MAX_HEAD_DIM && h->n_vocab >= 1);
    hparams_rope_freqs(h, NULL, freq, &magnitude);
    for (uint32_t i = 0; i < h->rope_dims / 2; i++)
        CHECK(isfinite(freq[i]) && freq[i] >= 0);
    CHECK(isfinite(magnitude));
    if (weights_bind(g, h, &w, &problems, &e) == OK) {
        CHECK(w.token_embd && w.output && w.output_norm && w.layer[h->n_layers - 1].down);
        if (h->features & ARCH_LOCAL_LAYERS)
            hparams_rope_freqs_local(h, freq);
        if (w.rope_freqs) {
            quant_dequant(w.rope_freqs->type, w.rope_freqs->data, factors, h->rope_dims / 2);
            hparams_rope_freqs(h, factors, freq, &magnitude);
        }
        weights_release(&w);
    } else {
        CHECK(problems.len > 0);
    }
    buf_release(&problems);
}

static void read_tokenizer(const struct gguf *g)
{
    static const char text[] = "!\"#  hello <|im_end|> \xc3\xa9\n";
    struct tokenizer *t;
    struct err e;
    if (tokenizer_new(g, STR_LIT(""), &t, &e) != OK)
        return;
    struct tokens tokens = {0};
    struct encode_options options = {.add_special = true, .parse_special = true};
    struct buf out = {0};
    if (tokenizer_encode(t, (struct str){text, sizeof(text) - 1}, &options, &tokens, &e) == OK) {
        for (uint32_t i = 0; i < tokens.n; i++)
            CHECK(tokens.id[i] >= 0 && (uint32_t)tokens.id[i] < tokenizer_n_vocab(t));
        CHECK(tokenizer_decode(t, tokens.id, tokens.n, false, &out, &e) == OK);
    }
    buf_release(&out);
    tokens_release(&tokens);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct hparams h;
    struct err e;
    log_set_level(LOG_ERROR);
    if (gguf_open_memory(data, size, &g, &e) != OK)
        return 0;
    CHECK(g->n_values <= GGUF_MAX_VALUES && g->n_tensors <= GGUF_MAX_TENSORS);
    read_values(g);
    for (uint64_t i = 0; i < g->n_tensors; i++)
        read_tensor(g, &g->tensor[i]);
    if (hparams_read(g, &h, &e) == OK)
        read_model(g, &h);
    read_tokenizer(g);
    gguf_close(g);
    return 0;
}
