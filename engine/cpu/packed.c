/* Converts GGUF tensor formats to those of packed.h. Called at load by the workers, group by group. */
#include "engine/cpu/packed.h"

#include <string.h>

#include "base/check.h"
#include "engine/cpu/row_unit.h"

/* Bytes per row: header of a unit, header of a block, payload of a block. */
static const struct {
    uint8_t blocks, unit_head, block_head, payload;
} kinds[PACK_KINDS] = {
#define X(id, blocks, unit_head, block_head, payload)                                              \
    [id] = {blocks, unit_head, block_head, payload},
    PACK_TABLE(X)
#undef X
};

struct pack_shape pack_shape_of(const struct pack_format *f, enum pack_kind kind)
{
    struct pack_shape s = {.blocks = kinds[kind].blocks,
                           .unit_head = kinds[kind].unit_head * f->rows,
                           .block_head = kinds[kind].block_head * f->rows};
    s.block_bytes = s.block_head + kinds[kind].payload * f->rows;
    s.unit_bytes = s.unit_head + s.blocks * s.block_bytes;
    return s;
}

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

void packed_plan(struct packed *p, const struct pack_format *f, const struct gguf_tensor *t)
{
    *p = (struct packed){.format = f,
                         .kind = pack_kind_of(t->type),
                         .n_in = (uint32_t)t->dim[0],
                         .n_rows = (uint32_t)t->dim[1]};
    p->shape = pack_shape_of(f, p->kind);
    p->n_blocks = (p->n_in + PACK_BLOCK - 1) / PACK_BLOCK;
    p->n_groups = (p->n_rows + f->rows - 1) / f->rows;
    p->group_bytes = (size_t)(p->n_blocks / p->shape.blocks) * p->shape.unit_bytes;
}

size_t packed_bytes(const struct packed *p)
{
    return (size_t)p->n_groups * p->group_bytes;
}

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void put_payload(const struct packed *p, uint8_t *dst, uint32_t r, const int8_t *q)
{
    const size_t vector = 4 * (size_t)p->format->rows;
    if (p->kind <= PACK_N4_K16) {
        for (int v = 0; v < 4; v++, dst += vector)
            for (int i = 0; i < 4; i++)
                dst[4 * r + i] = (uint8_t)(q[4 * v + i] | q[16 + 4 * v + i] << 4);
    } else {
        for (int v = 0; v < 8; v++, dst += vector)
            for (int i = 0; i < 4; i++)
                dst[4 * r + i] = (uint8_t)(q[4 * v + i] + p->format->byte_bias);
    }
}

static void put_row(const struct packed *p, uint8_t *unit, uint32_t r, const struct row_unit *u)
{
    const struct pack_shape *s = &p->shape;
    const uint32_t n = p->format->rows;
    memcpy(unit + 2 * r, &u->d, 2);
    if (s->blocks == 1) {
        if (s->block_head == 4 * n)
            memcpy(unit + 2 * (n + r), &u->m, 2);
        put_payload(p, unit + s->block_head, r, u->q[0]);
        return;
    }
    memcpy(unit + 2 * (n + r), &u->m, 2);
    for (uint32_t i = 0; i < s->blocks; i++) {
        uint8_t *block = unit + s->unit_head + (size_t)i * s->block_bytes;
        block[r] = (uint8_t)u->s[i][0];
        if (p->kind == PACK_N4_K16) {
            block[n + r] = (uint8_t)u->s[i][1];
            block[2 * n + r] = (uint8_t)u->n[i][0];
            block[3 * n + r] = (uint8_t)u->n[i][1];
        } else {
            block[n + r] = (uint8_t)(p->kind == PACK_I8_K16 ? u->s[i][1] : u->n[i][0]);
        }
        put_payload(p, block + s->block_head, r, u->q[i]);
    }
}

/* A row that pads the last group: the biased bytes of 0; its scales are 0 too. */
static void pad_row(const struct packed *p, uint8_t *group, uint32_t r)
{
    static const struct row_unit nothing;
    for (uint32_t b = 0; b < p->n_blocks; b += p->shape.blocks, group += p->shape.unit_bytes)
        put_row(p, group, r, &nothing);
}

static void fill_floats(const struct packed *p, const struct gguf_tensor *t, uint32_t group)
{
    const uint32_t rows = p->format->rows;
    size_t size = p->kind == PACK_F32 ? 4 : 2;
    uint8_t *dst = p->data + (size_t)group * p->group_bytes;
    for (uint32_t r = 0; r < rows && group * rows + r < p->n_rows; r++) {
        const uint8_t *src = t->data + (size_t)(group * rows + r) * p->n_in * size;
        for (uint32_t k = 0; k < p->n_in; k++)
            memcpy(dst + ((size_t)k * rows + r) * size, src + k * size, size);
    }
}

static void fill_row(const struct packed *p, const struct gguf_tensor *t, uint32_t row,
                     uint8_t *dst)
{
    const uint8_t *src = t->data + (size_t)row * quant_row_bytes(t->type, p->n_in);
    size_t src_unit = quant_row_bytes(t->type, PACK_BLOCK * p->shape.blocks);
    struct row_unit u;
    for (uint32_t b = 0; b < p->n_blocks; b += p->shape.blocks) {
        row_unit_read(t->type, src, &u);
        put_row(p, dst, row % p->format->rows, &u);
        src += src_unit;
        dst += p->shape.unit_bytes;
    }
}

void packed_fill(const struct packed *p, const struct gguf_tensor *t, uint32_t group0, uint32_t n)
{
    const uint32_t rows = p->format->rows;
    for (uint32_t g = group0; g < group0 + n; g++) {
        uint8_t *dst = p->data + (size_t)g * p->group_bytes;
        if (p->kind >= PACK_F32) {
            fill_floats(p, t, g);
            continue;
        }
        for (uint32_t r = 0; r < rows; r++) {
            if (g * rows + r < p->n_rows)
                fill_row(p, t, g * rows + r, dst);
            else
                pad_row(p, dst, r);
        }
    }
}

/* Scale and min of half h of a block in row r. */
static void scale_at(const struct packed *p, const uint8_t *unit, const uint8_t *block, uint32_t h,
                     uint32_t r, float *d, float *m)
{
    const uint32_t n = p->format->rows;
    const int8_t *code = (const int8_t *)block;
    const float of_unit = f16_to_f32(load16(unit + 2 * r));
    *d = of_unit; /* where a unit is one block, both start at the same byte */
    *m = 0;
    switch (p->kind) {
    case PACK_N4:
        *m = -8 * of_unit;
        break;
    case PACK_I8:
        break;
    case PACK_N4_M:
    case PACK_I8_M:
        *m = f16_to_f32(load16(unit + 2 * (n + r)));
        break;
    case PACK_N4_K:
    case PACK_I8_K:
        *d *= code[r];
        *m = -f16_to_f32(load16(unit + 2 * (n + r))) * code[n + r];
        break;
    case PACK_N4_K16:
        *d *= code[n * h + r];
        *m = -f16_to_f32(load16(unit + 2 * (n + r))) * code[n * (2 + h) + r];
        break;
    case PACK_I8_K16:
        *d *= code[n * h + r];
        break;
    default:
        *d = 1;
        break;
    }
}

/* Input k of row r of a payload: an integer, or the weight itself for float kinds. */
static float value_at(const struct packed *p, const uint8_t *payload, uint32_t k, uint32_t r)
{
    const size_t vector = 4 * (size_t)p->format->rows, i = (size_t)k * p->format->rows + r;
    if (p->kind == PACK_F32) {
        float f;
        memcpy(&f, payload + 4 * i, 4);
        return f;
    }
    if (p->kind > PACK_F32) {
        uint16_t h = load16(payload + 2 * i);
        return p->kind == PACK_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
    if (p->kind <= PACK_N4_K16)
        return payload[vector * (k % 16 / 4) + 4 * r + k % 4] >> (k < 16 ? 0 : 4) & 15;
    return (int8_t)(payload[vector * (k / 4) + 4 * r + k % 4] - p->format->byte_bias);
}

void packed_block(const struct packed *p, const uint8_t *group, uint32_t b, uint32_t row,
                  float q[PACK_BLOCK], float d[2], float m[2])
{
    const struct pack_shape *s = &p->shape;
    const uint8_t *unit = group + (size_t)(b / s->blocks) * s->unit_bytes;
    const uint8_t *block = unit + s->unit_head + (size_t)(b % s->blocks) * s->block_bytes;
    for (uint32_t h = 0; h < 2; h++)
        scale_at(p, unit, block, h, row, &d[h], &m[h]);
    for (uint32_t k = 0; k < PACK_BLOCK; k++)
        q[k] = value_at(p, block + s->block_head, k, row);
}

void packed_row(const struct packed *p, uint32_t row, float *out)
{
    const uint8_t *group = p->data + (size_t)(row / p->format->rows) * p->group_bytes;
    float q[PACK_BLOCK], d[2], m[2];
    for (uint32_t b = 0; b < p->n_blocks; b++, out += PACK_BLOCK) {
        packed_block(p, group, b, row % p->format->rows, q, d, m);
        for (uint32_t k = 0; k < PACK_BLOCK; k++)
            out[k] = p->kind >= PACK_F32 ? q[k] : d[k / 16] * q[k] + m[k / 16];
    }
}
