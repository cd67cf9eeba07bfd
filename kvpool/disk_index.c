/* The index of the disk prefix cache: a chained hash table over a fixed array, and an LRU list
 * through it; see disk_int.h. */
#include "kvpool/disk_int.h"

#include "base/check.h"
#include "base/mem.h"

void disk_index_init(struct kv_disk *d, uint32_t n_entries)
{
    d->n_entries = n_entries;
    d->n_buckets = 16;
    while (d->n_buckets < n_entries)
        d->n_buckets *= 2;
    d->entry = mem_zalloc(mem_mul(n_entries, sizeof(*d->entry)));
    d->bucket = mem_alloc(mem_mul(d->n_buckets, sizeof(*d->bucket)));
    for (uint32_t i = 0; i < d->n_buckets; i++)
        d->bucket[i] = DISK_NONE;
    for (uint32_t i = 0; i < n_entries; i++)
        d->entry[i].next = i + 1 < n_entries ? i + 1 : DISK_NONE;
    d->free_head = 0;
    d->lru_first = d->lru_last = DISK_NONE;
}

/* Keys are hashes already. */
static uint32_t *bucket_of(const struct kv_disk *d, uint64_t domain, uint32_t group,
                           const struct kv_key *key)
{
    uint64_t h =
        key->w[0] ^ key->w[1] * 0x9e3779b97f4a7c15ull ^ domain ^ group * 0xff51afd7ed558ccdull;
    return &d->bucket[(h ^ h >> 32) & (d->n_buckets - 1)];
}

uint32_t disk_find(const struct kv_disk *d, uint64_t domain, uint32_t group,
                   const struct kv_key *key)
{
    uint32_t i = *bucket_of(d, domain, group, key);
    for (; i != DISK_NONE; i = d->entry[i].hash_next) {
        const struct disk_entry *t = &d->entry[i];
        if (t->key.w[0] == key->w[0] && t->key.w[1] == key->w[1] && t->group == group &&
            t->domain == domain)
            return i;
    }
    return DISK_NONE;
}

uint32_t disk_add(struct kv_disk *d, uint64_t domain, uint32_t group, const struct kv_key *key)
{
    uint32_t i = d->free_head;
    if (i == DISK_NONE)
        return DISK_NONE;
    uint32_t *bucket = bucket_of(d, domain, group, key);
    d->free_head = d->entry[i].next;
    d->entry[i] = (struct disk_entry){.key = *key,
                                      .domain = domain,
                                      .prev = DISK_NONE,
                                      .next = DISK_NONE,
                                      .hash_next = *bucket,
                                      .group = (uint8_t)group,
                                      .state = DISK_ABSENT};
    *bucket = i;
    return i;
}

static void forget(struct kv_disk *d, uint32_t i)
{
    struct disk_entry *t = &d->entry[i];
    uint32_t *link = bucket_of(d, t->domain, t->group, &t->key);
    while (*link != i)
        link = &d->entry[*link].hash_next;
    *link = t->hash_next;
    t->next = d->free_head;
    d->free_head = i;
}

static bool in_lru(const struct disk_entry *t)
{
    return t->n_pins == 0 && (t->state == DISK_PRESENT || t->state == DISK_FAILED);
}

static void lru_remove(struct kv_disk *d, uint32_t i)
{
    struct disk_entry *t = &d->entry[i];
    *(t->prev == DISK_NONE ? &d->lru_first : &d->entry[t->prev].next) = t->next;
    *(t->next == DISK_NONE ? &d->lru_last : &d->entry[t->next].prev) = t->prev;
    t->prev = t->next = DISK_NONE;
}

static void lru_insert(struct kv_disk *d, uint32_t i)
{
    struct disk_entry *t = &d->entry[i];
    bool last = t->state == DISK_FAILED;
    t->prev = last ? d->lru_last : DISK_NONE;
    t->next = last ? DISK_NONE : d->lru_first;
    *(t->prev == DISK_NONE ? &d->lru_first : &d->entry[t->prev].next) = i;
    *(t->next == DISK_NONE ? &d->lru_last : &d->entry[t->next].prev) = i;
}

/* Adds an entry to the statistics, or subtracts it. */
static void tally(struct kv_disk *d, const struct disk_entry *t, uint32_t one)
{
    d->stats.n_pinned += t->n_pins ? one : 0;
    if (t->domain != d->short_domain)
        d->stats.n_foreign += t->state == DISK_PRESENT ? one : 0;
    else
        d->stats.n_blocks += t->state == DISK_PRESENT ? one : 0;
}

/* The only function that changes state or pins. */
static void change(struct kv_disk *d, uint32_t i, enum disk_state state, uint64_t n_bytes,
                   uint32_t n_pins)
{
    struct disk_entry *t = &d->entry[i];
    if (in_lru(t))
        lru_remove(d, i);
    tally(d, t, (uint32_t)-1);
    d->n_bytes += n_bytes - t->n_bytes;
    t->state = (uint8_t)state;
    t->n_bytes = n_bytes;
    t->n_pins = n_pins;
    tally(d, t, 1);
    if (in_lru(t))
        lru_insert(d, i);
    else if (state == DISK_ABSENT && n_pins == 0)
        forget(d, i);
}

void disk_set(struct kv_disk *d, uint32_t i, enum disk_state state, uint64_t n_bytes)
{
    change(d, i, state, n_bytes, d->entry[i].n_pins);
}

void disk_touch(struct kv_disk *d, uint32_t i)
{
    const struct disk_entry *t = &d->entry[i];
    change(d, i, t->state, t->n_bytes, t->n_pins);
}

static void pin_in_group(struct kv_disk *d, uint32_t i, uint32_t n_pins)
{
    const struct disk_entry *t = &d->entry[i];
    change(d, i, t->state, t->n_bytes, n_pins);
}

bool disk_pin(struct kv_disk *d, uint64_t domain, const struct kv_key *key)
{
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
        uint32_t i = disk_find(d, domain, g, key);
        if (i == DISK_NONE)
            i = disk_add(d, domain, g, key);
        if (i != DISK_NONE) {
            pin_in_group(d, i, d->entry[i].n_pins + 1);
            continue;
        }
        while (g-- > 0) {
            i = disk_find(d, domain, g, key);
            pin_in_group(d, i, d->entry[i].n_pins - 1);
        }
        return false;
    }
    return true;
}

void disk_unpin(struct kv_disk *d, uint64_t domain, const struct kv_key *key)
{
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
        uint32_t i = disk_find(d, domain, g, key);
        if (i != DISK_NONE &&
            d->entry[i].n_pins > 0) /* the index was full when the block was to be pinned */
            pin_in_group(d, i, d->entry[i].n_pins - 1);
    }
}
