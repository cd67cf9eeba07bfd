/* Activations as the levels of 8 rows a group take them. Read-only tables; any thread. */
#ifndef ENGINE_CPU_C_ACT8_H
#define ENGINE_CPU_C_ACT8_H

#include "engine/cpu/kernels.h"

/* Forms of activations, in blocks of 32 inputs. Sums are those of the rounded values in both halves
 * of the block: they carry the weights' mins. */
enum act_form { ACT_I8, ACT_I16, ACT_F32, ACT_FORMS };

/* Largest ratio: 4 groups * 2 lanes * 2 maddubs * 2 * 15 * 127 * 16384 = 0.93 * 2^30 fits 31 bits. */
enum { ACT_I8_RATIO = 16384 };

/* One scale per 8 inputs, as an integer ratio to the block's: input i is q[i] * ratio[i / 8] * d. The
 * ratio replaces the ones of the madd that widens sums anyway, so fine scales cost almost nothing. */
struct act_i8 {
    int8_t q[32];
    int16_t ratio[4][2]; /* 0..ACT_I8_RATIO, twice: for both halves of a lane */
    float d;
    float sum[2];
    float sum_all; /* sum[0] + sum[1] */
};

/* Inputs in the order 0 2 1 3 within each four, as the 16-bit halves of packed bytes come. */
struct act_i16 {
    int16_t q[32];
    float d;
    float sum[2];
    float sum_all;
};

struct act_f32 {
    float x[32];
    float sum[2];
    float sum_all;
    float unused;
};

extern const struct pack_format pack_8_rows;
/* Float weights keep floats; 8-bit weights take 16-bit activations even in the int8 setting, because
 * with plain AVX2 they cost no more than 8-bit ones. */
uint32_t act8_form(enum pack_kind kind, int activations_setting);

#endif
