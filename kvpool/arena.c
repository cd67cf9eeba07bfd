/* The mapping that KV blocks lie in; see arena.h. */
#include "kvpool/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/mem.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Anonymous memory at a 2 MiB boundary: maps more and cuts both ends off. */
static uint8_t *map_aligned(size_t n_bytes)
{
    size_t n_map = n_bytes + HUGE_PAGE_BYTES;
    uint8_t *map = mmap(NULL, n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    size_t head = (HUGE_PAGE_BYTES - (uintptr_t)map % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (head > 0)
        munmap(map, head);
    munmap(map + head + n_bytes, n_map - head - n_bytes);
    return map + head;
}

enum status kv_arena_plan(struct kv_arena *a, const struct kv_layout *l, const uint32_t *n_frames,
                          const uint32_t *n_host, struct err *e)
{
    size_t n_bytes = 0;
    *a = (struct kv_arena){.n_groups = l->n_groups};
    for (uint32_t g = 0; g < l->n_groups; g++) {
        struct kv_arena_group *to = &a->group[g];
        uint32_t host = n_host ? n_host[g] : 0;
        size_t group_bytes;
        CHECK(n_frames[g] >= 1);
        *to = (struct kv_arena_group){
            .block_bytes = l->group[g].block_bytes, .n_frames = n_frames[g], .n_host = host};
        if (host > UINT32_MAX - n_frames[g] ||
            !mem_mul_ok(n_frames[g] + host, to->block_bytes, &group_bytes) ||
            !mem_add_ok(n_bytes, group_bytes, &n_bytes) ||
            !mem_add_ok(n_bytes, 2 * (size_t)HUGE_PAGE_BYTES, &(size_t){0}))
            return err_set(e, ERR_NO_MEMORY, "kv arena of %u blocks of %zu bytes is too large",
                           n_frames[g], to->block_bytes);
    }
    a->n_bytes = (n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    return OK;
}

enum status kv_arena_init(struct kv_arena *a, const struct kv_layout *l, const uint32_t *n_frames,
                          const uint32_t *n_host, struct err *e)
{
    enum status st = kv_arena_plan(a, l, n_frames, n_host, e);
    if (st != OK)
        return st;
    a->map = map_aligned(a->n_bytes);
    if (!a->map)
        return err_set(e, ERR_NO_MEMORY, "kv arena of %zu bytes: %s", a->n_bytes, strerror(errno));
    madvise(a->map, a->n_bytes, MADV_HUGEPAGE); /* an advice: speed only */
    uint8_t *at = a->map;
    for (uint32_t g = 0; g < l->n_groups; g++) {
        struct kv_arena_group *to = &a->group[g];
        to->base = at;
        at += (to->n_frames + (size_t)to->n_host) * to->block_bytes;
    }
    return OK;
}

void kv_arena_release(struct kv_arena *a)
{
    if (a->map)
        munmap(a->map, a->n_bytes);
    *a = (struct kv_arena){0};
}
