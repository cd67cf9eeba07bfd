/* Turns expressions into NFAs; see nfa.h. */
#include "engine/grammar/nfa.h"

#include "base/mem.h"

enum { STATE_STEPS = 6, EDGE_STEPS = 6 };

static uint32_t add_state(struct nfa *a)
{
    a->failed |= !exprs_spend(a->x, STATE_STEPS);
    if (a->n_states == a->cap_states) {
        uint32_t cap = a->cap_states ? 2 * a->cap_states : 256;
        a->edge0 = exprs_grow(a->x, a->edge0, a->cap_states, cap, sizeof(*a->edge0));
        a->cap_states = cap;
    }
    a->edge0[a->n_states] = 0;
    return a->n_states++;
}

static void too_many_edges(struct nfa *a)
{
    struct err e;
    err_set(&e, ERR_TOO_LARGE,
            "the grammar is too large: over %d transitions (repetitions count as often as they "
            "may occur)",
            NFA_MAX_EDGES);
    exprs_fail(a->x, &e);
    a->failed = true;
}

static void add_edge(struct nfa *a, uint32_t from, struct nfa_edge edge)
{
    if (a->n_edges >= NFA_MAX_EDGES)
        too_many_edges(a);
    a->failed |= !exprs_spend(a->x, EDGE_STEPS);
    if (a->failed)
        return;
    if (a->n_edges == a->cap_edges) {
        uint32_t cap = a->cap_edges ? 2 * a->cap_edges : 256;
        a->edge = exprs_grow(a->x, a->edge, a->cap_edges, cap, sizeof(*a->edge));
        a->cap_edges = cap;
    }
    edge.next = a->edge0[from];
    a->edge[a->n_edges] = edge;
    a->edge0[from] = a->n_edges++;
}

static void add_empty(struct nfa *a, uint32_t from, uint32_t to)
{
    add_edge(a, from, (struct nfa_edge){.kind = NFA_EMPTY, .to = to});
}

static void add_bytes(struct nfa *a, uint32_t from, uint32_t to, uint8_t first, uint8_t last)
{
    add_edge(a, from, (struct nfa_edge){.kind = NFA_BYTES, .to = to, .first = first, .last = last});
}

/* ---- code points as bytes ---- */

static uint32_t encode(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (uint32_t i = n; --i > 0; c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((0xf00 >> n) | c);
    return n;
}

/* Adds code points of one encoded length where all bytes after the first differing one take all values. */
static void add_block(struct nfa *a, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
    uint8_t low[4], high[4];
    uint32_t n = encode(first, low);
    encode(last, high);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = i + 1 == n ? to : add_state(a);
        add_bytes(a, from, next, low[i], high[i]);
        from = next;
    }
}

/* Splits a range until each part is a block (the usual construction; Thompson's UTF-8 ranges in RE2). */
static void add_range(struct nfa *a, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xffff, 0x10ffff};
    for (uint32_t i = 0; i < 5 && first <= last; i++) {
        uint32_t end = ends[i] < last ? ends[i] : last;
        if (first > ends[i])
            continue;
        if (i == 3 && first >= 0xd800 && first <= 0xdfff)
            first = 0xe000; /* surrogates have no encoding */
        while (first <= end) {
            uint32_t stop = end;
            for (uint32_t bits = 6; bits < 21 && end > 0x7f; bits += 6) {
                uint32_t mask = (1u << bits) - 1;
                if ((first & ~mask) == (end & ~mask))
                    continue; /* same leading bytes: finer splits are enough */
                if (first & mask) {
                    stop = first | mask;
                    break;
                }
                if ((end & mask) != mask && (end & ~mask) - 1 >= first)
                    stop = (end & ~mask) - 1;
            }
            if (stop > end)
                stop = end;
            add_block(a, from, to, first, stop);
            first = stop + 1;
        }
        first = ends[i] + 1;
    }
}

/* ---- expressions ---- */

static void build(struct nfa *a, expr_id id, uint32_t from, uint32_t to);

static void build_bytes(struct nfa *a, const struct expr *e, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < e->n && !a->failed; i++) {
        uint32_t next = i + 1 == e->n ? to : add_state(a);
        uint8_t byte = (uint8_t)a->x->byte[e->at + i];
        add_bytes(a, from, next, byte, byte);
        from = next;
    }
}

static void build_seq(struct nfa *a, const struct expr *e, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < e->n && !a->failed; i++) {
        uint32_t next = i + 1 == e->n ? to : add_state(a);
        build(a, a->x->child[e->at + i], from, next);
        from = next;
    }
}

/* Each optional copy has its own edge to the end, so that a state's closure stays small. */
static void build_repeat(struct nfa *a, const struct expr *e, uint32_t from, uint32_t to)
{
    expr_id child = a->x->child[e->at];
    uint32_t at = add_state(a);
    add_empty(a, from, at);
    for (uint32_t i = 0; i < e->min && !a->failed; i++) {
        uint32_t next = add_state(a);
        build(a, child, at, next);
        at = next;
    }
    if (e->max == EXPR_MANY) {
        uint32_t loop = add_state(a), back = add_state(a);
        add_empty(a, at, loop);
        build(a, child, loop, back);
        add_empty(a, back, loop);
        at = loop;
    }
    for (uint32_t i = e->min; e->max != EXPR_MANY && i < e->max && !a->failed; i++) {
        uint32_t next = add_state(a);
        add_empty(a, at, to);
        build(a, child, at, next);
        at = next;
    }
    add_empty(a, at, to);
}

static void build(struct nfa *a, expr_id id, uint32_t from, uint32_t to)
{
    const struct expr *e = &a->x->expr[id];
    switch (e->kind) {
    case EXPR_NEVER:
        break;
    case EXPR_EMPTY:
        add_empty(a, from, to);
        break;
    case EXPR_CLASS:
        for (uint32_t i = 0; i < e->n && !a->failed; i++)
            add_range(a, from, to, a->x->range[e->at + i].first, a->x->range[e->at + i].last);
        break;
    case EXPR_BYTES:
        build_bytes(a, e, from, to);
        break;
    case EXPR_SEQ:
        build_seq(a, e, from, to);
        break;
    case EXPR_ALT:
        for (uint32_t i = 0; i < e->n && !a->failed; i++)
            build(a, a->x->child[e->at + i], from, to);
        break;
    case EXPR_REPEAT:
        build_repeat(a, e, from, to);
        break;
    case EXPR_RULE:
        add_edge(a, from, (struct nfa_edge){.kind = NFA_CALL, .to = to, .rule = (uint16_t)e->at});
        break;
    }
}

bool nfa_build(struct exprs *x, struct nfa *out)
{
    struct nfa *a = out;
    *a = (struct nfa){.x = x};
    if (x->error.status)
        return false;
    a->start = mem_zalloc(mem_mul(x->n_rules, sizeof(uint32_t)));
    a->end = mem_zalloc(mem_mul(x->n_rules, sizeof(uint32_t)));
    uint32_t unused = add_state(a);
    add_edge(a, unused, (struct nfa_edge){.kind = NFA_EMPTY, .to = unused}); /* edge 0 */
    a->edge0[unused] = 0;
    for (uint32_t r = 0; r < x->n_rules && !a->failed; r++) {
        a->start[r] = add_state(a);
        a->end[r] = add_state(a);
        build(a, x->rule[r], a->start[r], a->end[r]);
    }
    return !a->failed;
}

void nfa_release(struct nfa *a)
{
    mem_free(a->edge0);
    mem_free(a->edge);
    mem_free(a->start);
    mem_free(a->end);
}
