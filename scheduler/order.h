/* A set of items in order of (key, ticket): the link lies inside the item, nothing is allocated.
 *
 * A treap whose priorities are a hash of the ticket: expected O(log n) insert, remove and step, no
 * recursion, and the same shape for the same keys in every run. Tickets are unique in a set.
 * Thread: the owner's. */
#ifndef SCHEDULER_ORDER_H
#define SCHEDULER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order_link {
    struct order_link *up, *left, *right;
    uint64_t key, ticket;
    uint32_t heap; /* no child has a larger one; 0 while in no set */
};

struct order {
    struct order_link *root, *first; /* NULL: empty */
};

void order_insert(struct order *o, struct order_link *l, uint64_t key, uint64_t ticket);
void order_remove(struct order *o, struct order_link *l);
struct order_link *order_next(const struct order_link *l); /* NULL after the last */

static inline bool order_holds(const struct order_link *l)
{
    return l->heap != 0;
}

#endif
