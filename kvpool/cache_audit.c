/* Recounts the books from the tables and compares the results. Invariants:
 *
 *   I1  every block is in one state; n_state counts them; FREE ones are on the free list exactly once
 *   I2  ref == number of table entries that name the block; OPEN, SEALED, READY <=> ref >= 1
 *   I3  pin == growths in flight that write it + growths in flight that copy from it; FREE => 0
 *   I4  a table entry's generation is its block's, its index the block's pos, its block not FREE,
 *       CACHED or ZOMBIE
 *   I5  a table holds the entries [first, n): n blocks cover n_tokens, and `first` is the first one that
 *       a row after n_retired positions sees; n_retired <= n_tokens <= cap blocks
 *   I6  all entries but a table's last are full; filled of the last equals the table's tokens in it;
 *       OPEN <=> 0 < filled < n_slots; SEALED <=> full and written by a growth in flight; READY and
 *       CACHED are full; FREE and ZOMBIE have 0
 *   I7  a block that a growth in flight writes is held by that sequence alone, has no copy in a slot and
 *       no job
 *   I8  n_promised == sum of the claims <= frames that can be had
 *   I9  n_written == sum of filled
 *   I10 generations never decrease
 *   I11 a frame and a slot belong to one block each or are on a free stack, exactly once
 *   I12 a block that is not FREE has a frame or a slot, and its bytes are valid in one of them: without a
 *       frame, its slot is not the target of a spill; while a load fills its frame, it keeps its slot
 *   I13 n_run (n_paged) == entries of running sequences whose phys is its frame (n_frames + its slot);
 *       entries of parked ones name nothing, nor do holes, which only lost sequences have
 *   I14 n_paged of a table counts its paged entries; only full retired blocks of group 0 are paged
 *   I15 a block is on the list of its class; each list is doubly linked, and its count is right
 *   I16 indexed blocks are READY or CACHED, CACHED ones are indexed; each is in its bucket once, and its
 *       key is the hash of its parent key and token ids
 *   I17 neighbours in a table that are both indexed are linked: the key of the first is the second's parent
 *   I18 waiting jobs are queued once, n_out counts those out and is <= max_jobs; a load has a frame, a
 *       slot and, while it waits, a reader; a spill has a frame and a slot
 *   I19 n_loading counts a sequence's running entries whose blocks load; the list of waiting sequences
 *       holds those that have some
 *   I20 each announcement belongs to one live sequence, comes after the blocks published by it, in order,
 *       and is in its bucket; together with the free ones there are max_pending
 *   I21 n_published * n_slots <= n_retired; n_hit <= n_retired; claim plus held blocks do not exceed the
 *       reserve
 *
 * A new broken invariant gets the next number. */
#include <string.h>

#include "kvpool/cache_int.h"

static const char *const state_names[KVC_N_STATES] = {"free",  "open",   "sealed",
                                                      "ready", "cached", "zombie"};

/* The recounted numbers of a block. */
struct count {
    uint32_t ref, pin, n_run, n_paged;
};

struct walk {
    struct kv_cache *c;
    struct kvc_group *g;
    struct count *count; /* [n_blocks] of g, inside c->audit */
    uint32_t k;
    struct err *e;
};

#define BROKEN(w, ...) err_set((w)->e, ERR_INTERNAL, "kv " __VA_ARGS__)

/* ---- tables ---- */

static enum status audit_phys(struct walk *w, const struct kv_seq *s, uint32_t i, uint32_t *n_waits,
                              uint32_t *n_paged)
{
    const struct kvc_block *b = kvc_look(w->c, s, w->k, i);
    struct count *n = &w->count[s->t[w->k].block[i]];
    uint32_t phys = s->t[w->k].phys[i];
    if (phys == KV_NO_BLOCK) {
        if (s->runs && !s->lost)
            return BROKEN(w, "I13: running entry %u of group %u is a hole", i, w->k);
        return OK;
    }
    if (!s->runs)
        return BROKEN(w, "I13: parked entry %u of group %u names %u", i, w->k, phys);
    if (phys == b->frame) {
        n->n_run++;
        *n_waits += kvc_loads(b);
        return OK;
    }
    if (b->slot == KV_NO_BLOCK || phys != w->g->n_frames + b->slot)
        return BROKEN(w, "I13: entry %u of group %u names %u; frame %u, slot %u", i, w->k, phys,
                      b->frame, b->slot);
    if (w->k != 0 || w->g->window != 0 || b->state != KVC_READY || kvc_spills(b))
        return BROKEN(w, "I14: entry %u of group %u is paged, block %s", i, w->k,
                      state_names[b->state]);
    n->n_paged++;
    ++*n_paged;
    return OK;
}

static enum status audit_entry(struct walk *w, const struct kv_seq *s, uint32_t i)
{
    const struct kv_table *t = &s->t[w->k];
    uint32_t index = t->block[i], n_slots = w->c->n_slots;
    if (index >= w->g->n_blocks)
        return BROKEN(w, "I4: entry %u names block %u of %u", i, index, w->g->n_blocks);
    const struct kvc_block *b = &w->g->block[index];
    if (b->generation != t->generation[i] || b->pos != i || b->state == KVC_FREE ||
        b->state == KVC_CACHED || b->state == KVC_ZOMBIE)
        return BROKEN(w, "I4: entry %u of group %u is stale: block %u is %s at %u", i, w->k, index,
                      state_names[b->state % KVC_N_STATES], b->pos);
    uint32_t tokens = i + 1 == t->n ? s->n_tokens - i * n_slots : n_slots;
    if (b->filled != tokens)
        return BROKEN(w, "I6: block %u has %u slots filled, its table %u", index, b->filled,
                      tokens);
    w->count[index].ref++;
    bool written = s->n_retired < s->n_tokens && i >= s->n_retired / n_slots;
    w->count[index].pin += written;
    if (written && (b->ref != 1 || b->slot != KV_NO_BLOCK || b->job != KVC_IDLE))
        return BROKEN(w, "I7: block %u is written; ref %u, slot %u, job %u", index, b->ref, b->slot,
                      b->job);
    if ((b->state == KVC_SEALED) != (written && b->filled == n_slots))
        return BROKEN(w, "I6: block %u is %s with %u slots filled", index, state_names[b->state],
                      b->filled);
    if (i > t->first && b->indexed) {
        const struct kvc_block *a = &w->g->block[t->block[i - 1]];
        struct kv_key key;
        if (a->indexed) {
            key = kvc_chain(w->c, a->parent, w->g->tokens + (size_t)t->block[i - 1] * n_slots);
            if (memcmp(&key, &b->parent, sizeof(key)) != 0)
                return BROKEN(w, "I17: blocks %u and %u of one table are not linked",
                              t->block[i - 1], index);
        }
    }
    return OK;
}

static enum status audit_table(struct walk *w, const struct kv_seq *s, uint32_t *n_waits)
{
    const struct kv_table *t = &s->t[w->k];
    uint32_t n_paged = 0;
    if (t->n != kvc_blocks(s->n_tokens, w->c->n_slots) || t->n > t->cap ||
        s->n_retired > s->n_tokens || t->first != kvc_first(w->g, w->c->n_slots, s->n_retired))
        return BROKEN(w, "I5: table [%u, %u) of %u for %u tokens, %u retired, window %u", t->first,
                      t->n, t->cap, s->n_tokens, s->n_retired, w->g->window);
    for (uint32_t i = t->first; i < t->n; i++) {
        if (audit_entry(w, s, i) != OK || audit_phys(w, s, i, n_waits, &n_paged) != OK)
            return ERR_INTERNAL;
    }
    if (n_paged != t->n_paged)
        return BROKEN(w, "I14: %u paged entries, n_paged %u", n_paged, t->n_paged);
    if (t->cow_block != KV_NO_BLOCK) {
        if (s->n_retired == s->n_tokens || t->cow_block >= w->g->n_blocks ||
            w->g->block[t->cow_block].generation != t->cow_generation ||
            w->g->block[t->cow_block].frame == KV_NO_BLOCK)
            return BROKEN(w, "I3: copy source %u is stale", t->cow_block);
        w->count[t->cow_block].pin++;
    }
    return OK;
}

/* ---- blocks ---- */

static enum status audit_state(struct walk *w, uint32_t i)
{
    const struct kvc_block *b = &w->g->block[i];
    const struct count *n = &w->count[i];
    bool held = b->state == KVC_OPEN || b->state == KVC_SEALED || b->state == KVC_READY;
    bool empty = b->state == KVC_FREE || b->state == KVC_ZOMBIE;
    uint32_t n_slots = w->c->n_slots;
    if (b->state >= KVC_N_STATES)
        return BROKEN(w, "I1: block %u has state %u", i, b->state);
    if (b->ref != n->ref || held != (b->ref > 0))
        return BROKEN(w, "I2: block %u (%s) has ref %u, tables name it %u times", i,
                      state_names[b->state], b->ref, n->ref);
    if (b->pin != n->pin || (b->state == KVC_FREE && b->pin != 0))
        return BROKEN(w, "I3: block %u (%s) has pin %u, steps in flight %u", i,
                      state_names[b->state], b->pin, n->pin);
    if (b->n_run != n->n_run || b->n_paged != n->n_paged)
        return BROKEN(w,
                      "I13: block %u has %u readers of its frame and %u of its slot, not %u and %u",
                      i, b->n_run, b->n_paged, n->n_run, n->n_paged);
    if ((b->state == KVC_OPEN) != (b->filled > 0 && b->filled < n_slots) ||
        empty != (b->filled == 0) || b->filled > n_slots)
        return BROKEN(w, "I6: block %u is %s with %u slots filled", i, state_names[b->state],
                      b->filled);
    if (b->state == KVC_ZOMBIE && b->pin == 0 && b->job == KVC_IDLE)
        return BROKEN(w, "I1: block %u is a zombie that nothing holds", i);
    if ((int32_t)(b->generation - w->c->audit_generation[w->g->flat0 + i]) < 0)
        return BROKEN(w, "I10: generation of block %u went from %u to %u", i,
                      w->c->audit_generation[w->g->flat0 + i], b->generation);
    w->c->audit_generation[w->g->flat0 + i] = b->generation;
    return OK;
}

static enum status audit_places(struct walk *w, uint32_t i)
{
    const struct kvc_block *b = &w->g->block[i];
    bool framed = b->frame != KV_NO_BLOCK, slotted = b->slot != KV_NO_BLOCK;
    if (b->state == KVC_FREE)
        return framed || slotted ? BROKEN(w, "I11: free block %u has a place", i) : OK;
    if ((framed && (b->frame >= w->g->n_frames || w->g->frame_block[b->frame] != i)) ||
        (slotted && (b->slot >= w->g->n_tier || w->g->slot_block[b->slot] != i)))
        return BROKEN(w, "I11: block %u has frame %u and slot %u, which say otherwise", i, b->frame,
                      b->slot);
    if (!framed && !kvc_stored(b))
        return BROKEN(w, "I12: block %u (%s) is nowhere", i, state_names[b->state]);
    if (b->job != KVC_IDLE && (!framed || !slotted))
        return BROKEN(w, "I18: block %u has job %u, frame %u, slot %u", i, b->job, b->frame,
                      b->slot);
    if (b->job == KVC_LOAD_WAITS && b->n_run == 0)
        return BROKEN(w, "I18: block %u waits for a load that nobody wants", i);
    if (b->list != kvc_class(b))
        return BROKEN(w, "I15: block %u (%s) is on list %u, not %u", i, state_names[b->state],
                      b->list, kvc_class(b));
    return OK;
}

static enum status audit_key(struct walk *w, uint32_t i)
{
    const struct kvc_block *b = &w->g->block[i];
    if ((b->indexed && b->state != KVC_READY && b->state != KVC_CACHED) ||
        (b->state == KVC_CACHED && !b->indexed))
        return BROKEN(w, "I16: block %u is %s, indexed %d", i, state_names[b->state], b->indexed);
    if (!b->indexed)
        return OK;
    uint32_t n = 0, n_seen = 0;
    for (uint32_t at = w->g->bucket[b->key.w[0] & w->g->mask]; at != KV_NO_BLOCK;
         at = w->g->block[at].hash_next) {
        n += at == i;
        if (++n_seen > w->g->n_blocks || !w->g->block[at].indexed)
            return BROKEN(w, "I16: bucket of block %u is broken at %u", i, at);
    }
    struct kv_key key = kvc_chain(w->c, b->parent, w->g->tokens + (size_t)i * w->c->n_slots);
    if (n != 1 || b->key.w[0] != (key.w[0] & w->c->key_mask.w[0]) ||
        b->key.w[1] != (key.w[1] & w->c->key_mask.w[1]))
        return BROKEN(w, "I16: block %u is in its bucket %u times, or under another key", i, n);
    return OK;
}

static enum status audit_lists(struct walk *w)
{
    struct kvc_group *g = w->g;
    uint32_t n_free = 0, n_state[KVC_N_STATES] = {0}, n_list[KVC_N_LISTS] = {0};
    uint64_t n_written = 0;
    for (uint32_t i = g->free_block; i != KV_NO_BLOCK; i = g->block[i].next) {
        if (i >= g->n_blocks || g->block[i].state != KVC_FREE || ++n_free > g->n_blocks)
            return BROKEN(w, "I1: free list broken at block %u", i);
    }
    for (uint32_t i = 0; i < g->n_blocks; i++) {
        n_state[g->block[i].state]++;
        n_list[g->block[i].list]++;
        n_written += g->block[i].filled;
    }
    if (memcmp(n_state, g->n_state, sizeof(n_state)) != 0 || n_free != n_state[KVC_FREE] ||
        n_free != g->n_free_blocks)
        return BROKEN(w, "I1: %u blocks free, %u on the list, %u counted", n_state[KVC_FREE],
                      n_free, g->n_free_blocks);
    if (n_written != g->n_written)
        return BROKEN(w, "I9: n_written %llu, blocks say %llu", (unsigned long long)g->n_written,
                      (unsigned long long)n_written);
    for (uint32_t l = KVC_NONE + 1; l < KVC_N_LISTS; l++) {
        uint32_t n = 0, last = KV_NO_BLOCK;
        for (uint32_t i = g->list[l].head; i != KV_NO_BLOCK; last = i, i = g->block[i].next) {
            if (i >= g->n_blocks || g->block[i].list != l || g->block[i].prev != last ||
                ++n > g->n_blocks)
                return BROKEN(w, "I15: list %u broken at block %u", l, i);
        }
        if (n != g->list[l].n || n != n_list[l] || last != g->list[l].tail)
            return BROKEN(w, "I15: list %u has %u blocks, %u counted, %u marked", l, n,
                          g->list[l].n, n_list[l]);
    }
    return OK;
}

/* Every number below n belongs to a block (see owner) or is on one of the two stacks, exactly once. */
static enum status audit_stack(struct walk *w, const char *what, const uint32_t *owner, uint32_t n,
                               const uint32_t *stack, uint32_t n_stack, uint32_t first,
                               uint32_t end)
{
    uint32_t n_owned = 0;
    for (uint32_t i = 0; i < n_stack; i++) {
        if (stack[i] < first || stack[i] >= end || owner[stack[i]] != KV_NO_BLOCK)
            return BROKEN(w, "I11: free %s %u is no free one", what, stack[i]);
        for (uint32_t j = 0; j < i && n <= 256; j++) {
            if (stack[j] == stack[i])
                return BROKEN(w, "I11: %s %u is free twice", what, stack[i]);
        }
    }
    for (uint32_t i = first; i < end; i++)
        n_owned += owner[i] != KV_NO_BLOCK;
    return n_owned + n_stack == end - first
               ? OK
               : BROKEN(w, "I11: %u %ss used, %u free, of %u", n_owned, what, n_stack, end - first);
}

static enum status audit_group(struct walk *w)
{
    struct kvc_group *g = w->g;
    uint32_t n_framed = 0, n_slotted = 0;
    for (uint32_t i = 0; i < g->n_blocks; i++) {
        if (audit_state(w, i) != OK || audit_places(w, i) != OK || audit_key(w, i) != OK)
            return ERR_INTERNAL;
        n_framed += g->block[i].frame != KV_NO_BLOCK;
        n_slotted += g->block[i].slot != KV_NO_BLOCK;
    }
    if (n_framed + g->n_free_frames != g->n_frames ||
        n_slotted + g->n_free_host + g->n_free_file != g->n_tier)
        return BROKEN(w, "I11: %u frames and %u slots are used, %u and %u free", n_framed,
                      n_slotted, g->n_free_frames, g->n_free_host + g->n_free_file);
    enum status st = audit_lists(w);
    if (st == OK)
        st = audit_stack(w, "frame", g->frame_block, g->n_frames, g->free_frame, g->n_free_frames,
                         0, g->n_frames);
    if (st == OK)
        st = audit_stack(w, "host slot", g->slot_block, g->n_tier, g->free_host, g->n_free_host, 0,
                         g->n_host);
    if (st == OK)
        st = audit_stack(w, "file slot", g->slot_block, g->n_tier, g->free_file, g->n_free_file,
                         g->n_host, g->n_tier);
    return st;
}

/* ---- the whole cache ---- */

static enum status audit_jobs(struct walk *w)
{
    struct kv_cache *c = w->c;
    uint32_t n_out = 0, n_waits[2] = {0};
    for (uint32_t k = 0; k < c->n_groups; k++) {
        for (uint32_t i = 0; i < c->group[k].n_blocks; i++) {
            uint8_t job = c->group[k].block[i].job;
            n_out += job == KVC_SPILL_OUT || job == KVC_LOAD_OUT;
            n_waits[0] += job == KVC_SPILL_WAITS;
            n_waits[1] += job == KVC_LOAD_WAITS;
        }
    }
    if (n_out != c->n_out || n_out > c->max_jobs)
        return BROKEN(w, "I18: %u copies are out, %u counted, at most %u", n_out, c->n_out,
                      c->max_jobs);
    for (uint32_t q = 0; q < 2; q++) {
        uint32_t n = 0, last = KV_NO_BLOCK;
        for (uint32_t flat = c->queue[q].head; flat != KV_NO_BLOCK;) {
            uint32_t k = c->n_groups - 1;
            while (flat < c->group[k].flat0)
                k--;
            const struct kvc_block *b = &c->group[k].block[flat - c->group[k].flat0];
            if (b->job != (q ? KVC_LOAD_WAITS : KVC_SPILL_WAITS) || b->job_prev != last ||
                ++n > n_waits[q])
                return BROKEN(w, "I18: queue %u broken at %u", q, flat);
            last = flat;
            flat = b->job_next;
        }
        if (n != n_waits[q] || n != c->queue[q].n || last != c->queue[q].tail)
            return BROKEN(w, "I18: %u jobs in queue %u, %u counted, %u marked", n, q, c->queue[q].n,
                          n_waits[q]);
    }
    return OK;
}

static enum status audit_pending(struct walk *w)
{
    struct kv_cache *c = w->c;
    uint32_t n = 0;
    for (const struct kv_seq *s = c->seqs; s; s = s->next) {
        uint32_t last = KV_NO_BLOCK;
        for (uint32_t i = s->pend_head; i != KV_NO_BLOCK; last = i, i = c->pend[i].seq_next) {
            const struct kvc_pend *p = &c->pend[i];
            uint32_t at = c->pend_bucket[p->key.w[0] & c->pend_mask];
            while (at != i && at != KV_NO_BLOCK)
                at = c->pend[at].hash_next;
            if (at == KV_NO_BLOCK || p->pos < s->n_published ||
                (last != KV_NO_BLOCK && p->pos != c->pend[last].pos + 1) || ++n > c->max_pending)
                return BROKEN(w, "I20: announcement %u of block %u, %u published", i, p->pos,
                              s->n_published);
        }
        if (last != s->pend_tail)
            return BROKEN(w, "I20: announcements end at %u, not at %u", last, s->pend_tail);
    }
    for (uint32_t i = c->pend_free; i != KV_NO_BLOCK && n <= c->max_pending;
         i = c->pend[i].hash_next)
        n++;
    return n == c->max_pending ? OK : BROKEN(w, "I20: %u announcements of %u", n, c->max_pending);
}

static enum status audit_seq(struct walk *w, const struct kv_seq *s)
{
    uint32_t n_waits = 0, in_list = 0;
    for (w->k = 0; w->k < w->c->n_groups; w->k++) {
        w->g = &w->c->group[w->k];
        w->count = (struct count *)w->c->audit + w->g->flat0;
        if (audit_table(w, s, &n_waits) != OK)
            return ERR_INTERNAL;
        if (s->claim.n[w->k] > 0 &&
            s->claim.n[w->k] + s->t[w->k].n - s->t[w->k].first > s->reserve.n[w->k])
            return BROKEN(w, "I21: %u frames promised beyond a reserve of %u", s->claim.n[w->k],
                          s->reserve.n[w->k]);
    }
    for (const struct kv_seq *l = w->c->loading; l; l = l->load_next)
        in_list += l == s;
    if (n_waits != s->n_loading || in_list != (n_waits > 0))
        return BROKEN(w, "I19: %u entries wait, n_loading %u, %u times listed", n_waits,
                      s->n_loading, in_list);
    if ((uint64_t)s->n_published * w->c->n_slots > s->n_retired || s->n_hit > s->n_retired)
        return BROKEN(w, "I21: %u blocks published, %u positions hit, %u retired", s->n_published,
                      s->n_hit, s->n_retired);
    return OK;
}

enum status kv_cache_audit(struct kv_cache *c, struct err *e)
{
    struct err own;
    struct walk w = {.c = c, .e = e ? e : &own};
    const struct kvc_group *last = &c->group[c->n_groups - 1];
    uint64_t promised[KV_MAX_GROUPS] = {0};
    memset(c->audit, 0, (size_t)(last->flat0 + last->n_blocks) * sizeof(struct count));
    enum status st = OK;
    for (const struct kv_seq *s = c->seqs; s && st == OK; s = s->next) {
        st = audit_seq(&w, s);
        for (uint32_t k = 0; k < c->n_groups; k++)
            promised[k] += s->claim.n[k];
    }
    for (w.k = 0; w.k < c->n_groups && st == OK; w.k++) {
        w.g = &c->group[w.k];
        w.count = (struct count *)c->audit + w.g->flat0;
        st = audit_group(&w);
        if (st == OK && (promised[w.k] != w.g->n_promised || w.g->n_promised > kvc_avail(w.g)))
            st = BROKEN(&w, "I8: %u frames promised, claims say %llu, %u can be had",
                        w.g->n_promised, (unsigned long long)promised[w.k], kvc_avail(w.g));
    }
    if (st == OK)
        st = audit_jobs(&w);
    if (st == OK)
        st = audit_pending(&w);
    return st;
}

/* ---- ledger ---- */

static void dump_seq(const struct kv_cache *c, const struct kv_seq *s, struct buf *out)
{
    buf_printf(out, "sequence of %u tokens (%u retired, %u hit), %s%s, %u loads\n", s->n_tokens,
               s->n_retired, s->n_hit, s->runs ? "runs" : "parked", s->lost ? ", lost" : "",
               s->n_loading);
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kv_table *t = &s->t[k];
        buf_printf(out, "  group %u, promised %u:", k, s->claim.n[k]);
        for (uint32_t i = t->first; i < t->n; i++) {
            const struct kvc_block *b = kvc_look(c, s, k, i);
            buf_printf(out, " %u:%u.%u(%s ref %u", i, t->block[i], t->generation[i],
                       state_names[b->state % KVC_N_STATES], b->ref);
            if (b->frame != KV_NO_BLOCK)
                buf_printf(out, " frame %u", b->frame);
            if (b->slot != KV_NO_BLOCK)
                buf_printf(out, " slot %u", b->slot);
            buf_printf(out, "%s%s)",
                       kvc_loads(b)    ? " loading"
                       : kvc_spills(b) ? " spilling"
                                       : "",
                       b->indexed ? " indexed" : "");
        }
        buf_add_char(out, '\n');
    }
}

void kv_cache_dump(const struct kv_cache *c, struct buf *out)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kvc_group *g = &c->group[k];
        buf_printf(out, "kv group %u: %u frames (%u free), %u slots (%u free), %u promised", k,
                   g->n_frames, g->n_free_frames, g->n_tier, g->n_free_host + g->n_free_file,
                   g->n_promised);
        for (int i = 0; i < KVC_N_STATES; i++)
            buf_printf(out, ", %u %s", g->n_state[i], state_names[i]);
        buf_add_char(out, '\n');
    }
    for (const struct kv_seq *s = c->seqs; s; s = s->next)
        dump_seq(c, s, out);
}
