/* The budget of client memory; see ledger.h. */
#include "base/ledger.h"
#include "base/base_test.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

struct ledger {
    const struct ledger_kind *kind;
    uint32_t n_kinds, n_keys;
    atomic_uint_fast64_t total, used;
    atomic_uint_fast64_t by_kind[LEDGER_MAX_KINDS], refusals[LEDGER_MAX_KINDS];
    atomic_uint_fast64_t by_key[]; /* [n_keys] */
};

struct ledger *ledger_new(const struct ledger_kind *kind, uint32_t n_kinds, uint32_t n_keys)
{
    CHECK(n_kinds <= LEDGER_MAX_KINDS);
    struct ledger *l = mem_zalloc(sizeof(*l) + mem_mul(n_keys, sizeof(l->by_key[0])));
    l->kind = kind;
    l->n_kinds = n_kinds;
    l->n_keys = n_keys;
    return l;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    CHECKF(l->used == 0, "%llu bytes of client memory were not given back",
           (unsigned long long)l->used);
    mem_free(l);
}

void ledger_set_total(struct ledger *l, uint64_t n_bytes)
{
    l->total = n_bytes;
}

uint64_t ledger_total(const struct ledger *l)
{
    return l->total;
}

uint64_t ledger_used(const struct ledger *l)
{
    return l->used;
}

uint64_t ledger_used_by_kind(const struct ledger *l, uint32_t kind)
{
    return l->by_kind[kind];
}

uint64_t ledger_used_by_key(const struct ledger *l, uint32_t key)
{
    return l->by_key[key];
}

uint64_t ledger_refusals(const struct ledger *l, uint32_t kind)
{
    return l->refusals[kind];
}

/* The accounts after a take. */
struct sums {
    uint64_t used, by_kind, by_key;
};

static struct sums raise(const struct ledger_hold *h, uint32_t kind, uint64_t n)
{
    struct ledger *l = h->ledger;
    struct sums s = {.used = atomic_fetch_add(&l->used, n) + n,
                     .by_kind = atomic_fetch_add(&l->by_kind[kind], n) + n};
    if (h->key != LEDGER_NOBODY)
        s.by_key = atomic_fetch_add(&l->by_key[h->key], n) + n;
    return s;
}

static void lower(const struct ledger_hold *h, uint32_t kind, uint64_t n)
{
    struct ledger *l = h->ledger;
    atomic_fetch_sub(&l->used, n);
    atomic_fetch_sub(&l->by_kind[kind], n);
    if (h->key != LEDGER_NOBODY)
        atomic_fetch_sub(&l->by_key[h->key], n);
}

/* The most that a hold may take together with others, when it has `sum` itself. */
static uint64_t most_for(uint64_t total, uint64_t sum)
{
    return sum > LEDGER_SMALL_BYTES ? total - total / 8 : total;
}

/* Bounds of one hold and of its key. */
static enum status check_key(const struct ledger_hold *h, uint32_t kind, uint64_t sum,
                             struct sums s, struct err *e)
{
    const struct ledger *l = h->ledger;
    uint64_t total = l->total, alone = most_for(total, sum) / (h->shared ? 2 : 1);
    if (sum > alone)
        return err_set_field(e, ERR_TOO_LARGE, NULL, "request_too_large",
                             "the request would take %llu bytes of memory (%s), over the limit "
                             "of %llu (server.memory is %llu)",
                             (unsigned long long)sum, l->kind[kind].name, (unsigned long long)alone,
                             (unsigned long long)total);
    if (h->shared && s.by_key > (total > s.used ? total - s.used : 0))
        return err_set_field(e, ERR_QUEUE_FULL, NULL, "key_memory_full",
                             "requests of this key would hold %llu bytes of memory (%s), more than "
                             "is left for others",
                             (unsigned long long)s.by_key, l->kind[kind].name);
    return OK;
}

static enum status check(const struct ledger_hold *h, uint32_t kind, uint64_t n, struct sums s,
                         struct err *e)
{
    const struct ledger *l = h->ledger;
    uint64_t total = l->total, most = most_for(total, h->sum + n);
    uint64_t of_kind = total / 100 * l->kind[kind].share;
    enum status status = check_key(h, kind, h->sum + n, s, e);
    if (status)
        return status;
    if (s.used > most || s.by_kind > of_kind)
        return err_set_field(e, ERR_NO_MEMORY, NULL, "out_of_memory",
                             "the server's memory for requests is used up (%s): %llu of %llu bytes",
                             l->kind[kind].name,
                             (unsigned long long)(s.used > most ? s.used - n : s.by_kind - n),
                             (unsigned long long)(s.used > most ? most : of_kind));
    return OK;
}

bool ledger_has_room(const struct ledger_hold *h, uint64_t n_bytes)
{
    const struct ledger *l = h->ledger;
    if (!l)
        return true;
    uint64_t total = l->total, used = l->used + n_bytes;
    if (used > total - total / 8)
        return false;
    return !h->shared || h->key == LEDGER_NOBODY || l->by_key[h->key] + n_bytes <= total - used;
}

enum status ledger_take(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes, struct err *e)
{
    if (!h->ledger || !n_bytes)
        return OK;
    enum status status = check(h, kind, n_bytes, raise(h, kind, n_bytes), e);
    if (status) {
        lower(h, kind, n_bytes);
        atomic_fetch_add(&h->ledger->refusals[kind], 1);
        return status;
    }
    h->n_bytes[kind] += n_bytes;
    h->sum += n_bytes;
    return OK;
}

void ledger_add(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes)
{
    if (!h->ledger)
        return;
    raise(h, kind, n_bytes);
    h->n_bytes[kind] += n_bytes;
    h->sum += n_bytes;
}

void ledger_give(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes)
{
    if (!h->ledger)
        return;
    CHECK(n_bytes <= h->n_bytes[kind]);
    lower(h, kind, n_bytes);
    h->n_bytes[kind] -= n_bytes;
    h->sum -= n_bytes;
}

enum status ledger_resize(struct ledger_hold *h, uint32_t kind, uint64_t n_bytes, struct err *e)
{
    uint64_t now = h->n_bytes[kind];
    if (n_bytes > now)
        return ledger_take(h, kind, n_bytes - now, e);
    ledger_give(h, kind, now - n_bytes);
    return OK;
}

static uint32_t first_kind(const struct ledger_hold *h)
{
    uint32_t kind = 0;
    while (kind + 1 < h->ledger->n_kinds && !h->n_bytes[kind])
        kind++;
    return kind;
}

enum status ledger_move(struct ledger_hold *from, struct ledger_hold *to, struct err *e)
{
    struct ledger *l = from->ledger;
    CHECK(to->ledger == l && to->sum == 0);
    if (l && to->key != LEDGER_NOBODY) {
        struct sums s = {.used = l->used,
                         .by_key = atomic_fetch_add(&l->by_key[to->key], from->sum) + from->sum};
        uint32_t kind = first_kind(from);
        enum status status = check_key(to, kind, from->sum, s, e);
        if (status) {
            atomic_fetch_sub(&l->by_key[to->key], from->sum);
            atomic_fetch_add(&l->refusals[kind], 1);
            return status;
        }
    }
    if (l && from->key != LEDGER_NOBODY)
        atomic_fetch_sub(&l->by_key[from->key], from->sum);
    memcpy(to->n_bytes, from->n_bytes, sizeof(to->n_bytes));
    memset(from->n_bytes, 0, sizeof(from->n_bytes));
    to->sum = from->sum;
    from->sum = 0;
    return OK;
}

void ledger_drop(struct ledger_hold *h)
{
    for (uint32_t i = 0; h->ledger && i < h->ledger->n_kinds; i++)
        ledger_give(h, i, h->n_bytes[i]);
}
