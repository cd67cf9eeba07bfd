/* Frames, slots and the life of a block; which blocks can lose their frames or slots, and in what order. */
#include <string.h>

#include "kvpool/cache_int.h"

#include "base/check.h"

/* ---- lists ---- */

void kvc_list_init(struct kvc_ends *l)
{
    *l = (struct kvc_ends){KV_NO_BLOCK, KV_NO_BLOCK, 0};
}

static void list_remove(struct kvc_group *g, struct kvc_block *b)
{
    struct kvc_ends *l = &g->list[b->list];
    if (b->prev == KV_NO_BLOCK)
        l->head = b->next;
    else
        g->block[b->prev].next = b->next;
    if (b->next == KV_NO_BLOCK)
        l->tail = b->prev;
    else
        g->block[b->next].prev = b->prev;
    l->n--;
    b->list = KVC_NONE;
    b->prev = b->next = KV_NO_BLOCK;
}

static void list_append(struct kvc_group *g, struct kvc_block *b, enum kvc_list list)
{
    struct kvc_ends *l = &g->list[list];
    uint32_t i = kvc_index(g, b);
    b->list = (uint8_t)list;
    b->prev = l->tail;
    b->next = KV_NO_BLOCK;
    if (l->tail == KV_NO_BLOCK)
        l->head = i;
    else
        g->block[l->tail].next = i;
    l->tail = i;
    l->n++;
}

enum kvc_list kvc_class(const struct kvc_block *b)
{
    bool framed = b->frame != KV_NO_BLOCK, stored = b->slot != KV_NO_BLOCK;
    if (b->pin > 0 || b->job != KVC_IDLE)
        return KVC_NONE;
    if (b->state == KVC_CACHED) {
        if (!framed)
            return KVC_STORED;
        if (b->hits == 0)
            return stored ? KVC_ONCE_CLEAN : KVC_ONCE_DIRTY;
        return stored ? KVC_HIT_CLEAN : KVC_HIT_DIRTY;
    }
    if (b->ref == 0 || !framed || !stored)
        return KVC_NONE;
    if (b->n_run == 0)
        return KVC_PARKED;
    return b->state == KVC_READY && b->ref == b->n_run ? KVC_TWIN : KVC_NONE;
}

static void refile(struct kvc_group *g, struct kvc_block *b)
{
    enum kvc_list want = kvc_class(b);
    if (want == b->list)
        return;
    if (b->list != KVC_NONE)
        list_remove(g, b);
    if (want != KVC_NONE)
        list_append(g, b, want);
}

/* ---- places ---- */

void kvc_drop_frame(struct kvc_group *g, struct kvc_block *b)
{
    g->frame_block[b->frame] = KV_NO_BLOCK;
    g->free_frame[g->n_free_frames++] = b->frame;
    b->frame = KV_NO_BLOCK;
}

void kvc_drop_slot(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    g->slot_block[b->slot] = KV_NO_BLOCK;
    if (b->slot < g->n_host)
        g->free_host[g->n_free_host++] = b->slot;
    else
        g->free_file[g->n_free_file++] = b->slot;
    b->slot = KV_NO_BLOCK;
    c->spill_epoch += b->ref > 0;
}

static void free_block(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    DCHECK(b->ref == 0 && b->pin == 0 && !b->indexed && b->job == KVC_IDLE);
    if (b->list != KVC_NONE)
        list_remove(g, b);
    if (b->frame != KV_NO_BLOCK)
        kvc_drop_frame(g, b);
    if (b->slot != KV_NO_BLOCK)
        kvc_drop_slot(c, g, b);
    kvc_set_filled(g, b, 0);
    kvc_set_state(g, b, KVC_FREE);
    b->generation++;
    b->next = g->free_block;
    g->free_block = kvc_index(g, b);
    g->n_free_blocks++;
}

/* Removes a cached block from the index and frees it. */
static void evict(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    c->n_evicted++;
    kvc_unindex(c, g, b);
    free_block(c, g, b);
}

/* Order in which frames are taken: from blocks that were never hit, while these are more than a tenth of the
 * cached ones (so that a scan cannot flush reused blocks, while new ones still have a chance to be hit); then
 * from blocks with another copy; then from blocks that were hit. */
static enum kvc_list frame_victims(const struct kvc_group *g)
{
    const struct kvc_ends *l = g->list;
    uint32_t n_once = l[KVC_ONCE_CLEAN].n + l[KVC_ONCE_DIRTY].n;
    uint32_t n_hit = l[KVC_HIT_CLEAN].n + l[KVC_HIT_DIRTY].n;
    enum kvc_list once = l[KVC_ONCE_CLEAN].n > 0 ? KVC_ONCE_CLEAN : KVC_ONCE_DIRTY;
    if (n_once > 0 && n_once * 10 > n_once + n_hit)
        return once;
    if (l[KVC_HIT_CLEAN].n > 0)
        return KVC_HIT_CLEAN;
    if (l[KVC_PARKED].n > 0)
        return KVC_PARKED;
    return l[KVC_HIT_DIRTY].n > 0 ? KVC_HIT_DIRTY : once;
}

uint32_t kvc_take_frame(struct kvc_group *g, struct kv_cache *c)
{
    if (g->n_free_frames == 0) {
        const struct kvc_ends *l = &g->list[frame_victims(g)];
        CHECKF(l->n > 0, "no frame left of %u", g->n_frames);
        struct kvc_block *b = &g->block[l->head];
        if (b->slot == KV_NO_BLOCK) {
            evict(c, g, b);
        } else {
            kvc_drop_frame(g, b);
            refile(g, b);
        }
    }
    return g->free_frame[--g->n_free_frames];
}

/* Gives up one copy in a slot: first that of a block that keeps its frame and was never hit, then a whole
 * block whose only copy is in a slot, then further copies. Among blocks with frames, the newest copy is the
 * one needed last. */
static bool free_a_slot(struct kv_cache *c, struct kvc_group *g, enum kvc_greed greed)
{
    const struct kvc_ends *l = g->list;
    if (greed == KVC_FREE_ONLY)
        return false;
    if (l[KVC_ONCE_CLEAN].n == 0 && l[KVC_STORED].n > 0) {
        evict(c, g, &g->block[l[KVC_STORED].head]);
        return true;
    }
    uint32_t i = l[KVC_ONCE_CLEAN].n > 0         ? l[KVC_ONCE_CLEAN].tail
                 : greed == KVC_COLDER_ONES      ? KV_NO_BLOCK
                 : l[KVC_HIT_CLEAN].n > 0        ? l[KVC_HIT_CLEAN].tail
                 : greed == KVC_CACHED_AND_TWINS ? l[KVC_TWIN].head
                                                 : KV_NO_BLOCK;
    if (i == KV_NO_BLOCK)
        return false;
    kvc_drop_slot(c, g, &g->block[i]);
    refile(g, &g->block[i]);
    return true;
}

uint32_t kvc_take_slot(struct kv_cache *c, struct kvc_group *g, enum kvc_greed greed)
{
    if (g->n_free_host + g->n_free_file == 0 && !free_a_slot(c, g, greed))
        return KV_NO_BLOCK;
    return g->n_free_host > 0 ? g->free_host[--g->n_free_host] : g->free_file[--g->n_free_file];
}

/* ---- blocks ---- */

void kvc_set_state(struct kvc_group *g, struct kvc_block *b, enum kvc_state state)
{
    g->n_state[b->state]--;
    g->n_state[state]++;
    b->state = (uint8_t)state;
}

void kvc_set_filled(struct kvc_group *g, struct kvc_block *b, uint32_t filled)
{
    g->n_written = g->n_written - b->filled + filled;
    b->filled = (uint8_t)filled;
}

uint32_t kvc_take_block(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t pos)
{
    struct kvc_group *g = &c->group[group];
    kvc_draw(c, s, group, 1);
    uint32_t frame = kvc_take_frame(g, c);
    uint32_t i = g->free_block;
    CHECKF(i != KV_NO_BLOCK, "more blocks in use than %u frames and %u slots", g->n_frames,
           g->n_tier);
    struct kvc_block *b = &g->block[i];
    g->free_block = b->next;
    g->n_free_blocks--;
    b->ref = b->n_run = 1;
    b->n_paged = 0;
    b->hits = 0;
    b->frame = frame;
    b->pos = pos;
    g->frame_block[frame] = i;
    kvc_set_state(g, b, KVC_OPEN);
    return i;
}

void kvc_settle(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    if (b->job == KVC_LOAD_WAITS && b->n_run == 0)
        kvc_cancel_job(c, g, b);
    if (b->ref == 0) {
        if (b->job == KVC_SPILL_WAITS && b->state != KVC_CACHED)
            kvc_cancel_job(c, g, b);
        if (b->indexed) {
            kvc_set_state(g, b, KVC_CACHED);
        } else if (b->pin > 0 || b->job != KVC_IDLE) {
            kvc_set_state(g, b, KVC_ZOMBIE);
            kvc_set_filled(g, b, 0);
            if (PLANTED(c, KVC_FAULT_FRAME_UNDER_COPY) && b->pin == 0 && b->frame != KV_NO_BLOCK)
                kvc_drop_frame(g, b);
        } else {
            free_block(c, g, b);
            return;
        }
    }
    refile(g, b);
}

struct kvc_block *kvc_at(struct kv_cache *c, const struct kv_seq *s, uint32_t group, uint32_t i)
{
    const struct kv_table *t = &s->t[group];
    DCHECK(i >= t->first && i < t->n);
    struct kvc_block *b = &c->group[group].block[t->block[i]];
    CHECKF(b->generation == t->generation[i], "stale entry %u of group %u: block %u", i, group,
           t->block[i]);
    return b;
}

const struct kvc_block *kvc_look(const struct kv_cache *c, const struct kv_seq *s, uint32_t group,
                                 uint32_t i)
{
    return &c->group[group].block[s->t[group].block[i]];
}

/* ---- job queue ---- */

static struct kvc_block *flat_block(struct kv_cache *c, uint32_t flat)
{
    struct kvc_group *g = &c->group[c->n_groups - 1];
    while (flat < g->flat0)
        g--;
    return &g->block[flat - g->flat0];
}

void kvc_queue_job(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b, enum kvc_job job)
{
    struct kvc_ends *q = &c->queue[job == KVC_LOAD_WAITS];
    uint32_t flat = g->flat0 + kvc_index(g, b);
    b->job = (uint8_t)job;
    b->job_prev = q->tail;
    b->job_next = KV_NO_BLOCK;
    if (q->tail == KV_NO_BLOCK)
        q->head = flat;
    else
        flat_block(c, q->tail)->job_next = flat;
    q->tail = flat;
    q->n++;
}

void kvc_unqueue_job(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    struct kvc_ends *q = &c->queue[b->job == KVC_LOAD_WAITS];
    (void)g;
    if (b->job_prev == KV_NO_BLOCK)
        q->head = b->job_next;
    else
        flat_block(c, b->job_prev)->job_next = b->job_next;
    if (b->job_next == KV_NO_BLOCK)
        q->tail = b->job_prev;
    else
        flat_block(c, b->job_next)->job_prev = b->job_prev;
    q->n--;
}

void kvc_cancel_job(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    kvc_unqueue_job(c, g, b);
    if (b->job == KVC_LOAD_WAITS)
        kvc_drop_frame(g, b);
    else
        kvc_drop_slot(c, g, b);
    b->job = KVC_IDLE;
}
