/* Life of single blocks and of claims on them; see kvpool.h. */
#include "kvpool/kvpool.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

void kv_pool_init(struct kv_pool *p, uint32_t n_blocks, uint32_t n_slots)
{
    CHECK(n_blocks >= 1 && n_blocks < KV_NO_BLOCK && n_slots >= 1 && n_slots <= 255);
    memset(p, 0, sizeof(*p));
    p->n_blocks = n_blocks;
    p->n_slots = n_slots;
    p->block = mem_zalloc(mem_mul(n_blocks, sizeof(*p->block)));
    p->audit_ref = mem_zalloc(mem_mul(n_blocks, sizeof(uint32_t)));
    p->audit_pin = mem_zalloc(mem_mul(n_blocks, sizeof(uint32_t)));
    p->audit_generation = mem_zalloc(mem_mul(n_blocks, sizeof(uint32_t)));
    for (uint32_t i = 0; i < n_blocks; i++)
        p->block[i].next_free = i + 1 < n_blocks ? i + 1 : KV_NO_BLOCK;
    p->free_head = 0;
    p->n_free = n_blocks;
}

void kv_pool_release(struct kv_pool *p)
{
    CHECKF(p->n_free == p->n_blocks, "%u of %u blocks still held", p->n_blocks - p->n_free,
           p->n_blocks);
    CHECK(!p->tables && !p->claims);
    mem_free(p->block);
    mem_free(p->audit_ref);
    mem_free(p->audit_pin);
    mem_free(p->audit_generation);
    memset(p, 0, sizeof(*p));
}

struct kv_block *kv_deref(struct kv_pool *p, struct kv_handle h)
{
    CHECKF(h.index < p->n_blocks, "block %u of %u", h.index, p->n_blocks);
    struct kv_block *b = &p->block[h.index];
    CHECKF(b->generation == h.generation && b->state != KV_FREE,
           "stale handle of block %u: generation %u, now %u in state %u", h.index, h.generation,
           b->generation, b->state);
    return b;
}

bool kv_claim_try(struct kv_pool *p, struct kv_claim *c, uint32_t n)
{
    CHECK(!c->linked);
    if (n > kv_available(p))
        return false;
    p->n_promised += n;
    *c = (struct kv_claim){.n_left = n, .linked = true, .next = p->claims};
    if (p->claims)
        p->claims->prev = c;
    p->claims = c;
    return true;
}

void kv_claim_trim(struct kv_pool *p, struct kv_claim *c, uint32_t n_needed)
{
    if (c->n_left <= n_needed)
        return;
    p->n_promised -= c->n_left - n_needed;
    c->n_left = n_needed;
}

void kv_claim_release(struct kv_pool *p, struct kv_claim *c)
{
    if (!c->linked)
        return;
    kv_claim_trim(p, c, 0);
    if (c->prev)
        c->prev->next = c->next;
    else
        p->claims = c->next;
    if (c->next)
        c->next->prev = c->prev;
    *c = (struct kv_claim){0};
}

struct kv_handle kv_block_take(struct kv_pool *p, struct kv_claim *c)
{
    CHECKF(c->n_left > 0 && p->n_promised > 0, "nothing left of the claim");
    CHECKF(p->n_free > 0, "%u blocks promised, none free", p->n_promised);
    c->n_left--;
    p->n_promised--;
    uint32_t i = p->free_head;
    struct kv_block *b = &p->block[i];
    CHECK(b->state == KV_FREE && b->ref == 0 && b->pin == 0);
    p->free_head = b->next_free;
    p->n_free--;
    b->next_free = KV_NO_BLOCK;
    b->state = KV_OPEN;
    b->ref = 1;
    b->filled = 0;
    return (struct kv_handle){i, b->generation};
}

void kv_block_fill(struct kv_pool *p, struct kv_handle h, uint32_t n_slots_more)
{
    struct kv_block *b = kv_deref(p, h);
    CHECKF(b->state == KV_OPEN && b->ref == 1, "block %u written in state %u with %u holders",
           h.index, b->state, b->ref);
    CHECK(b->filled + n_slots_more <= p->n_slots);
    b->filled = (uint8_t)(b->filled + n_slots_more);
    p->n_written += n_slots_more;
    if (b->filled == p->n_slots)
        b->state = KV_SEALED;
}

void kv_block_retire(struct kv_pool *p, struct kv_handle h)
{
    struct kv_block *b = kv_deref(p, h);
    CHECK(b->pin > 0);
    b->pin--;
    if (b->state == KV_SEALED && b->pin == 0)
        b->state = KV_READY;
}

void kv_block_unref(struct kv_pool *p, struct kv_handle h)
{
    struct kv_block *b = kv_deref(p, h);
    CHECK(b->ref > 0);
    if (--b->ref > 0)
        return;
    CHECKF(b->pin == 0, "block %u freed while %u steps write it", h.index, b->pin);
    p->n_written -= b->filled;
    b->filled = 0;
    b->state = KV_FREE;
    b->generation++;
    b->next_free = p->free_head;
    p->free_head = h.index;
    p->n_free++;
}
