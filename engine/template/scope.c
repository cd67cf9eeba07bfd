/* Checks that jinja2 makes at compile time and that affect the output: which names a scope owns from
 * its start, which special arguments a macro takes, and where an unknown filter is an error at once.
 *
 * Called by template_new after parsing. Recursion is bounded by the limits of the parser. */
#include <string.h>

#include "engine/template/interp.h"

/* ---- walking ---- */

typedef void visit_fn(void *arg, struct tm_node *child);

static void each(const struct tm_nodes *l, visit_fn *fn, void *arg)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i])
            fn(arg, l->v[i]);
}

static void each_arg(const struct tm_callargs *call, visit_fn *fn, void *arg)
{
    if (!call)
        return;
    each(&call->args, fn, arg);
    for (uint32_t i = 0; i < call->n_kw; i++)
        fn(arg, call->kw[i].value);
    if (call->star)
        fn(arg, call->star);
    if (call->star_star)
        fn(arg, call->star_star);
}

/* Children of an expression. */
static void each_operand(const struct tm_node *n, visit_fn *fn, void *arg)
{
    if (n->a)
        fn(arg, n->a);
    if (n->b)
        fn(arg, n->b);
    if (n->c)
        fn(arg, n->c);
    each(&n->list, fn, arg);
    each(&n->list2, fn, arg);
    each_arg(n->call, fn, arg);
}

/* ---- unknown filters and tests ---- */

struct soft {
    struct tmpl *c;
    bool soft; /* inside an if: an unknown name fails only when it runs */
};

static void check_names(void *arg, struct tm_node *n);

static void check_in(struct soft *s, bool soft, const struct tm_nodes *l)
{
    struct soft inner = {s->c, soft};
    each(l, check_names, &inner);
}

static void check_one(struct soft *s, bool soft, struct tm_node *n)
{
    struct soft inner = {s->c, soft};
    if (n)
        check_names(&inner, n);
}

static void check_statement(struct soft *s, struct tm_node *n)
{
    bool is_if = n->kind == TN_IF;
    check_in(s, is_if || (n->kind != TN_MACRO && n->kind != TN_CALL_BLOCK && s->soft), &n->list2);
    check_in(s, is_if || s->soft, &n->list);
    check_one(s, n->kind != TN_FILTER_BLOCK && n->kind != TN_SET_BLOCK && s->soft, n->b);
    check_one(s, false, n->c);
    for (uint32_t i = 0; is_if && i < n->list.n; i++)
        check_in(s, true, &n->bodies[i]);
    check_in(s, is_if, &n->body);
    check_in(s, is_if, &n->body2);
}

static void check_names(void *arg, struct tm_node *n)
{
    struct soft *s = arg;
    if (n->kind < TN_CONST) {
        check_statement(s, n);
        return;
    }
    bool call = n->kind == TN_FILTER || n->kind == TN_TEST;
    if (call && !n->builtin && !s->soft) {
        s->c->line = n->line;
        tm_fail(s->c, ERR_UNSUPPORTED, "no %s named '%.*s'", n->kind == TN_TEST ? "test" : "filter",
                (int)(n->text->len > 60 ? 60 : n->text->len), n->text->p);
    }
    struct soft inner = {s->c, s->soft || n->kind == TN_COND};
    each_operand(n, check_names, &inner);
}

/* ---- special arguments of macros ---- */

struct uses {
    uint8_t found, left;
};

static uint8_t use_of(const struct tm_node *n)
{
    return n->name == TM_NAME_caller    ? TM_USES_CALLER
           : n->name == TM_NAME_kwargs  ? TM_USES_KWARGS
           : n->name == TM_NAME_varargs ? TM_USES_VARARGS
                                        : 0;
}

/* A name assigned anywhere before its first use is not a special argument. */
static void drop_target(void *arg, struct tm_node *n)
{
    struct uses *u = arg;
    if (n->kind == TN_NAME)
        u->left &= (uint8_t)~use_of(n);
    else if (n->kind == TN_TUPLE)
        each(&n->list, drop_target, u);
}

static void find_uses(void *arg, struct tm_node *n)
{
    struct uses *u = arg;
    if (n->kind == TN_NAME) {
        u->found |= use_of(n) & u->left;
        return;
    }
    if (n->kind >= TN_CONST) {
        each_operand(n, find_uses, u);
        return;
    }
    bool params = n->kind == TN_MACRO || n->kind == TN_CALL_BLOCK || n->kind == TN_WITH;
    if (n->a)
        drop_target(u, n->a);
    if (n->b)
        find_uses(u, n->b);
    each(&n->list, params ? drop_target : find_uses, u);
    each(&n->list2, find_uses, u);
    for (uint32_t i = 0; n->kind == TN_IF && i < n->list.n; i++)
        each(&n->bodies[i], find_uses, u);
    each(&n->body, find_uses, u);
    each(&n->body2, find_uses, u);
    if (n->c)
        find_uses(u, n->c);
}

/* ---- scopes ---- */

struct ids {
    uint32_t *v;
    uint32_t n, cap;
};

struct frame {
    struct tmpl *c;
    struct frame *parent;
    struct ids known; /* names this scope refers to itself */
    struct ids shadow; /* of them, those it assigns first */
    bool branch; /* inside an if */
};

static void ids_add(struct tmpl *c, struct ids *l, uint32_t id)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 8;
        l->v = tm_grow(c, l->v, l->n * sizeof(*l->v), cap * sizeof(*l->v));
        l->cap = cap;
    }
    l->v[l->n++] = id;
}

static bool ids_have(const struct ids *l, uint32_t id)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] == id)
            return true;
    return false;
}

static bool outer_knows(const struct frame *f, uint32_t id)
{
    for (f = f->parent; f; f = f->parent)
        if (ids_have(&f->known, id))
            return true;
    return false;
}

static void load_name(struct frame *f, uint32_t id)
{
    tm_step(f->c, 1 + f->known.n);
    if (!ids_have(&f->known, id) && !outer_knows(f, id))
        ids_add(f->c, &f->known, id);
}

static void store_name(struct frame *f, uint32_t id)
{
    tm_step(f->c, 1 + f->known.n);
    if (ids_have(&f->known, id))
        return;
    if (!outer_knows(f, id) && !f->branch)
        ids_add(f->c, &f->shadow, id);
    ids_add(f->c, &f->known, id);
}

static void declare(void *arg, struct tm_node *n)
{
    struct frame *f = arg;
    if (n->kind == TN_NAME && !ids_have(&f->known, n->name))
        ids_add(f->c, &f->known, n->name);
    else if (n->kind == TN_TUPLE)
        each(&n->list, declare, f);
}

static void store_target(void *arg, struct tm_node *n)
{
    struct frame *f = arg;
    if (n->kind == TN_TUPLE)
        each(&n->list, store_target, f);
    else if (n->kind == TN_NSREF)
        load_name(f, n->name);
    else
        store_name(f, n->name);
}

/* Facts of one statement or expression about the names of its scope. */
static void mention(void *arg, struct tm_node *n)
{
    struct frame *f = arg;
    bool branch = f->branch;
    switch (n->kind) {
    case TN_NAME:
        load_name(f, n->name);
        break;
    case TN_IF:
        mention(f, n->list.v[0]);
        f->branch = true;
        for (uint32_t i = 0; i < n->list.n; i++) {
            if (i)
                mention(f, n->list.v[i]);
            each(&n->bodies[i], mention, f);
        }
        each(&n->body2, mention, f);
        f->branch = branch;
        break;
    case TN_SET:
        mention(f, n->b);
        store_target(f, n->a);
        break;
    case TN_SET_BLOCK:
        store_target(f, n->a);
        break;
    case TN_MACRO:
        store_name(f, n->name);
        break;
    case TN_WITH:
        each(&n->list2, mention, f);
        break;
    case TN_FOR:
    case TN_CALL_BLOCK:
    case TN_FILTER_BLOCK:
        mention(f, n->b);
        break;
    default:
        if (n->kind == TN_PRINT || n->kind >= TN_CONST)
            each_operand(n, mention, f);
    }
}

static void analyse_inner(void *arg, struct tm_node *n);

/* A scope of its own around the body. */
static void analyse_scope(struct frame *parent, struct tm_nodes *targets, struct tm_nodes *early,
                          struct tm_nodes *body, uint32_t **shadow, uint32_t *n_shadow)
{
    struct frame f = {.c = parent->c, .parent = parent};
    if (targets)
        each(targets, declare, &f);
    if (early)
        each(early, mention, &f);
    each(body, mention, &f);
    *shadow = f.shadow.v;
    *n_shadow = f.shadow.n;
    each(body, analyse_inner, &f);
}

static void analyse_inner(void *arg, struct tm_node *n)
{
    struct frame *f = arg;
    struct tm_nodes target = {.v = &n->a, .n = n->a ? 1 : 0};
    switch (n->kind) {
    case TN_IF:
        for (uint32_t i = 0; i < n->list.n; i++)
            each(&n->bodies[i], analyse_inner, f);
        each(&n->body2, analyse_inner, f);
        break;
    case TN_FOR:
        analyse_scope(f, &target, NULL, &n->body, &n->shadow, &n->n_shadow);
        analyse_scope(f, NULL, NULL, &n->body2, &n->shadow2, &n->n_shadow2);
        break;
    case TN_MACRO:
    case TN_CALL_BLOCK: {
        struct uses u = {.left = TM_USES_CALLER | TM_USES_KWARGS | TM_USES_VARARGS};
        each(&n->body, find_uses, &u);
        n->uses = u.found;
        analyse_scope(f, &n->list, &n->list2, &n->body, &n->shadow, &n->n_shadow);
        break;
    }
    case TN_WITH:
        analyse_scope(f, &n->list, NULL, &n->body, &n->shadow, &n->n_shadow);
        break;
    case TN_SET_BLOCK:
    case TN_FILTER_BLOCK:
    case TN_GENERATION:
        analyse_scope(f, NULL, NULL, &n->body, &n->shadow, &n->n_shadow);
        break;
    default:
        break;
    }
}

void tm_analyse(struct tmpl *c, struct chat_template *t)
{
    struct soft s = {c, false};
    each(&t->body, check_names, &s);
    struct frame f = {.c = c};
    each(&t->body, mention, &f);
    t->shadow = f.shadow.v;
    t->n_shadow = f.shadow.n;
    each(&t->body, analyse_inner, &f);
}
