/* Which exchange is prepared next: a queue for each key, virtual counters between them.
 *
 * The order of scheduler/tenant.h without its classes: the key with the smallest counter is next, first come
 * first served within it. A counter grows by cost / weight of each turn when the turn is over. A key that
 * had nothing here is lifted to the least counter of those that have, so that being idle saves nothing up,
 * and a flood of one key delays another's item by the turns in progress only.
 * Thread: one at a time (server/http/offload.c has a lock). Nothing allocates after turns_new; a pick is
 * O(keys that wait). */
#ifndef SERVER_TURNS_H
#define SERVER_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/* Lies inside what waits. */
struct turn {
    struct turn *prev, *next;
    uint32_t key;
    bool waits; /* in the queue */
};

struct turns;

struct turns *turns_new(uint32_t n_keys);
void turns_free(struct turns *t); /* NULL is fine; nothing waits */
void turns_put(struct turns *t, struct turn *item, uint32_t key, uint32_t weight);
/* The next item, which runs from now on; keys that have `most` running are passed over. NULL: none. */
struct turn *turns_next(struct turns *t, uint32_t most);
void turns_done(struct turns *t, uint32_t key, uint64_t cost); /* a turn of the key is over */
bool turns_take(struct turns *t, struct turn *item); /* out of the queue; false: not in it */
uint32_t turns_waiting(const struct turns *t);
uint32_t turns_waiting_of(const struct turns *t, uint32_t key);

#endif
