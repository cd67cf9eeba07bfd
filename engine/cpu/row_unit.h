/* One row of a quantised matrix as stored in the file, without loss: integers and their encoded scales. The
 * levels' packed formats are made from it. Thread: any; no state. */
#ifndef ENGINE_CPU_ROW_UNIT_H
#define ENGINE_CPU_ROW_UNIT_H

#include <stdint.h>

#include "engine/cpu/packed.h"

/* A weight is d * s * q - m * n for K-quants (units of 8 blocks), d * q + m for the others (one block). */
struct row_unit {
    int8_t q[8][PACK_BLOCK];
    uint16_t d, m; /* f16 of the unit (K-quants) or of the block */
    int8_t s[8][2]; /* scale codes per half block */
    int8_t n[8][2]; /* min codes */
};

/* Reads the unit at b: 8 blocks of a K-quant, one block of the other quantised types. */
void row_unit_read(enum quant_type type, const uint8_t *b, struct row_unit *u);

#endif
