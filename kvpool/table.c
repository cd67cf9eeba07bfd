/* Block tables: growth, forks with a copied tail, release; see kvpool.h. */
#include "kvpool/kvpool.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

void kv_table_init(struct kv_pool *p, struct kv_table *t, uint32_t cap_blocks)
{
    memset(t, 0, sizeof(*t));
    t->block = mem_alloc(mem_mul(cap_blocks, 2 * sizeof(uint32_t)));
    t->generation = t->block + cap_blocks;
    t->cap = cap_blocks;
    t->next = p->tables;
    if (p->tables)
        p->tables->prev = t;
    p->tables = t;
}

void kv_table_release(struct kv_pool *p, struct kv_table *t)
{
    CHECKF(t->n == 0, "table still holds %u blocks", t->n);
    if (t->prev)
        t->prev->next = t->next;
    else
        p->tables = t->next;
    if (t->next)
        t->next->prev = t->prev;
    mem_free(t->block);
    memset(t, 0, sizeof(*t));
}

static void table_add(struct kv_table *t, struct kv_handle h)
{
    CHECKF(t->n < t->cap, "table of %u blocks is full", t->cap);
    t->block[t->n] = h.index;
    t->generation[t->n++] = h.generation;
}

/* The shared open tail becomes the table's own: the backend copies its bytes, a whole block. */
static bool own_tail(struct kv_pool *p, struct kv_table *t, struct kv_claim *c,
                     struct kv_copy *copy)
{
    uint32_t in_tail = t->n_tokens % p->n_slots;
    if (in_tail == 0)
        return false;
    struct kv_handle old = kv_table_at(t, t->n - 1);
    if (kv_deref(p, old)->ref == 1)
        return false;
    struct kv_handle own = kv_block_take(p, c);
    kv_block_fill(p, own, in_tail);
    kv_block_unref(p, old);
    t->block[t->n - 1] = own.index;
    t->generation[t->n - 1] = own.generation;
    *copy = (struct kv_copy){.src = old.index, .dst = own.index};
    return true;
}

bool kv_table_grow(struct kv_pool *p, struct kv_table *t, struct kv_claim *c, uint32_t n_tokens,
                   struct kv_copy *copy)
{
    CHECKF(n_tokens >= 1 && t->n_retired == t->n_tokens, "a growth is in flight already");
    bool copies = own_tail(p, t, c, copy);
    while (n_tokens > 0) {
        uint32_t used = t->n_tokens % p->n_slots;
        if (used == 0)
            table_add(t, kv_block_take(p, c));
        uint32_t take = p->n_slots - used < n_tokens ? p->n_slots - used : n_tokens;
        struct kv_handle h = kv_table_at(t, t->n - 1);
        kv_block_fill(p, h, take);
        p->block[h.index].pin++;
        t->n_tokens += take;
        n_tokens -= take;
    }
    return copies;
}

void kv_table_retire(struct kv_pool *p, struct kv_table *t)
{
    if (t->n_retired == t->n_tokens)
        return;
    for (uint32_t i = t->n_retired / p->n_slots; i < t->n; i++)
        kv_block_retire(p, kv_table_at(t, i));
    t->n_retired = t->n_tokens;
}

void kv_table_fork(struct kv_pool *p, const struct kv_table *parent, struct kv_table *child)
{
    CHECK(child->n == 0 && parent->n_retired == parent->n_tokens);
    for (uint32_t i = 0; i < parent->n; i++) {
        struct kv_handle h = kv_table_at(parent, i);
        kv_deref(p, h)->ref++;
        table_add(child, h);
    }
    child->n_tokens = child->n_retired = parent->n_tokens;
}

void kv_table_drop(struct kv_pool *p, struct kv_table *t)
{
    CHECKF(t->n_retired == t->n_tokens, "blocks dropped under a step in flight");
    while (t->n > 0) {
        t->n--;
        kv_block_unref(p, kv_table_at(t, t->n));
    }
    t->n_tokens = t->n_retired = 0;
}

uint32_t kv_table_need(struct kv_pool *p, const struct kv_table *t, uint32_t n_tokens)
{
    if (n_tokens <= t->n_tokens)
        return 0;
    uint32_t need = kv_blocks_for(n_tokens, p->n_slots) - t->n;
    if (t->n_tokens % p->n_slots != 0)
        need += kv_deref(p, kv_table_at(t, t->n - 1))->ref > 1;
    return need;
}
