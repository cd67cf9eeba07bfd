/* Computes the sizes of the arena; see arena.h. */
#include "kvpool/arena.h"

#include "base/check.h"
#include "base/mem.h"

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
            !mem_add_ok(n_bytes, 2 * (size_t)KV_ARENA_ALIGN, &(size_t){0}))
            return err_set(e, ERR_NO_MEMORY, "kv arena of %u blocks of %zu bytes is too large",
                           n_frames[g], to->block_bytes);
    }
    a->n_bytes = (n_bytes + KV_ARENA_ALIGN - 1) / KV_ARENA_ALIGN * KV_ARENA_ALIGN;
    return OK;
}
