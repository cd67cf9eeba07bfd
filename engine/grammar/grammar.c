/* A grammar's life: who uses it, whose memory it is, and the masks that it keeps; see grammar.h. */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "config/ledger.h"
#include "engine/grammar/grammar_int.h"

enum { MAX_KEPT = 256, /* limit of masks that a grammar keeps */ MAX_KEPT_BYTES = 4 << 20 };

/* ---- birth ---- */

static void mark(uint16_t *todo, uint32_t *n, bool *seen, uint16_t state)
{
    if (!state || seen[state])
        return;
    seen[state] = true;
    todo[(*n)++] = state;
}

/* The states that a text can come to, in todo; returns their number. */
static uint32_t reachable(const struct automaton *a, uint16_t *todo)
{
    bool *seen = mem_zalloc(a->n_states);
    uint32_t n = 0;
    mark(todo, &n, seen, a->start[0]);
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t *next = a->next + (size_t)todo[i] * a->n_classes;
        for (uint32_t c = 0; c < a->n_classes; c++)
            mark(todo, &n, seen, next[c]);
        for (uint32_t k = a->call0[todo[i]]; k < a->call0[todo[i] + 1]; k++) {
            mark(todo, &n, seen, a->start[a->call[k].rule]);
            mark(todo, &n, seen, a->call[k].back);
        }
    }
    mem_free(seen);
    return n;
}

static void too_ambiguous(struct exprs *x)
{
    struct err e;
    err_set(&e, ERR_TOO_LARGE,
            "the grammar is too ambiguous: where rules begin, a text can be at over %d places at "
            "once",
            GRAM_MAX_PLACES);
    exprs_fail(x, &e);
}

/* Refuses states that no text can be at within the bounds: there its request would end. Which of the sets of several
 * states are over them shows only in use. */
static void check_places(const struct grammar *g, struct exprs *x)
{
    const struct automaton *a = &g->a;
    struct gram_scratch *scratch = gram_scratch_new();
    uint16_t *state = mem_alloc(mem_mul(a->n_states, sizeof(*state)));
    exprs_spend(x, a->n_states * (2ull + a->n_classes / 2));
    uint32_t n = reachable(a, state);
    for (uint32_t i = 0; i < n && !x->error.status; i++) {
        uint64_t n_steps = 0;
        if (!(a->flags[state[i]] & STATE_CALLS))
            continue;
        if (!gram_state_fits(g, state[i], scratch, &n_steps))
            too_ambiguous(x);
        exprs_spend(x, 16 + n_steps);
    }
    mem_free(state);
    gram_scratch_free(scratch);
}

static enum status build(struct grammar *g, struct exprs *x, struct err *e)
{
    enum status st = automaton_build(x, &g->a, e);
    if (!st)
        check_places(g, x);
    if (!st && x->error.status) {
        automaton_release(&g->a);
        *e = x->error;
        st = e->status;
    }
    exprs_release(x);
    return st;
}

enum status grammar_new(struct exprs *x, const struct gram_vocab *vocab, struct grammar **out,
                        struct err *e)
{
    struct grammar *g = mem_zalloc(sizeof(*g));
    enum status st = build(g, x, e);
    *out = NULL;
    if (st) {
        mem_free(g);
        return st;
    }
    g->vocab = vocab;
    g->n_uses = 1;
    mutex_init(&g->lock);
    g->held.key = LEDGER_NOBODY;
    *out = g;
    return OK;
}

static void release(struct grammar *g)
{
    ledger_drop(&g->held);
    if (g->owner_uses)
        atomic_fetch_sub(g->owner_uses, 1);
    automaton_release(&g->a);
    mutex_release(&g->lock);
    mem_free(g->kept);
    mem_free(g->kept_words);
    mem_free(g);
}

uint32_t grammar_mask_words(const struct grammar *g)
{
    return g->vocab->n_words;
}

static uint32_t most_kept(const struct grammar *g)
{
    uint64_t mask_bytes = (uint64_t)g->vocab->n_words * sizeof(uint32_t);
    uint32_t n = MAX_KEPT;
    while (n > 1 && n * mask_bytes > MAX_KEPT_BYTES)
        n /= 2;
    return n;
}

uint64_t grammar_bytes(const struct grammar *g)
{
    uint64_t n = most_kept(g);
    return sizeof(*g) + automaton_bytes(&g->a) +
           n * (2 * sizeof(*g->kept) + g->vocab->n_words * sizeof(uint32_t));
}

void grammar_describe(const struct grammar *g, struct grammar_size *out)
{
    *out = (struct grammar_size){.n_states = g->a.n_states - 1,
                                 .n_rules = g->a.n_rules,
                                 .n_calls = g->a.call0[g->a.n_states],
                                 .depth = g->a.need[g->a.start[0]],
                                 .n_bytes = grammar_bytes(g)};
}

/* ---- memory ---- */

static void set_owner(struct grammar *g, atomic_uint *uses)
{
    if (uses)
        atomic_fetch_add(uses, 1);
    if (g->owner_uses)
        atomic_fetch_sub(g->owner_uses, 1);
    g->owner_uses = uses;
}

/* Moves what is held to another account. Lock held. */
static enum status move(struct grammar *g, const struct gram_owner *owner, struct err *e)
{
    struct ledger_hold to = {.ledger = g->held.ledger, .key = owner->key, .shared = owner->shared};
    enum status st = ledger_move(&g->held, &to, e);
    if (st)
        return st;
    g->held = to;
    set_owner(g, owner->uses);
    return OK;
}

enum status grammar_charge(struct grammar *g, const struct gram_owner *owner, struct err *e)
{
    uint32_t n = most_kept(g);
    CHECK(!g->kept);
    g->held =
        (struct ledger_hold){.ledger = owner->ledger, .key = owner->key, .shared = owner->shared};
    enum status st = ledger_take(&g->held, LEDGER_GRAMMARS, grammar_bytes(g), e);
    if (st)
        return st;
    set_owner(g, owner->uses);
    g->kept = mem_zalloc(mem_mul(2 * (size_t)n, sizeof(*g->kept)));
    g->kept_words = mem_try_zalloc(mem_mul(n, g->vocab->n_words * sizeof(uint32_t)));
    g->cap_kept = g->kept_words ? n : 0;
    return OK;
}

enum status grammar_use(struct grammar *g, const struct gram_owner *owner, struct err *e)
{
    enum status st = OK;
    mutex_lock(&g->lock);
    if (g->n_uses == 0)
        st = move(g, owner, e);
    g->n_uses += !st;
    mutex_unlock(&g->lock);
    return st;
}

void grammar_unref(struct grammar *g)
{
    static const struct gram_owner nobody = {.key = LEDGER_NOBODY};
    if (!g)
        return;
    mutex_lock(&g->lock);
    CHECK(g->n_uses > 0);
    bool idle = --g->n_uses == 0, dead = idle && !g->cached;
    if (idle && !dead)
        move(g, &nobody, NULL);
    mutex_unlock(&g->lock);
    if (dead)
        release(g);
}

void grammar_set_cached(struct grammar *g, bool cached)
{
    mutex_lock(&g->lock);
    g->cached = cached;
    bool dead = !cached && g->n_uses == 0;
    mutex_unlock(&g->lock);
    if (dead)
        release(g);
}

bool grammar_is_idle(struct grammar *g)
{
    mutex_lock(&g->lock);
    bool idle = g->n_uses == 0;
    mutex_unlock(&g->lock);
    return idle;
}

/* ---- masks ---- */

/* The entry of this set of places, or the empty one where it belongs. Lock held. */
static struct kept_mask *find_kept(struct grammar *g, const uint64_t key[2])
{
    uint32_t mask = 2 * g->cap_kept - 1, at = (uint32_t)key[0] & mask;
    while (g->kept[at].mask && (g->kept[at].key[0] != key[0] || g->kept[at].key[1] != key[1]))
        at = (at + 1) & mask;
    return &g->kept[at];
}

const uint32_t *grammar_kept_mask(struct grammar *g, const uint64_t key[2])
{
    if (g->cap_kept == 0)
        return NULL;
    mutex_lock(&g->lock);
    const uint32_t *kept = find_kept(g, key)->mask;
    mutex_unlock(&g->lock);
    return kept;
}

const uint32_t *grammar_keep_mask(struct grammar *g, const uint64_t key[2], const uint32_t *mask)
{
    uint32_t n_words = g->vocab->n_words;
    if (g->cap_kept == 0)
        return mask;
    mutex_lock(&g->lock);
    struct kept_mask *slot = find_kept(g, key);
    if (!slot->mask && g->n_kept < g->cap_kept) {
        slot->key[0] = key[0];
        slot->key[1] = key[1];
        slot->mask = g->kept_words + (size_t)g->n_kept++ * n_words;
        memcpy(slot->mask, mask, n_words * sizeof(uint32_t));
    }
    const uint32_t *kept = slot->mask;
    mutex_unlock(&g->lock);
    return kept ? kept : mask;
}
