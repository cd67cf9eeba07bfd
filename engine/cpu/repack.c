/* GGUF tensor formats -> packed.h. Called at load by the workers, group by group. */
#include "engine/cpu/packed.h"

#include <string.h>

#include "base/check.h"

const struct pack_shape pack_shape[PACK_KINDS] = {
#define X(id, blocks, unit_head, block_head, payload)                                              \
    [id] = {blocks, unit_head, block_head, (block_head) + (payload),                               \
            (unit_head) + (blocks) * ((block_head) + (payload))},
    PACK_TABLE(X)
#undef X
};

/* One row of one unit: integers and the coded scales of up to 8 blocks. */
struct row_unit {
    int8_t q[8][PACK_BLOCK];
    uint16_t d, m; /* f16 of the unit (K-quants) or of the block */
    int8_t s[8][2]; /* scale codes per half block */
    int8_t n[8][2]; /* min codes */
};

enum pack_kind pack_kind_of(enum quant_type type)
{
    switch (type) {
    case QUANT_F32:
        return PACK_F32;
    case QUANT_F16:
        return PACK_F16;
    case QUANT_BF16:
        return PACK_BF16;
    case QUANT_Q4_0:
        return PACK_N4;
    case QUANT_Q4_1:
        return PACK_N4_M;
    case QUANT_Q5_0:
    case QUANT_Q8_0:
        return PACK_I8;
    case QUANT_Q5_1:
        return PACK_I8_M;
    case QUANT_Q2_K:
    case QUANT_Q3_K:
        return PACK_N4_K16;
    case QUANT_Q4_K:
        return PACK_N4_K;
    case QUANT_Q5_K:
        return PACK_I8_K;
    case QUANT_Q6_K:
        return PACK_I8_K16;
    }
    CHECKF(false, "tensor type %d", (int)type);
    return PACK_F32;
}

void packed_plan(struct packed *p, const struct gguf_tensor *t)
{
    *p = (struct packed){
        .kind = pack_kind_of(t->type), .n_in = (uint32_t)t->dim[0], .n_rows = (uint32_t)t->dim[1]};
    const struct pack_shape *s = &pack_shape[p->kind];
    p->n_blocks = (p->n_in + PACK_BLOCK - 1) / PACK_BLOCK;
    p->n_groups = (p->n_rows + PACK_ROWS - 1) / PACK_ROWS;
    p->group_bytes = (size_t)(p->n_blocks / s->blocks) * s->unit_bytes;
}

size_t packed_bytes(const struct packed *p)
{
    return (size_t)p->n_groups * p->group_bytes;
}

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

static void unit_read(enum quant_type type, const uint8_t *b, struct row_unit *u)
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

static void put_payload(enum pack_kind kind, uint8_t *dst, uint32_t r, const int8_t *q)
{
    if (kind <= PACK_N4_K16) {
        for (int v = 0; v < 4; v++)
            for (int i = 0; i < 4; i++)
                dst[32 * v + 4 * r + i] = (uint8_t)(q[4 * v + i] | q[16 + 4 * v + i] << 4);
    } else {
        for (int v = 0; v < 8; v++)
            memcpy(dst + 32 * v + 4 * r, q + 4 * v, 4);
    }
}

static void put_row(enum pack_kind kind, uint8_t *unit, uint32_t r, const struct row_unit *u)
{
    const struct pack_shape *s = &pack_shape[kind];
    if (s->blocks == 1) {
        memcpy(unit + 2 * r, &u->d, 2);
        if (s->block_head == 32)
            memcpy(unit + 16 + 2 * r, &u->m, 2);
        put_payload(kind, unit + s->block_head, r, u->q[0]);
        return;
    }
    memcpy(unit + 2 * r, &u->d, 2);
    memcpy(unit + 16 + 2 * r, &u->m, 2);
    for (int i = 0; i < s->blocks; i++) {
        uint8_t *block = unit + s->unit_head + (size_t)i * s->block_bytes;
        block[r] = (uint8_t)u->s[i][0];
        if (kind == PACK_N4_K16) {
            block[8 + r] = (uint8_t)u->s[i][1];
            block[16 + r] = (uint8_t)u->n[i][0];
            block[24 + r] = (uint8_t)u->n[i][1];
        } else {
            block[8 + r] = (uint8_t)(kind == PACK_I8_K16 ? u->s[i][1] : u->n[i][0]);
        }
        put_payload(kind, block + s->block_head, r, u->q[i]);
    }
}

static void fill_floats(const struct packed *p, const struct gguf_tensor *t, uint32_t group)
{
    size_t size = p->kind == PACK_F32 ? 4 : 2;
    uint8_t *dst = p->data + (size_t)group * p->group_bytes;
    for (uint32_t r = 0; r < PACK_ROWS && group * PACK_ROWS + r < p->n_rows; r++) {
        const uint8_t *src = t->data + (size_t)(group * PACK_ROWS + r) * p->n_in * size;
        for (uint32_t k = 0; k < p->n_in; k++)
            memcpy(dst + ((size_t)k * PACK_ROWS + r) * size, src + k * size, size);
    }
}

void packed_fill(const struct packed *p, const struct gguf_tensor *t, uint32_t group0, uint32_t n)
{
    const struct pack_shape *s = &pack_shape[p->kind];
    size_t row_bytes = quant_row_bytes(t->type, p->n_in);
    size_t src_unit = quant_row_bytes(t->type, PACK_BLOCK * s->blocks);
    struct row_unit u;
    for (uint32_t g = group0; g < group0 + n; g++) {
        if (p->kind >= PACK_F32) {
            fill_floats(p, t, g);
            continue;
        }
        for (uint32_t r = 0; r < PACK_ROWS && g * PACK_ROWS + r < p->n_rows; r++) {
            const uint8_t *src = t->data + (size_t)(g * PACK_ROWS + r) * row_bytes;
            uint8_t *dst = p->data + (size_t)g * p->group_bytes;
            for (uint32_t b = 0; b < p->n_blocks; b += s->blocks) {
                unit_read(t->type, src, &u);
                put_row(p->kind, dst, r, &u);
                src += src_unit;
                dst += s->unit_bytes;
            }
        }
    }
}

static float half_at(const uint8_t *p, int r)
{
    return f16_to_f32(load16(p + 2 * r));
}

static void block_scales(enum pack_kind kind, const uint8_t *unit, const uint8_t *block,
                         float d[2][8], float m[2][8])
{
    const int8_t *code = (const int8_t *)block;
    for (int r = 0; r < 8; r++) {
        for (int h = 0; h < 2; h++) {
            d[h][r] = 1;
            m[h][r] = 0;
            switch (kind) {
            case PACK_N4:
                d[h][r] = half_at(block, r);
                m[h][r] = -8 * d[h][r];
                break;
            case PACK_I8:
                d[h][r] = half_at(block, r);
                break;
            case PACK_N4_M:
            case PACK_I8_M:
                d[h][r] = half_at(block, r);
                m[h][r] = half_at(block + 16, r);
                break;
            case PACK_N4_K:
            case PACK_I8_K:
                d[h][r] = half_at(unit, r) * code[r];
                m[h][r] = -half_at(unit + 16, r) * code[8 + r];
                break;
            case PACK_N4_K16:
                d[h][r] = half_at(unit, r) * code[8 * h + r];
                m[h][r] = -half_at(unit + 16, r) * code[16 + 8 * h + r];
                break;
            case PACK_I8_K16:
                d[h][r] = half_at(unit, r) * code[8 * h + r];
                break;
            default:
                break;
            }
        }
    }
}

static float float_at(enum pack_kind kind, const uint8_t *payload, int k, int r)
{
    size_t i = (size_t)k * PACK_ROWS + (size_t)r;
    if (kind == PACK_F32) {
        float f;
        memcpy(&f, payload + 4 * i, 4);
        return f;
    }
    uint16_t h = load16(payload + 2 * i);
    return kind == PACK_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

void packed_block(enum pack_kind kind, const uint8_t *group, uint32_t b, float q[8][32],
                  float d[2][8], float m[2][8])
{
    const struct pack_shape *s = &pack_shape[kind];
    const uint8_t *unit = group + (size_t)(b / s->blocks) * s->unit_bytes;
    const uint8_t *block = unit + s->unit_head + (size_t)(b % s->blocks) * s->block_bytes;
    const uint8_t *payload = block + s->block_head;
    block_scales(kind, unit, block, d, m);
    for (int r = 0; r < 8; r++) {
        for (int k = 0; k < 32; k++) {
            if (kind >= PACK_F32)
                q[r][k] = float_at(kind, payload, k, r);
            else if (kind <= PACK_N4_K16)
                q[r][k] = payload[32 * (k % 16 / 4) + 4 * r + k % 4] >> (k < 16 ? 0 : 4) & 15;
            else
                q[r][k] = (int8_t)payload[32 * (k / 4) + 4 * r + k % 4];
        }
    }
}

void packed_row(const struct packed *p, uint32_t row, float *out)
{
    const uint8_t *group = p->data + (size_t)(row / PACK_ROWS) * p->group_bytes;
    const struct pack_shape *s = &pack_shape[p->kind];
    int r = (int)(row % PACK_ROWS);
    float d[2][8], m[2][8];
    for (uint32_t b = 0; b < p->n_blocks; b++, out += PACK_BLOCK) {
        const uint8_t *unit = group + (size_t)(b / s->blocks) * s->unit_bytes;
        const uint8_t *block = unit + s->unit_head + (size_t)(b % s->blocks) * s->block_bytes;
        const uint8_t *payload = block + s->block_head;
        block_scales(p->kind, unit, block, d, m);
        for (int k = 0; k < PACK_BLOCK; k++) {
            int h = k / 16;
            if (p->kind >= PACK_F32)
                out[k] = float_at(p->kind, payload, k, r);
            else if (p->kind <= PACK_N4_K16)
                out[k] =
                    d[h][r] * (payload[32 * (k % 16 / 4) + 4 * r + k % 4] >> 4 * h & 15) + m[h][r];
            else
                out[k] = d[h][r] * (int8_t)payload[32 * (k / 4) + 4 * r + k % 4] + m[h][r];
        }
    }
}
