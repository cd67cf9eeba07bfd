/* Runs the automaton over text and over the whole vocabulary; see grammar.h.
 *
 * A text can be at several places at once: pairs of a state and a stack of return states. While bytes are
 * processed, stacks are chains of nodes that share their lower parts, in a scratch that is truncated when
 * the walk over the vocabulary backtracks; between tokens they are kept as plain arrays (gram_place). */
#include "engine/grammar/grammar.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "base/thread.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/vocab.h"

enum {
    MAX_SET = 256, /* states that a text is at, including those with only calls */
    MAX_REFS = 1 << 15,
    MAX_NODES = 1 << 15,
    MAX_LEVELS = 256, /* bytes of a token, plus the start */
    MAX_KEPT = 256, /* limit of masks that a grammar caches */
    MAX_KEPT_BYTES = 4 << 20
};

struct kept_mask {
    uint64_t key[2];
    uint32_t *mask; /* inside kept_words; NULL: empty */
};

struct grammar {
    atomic_uint n_refs;
    struct automaton a;
    const struct gram_vocab *vocab;
    struct mutex lock; /* of the cached entries */
    struct kept_mask *kept; /* owns [2 * cap_kept], open addressing */
    uint32_t n_kept, cap_kept; /* a power of two */
    uint32_t *kept_words; /* owns; pages are touched as masks are added */
};

struct ref {
    uint32_t stack; /* node, 0: the bottom */
    uint16_t state;
};

struct node {
    uint32_t below;
    uint16_t back, depth;
};

struct level {
    uint32_t first, end; /* refs of the set */
    uint32_t n_nodes;
};

struct gram_scratch {
    struct ref ref[MAX_REFS];
    struct node node[MAX_NODES]; /* [0]: the bottom */
    struct level level[MAX_LEVELS];
    uint32_t n_refs, n_nodes;
    uint32_t first; /* of the set being built */
    uint32_t node0; /* nodes older than the step in progress */
    bool overflow;
};

struct gram_scratch *gram_scratch_new(void)
{
    return mem_zalloc(sizeof(struct gram_scratch));
}

void gram_scratch_free(struct gram_scratch *s)
{
    mem_free(s);
}

/* ---- a grammar's life ---- */

static void init_kept(struct grammar *g)
{
    size_t mask_bytes = (size_t)g->vocab->n_words * sizeof(uint32_t);
    g->cap_kept = MAX_KEPT;
    while (g->cap_kept > 1 && g->cap_kept * mask_bytes > MAX_KEPT_BYTES)
        g->cap_kept /= 2;
    g->kept = mem_zalloc(mem_mul(2 * (size_t)g->cap_kept, sizeof(*g->kept)));
    g->kept_words = mem_try_zalloc(g->cap_kept * mask_bytes);
    if (!g->kept_words)
        g->cap_kept = 0;
}

enum status grammar_new(struct exprs *x, const struct gram_vocab *vocab, struct grammar **out,
                        struct err *e)
{
    struct grammar *g = mem_zalloc(sizeof(*g));
    uint64_t n_steps = 0;
    enum status st = automaton_build(x, &n_steps, &g->a, e);
    exprs_release(x);
    *out = NULL;
    if (st) {
        mem_free(g);
        return st;
    }
    atomic_init(&g->n_refs, 1);
    g->vocab = vocab;
    mutex_init(&g->lock);
    init_kept(g);
    *out = g;
    return OK;
}

void grammar_ref(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->n_refs, 1, memory_order_relaxed);
}

void grammar_unref(struct grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->n_refs, 1, memory_order_acq_rel) > 1)
        return;
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

uint64_t grammar_bytes(const struct grammar *g)
{
    return sizeof(*g) + automaton_bytes(&g->a) + 2ull * g->cap_kept * sizeof(*g->kept) +
           (uint64_t)g->cap_kept * g->vocab->n_words * sizeof(uint32_t);
}

/* ---- sets of places ---- */

static void enter(struct gram_scratch *s, uint16_t state, uint32_t stack)
{
    for (uint32_t i = s->first; i < s->n_refs; i++)
        if (s->ref[i].state == state && s->ref[i].stack == stack)
            return;
    if (s->n_refs == MAX_REFS || s->n_refs - s->first == MAX_SET) {
        s->overflow = true;
        return;
    }
    s->ref[s->n_refs++] = (struct ref){stack, state};
}

/* The node of a return state on top of a stack; 0 when there is no room, or the stack is too deep. */
static uint32_t push(struct gram_scratch *s, uint16_t back, uint32_t below)
{
    for (uint32_t i = s->node0; i < s->n_nodes; i++)
        if (s->node[i].back == back && s->node[i].below == below)
            return i;
    if (s->n_nodes == MAX_NODES || s->node[below].depth == GRAM_MAX_DEPTH)
        return 0;
    s->node[s->n_nodes] = (struct node){below, back, (uint16_t)(s->node[below].depth + 1)};
    return s->n_nodes++;
}

/* Follows calls and ends of rules. A call in tail position needs no return state. */
static void follow(const struct automaton *a, struct gram_scratch *s)
{
    for (uint32_t i = s->first; i < s->n_refs; i++) {
        struct ref r = s->ref[i];
        for (uint32_t k = a->call0[r.state]; k < a->call0[r.state + 1]; k++) {
            struct automaton_call call = a->call[k];
            uint32_t stack = r.stack;
            if (a->flags[call.back] != STATE_FINAL) {
                stack = push(s, call.back, r.stack);
                if (!stack)
                    continue; /* nothing that deep is allowed */
            }
            enter(s, a->start[call.rule], stack);
        }
        if ((a->flags[r.state] & STATE_FINAL) && r.stack)
            enter(s, s->node[r.stack].back, s->node[r.stack].below);
    }
}

static bool matters(const struct automaton *a, struct ref r)
{
    uint8_t flags = a->flags[r.state];
    return (flags & STATE_READS) || ((flags & STATE_FINAL) && r.stack == 0);
}

/* Keeps the places that can read more bytes or complete the match. Too many places: keeps none. */
static void tidy(const struct automaton *a, struct gram_scratch *s)
{
    uint32_t kept = s->first;
    for (uint32_t i = s->first; i < s->n_refs; i++)
        if (matters(a, s->ref[i]))
            s->ref[kept++] = s->ref[i];
    s->n_refs = s->overflow || kept - s->first > GRAM_MAX_PLACES ? s->first : kept;
    s->overflow = false;
}

/* Makes level d from level d - 1. False: the byte is not possible there. */
static bool step(const struct automaton *a, struct gram_scratch *s, uint32_t d, uint8_t byte)
{
    const struct level *from = &s->level[d - 1];
    s->first = s->n_refs = from->end;
    s->node0 = s->n_nodes = from->n_nodes;
    bool plain = true;
    for (uint32_t i = from->first; i < from->end; i++) {
        uint16_t next = automaton_next(a, s->ref[i].state, byte);
        if (!next)
            continue;
        plain &= a->flags[next] == STATE_READS;
        enter(s, next, s->ref[i].stack);
    }
    if (s->n_refs == s->first)
        return false;
    if (!plain || s->overflow) {
        follow(a, s);
        tidy(a, s);
    }
    s->level[d] = (struct level){s->first, s->n_refs, s->n_nodes};
    return s->n_refs > s->first;
}

/* ---- between arrays and chains ---- */

static void load(const struct gram_match *m, struct gram_scratch *s)
{
    s->n_refs = s->first = 0;
    s->node0 = s->n_nodes = 1;
    s->node[0] = (struct node){0, 0, 0};
    s->overflow = false;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t stack = 0;
        for (uint32_t d = 0; d < m->place[i].depth; d++)
            stack = push(s, m->place[i].back[d], stack);
        s->ref[s->n_refs++] = (struct ref){stack, m->place[i].state};
    }
    s->level[0] = (struct level){0, s->n_refs, s->n_nodes};
}

static void store(struct gram_match *m, const struct gram_scratch *s, const struct level *l)
{
    m->n = l->end - l->first;
    CHECK(m->n <= GRAM_MAX_PLACES);
    for (uint32_t i = 0; i < m->n; i++) {
        struct ref r = s->ref[l->first + i];
        struct gram_place *p = &m->place[i];
        p->state = r.state;
        p->depth = s->node[r.stack].depth;
        for (uint32_t d = p->depth; d-- > 0; r.stack = s->node[r.stack].below)
            p->back[d] = s->node[r.stack].back;
    }
}

void gram_match_init(struct gram_match *m, const struct grammar *g, struct gram_scratch *s)
{
    *m = (struct gram_match){.g = g};
    load(m, s);
    enter(s, g->a.start[0], 0);
    follow(&g->a, s);
    tidy(&g->a, s);
    s->level[0] = (struct level){s->first, s->n_refs, s->n_nodes};
    store(m, s, &s->level[0]);
}

bool gram_match_bytes(struct gram_match *m, struct str bytes, struct gram_scratch *s)
{
    for (size_t i = 0; i < bytes.len && m->n; i++) {
        load(m, s);
        if (step(&m->g->a, s, 1, (uint8_t)bytes.ptr[i]))
            store(m, s, &s->level[1]);
        else
            m->n = 0;
    }
    return m->n > 0;
}

bool gram_match_token(struct gram_match *m, int32_t token, struct gram_scratch *s)
{
    struct str bytes = tokenizer_shown(m->g->vocab->tok, token, true, &m->at_start);
    return gram_match_bytes(m, bytes, s);
}

bool gram_match_complete(const struct gram_match *m)
{
    const struct automaton *a = &m->g->a;
    for (uint32_t i = 0; i < m->n; i++)
        if ((a->flags[m->place[i].state] & STATE_FINAL) && m->place[i].depth == 0)
            return true;
    return false;
}

bool gram_match_over(const struct gram_match *m)
{
    const struct automaton *a = &m->g->a;
    for (uint32_t i = 0; i < m->n; i++)
        if (a->flags[m->place[i].state] & STATE_READS)
            return false;
    return gram_match_complete(m);
}

/* ---- masks ---- */

static void allow(const struct gram_vocab *v, int32_t token, uint32_t *mask)
{
    for (; token >= 0; token = v->twin[token])
        mask[token / 32] |= 1u << (token % 32);
}

/* In some vocabularies the first token of a text is shown without its leading space. */
static bool first_step(const struct gram_match *m, struct gram_scratch *s, uint8_t byte)
{
    if (!m->at_start || !m->g->vocab->drops_space || byte != ' ')
        return step(&m->g->a, s, 1, byte);
    s->level[1] = s->level[0];
    return true;
}

/* In the middle of a string every plain token is allowed, and only the others are walked. */
static bool in_string(const struct gram_match *m)
{
    return m->n == 1 && !m->at_start && m->g->a.plain[m->place[0].state];
}

static void walk(const struct gram_match *m, uint32_t *mask, struct gram_scratch *s)
{
    const struct gram_vocab *v = m->g->vocab;
    const struct automaton *a = &m->g->a;
    const struct gram_tree *tree = in_string(m) ? &v->rest : &v->all;
    if (tree == &v->rest)
        memcpy(mask, v->plain_mask, v->n_words * sizeof(uint32_t));
    load(m, s);
    for (uint32_t i = 1; i < tree->n_nodes;) {
        uint32_t d = tree->depth[i];
        bool lives = d == 1 ? first_step(m, s, tree->byte[i]) : step(a, s, d, tree->byte[i]);
        if (lives && tree->token[i] >= 0)
            allow(v, tree->token[i], mask);
        i = lives ? i + 1 : tree->skip[i];
    }
    for (uint32_t i = 0; m->at_start && i < v->n_odd; i++)
        mask[v->odd[i] / 32] &= ~(1u << (v->odd[i] % 32));
}

static void make_mask(const struct gram_match *m, uint32_t *mask, struct gram_scratch *s)
{
    const struct gram_vocab *v = m->g->vocab;
    memset(mask, 0, v->n_words * sizeof(uint32_t));
    if (m->n)
        walk(m, mask, s);
    if (gram_match_complete(m))
        for (uint32_t i = 0; i < v->n_words; i++)
            mask[i] |= v->end_mask[i];
}

static void key_of(const struct gram_match *m, uint64_t key[2])
{
    static const uint64_t secret[2] = {0x6d696c6c72616365, 0x6772616d6d617221};
    struct siphash h;
    uint32_t head[2] = {m->n, m->at_start};
    siphash_init(&h, secret);
    siphash_add(&h, head, sizeof(head));
    for (uint32_t i = 0; i < m->n; i++)
        siphash_add(&h, &m->place[i],
                    offsetof(struct gram_place, back) + m->place[i].depth * sizeof(uint16_t));
    siphash_end(&h, key);
}

/* The entry of this set of places, or the empty one where it belongs. Lock held. */
static struct kept_mask *find_kept(struct grammar *g, const uint64_t key[2])
{
    uint32_t mask = 2 * g->cap_kept - 1, at = (uint32_t)key[0] & mask;
    while (g->kept[at].mask && (g->kept[at].key[0] != key[0] || g->kept[at].key[1] != key[1]))
        at = (at + 1) & mask;
    return &g->kept[at];
}

static const uint32_t *keep(struct grammar *g, const uint64_t key[2], const uint32_t *mask)
{
    uint32_t n_words = g->vocab->n_words;
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

const uint32_t *gram_mask(const struct gram_match *m, uint32_t *own, struct gram_scratch *s)
{
    struct grammar *g = (struct grammar *)m->g; /* the cache changes, under its lock */
    uint64_t key[2];
    if (g->cap_kept == 0) {
        make_mask(m, own, s);
        return own;
    }
    key_of(m, key);
    mutex_lock(&g->lock);
    const uint32_t *kept = find_kept(g, key)->mask;
    mutex_unlock(&g->lock);
    if (kept)
        return kept;
    make_mask(m, own, s);
    return keep(g, key, own);
}
