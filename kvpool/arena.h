/* The memory that KV blocks lie in: one anonymous mapping, huge pages advised, sized at start. */
#ifndef KVPOOL_ARENA_H
#define KVPOOL_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/layout.h"

struct kv_arena {
    uint8_t *base; /* owns; 2 MiB aligned */
    size_t n_bytes;
    size_t block_bytes;
    uint32_t n_blocks;
};

/* n_blocks >= 1. Pages are not touched here (zero on first touch). ERR_NO_MEMORY when mmap fails. */
enum status kv_arena_init(struct kv_arena *a, const struct kv_layout *l, uint32_t n_blocks,
                          struct err *e);
void kv_arena_release(struct kv_arena *a);

static inline uint8_t *kv_block_ptr(const struct kv_arena *a, uint32_t block)
{
    return a->base + (size_t)block * a->block_bytes;
}

#endif
