/* Creation and destruction of the cache, free room and promises, statistics; see cache.h. */
#include "kvpool/cache_int.h"
#include "kvpool/kvpool_test.h"

#include <string.h>

#include "base/mem.h"
#include "kvpool/sizing.h"

/* ---- life ---- */

static uint32_t *numbers(uint32_t n, uint32_t value)
{
    uint32_t *p = mem_alloc(mem_mul((size_t)n + 1, sizeof(*p)));
    for (uint32_t i = 0; i < n; i++)
        p[i] = value;
    return p;
}

/* A stack that pops 0 first, then first + 1 ... */
static uint32_t *number_stack(uint32_t n, uint32_t first)
{
    uint32_t *p = numbers(n, 0);
    for (uint32_t i = 0; i < n; i++)
        p[i] = first + n - 1 - i;
    return p;
}

static uint32_t mask_for(uint32_t n)
{
    uint32_t size = 1;
    while (size < n && size < 1u << 31)
        size *= 2;
    return size - 1;
}

static void blocks_init(struct kvc_group *g)
{
    g->block = mem_zalloc(mem_mul(g->n_blocks, sizeof(*g->block)));
    for (uint32_t i = 0; i < g->n_blocks; i++) {
        g->block[i].frame = g->block[i].slot = g->block[i].prev = KV_NO_BLOCK;
        g->block[i].next = i + 1 < g->n_blocks ? i + 1 : KV_NO_BLOCK;
    }
    g->free_block = 0;
    g->n_free_blocks = g->n_state[KVC_FREE] = g->n_blocks;
}

static void group_init(struct kv_cache *c, uint32_t k, const struct kv_options *o)
{
    struct kvc_group *g = &c->group[k];
    g->window = o->layout->group[k].window;
    g->n_frames = o->n_frames[k];
    g->n_host = o->n_host[k];
    g->n_tier = o->n_host[k] + o->n_file[k];
    g->n_blocks = g->n_frames + g->n_tier;
    g->flat0 = k == 0 ? 0 : c->group[k - 1].flat0 + c->group[k - 1].n_blocks;
    CHECKF(g->n_frames >= 1 && g->n_blocks < KV_NO_BLOCK / 4, "group %u of %u frames and %u slots",
           k, g->n_frames, g->n_tier);
    blocks_init(g);
    g->mask = mask_for(g->n_blocks);
    g->bucket = numbers(g->mask + 1, KV_NO_BLOCK);
    g->tokens = c->prefix ? mem_alloc(mem_mul(g->n_blocks, c->n_slots * sizeof(int32_t))) : NULL;
    g->frame_block = numbers(g->n_frames, KV_NO_BLOCK);
    g->slot_block = numbers(g->n_tier, KV_NO_BLOCK);
    g->free_frame = number_stack(g->n_frames, 0);
    g->free_host = number_stack(g->n_host, 0);
    g->free_file = number_stack(g->n_tier - g->n_host, g->n_host);
    g->n_free_frames = g->n_frames;
    g->n_free_host = g->n_host;
    g->n_free_file = g->n_tier - g->n_host;
    for (uint32_t i = 0; i < KVC_N_LISTS; i++)
        kvc_list_init(&g->list[i]);
}

static void pend_init(struct kv_cache *c, uint32_t max_pending)
{
    c->max_pending = max_pending;
    c->pend = mem_zalloc(mem_mul((size_t)max_pending + 1, sizeof(*c->pend)));
    for (uint32_t i = 0; i < max_pending; i++)
        c->pend[i].hash_next = i + 1 < max_pending ? i + 1 : KV_NO_BLOCK;
    c->pend_free = max_pending > 0 ? 0 : KV_NO_BLOCK;
    c->pend_mask = mask_for(max_pending);
    c->pend_bucket = numbers(c->pend_mask + 1, KV_NO_BLOCK);
}

struct kv_cache *kv_cache_new(const struct kv_options *o)
{
    struct kv_cache *c = mem_zalloc(sizeof(*c));
    uint32_t bits = o->key_bits == 0 || o->key_bits > 128 ? 128 : o->key_bits, n_blocks = 0;
    c->layout = o->layout;
    c->n_groups = o->layout->n_groups;
    c->n_slots = o->layout->n_slots;
    c->prefix = o->prefix;
    c->max_jobs = o->max_jobs;
    memcpy(c->secret, o->secret, sizeof(c->secret));
    c->key_mask.w[0] = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
    c->key_mask.w[1] = bits == 128 ? UINT64_MAX : bits <= 64 ? 0 : (1ull << (bits - 64)) - 1;
    for (uint32_t k = 0; k < c->n_groups; k++) {
        group_init(c, k, o);
        n_blocks += c->group[k].n_blocks;
    }
    pend_init(c, o->max_pending);
    kvc_list_init(&c->queue[0]);
    kvc_list_init(&c->queue[1]);
    c->audit = mem_zalloc(mem_mul(n_blocks, 4 * sizeof(uint32_t)));
    c->audit_generation = mem_zalloc(mem_mul(n_blocks, sizeof(uint32_t)));
    return c;
}

void kv_cache_free(struct kv_cache *c)
{
    CHECKF(c->n_out == 0, "%u copies are out", c->n_out);
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        uint32_t held = g->n_state[KVC_OPEN] + g->n_state[KVC_SEALED] + g->n_state[KVC_READY];
        CHECKF(held == 0, "%u blocks of group %u are held", held, k);
        mem_free(g->block);
        mem_free(g->tokens);
        mem_free(g->bucket);
        mem_free(g->frame_block);
        mem_free(g->slot_block);
        mem_free(g->free_frame);
        mem_free(g->free_host);
        mem_free(g->free_file);
    }
    mem_free(c->pend);
    mem_free(c->pend_bucket);
    mem_free(c->audit);
    mem_free(c->audit_generation);
    mem_free(c);
}

void kv_seq_init(struct kv_cache *c, struct kv_seq *s, uint32_t max_tokens, struct kv_key root)
{
    uint32_t cap = kvc_blocks(max_tokens, c->n_slots);
    memset(s, 0, sizeof(*s));
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kv_table *t = &s->t[k];
        t->phys = mem_alloc(mem_mul((size_t)cap + 1, 3 * sizeof(uint32_t)));
        t->block = t->phys + cap;
        t->generation = t->block + cap;
        t->cap = cap;
        t->cow_block = KV_NO_BLOCK;
    }
    s->root = s->key = root;
    s->publishes = c->prefix;
    s->pend_head = s->pend_tail = KV_NO_BLOCK;
    s->next = c->seqs;
    if (c->seqs)
        c->seqs->prev = s;
    c->seqs = s;
}

void kv_seq_release(struct kv_cache *c, struct kv_seq *s)
{
    CHECKF(s->n_tokens == 0 && s->pend_head == KV_NO_BLOCK && s->n_loading == 0,
           "sequence still holds %u positions", s->n_tokens);
    for (uint32_t k = 0; k < c->n_groups; k++) {
        CHECKF(s->claim.n[k] == 0, "%u frames are still promised to it", s->claim.n[k]);
        mem_free(s->t[k].phys);
    }
    if (s->prev)
        s->prev->next = s->next;
    else
        c->seqs = s->next;
    if (s->next)
        s->next->prev = s->prev;
    memset(s, 0, sizeof(*s));
}

/* ---- room ---- */

uint32_t kvc_avail(const struct kvc_group *g)
{
    const struct kvc_ends *l = g->list;
    return g->n_free_frames + l[KVC_ONCE_DIRTY].n + l[KVC_ONCE_CLEAN].n + l[KVC_HIT_DIRTY].n +
           l[KVC_HIT_CLEAN].n + l[KVC_PARKED].n;
}

uint32_t kv_room(const struct kv_cache *c, uint32_t group)
{
    const struct kvc_group *g = &c->group[group];
    return kvc_avail(g) - g->n_promised;
}

uint32_t kv_frames(const struct kv_cache *c, uint32_t group)
{
    return c->group[group].n_frames;
}

uint32_t kv_slots_free(const struct kv_cache *c, uint32_t group)
{
    const struct kvc_group *g = &c->group[group];
    const struct kvc_ends *l = g->list;
    return g->n_free_host + g->n_free_file + l[KVC_STORED].n + l[KVC_ONCE_CLEAN].n +
           l[KVC_HIT_CLEAN].n + l[KVC_TWIN].n;
}

struct kv_need kv_need_of(const struct kv_cache *c, uint32_t n_tokens, uint32_t n_rows)
{
    struct kv_need need = {{0}};
    for (uint32_t k = 0; k < c->n_groups; k++)
        need.n[k] = (uint32_t)kv_blocks_held(c->n_slots, c->group[k].window, n_tokens, n_rows);
    return need;
}

bool kv_fits(const struct kv_cache *c, const struct kv_need *need)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        if (need->n[k] > kv_room(c, k))
            return false;
    }
    return true;
}

bool kv_seq_claim(struct kv_cache *c, struct kv_seq *s, const struct kv_need *need)
{
    if (!kv_fits(c, need))
        return false;
    for (uint32_t k = 0; k < c->n_groups; k++) {
        c->group[k].n_promised += need->n[k];
        s->claim.n[k] += need->n[k];
    }
    kvc_set_reserve(c, s);
    return true;
}

void kv_seq_claim_trim(struct kv_cache *c, struct kv_seq *s, const struct kv_need *keep)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        if (s->claim.n[k] > keep->n[k])
            kvc_draw(c, s, k, s->claim.n[k] - keep->n[k]);
    }
    kvc_set_reserve(c, s);
}

void kvc_set_reserve(struct kv_cache *c, struct kv_seq *s)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        uint32_t held = s->t[k].n - s->t[k].first;
        s->reserve.n[k] = s->claim.n[k] > 0 ? held + s->claim.n[k] : 0;
    }
}

void kvc_refill(struct kv_cache *c, struct kv_seq *s)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        uint32_t has = s->t[k].n - s->t[k].first + s->claim.n[k];
        if (has >= s->reserve.n[k])
            continue;
        uint32_t lacks = s->reserve.n[k] - has, room = kv_room(c, k);
        uint32_t more = lacks < room ? lacks : room;
        s->claim.n[k] += more;
        c->group[k].n_promised += more;
    }
}

void kvc_draw(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t n)
{
    if (n > s->claim.n[group])
        n = s->claim.n[group];
    s->claim.n[group] -= n;
    c->group[group].n_promised -= n;
}

/* ---- figures ---- */

void kv_cache_stats(const struct kv_cache *c, struct kv_stats *out)
{
    *out = (struct kv_stats){.n_queries = c->n_queries,
                             .n_query_tokens = c->n_query_tokens,
                             .n_hit_tokens = c->n_hit_tokens,
                             .n_evicted = c->n_evicted,
                             .n_spilled = c->n_spilled,
                             .n_loaded = c->n_loaded,
                             .n_failed = c->n_failed};
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kvc_group *g = &c->group[k];
        const struct kvc_ends *l = g->list;
        out->n_frames[k] = g->n_frames;
        out->n_free[k] = g->n_free_frames;
        out->n_cached[k] = kvc_avail(g) - g->n_free_frames - l[KVC_PARKED].n;
        out->n_promised[k] = g->n_promised;
        out->n_slots_total[k] = g->n_tier;
        out->n_slots_used[k] = g->n_tier - g->n_free_host - g->n_free_file;
    }
    const struct kvc_group *g = &c->group[0];
    uint32_t n_held = g->n_state[KVC_OPEN] + g->n_state[KVC_SEALED] + g->n_state[KVC_READY];
    out->slots_allocated = (uint64_t)n_held * c->n_slots;
    out->slots_written = g->n_written - (uint64_t)g->n_state[KVC_CACHED] * c->n_slots;
}

uint32_t kv_blocks(const struct kv_cache *c, uint32_t group)
{
    return c->group[group].n_blocks;
}

bool kv_block_look(const struct kv_cache *c, uint32_t group, uint32_t block,
                   struct kv_block_look *look)
{
    static const char *const names[KVC_N_STATES] = {
        [KVC_FREE] = "free",   [KVC_OPEN] = "open",     [KVC_SEALED] = "sealed",
        [KVC_READY] = "ready", [KVC_CACHED] = "cached", [KVC_ZOMBIE] = "zombie"};
    const struct kvc_block *b = &c->group[group].block[block];
    *look = (struct kv_block_look){.state = names[b->state],
                                   .frame = b->frame,
                                   .slot = b->slot,
                                   .moving = b->job != KVC_IDLE,
                                   .n_refs = b->ref,
                                   .n_pins = b->pin,
                                   .n_filled = b->filled,
                                   .n_hits = b->hits};
    return b->state != KVC_FREE;
}

bool kv_frame_is_free(const struct kv_cache *c, uint32_t group, uint32_t frame)
{
    return c->group[group].frame_block[frame] == KV_NO_BLOCK;
}
