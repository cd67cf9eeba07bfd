/* Builds expressions; see expr.h. */
#include "engine/grammar/expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "config/ledger.h"

enum {
    NEVER = 0,
    EMPTY = 1,
    LAST_CODE_POINT = 0x10ffff,
    EXPR_STEPS = 16, /* of an expression */
    RANGE_STEPS = 8 /* of a range: they are sorted */
};

expr_id exprs_fail(struct exprs *x, const struct err *e)
{
    if (!x->error.status)
        x->error = *e;
    return NEVER;
}

void exprs_take(struct exprs *x, uint64_t n_bytes)
{
    struct err e;
    if (x->held && ledger_take(x->held, LEDGER_GRAMMARS, n_bytes, &e)) {
        ledger_add(x->held, LEDGER_GRAMMARS, n_bytes); /* it is there for a moment */
        exprs_fail(x, &e);
    }
}

void exprs_give(struct exprs *x, uint64_t n_bytes)
{
    if (x->held)
        ledger_give(x->held, LEDGER_GRAMMARS, n_bytes);
}

void *exprs_grow(struct exprs *x, void *array, size_t n, size_t n_more, size_t size)
{
    exprs_take(x, mem_mul(n_more - n, size));
    return mem_realloc(array, mem_mul(n_more, size));
}

static void *grow(struct exprs *x, void *array, uint32_t n, uint32_t *cap, uint32_t n_more,
                  size_t size)
{
    uint32_t before = *cap;
    if (n + n_more <= *cap)
        return array;
    while (*cap < n + n_more)
        *cap = *cap ? *cap * 2 : 64;
    return exprs_grow(x, array, before, *cap, size);
}

bool exprs_overspent(struct exprs *x)
{
    struct err e;
    err_set(&e, ERR_TOO_LARGE, "the grammar is too large: over %d steps of compiling",
            EXPRS_MAX_STEPS);
    exprs_fail(x, &e);
    return false;
}

static expr_id too_many(struct exprs *x)
{
    struct err e;
    err_set(&e, ERR_TOO_LARGE, "the grammar is too large: over %d expressions or rules", EXPR_MAX);
    return exprs_fail(x, &e);
}

static expr_id add(struct exprs *x, struct expr e)
{
    if (x->error.status || !exprs_spend(x, EXPR_STEPS))
        return NEVER;
    if (x->n >= EXPR_MAX || x->n_children > EXPR_MAX || x->n_ranges > EXPR_MAX ||
        x->n_bytes > 16 * EXPR_MAX || e.depth > EXPR_MAX_DEPTH)
        return too_many(x);
    x->expr = grow(x, x->expr, x->n, &x->cap, 1, sizeof(*x->expr));
    x->expr[x->n] = e;
    return x->n++;
}

void exprs_init(struct exprs *x)
{
    *x = (struct exprs){.n = 0};
    expr_id never = add(x, (struct expr){.kind = EXPR_NEVER});
    expr_id empty = add(x, (struct expr){.kind = EXPR_EMPTY});
    CHECK(never == NEVER && empty == EMPTY);
    exprs_add_rule(x);
}

void exprs_release(struct exprs *x)
{
    mem_free(x->expr);
    mem_free(x->child);
    mem_free(x->range);
    mem_free(x->byte);
    mem_free(x->rule);
    *x = (struct exprs){.n = 0};
}

expr_id expr_never(struct exprs *x)
{
    (void)x;
    return NEVER;
}

expr_id expr_empty(struct exprs *x)
{
    (void)x;
    return EMPTY;
}

/* ---- classes ---- */

static int by_first(const void *a, const void *b)
{
    uint32_t x = ((const struct expr_range *)a)->first, y = ((const struct expr_range *)b)->first;
    return (x > y) - (x < y);
}

/* Merges sorted ranges that may overlap into sorted ranges that do not touch; returns their number. */
static uint32_t join_ranges(struct expr_range *r, uint32_t n)
{
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (n_out && r[i].first <= r[n_out - 1].last + 1) {
            if (r[i].last > r[n_out - 1].last)
                r[n_out - 1].last = r[i].last;
        } else {
            r[n_out++] = r[i];
        }
    }
    return n_out;
}

static uint32_t negate_ranges(const struct expr_range *r, uint32_t n, struct expr_range *out)
{
    uint32_t n_out = 0, next = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (r[i].first > next)
            out[n_out++] = (struct expr_range){next, r[i].first - 1};
        next = r[i].last + 1;
    }
    if (next <= LAST_CODE_POINT)
        out[n_out++] = (struct expr_range){next, LAST_CODE_POINT};
    return n_out;
}

expr_id expr_class(struct exprs *x, const struct expr_range *range, uint32_t n, bool negated)
{
    if (x->error.status || n > EXPR_MAX)
        return x->error.status ? NEVER : too_many(x);
    if (!exprs_spend(x, (uint64_t)n * RANGE_STEPS))
        return NEVER;
    struct expr_range *r = mem_alloc(mem_mul(2 * (size_t)n + 2, sizeof(*r)));
    struct expr_range *other = r + n;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (range[i].first <= range[i].last)
            r[kept++] = range[i];
    qsort(r, kept, sizeof(*r), by_first);
    kept = join_ranges(r, kept);
    uint32_t n_out = negated ? negate_ranges(r, kept, other) : kept;
    uint32_t at = x->n_ranges;
    x->range = grow(x, x->range, at, &x->cap_ranges, n_out + 1, sizeof(*x->range));
    memcpy(x->range + at, negated ? other : r, n_out * sizeof(*r));
    x->n_ranges += n_out;
    mem_free(r);
    return n_out ? add(x, (struct expr){.kind = EXPR_CLASS, .at = at, .n = n_out}) : NEVER;
}

expr_id expr_literal(struct exprs *x, struct str bytes)
{
    if (bytes.len == 0)
        return EMPTY;
    if (x->error.status || bytes.len > 16 * EXPR_MAX)
        return x->error.status ? NEVER : too_many(x);
    uint32_t at = x->n_bytes, n = (uint32_t)bytes.len;
    if (!exprs_spend(x, n / 8))
        return NEVER;
    x->byte = grow(x, x->byte, at, &x->cap_bytes, n, 1);
    memcpy(x->byte + at, bytes.ptr, n);
    x->n_bytes += n;
    return add(x, (struct expr){.kind = EXPR_BYTES, .at = at, .n = n});
}

/* ---- composite expressions ---- */

static expr_id compose(struct exprs *x, enum expr_kind kind, const expr_id *child, uint32_t n)
{
    if (x->error.status || n > EXPR_MAX)
        return x->error.status ? NEVER : too_many(x);
    uint32_t at = x->n_children, depth = 0;
    if (!exprs_spend(x, n))
        return NEVER;
    x->child = grow(x, x->child, at, &x->cap_children, n, sizeof(*x->child));
    for (uint32_t i = 0; i < n; i++) {
        x->child[at + i] = child[i];
        if (x->expr[child[i]].depth + 1 > depth)
            depth = x->expr[child[i]].depth + 1;
    }
    x->n_children += n;
    return add(x, (struct expr){.kind = kind, .at = at, .n = n, .depth = depth});
}

expr_id expr_seq(struct exprs *x, const expr_id *child, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (child[i] == NEVER)
            return NEVER;
    if (n == 0)
        return EMPTY;
    return n == 1 ? child[0] : compose(x, EXPR_SEQ, child, n);
}

expr_id expr_alt(struct exprs *x, const expr_id *child, uint32_t n)
{
    struct expr_list some = {NULL, 0, 0};
    for (uint32_t i = 0; i < n; i++)
        if (child[i] != NEVER)
            expr_list_add(&some, child[i]);
    expr_id id = some.n == 0   ? NEVER
                 : some.n == 1 ? some.id[0]
                               : compose(x, EXPR_ALT, some.id, some.n);
    expr_list_release(&some);
    return id;
}

expr_id expr_repeat(struct exprs *x, expr_id child, uint32_t min, uint32_t max)
{
    if (max == 0 || child == EMPTY)
        return EMPTY;
    if (child == NEVER)
        return min ? NEVER : EMPTY;
    if (min == 1 && max == 1)
        return child;
    if (min > max)
        return NEVER;
    if (min > EXPR_MAX_REPEAT || (max != EXPR_MANY && max > EXPR_MAX_REPEAT)) {
        struct err e;
        err_set(&e, ERR_TOO_LARGE, "a repetition of %u is above the limit of %d",
                max == EXPR_MANY ? min : max, EXPR_MAX_REPEAT);
        return exprs_fail(x, &e);
    }
    expr_id id = compose(x, EXPR_REPEAT, &child, 1);
    if (id != NEVER) {
        x->expr[id].min = min;
        x->expr[id].max = max;
    }
    return id;
}

expr_id expr_rule(struct exprs *x, uint32_t rule)
{
    return add(x, (struct expr){.kind = EXPR_RULE, .at = rule});
}

expr_id expr_text(struct exprs *x, const char *c_string)
{
    return expr_literal(x, str_of(c_string));
}

expr_id expr_seq2(struct exprs *x, expr_id a, expr_id b)
{
    return expr_seq(x, (expr_id[]){a, b}, 2);
}

expr_id expr_seq3(struct exprs *x, expr_id a, expr_id b, expr_id c)
{
    return expr_seq(x, (expr_id[]){a, b, c}, 3);
}

expr_id expr_alt2(struct exprs *x, expr_id a, expr_id b)
{
    return expr_alt(x, (expr_id[]){a, b}, 2);
}

/* ---- rules ---- */

uint32_t exprs_add_rule(struct exprs *x)
{
    if (x->n_rules >= EXPR_MAX_RULES) {
        too_many(x);
        return 0;
    }
    x->rule = grow(x, x->rule, x->n_rules, &x->cap_rules, 1, sizeof(*x->rule));
    x->rule[x->n_rules] = NEVER;
    return x->n_rules++;
}

void exprs_set_rule(struct exprs *x, uint32_t rule, expr_id body)
{
    CHECK(rule < x->n_rules);
    x->rule[rule] = body;
}

void expr_list_add(struct expr_list *l, expr_id id)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->id = mem_realloc(l->id, mem_mul(l->cap, sizeof(*l->id)));
    }
    l->id[l->n++] = id;
}

void expr_list_release(struct expr_list *l)
{
    mem_free(l->id);
    *l = (struct expr_list){NULL, 0, 0};
}
