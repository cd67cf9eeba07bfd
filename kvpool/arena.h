/* Numbers and sizes of KV blocks. The bytes belong to a device: kvpool/store.h.
 *
 * Steps write to frames. "Host" blocks are the RAM tier: a device whose steps can read host memory reads them
 * in place. Physical numbers in a group, as used in a batch's tables: [0, n_frames) frames,
 * [n_frames, n_frames + n_host) RAM tier, [n_frames + n_host, ...) slots of the spill file (not in memory: the
 * backend reads them through kvpool/tier.h into its staging buffer, layer by layer). */
#ifndef KVPOOL_ARENA_H
#define KVPOOL_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/layout.h"

enum { KV_ARENA_ALIGN = 2 << 20 }; /* bytes: a huge page, on hosts and on GPUs */

struct kv_arena_group {
    size_t block_bytes;
    uint32_t n_frames, n_host;
};

struct kv_arena {
    size_t n_bytes; /* of all blocks, in whole huge pages */
    uint32_t n_groups;
    struct kv_arena_group group[KV_MAX_GROUPS];
};

/* n_frames[g] >= 1 and n_host[g] (NULL: none) per group of l. ERR_NO_MEMORY: too large to be addressed. */
enum status kv_arena_plan(struct kv_arena *a, const struct kv_layout *l, const uint32_t *n_frames,
                          const uint32_t *n_host, struct err *e);

#endif
