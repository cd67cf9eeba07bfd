/* Memory that clients make the server keep: one budget in bytes, with accounts by kind and by key.
 *
 * Every allocation whose size or number a client decides is taken from this budget before it is made, and
 * is given back when it is freed. A hold records what one owner (a request, a connection) has taken, so
 * that all of it is given back at the owner's end. Refusals, in this order:
 *   ERR_TOO_LARGE   413  more than the budget could ever grant
 *   ERR_QUEUE_FULL  429  with several keys, a key holds at most as much as stays free: one key gets half,
 *                        two get a third each, and a key that holds nothing always finds room
 *   ERR_NO_MEMORY   503  the budget, or the kind's share of it, is used up. The last eighth is reserved for
 *                        holds of at most LEDGER_SMALL_BYTES, so that large requests cannot starve small ones
 *
 * Atomics only: counts are raised first, checked afterwards, and lowered again on a refusal. Two threads
 * that take the last bytes at the same time may both be refused; neither can exceed a bound. Thread: any;
 * a hold belongs to one thread at a time. */
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
    const char *name; /* name of the kind in metrics */
    uint32_t share; /* the largest share of the budget for this kind, in percent */
};

struct ledger;

/* kind: [n_kinds], borrows. n_keys: number of key accounts. The budget starts at 0. */
struct ledger *ledger_new(const struct ledger_kind *kind, uint32_t n_kinds, uint32_t n_keys);
void ledger_free(struct ledger *l); /* NULL is allowed; CHECKs that nothing is held */
void ledger_set_total(struct ledger *l, uint64_t n_bytes);
uint64_t ledger_total(const struct ledger *l);
uint64_t ledger_used_by_kind(const struct ledger *l, uint32_t kind);
uint64_t ledger_used_by_key(const struct ledger *l, uint32_t key);
uint64_t ledger_refusals(const struct ledger *l, uint32_t kind);

/* What one owner has taken. All zero: nothing taken, no ledger, and hence no bounds. */
struct ledger_hold {
    struct ledger *ledger; /* borrows */
    uint32_t key; /* account number, or LEDGER_NOBODY; may change while nothing is held */
    bool shared; /* other keys exist */
    uint64_t n_bytes[LEDGER_MAX_KINDS], sum;
};

/* True when n_bytes more would be granted now; for callers that can make do with less. */
bool ledger_has_room(const struct ledger_hold *h, uint64_t n_bytes);
enum status ledger_take(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes, struct err *e);
/* Takes without a check, for memory that already exists or is bounded elsewhere. */
void ledger_add(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes);
void ledger_give(struct ledger_hold *h, uint32_t kind,
                 uint64_t n_bytes); /* at most what the hold has taken */
/* Takes or gives back the difference, so that the hold has n_bytes of the kind. */
enum status ledger_resize(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes, struct err *e);
/* All that one hold has goes to another, empty one of the same ledger: no more memory is held, so that only the bounds of
 * the new key can refuse it. */
enum status ledger_move(struct ledger_hold *from, struct ledger_hold *to, struct err *e);
void ledger_drop(struct ledger_hold *h); /* gives everything back */

#endif
