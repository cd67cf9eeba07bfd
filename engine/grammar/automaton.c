/* Turns NFAs into deterministic automata, rule by rule (subset construction); see automaton.h. */
#include "engine/grammar/automaton.h"

#include <string.h>

#include "base/mem.h"
#include "engine/grammar/nfa.h"

enum {
    TARGET_STEPS = 6, /* a transition of the set being made */
    MEMBER_STEPS = 4, /* a member of a new state: it takes memory */
    STATE_STEPS = 64
};

struct set_slot {
    uint32_t hash, state; /* state 0: empty */
};

struct target {
    uint32_t to; /* NFA state */
    uint32_t by; /* the class or the rule that leads there */
    uint32_t next; /* of a rule: the next target with it, 0: none */
};

/* The construction of one rule. A deterministic state is a set of NFA states, a list in `pool`. */
struct build {
    struct exprs *x;
    const struct nfa *nfa;
    struct automaton *a;
    uint32_t cap_states, cap_calls, n_calls;
    uint32_t *pool, n_pool, cap_pool; /* owns: members of all sets */
    uint32_t *set_at, *set_n; /* own: each state's members in pool */
    struct set_slot *slot; /* owns; of the current rule */
    uint32_t mask, n_slots;
    uint32_t *mark; /* owns [nfa states]: the stamp of the set being built for its members */
    uint32_t stamp;
    uint32_t *work, n_work, cap_work; /* owns: the set being built */
    struct target *target; /* owns: of the state in hand */
    uint32_t n_target, cap_target;
    uint32_t *sorted, cap_sorted; /* owns: its targets by class */
    uint32_t *of_rule; /* owns [n_rules]: its first target of the rule, plus 1 */
};

static bool failed(const struct build *b)
{
    return b->x->error.status != OK;
}

static void too_many_states(struct build *b)
{
    struct err e;
    err_set(&e, ERR_TOO_LARGE, "the grammar is too large: over %u states", b->a->n_states);
    exprs_fail(b->x, &e);
}

static uint32_t *push(struct build *b, uint32_t *array, uint32_t *n, uint32_t *cap, uint32_t item)
{
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 1024;
        array = exprs_grow(b->x, array, *n, *cap, sizeof(*array));
    }
    array[(*n)++] = item;
    return array;
}

/* ---- byte classes ---- */

static void find_classes(const struct nfa *nfa, struct automaton *a)
{
    bool starts[257] = {true};
    for (uint32_t i = 1; i < nfa->n_edges; i++) {
        if (nfa->edge[i].kind != NFA_BYTES)
            continue;
        starts[nfa->edge[i].first] = true;
        starts[nfa->edge[i].last + 1] = true;
    }
    uint32_t n = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        n += byte > 0 && starts[byte];
        a->class_of[byte] = (uint8_t)n;
    }
    a->n_classes = n + 1;
}

/* ---- sets ---- */

static void close_over(struct build *b)
{
    for (uint32_t i = 0; i < b->n_work && !failed(b); i++) {
        uint32_t n = 0;
        for (uint32_t k = b->nfa->edge0[b->work[i]]; k; k = b->nfa->edge[k].next, n++) {
            const struct nfa_edge *edge = &b->nfa->edge[k];
            if (edge->kind != NFA_EMPTY || b->mark[edge->to] == b->stamp)
                continue;
            b->mark[edge->to] = b->stamp;
            b->work = push(b, b->work, &b->n_work, &b->cap_work, edge->to);
        }
        exprs_spend(b->x, 4 + 2 * n); /* seldom in the cache */
    }
}

/* States with only empty edges carry no information: without them more sets turn out equal. */
static void drop_silent(struct build *b, uint32_t end)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->n_work; i++) {
        bool speaks = b->work[i] == end;
        for (uint32_t k = b->nfa->edge0[b->work[i]]; k && !speaks; k = b->nfa->edge[k].next)
            speaks = b->nfa->edge[k].kind != NFA_EMPTY;
        if (speaks)
            b->work[kept++] = b->work[i];
        else
            b->mark[b->work[i]] = 0;
    }
    b->n_work = kept;
}

/* Equal for all orders of the members. */
static uint32_t hash_work(const struct build *b)
{
    uint64_t sum = b->n_work;
    for (uint32_t i = 0; i < b->n_work; i++) {
        uint64_t x = (b->work[i] + 1) * 0x9e3779b97f4a7c15ull;
        sum += (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
    }
    return (uint32_t)(sum >> 32);
}

static bool is_work(const struct build *b, uint32_t s)
{
    if (b->set_n[s] != b->n_work)
        return false;
    for (uint32_t i = 0; i < b->n_work; i++)
        if (b->mark[b->pool[b->set_at[s] + i]] != b->stamp)
            return false;
    return true;
}

static void grow_slots(struct build *b)
{
    struct set_slot *old = b->slot;
    uint32_t n_old = old ? b->mask + 1 : 0;
    b->mask = n_old ? 2 * n_old - 1 : 255;
    b->slot = mem_zalloc(mem_mul(b->mask + 1, sizeof(*b->slot)));
    for (uint32_t i = 0; i < n_old; i++) {
        if (!old[i].state)
            continue;
        uint32_t at = old[i].hash & b->mask;
        while (b->slot[at].state)
            at = (at + 1) & b->mask;
        b->slot[at] = old[i];
    }
    mem_free(old);
}

/* Of the tables that grow with the states. */
static uint64_t state_bytes(const struct automaton *a)
{
    return a->n_classes * sizeof(uint16_t) + 1 + 3 * sizeof(uint32_t);
}

static uint32_t add_state(struct build *b)
{
    struct automaton *a = b->a;
    if (a->n_states >= AUTOMATON_MAX_STATES ||
        (uint64_t)a->n_states * a->n_classes * sizeof(uint16_t) > AUTOMATON_MAX_BYTES) {
        too_many_states(b);
        return 0;
    }
    if (a->n_states == b->cap_states) {
        exprs_take(b->x, (uint64_t)b->cap_states * state_bytes(a));
        b->cap_states *= 2;
        a->next = mem_realloc(a->next, mem_mul(mem_mul(b->cap_states, a->n_classes), 2));
        a->flags = mem_realloc(a->flags, b->cap_states);
        a->call0 = mem_realloc(a->call0, mem_mul((size_t)b->cap_states + 1, sizeof(uint32_t)));
        b->set_at = mem_realloc(b->set_at, mem_mul(b->cap_states, sizeof(uint32_t)));
        b->set_n = mem_realloc(b->set_n, mem_mul(b->cap_states, sizeof(uint32_t)));
    }
    exprs_spend(b->x, STATE_STEPS + a->n_classes / 8 + (uint64_t)b->n_work * MEMBER_STEPS);
    uint32_t s = a->n_states++;
    memset(a->next + (size_t)s * a->n_classes, 0, a->n_classes * sizeof(uint16_t));
    a->flags[s] = 0;
    b->set_at[s] = b->n_pool;
    b->set_n[s] = b->n_work;
    for (uint32_t i = 0; i < b->n_work; i++)
        b->pool = push(b, b->pool, &b->n_pool, &b->cap_pool, b->work[i]);
    return s;
}

/* The state of the set in `work`, which is closed first; created if it is new. */
static uint32_t intern(struct build *b, uint32_t end)
{
    close_over(b);
    drop_silent(b, end);
    if (b->n_work == 0 || failed(b))
        return 0; /* nothing can follow */
    uint32_t hash = hash_work(b), at = hash & b->mask;
    for (; b->slot[at].state; at = (at + 1) & b->mask) {
        uint32_t s = b->slot[at].state;
        if (b->slot[at].hash == hash && is_work(b, s))
            return s;
    }
    uint32_t s = add_state(b);
    b->slot[at] = (struct set_slot){hash, s};
    if (2 * ++b->n_slots > b->mask)
        grow_slots(b);
    return s;
}

static void begin_set(struct build *b)
{
    b->stamp++;
    b->n_work = 0;
}

static void add_member(struct build *b, uint32_t state)
{
    if (b->mark[state] == b->stamp)
        return;
    b->mark[state] = b->stamp;
    b->work = push(b, b->work, &b->n_work, &b->cap_work, state);
}

/* ---- transitions ---- */

static void add_target(struct build *b, uint32_t to, uint32_t by)
{
    if (b->n_target == b->cap_target) {
        uint32_t cap = b->cap_target ? 2 * b->cap_target : 1024;
        b->target = exprs_grow(b->x, b->target, b->cap_target, cap, sizeof(*b->target));
        b->cap_target = cap;
    }
    b->target[b->n_target++] = (struct target){to, by, 0};
}

/* The members' targets by class, unordered, or the rules that they call with the states behind. */
static void gather(struct build *b, uint32_t s, enum nfa_kind kind)
{
    const struct automaton *a = b->a;
    b->n_target = 0;
    for (uint32_t i = 0; i < b->set_n[s] && !failed(b); i++) {
        uint32_t member = b->pool[b->set_at[s] + i];
        for (uint32_t k = b->nfa->edge0[member]; k; k = b->nfa->edge[k].next) {
            const struct nfa_edge *edge = &b->nfa->edge[k];
            bool bytes = edge->kind == NFA_BYTES;
            uint32_t first = bytes ? a->class_of[edge->first] : edge->rule;
            uint32_t last = bytes ? a->class_of[edge->last] : edge->rule;
            bool wanted = edge->kind == kind;
            if (!exprs_spend(b->x, wanted ? 1 + (uint64_t)(last - first + 1) * TARGET_STEPS : 1))
                break; /* one state can be too much */
            for (uint32_t by = first; wanted && by <= last; by++)
                add_target(b, edge->to, by);
        }
    }
}

/* Fills b->sorted with the targets by class; count[c]: where those of class c start. */
static void sort_targets(struct build *b, uint32_t count[257])
{
    uint32_t n_classes = b->a->n_classes, at[256];
    if (b->n_target > b->cap_sorted) {
        b->sorted = exprs_grow(b->x, b->sorted, b->cap_sorted, b->cap_target, sizeof(*b->sorted));
        b->cap_sorted = b->cap_target;
    }
    memset(count, 0, (n_classes + 1) * sizeof(*count));
    for (uint32_t i = 0; i < b->n_target; i++)
        count[b->target[i].by + 1]++;
    for (uint32_t c = 0; c < n_classes; c++)
        count[c + 1] += count[c];
    memcpy(at, count, n_classes * sizeof(*at));
    for (uint32_t i = 0; i < b->n_target; i++)
        b->sorted[at[b->target[i].by]++] = b->target[i].to;
}

static void add_transitions(struct build *b, uint32_t s, uint32_t end)
{
    uint32_t count[257];
    gather(b, s, NFA_BYTES);
    if (b->n_target == 0)
        return;
    sort_targets(b, count);
    for (uint32_t c = 0; c < b->a->n_classes && !failed(b); c++) {
        if (count[c] == count[c + 1])
            continue;
        begin_set(b);
        for (uint32_t i = count[c]; i < count[c + 1]; i++)
            add_member(b, b->sorted[i]);
        uint32_t to = intern(b, end);
        b->a->next[(size_t)s * b->a->n_classes + c] = (uint16_t)to;
        b->a->flags[s] |= STATE_READS;
    }
}

static void add_call(struct build *b, uint32_t s, uint16_t rule, uint32_t back)
{
    struct automaton *a = b->a;
    if (b->n_calls == b->cap_calls) {
        uint32_t cap = b->cap_calls ? 2 * b->cap_calls : 256;
        a->call = exprs_grow(b->x, a->call, b->cap_calls, cap, sizeof(*a->call));
        b->cap_calls = cap;
    }
    a->call[b->n_calls++] = (struct automaton_call){rule, (uint16_t)back};
    a->flags[s] |= STATE_CALLS;
}

/* One call per rule that the set calls; its continuation is again a set. */
static void add_calls(struct build *b, uint32_t s, uint32_t end)
{
    gather(b, s, NFA_CALL);
    for (uint32_t i = b->n_target; i-- > 0;) { /* lists of targets with the same rule */
        b->target[i].next = b->of_rule[b->target[i].by];
        b->of_rule[b->target[i].by] = i + 1;
    }
    for (uint32_t i = 0; i < b->n_target; i++) {
        uint32_t rule = b->target[i].by, k = b->of_rule[rule];
        b->of_rule[rule] = 0;
        if (!k || failed(b))
            continue;
        begin_set(b);
        for (; k; k = b->target[k - 1].next)
            add_member(b, b->target[k - 1].to);
        add_call(b, s, (uint16_t)rule, intern(b, end));
    }
}

static void build_rule(struct build *b, uint32_t rule)
{
    struct automaton *a = b->a;
    uint32_t end = b->nfa->end[rule], first = a->n_states;
    mem_free(b->slot);
    b->slot = NULL;
    b->n_slots = 0;
    b->n_pool = 0;
    grow_slots(b);
    begin_set(b);
    add_member(b, b->nfa->start[rule]);
    a->start[rule] = (uint16_t)intern(b, end);
    for (uint32_t s = first; s < a->n_states && !failed(b); s++) {
        for (uint32_t i = 0; i < b->set_n[s]; i++)
            if (b->pool[b->set_at[s] + i] == end)
                a->flags[s] |= STATE_FINAL;
        add_transitions(b, s, end);
        a->call0[s] = b->n_calls;
        add_calls(b, s, end);
    }
}

/* ---- the whole automaton ---- */

static void build_all(struct build *b)
{
    struct automaton *a = b->a;
    b->cap_states = 256;
    exprs_take(b->x, b->cap_states * state_bytes(a) + b->nfa->n_states * sizeof(uint32_t));
    a->next = mem_zalloc(mem_mul(mem_mul(b->cap_states, a->n_classes), 2));
    a->flags = mem_zalloc(b->cap_states);
    a->call0 = mem_zalloc(mem_mul((size_t)b->cap_states + 1, sizeof(uint32_t)));
    b->set_at = mem_zalloc(mem_mul(b->cap_states, sizeof(uint32_t)));
    b->set_n = mem_zalloc(mem_mul(b->cap_states, sizeof(uint32_t)));
    b->mark = mem_zalloc(mem_mul(b->nfa->n_states, sizeof(uint32_t)));
    b->of_rule = mem_zalloc(mem_mul(a->n_rules, sizeof(uint32_t)));
    a->n_states = 1; /* the dead one */
    for (uint32_t r = 0; r < a->n_rules && !failed(b); r++)
        build_rule(b, r);
    a->call0[a->n_states] = b->n_calls;
    mem_free(b->set_at);
    mem_free(b->set_n);
    mem_free(b->mark);
    mem_free(b->pool);
    mem_free(b->slot);
    mem_free(b->work);
    mem_free(b->target);
    mem_free(b->sorted);
    mem_free(b->of_rule);
}

enum status automaton_build(struct exprs *x, struct automaton *out, struct err *e)
{
    struct nfa nfa;
    *out = (struct automaton){.n_rules = x->n_rules};
    if (nfa_build(x, &nfa)) {
        struct build b = {.x = x, .nfa = &nfa, .a = out};
        out->start = mem_zalloc(mem_mul(x->n_rules, sizeof(uint16_t)));
        find_classes(&nfa, out);
        build_all(&b);
    }
    nfa_release(&nfa);
    if (!x->error.status)
        automaton_find_ends(out, x);
    if (!x->error.status)
        automaton_find_plain(out, x);
    if (!x->error.status)
        return OK;
    automaton_release(out);
    *e = x->error;
    return e->status;
}

void automaton_release(struct automaton *a)
{
    mem_free(a->next);
    mem_free(a->flags);
    mem_free(a->plain);
    mem_free(a->need);
    mem_free(a->call0);
    mem_free(a->call);
    mem_free(a->start);
    *a = (struct automaton){.n_states = 0};
}

uint64_t automaton_bytes(const struct automaton *a)
{
    uint64_t n_calls = a->n_states ? a->call0[a->n_states] : 0;
    return (uint64_t)a->n_states * (a->n_classes * 2 + 3 + 4) + n_calls * 4 + a->n_rules * 2;
}
