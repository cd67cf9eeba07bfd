/* Weight matrices in the form that the kernels read: output rows interleaved in groups, 32 inputs per block.
 *
 * Made once at load from the GGUF's formats without loss: integers stay integers, scales keep
 * their encoding. A level chooses R, the rows of a group (struct pack_format). A matrix is a run of
 * groups (the last one padded with zero rows); a group is a run of units along the inputs; a unit is
 * one block of 32 inputs, or for the K-quants a header and 8 blocks (256 inputs). Inside a block the
 * payload is
 *   4-bit: 4 vectors of 4 R bytes; byte 4*r+i of vector v holds input 4*v+i of row r in its low half
 *          and input 16+4*v+i in its high half (unsigned 0..15)
 *   8-bit: 8 vectors of 4 R bytes; byte 4*r+i of vector v holds input 4*v+i of row r, plus the bias
 * so that 32-bit lane r of a vector is row r, with four adjacent inputs for a byte product.
 * A weight is scale*q + min. Float kinds hold [input][R rows]. Thread: read-only after load. */
#ifndef ENGINE_CPU_PACKED_H
#define ENGINE_CPU_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include "engine/model/gguf.h"

enum { PACK_BLOCK = 32 };

/* id, blocks per unit, then bytes per row: unit header, block header, payload.
 * Headers, each times R rows:
 *   N4      block: f16 d                min = -8 d            Q4_0
 *   N4_M    block: f16 d, f16 m         min = m               Q4_1
 *   N4_K    unit: f16 d, f16 dm; block: i8 s, i8 n            Q4_K (scale d*s, min -dm*n)
 *   N4_K16  as N4_K with i8 s[2], n[2], one per half block    Q2_K, Q3_K
 *   I8      block: f16 d                no min                Q8_0, Q5_0
 *   I8_M    block: f16 d, f16 m                               Q5_1
 *   I8_K    as N4_K                                           Q5_K
 *   I8_K16  unit: f16 d, unused; block: i8 s[2]; no min       Q6_K */
#define PACK_TABLE(X)                                                                              \
    X(PACK_N4, 1, 0, 2, 16)                                                                        \
    X(PACK_N4_M, 1, 0, 4, 16)                                                                      \
    X(PACK_N4_K, 8, 4, 2, 16)                                                                      \
    X(PACK_N4_K16, 8, 4, 4, 16)                                                                    \
    X(PACK_I8, 1, 0, 2, 32)                                                                        \
    X(PACK_I8_M, 1, 0, 4, 32)                                                                      \
    X(PACK_I8_K, 8, 4, 2, 32)                                                                      \
    X(PACK_I8_K16, 8, 4, 2, 32)                                                                    \
    X(PACK_F32, 1, 0, 0, 128)                                                                      \
    X(PACK_F16, 1, 0, 0, 64)                                                                       \
    X(PACK_BF16, 1, 0, 0, 64)

enum pack_kind {
#define X(id, blocks, unit_head, block_head, payload) id,
    PACK_TABLE(X)
#undef X
        PACK_KINDS
};

/* The properties that a level chooses. */
struct pack_format {
    uint32_t rows; /* R, outputs per group: a divisor of 32 */
    int byte_bias; /* added to 8-bit integers: 128 where the byte product needs them unsigned */
};

struct pack_shape {
    uint32_t blocks; /* blocks of 32 inputs per unit */
    uint32_t unit_head; /* bytes */
    uint32_t block_head; /* bytes */
    uint32_t block_bytes; /* header and payload */
    uint32_t unit_bytes;
};

struct packed {
    const struct pack_format *format; /* of the level */
    enum pack_kind kind;
    struct pack_shape shape;
    uint32_t n_rows; /* outputs */
    uint32_t n_in; /* inputs as in the file */
    uint32_t n_blocks; /* inputs / 32, rounded up */
    uint32_t n_groups; /* outputs / format->rows, rounded up */
    size_t group_bytes;
    uint8_t *data; /* borrows from the model's weight memory, 64-byte aligned */
};

enum pack_kind pack_kind_of(enum quant_type type);
struct pack_shape pack_shape_of(const struct pack_format *f, enum pack_kind kind);
/* Fills all but data; t has at least one dimension, dims above the second are 1. */
void packed_plan(struct packed *p, const struct pack_format *f, const struct gguf_tensor *t);
size_t packed_bytes(const struct packed *p);
/* Repacks groups [group0, group0 + n) of t into p->data. Any thread, disjoint ranges. */
void packed_fill(const struct packed *p, const struct gguf_tensor *t, uint32_t group0, uint32_t n);
/* Expands one row to f32: out[n_blocks * 32] (zeros after n_in). */
void packed_row(const struct packed *p, uint32_t row, float *out);
/* Expands block b of one row of a group: integers as f32, d and m per half block. For float kinds q
 * holds the weights, d = 1, m = 0. Reads format, kind and shape of p. Used by the plain C kernels and
 * packed_row. */
void packed_block(const struct packed *p, const uint8_t *group, uint32_t b, uint32_t row,
                  float q[PACK_BLOCK], float d[2], float m[2]);

#endif
