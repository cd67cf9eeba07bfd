/* The model's weights in the form that the CPU kernels read, repacked into one block of huge-page memory.
 * Made at load (main thread), read-only afterwards. */
#ifndef ENGINE_CPU_CPU_MODEL_H
#define ENGINE_CPU_CPU_MODEL_H

#include "engine/cpu/packed.h"
#include "engine/cpu/pool.h"
#include "engine/model/hparams.h"
#include "engine/model/weights.h"

struct cpu_layer {
    struct packed q, k, v, attn_out, gate, up, down;
    /* Vectors borrow from memory; NULL where the architecture or the file has none. */
    const float *attn_norm, *ffn_norm;
    const float *q_bias, *k_bias, *v_bias;
    const float *q_norm, *k_norm; /* [head_dim] */
    const float *attn_post_norm, *ffn_post_norm;
};

struct cpu_model {
    struct hparams h;
    struct cpu_layer *layer; /* owns [n_layers] */
    struct packed head;
    const float *output_norm;
    /* Embedding rows: from head when tied, else as stored in the file. */
    const struct gguf_tensor *token_embd; /* NULL when tied, else &embd */
    struct gguf_tensor embd; /* data borrows from memory, the name from the gguf */
    double *inv_freq; /* owns [rope_dims/2] */
    double *inv_freq_local; /* owns [rope_dims/2]; NULL without local layers */
    float *no_rotation; /* owns: angles of layers that do not rotate; NULL when all do */
    float rope_magnitude;
    uint8_t *memory; /* owns (munmap): the memory that all of the above point into */
    size_t n_bytes;
};

/* The tensors' data in the gguf is not read later: its pages are dropped. */
enum status cpu_model_load(const struct gguf *g, const struct hparams *h, const struct weights *w,
                           const struct pack_format *format, struct pool *pool,
                           struct cpu_model **out, struct err *e);
/* Computes only the size of its memory (n_bytes) and the layout of its matrices: no weight is read, and the
 * model cannot compute. */
struct cpu_model *cpu_model_plan(const struct hparams *h, const struct weights *w,
                                 const struct pack_format *format);
void cpu_model_free(struct cpu_model *m);
/* Writes n_embd values of a token's embedding, scaled as the layers expect it. */
void cpu_model_embedding(const struct cpu_model *m, uint32_t token, float *out);

#endif
