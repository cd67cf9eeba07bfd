/* A sequence's blocks: growth with copy-on-write, retiring with windows, undoing, forks, release. */
#include <string.h>

#include "kvpool/cache_int.h"

#include "base/check.h"

/* ---- waiting for loads ---- */

void kvc_wait_more(struct kv_cache *c, struct kv_seq *s)
{
    if (s->n_loading++ > 0)
        return;
    s->load_prev = NULL;
    s->load_next = c->loading;
    if (c->loading)
        c->loading->load_prev = s;
    c->loading = s;
}

void kvc_wait_less(struct kv_cache *c, struct kv_seq *s)
{
    CHECK(s->n_loading > 0);
    if (--s->n_loading > 0)
        return;
    if (s->load_prev)
        s->load_prev->load_next = s->load_next;
    else
        c->loading = s->load_next;
    if (s->load_next)
        s->load_next->load_prev = s->load_prev;
    s->load_prev = s->load_next = NULL;
}

/* ---- entries ---- */

void kvc_stop_entry(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t i)
{
    struct kv_table *t = &s->t[group];
    struct kvc_block *b = kvc_at(c, s, group, i);
    uint32_t phys = t->phys[i];
    t->phys[i] = KV_NO_BLOCK;
    if (phys == KV_NO_BLOCK)
        return;
    if (phys >= c->group[group].n_frames) {
        b->n_paged--;
        t->n_paged--;
        return;
    }
    b->n_run--;
    if (kvc_loads(b))
        kvc_wait_less(c, s);
}

void kvc_leave(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t i)
{
    struct kvc_block *b = kvc_at(c, s, group, i);
    if (s->runs)
        kvc_stop_entry(c, s, group, i);
    s->t[group].phys[i] = KV_NO_BLOCK;
    b->ref--;
    kvc_settle(c, &c->group[group], b);
}

static void add_entry(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t block)
{
    struct kv_table *t = &s->t[group];
    const struct kvc_block *b = &c->group[group].block[block];
    t->block[t->n] = block;
    t->generation[t->n] = b->generation;
    t->phys[t->n++] = b->frame;
}

/* ---- growth ---- */

/* True when s must not write to its open last block: it is shared, or a copy still reads it. */
static bool must_copy(const struct kv_cache *c, const struct kv_seq *s, uint32_t group)
{
    if (s->n_tokens % c->n_slots == 0)
        return false;
    const struct kvc_block *b = kvc_look(c, s, group, s->t[group].n - 1);
    return b->ref > 1 || b->job == KVC_SPILL_OUT;
}

struct kv_need kv_seq_need(const struct kv_cache *c, const struct kv_seq *s, uint32_t n_rows)
{
    struct kv_need need = {{0}};
    for (uint32_t k = 0; k < c->n_groups; k++)
        need.n[k] = kvc_blocks(s->n_tokens + n_rows, c->n_slots) - s->t[k].n + must_copy(c, s, k);
    return need;
}

static void own_tail(struct kv_cache *c, struct kv_seq *s, uint32_t group, struct kv_copy *copy,
                     uint32_t *n_copies)
{
    struct kvc_group *g = &c->group[group];
    struct kv_table *t = &s->t[group];
    uint32_t i = t->n - 1;
    struct kvc_block *old = kvc_at(c, s, group, i);
    if (PLANTED(c, KVC_FAULT_NO_COW))
        return;
    /* The frame that was promised for this copy must not be promised again. */
    if (old->ref > 1 && s->claim.n[group] > 0 && s->reserve.n[group] > 0)
        s->reserve.n[group]--;
    uint32_t own = kvc_take_block(c, s, group, i);
    kvc_set_filled(g, &g->block[own], s->n_tokens % c->n_slots);
    copy[(*n_copies)++] = (struct kv_copy){group, old->frame, g->block[own].frame};
    t->cow_block = t->block[i];
    t->cow_generation = old->generation;
    old->pin++;
    old->ref--;
    old->n_run--;
    kvc_settle(c, g, old);
    t->n--;
    add_entry(c, s, group, own);
    t->n_clean = t->n_clean < i ? t->n_clean : i;
}

/* Its copy in a slot will lack the new positions. */
static void spoil_copy(struct kv_cache *c, struct kv_seq *s, uint32_t group)
{
    struct kvc_group *g = &c->group[group];
    struct kvc_block *b = kvc_at(c, s, group, s->t[group].n - 1);
    if (b->slot == KV_NO_BLOCK || PLANTED(c, KVC_FAULT_STALE_SLOT))
        return;
    if (b->job == KVC_SPILL_WAITS)
        kvc_cancel_job(c, g, b);
    else
        kvc_drop_slot(c, g, b);
    kvc_settle(c, g, b);
}

static void grow_group(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t n_rows)
{
    struct kvc_group *g = &c->group[group];
    uint32_t n = s->n_tokens, end = n + n_rows;
    while (n < end) {
        uint32_t i = n / c->n_slots;
        if (n % c->n_slots == 0)
            add_entry(c, s, group, kvc_take_block(c, s, group, i));
        uint32_t stop = (i + 1) * c->n_slots < end ? (i + 1) * c->n_slots : end;
        struct kvc_block *b = kvc_at(c, s, group, i);
        kvc_set_filled(g, b, stop - i * c->n_slots);
        if (b->filled == c->n_slots)
            kvc_set_state(g, b, KVC_SEALED);
        b->pin++;
        n = stop;
    }
}

/* The common case when decoding: the rows fit into the open last blocks, which s can write in place. */
static bool grow_in_place(struct kv_cache *c, struct kv_seq *s, uint32_t n_rows)
{
    uint32_t n = s->t[0].n, n_left = n * c->n_slots - s->n_tokens;
    if (n_rows > n_left)
        return false;
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kvc_block *b = kvc_at(c, s, k, n - 1);
        if (b->ref > 1 || b->slot != KV_NO_BLOCK)
            return false;
    }
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_block *b = kvc_at(c, s, k, n - 1);
        kvc_set_filled(&c->group[k], b, b->filled + n_rows);
        if (n_rows == n_left)
            kvc_set_state(&c->group[k], b, KVC_SEALED);
        b->pin++;
    }
    return true;
}

static bool grow_with_blocks(struct kv_cache *c, struct kv_seq *s, uint32_t n_rows,
                             struct kv_copy *copy, uint32_t *n_copies)
{
    struct kv_need need = kv_seq_need(c, s, n_rows);
    for (uint32_t k = 0; k < c->n_groups; k++) {
        CHECKF(kvc_blocks(s->n_tokens + n_rows, c->n_slots) <= s->t[k].cap,
               "table of %u blocks is full", s->t[k].cap);
        if (need.n[k] > s->claim.n[k] + kv_room(c, k))
            return false;
    }
    for (uint32_t k = 0; k < c->n_groups; k++) {
        if (must_copy(c, s, k))
            own_tail(c, s, k, copy, n_copies);
        else if (s->n_tokens % c->n_slots != 0)
            spoil_copy(c, s, k);
        grow_group(c, s, k, n_rows);
    }
    return true;
}

bool kv_seq_grow(struct kv_cache *c, struct kv_seq *s, uint32_t n_rows, struct kv_copy *copy,
                 uint32_t *n_copies)
{
    CHECKF(n_rows >= 1 && kv_seq_resident(s) && s->n_retired == s->n_tokens,
           "growth by %u rows: runs %d, %u loads, %u of %u retired", n_rows, s->runs, s->n_loading,
           s->n_retired, s->n_tokens);
    if (!grow_in_place(c, s, n_rows) && !grow_with_blocks(c, s, n_rows, copy, n_copies))
        return false;
    s->n_tokens += n_rows;
    if (PLANTED(c, KVC_FAULT_EARLY_PUBLISH) && s->publishes)
        kvc_publish(c, s, c->fault_tokens, s->n_tokens / c->n_slots);
    return true;
}

/* ---- retiring ---- */

static void release_source(struct kv_cache *c, struct kv_seq *s, uint32_t group)
{
    struct kvc_group *g = &c->group[group];
    struct kv_table *t = &s->t[group];
    if (t->cow_block == KV_NO_BLOCK)
        return;
    struct kvc_block *b = &g->block[t->cow_block];
    CHECK(b->generation == t->cow_generation && b->pin > 0);
    t->cow_block = KV_NO_BLOCK;
    b->pin--;
    kvc_settle(c, g, b);
}

static void retire_group(struct kv_cache *c, struct kv_seq *s, uint32_t group)
{
    struct kvc_group *g = &c->group[group];
    uint32_t last = s->t[group].n - 1;
    release_source(c, s, group);
    for (uint32_t i = last * c->n_slots <= s->n_retired ? last : s->n_retired / c->n_slots;
         i <= last; i++) {
        struct kvc_block *b = kvc_at(c, s, group, i);
        b->pin--;
        if (b->state == KVC_SEALED)
            kvc_set_state(g, b, KVC_READY);
    }
}

static void slide(struct kv_cache *c, struct kv_seq *s, uint32_t group)
{
    struct kv_table *t = &s->t[group];
    if (c->group[group].window == 0)
        return;
    uint32_t first = kvc_first(&c->group[group], c->n_slots, s->n_retired);
    if (PLANTED(c, KVC_FAULT_WINDOW_FIRST) && first > 0 && first < t->n)
        first++;
    for (; t->first < first; t->first++)
        kvc_leave(c, s, group, t->first);
}

void kv_seq_retire(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, bool finite)
{
    if (s->n_retired == s->n_tokens)
        return;
    for (uint32_t k = 0; k < c->n_groups; k++)
        retire_group(c, s, k);
    s->n_retired = s->n_tokens;
    if (!finite) {
        if (s->publishes)
            kvc_unpublish(c, s);
        s->publishes = false;
        kv_pending_end(c, s);
    }
    uint32_t n = s->t[0].n;
    if (s->publishes)
        kvc_publish(c, s, tokens, n * c->n_slots == s->n_retired ? n : n - 1);
    for (uint32_t k = 0; k < c->n_groups; k++)
        slide(c, s, k);
    kvc_refill(c, s);
}

void kv_seq_undo(struct kv_cache *c, struct kv_seq *s)
{
    if (s->n_retired == s->n_tokens)
        return;
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        struct kv_table *t = &s->t[k];
        release_source(c, s, k);
        for (uint32_t i = t->n; i-- > s->n_retired / c->n_slots;) {
            struct kvc_block *b = kvc_at(c, s, k, i);
            b->pin--;
            kvc_set_state(g, b, KVC_OPEN);
            if (i * c->n_slots < s->n_retired) {
                kvc_set_filled(g, b, s->n_retired - i * c->n_slots);
            } else {
                kvc_leave(c, s, k, i);
                t->n--;
            }
        }
    }
    s->n_tokens = s->n_retired;
    kvc_refill(c, s);
}

/* ---- forks and release ---- */

void kv_seq_fork(struct kv_cache *c, const struct kv_seq *parent, struct kv_seq *child)
{
    CHECK(child->n_tokens == 0 && !child->runs && !parent->lost);
    CHECK(parent->n_retired == parent->n_tokens && parent->n_loading == 0);
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kv_table *from = &parent->t[k];
        struct kv_table *to = &child->t[k];
        CHECKF(from->n <= to->cap, "table of %u blocks is full", to->cap);
        memcpy(to->phys, from->phys, from->n * sizeof(uint32_t));
        memcpy(to->block, from->block, from->n * sizeof(uint32_t));
        memcpy(to->generation, from->generation, from->n * sizeof(uint32_t));
        to->first = from->first;
        to->n = from->n;
        to->n_paged = from->n_paged;
        to->n_clean = 0;
        for (uint32_t i = from->first; i < from->n; i++) {
            struct kvc_block *b = kvc_at(c, parent, k, i);
            b->ref++;
            b->n_run += from->phys[i] < c->group[k].n_frames;
            b->n_paged += from->phys[i] >= c->group[k].n_frames && from->phys[i] != KV_NO_BLOCK;
            kvc_settle(c, &c->group[k], b);
        }
    }
    child->n_tokens = child->n_retired = parent->n_tokens;
    child->key = parent->key;
    child->n_published = parent->n_published;
    child->publishes = parent->publishes;
    child->runs = parent->runs;
}

void kv_seq_drop(struct kv_cache *c, struct kv_seq *s)
{
    CHECKF(s->n_retired == s->n_tokens, "blocks dropped under a step in flight");
    kv_pending_end(c, s);
    kv_seq_claim_trim(c, s, &(struct kv_need){{0}});
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kv_table *t = &s->t[k];
        for (; t->n > t->first; t->n--)
            kvc_leave(c, s, k, t->n - 1);
        t->first = t->n = t->n_clean = 0;
    }
    CHECK(s->n_loading == 0);
    s->n_tokens = s->n_retired = s->n_hit = s->n_published = 0;
    s->key = s->root;
    s->publishes = c->prefix;
    s->runs = s->lost = false;
}
