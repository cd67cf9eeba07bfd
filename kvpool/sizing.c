/* Computes the sizes of the arena and the tiers; see sizing.h. */
#include "kvpool/sizing.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/thread.h"
#include "kvpool/tier.h"

static uint64_t meminfo_available(void)
{
    uint64_t available = UINT64_MAX, kib;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            available = kib * 1024;
    if (f)
        fclose(f);
    return available;
}

static void own_memory(uint64_t *mapped, uint64_t *resident)
{
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%" SCNu64 " %" SCNu64, mapped, resident) == 2) {
        *mapped *= 4096;
        *resident *= 4096;
    }
    if (f)
        fclose(f);
}

struct kv_room kv_room_read(void)
{
    uint64_t mapped = 0, resident = 0, available = meminfo_available();
    struct rlimit space;
    own_memory(&mapped, &resident);
    struct kv_room room = {.limit_bytes = thread_memory_limit(),
                           .from = "of the machine or its cgroup"};
    room.free_bytes = room.limit_bytes > resident ? room.limit_bytes - resident : 0;
    if (available < room.free_bytes)
        room.free_bytes = available;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        uint64_t left = space.rlim_cur > mapped ? space.rlim_cur - mapped : 0;
        if (left < room.free_bytes)
            room = (struct kv_room){left, space.rlim_cur, "of address space, ulimit -v", true};
    }
    return room;
}

uint64_t kv_free_bytes(void)
{
    return kv_room_read().free_bytes;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t blocks_for(const struct kv_layout *l, uint64_t n_tokens)
{
    return (n_tokens + l->n_slots - 1) / l->n_slots;
}

static uint64_t held(const struct kv_layout *l, uint32_t g, uint64_t n_tokens, uint32_t n_rows)
{
    return kv_blocks_held(l->n_slots, l->group[g].window, n_tokens, n_rows);
}

uint64_t kv_seq_bytes(const struct kv_layout *l, uint64_t n_tokens)
{
    uint64_t sum = 0;
    for (uint32_t g = 0; g < l->n_groups; g++)
        sum += held(l, g, n_tokens, 1) * l->group[g].block_bytes;
    return sum;
}

uint64_t kv_seq_tokens(const struct kv_layout *l, uint64_t n_bytes)
{
    uint64_t low = 0, high = UINT32_MAX; /* blocks: low fits; high does not, or is the bound */
    if (l->group[0].window && kv_seq_bytes(l, high * l->n_slots) <= n_bytes)
        return UINT64_MAX;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (kv_seq_bytes(l, mid * l->n_slots) <= n_bytes)
            low = mid;
        else
            high = mid;
    }
    return low * l->n_slots;
}

/* A place for blocks: its option, and the bytes of a block of each group there. */
struct place {
    const char *name;
    uint64_t bytes;
    uint64_t block_bytes[KV_MAX_GROUPS];
    bool is_arena; /* a window group gets at least one sequence of any length */
};

/* Adds whole shares of `bytes` to n: a share is the blocks that a sequence of the typical length holds per group. */
static void split(const struct kv_plan_ask *ask, const struct kv_layout *l, const struct place *p,
                  uint64_t bytes, uint32_t n[KV_MAX_GROUPS])
{
    uint64_t typical = least(ask->context, KV_TYPICAL_TOKENS), share = 0, left = bytes;
    for (uint32_t g = 0; g < l->n_groups; g++)
        share += held(l, g, typical, ask->chunk) * p->block_bytes[g];
    for (uint32_t g = l->n_groups; g-- > 0;) {
        double part = (double)held(l, g, typical, ask->chunk) / (double)share;
        uint64_t most = held(l, g, ask->context, ask->chunk);
        uint64_t count = left / p->block_bytes[g]; /* group 0 gets the rest */
        uint64_t wanted = (uint64_t)((double)bytes * part);
        if (g > 0 && l->group[g].window) {
            if (p->is_arena && wanted < most)
                wanted = most;
            wanted = least(wanted, most * ask->max_running * 5 / 4);
        }
        count = g > 0 ? least(count, wanted) : count;
        count = least(count, UINT32_MAX / 4);
        n[g] += (uint32_t)count;
        left -= count * p->block_bytes[g];
    }
}

/* One block of each group comes first: without a slot of each kind no sequence could be swapped. */
static enum status split_tier(const struct kv_plan_ask *ask, const struct kv_layout *l,
                              const struct place *p, uint32_t n[KV_MAX_GROUPS], struct err *e)
{
    uint64_t first = 0;
    for (uint32_t g = 0; g < l->n_groups; g++)
        first += p->block_bytes[g];
    if (p->bytes == 0)
        return OK;
    if (p->bytes < first)
        return err_set_field(e, ERR_INVALID, p->name, NULL,
                             "%s %" PRIu64 " is less than one KV block%s, %" PRIu64 " bytes",
                             p->name, p->bytes, l->n_groups > 1 ? " of each kind of layers" : "",
                             first);
    for (uint32_t g = 0; g < l->n_groups; g++)
        n[g] = 1;
    split(ask, l, p, p->bytes - first, n);
    return OK;
}

static enum status split_tiers(const struct kv_plan_ask *ask, const struct kv_layout *l,
                               struct kv_plan *out, struct err *e)
{
    struct place ram = {.name = "kv.host_bytes", .bytes = ask->host_bytes};
    struct place file = {.name = "kv.spill.bytes", .bytes = ask->spill_bytes};
    for (uint32_t g = 0; g < l->n_groups; g++) {
        ram.block_bytes[g] = l->group[g].block_bytes;
        file.block_bytes[g] = kv_tier_slot_bytes(l->group[g].block_bytes);
    }
    enum status st = split_tier(ask, l, &ram, out->n_host, e);
    return st ? st : split_tier(ask, l, &file, out->n_file, e);
}

static void split_arena(const struct kv_plan_ask *ask, const struct kv_layout *l, uint64_t bytes,
                        struct kv_plan *out)
{
    struct place arena = {.is_arena = true};
    for (uint32_t g = 0; g < l->n_groups; g++)
        arena.block_bytes[g] = l->group[g].block_bytes;
    split(ask, l, &arena, bytes, out->n_frames);
}

/* Memory left for the arena, or for the RAM tier beside one of kv.bytes. */
static enum status check_host(const struct kv_plan_ask *ask, struct err *e)
{
    uint64_t room = ask->free_bytes > ask->kv_bytes ? ask->free_bytes - ask->kv_bytes : 0;
    if (ask->host_bytes <= room)
        return OK;
    return err_set_field(e, ERR_INVALID, "kv.host_bytes", NULL,
                         "kv.host_bytes %" PRIu64 " exceeds the available memory%s, %" PRIu64
                         " bytes",
                         ask->host_bytes, ask->kv_bytes ? " beside kv.bytes" : "", room);
}

static enum status refuse_frames(const struct kv_plan_ask *ask, uint64_t bytes, uint32_t n_frames,
                                 size_t block_bytes, uint64_t need, struct err *e)
{
    char beside[64] = "";
    if (!ask->kv_bytes && ask->host_bytes)
        snprintf(beside, sizeof(beside), ", half of what kv.host_bytes %" PRIu64 " leaves,",
                 ask->host_bytes);
    return err_set_field(e, ERR_INVALID, "kv.bytes", NULL,
                         "kv.bytes of %" PRIu64 "%s holds %u blocks of %zu bytes, at least "
                         "%" PRIu64 " are needed",
                         bytes, beside, n_frames, block_bytes, need);
}

static uint64_t wanted_bytes(const struct kv_plan_ask *ask, const struct kv_layout *l)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < l->n_groups; g++) {
        uint64_t n = held(l, g, ask->context, ask->chunk) * ask->max_running;
        bytes += (l->group[g].window ? n * 5 / 4 : n) * l->group[g].block_bytes;
    }
    return bytes;
}

/* A sequence longer than the arena keeps frames for the blocks it writes and reads the others from the tiers. */
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

enum status kv_plan_make(const struct kv_plan_ask *ask, const struct kv_layout *l,
                         struct kv_plan *out, struct err *e)
{
    uint64_t wanted = wanted_bytes(ask, l);
    enum status st = ask->host_bytes ? check_host(ask, e) : OK;
    *out = (struct kv_plan){.n_blocks = 0};
    if (!st)
        st = split_tiers(ask, l, out, e);
    if (st)
        return st;
    uint64_t most = ask->kv_bytes ? ask->kv_bytes : (ask->free_bytes - ask->host_bytes) / 2;
    uint64_t bytes = ask->kv_bytes ? ask->kv_bytes : least(most, wanted);
    split_arena(ask, l, bytes, out);
    for (uint32_t g = 0; g < l->n_groups; g++) {
        uint64_t need = l->group[g].window ? held(l, g, ask->context, ask->chunk) : 2;
        out->n_blocks += out->n_frames[g];
        if (out->n_frames[g] < need)
            return refuse_frames(ask, most, out->n_frames[g], l->group[g].block_bytes, need, e);
    }
    plan_context(ask, l, out);
    if (ask->kv_bytes)
        snprintf(out->why, sizeof(out->why), "set by kv.bytes");
    else if (bytes == wanted)
        snprintf(out->why, sizeof(out->why), "the most that %u sequences of %u tokens use",
                 ask->max_running, ask->context);
    else
        snprintf(out->why, sizeof(out->why), "half of the free memory; set kv.bytes to change it");
    return OK;
}
