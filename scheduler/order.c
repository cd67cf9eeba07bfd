/* Items in order; see order.h. */
#include "scheduler/order.h"

#include <stddef.h>

#include "base/check.h"

/* splitmix64's mixing step: neighbouring tickets get unrelated values. */
static uint32_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(x >> 33) + 1;
}

static bool before(const struct order_link *a, const struct order_link *b)
{
    return a->key != b->key ? a->key < b->key : a->ticket < b->ticket;
}

/* Puts `by` where `l` hangs. */
static void replace(struct order *o, struct order_link *l, struct order_link *by)
{
    if (!l->up)
        o->root = by;
    else if (l->up->left == l)
        l->up->left = by;
    else
        l->up->right = by;
    if (by)
        by->up = l->up;
}

/* l changes places with its parent. */
static void lift(struct order *o, struct order_link *l)
{
    struct order_link *p = l->up, *middle;
    replace(o, p, l);
    if (p->left == l) {
        middle = p->left = l->right;
        l->right = p;
    } else {
        middle = p->right = l->left;
        l->left = p;
    }
    if (middle)
        middle->up = p;
    p->up = l;
}

void order_insert(struct order *o, struct order_link *l, uint64_t key, uint64_t ticket)
{
    CHECKF(!order_holds(l), "ticket %llu is in a set already", (unsigned long long)ticket);
    *l = (struct order_link){.key = key, .ticket = ticket, .heap = mix(ticket)};
    struct order_link **at = &o->root, *up = NULL;
    while (*at) {
        up = *at;
        at = before(l, up) ? &up->left : &up->right;
    }
    *at = l;
    l->up = up;
    if (!o->first || before(l, o->first))
        o->first = l;
    while (l->up && l->up->heap < l->heap)
        lift(o, l);
}

void order_remove(struct order *o, struct order_link *l)
{
    CHECKF(order_holds(l), "the link is in no set");
    if (o->first == l)
        o->first = order_next(l);
    while (l->left && l->right)
        lift(o, l->left->heap > l->right->heap ? l->left : l->right);
    replace(o, l, l->left ? l->left : l->right);
    *l = (struct order_link){0};
}

struct order_link *order_next(const struct order_link *l)
{
    struct order_link *up;
    if (l->right) {
        struct order_link *n = l->right;
        while (n->left)
            n = n->left;
        return n;
    }
    for (up = l->up; up && up->right == l; up = up->up)
        l = up;
    return up;
}
