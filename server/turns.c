/* Turns between keys; see turns.h. */
#include "server/turns.h"

#include "base/check.h"
#include "base/mem.h"

struct queue {
    struct turn *first, *last;
    uint32_t n_waiting, n_running, weight;
    uint64_t counter;
    bool listed; /* in turns.active */
};

struct turns {
    uint32_t *active; /* owns: keys with something that waits or runs, in no order */
    uint32_t n_active, n_keys, n_waiting;
    uint64_t last; /* the greatest counter that was next so far: where a lone newcomer starts */
    struct queue queue[]; /* [n_keys] */
};

struct turns *turns_new(uint32_t n_keys)
{
    struct turns *t = mem_zalloc(sizeof(*t) + mem_mul(n_keys, sizeof(t->queue[0])));
    t->active = mem_zalloc(mem_mul(n_keys, sizeof(*t->active)));
    t->n_keys = n_keys;
    return t;
}

void turns_free(struct turns *t)
{
    if (!t)
        return;
    CHECK(t->n_waiting == 0);
    mem_free(t->active);
    mem_free(t);
}

/* Counters of others only count while they have something here. */
static uint64_t least_counter(const struct turns *t)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < t->n_active; i++) {
        const struct queue *q = &t->queue[t->active[i]];
        least = q->counter < least ? q->counter : least;
    }
    return t->n_active ? least : t->last;
}

static void list(struct turns *t, uint32_t key)
{
    struct queue *q = &t->queue[key];
    uint64_t least = least_counter(t);
    if (q->listed)
        return;
    q->counter = q->counter > least ? q->counter : least;
    q->listed = true;
    t->active[t->n_active++] = key;
}

static void unlist_idle(struct turns *t, uint32_t key)
{
    uint32_t i = 0;
    if (t->queue[key].n_waiting || t->queue[key].n_running)
        return;
    while (t->active[i] != key)
        i++;
    t->active[i] = t->active[--t->n_active];
    t->queue[key].listed = false;
}

void turns_put(struct turns *t, struct turn *item, uint32_t key, uint32_t weight)
{
    CHECK(key < t->n_keys && !item->waits);
    list(t, key);
    struct queue *q = &t->queue[key];
    *item = (struct turn){.prev = q->last, .key = key, .waits = true};
    if (q->last)
        q->last->next = item;
    else
        q->first = item;
    q->last = item;
    q->weight = weight ? weight : 1;
    q->n_waiting++;
    t->n_waiting++;
}

static void take_out(struct turns *t, struct turn *item)
{
    struct queue *q = &t->queue[item->key];
    if (item->prev)
        item->prev->next = item->next;
    else
        q->first = item->next;
    if (item->next)
        item->next->prev = item->prev;
    else
        q->last = item->prev;
    item->waits = false;
    q->n_waiting--;
    t->n_waiting--;
}

struct turn *turns_next(struct turns *t, uint32_t most)
{
    struct queue *best = NULL;
    for (uint32_t i = 0; i < t->n_active; i++) {
        struct queue *q = &t->queue[t->active[i]];
        if (q->n_waiting && q->n_running < most && (!best || q->counter < best->counter))
            best = q;
    }
    if (!best)
        return NULL;
    struct turn *item = best->first;
    take_out(t, item);
    best->n_running++;
    t->last = best->counter > t->last ? best->counter : t->last;
    return item;
}

void turns_done(struct turns *t, uint32_t key, uint64_t cost)
{
    struct queue *q = &t->queue[key];
    CHECK(q->n_running > 0);
    q->n_running--;
    q->counter += cost / q->weight + 1;
    unlist_idle(t, key);
}

bool turns_take(struct turns *t, struct turn *item)
{
    if (!item->waits)
        return false;
    take_out(t, item);
    unlist_idle(t, item->key);
    return true;
}

uint32_t turns_waiting(const struct turns *t)
{
    return t->n_waiting;
}

uint32_t turns_waiting_of(const struct turns *t, uint32_t key)
{
    return t->queue[key].n_waiting;
}
