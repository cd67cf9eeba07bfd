/* See grammars.h. The tree of the vocabulary is made for the first request that needs it. */
#include "server/grammars.h"

#include <string.h>

#include "base/mem.h"
#include "base/siphash.h"
#include "base/thread.h"
#include "config/ledger.h"
#include "engine/grammar/vocab.h"

enum { MAX_KEPT = 32 };

struct kept {
    uint64_t key[2];
    struct grammar *grammar; /* holds a reference; NULL: empty */
    uint64_t n_bytes, used; /* used: the turn of the last look */
};

struct grammars {
    const struct tokenizer *tok; /* borrows */
    struct mutex lock;
    struct gram_vocab *vocab; /* owns; NULL: not made yet */
    struct kept kept[MAX_KEPT];
    struct ledger_hold held;
    uint64_t turn;
};

struct grammars *grammars_new(const struct tokenizer *tok, struct ledger *ledger)
{
    struct grammars *s = mem_zalloc(sizeof(*s));
    s->tok = tok;
    s->held = (struct ledger_hold){.ledger = ledger, .key = LEDGER_NOBODY};
    mutex_init(&s->lock);
    return s;
}

static void drop(struct grammars *s, struct kept *k)
{
    if (!k->grammar)
        return;
    ledger_give(&s->held, LEDGER_GRAMMARS, k->n_bytes);
    grammar_unref(k->grammar);
    k->grammar = NULL;
}

void grammars_free(struct grammars *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < MAX_KEPT; i++)
        drop(s, &s->kept[i]);
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

/* With a reference, or NULL. */
static struct grammar *find(struct grammars *s, const uint64_t key[2])
{
    struct grammar *g = NULL;
    mutex_lock(&s->lock);
    for (uint32_t i = 0; i < MAX_KEPT && !g; i++) {
        struct kept *k = &s->kept[i];
        if (!k->grammar || k->key[0] != key[0] || k->key[1] != key[1])
            continue;
        k->used = ++s->turn;
        g = k->grammar;
        grammar_ref(g);
    }
    mutex_unlock(&s->lock);
    return g;
}

static struct kept *oldest(struct grammars *s)
{
    struct kept *best = &s->kept[0];
    for (uint32_t i = 0; i < MAX_KEPT; i++) {
        if (!s->kept[i].grammar)
            return &s->kept[i];
        if (s->kept[i].used < best->used)
            best = &s->kept[i];
    }
    return best;
}

/* Keeps it when the ledger has room; the least recently used make it, down to none. */
static void keep(struct grammars *s, const uint64_t key[2], struct grammar *g)
{
    struct err e;
    uint64_t n_bytes = grammar_bytes(g);
    mutex_lock(&s->lock);
    drop(s, oldest(s));
    for (uint32_t i = 0; i < MAX_KEPT; i++) {
        if (ledger_take(&s->held, LEDGER_GRAMMARS, n_bytes, &e) == OK) {
            grammar_ref(g);
            *oldest(s) = (struct kept){{key[0], key[1]}, g, n_bytes, ++s->turn};
            break;
        }
        struct kept *least = NULL;
        for (uint32_t k = 0; k < MAX_KEPT; k++)
            if (s->kept[k].grammar && (!least || s->kept[k].used < least->used))
                least = &s->kept[k];
        if (!least)
            break;
        drop(s, least);
    }
    mutex_unlock(&s->lock);
}

enum status grammars_get(struct grammars *s, enum grammar_kind kind, const struct json *source,
                         struct grammar **out, struct err *e)
{
    uint64_t key[2];
    key_of(kind, source, key);
    *out = find(s, key);
    if (*out)
        return OK;
    enum status st = grammar_compile(kind, source, vocab_of(s), out, e);
    if (!st)
        keep(s, key, *out);
    return st;
}
