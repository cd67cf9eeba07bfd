/* Memory that clients make the server keep: one budget in bytes, with accounts by kind and by key.
 *
 * Every allocation whose size or number a client decides is taken from here before it is made, and is
 * given back when it is freed. A hold is what one owner (a request, a connection) has taken, so that
 * nothing is forgotten at its end. Refusals, in this order:
 *   ERR_TOO_LARGE   413  more than could ever be had
 *   ERR_QUEUE_FULL  429  with several keys a key holds at most as much as is left free: one key has half,
 *                        two have a third each, and a key that holds nothing always finds room
 *   ERR_NO_MEMORY   503  the budget, or the kind's share of it, is used up. The last eighth is for holds
 *                        of at most LEDGER_SMALL_BYTES, so that large requests do not shut out small ones
 *
 * Atomics only: counts are raised first and looked at after, and taken back on a refusal. Two that take
 * at once may both be refused at the last place, none gets past a bound. Thread: any; a hold belongs to
 * one thread at a time. */
#ifndef BASE_LEDGER_H
#define BASE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    LEDGER_MAX_KINDS = 8,
    LEDGER_NOBODY = 0xffffffff, /* no key's account */
    LEDGER_SMALL_BYTES = 64 << 10
};

struct ledger_kind {
    const char *name; /* shown in metrics */
    uint32_t share; /* of the budget that the kind may have, in percent */
};

struct ledger;

/* kind: [n_kinds], borrows. n_keys: accounts of keys. The budget is 0. */
struct ledger *ledger_new(const struct ledger_kind *kind, uint32_t n_kinds, uint32_t n_keys);
void ledger_free(struct ledger *l); /* NULL is fine; CHECKs that nothing is held */
void ledger_set_total(struct ledger *l, uint64_t n_bytes);
uint64_t ledger_total(const struct ledger *l);
uint64_t ledger_used_by_kind(const struct ledger *l, uint32_t kind);
uint64_t ledger_used_by_key(const struct ledger *l, uint32_t key);
uint64_t ledger_refusals(const struct ledger *l, uint32_t kind);

/* What one owner has taken. Zeroed: nothing, without a ledger and so without bounds. */
struct ledger_hold {
    struct ledger *ledger; /* borrows */
    uint32_t key; /* account, or LEDGER_NOBODY; may change while nothing is held */
    bool shared; /* there are other keys */
    uint64_t n_bytes[LEDGER_MAX_KINDS], sum;
};

/* True when n_bytes more would be granted now, for those who can do with less. */
bool ledger_has_room(const struct ledger_hold *h, uint64_t n_bytes);
enum status ledger_take(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes, struct err *e);
/* Without asking, for what exists already or is bounded otherwise. */
void ledger_add(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes);
void ledger_give(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes); /* at most what it took */
/* Takes or gives the difference to n_bytes of the kind. */
enum status ledger_resize(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes, struct err *e);
void ledger_drop(struct ledger_hold *h); /* gives all */

#endif
