/* The fake's memory: slots that only the fake may access, and the store over them; see fake.h.
 *
 * Outside the fake's own calls the mapping is inaccessible, so code that wrongly uses an address of it crashes
 * at that point. Moves of the store take all the time that kvpool/store.h allows: each token slot is read at
 * the start or at the end, at random, and the destination is garbage in between. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/fake/fake_int.h"

#define NO_POSITION 0xffffffffu

static void protect(struct fake *f, int access)
{
    CHECK(mprotect(f->map, f->n_map_bytes, access) == 0);
}

void fake_enter(struct fake *f)
{
    mutex_lock(&f->lock);
    if (f->n_inside++ == 0)
        protect(f, PROT_READ | PROT_WRITE);
    mutex_unlock(&f->lock);
}

void fake_leave(struct fake *f)
{
    mutex_lock(&f->lock);
    CHECK(f->n_inside > 0);
    if (--f->n_inside == 0)
        protect(f, PROT_NONE);
    mutex_unlock(&f->lock);
}

struct fake_slot *fake_block(struct fake *f, uint32_t group, uint32_t phys)
{
    return f->slot[group] + (size_t)phys * f->n_slots;
}

void fake_wipe(struct fake *f, struct fake_slot *block)
{
    for (uint32_t i = 0; i < f->n_slots; i++)
        block[i] = (struct fake_slot){~0ull, 0, NO_POSITION, -1};
}

/* ---- moves ---- */

/* Slot i of an end; the caller's memory may be unaligned. */
static uint8_t *end_at(struct fake *f, const struct kv_move *m, uint32_t phys, uint32_t i)
{
    if (phys == KV_BYTES)
        return (uint8_t *)m->bytes + i * sizeof(struct fake_slot);
    return (uint8_t *)(fake_block(f, m->group, phys) + i);
}

void fake_move_start(struct fake *f, struct fake_move *move, const struct kv_move *m, uint64_t id)
{
    static const struct fake_slot garbage = {~0ull, 0, NO_POSITION, -1};
    move->m = *m;
    move->id = id;
    for (uint32_t i = 0; i < f->n_slots; i++) {
        memcpy(&move->early[i], end_at(f, m, m->src, i), sizeof(garbage));
        memcpy(end_at(f, m, m->dst, i), &garbage, sizeof(garbage));
    }
}

void fake_move_end(struct fake *f, struct fake_move *move, bool ok)
{
    const struct kv_move *m = &move->m;
    uint64_t early =
        fake_mix(move->id, m->src ^ m->dst); /* a bit for each slot read at the start */
    for (uint32_t i = 0; ok && i < f->n_slots; i++)
        memcpy(end_at(f, m, m->dst, i),
               early >> i % 64 & 1 ? (const void *)&move->early[i] : end_at(f, m, m->src, i),
               sizeof(struct fake_slot));
    move->id = 0;
}

/* ---- the store ---- */

static struct fake *fake_of(struct kv_store *kv)
{
    return (struct fake *)((char *)kv - offsetof(struct fake, store));
}

static struct fake_move *find(struct fake *f, uint64_t id)
{
    for (uint32_t i = 0; i < FAKE_MAX_MOVES; i++) {
        if (f->move[i].id == id)
            return &f->move[i];
    }
    return NULL;
}

/* Moves are not ordered, so no two may overlap if one of them writes. */
static void check_meets(struct fake *f, const struct kv_move *m)
{
    for (uint32_t i = 0; i < FAKE_MAX_MOVES; i++) {
        const struct kv_move *o = &f->move[i].m;
        if (f->move[i].id == 0 || o->group != m->group)
            continue;
        if ((m->dst != KV_BYTES && (m->dst == o->dst || m->dst == o->src)) ||
            (o->dst != KV_BYTES && o->dst == m->src))
            fake_wrong(f, "move of block %u to %u meets one of %u to %u in group %u", m->src,
                       m->dst, o->src, o->dst, m->group);
    }
}

static void check_ends(const struct fake *f, const struct kv_move *m)
{
    CHECK(m->group < f->n_groups);
    uint32_t n = f->n_file_first[m->group];
    bool bytes = m->src == KV_BYTES || m->dst == KV_BYTES;
    CHECKF((m->src < n || m->src == KV_BYTES) && (m->dst < n || m->dst == KV_BYTES) &&
               m->src != m->dst,
           "move of block %u to %u of group %u", m->src, m->dst, m->group);
    CHECK(!bytes ||
          f->store.arena.group[m->group].block_bytes == f->n_slots * sizeof(struct fake_slot));
}

static enum status store_start(struct kv_store *kv, const struct kv_move *m, uint64_t *ticket,
                               struct err *e)
{
    struct fake *f = fake_of(kv);
    (void)e;
    check_ends(f, m);
    fake_enter(f);
    mutex_lock(&f->moves_lock);
    struct fake_move *move = find(f, 0);
    CHECKF(move, "more than %d moves in flight", FAKE_MAX_MOVES);
    check_meets(f, m);
    *ticket = ++f->n_moves;
    fake_move_start(f, move, m, *ticket);
    mutex_unlock(&f->moves_lock);
    fake_leave(f);
    return OK;
}

static enum status store_wait(struct kv_store *kv, uint64_t ticket, struct err *e)
{
    struct fake *f = fake_of(kv);
    fake_enter(f);
    mutex_lock(&f->moves_lock);
    struct fake_move *move = ticket ? find(f, ticket) : NULL;
    CHECKF(move, "no move has ticket %llu", (unsigned long long)ticket);
    bool ok = f->n_fail_moves == 0;
    f->n_fail_moves -= !ok;
    fake_move_end(f, move, ok);
    mutex_unlock(&f->moves_lock);
    fake_leave(f);
    return ok ? OK : err_set(e, ERR_IO, "move fails as the test asked");
}

static void *store_stage(struct kv_store *kv, size_t n_bytes)
{
    (void)kv;
    void *p = mem_aligned(KV_STAGE_ALIGN, n_bytes);
    return p ? memset(p, 0, n_bytes) : NULL;
}

static void store_unstage(struct kv_store *kv, void *p)
{
    (void)kv;
    mem_free(p);
}

static void store_close(struct kv_store *kv)
{
    (void)kv; /* the backend's */
}

static const struct kv_store_ops ops = {store_start, store_wait, store_stage, store_unstage,
                                        store_close};

bool fake_store_writes(struct fake *f, uint32_t group, uint32_t phys)
{
    bool writes = false;
    mutex_lock(&f->moves_lock);
    for (uint32_t i = 0; i < FAKE_MAX_MOVES; i++)
        writes |= f->move[i].id > 0 && f->move[i].m.group == group && f->move[i].m.dst == phys;
    mutex_unlock(&f->moves_lock);
    return writes;
}

/* ---- life ---- */

static size_t count_slots(struct fake *f, const struct kv_arena *arena)
{
    size_t n = 0;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        f->n_frames[g] = arena->group[g].n_frames;
        f->n_file_first[g] = f->n_frames[g] + arena->group[g].n_host;
        f->n_phys[g] = f->n_file_first[g] + f->o.n_file[g];
        n += mem_mul(f->n_phys[g], f->n_slots);
    }
    return n;
}

/* Large memory is aligned to huge pages and requests them: changing the protection of a few huge pages is
 * fast. */
static uint8_t *map_slots(struct fake *f, size_t n_bytes)
{
    size_t align = n_bytes < KV_ARENA_ALIGN ? (size_t)sysconf(_SC_PAGESIZE) : KV_ARENA_ALIGN;
    f->n_map_bytes = (n_bytes + align - 1) / align * align + align;
    f->map = mmap(NULL, f->n_map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(f->map != MAP_FAILED);
    if (align == KV_ARENA_ALIGN)
        madvise(f->map, f->n_map_bytes, MADV_HUGEPAGE);
    return f->map + (align - (uintptr_t)f->map % align) % align;
}

void fake_memory_new(struct fake *f, const struct kv_arena *arena)
{
    mutex_init(&f->lock);
    mutex_init(&f->moves_lock);
    f->store = (struct kv_store){.ops = &ops, .arena = *arena};
    size_t n_bytes = mem_mul(count_slots(f, arena), sizeof(struct fake_slot));
    struct fake_slot *at = (struct fake_slot *)map_slots(f, n_bytes);
    fake_enter(f);
    for (uint32_t g = 0; g < f->n_groups; g++) {
        f->slot[g] = at;
        at += (size_t)f->n_phys[g] * f->n_slots;
        for (uint32_t i = 0; i < f->n_phys[g]; i++)
            fake_wipe(f, fake_block(f, g, i));
    }
    fake_leave(f);
    for (uint32_t i = 0; i < FAKE_MAX_MOVES; i++)
        f->move[i].early = mem_zalloc(mem_mul(f->n_slots, sizeof(*f->move[i].early)));
}

void fake_memory_free(struct fake *f)
{
    for (uint32_t i = 0; i < FAKE_MAX_MOVES; i++)
        mem_free(f->move[i].early);
    munmap(f->map, f->n_map_bytes);
    mutex_release(&f->lock);
    mutex_release(&f->moves_lock);
}
