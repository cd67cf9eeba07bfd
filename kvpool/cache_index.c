/* Keys, the prefix index, and announcements of blocks that are being filled. */
#include <string.h>

#include "base/check.h"
#include "kvpool/kvpool_test.h"
#include "base/siphash.h"
#include "kvpool/cache_int.h"

/* ---- keys ---- */

struct kv_key kvc_chain(const struct kv_cache *c, struct kv_key parent, const int32_t *tokens)
{
    struct kv_key k;
    siphash_128_link(c->secret, parent.w, tokens, c->n_slots * sizeof(int32_t), k.w);
    return k;
}

static void add_record(struct siphash *h, uint8_t tag, const void *p, size_t n_bytes)
{
    uint64_t n = n_bytes;
    siphash_add(h, &tag, sizeof(tag));
    siphash_add(h, &n, sizeof(n));
    siphash_add(h, p, n_bytes);
}

struct kv_key kv_root(const struct kv_cache *c, const struct kv_domain *d)
{
    enum { TAG_MODEL = 1, TAG_SHAPE, TAG_GROUP, TAG_ROPE, TAG_ADAPTER, TAG_SALT };
    const struct kv_layout *l = c->layout;
    uint32_t shape[] = {l->n_layers, l->n_groups, l->n_slots, l->dtype_k, l->dtype_v};
    struct siphash h;
    struct kv_key k;
    siphash_init(&h, c->secret);
    add_record(&h, TAG_MODEL, d->model_digest, sizeof(d->model_digest));
    add_record(&h, TAG_SHAPE, shape, sizeof(shape));
    for (uint32_t i = 0; i < l->n_groups; i++) {
        const struct kv_group *g = &l->group[i];
        uint32_t group[] = {g->n_layers, g->window, g->n_kv_heads, g->head_dim};
        add_record(&h, TAG_GROUP, group, sizeof(group));
    }
    add_record(&h, TAG_ROPE, d->rope, strlen(d->rope));
    add_record(&h, TAG_ADAPTER, d->adapter, strlen(d->adapter));
    add_record(&h, TAG_SALT, d->salt, d->n_salt_bytes);
    siphash_end(&h, k.w);
    return k;
}

static bool key_equal(struct kv_key a, struct kv_key b)
{
    return a.w[0] == b.w[0] && a.w[1] == b.w[1];
}

static struct kv_key key_cut(const struct kv_cache *c, struct kv_key k)
{
    return (struct kv_key){{k.w[0] & c->key_mask.w[0], k.w[1] & c->key_mask.w[1]}};
}

/* ---- the index: one chained hash table per group, with as many buckets as blocks ---- */

static uint32_t index_find(const struct kv_cache *c, const struct kvc_group *g, struct kv_key key,
                           struct kv_key parent, const int32_t *tokens)
{
    struct kv_key cut = key_cut(c, key);
    for (uint32_t i = g->bucket[cut.w[0] & g->mask]; i != KV_NO_BLOCK; i = g->block[i].hash_next) {
        const struct kvc_block *b = &g->block[i];
        if (!key_equal(b->key, cut))
            continue;
        if (PLANTED(c, KVC_FAULT_UNVERIFIED))
            return i;
        if (key_equal(b->parent, parent) &&
            memcmp(g->tokens + (size_t)i * c->n_slots, tokens, c->n_slots * sizeof(int32_t)) == 0)
            return i;
    }
    return KV_NO_BLOCK;
}

uint32_t kvc_find(const struct kv_cache *c, uint32_t group, struct kv_key key, struct kv_key parent,
                  const int32_t *tokens)
{
    return index_find(c, &c->group[group], key, parent, tokens);
}

static void index_add(const struct kv_cache *c, struct kvc_group *g, struct kvc_block *b,
                      struct kv_key key, struct kv_key parent, const int32_t *tokens)
{
    uint32_t i = kvc_index(g, b);
    b->key = key_cut(c, key);
    b->parent = parent;
    memcpy(g->tokens + (size_t)i * c->n_slots, tokens, c->n_slots * sizeof(int32_t));
    uint32_t *head = &g->bucket[b->key.w[0] & g->mask];
    b->hash_next = *head;
    *head = i;
    b->indexed = true;
}

void kvc_unindex(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b)
{
    (void)c;
    if (!b->indexed)
        return;
    uint32_t i = kvc_index(g, b);
    uint32_t *at = &g->bucket[b->key.w[0] & g->mask];
    while (*at != i)
        at = &g->block[*at].hash_next;
    *at = b->hash_next;
    b->indexed = false;
}

/* ---- announcements ---- */

static void pend_remove_head(struct kv_cache *c, struct kv_seq *s)
{
    uint32_t i = s->pend_head;
    struct kvc_pend *p = &c->pend[i];
    uint32_t *at = &c->pend_bucket[p->key.w[0] & c->pend_mask];
    while (*at != i)
        at = &c->pend[*at].hash_next;
    *at = p->hash_next;
    s->pend_head = p->seq_next;
    if (s->pend_head == KV_NO_BLOCK)
        s->pend_tail = KV_NO_BLOCK;
    p->hash_next = c->pend_free;
    c->pend_free = i;
}

static bool pend_append(struct kv_cache *c, struct kv_seq *s, struct kv_key key, uint32_t pos)
{
    uint32_t i = c->pend_free;
    if (i == KV_NO_BLOCK)
        return false;
    struct kvc_pend *p = &c->pend[i];
    uint32_t *head = &c->pend_bucket[key.w[0] & c->pend_mask];
    c->pend_free = p->hash_next;
    *p = (struct kvc_pend){.key = key, .pos = pos, .hash_next = *head, .seq_next = KV_NO_BLOCK};
    *head = i;
    if (s->pend_tail == KV_NO_BLOCK)
        s->pend_head = i;
    else
        c->pend[s->pend_tail].seq_next = i;
    s->pend_tail = i;
    return true;
}

void kv_pending_end(struct kv_cache *c, struct kv_seq *s)
{
    while (s->pend_head != KV_NO_BLOCK)
        pend_remove_head(c, s);
}

void kv_pending_add(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_prompt)
{
    kv_pending_end(c, s);
    if (!s->publishes)
        return;
    struct kv_key key = s->key;
    for (uint32_t i = s->n_published; (i + 1) * c->n_slots <= n_prompt; i++) {
        key = kvc_chain(c, key, tokens + (size_t)i * c->n_slots);
        if (!pend_append(c, s, key, i))
            return;
    }
}

static bool pend_find(const struct kv_cache *c, struct kv_key key)
{
    uint32_t i = c->max_pending == 0 ? KV_NO_BLOCK : c->pend_bucket[key.w[0] & c->pend_mask];
    while (i != KV_NO_BLOCK && !key_equal(c->pend[i].key, key))
        i = c->pend[i].hash_next;
    return i != KV_NO_BLOCK;
}

/* ---- publishing ---- */

void kvc_publish(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_full)
{
    for (uint32_t i = s->n_published; i < n_full; i++) {
        const int32_t *own = tokens + (size_t)i * c->n_slots;
        struct kv_key key = kvc_chain(c, s->key, own);
        for (uint32_t k = 0; k < c->n_groups; k++) {
            struct kvc_group *g = &c->group[k];
            if (i < s->t[k].first)
                continue;
            struct kvc_block *b = kvc_at(c, s, k, i);
            if (!b->indexed && index_find(c, g, key, s->key, own) == KV_NO_BLOCK)
                index_add(c, g, b, key, s->key, own);
        }
        s->key = key;
        s->n_published = i + 1;
        while (s->pend_head != KV_NO_BLOCK && c->pend[s->pend_head].pos <= i)
            pend_remove_head(c, s);
    }
}

void kvc_unpublish(struct kv_cache *c, struct kv_seq *s)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kv_table *t = &s->t[k];
        uint32_t i = s->n_hit / c->n_slots;
        for (i = i > t->first ? i : t->first; i < t->n; i++) {
            struct kvc_block *b = kvc_at(c, s, k, i);
            if (b->ref == 1)
                kvc_unindex(c, &c->group[k], b);
        }
    }
}

/* ---- hits ---- */

struct hit {
    uint32_t n; /* blocks */
    struct kv_key key; /* of the last one */
    struct kv_key next; /* of the block after it; valid when n_max covers that block */
};

/* True when all of the blocks 0..i that a row at position (i + 1) * n_slots sees are cached;
 * run[k]: length of the run of cached blocks of group k that ends at block i. */
static bool covered(const struct kv_cache *c, const uint32_t *run, uint32_t i)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        if (run[k] < i + 1 - kvc_first(&c->group[k], c->n_slots, (i + 1) * c->n_slots))
            return false;
    }
    return true;
}

/* The longest hit among n_blocks blocks. into: receives the blocks in its tables; may be NULL. */
static struct hit hit_find(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                           uint32_t n_blocks, struct kv_seq *into)
{
    struct hit h = {.n = 0, .key = root, .next = root};
    struct kv_key parent = root;
    uint32_t run[KV_MAX_GROUPS] = {0};
    bool broken = false;
    for (uint32_t i = 0; i < n_blocks && c->prefix && !broken; i++) {
        const int32_t *own = tokens + (size_t)i * c->n_slots;
        struct kv_key key = kvc_chain(c, parent, own);
        if (h.n == i)
            h.next = key;
        for (uint32_t k = 0; k < c->n_groups; k++) {
            uint32_t b = index_find(c, &c->group[k], key, parent, own);
            run[k] = b == KV_NO_BLOCK ? 0 : run[k] + 1;
            broken = broken || (b == KV_NO_BLOCK && c->group[k].window == 0);
            if (into)
                into->t[k].block[i] = b;
        }
        if (!broken && covered(c, run, i))
            h = (struct hit){.n = i + 1, .key = key, .next = key};
        parent = key;
    }
    return h;
}

uint32_t kv_match(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                  uint32_t n_max)
{
    return hit_find(c, root, tokens, n_max / c->n_slots, NULL).n * c->n_slots;
}

bool kv_pending(const struct kv_cache *c, struct kv_key root, const int32_t *tokens, uint32_t n_max)
{
    uint32_t n_blocks = n_max / c->n_slots;
    struct hit h = hit_find(c, root, tokens, n_blocks, NULL);
    return h.n < n_blocks && c->prefix && pend_find(c, h.next);
}

/* Frames by which a hit of n blocks, found in s's tables, reduces the room: those of blocks without a copy in
 * a slot; a parked s makes no others unavailable. */
static bool hit_fits(const struct kv_cache *c, const struct kv_seq *s, uint32_t n)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kvc_group *g = &c->group[k];
        uint32_t takes = 0;
        for (uint32_t i = kvc_first(g, c->n_slots, n * c->n_slots); i < n; i++) {
            enum kvc_list list = g->block[s->t[k].block[i]].list;
            takes += list == KVC_ONCE_DIRTY || list == KVC_HIT_DIRTY;
        }
        if (takes > kv_room(c, k))
            return false;
    }
    return true;
}

static void hit_take(struct kv_cache *c, struct kv_seq *s, uint32_t n)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        struct kv_table *t = &s->t[k];
        t->first = kvc_first(g, c->n_slots, n * c->n_slots + PLANTED(c, KVC_FAULT_HIT_WINDOW));
        t->n = n;
        for (uint32_t i = 0; i < n; i++)
            t->phys[i] = KV_NO_BLOCK;
        for (uint32_t i = t->first; i < n; i++) {
            struct kvc_block *b = &g->block[t->block[i]];
            CHECK(b->pos == i);
            t->generation[i] = b->generation;
            b->ref++;
            b->hits += b->hits < UINT16_MAX;
            if (b->state == KVC_CACHED)
                kvc_set_state(g, b, KVC_READY);
            kvc_settle(c, g, b);
        }
    }
}

uint32_t kv_seq_adopt(struct kv_cache *c, struct kv_seq *s, const int32_t *tokens, uint32_t n_max)
{
    CHECK(!s->runs && s->n_tokens == 0);
    c->n_queries++;
    c->n_query_tokens += n_max;
    uint32_t n_blocks = (n_max + PLANTED(c, KVC_FAULT_HIT_LENGTH)) / c->n_slots;
    for (uint32_t k = 0; k < c->n_groups; k++)
        n_blocks = n_blocks < s->t[k].cap ? n_blocks : s->t[k].cap;
    struct hit h = hit_find(c, s->root, tokens, n_blocks, s);
    while (h.n > 0 && !hit_fits(c, s, h.n))
        h = hit_find(c, s->root, tokens, h.n / 2, s);
    hit_take(c, s, h.n);
    s->key = h.key;
    s->n_published = h.n;
    s->n_tokens = s->n_retired = s->n_hit = h.n * c->n_slots;
    kvc_set_reserve(c, s);
    c->n_hit_tokens += s->n_hit;
    return s->n_hit;
}

void kv_prefix_clear(struct kv_cache *c)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        for (uint32_t i = 0; i < g->n_blocks; i++) {
            struct kvc_block *b = &g->block[i];
            if (b->state != KVC_CACHED)
                continue;
            kvc_unindex(c, g, b);
            kvc_settle(c, g, b);
        }
    }
}
