/* Turns NFAs into deterministic automata, rule by rule (subset construction); see automaton.h. */
#include "engine/grammar/automaton.h"

#include <string.h>

#include "base/mem.h"
#include "engine/grammar/nfa.h"

enum {
    GATHER_COST = 8, /* steps that a transition of the set being made stands for: it takes memory */
    WALK_MAX_WORK = 16 * AUTOMATON_MAX_WORK /* looks at states or calls, each cheaper than a step */
};

struct set_slot {
    uint32_t hash, state; /* state 0: empty */
};

/* The construction of one rule. A deterministic state is a sorted list of NFA states, kept in `pool`. */
struct build {
    const struct nfa *nfa;
    struct automaton *a;
    uint32_t cap_states, cap_calls, n_calls;
    uint32_t *pool, n_pool, cap_pool; /* owns: members of all sets */
    uint32_t *set_at, *set_n; /* own: each state's members in pool */
    struct set_slot *slot; /* owns; of the current rule */
    uint32_t mask, n_slots;
    uint32_t *mark; /* owns [nfa states]: == stamp when in the set being built */
    uint32_t stamp;
    uint32_t *work, n_work, cap_work; /* owns: the set being built */
    uint32_t *target, n_target,
        cap_target; /* owns: pairs (class << 32 | state) apart: see gather */
    uint32_t *target_class;
    uint64_t n_steps;
    enum status status;
    struct err *e;
};

static void fail(struct build *b, const char *what, unsigned limit)
{
    if (!b->status)
        b->status =
            err_set(b->e, ERR_TOO_LARGE, "the grammar is too large: over %u %s", limit, what);
}

static uint32_t *push(uint32_t *array, uint32_t *n, uint32_t *cap, uint32_t x)
{
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 1024;
        array = mem_realloc(array, mem_mul(*cap, sizeof(*array)));
    }
    array[(*n)++] = x;
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
    for (uint32_t i = 0; i < b->n_work; i++) {
        for (uint32_t k = b->nfa->edge0[b->work[i]]; k; k = b->nfa->edge[k].next) {
            const struct nfa_edge *edge = &b->nfa->edge[k];
            b->n_steps++;
            if (edge->kind != NFA_EMPTY || b->mark[edge->to] == b->stamp)
                continue;
            b->mark[edge->to] = b->stamp;
            b->work = push(b->work, &b->n_work, &b->cap_work, edge->to);
        }
    }
}

static void sort(uint32_t *x, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < n; i++) {
            uint32_t moved = x[i], at = i;
            for (; at >= gap && x[at - gap] > moved; at -= gap)
                x[at] = x[at - gap];
            x[at] = moved;
        }
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
    }
    b->n_work = kept;
}

static uint32_t hash_work(const struct build *b)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < b->n_work; i++)
        h = (h ^ b->work[i]) * 16777619u;
    return h ^ h >> 15;
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

static uint32_t add_state(struct build *b)
{
    struct automaton *a = b->a;
    if (a->n_states >= AUTOMATON_MAX_STATES ||
        (uint64_t)a->n_states * a->n_classes * sizeof(uint16_t) > AUTOMATON_MAX_BYTES) {
        fail(b, "states", a->n_states);
        return 0;
    }
    if (a->n_states == b->cap_states) {
        b->cap_states *= 2;
        a->next = mem_realloc(a->next, mem_mul(mem_mul(b->cap_states, a->n_classes), 2));
        a->flags = mem_realloc(a->flags, b->cap_states);
        a->call0 = mem_realloc(a->call0, mem_mul((size_t)b->cap_states + 1, sizeof(uint32_t)));
        b->set_at = mem_realloc(b->set_at, mem_mul(b->cap_states, sizeof(uint32_t)));
        b->set_n = mem_realloc(b->set_n, mem_mul(b->cap_states, sizeof(uint32_t)));
    }
    uint32_t s = a->n_states++;
    memset(a->next + (size_t)s * a->n_classes, 0, a->n_classes * sizeof(uint16_t));
    a->flags[s] = 0;
    b->set_at[s] = b->n_pool;
    b->set_n[s] = b->n_work;
    for (uint32_t i = 0; i < b->n_work; i++)
        b->pool = push(b->pool, &b->n_pool, &b->cap_pool, b->work[i]);
    return s;
}

/* The state of the set in `work` (closed, sorted); created if it is new. */
static uint32_t intern(struct build *b, uint32_t end)
{
    close_over(b);
    drop_silent(b, end);
    if (b->n_work == 0)
        return 0; /* nothing can follow */
    sort(b->work, b->n_work);
    b->n_steps += b->n_work;
    uint32_t hash = hash_work(b), at = hash & b->mask;
    for (; b->slot[at].state; at = (at + 1) & b->mask) {
        uint32_t s = b->slot[at].state;
        if (b->slot[at].hash == hash && b->set_n[s] == b->n_work &&
            memcmp(b->pool + b->set_at[s], b->work, b->n_work * sizeof(uint32_t)) == 0)
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
    b->work = push(b->work, &b->n_work, &b->cap_work, state);
}

/* ---- transitions ---- */

/* One set can be enough for too much: asked for before it is collected. */
static bool too_long(struct build *b, uint64_t n_more)
{
    if (b->n_steps + n_more > AUTOMATON_MAX_WORK)
        fail(b, "steps of building", AUTOMATON_MAX_WORK);
    return b->status != OK;
}

/* The members' targets for each class: pairs in target_class and target, unordered. */
static void gather(struct build *b, uint32_t s)
{
    const struct automaton *a = b->a;
    b->n_target = 0;
    for (uint32_t i = 0; i < b->set_n[s] && !too_long(b, GATHER_COST * (uint64_t)b->n_target);
         i++) {
        uint32_t member = b->pool[b->set_at[s] + i];
        for (uint32_t k = b->nfa->edge0[member]; k; k = b->nfa->edge[k].next) {
            const struct nfa_edge *edge = &b->nfa->edge[k];
            if (edge->kind != NFA_BYTES)
                continue;
            for (uint32_t c = a->class_of[edge->first]; c <= a->class_of[edge->last]; c++) {
                if (b->n_target == b->cap_target) {
                    b->cap_target = b->cap_target ? 2 * b->cap_target : 1024;
                    b->target = mem_realloc(b->target, mem_mul(b->cap_target, sizeof(uint32_t)));
                    b->target_class =
                        mem_realloc(b->target_class, mem_mul(b->cap_target, sizeof(uint32_t)));
                }
                b->target_class[b->n_target] = c;
                b->target[b->n_target++] = edge->to;
            }
        }
    }
    b->n_steps += b->n_target;
}

static void add_transitions(struct build *b, uint32_t s, uint32_t end)
{
    gather(b, s);
    uint32_t count[257] = {0}, *sorted = mem_alloc(mem_mul((size_t)b->n_target + 1, 4));
    for (uint32_t i = 0; i < b->n_target; i++)
        count[b->target_class[i] + 1]++;
    for (uint32_t c = 0; c < 256; c++)
        count[c + 1] += count[c];
    uint32_t at[256];
    memcpy(at, count, sizeof(at));
    for (uint32_t i = 0; i < b->n_target; i++)
        sorted[at[b->target_class[i]]++] = b->target[i];
    for (uint32_t c = 0; c < b->a->n_classes && !b->status; c++) {
        if (count[c] == count[c + 1])
            continue;
        begin_set(b);
        for (uint32_t i = count[c]; i < count[c + 1]; i++)
            add_member(b, sorted[i]);
        uint32_t to = intern(b, end);
        b->a->next[(size_t)s * b->a->n_classes + c] = (uint16_t)to;
        b->a->flags[s] |= STATE_READS;
    }
    mem_free(sorted);
}

static void add_call(struct build *b, uint32_t s, uint16_t rule, uint32_t back)
{
    struct automaton *a = b->a;
    if (b->n_calls == b->cap_calls) {
        b->cap_calls = b->cap_calls ? 2 * b->cap_calls : 256;
        a->call = mem_realloc(a->call, mem_mul(b->cap_calls, sizeof(*a->call)));
    }
    a->call[b->n_calls++] = (struct automaton_call){rule, (uint16_t)back};
    a->flags[s] |= STATE_CALLS;
}

/* One call per rule that the set calls; its continuation is again a set. */
static void add_calls(struct build *b, uint32_t s, uint32_t end)
{
    b->n_target = 0;
    for (uint32_t i = 0; i < b->set_n[s]; i++) {
        uint32_t member = b->pool[b->set_at[s] + i];
        for (uint32_t k = b->nfa->edge0[member]; k; k = b->nfa->edge[k].next) {
            if (b->nfa->edge[k].kind != NFA_CALL)
                continue;
            uint32_t n = b->n_target, n_class = b->n_target;
            uint32_t cap = b->cap_target;
            b->target = push(b->target, &n, &cap, b->nfa->edge[k].to);
            if (cap != b->cap_target)
                b->target_class = mem_realloc(b->target_class, mem_mul(cap, sizeof(uint32_t)));
            b->cap_target = cap;
            b->target_class[n_class] = b->nfa->edge[k].rule;
            b->n_target = n;
        }
    }
    uint32_t n_pairs = b->n_target;
    if (too_long(b, (uint64_t)n_pairs * n_pairs))
        return;
    b->n_steps += (uint64_t)n_pairs * n_pairs;
    for (uint32_t i = 0; i < n_pairs && !b->status; i++) {
        uint32_t rule = b->target_class[i];
        bool seen = false;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = b->target_class[k] == rule;
        if (seen)
            continue;
        begin_set(b);
        for (uint32_t k = i; k < n_pairs; k++)
            if (b->target_class[k] == rule)
                add_member(b, b->target[k]);
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
    for (uint32_t s = first; s < a->n_states && !b->status; s++) {
        for (uint32_t i = 0; i < b->set_n[s]; i++)
            if (b->pool[b->set_at[s] + i] == end)
                a->flags[s] |= STATE_FINAL;
        add_transitions(b, s, end);
        a->call0[s] = b->n_calls;
        add_calls(b, s, end);
        too_long(b, 0);
    }
}

/* ---- left recursion ---- */

/* Rules that can match the empty text, found in rounds until no more are added. False: too many steps. */
static bool find_nullable(const struct automaton *a, bool *nullable)
{
    uint64_t n_steps = 0;
    bool *seen = mem_alloc(a->n_states);
    uint16_t *todo = mem_alloc(mem_mul(a->n_states, sizeof(*todo)));
    for (bool changed = true; changed && n_steps < WALK_MAX_WORK;) {
        changed = false;
        memset(seen, 0, a->n_states); /* states belong to one rule */
        n_steps += a->n_states / 16;
        for (uint32_t r = a->n_rules; r-- > 0;) {
            uint32_t n = 0;
            if (nullable[r])
                continue;
            todo[n++] = a->start[r];
            seen[a->start[r]] = true;
            for (uint32_t i = 0; i < n && !nullable[r]; i++) {
                nullable[r] = (a->flags[todo[i]] & STATE_FINAL) != 0;
                changed |= nullable[r];
                n_steps += 1 + a->call0[todo[i] + 1] - a->call0[todo[i]];
                for (uint32_t k = a->call0[todo[i]]; k < a->call0[todo[i] + 1]; k++) {
                    uint16_t back = a->call[k].back;
                    if (nullable[a->call[k].rule] && !seen[back]) {
                        seen[back] = true;
                        todo[n++] = back;
                    }
                }
            }
        }
    }
    mem_free(seen);
    mem_free(todo);
    return n_steps < WALK_MAX_WORK;
}

/* Checks whether a rule that r can call before it has read a byte leads back to r. A depth-first search with
 * colours; iterative, because there can be many rules. */
struct visit {
    uint16_t rule;
    uint32_t next; /* index in its list of first calls */
};

struct firsts {
    uint16_t *rule; /* owns */
    uint32_t n, cap;
    uint32_t *at; /* owns [n_rules + 1] */
};

static void add_first(struct firsts *f, uint16_t rule)
{
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 256;
        f->rule = mem_realloc(f->rule, mem_mul(f->cap, sizeof(*f->rule)));
    }
    f->rule[f->n++] = rule;
}

static void find_firsts(const struct automaton *a, const bool *nullable, struct firsts *f)
{
    bool *seen = mem_zalloc(a->n_states);
    uint16_t *todo = mem_alloc(mem_mul(a->n_states, sizeof(*todo)));
    f->at = mem_zalloc(mem_mul((size_t)a->n_rules + 1, sizeof(*f->at)));
    for (uint32_t r = 0; r < a->n_rules; r++) {
        uint32_t n = 0;
        f->at[r] = f->n;
        todo[n++] = a->start[r]; /* states belong to one rule: no need to clear `seen` */
        seen[a->start[r]] = true;
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = a->call0[todo[i]]; k < a->call0[todo[i] + 1]; k++) {
                uint16_t back = a->call[k].back;
                add_first(f, a->call[k].rule);
                if (nullable[a->call[k].rule] && !seen[back]) {
                    seen[back] = true;
                    todo[n++] = back;
                }
            }
        }
    }
    f->at[a->n_rules] = f->n;
    mem_free(seen);
    mem_free(todo);
}

static bool has_circle(const struct automaton *a, const struct firsts *f)
{
    enum { NEW, OPEN, CLOSED };
    uint8_t *colour = mem_zalloc(a->n_rules);
    struct visit *stack = mem_alloc(mem_mul(a->n_rules, sizeof(*stack)));
    bool circle = false;
    for (uint32_t r = 0; r < a->n_rules && !circle; r++) {
        uint32_t n = 0;
        if (colour[r] != NEW)
            continue;
        colour[r] = OPEN;
        stack[n++] = (struct visit){(uint16_t)r, f->at[r]};
        while (n && !circle) {
            struct visit *v = &stack[n - 1];
            if (v->next == f->at[v->rule + 1]) {
                colour[v->rule] = CLOSED;
                n--;
                continue;
            }
            uint16_t to = f->rule[v->next++];
            circle = colour[to] == OPEN;
            if (colour[to] != NEW)
                continue;
            colour[to] = OPEN;
            stack[n++] = (struct visit){to, f->at[to]};
        }
    }
    mem_free(colour);
    mem_free(stack);
    return circle;
}

static enum status check_recursion(const struct automaton *a, struct err *e)
{
    bool *nullable = mem_zalloc(a->n_rules);
    struct firsts f = {.n = 0};
    bool found = find_nullable(a, nullable), circle = false;
    if (found) {
        find_firsts(a, nullable, &f);
        circle = has_circle(a, &f);
    }
    mem_free(nullable);
    mem_free(f.rule);
    mem_free(f.at);
    if (!found)
        return err_set(e, ERR_TOO_LARGE,
                       "the grammar is too large: its empty rules take too long to find");
    if (circle)
        return err_set(e, ERR_INVALID,
                       "the grammar is left-recursive: a rule leads back to itself before it has "
                       "read anything");
    return OK;
}

/* ---- dead ends ---- */

static bool state_lives(const struct automaton *a, const bool *lives, uint32_t s)
{
    if (a->flags[s] & STATE_FINAL)
        return true;
    for (uint32_t k = a->call0[s]; k < a->call0[s + 1]; k++)
        if (lives[a->start[a->call[k].rule]] && lives[a->call[k].back])
            return true;
    const uint16_t *next = a->next + (size_t)s * a->n_classes;
    for (uint32_t c = 0; c < a->n_classes; c++)
        if (lives[next[c]])
            return true;
    return false;
}

/* States from which a rule can still end. Each round starts at the last state, because rules end late. */
static bool find_living(const struct automaton *a, bool *lives)
{
    uint64_t n_steps = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = a->n_states; s-- > 1;) {
            if (lives[s] || !state_lives(a, lives, s))
                continue;
            lives[s] = changed = true;
        }
        n_steps += (uint64_t)a->n_states * a->n_classes + a->call0[a->n_states];
        if (n_steps > WALK_MAX_WORK)
            return false;
    }
    return true;
}

/* Removes transitions into dead ends, so that every live match can be completed. */
static enum status prune(struct automaton *a, struct err *e)
{
    bool *lives = mem_zalloc(a->n_states);
    bool found = find_living(a, lives);
    uint32_t n_calls = 0, from = 0;
    for (uint32_t s = 0; s < a->n_states && found; s++) {
        uint16_t *next = a->next + (size_t)s * a->n_classes;
        uint32_t end = a->call0[s + 1];
        uint8_t flags = a->flags[s] & STATE_FINAL;
        for (uint32_t c = 0; c < a->n_classes; c++) {
            next[c] = lives[next[c]] ? next[c] : 0;
            flags |= next[c] ? STATE_READS : 0;
        }
        a->call0[s] = n_calls;
        for (; from < end; from++) {
            struct automaton_call call = a->call[from];
            if (!lives[a->start[call.rule]] || !lives[call.back])
                continue;
            a->call[n_calls++] = call;
            flags |= STATE_CALLS;
        }
        a->flags[s] = flags;
    }
    a->call0[a->n_states] = n_calls;
    for (uint32_t r = 0; r < a->n_rules && found; r++)
        a->start[r] = lives[a->start[r]] ? a->start[r] : 0;
    mem_free(lives);
    if (!found)
        return err_set(e, ERR_TOO_LARGE,
                       "the grammar is too large: its dead ends take too long to find");
    if (!a->start[0])
        return err_set(e, ERR_INVALID, "the grammar matches no text at all");
    return OK;
}

/* ---- the whole automaton ---- */

static void build_all(struct build *b)
{
    struct automaton *a = b->a;
    b->cap_states = 256;
    a->next = mem_zalloc(mem_mul(mem_mul(b->cap_states, a->n_classes), 2));
    a->flags = mem_zalloc(b->cap_states);
    a->call0 = mem_zalloc(mem_mul((size_t)b->cap_states + 1, sizeof(uint32_t)));
    b->set_at = mem_zalloc(mem_mul(b->cap_states, sizeof(uint32_t)));
    b->set_n = mem_zalloc(mem_mul(b->cap_states, sizeof(uint32_t)));
    b->mark = mem_zalloc(mem_mul(b->nfa->n_states, sizeof(uint32_t)));
    a->n_states = 1; /* the dead one */
    for (uint32_t r = 0; r < a->n_rules && !b->status; r++)
        build_rule(b, r);
    a->call0[a->n_states] = b->n_calls;
    mem_free(b->set_at);
    mem_free(b->set_n);
    mem_free(b->mark);
    mem_free(b->pool);
    mem_free(b->slot);
    mem_free(b->work);
    mem_free(b->target);
    mem_free(b->target_class);
}

enum status automaton_build(const struct exprs *x, uint64_t *n_steps, struct automaton *out,
                            struct err *e)
{
    struct nfa nfa;
    *out = (struct automaton){.n_rules = x->n_rules};
    enum status st = nfa_build(x, &nfa, e);
    if (!st) {
        struct build b = {.nfa = &nfa, .a = out, .n_steps = *n_steps + nfa.n_edges, .e = e};
        out->start = mem_zalloc(mem_mul(x->n_rules, sizeof(uint16_t)));
        find_classes(&nfa, out);
        build_all(&b);
        st = b.status;
        *n_steps = b.n_steps;
    }
    nfa_release(&nfa);
    if (!st)
        st = prune(out, e);
    if (!st)
        st = check_recursion(out, e);
    if (st)
        automaton_release(out);
    else
        automaton_find_plain(out);
    return st;
}

void automaton_release(struct automaton *a)
{
    mem_free(a->next);
    mem_free(a->flags);
    mem_free(a->plain);
    mem_free(a->call0);
    mem_free(a->call);
    mem_free(a->start);
    *a = (struct automaton){.n_states = 0};
}

uint64_t automaton_bytes(const struct automaton *a)
{
    uint64_t n_calls = a->n_states ? a->call0[a->n_states] : 0;
    return (uint64_t)a->n_states * (a->n_classes * 2 + 2 + 4) + n_calls * 4 + a->n_rules * 2;
}
