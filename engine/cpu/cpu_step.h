/* State of the CPU backend: scratch for the largest batch, and the running step. */
#ifndef ENGINE_CPU_CPU_STEP_H
#define ENGINE_CPU_CPU_STEP_H

#include "engine/backend.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/pool.h"
#include "engine/forward.h"

enum {
    CHUNK_ROWS = 32, /* outputs of a matrix computed together: one block of the next activation */
    TILE_TOKENS = 64, /* rows computed together; their outputs stay in the first-level cache */
    ITEM_TOKENS = 128, /* rows of one work item */
    HEAD_ROWS = 32, /* rows of logits held at the same time */
    MATRICES_A_PHASE = 3,
    SCRATCH_ALIGN = 64 /* bytes */
};

/* Inputs of matrix products, in every form that is needed. */
struct act {
    unsigned forms; /* bit set over the level's forms */
    uint32_t n_blocks;
    size_t stride[KERNEL_FORMS]; /* bytes from row to row */
    uint8_t *form[KERNEL_FORMS]; /* owns [max_rows * stride] */
};

struct worker_scratch {
    float *tile[2]; /* [TILE_TOKENS][CHUNK_ROWS] each */
    float *row; /* [row_floats] */
    float *attend;
    struct sample_scratch *sample;
};

/* Consecutive rows of one sequence for which one work item computes attention. */
struct attend_tile {
    const struct batch_span *span;
    uint32_t row0; /* of q */
    uint32_t out0; /* row of the attention's output */
    uint32_t n_rows;
    uint32_t pos0;
};

/* The step's blocks that are read from the spill file; see cpu_stage.c. */
struct cpu_stage {
    uint8_t *buffer; /* owns [max_staged][slice_bytes]; NULL when max_staged is 0 */
    size_t slice_bytes;
    size_t offset; /* of the layer's slice in a slot of the buffer */
    uint32_t n;
    uint32_t *entry; /* owns [max_staged]: of the span's table; ascending within a span */
    uint32_t *file_slot; /* owns [max_staged] */
    struct batch_span **span; /* owns [max_staged]; borrow from the batch */
    bool *failed; /* owns [max_staged] */
    uint32_t *span_first, *span_n; /* own [max_spans]: a span's part of the above */
};

struct cpu_backend {
    struct backend base; /* first: the door's handle */
    const struct cpu_model *m;
    const struct kernels *k;
    struct pool *pool; /* borrows from the engine */
    int activations;
    struct batch *flight[BACKEND_MAX_FLIGHT]; /* done, not collected yet; oldest first */
    uint32_t n_flight;
    uint64_t n_collected; /* the ticket of flight[i] is n_collected + i + 1 */

    /* widths in floats, rounded up to 32 */
    uint32_t embd_pad, attn_pad, qkv_width, row_floats, vocab_pad;
    float *x; /* owns [max_rows][embd_pad], the residual */
    float *qkv; /* owns [max_rows][qkv_width]: q heads, k heads, v heads */
    float *attn; /* owns [max_rows][attn_pad] */
    uint32_t angles_width; /* rope_dims, or twice that when local layers have their own base */
    float *cos_sin; /* owns [max_rows][angles_width], the local ones second */
    float *
        y; /* owns [max_rows][embd_pad], a projection before its norm; NULL without ARCH_POST_NORM */
    float *logits; /* owns [HEAD_ROWS][vocab_pad] */
    struct act embd_act, attn_act, ff_act;
    uint32_t *row_pos; /* owns [max_rows] position */
    bool *row_spoilt; /* owns [max_rows]: its K or V is not finite */
    struct batch_span **row_span; /* owns [max_rows]; borrow from the batch */
    struct attend_tile *tile; /* owns [max_rows] */
    uint32_t n_tiles;
    struct worker_scratch *worker; /* owns [threads] */
    size_t
        lacking_bytes; /* during construction: size of the first scratch allocation that failed */
    struct cpu_stage stage;

    /* the running step */
    struct batch *b;
    uint32_t n_rows; /* rows being computed: all, then only those with logits */
    uint32_t layer;
};

extern const struct forward_ops cpu_forward_ops;
void act_init(struct cpu_backend *be, struct act *a, unsigned forms, uint32_t n_in,
              uint32_t max_rows);
void act_release(struct act *a);
/* Bit set of the forms that these matrices take. */
unsigned act_forms(const struct cpu_backend *be, const struct packed *const *w, uint32_t n);
/* Quantises n floats (a multiple of 32) into a row of a, from block0 on, in the forms asked for. */
void act_put(const struct kernels *k, const struct act *a, unsigned forms, uint32_t row,
             uint32_t block0, const float *x, uint32_t n);
/* Forms that one matrix takes. */
unsigned act_forms_of(const struct cpu_backend *be, const struct packed *w);
/* n zeroed elements; NULL, with lacking_bytes set, when there is no memory for them. */
void *cpu_scratch(struct cpu_backend *be, size_t alignment, size_t n, size_t elem_bytes);
/* Fills the row maps and attention tiles of a batch. */
void cpu_step_begin(struct cpu_backend *be, struct batch *b);

/* cpu_attend.c */
void cpu_attend_begin(struct cpu_backend *be);
void cpu_attend_end(struct cpu_backend *be); /* fills the spans' results */
void cpu_rope_angles(struct cpu_backend *be, uint32_t row);
void cpu_op_rope_kv(void *step, uint32_t layer);
void cpu_op_only_outs(void *step);
void cpu_op_attention(void *step, uint32_t layer);

/* cpu_stage.c */
void cpu_stage_init(struct cpu_backend *be);
void cpu_stage_release(struct cpu_backend *be);
void cpu_stage_begin(struct cpu_backend *be);
void cpu_stage_layer(struct cpu_backend *be); /* reads the slices of be->layer */
/* Sets the location of staged blocks in an attention of the span's rows. */
void cpu_stage_attend(const struct cpu_backend *be, const struct batch_span *s, uint32_t kv_head,
                      struct attend *a);
void cpu_stage_end(struct cpu_backend *be);

#endif
