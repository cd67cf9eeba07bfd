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

enum status kv_arena_init(struct kv_arena *a, const struct kv_layout *l, uint32_t n_blocks,
                          struct err *e)
{
    CHECK(n_blocks >= 1);
    size_t n_bytes;
    *a = (struct kv_arena){.block_bytes = l->block_bytes, .n_blocks = n_blocks};
    if (!mem_mul_ok(n_blocks, l->block_bytes, &n_bytes) ||
        !mem_add_ok(n_bytes, 2 * (size_t)HUGE_PAGE_BYTES, &(size_t){0}))
        return err_set(e, ERR_NO_MEMORY, "kv arena of %u blocks of %zu bytes is too large",
                       n_blocks, l->block_bytes);
    a->n_bytes = (n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    a->base = map_aligned(a->n_bytes);
    if (!a->base)
        return err_set(e, ERR_NO_MEMORY, "kv arena of %zu bytes: %s", a->n_bytes, strerror(errno));
    madvise(a->base, a->n_bytes, MADV_HUGEPAGE); /* an advice: speed only */
    return OK;
}

void kv_arena_release(struct kv_arena *a)
{
    if (a->base)
        munmap(a->base, a->n_bytes);
    *a = (struct kv_arena){0};
}
