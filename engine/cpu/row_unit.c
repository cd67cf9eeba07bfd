/* Rows of the GGUF tensor formats as integers and encoded scales; see row_unit.h. */
#include "engine/cpu/row_unit.h"

#include <string.h>

#include "base/check.h"

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void unit_q4(const uint8_t *qs, int8_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = qs[j] & 15;
        q[j + 16] = qs[j] >> 4;
    }
}

static void unit_q5(const uint8_t *qh, const uint8_t *qs, int bias, int8_t *q)
{
    uint32_t high = load16(qh) | (uint32_t)load16(qh + 2) << 16;
    for (int j = 0; j < 16; j++) {
        q[j] = (int8_t)(((qs[j] & 15) | (high >> j & 1) << 4) - bias);
        q[j + 16] = (int8_t)(((qs[j] >> 4) | (high >> (j + 16) & 1) << 4) - bias);
    }
}

static void unit_q2_k(const uint8_t *b, struct row_unit *u)
{
    const uint8_t *scales = b, *qs = b + 16;
    u->d = load16(b + 80);
    u->m = load16(b + 82);
    for (int i = 0; i < 8; i++) {
        const uint8_t *src = qs + 32 * (i / 4);
        for (int l = 0; l < 32; l++)
            u->q[i][l] = src[l] >> 2 * (i % 4) & 3;
        for (int h = 0; h < 2; h++) {
            u->s[i][h] = scales[2 * i + h] & 15;
            u->n[i][h] = (int8_t)(scales[2 * i + h] >> 4);
        }
    }
}

/* q + 4 in 0..7, scale s, and min = -4 * d * s with dm = d. */
static void unit_q3_k(const uint8_t *b, struct row_unit *u)
{
    const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
    u->d = load16(b + 108);
    u->m = u->d;
    for (int i = 0; i < 8; i++) {
        const uint8_t *src = qs + 32 * (i / 4);
        for (int l = 0; l < 32; l++)
            u->q[i][l] = (int8_t)((src[l] >> 2 * (i % 4) & 3) + (hmask[l] >> i & 1) * 4);
        for (int h = 0; h < 2; h++) {
            int j = 2 * i + h;
            int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
            int high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
            u->s[i][h] = (int8_t)((low | high << 4) - 32);
            u->n[i][h] = (int8_t)(4 * u->s[i][h]);
        }
    }
}

/* The 6-bit scales and mins that Q4_K and Q5_K share. */
static void unit_scales_k(const uint8_t *scales, struct row_unit *u)
{
    for (int i = 0; i < 8; i++) {
        int s, n;
        if (i < 4) {
            s = scales[i] & 63;
            n = scales[i + 4] & 63;
        } else {
            s = (scales[i + 4] & 15) | scales[i - 4] >> 6 << 4;
            n = scales[i + 4] >> 4 | scales[i] >> 6 << 4;
        }
        u->s[i][0] = u->s[i][1] = (int8_t)s;
        u->n[i][0] = u->n[i][1] = (int8_t)n;
    }
}

static void unit_q4_k(const uint8_t *b, struct row_unit *u)
{
    const uint8_t *qs = b + 16;
    u->d = load16(b);
    u->m = load16(b + 2);
    unit_scales_k(b + 4, u);
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 32; l++)
            u->q[i][l] = qs[32 * (i / 2) + l] >> 4 * (i % 2) & 15;
}

static void unit_q5_k(const uint8_t *b, struct row_unit *u)
{
    const uint8_t *qh = b + 16, *qs = b + 48;
    u->d = load16(b);
    u->m = load16(b + 2);
    unit_scales_k(b + 4, u);
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 32; l++)
            u->q[i][l] =
                (int8_t)((qs[32 * (i / 2) + l] >> 4 * (i % 2) & 15) | (qh[l] >> i & 1) << 4);
}

static void unit_q6_k(const uint8_t *b, struct row_unit *u)
{
    const uint8_t *ql = b, *qh = b + 128;
    const int8_t *scales = (const int8_t *)(b + 192);
    u->d = load16(b + 208);
    u->m = 0;
    for (int i = 0; i < 8; i++) {
        const uint8_t *low = ql + 64 * (i / 4) + 32 * (i % 2), *high = qh + 32 * (i / 4);
        for (int l = 0; l < 32; l++)
            u->q[i][l] = (int8_t)(((low[l] >> (i % 4 < 2 ? 0 : 4) & 15) |
                                   (high[l] >> 2 * (i % 4) & 3) << 4) -
                                  32);
        u->s[i][0] = scales[2 * i];
        u->s[i][1] = scales[2 * i + 1];
        u->n[i][0] = u->n[i][1] = 0;
    }
}

void row_unit_read(enum quant_type type, const uint8_t *b, struct row_unit *u)
{
    switch (type) {
    case QUANT_Q4_0:
        u->d = load16(b);
        unit_q4(b + 2, u->q[0]);
        return;
    case QUANT_Q4_1:
        u->d = load16(b);
        u->m = load16(b + 2);
        unit_q4(b + 4, u->q[0]);
        return;
    case QUANT_Q5_0:
        u->d = load16(b);
        unit_q5(b + 2, b + 6, 16, u->q[0]);
        return;
    case QUANT_Q5_1:
        u->d = load16(b);
        u->m = load16(b + 2);
        unit_q5(b + 4, b + 8, 0, u->q[0]);
        return;
    case QUANT_Q8_0:
        u->d = load16(b);
        memcpy(u->q[0], b + 2, 32);
        return;
    case QUANT_Q2_K:
        unit_q2_k(b, u);
        return;
    case QUANT_Q3_K:
        unit_q3_k(b, u);
        return;
    case QUANT_Q4_K:
        unit_q4_k(b, u);
        return;
    case QUANT_Q5_K:
        unit_q5_k(b, u);
        return;
    case QUANT_Q6_K:
        unit_q6_k(b, u);
        return;
    default:
        CHECKF(false, "tensor type %d", (int)type);
    }
}
