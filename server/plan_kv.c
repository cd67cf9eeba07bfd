/* Sizing the KV arena; see plan_kv.h. */
#include "server/plan_kv.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/thread.h"

uint64_t plan_free_bytes(void)
{
    uint64_t limit = thread_memory_limit(), available = UINT64_MAX, resident = 0;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof(line), f)) {
        uint64_t kib;
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            available = kib * 1024;
    }
    if (f)
        fclose(f);
    f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*u %" SCNu64, &resident) == 1)
        resident *= 4096;
    if (f)
        fclose(f);
    limit = limit > resident ? limit - resident : 0;
    return limit < available ? limit : available;
}

/* Bytes of one block of every group of layers. */
static size_t block_bytes_of(const struct kv_layout *layout)
{
    size_t n = 0;
    for (uint32_t g = 0; g < layout->n_groups; g++)
        n += layout->group[g].block_bytes;
    return n;
}

enum status plan_kv(uint64_t option_bytes, uint64_t free_bytes, uint32_t max_running,
                    uint32_t wanted_context, const struct kv_layout *layout, struct kv_plan *out,
                    struct err *e)
{
    uint64_t slots = layout->n_slots;
    size_t block_bytes = block_bytes_of(layout);
    uint64_t per_sequence = (wanted_context + slots - 1) / slots;
    uint64_t wanted = per_sequence * max_running;
    uint64_t fits = (option_bytes ? option_bytes : free_bytes / 2) / block_bytes;
    out->max_context = wanted_context;
    if (fits < 2)
        return err_set_field(e, ERR_INVALID, "kv.bytes", NULL,
                             "kv.bytes of %" PRIu64 " holds %" PRIu64
                             " blocks of %zu bytes, at least 2 are needed",
                             option_bytes ? option_bytes : free_bytes / 2, fits, block_bytes);
    uint64_t n = option_bytes || fits < wanted ? fits : wanted;
    if (n > UINT32_MAX / 2)
        n = UINT32_MAX / 2;
    out->n_blocks = (uint32_t)n;
    if (n * slots < wanted_context)
        out->max_context = (uint32_t)(n * slots);
    if (option_bytes)
        snprintf(out->why, sizeof(out->why), "as kv.bytes says");
    else if (n == wanted)
        snprintf(out->why, sizeof(out->why), "what %u sequences of %u tokens can use", max_running,
                 wanted_context);
    else
        snprintf(out->why, sizeof(out->why), "half of the free memory; set kv.bytes to change it");
    return OK;
}
