/* The mapping that holds KV blocks, and copies within it; see cpu_kv.h. A move is a memcpy that has ended when
 * start returns. */
#include "engine/cpu/cpu_kv.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/mem.h"

/* Anonymous memory at a 2 MiB boundary: maps more and unmaps both ends. */
static uint8_t *map_aligned(size_t n_bytes)
{
    size_t n_map = n_bytes + KV_ARENA_ALIGN;
    uint8_t *map = mmap(NULL, n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    size_t head = (KV_ARENA_ALIGN - (uintptr_t)map % KV_ARENA_ALIGN) % KV_ARENA_ALIGN;
    if (head > 0)
        munmap(map, head);
    munmap(map + head + n_bytes, n_map - head - n_bytes);
    return map + head;
}

static const uint8_t *source(const struct kv_store *kv, const struct kv_move *m)
{
    return m->src == KV_BYTES ? m->bytes : kv_block_ptr(kv, m->group, m->src);
}

static enum status cpu_start(struct kv_store *kv, const struct kv_move *m, uint64_t *ticket,
                             struct err *e)
{
    const struct kv_arena_group *g = &kv->arena.group[m->group];
    uint32_t n = g->n_frames + g->n_host;
    (void)e;
    CHECKF(m->group < kv->arena.n_groups && (m->src < n) + (m->src == KV_BYTES) == 1 &&
               (m->dst < n) + (m->dst == KV_BYTES) == 1 && m->src != m->dst,
           "move of block %u to %u of group %u", m->src, m->dst, m->group);
    memcpy(m->dst == KV_BYTES ? m->bytes : kv_block_ptr(kv, m->group, m->dst), source(kv, m),
           g->block_bytes);
    *ticket = 0;
    return OK;
}

static enum status cpu_wait(struct kv_store *kv, uint64_t ticket, struct err *e)
{
    (void)kv, (void)ticket, (void)e;
    return OK;
}

static void *cpu_stage(struct kv_store *kv, size_t n_bytes)
{
    (void)kv;
    void *p = mem_aligned(KV_STAGE_ALIGN, n_bytes);
    return p ? memset(p, 0, n_bytes) : NULL;
}

static void cpu_unstage(struct kv_store *kv, void *p)
{
    (void)kv;
    mem_free(p);
}

static void cpu_kv_close(struct kv_store *kv)
{
    struct cpu_kv *c = (struct cpu_kv *)kv;
    if (c->map)
        munmap(c->map, kv->arena.n_bytes);
    mem_free(c);
}

static const struct kv_store_ops ops = {cpu_start, cpu_wait, cpu_stage, cpu_unstage, cpu_kv_close};

enum status cpu_kv_new(const struct kv_layout *l, const uint32_t *n_frames, const uint32_t *n_host,
                       struct kv_store **out, struct err *e)
{
    struct cpu_kv *c = mem_zalloc(sizeof *c);
    struct kv_arena *a = &c->store.arena;
    c->store.ops = &ops;
    enum status st = kv_arena_plan(a, l, n_frames, n_host, e);
    if (st == OK) {
        c->map = map_aligned(a->n_bytes);
        if (!c->map)
            st =
                err_set(e, ERR_NO_MEMORY, "kv arena of %zu bytes: %s", a->n_bytes, strerror(errno));
    }
    if (st != OK) {
        cpu_kv_close(&c->store);
        return st;
    }
    madvise(c->map, a->n_bytes, MADV_HUGEPAGE); /* a hint: affects only speed */
    uint8_t *at = c->map;
    for (uint32_t g = 0; g < a->n_groups; g++) {
        c->base[g] = at;
        at += (a->group[g].n_frames + (size_t)a->group[g].n_host) * a->group[g].block_bytes;
    }
    *out = &c->store;
    return OK;
}
