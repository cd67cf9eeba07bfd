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

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t blocks_for(const struct kv_layout *l, uint64_t n_tokens)
{
    return (n_tokens + l->n_slots - 1) / l->n_slots;
}

uint64_t plan_kv_held(const struct kv_layout *l, uint32_t g, uint64_t n_tokens, uint32_t chunk)
{
    uint64_t n = blocks_for(l, n_tokens), window = l->group[g].window;
    return window ? least(n, blocks_for(l, window + chunk) + 1) : n;
}

/* Whole shares of `bytes`: a share is what a sequence of the typical length holds in each group. */
static void split(const struct kv_plan_ask *ask, const struct kv_layout *l, uint64_t bytes,
                  uint32_t n[KV_MAX_GROUPS])
{
    uint64_t typical = least(ask->context, PLAN_TYPICAL_TOKENS), share = 0, left = bytes;
    for (uint32_t g = 0; g < l->n_groups; g++)
        share += plan_kv_held(l, g, typical, ask->chunk) * l->group[g].block_bytes;
    for (uint32_t g = l->n_groups; g-- > 0;) {
        double part = (double)plan_kv_held(l, g, typical, ask->chunk) / (double)share;
        uint64_t most = plan_kv_held(l, g, ask->context, ask->chunk), count;
        count = (uint64_t)((double)bytes * part);
        if (l->group[g].window) /* at least one sequence of any length, at most all and a quarter */
            count = least(count < most ? most : count, most * ask->max_running * 5 / 4);
        if (g == 0)
            count = left / l->group[0].block_bytes;
        count = least(count, UINT32_MAX / 4);
        n[g] = (uint32_t)least(count, left / l->group[g].block_bytes);
        left -= n[g] * l->group[g].block_bytes;
    }
}

static uint64_t wanted_bytes(const struct kv_plan_ask *ask, const struct kv_layout *l)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->n_groups; g++) {
        uint64_t n = plan_kv_held(l, g, ask->context, ask->chunk) * ask->max_running;
        bytes += (l->group[g].window ? n * 5 / 4 : n) * l->group[g].block_bytes;
    }
    return bytes;
}

/* A sequence longer than the arena keeps frames for what is written and reads the rest from the tiers. */
static void plan_context(const struct kv_plan_ask *ask, const struct kv_layout *l,
                         struct kv_plan *out)
{
    enum { KEPT_BEYOND_CHUNK = 16 };
    uint64_t n = out->n_frames[0], slots = out->n_host[0] + (uint64_t)out->n_file[0];
    uint64_t kept = blocks_for(l, ask->chunk) + KEPT_BEYOND_CHUNK;
    uint64_t wanted = blocks_for(l, ask->context);
    out->max_context = ask->context;
    out->max_staged = 0;
    if (l->group[0].window || n >= wanted)
        return;
    if (slots && n > kept) {
        n = least(n - kept + slots > n ? n - kept + slots : n, wanted);
        out->max_staged = (uint32_t)least(out->n_file[0], wanted);
    }
    out->max_context = (uint32_t)least(n * l->n_slots, ask->context);
}

enum status plan_kv(const struct kv_plan_ask *ask, const struct kv_layout *l, struct kv_plan *out,
                    struct err *e)
{
    uint64_t wanted = wanted_bytes(ask, l);
    uint64_t most = ask->kv_bytes ? ask->kv_bytes : ask->free_bytes / 2;
    uint64_t bytes = ask->kv_bytes ? ask->kv_bytes : least(most, wanted);
    *out = (struct kv_plan){.n_blocks = 0};
    split(ask, l, bytes, out->n_frames);
    split(ask, l, ask->host_bytes, out->n_host);
    split(ask, l, ask->spill_bytes, out->n_file);
    for (uint32_t g = 0; g < l->n_groups; g++) {
        uint64_t need = l->group[g].window ? plan_kv_held(l, g, ask->context, ask->chunk) : 2;
        out->n_blocks += out->n_frames[g];
        if (out->n_frames[g] < need)
            return err_set_field(e, ERR_INVALID, "kv.bytes", NULL,
                                 "kv.bytes of %" PRIu64 " holds %u blocks of %zu bytes, at least "
                                 "%" PRIu64 " are needed",
                                 most, out->n_frames[g], l->group[g].block_bytes, need);
    }
    plan_context(ask, l, out);
    if (ask->kv_bytes)
        snprintf(out->why, sizeof(out->why), "as kv.bytes says");
    else if (bytes == wanted)
        snprintf(out->why, sizeof(out->why), "what %u sequences of %u tokens can use",
                 ask->max_running, ask->context);
    else
        snprintf(out->why, sizeof(out->why), "half of the free memory; set kv.bytes to change it");
    return OK;
}
