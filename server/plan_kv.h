/* How many KV blocks to have in the arena and in the tiers: from the options, or from the memory there
 * is. Pure but for reading the machine's free memory. */
#ifndef SERVER_PLAN_KV_H
#define SERVER_PLAN_KV_H

#include <stdint.h>

#include "base/status.h"
#include "kvpool/layout.h"

/* Models with windows have two groups of blocks. They are sized so that both run out together when
 * every sequence has this many tokens (or the context, if that is less); nobody ever needs more window
 * blocks than window and chunk fill, so that these are not sized beyond what max_running sequences hold,
 * and a quarter for cached prefixes. */
enum { PLAN_TYPICAL_TOKENS = 2048 };

struct kv_plan_ask {
    uint64_t kv_bytes; /* kv.bytes, 0 for automatic */
    uint64_t free_bytes; /* what may still be used, by the RAM tier too */
    uint64_t host_bytes, spill_bytes; /* of the tiers */
    uint32_t max_running, chunk;
    uint32_t context; /* wanted: prompt and output tokens of a request */
};

struct kv_plan {
    uint32_t n_frames[KV_MAX_GROUPS], n_host[KV_MAX_GROUPS], n_file[KV_MAX_GROUPS];
    uint32_t n_blocks; /* frames of all groups */
    uint32_t max_staged; /* blocks of one step that may have to be read from the spill file */
    uint32_t max_context; /* what one sequence can have at most, tiers counted */
    char why[96]; /* for the banner */
};

/* ERR_INVALID naming the option when not even two blocks a group fit, when a tier is too small for a
 * block of each group, or when the RAM tier is more than the memory there is. */
enum status plan_kv(const struct kv_plan_ask *ask, const struct kv_layout *layout,
                    struct kv_plan *out, struct err *e);
/* Blocks of a group that one sequence of n_tokens holds at most, computed in chunks of so many rows. */
uint64_t plan_kv_held(const struct kv_layout *l, uint32_t group, uint64_t n_tokens, uint32_t chunk);
/* Memory that could be had now: MemAvailable or the cgroup's limit, whichever is less. */
uint64_t plan_free_bytes(void);

#endif
