/* Runs the automaton over text and over the whole vocabulary; see grammar.h.
 *
 * A text can be at several places at once: pairs of a state and a stack of return states. While bytes are
 * processed, stacks are chains of nodes that share their lower parts, in a scratch that is truncated when
 * the walk over the vocabulary backtracks; between tokens they are kept as plain arrays (gram_place). */
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "engine/grammar/grammar_int.h"

enum {
    MAX_SET = 256, /* states that a text is at, including those with only calls */
    MAX_REFS = 1 << 15,
    MAX_NODES = 1 << 15,
    MAX_LEVELS = 256 /* bytes of a token, plus the start */
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
    uint64_t n_steps; /* of the mask or the token in progress */
    bool overflow; /* of the set being built */
    bool dropped; /* a set overflowed, since load */
};

struct gram_scratch *gram_scratch_new(void)
{
    return mem_zalloc(sizeof(struct gram_scratch));
}

void gram_scratch_free(struct gram_scratch *s)
{
    mem_free(s);
}

/* ---- sets of places ---- */

/* A place from which the rules above it cannot be ended within the stack's bound is left out. */
static void enter(const struct automaton *a, struct gram_scratch *s, uint16_t state, uint32_t stack)
{
    uint32_t n = s->n_refs - s->first;
    s->n_steps += 1 + n / 4;
    if (s->node[stack].depth + a->need[state] > GRAM_MAX_DEPTH)
        return;
    for (uint32_t i = s->first; i < s->n_refs; i++)
        if (s->ref[i].state == state && s->ref[i].stack == stack)
            return;
    if (s->n_refs == MAX_REFS || n == MAX_SET) {
        s->overflow = true;
        return;
    }
    s->ref[s->n_refs++] = (struct ref){stack, state};
}

/* The node of a return state on top of a stack; 0 when there is no room, the stack is too deep, or the rule that goes on
 * there could not end. */
static uint32_t push(const struct automaton *a, struct gram_scratch *s, uint16_t back,
                     uint32_t below)
{
    s->n_steps += 1 + s->n_nodes / 4;
    if (s->node[below].depth + a->need[back] > GRAM_MAX_DEPTH)
        return 0;
    for (uint32_t i = 1; i < s->n_nodes;
         i++) /* equal stacks are one: places are compared by them */
        if (s->node[i].back == back && s->node[i].below == below)
            return i;
    if (s->n_nodes == MAX_NODES || s->node[below].depth == GRAM_MAX_DEPTH)
        return 0;
    s->node[s->n_nodes] = (struct node){below, back, (uint16_t)(s->node[below].depth + 1)};
    return s->n_nodes++;
}

static bool spent(const struct gram_scratch *s)
{
    return s->n_steps > GRAM_MAX_STEPS;
}

/* Follows calls and ends of rules. A call in tail position needs no return state. */
static void follow(const struct automaton *a, struct gram_scratch *s)
{
    for (uint32_t i = s->first; i < s->n_refs && !s->overflow && !spent(s); i++) {
        struct ref r = s->ref[i];
        for (uint32_t k = a->call0[r.state]; k < a->call0[r.state + 1] && !s->overflow; k++) {
            struct automaton_call call = a->call[k];
            uint32_t stack = r.stack;
            if (a->flags[call.back] != STATE_FINAL) {
                stack = push(a, s, call.back, r.stack);
                if (!stack)
                    continue; /* nothing that deep is allowed */
            }
            enter(a, s, a->start[call.rule], stack);
        }
        if ((a->flags[r.state] & STATE_FINAL) && r.stack)
            enter(a, s, s->node[r.stack].back, s->node[r.stack].below);
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
    s->overflow |= kept - s->first > GRAM_MAX_PLACES;
    s->n_refs = s->overflow || spent(s) ? s->first : kept;
    s->dropped |= s->overflow;
    s->overflow = false;
}

/* Makes level d from level d - 1. False: the byte is not possible there. */
static bool step(const struct automaton *a, struct gram_scratch *s, uint32_t d, uint8_t byte)
{
    const struct level *from = &s->level[d - 1];
    s->first = s->n_refs = from->end;
    s->n_nodes = from->n_nodes;
    bool plain = true;
    for (uint32_t i = from->first; i < from->end; i++) {
        uint16_t next = automaton_next(a, s->ref[i].state, byte);
        if (!next)
            continue;
        plain &= a->flags[next] == STATE_READS;
        enter(a, s, next, s->ref[i].stack);
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
    s->n_nodes = 1;
    s->node[0] = (struct node){0, 0, 0};
    s->n_steps = 0;
    s->overflow = s->dropped = false;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t stack = 0;
        for (uint32_t d = 0; d < m->place[i].depth; d++)
            stack = push(&m->g->a, s, m->place[i].back[d], stack);
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

uint64_t gram_scratch_steps(const struct gram_scratch *s)
{
    return s->n_steps;
}

static void begin_at(struct gram_match *m, const struct grammar *g, uint16_t state,
                     struct gram_scratch *s)
{
    *m = (struct gram_match){.g = g};
    load(m, s);
    enter(&g->a, s, state, 0);
    follow(&g->a, s);
    tidy(&g->a, s);
}

void gram_match_init(struct gram_match *m, const struct grammar *g, struct gram_scratch *s)
{
    begin_at(m, g, g->a.start[0], s);
    s->level[0] = (struct level){s->first, s->n_refs, s->n_nodes};
    store(m, s, &s->level[0]);
}

bool gram_state_fits(const struct grammar *g, uint16_t state, struct gram_scratch *s,
                     uint64_t *n_steps)
{
    struct gram_match none;
    begin_at(&none, g, state, s);
    *n_steps += s->n_steps;
    return !s->dropped && !spent(s);
}

bool gram_match_bytes(struct gram_match *m, struct str bytes, struct gram_scratch *s)
{
    for (size_t i = 0; i < bytes.len && m->n;) {
        uint32_t d = 0;
        load(m, s);
        while (i < bytes.len && d + 1 < MAX_LEVELS) {
            if (!step(&m->g->a, s, ++d, (uint8_t)bytes.ptr[i++])) {
                m->n = 0;
                return false;
            }
        }
        store(m, s, &s->level[d]);
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
    for (uint32_t i = 1; i < tree->n_nodes && !spent(s);) {
        uint32_t d = tree->depth[i];
        bool lives = d == 1 ? first_step(m, s, tree->byte[i]) : step(a, s, d, tree->byte[i]);
        if (lives && tree->token[i] >= 0)
            allow(v, tree->token[i], mask);
        i = lives ? i + 1 : tree->skip[i];
    }
    for (uint32_t i = 0; m->at_start && i < v->n_odd; i++)
        mask[v->odd[i] / 32] &= ~(1u << (v->odd[i] % 32));
}

/* What takes too many steps allows nothing: a mask of what was found by then would depend on the order of the walk. */
static void make_mask(const struct gram_match *m, uint32_t *mask, struct gram_scratch *s)
{
    const struct gram_vocab *v = m->g->vocab;
    memset(mask, 0, v->n_words * sizeof(uint32_t));
    load(m, s);
    if (m->n)
        walk(m, mask, s);
    if (spent(s))
        memset(mask, 0, v->n_words * sizeof(uint32_t));
    else if (gram_match_complete(m))
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

const uint32_t *gram_mask(const struct gram_match *m, uint32_t *own, struct gram_scratch *s)
{
    struct grammar *g = (struct grammar *)m->g; /* the cache changes, under its lock */
    uint64_t key[2];
    key_of(m, key);
    const uint32_t *kept = grammar_kept_mask(g, key);
    if (kept)
        return kept;
    make_mask(m, own, s);
    return grammar_keep_mask(g, key, own);
}

enum gram_limit gram_mask_limit(const struct gram_match *m, uint32_t *own, struct gram_scratch *s)
{
    make_mask(m, own, s);
    for (uint32_t i = 0; i < m->g->vocab->n_words; i++)
        if (own[i])
            return GRAM_NO_LIMIT;
    return spent(s) ? GRAM_LIMIT_STEPS : s->dropped ? GRAM_LIMIT_PLACES : GRAM_LIMIT_TOKENS;
}
