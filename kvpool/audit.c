/* Recounts the pool from its tables and claims and compares; see the invariants in kvpool.h. */
#include "kvpool/kvpool.h"

#include <string.h>

static const char *const state_names[KV_N_STATES] = {"free", "open", "sealed", "ready"};

static enum status audit_free_list(struct kv_pool *p, struct err *e)
{
    uint32_t n = 0, n_marked = 0;
    for (uint32_t i = p->free_head; i != KV_NO_BLOCK; i = p->block[i].next_free) {
        if (i >= p->n_blocks || p->block[i].state != KV_FREE || ++n > p->n_blocks)
            return err_set(e, ERR_INTERNAL, "kv I1: free list broken at block %u", i);
    }
    for (uint32_t i = 0; i < p->n_blocks; i++)
        n_marked += p->block[i].state == KV_FREE;
    if (n != p->n_free || n_marked != p->n_free)
        return err_set(e, ERR_INTERNAL, "kv I1: n_free %u, list %u, marked %u", p->n_free, n,
                       n_marked);
    return OK;
}

static enum status audit_entry(struct kv_pool *p, const struct kv_table *t, uint32_t i,
                               struct err *e)
{
    uint32_t index = t->block[i];
    if (index >= p->n_blocks)
        return err_set(e, ERR_INTERNAL, "kv I4: entry %u names block %u of %u", i, index,
                       p->n_blocks);
    const struct kv_block *b = &p->block[index];
    if (b->generation != t->generation[i] || b->state == KV_FREE)
        return err_set(e, ERR_INTERNAL, "kv I4: entry %u is a stale handle of block %u", i, index);
    bool last = i + 1 == t->n;
    uint32_t tokens = last ? t->n_tokens - i * p->n_slots : p->n_slots;
    if (b->filled != tokens)
        return err_set(e, ERR_INTERNAL, "kv I6: block %u has %u slots filled, its table %u", index,
                       b->filled, tokens);
    p->audit_ref[index]++;
    if (t->n_retired < t->n_tokens && i >= t->n_retired / p->n_slots)
        p->audit_pin[index]++;
    return OK;
}

static enum status audit_table(struct kv_pool *p, const struct kv_table *t, struct err *e)
{
    if (t->n != kv_blocks_for(t->n_tokens, p->n_slots) || t->n > t->cap ||
        t->n_retired > t->n_tokens)
        return err_set(e, ERR_INTERNAL,
                       "kv I5: table of %u blocks (of %u) for %u tokens, %u retired", t->n, t->cap,
                       t->n_tokens, t->n_retired);
    for (uint32_t i = 0; i < t->n; i++) {
        if (audit_entry(p, t, i, e) != OK)
            return e ? e->status : ERR_INTERNAL;
    }
    return OK;
}

static enum status audit_block(struct kv_pool *p, uint32_t i, struct err *e)
{
    const struct kv_block *b = &p->block[i];
    if (b->ref != p->audit_ref[i] || (b->state == KV_FREE) != (b->ref == 0))
        return err_set(e, ERR_INTERNAL, "kv I2: block %u (%s) has ref %u, tables name it %u times",
                       i, state_names[b->state % KV_N_STATES], b->ref, p->audit_ref[i]);
    if (b->pin != p->audit_pin[i])
        return err_set(e, ERR_INTERNAL, "kv I3: block %u has pin %u, steps in flight %u", i, b->pin,
                       p->audit_pin[i]);
    bool full = b->filled == p->n_slots;
    if ((b->state == KV_OPEN) != (b->filled > 0 && !full) ||
        (b->state == KV_FREE && b->filled != 0) || (b->state == KV_SEALED && b->pin == 0) ||
        (b->state == KV_READY && b->pin != 0))
        return err_set(e, ERR_INTERNAL, "kv I6: block %u is %s with %u slots filled and pin %u", i,
                       state_names[b->state % KV_N_STATES], b->filled, b->pin);
    if (b->pin > 0 && b->ref != 1)
        return err_set(e, ERR_INTERNAL, "kv I7: block %u is written while %u tables hold it", i,
                       b->ref);
    if ((int32_t)(b->generation - p->audit_generation[i]) < 0)
        return err_set(e, ERR_INTERNAL, "kv I10: generation of block %u went from %u to %u", i,
                       p->audit_generation[i], b->generation);
    p->audit_generation[i] = b->generation;
    return OK;
}

static enum status audit_claims(const struct kv_pool *p, struct err *e)
{
    uint64_t sum = 0;
    for (const struct kv_claim *c = p->claims; c; c = c->next)
        sum += c->n_left;
    if (sum != p->n_promised || p->n_promised > p->n_free)
        return err_set(e, ERR_INTERNAL, "kv I8: %u blocks promised, claims say %llu, %u are free",
                       p->n_promised, (unsigned long long)sum, p->n_free);
    return OK;
}

enum status kv_audit(struct kv_pool *p, struct err *e)
{
    struct err own;
    if (!e)
        e = &own;
    memset(p->audit_ref, 0, p->n_blocks * sizeof(uint32_t));
    memset(p->audit_pin, 0, p->n_blocks * sizeof(uint32_t));
    enum status st = audit_free_list(p, e);
    for (const struct kv_table *t = p->tables; t && st == OK; t = t->next)
        st = audit_table(p, t, e);
    uint64_t n_written = 0;
    for (uint32_t i = 0; i < p->n_blocks && st == OK; i++) {
        st = audit_block(p, i, e);
        n_written += p->block[i].filled;
    }
    if (st == OK)
        st = audit_claims(p, e);
    if (st == OK && n_written != p->n_written)
        st = err_set(e, ERR_INTERNAL, "kv I9: n_written %llu, blocks say %llu",
                     (unsigned long long)p->n_written, (unsigned long long)n_written);
    return st;
}

void kv_dump(const struct kv_pool *p, struct buf *out)
{
    uint32_t n[KV_N_STATES] = {0};
    for (uint32_t i = 0; i < p->n_blocks; i++)
        n[p->block[i].state % KV_N_STATES]++;
    buf_printf(out, "kv pool: %u blocks of %u slots, %u promised", p->n_blocks, p->n_slots,
               p->n_promised);
    for (int i = 0; i < KV_N_STATES; i++)
        buf_printf(out, ", %u %s", n[i], state_names[i]);
    buf_add_char(out, '\n');
    for (const struct kv_table *t = p->tables; t; t = t->next) {
        buf_printf(out, "table of %u tokens (%u retired):", t->n_tokens, t->n_retired);
        for (uint32_t i = 0; i < t->n; i++) {
            const struct kv_block *b = &p->block[t->block[i] % p->n_blocks];
            buf_printf(out, " %u.%u(%s ref %u pin %u)", t->block[i], t->generation[i],
                       state_names[b->state % KV_N_STATES], b->ref, b->pin);
        }
        buf_add_char(out, '\n');
    }
}
