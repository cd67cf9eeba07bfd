/* How many KV blocks to have: from the option, or from the memory there is. Pure but for reading the
 * machine's free memory. */
#ifndef SERVER_PLAN_KV_H
#define SERVER_PLAN_KV_H

#include <stdint.h>

#include "base/status.h"
#include "kvpool/layout.h"

struct kv_plan {
    uint32_t n_blocks;
    uint32_t max_context;
    char why[96]; /* for the banner */
};

/* option_bytes: kv.bytes, 0 for automatic. free_bytes: what may still be used. wanted_context: prompt and
 * output tokens of a request. ERR_INVALID when not even two blocks fit. */
enum status plan_kv(uint64_t option_bytes, uint64_t free_bytes, uint32_t max_running,
                    uint32_t wanted_context, const struct kv_layout *layout, struct kv_plan *out,
                    struct err *e);
/* Memory that could be had now: MemAvailable or the cgroup's limit, whichever is less. */
uint64_t plan_free_bytes(void);

#endif
