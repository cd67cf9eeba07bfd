/* The number of KV blocks that a sequence needs, and the numbers of blocks in the arena and the tiers, derived
 * from the options or from the machine's memory. Pure except for kv_free_bytes, which reads the free memory.
 * Thread: any. */
#ifndef KVPOOL_SIZING_H
#define KVPOOL_SIZING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/layout.h"

/* The most blocks of a group that a sequence holds at once while it grows to n_tokens in chunks of at most
 * n_rows >= 1 rows: all of them without a window (0), else those from the window's first visible position,
 * wherever it is in its block, to the end of the chunk. This is the only formula: the cache's promises,
 * admission, `millrace plan` and the sizes below all use it. */
static inline uint64_t kv_blocks_held(uint32_t n_slots, uint32_t window, uint64_t n_tokens,
                                      uint32_t n_rows)
{
    uint64_t all = n_tokens / n_slots + (n_tokens % n_slots != 0);
    uint64_t most = ((uint64_t)window - 1 + n_rows + 2 * (uint64_t)n_slots - 2) / n_slots;
    return window == 0 || most > all ? all : most;
}

/* The most bytes, over all groups, that a sequence of n_tokens holds while it decodes; and the number of tokens
 * that a sequence can have in n_bytes (a multiple of n_slots; UINT64_MAX when only windows bound it). */
uint64_t kv_seq_bytes(const struct kv_layout *l, uint64_t n_tokens);
uint64_t kv_seq_tokens(const struct kv_layout *l, uint64_t n_bytes);

/* Models with windows have two groups of blocks. Both are sized to run out together when every sequence
 * has this many tokens (or the context, if that is less). No sequence needs more window blocks than window
 * and chunk fill, so a window group gets no more than max_running sequences hold, plus a quarter for cached
 * prefixes. */
enum { KV_TYPICAL_TOKENS = 2048 };

struct kv_plan_ask {
    uint64_t kv_bytes; /* kv.bytes, 0 for automatic */
    uint64_t free_bytes; /* memory that may still be used, including by the RAM tier */
    uint64_t host_bytes, spill_bytes; /* of the tiers */
    uint32_t max_running, chunk;
    uint32_t context; /* required: prompt and output tokens of a request */
};

struct kv_plan {
    uint32_t n_frames[KV_MAX_GROUPS], n_host[KV_MAX_GROUPS], n_file[KV_MAX_GROUPS];
    uint32_t n_blocks; /* frames of all groups */
    uint32_t max_staged; /* the most blocks that one step may have to read from the spill file */
    uint32_t max_context; /* the most tokens that one sequence can have, including the tiers */
    char why[96]; /* for the banner */
};

/* ERR_INVALID, naming the option, when not even two blocks per group fit, when a tier is too small for a
 * block of each group, or when the RAM tier exceeds the available memory. */
enum status kv_plan_make(const struct kv_plan_ask *ask, const struct kv_layout *layout,
                         struct kv_plan *out, struct err *e);
/* Memory that can still be allocated: the least of MemAvailable and what remains of the cgroup's limit and of
 * the address space's limit. */
struct kv_room {
    uint64_t free_bytes, limit_bytes;
    const char *from; /* the limiting resource, as text to follow the number */
    bool address_space; /* mapped files count too */
};
struct kv_room kv_room_read(void);
uint64_t kv_free_bytes(void);

#endif
