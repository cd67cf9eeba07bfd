/* Activations as the levels of 8 rows a group take them. Read-only tables; any thread. */
#ifndef ENGINE_CPU_C_ACT8_H
#define ENGINE_CPU_C_ACT8_H

#include "engine/cpu/kernels.h"

/* Forms of activations, in blocks of 32 inputs. sum: of the rounded values of the first half of the block,
 * then of all: they carry the weights' mins. */
enum act_form { ACT_Q32, ACT_I16, ACT_F32, ACT_FORMS };

/* 8 bits and one scale: input i is d * q[i], and in the two aligned quads of inputs with the largest
 * magnitudes (the first of equals) d * (q[i] + 128 * ex), ex of quad[k] at 4 * k + i % 4. The error of 8
 * bits is set by the few largest of 32: with a second digit for them the scale follows the other 24. */
struct act_q32 {
    int8_t q[32];
    int8_t ex[8];
    uint16_t quad[2]; /* 0..7 each, not the same */
    float d;
    float sum[2];
    int32_t
        bias[2]; /* -128 times the whole numbers of the first half, of all: what weights that are
                        stored 128 too large add to a product */
};

/* Largest digit and largest number of two digits; scales below the least one count as 0. */
#define Q32_DIGIT 127.0f
#define Q32_TWO_DIGITS 16256.0f
#define Q32_LEAST_SCALE 0x1p-126f

/* Inputs in the order 0 2 1 3 within each four, as the 16-bit halves of packed bytes come. */
struct act_i16 {
    int16_t q[32];
    float d;
    float sum[2];
    float unused;
};

struct act_f32 {
    float x[32];
    float sum[2];
    float unused[2];
};

extern const struct pack_format pack_8_rows;
/* Float weights keep floats; 8-bit weights take 16-bit activations even in the int8 setting, because
 * with plain AVX2 they cost no more than 8-bit ones. */
uint32_t act8_form(enum pack_kind kind, int activations_setting);

#endif
