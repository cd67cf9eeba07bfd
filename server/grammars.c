/* See grammars.h. The tree of the vocabulary is made for the first request that needs it. */
#include "server/grammars.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/siphash.h"
#include "base/thread.h"
#include "engine/grammar/vocab.h"

#define GRAMMARS_BAD "invalid_grammar"

enum { MAX_KEPT = 32 };

struct kept {
    uint64_t key[2];
    struct grammar *grammar; /* NULL: empty */
    uint64_t used; /* the turn of the last look */
};

struct grammars {
    const struct tokenizer *tok; /* borrows */
    struct mutex lock;
    struct gram_vocab *vocab; /* owns; NULL: not made yet */
    struct kept kept[MAX_KEPT];
    uint64_t turn;
};

struct grammars *grammars_new(const struct tokenizer *tok)
{
    struct grammars *s = mem_zalloc(sizeof(*s));
    s->tok = tok;
    mutex_init(&s->lock);
    return s;
}

static void drop(struct kept *k)
{
    if (k->grammar)
        grammar_set_cached(k->grammar, false);
    k->grammar = NULL;
}

void grammars_free(struct grammars *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < MAX_KEPT; i++)
        drop(&s->kept[i]);
    gram_vocab_free(s->vocab);
    mutex_release(&s->lock);
    mem_free(s);
}

static const struct gram_vocab *vocab_of(struct grammars *s)
{
    mutex_lock(&s->lock);
    if (!s->vocab)
        s->vocab = gram_vocab_new(s->tok);
    const struct gram_vocab *vocab = s->vocab;
    mutex_unlock(&s->lock);
    return vocab;
}

static void key_of(enum grammar_kind kind, const struct json *source, uint64_t key[2])
{
    static const uint64_t secret[2] = {0x636f6d70696c6564, 0x6772616d6d617273};
    struct siphash h;
    struct str raw = source ? json_raw(source) : (struct str){"", 0};
    uint64_t head = (uint64_t)kind;
    siphash_init(&h, secret);
    siphash_add(&h, &head, sizeof(head));
    siphash_add(&h, raw.ptr, raw.len);
    siphash_end(&h, key);
}

static struct kept *find(struct grammars *s, const uint64_t key[2])
{
    for (uint32_t i = 0; i < MAX_KEPT; i++) {
        struct kept *k = &s->kept[i];
        if (k->grammar && k->key[0] == key[0] && k->key[1] == key[1])
            return k;
    }
    return NULL;
}

/* The least recently used, an empty place if there is one; idle: of those that no request uses, NULL for none. */
static struct kept *oldest(struct grammars *s, bool idle)
{
    struct kept *best = NULL;
    for (uint32_t i = 0; i < MAX_KEPT; i++) {
        struct kept *k = &s->kept[i];
        if (idle && (!k->grammar || !grammar_is_idle(k->grammar)))
            continue;
        if (!k->grammar)
            return k;
        if (!best || k->used < best->used)
            best = k;
    }
    return best;
}

/* Frees a grammar that only the cache has, unless the ledger refuses what no room would help. */
static bool make_room(struct grammars *s, enum status why)
{
    struct kept *k = why == ERR_NO_MEMORY || why == ERR_QUEUE_FULL ? oldest(s, true) : NULL;
    if (k)
        drop(k);
    return k != NULL;
}

/* *out: NULL when it is not kept, or another one use of it. */
static enum status use_kept(struct grammars *s, const uint64_t key[2],
                            const struct gram_owner *owner, struct grammar **out, struct err *e)
{
    enum status st = OK;
    *out = NULL;
    mutex_lock(&s->lock);
    struct kept *k = find(s, key);
    if (k) {
        struct grammar *g = k->grammar;
        do {
            k = find(s, key); /* room may have been made by dropping it */
            st = k ? grammar_use(g, owner, e) : OK;
        } while (st && make_room(s, st));
        *out = k && !st ? g : NULL;
        if (k)
            k->used = ++s->turn;
    }
    mutex_unlock(&s->lock);
    return st;
}

static enum status charge(struct grammars *s, struct grammar *g, const struct gram_owner *owner,
                          struct err *e)
{
    enum status st;
    mutex_lock(&s->lock);
    do
        st = grammar_charge(g, owner, e);
    while (st && make_room(s, st));
    mutex_unlock(&s->lock);
    return st;
}

/* Keeps it in the place of the least recently used, unless another thread has compiled the same by now. */
static void keep(struct grammars *s, const uint64_t key[2], struct grammar *g)
{
    mutex_lock(&s->lock);
    if (!find(s, key)) {
        struct kept *k = oldest(s, false);
        drop(k);
        *k = (struct kept){{key[0], key[1]}, g, ++s->turn};
        grammar_set_cached(g, true);
    }
    mutex_unlock(&s->lock);
}

enum status grammars_bad(struct err *e)
{
    snprintf(e->code, sizeof(e->code), "%s", GRAMMARS_BAD);
    if (e->status == ERR_TOO_LARGE) /* of the request, not of its body */
        e->status = ERR_INVALID;
    return e->status;
}

static bool refused_memory(const struct err *e)
{
    return e->status == ERR_NO_MEMORY || e->status == ERR_QUEUE_FULL ||
           str_eq_c(str_of(e->code), "request_too_large");
}

static void drop_idle(struct grammars *s)
{
    mutex_lock(&s->lock);
    for (uint32_t i = 0; i < MAX_KEPT; i++)
        if (s->kept[i].grammar && grammar_is_idle(s->kept[i].grammar))
            drop(&s->kept[i]);
    mutex_unlock(&s->lock);
}

/* What compiling needs is on the owner's account meanwhile. */
static enum status compile_once(struct grammars *s, enum grammar_kind kind,
                                const struct json *source, const struct gram_owner *owner,
                                struct grammar **out, struct err *e)
{
    struct ledger_hold held = {.ledger = owner->ledger, .key = owner->key, .shared = owner->shared};
    return grammar_compile(kind, source, vocab_of(s), &held, out, e);
}

static enum status compile(struct grammars *s, enum grammar_kind kind, const struct json *source,
                           const struct gram_owner *owner, struct grammar **out, struct err *e)
{
    enum status st = compile_once(s, kind, source, owner, out, e);
    if (st && refused_memory(e) && st != ERR_TOO_LARGE) {
        drop_idle(s);
        st = compile_once(s, kind, source, owner, out, e);
    }
    return !st || refused_memory(e) ? st : grammars_bad(e);
}

enum status grammars_get(struct grammars *s, enum grammar_kind kind, const struct json *source,
                         const struct gram_owner *owner, struct grammar **out, struct err *e)
{
    uint64_t key[2];
    key_of(kind, source, key);
    enum status st = use_kept(s, key, owner, out, e);
    if (st || *out)
        return st;
    st = compile(s, kind, source, owner, out, e);
    if (st)
        return st;
    st = charge(s, *out, owner, e);
    if (!st) {
        keep(s, key, *out);
        return OK;
    }
    grammar_unref(*out);
    *out = NULL;
    return st;
}

bool grammars_is_bad(const struct err *e)
{
    return str_eq_c(str_of(e->code), GRAMMARS_BAD);
}
