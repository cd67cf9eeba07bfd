/* KV blocks in plain memory that tests may inspect, behind kvpool/store.h: moves are memcpys that end at
 * once; blocks have the sizes given by the layout at the time of the move. */
#ifndef TESTS_UNIT_KVPOOL_PLAIN_STORE_H
#define TESTS_UNIT_KVPOOL_PLAIN_STORE_H

#include <check.h>
#include <string.h>

#include "base/mem.h"
#include "kvpool/store.h"

enum { PLAIN_STRIDE = 1 << 16, PLAIN_MAX_BLOCKS = 32 };

struct plain_store {
    struct kv_store store; /* first: struct kv_store * is cast back */
    const struct kv_layout *layout; /* borrows */
    uint8_t *bytes; /* owns [KV_MAX_GROUPS][PLAIN_MAX_BLOCKS][PLAIN_STRIDE] */
};

static inline uint8_t *plain_block(const struct plain_store *s, uint32_t group, uint32_t phys)
{
    return s->bytes + ((size_t)group * PLAIN_MAX_BLOCKS + phys) * PLAIN_STRIDE;
}

static inline void *plain_end(struct plain_store *s, const struct kv_move *m, uint32_t phys)
{
    return phys == KV_BYTES ? m->bytes : plain_block(s, m->group, phys);
}

static inline enum status plain_start(struct kv_store *kv, const struct kv_move *m,
                                      uint64_t *ticket, struct err *e)
{
    struct plain_store *s = (struct plain_store *)kv;
    (void)e;
    memcpy(plain_end(s, m, m->dst), plain_end(s, m, m->src),
           s->layout->group[m->group].block_bytes);
    *ticket = 0;
    return OK;
}

static inline enum status plain_wait(struct kv_store *kv, uint64_t ticket, struct err *e)
{
    (void)kv, (void)ticket, (void)e;
    return OK;
}

static inline void *plain_stage(struct kv_store *kv, size_t n_bytes)
{
    (void)kv;
    void *p = mem_aligned(KV_STAGE_ALIGN, n_bytes);
    return p ? memset(p, 0, n_bytes) : NULL;
}

static inline void plain_unstage(struct kv_store *kv, void *p)
{
    (void)kv;
    mem_free(p);
}

static const struct kv_store_ops plain_ops = {
    .start = plain_start, .wait = plain_wait, .stage = plain_stage, .unstage = plain_unstage};

/* n_host: NULL none. */
static inline void plain_store_init(struct plain_store *s, const struct kv_layout *l,
                                    const uint32_t *n_frames, const uint32_t *n_host)
{
    struct err e;
    *s = (struct plain_store){.store.ops = &plain_ops, .layout = l};
    ck_assert_int_eq(kv_arena_plan(&s->store.arena, l, n_frames, n_host, &e), OK);
    for (uint32_t g = 0; g < l->n_groups; g++)
        ck_assert_uint_le(n_frames[g] + (n_host ? n_host[g] : 0), PLAIN_MAX_BLOCKS);
    s->bytes = mem_zalloc((size_t)KV_MAX_GROUPS * PLAIN_MAX_BLOCKS * PLAIN_STRIDE);
}

static inline void plain_store_release(struct plain_store *s)
{
    mem_free(s->bytes);
    s->bytes = NULL;
}

#endif
