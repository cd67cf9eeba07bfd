/* Moves prefixes between the disk and sequences; see disk_seq.h. */
#include "kvpool/disk_seq.h"

#include <string.h>

#include "base/mem.h"
#include "kvpool/cache_int.h"
#include "kvpool/disk_int.h"

static const int32_t *own(const struct kv_cache *c, const int32_t *tokens, uint32_t i)
{
    return tokens + (size_t)i * c->n_slots;
}

uint32_t kv_chain_keys(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                       uint32_t n_tokens, struct kv_key *keys)
{
    uint32_t n = n_tokens / c->n_slots;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = root = kvc_chain(c, root, own(c, tokens, i));
    return n;
}

/* ---- fetching ---- */

/* The first block of a group that a row after block n sees and s does not have yet. */
static uint32_t first_needed(const struct kv_cache *c, uint32_t group, uint32_t n_have, uint32_t n)
{
    uint32_t first = kvc_first(&c->group[group], c->n_slots, n * c->n_slots);
    return first > n_have ? first : n_have;
}

uint32_t kv_fetch_match(const struct kv_shelf *k, const struct kv_seq *s, const int32_t *tokens,
                        uint32_t n_max)
{
    const struct kv_cache *c = k->cache;
    uint32_t n_have = s->n_tokens / c->n_slots, n_best = n_have, n_most = n_max / c->n_slots;
    uint32_t run[KV_MAX_GROUPS] = {
        0}; /* length of the run of blocks on the disk that ends at block i */
    struct kv_key key = s->key;
    CHECK(s->n_tokens % c->n_slots == 0 && s->n_published == n_have);
    for (uint32_t g = 0; g < c->n_groups; g++)
        n_most = n_most < s->t[g].cap ? n_most : s->t[g].cap;
    for (uint32_t i = n_have; i < n_most; i++) {
        bool covered = true;
        key = kvc_chain(c, key, own(c, tokens, i));
        for (uint32_t g = 0; g < c->n_groups; g++) {
            run[g] = kv_disk_has(k->disk, g, &key) ? run[g] + 1 : 0;
            if (run[g] == 0 && c->group[g].window == 0)
                return n_best * c->n_slots;
            covered = covered && run[g] >= i + 1 - first_needed(c, g, n_have, i + 1);
        }
        if (covered)
            n_best = i + 1;
    }
    return n_best * c->n_slots;
}

static void set_next(struct kv_fetch *f, const struct kv_cache *c, const int32_t *tokens,
                     struct kv_key parent, uint32_t next)
{
    f->next = next;
    f->next_group = 0;
    f->parent = parent;
    if (next < f->end)
        f->key = kvc_chain(c, parent, own(c, tokens, next));
}

void kv_fetch_start(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s,
                    const int32_t *tokens, uint32_t end, uint64_t id)
{
    const struct kv_cache *c = k->cache;
    CHECK(end > s->n_tokens && end % c->n_slots == 0 && s->n_tokens % c->n_slots == 0);
    *f = (struct kv_fetch){.id = id, .end = end / c->n_slots, .publishes = s->publishes};
    set_next(f, c, tokens, s->key, s->n_tokens / c->n_slots);
}

/* Blocks that windows hide from every row after the fetch hold no bytes: therefore nothing is published
 * until a step has run, by which time they have been dropped. */
static bool grow(struct kv_fetch *f, struct kv_cache *c, struct kv_seq *s, uint32_t n_rows)
{
    struct kv_copy copy[KV_MAX_GROUPS];
    uint32_t n_copies = 0, n = n_rows / c->n_slots, n_left = f->end - f->next;
    n = n < 1 ? 1 : n < n_left ? n : n_left;
    if (!kv_seq_grow(c, s, n * c->n_slots, copy, &n_copies))
        return false;
    CHECK(n_copies == 0); /* a whole number of blocks leaves no open tail */
    s->publishes = false;
    f->grown = f->next + n;
    return true;
}

/* Queues as much of the growth in progress as the queue accepts. False: the disk has lost a block. */
static bool get_some(struct kv_fetch *f, const struct kv_shelf *k, const struct kv_seq *s,
                     const int32_t *tokens)
{
    const struct kv_cache *c = k->cache;
    while (f->next < f->grown) {
        uint32_t g = f->next_group, i = f->next;
        if (i >= kvc_first(&c->group[g], c->n_slots, f->end * c->n_slots)) {
            struct kv_disk_block b = {.group = g,
                                      .key = f->key,
                                      .parent = f->parent,
                                      .tokens = own(c, tokens, i),
                                      .frame = s->t[g].phys[i],
                                      .id = f->id};
            if (kv_disk_room(k->disk) == 0)
                return true;
            if (!kv_disk_get(k->disk, &b))
                return false;
            f->n_out++;
        }
        if (++f->next_group == c->n_groups)
            set_next(f, c, tokens, f->key, i + 1);
    }
    return true;
}

static enum kv_fetch_state fail(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s)
{
    if (f->n_out > 0)
        return KV_FETCH_WAITS;
    if (f->grown)
        kv_seq_undo(k->cache, s);
    f->grown = 0;
    s->publishes = f->publishes;
    return KV_FETCH_FAILED;
}

enum kv_fetch_state kv_fetch_go(struct kv_fetch *f, const struct kv_shelf *k, struct kv_seq *s,
                                const int32_t *tokens, uint32_t n_rows)
{
    for (;;) {
        if (f->failed)
            return fail(f, k, s);
        if (!f->grown && !grow(f, k->cache, s, n_rows))
            return KV_FETCH_NO_FRAMES;
        f->failed = !get_some(f, k, s, tokens);
        if (f->failed)
            continue;
        if (f->n_out > 0 || f->next < f->grown)
            return KV_FETCH_WAITS;
        bool all = f->grown == f->end;
        kv_seq_retire(k->cache, s, tokens, true);
        f->grown = 0;
        if (all) {
            s->publishes = f->publishes;
            return KV_FETCH_DONE;
        }
    }
}

void kv_fetch_done(struct kv_fetch *f, const struct kv_disk_done *done)
{
    CHECK(done->get && done->id == f->id && f->n_out > 0);
    f->n_out--;
    f->failed = f->failed || !done->ok;
}

/* ---- saving ---- */

struct kv_saver {
    struct kv_shelf k;
    uint8_t *buffers; /* owns (unstage) [n][n_bytes] */
    size_t n_bytes;
    uint32_t n, n_free;
    uint32_t *free; /* owns [n]: stack */
};

enum status kv_saver_new(const struct kv_shelf *k, const struct kv_layout *layout,
                         uint32_t n_buffers, struct kv_saver **out, struct err *e)
{
    struct kv_saver *sv = mem_zalloc(sizeof(*sv));
    *sv = (struct kv_saver){.k = *k, .n = n_buffers, .n_free = n_buffers};
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        size_t n = layout->group[g].block_bytes;
        sv->n_bytes = n > sv->n_bytes ? n : sv->n_bytes;
    }
    sv->free = mem_alloc(mem_mul(n_buffers, sizeof(*sv->free)));
    for (uint32_t i = 0; i < n_buffers; i++)
        sv->free[i] = i;
    sv->buffers = k->store->ops->stage(k->store, mem_mul(n_buffers, sv->n_bytes));
    if (!sv->buffers) {
        enum status status = err_set(e, ERR_NO_MEMORY, "no memory for %u blocks of %zu bytes",
                                     n_buffers, sv->n_bytes);
        kv_saver_free(sv);
        return status;
    }
    *out = sv;
    return OK;
}

void kv_saver_free(struct kv_saver *sv)
{
    if (!sv)
        return;
    sv->k.store->ops->unstage(sv->k.store, sv->buffers);
    mem_free(sv->free);
    mem_free(sv);
}

/* The block's frame, or KV_NO_BLOCK when its bytes are not in one. */
static uint32_t frame_of(const struct kv_cache *c, uint32_t group, uint32_t block)
{
    if (block == KV_NO_BLOCK || kvc_loads(&c->group[group].block[block]))
        return KV_NO_BLOCK;
    return c->group[group].block[block].frame;
}

static bool save_block(struct kv_saver *sv, const struct kv_disk_block *what, uint32_t frame)
{
    struct kv_disk_block b = *what;
    struct err e;
    uint32_t buffer = sv->free[sv->n_free - 1];
    b.bytes = sv->buffers + buffer * sv->n_bytes;
    if (kv_store_read(sv->k.store, b.group, frame, b.bytes, &e) != OK ||
        !kv_disk_put(sv->k.disk, &b))
        return false;
    sv->n_free--;
    return true;
}

uint32_t kv_save_some(struct kv_saver *sv, struct kv_save *at, struct kv_key root,
                      const int32_t *tokens, uint32_t n_tokens, uint32_t n_max)
{
    const struct kv_cache *c = sv->k.cache;
    uint32_t n = 0, n_blocks = n_tokens / c->n_slots;
    for (; at->next < n_blocks; at->next++) {
        const int32_t *ids = own(c, tokens, at->next);
        struct kv_disk_block b = {.parent = at->next > 0 ? at->key : root, .tokens = ids};
        b.key = kvc_chain(c, b.parent, ids);
        for (b.group = 0; b.group < c->n_groups; b.group++) {
            uint32_t frame = frame_of(c, b.group, kvc_find(c, b.group, b.key, b.parent, ids));
            if (kv_disk_wants(sv->k.disk, b.group, &b.key)) {
                if (frame == KV_NO_BLOCK && c->group[b.group].window == 0) {
                    at->next = n_blocks; /* later blocks could not be fetched */
                    return n;
                }
                if (frame == KV_NO_BLOCK)
                    continue;
                if (n == n_max || sv->n_free == 0 || kv_disk_room(sv->k.disk) < DISK_MIN_JOBS)
                    return n;
                n += save_block(sv, &b, frame);
            }
        }
        at->key = b.key;
    }
    return n;
}

void kv_save_done(struct kv_saver *sv, const struct kv_disk_done *done)
{
    size_t buffer = (size_t)(done->bytes - sv->buffers) / sv->n_bytes;
    CHECK(!done->get && buffer < sv->n && sv->n_free < sv->n);
    sv->free[sv->n_free++] = (uint32_t)buffer;
}
