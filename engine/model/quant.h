/* GGUF tensor types: block sizes, bytes, and scalar dequantisation (the oracle for every kernel). */
#ifndef ENGINE_MODEL_QUANT_H
#define ENGINE_MODEL_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* id: name in code, number in the file, printed name, weights per block, bytes per block. */
#define QUANT_TABLE(X)                                                                             \
    X(QUANT_F32, 0, "F32", 1, 4)                                                                   \
    X(QUANT_F16, 1, "F16", 1, 2)                                                                   \
    X(QUANT_Q4_0, 2, "Q4_0", 32, 18)                                                               \
    X(QUANT_Q4_1, 3, "Q4_1", 32, 20)                                                               \
    X(QUANT_Q5_0, 6, "Q5_0", 32, 22)                                                               \
    X(QUANT_Q5_1, 7, "Q5_1", 32, 24)                                                               \
    X(QUANT_Q8_0, 8, "Q8_0", 32, 34)                                                               \
    X(QUANT_Q2_K, 10, "Q2_K", 256, 84)                                                             \
    X(QUANT_Q3_K, 11, "Q3_K", 256, 110)                                                            \
    X(QUANT_Q4_K, 12, "Q4_K", 256, 144)                                                            \
    X(QUANT_Q5_K, 13, "Q5_K", 256, 176)                                                            \
    X(QUANT_Q6_K, 14, "Q6_K", 256, 210)                                                            \
    X(QUANT_BF16, 30, "BF16", 1, 2)

/* Other types of the format: known by name and size, so that a file that holds them can be inspected;
 * none of them can be computed. Q8_1 and Q8_K have no size here: no file holds them. */
#define QUANT_OTHER_TABLE(X)                                                                       \
    X(4, "Q4_2", 0, 0)                                                                             \
    X(5, "Q4_3", 0, 0)                                                                             \
    X(9, "Q8_1", 0, 0)                                                                             \
    X(15, "Q8_K", 0, 0)                                                                            \
    X(16, "IQ2_XXS", 256, 66)                                                                      \
    X(17, "IQ2_XS", 256, 74)                                                                       \
    X(18, "IQ3_XXS", 256, 98)                                                                      \
    X(19, "IQ1_S", 256, 50)                                                                        \
    X(20, "IQ4_NL", 32, 18)                                                                        \
    X(21, "IQ3_S", 256, 110)                                                                       \
    X(22, "IQ2_S", 256, 82)                                                                        \
    X(23, "IQ4_XS", 256, 136)                                                                      \
    X(24, "I8", 1, 1)                                                                              \
    X(25, "I16", 1, 2)                                                                             \
    X(26, "I32", 1, 4)                                                                             \
    X(27, "I64", 1, 8)                                                                             \
    X(28, "F64", 1, 8)                                                                             \
    X(29, "IQ1_M", 256, 56)                                                                        \
    X(34, "TQ1_0", 256, 54)                                                                        \
    X(35, "TQ2_0", 256, 66)                                                                        \
    X(39, "MXFP4", 32, 17)                                                                         \
    X(40, "NVFP4", 64, 36)

enum quant_type {
#define X(id, number, name, n, bytes) id = number,
    QUANT_TABLE(X)
#undef X
};

/* Also of types that are not supported (IQ2_XXS ...); "unknown" for others. */
const char *quant_name(uint32_t type);
bool quant_supported(uint32_t type);
uint32_t quant_block_weights(uint32_t type); /* 0 when not supported */
uint32_t quant_block_bytes(uint32_t type);
/* Block of any type whose size is known, supported or not; false for others. */
bool quant_block(uint32_t type, uint32_t *weights, uint32_t *bytes);
/* Bytes of n weights; n must be a multiple of the block. */
size_t quant_row_bytes(uint32_t type, uint64_t n);
/* Expands n weights (a multiple of the block) to f32. Plain C, no intrinsics. */
void quant_dequant(uint32_t type, const void *src, float *dst, uint64_t n);

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* round to nearest even */
float bf16_to_f32(uint16_t h);

#endif
