/* The memory that KV blocks lie in: one anonymous mapping, huge pages advised, sized at start.
 *
 * Per group a contiguous run of n_frames + n_host blocks. "Frames" are where steps write; "host" blocks
 * are the RAM tier: steps read them in place on the CPU. Physical numbers of a group, as a batch's
 * tables hold them: [0, n_frames) frames, [n_frames, n_frames + n_host) RAM tier,
 * [n_frames + n_host, ...) slots of the spill file (no address: the backend reads them through
 * kvpool/tier.h into its staging buffer, layer by layer). */
#ifndef KVPOOL_ARENA_H
#define KVPOOL_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/layout.h"

struct kv_arena_group {
    uint8_t *base; /* inside the mapping; 64-byte aligned (2 MiB for group 0) */
    size_t block_bytes;
    uint32_t n_frames, n_host;
};

struct kv_arena {
    uint8_t *map; /* owns; 2 MiB aligned */
    size_t n_bytes;
    uint32_t n_groups;
    struct kv_arena_group group[KV_MAX_GROUPS];
};

/* n_frames[g] >= 1 and n_host[g] (NULL: none) per group of l. Pages are not touched here (zero on first
 * touch). ERR_NO_MEMORY when mmap fails. */
enum status kv_arena_init(struct kv_arena *a, const struct kv_layout *l, const uint32_t *n_frames,
                          const uint32_t *n_host, struct err *e);
/* Only the sizes: n_bytes is what kv_arena_init would map. */
enum status kv_arena_plan(struct kv_arena *a, const struct kv_layout *l, const uint32_t *n_frames,
                          const uint32_t *n_host, struct err *e);
void kv_arena_release(struct kv_arena *a);

/* phys < n_frames + n_host. */
static inline uint8_t *kv_block_ptr(const struct kv_arena *a, uint32_t group, uint32_t phys)
{
    return a->group[group].base + (size_t)phys * a->group[group].block_bytes;
}

#endif
