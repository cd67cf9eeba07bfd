/* The size of the ledger; see budget.h. */
#include "server/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

enum {
    PROGRAM_BYTES = 64 << 20, /* the process without model and clients */
    PREPARE_FACTOR =
        40 /* of a body while it is prepared: a tree of [0,0,...] takes that many times its size */
};

uint64_t budget_bytes(const struct settings *set, uint64_t memory_bytes, uint64_t fixed_bytes)
{
    uint64_t others = fixed_bytes + PROGRAM_BYTES + PREPARE_FACTOR * (uint64_t)set->server_max_body;
    uint64_t left = memory_bytes > others ? (memory_bytes - others) / 4 * 3 : 0;
    if (set->server_memory)
        return set->server_memory;
    return left > BUDGET_LEAST_BYTES ? left : BUDGET_LEAST_BYTES;
}

static uint64_t mapped_bytes(void)
{
    uint64_t n_pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%" SCNu64, &n_pages) != 1)
        n_pages = 0;
    if (f)
        fclose(f);
    return n_pages * 4096;
}

uint64_t budget_within_limits(uint64_t memory_bytes, uint64_t fixed_bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return memory_bytes;
    uint64_t mapped = mapped_bytes(), left = limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
    return left + fixed_bytes < memory_bytes ? left + fixed_bytes : memory_bytes;
}
