/* Activation forms of the levels with 8 rows per group. Read-only tables; any thread. */
#ifndef ENGINE_CPU_C_ACT8_H
#define ENGINE_CPU_C_ACT8_H

#include "engine/cpu/kernels.h"

/* Activation forms, in blocks of 32 inputs. sum: sums of the rounded values of the first half of the block and
 * of the whole block; the weights' mins are multiplied by them. */
enum act_form { ACT_Q32, ACT_I16, ACT_F32, ACT_FORMS };

/* 8 bits and one scale: input i is d * q[i], and in the two aligned quads of inputs with the largest
 * magnitudes (the first among equals) d * (q[i] + 128 * ex), where ex of quad[k] is at 4 * k + i % 4. The few
 * largest of 32 inputs determine the error of 8 bits: with a second digit for them the scale fits the other 24. */
struct act_q32 {
    int8_t q[32];
    int8_t ex[8];
    uint16_t quad[2]; /* each 0..7, different */
    float d;
    float sum[2];
    int32_t
        bias[2]; /* -128 times the sum of the integers of the first half, and of all: corrects for
                        weights that are stored with 128 added */
};

/* The largest digit and the largest number of two digits; scales below the smallest one count as 0. */
#define Q32_DIGIT 127.0f
#define Q32_TWO_DIGITS 16256.0f
#define Q32_LEAST_SCALE 0x1p-126f

/* Inputs in the order 0 2 1 3 within each group of four, which is the order of the 16-bit halves of packed bytes. */
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
/* Float weights use floats; 8-bit weights use 16-bit activations even under the int8 setting, because
 * with plain AVX2 they cost no more than 8-bit ones. */
uint32_t act8_form(enum pack_kind kind, int activations_setting);

#endif
