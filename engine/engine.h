/* The engine's door: opens a model file, reports its facts, makes the backend that runs it.
 * Thread: engine_open on the loader thread, engine_close on the main thread; info, tokenizer and template are read-only
 * after open and may be used by any thread; the backend belongs to the engine thread. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "engine/backend.h"
#include "engine/text/text.h"
#include "kvpool/layout.h"

struct settings;
struct engine;

struct engine_info {
    char architecture[32];
    char name[128]; /* general.name or "" */
    char file_type[32]; /* the type with the most bytes in matrices, for instance "Q4_1" */
    struct device_info device; /* the device that computes */
    uint32_t n_vocab;
    uint32_t n_layers, n_heads, n_kv_heads, head_dim, n_embd, n_ff;
    uint32_t n_ctx_train; /* context length of the model */
    uint64_t n_params;
    uint64_t tensor_bytes; /* bytes of all tensors in the file */
    bool has_template;
    /* general.sampling.*: NaN / -1 when the file has none */
    float sampling_temperature, sampling_top_p, sampling_min_p;
    int32_t sampling_top_k;
    bool sampling_advised; /* they come from config/known_sampling.def, not from the file */
};

/* Opens, checks and loads the model (progress goes to the log). template_source: NULL uses the model's.
 * Errors: ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, each with one line of text. */
enum status engine_open(const char *path, const struct settings *s, struct engine **out,
                        struct err *e);
void engine_close(struct engine *en);

const struct engine_info *engine_info(const struct engine *en);
const struct tokenizer *engine_tokenizer(const struct engine *en);
const struct chat_template *engine_template(const struct engine *en); /* NULL when there is none */
/* The layout of KV blocks for this model under the settings (kv.dtype, kv.block_tokens). */
enum status engine_kv_layout(const struct engine *en, const struct settings *s,
                             struct kv_layout *out, struct err *e);
/* A digest that differs whenever KV of equal tokens may differ: a hash of the file's bytes (the first 16) and of
 * the device's way of computing. Reads the whole file. */
void engine_digest(const struct engine *en, uint8_t digest[32]);
/* With quantised KV: measures the types' loss of quality for this model against f16 on a built-in text (in about
 * a second at most), logs it in one line, and warns when it is large. Never refuses. */
void engine_kv_gate(struct engine *en, const struct kv_layout *layout);
/* Allocates KV blocks on the device; n_host NULL: none. */
enum status engine_kv_store(struct engine *en, const struct kv_layout *layout,
                            const uint32_t *n_frames, const uint32_t *n_host, struct kv_store **out,
                            struct err *e);
/* Makes the device's backend over such memory; limits bound every later batch and size all scratch. */
enum status engine_backend(struct engine *en, struct kv_store *kv, const struct kv_layout *layout,
                           struct backend_limits limits, struct backend **out, struct err *e);

/* The memory needed to serve a model, computed from the file's metadata: no weight is read. */
struct engine_needs {
    struct engine_info
        info; /* in device: weight_bytes as after loading, scratch_bytes for these limits */
    struct kv_layout layout; /* under the settings */
};
enum status engine_plan(const char *path, const struct settings *s, struct backend_limits limits,
                        struct engine_needs *out, struct err *e);

/* `millrace inspect`: prints facts and everything missing or unsupported. Returns OK even when the model
 * cannot be served (see *servable); an error only when the file cannot be read at all. */
enum status engine_inspect(const char *path, FILE *out, bool *servable, struct err *e);

#endif
