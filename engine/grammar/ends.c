/* How rules end: dead ends, which are removed, rules that match the empty text, left recursion, and how deep the stack
 * must become before a rule can end; see automaton.h.
 *
 * All of these ask for each state how many return states more than now must lie on the stack, at least, while its rule
 * is brought to its end: 0 for a final state, that of the next state behind a byte, and for a call the larger one of what
 * the state behind it needs and what the called rule needs, with 1 more unless the call is the last thing in its rule.
 * States are settled in order of this level, each once, from the final ones backwards. */
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/grammar.h"

enum { NO_LEVEL = 0xffff, LOOK_STEPS = 2 /* of a state or a transition */ };

/* Numbers grouped by what they lead to: those of group i are item[at[i]] to item[at[i + 1] - 1]. */
struct groups {
    uint32_t *at; /* owns [n + 1] */
    uint32_t *item; /* owns */
};

struct levels {
    const struct automaton *a;
    uint16_t *level; /* owns [n_states]; NO_LEVEL: the rule cannot end from there */
    bool *settled; /* owns [n_states] */
    bool reads; /* transitions by bytes count */
    uint32_t *caller; /* owns [n_calls]: the state of each call */
    struct groups before; /* states by the state that a byte leads to */
    struct groups of_rule, of_back; /* calls by rule, by the state behind */
    uint16_t *rule_at; /* owns [n_states]: the rule that starts there, plus 1 */
    uint16_t *now, *later; /* own [n_states]: states to settle at this level and at the next */
    uint32_t n_now, n_later;
    uint64_t n_bytes; /* taken */
};

static void groups_release(struct groups *g)
{
    mem_free(g->at);
    mem_free(g->item);
}

/* ---- what leads where ---- */

/* In the first pass `at` counts, and in the second it places. */
static void place(struct groups *g, bool counts, uint32_t group, uint32_t item)
{
    if (counts)
        g->at[group + 1]++;
    else
        g->item[g->at[group]++] = item;
}

static void begin_groups(struct groups *g, uint32_t n)
{
    g->at = mem_zalloc(mem_mul((size_t)n + 2, sizeof(*g->at)));
}

static void take(struct levels *l, struct exprs *x, uint64_t n_bytes)
{
    l->n_bytes += n_bytes;
    exprs_take(x, n_bytes);
}

static void sum_groups(struct groups *g, uint32_t n, struct levels *l, struct exprs *x)
{
    for (uint32_t i = 0; i < n; i++)
        g->at[i + 1] += g->at[i];
    take(l, x, g->at[n] * sizeof(*g->item));
    g->item = mem_alloc(mem_mul((size_t)g->at[n] + 1, sizeof(*g->item)));
}

static void end_groups(struct groups *g, uint32_t n)
{
    memmove(g->at + 1, g->at, n * sizeof(*g->at)); /* placing moved each to the next one's start */
    g->at[0] = 0;
}

static void group_bytes(struct levels *l, bool counts)
{
    const struct automaton *a = l->a;
    for (uint32_t s = 1; s < a->n_states; s++) {
        const uint16_t *next = a->next + (size_t)s * a->n_classes;
        for (uint32_t c = 0; c < a->n_classes; c++)
            if (next[c] && (c == 0 || next[c] != next[c - 1]))
                place(&l->before, counts, next[c], s);
    }
}

static void group_calls(struct levels *l, bool counts)
{
    const struct automaton *a = l->a;
    for (uint32_t k = 0; k < a->call0[a->n_states]; k++) {
        place(&l->of_rule, counts, a->call[k].rule, k);
        place(&l->of_back, counts, a->call[k].back, k);
    }
}

static void init_levels(struct levels *l, struct exprs *x)
{
    const struct automaton *a = l->a;
    uint32_t n = a->n_states;
    l->level = mem_alloc(mem_mul(n, sizeof(*l->level)));
    memset(l->level, 0xff, n * sizeof(*l->level));
    l->settled = mem_zalloc(n);
    l->caller = mem_alloc(mem_mul((size_t)a->call0[n] + 1, sizeof(*l->caller)));
    l->rule_at = mem_zalloc(mem_mul(n, sizeof(*l->rule_at)));
    l->now = mem_alloc(mem_mul(n, sizeof(*l->now)));
    l->later = mem_alloc(mem_mul(n, sizeof(*l->later)));
    begin_groups(&l->before, n);
    begin_groups(&l->of_rule, a->n_rules);
    begin_groups(&l->of_back, n);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t k = a->call0[s]; k < a->call0[s + 1]; k++)
            l->caller[k] = s;
    for (uint32_t r = 0; r < a->n_rules; r++)
        l->rule_at[a->start[r]] = (uint16_t)(r + 1); /* states belong to one rule */
    if (l->reads)
        group_bytes(l, true);
    group_calls(l, true);
    sum_groups(&l->before, n, l, x);
    sum_groups(&l->of_rule, a->n_rules, l, x);
    sum_groups(&l->of_back, n, l, x);
    if (l->reads)
        group_bytes(l, false);
    group_calls(l, false);
    end_groups(&l->before, n);
    end_groups(&l->of_rule, a->n_rules);
    end_groups(&l->of_back, n);
}

static void release_levels(struct levels *l, struct exprs *x)
{
    exprs_give(x, l->n_bytes);
    mem_free(l->level);
    mem_free(l->settled);
    mem_free(l->caller);
    mem_free(l->rule_at);
    mem_free(l->now);
    mem_free(l->later);
    groups_release(&l->before);
    groups_release(&l->of_rule);
    groups_release(&l->of_back);
}

/* ---- levels ---- */

/* A level of s was found: the present one or the next. */
static void offer(struct levels *l, uint32_t s, uint32_t level, uint32_t present)
{
    if (level >= l->level[s])
        return;
    l->level[s] = (uint16_t)level;
    if (level == present)
        l->now[l->n_now++] = (uint16_t)s;
    else
        l->later[l->n_later++] = (uint16_t)s;
}

static void offer_call(struct levels *l, uint32_t k, uint32_t present)
{
    const struct automaton *a = l->a;
    uint32_t start = a->start[a->call[k].rule], back = a->call[k].back;
    if (!l->settled[start] || !l->settled[back])
        return;
    uint32_t level = l->level[start] + (a->flags[back] != STATE_FINAL);
    offer(l, l->caller[k], level > l->level[back] ? level : l->level[back], present);
}

static void settle(struct levels *l, uint32_t s, uint32_t present)
{
    l->settled[s] = true;
    for (uint32_t i = l->before.at[s]; i < l->before.at[s + 1]; i++)
        offer(l, l->before.item[i], present, present);
    for (uint32_t i = l->of_back.at[s]; i < l->of_back.at[s + 1]; i++)
        offer_call(l, l->of_back.item[i], present);
    uint32_t rule = l->rule_at[s];
    for (uint32_t i = rule ? l->of_rule.at[rule - 1] : 0; rule && i < l->of_rule.at[rule]; i++)
        offer_call(l, l->of_rule.item[i], present);
}

/* A state may be offered twice, at a level and at the one before, and then stands in both lists: the lists have room for
 * each state once. */
static void find_levels(struct levels *l)
{
    const struct automaton *a = l->a;
    for (uint32_t s = 1; s < a->n_states; s++)
        if (a->flags[s] & STATE_FINAL)
            offer(l, s, 0, 0);
    for (uint32_t present = 0; l->n_now; present++) {
        for (uint32_t i = 0; i < l->n_now; i++)
            if (!l->settled[l->now[i]])
                settle(l, l->now[i], present);
        uint16_t *list = l->now;
        l->now = l->later;
        l->n_now = l->n_later;
        l->later = list;
        l->n_later = 0;
    }
}

/* False when it takes too many steps. Call release_levels in any case. */
static bool levels_of(struct levels *l, const struct automaton *a, bool reads, struct exprs *x)
{
    uint64_t n_looks =
        a->n_states * (reads ? 8ull + a->n_classes : 8) + 4ull * a->call0[a->n_states];
    *l = (struct levels){.a = a, .reads = reads};
    if (!exprs_spend(x, LOOK_STEPS * n_looks))
        return false;
    take(l, x, 24ull * a->n_states + 4ull * a->call0[a->n_states]);
    init_levels(l, x);
    if (x->error.status)
        return false;
    find_levels(l);
    return true;
}

/* ---- dead ends ---- */

/* Removes transitions and calls into states without a level, so that every match can be completed. */
static void prune(struct automaton *a, const uint16_t *level)
{
    uint32_t n_calls = 0, from = 0;
    for (uint32_t s = 0; s < a->n_states; s++) {
        uint16_t *next = a->next + (size_t)s * a->n_classes;
        uint32_t end = a->call0[s + 1];
        uint8_t flags = a->flags[s] & STATE_FINAL;
        for (uint32_t c = 0; c < a->n_classes; c++) {
            next[c] = level[next[c]] != NO_LEVEL ? next[c] : 0;
            flags |= next[c] ? STATE_READS : 0;
        }
        a->call0[s] = n_calls;
        for (; from < end; from++) {
            struct automaton_call call = a->call[from];
            if (level[a->start[call.rule]] == NO_LEVEL || level[call.back] == NO_LEVEL)
                continue;
            a->call[n_calls++] = call;
            flags |= STATE_CALLS;
        }
        a->flags[s] = flags;
    }
    a->call0[a->n_states] = n_calls;
    for (uint32_t r = 0; r < a->n_rules; r++)
        a->start[r] = level[a->start[r]] != NO_LEVEL ? a->start[r] : 0;
}

static void refuse(struct exprs *x, enum status status, const char *why)
{
    struct err e;
    err_set(&e, status, "%s", why);
    exprs_fail(x, &e);
}

static bool remove_dead_ends(struct automaton *a, struct exprs *x)
{
    struct levels l;
    if (levels_of(&l, a, true, x))
        prune(a, l.level);
    release_levels(&l, x);
    if (!x->error.status && !a->start[0])
        refuse(x, ERR_INVALID, "the grammar matches no text at all");
    return x->error.status == OK;
}

/* ---- left recursion ---- */

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

static void find_firsts(const struct automaton *a, const uint16_t *level, struct firsts *f)
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
                if (level[a->start[a->call[k].rule]] != NO_LEVEL && !seen[back]) {
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

/* level: without reading anything. */
static bool check_recursion(const struct automaton *a, struct exprs *x)
{
    struct firsts f = {.n = 0};
    struct levels l;
    bool circle = false;
    if (levels_of(&l, a, false, x)) {
        find_firsts(a, l.level, &f);
        circle = has_circle(a, &f);
    }
    release_levels(&l, x);
    mem_free(f.rule);
    mem_free(f.at);
    if (circle)
        refuse(x, ERR_INVALID,
               "the grammar is left-recursive: a rule leads back to itself before it has read "
               "anything");
    return x->error.status == OK;
}

/* ---- nesting ---- */

static void find_need(struct automaton *a, struct exprs *x)
{
    struct levels l;
    struct err e;
    a->need = mem_zalloc(a->n_states);
    if (levels_of(&l, a, true, x)) {
        uint32_t least = l.level[a->start[0]];
        for (uint32_t s = 1; s < a->n_states; s++)
            a->need[s] = l.level[s] < AUTOMATON_NEED_MAX ? (uint8_t)l.level[s] : AUTOMATON_NEED_MAX;
        if (least > GRAM_MAX_DEPTH) {
            err_set(&e, ERR_TOO_LARGE,
                    "the grammar is too deep: every text needs rules nested at least %u deep, the "
                    "limit is %d",
                    least, GRAM_MAX_DEPTH);
            exprs_fail(x, &e);
        }
    }
    release_levels(&l, x);
}

void automaton_find_ends(struct automaton *a, struct exprs *x)
{
    if (remove_dead_ends(a, x) && check_recursion(a, x))
        find_need(a, x);
}
