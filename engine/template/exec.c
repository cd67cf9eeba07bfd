/* Execution of chat template statements: scopes, loops, macros, output.
 *
 * Called by template_render. Thread: the one that renders. */
#include <string.h>

#include "engine/template/interp.h"

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow run_body(struct tmpl *c, struct tm_scope *s, const struct tm_nodes *body,
                          struct tm_sb *out);

/* ---- scopes ---- */

static void scope_add(struct tmpl *c, struct tm_scope *s, uint32_t name, struct tm_val v)
{
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 4;
        uint32_t *names = tm_alloc(c, cap * sizeof(*names));
        struct tm_val *values = tm_alloc(c, cap * sizeof(*values));
        if (s->n) {
            memcpy(names, s->names, s->n * sizeof(*names));
            memcpy(values, s->values, s->n * sizeof(*values));
        }
        s->names = names;
        s->values = values;
        s->cap = cap;
    }
    s->names[s->n] = name;
    s->values[s->n++] = v;
}

struct tm_scope *tm_scope_new(struct tmpl *c, struct tm_scope *parent, const uint32_t *shadow,
                              uint32_t n_shadow)
{
    struct tm_scope *s = tm_zalloc(c, sizeof(*s));
    s->parent = parent;
    for (uint32_t i = 0; i < n_shadow; i++)
        scope_add(c, s, shadow[i], (struct tm_val){.type = TM_ABSENT});
    return s;
}

static struct tm_val *scope_find(struct tmpl *c, const struct tm_scope *s, uint32_t name)
{
    tm_step(c, 1 + s->n / 8);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->names[i] == name)
            return &s->values[i];
    return NULL;
}

void tm_scope_set(struct tmpl *c, struct tm_scope *s, uint32_t name, struct tm_val v)
{
    struct tm_val *old = scope_find(c, s, name);
    if (old)
        *old = v;
    else
        scope_add(c, s, name, v);
}

/* TM_ABSENT when no scope has the name; undefined when its scope has not assigned it yet. */
struct tm_val tm_scope_get(struct tmpl *c, const struct tm_scope *s, uint32_t name)
{
    for (; s; s = s->parent) {
        const struct tm_val *v = scope_find(c, s, name);
        if (v)
            return v->type == TM_ABSENT ? tm_undef_name(c, c->tpl->names[name]) : *v;
    }
    return (struct tm_val){.type = TM_ABSENT};
}

/* ---- assignment ---- */

static void assign_attr(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                        struct tm_val v)
{
    struct tm_val ns = tm_scope_get(c, s, n->name);
    if (ns.type != TM_NAMESPACE)
        tm_fail(c, ERR_INVALID, "cannot assign attribute on non-namespace object");
    if (n->text->len && n->text->p[0] == '_')
        tm_fail(c, ERR_INVALID, "namespace attribute '%.*s' starts with an underscore",
                n->text->len > 80 ? 80 : (int)n->text->len, n->text->p);
    tm_dict_set(c, ns.dict, tm_string(n->text), v);
}

static void assign(struct tmpl *c, struct tm_scope *s, const struct tm_node *target,
                   struct tm_val v)
{
    if (target->kind == TN_NAME) {
        tm_scope_set(c, s, target->name, v);
        return;
    }
    if (target->kind == TN_NSREF) {
        assign_attr(c, s, target, v);
        return;
    }
    const struct tm_list *l = tm_to_list(c, v);
    if (l->n != target->list.n)
        tm_fail(c, ERR_INVALID, "%u values to unpack into %u names", l->n, target->list.n);
    for (uint32_t i = 0; i < l->n; i++)
        assign(c, s, target->list.v[i], l->v[i]);
}

/* ---- loops ---- */

/* Fetches one more item that passes the loop's condition. */
static bool fetch(struct tmpl *c, struct tm_loop *loop)
{
    struct tm_val v;
    const struct tm_node *n = loop->node;
    while (!loop->drained) {
        if (!tm_next(c, &loop->source, &v)) {
            loop->drained = true;
            break;
        }
        if (n->c) {
            struct tm_scope *test = tm_scope_new(c, loop->scope, NULL, 0);
            assign(c, test, n->a, v);
            if (!tm_truthy(c, tm_eval(c, test, n->c)))
                continue;
        }
        tm_list_add(c, loop->seen, v);
        return true;
    }
    return false;
}

static bool has_item(struct tmpl *c, struct tm_loop *loop, int64_t at)
{
    while (at >= (int64_t)loop->seen->n)
        if (!fetch(c, loop))
            return false;
    return true;
}

static int64_t loop_length(struct tmpl *c, struct tm_loop *loop)
{
    if (loop->known_length >= 0)
        return loop->known_length;
    while (fetch(c, loop))
        ;
    return loop->seen->n;
}

static struct tm_val loop_cycle(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                                const struct tm_args *raw)
{
    (void)a;
    if (!raw->n || raw->n_kw)
        tm_fail(c, ERR_INVALID, "no items for cycling given");
    return raw->v[self.loop->at % raw->n];
}

static struct tm_val loop_changed(struct tmpl *c, struct tm_val self, const struct tm_val *a,
                                  const struct tm_args *raw)
{
    (void)a;
    struct tm_list *l = tm_list_new(c, raw->n);
    for (uint32_t i = 0; i < raw->n; i++)
        tm_list_add(c, l, raw->v[i]);
    struct tm_val now = {.type = TM_TUPLE, .list = l};
    if (self.loop->last_changed.type == TM_TUPLE && tm_equal(c, self.loop->last_changed, now))
        return tm_bool(false);
    self.loop->last_changed = now;
    return tm_bool(true);
}

static const struct tm_builtin loop_methods[] = {{"cycle", NULL, loop_cycle},
                                                 {"changed", NULL, loop_changed}};

static struct tm_val loop_item(struct tmpl *c, struct tm_loop *loop, int64_t at, const char *hint)
{
    if (at < 0 || !has_item(c, loop, at))
        return tm_undef_hint(c, hint);
    return loop->seen->v[at];
}

struct tm_val tm_loop_attr(struct tmpl *c, struct tm_loop *loop, const struct tm_str *name)
{
    if (tm_str_is(name, "index"))
        return tm_int(loop->at + 1);
    if (tm_str_is(name, "index0"))
        return tm_int(loop->at);
    if (tm_str_is(name, "first"))
        return tm_bool(loop->at == 0);
    if (tm_str_is(name, "last"))
        return tm_bool(!has_item(c, loop, loop->at + 1));
    if (tm_str_is(name, "length"))
        return tm_int(loop_length(c, loop));
    if (tm_str_is(name, "revindex"))
        return tm_int(loop_length(c, loop) - loop->at);
    if (tm_str_is(name, "revindex0"))
        return tm_int(loop_length(c, loop) - loop->at - 1);
    if (tm_str_is(name, "previtem"))
        return loop_item(c, loop, loop->at - 1, "there is no previous item");
    if (tm_str_is(name, "nextitem"))
        return loop_item(c, loop, loop->at + 1, "there is no next item");
    if (tm_str_is(name, "depth"))
        return tm_int((int64_t)loop->depth0 + 1);
    if (tm_str_is(name, "depth0"))
        return tm_int(loop->depth0);
    for (size_t i = 0; i < sizeof(loop_methods) / sizeof(loop_methods[0]); i++) {
        if (!tm_str_is(name, loop_methods[i].name))
            continue;
        struct tm_method *m = tm_alloc(c, sizeof(*m));
        *m = (struct tm_method){{.type = TM_LOOP, .loop = loop}, &loop_methods[i]};
        return (struct tm_val){.type = TM_METHOD, .method = m};
    }
    return (struct tm_val){.type = TM_ABSENT};
}

/* As jinja2 does, the else part also runs when no pass reached the end of the body. */
static void run_loop(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                     struct tm_val source, uint32_t depth0, struct tm_sb *out)
{
    struct tm_loop *loop = tm_zalloc(c, sizeof(*loop));
    bool sized = !n->c && source.type != TM_ITER;
    *loop = (struct tm_loop){.node = n,
                             .scope = s,
                             .source = tm_iterate(c, source),
                             .seen = tm_list_new(c, 0),
                             .at = -1,
                             .known_length = sized ? tm_length(c, source) : -1,
                             .depth0 = depth0};
    if (loop->source.list && !n->c) { /* all items are present: no need to collect them */
        loop->seen = loop->source.list;
        loop->drained = true;
    }
    bool completed = false;
    while (has_item(c, loop, loop->at + 1)) {
        loop->at++;
        struct tm_scope *body = tm_scope_new(c, s, n->shadow, n->n_shadow);
        tm_scope_set(c, body, TM_NAME_loop, (struct tm_val){.type = TM_LOOP, .loop = loop});
        assign(c, body, n->a, loop->seen->v[loop->at]);
        enum flow flow = run_body(c, body, &n->body, out);
        completed |= flow == FLOW_NEXT;
        if (flow == FLOW_BREAK)
            break;
    }
    if (!completed && n->body2.n)
        run_body(c, tm_scope_new(c, s, n->shadow2, n->n_shadow2), &n->body2, out);
}

struct tm_val tm_call_loop(struct tmpl *c, struct tm_loop *loop, const struct tm_args *args)
{
    if (!loop->node->flag)
        tm_fail(c, ERR_INVALID,
                "the loop must have the 'recursive' marker to be called recursively");
    if (args->n != 1 || args->n_kw)
        tm_fail(c, ERR_INVALID, "loop() takes one argument");
    struct tm_sb out;
    tm_sb_init(&out, c);
    run_loop(c, loop->scope, loop->node, args->v[0], loop->depth0 + 1, &out);
    return tm_string(tm_sb_done(&out));
}

/* ---- macros ---- */

static struct tm_val take_keyword(struct tm_args *args, const struct tm_str *name)
{
    for (uint32_t i = 0; i < args->n_kw; i++) {
        if (!tm_str_eq(args->kw[i].name, name))
            continue;
        struct tm_val v = args->kw[i].v;
        memmove(&args->kw[i], &args->kw[i + 1], (args->n_kw - i - 1) * sizeof(*args->kw));
        args->n_kw--;
        return v;
    }
    return (struct tm_val){.type = TM_ABSENT};
}

static void bind_parameters(struct tmpl *c, const struct tm_node *n, struct tm_args *args,
                            struct tm_scope *s, bool *found_caller)
{
    for (uint32_t i = 0; i < n->list.n; i++) {
        const struct tm_node *param = n->list.v[i];
        struct tm_val v = i < args->n ? args->v[i] : take_keyword(args, param->text);
        *found_caller |= param->name == TM_NAME_caller;
        tm_scope_set(c, s, param->name, v);
    }
    for (uint32_t i = 0; i < n->list.n; i++) {
        const struct tm_node *param = n->list.v[i];
        if (scope_find(c, s, param->name)->type != TM_ABSENT)
            continue;
        uint32_t first_default = n->list.n - n->list2.n;
        struct tm_val v;
        if (i >= first_default) {
            v = tm_eval(c, s, n->list2.v[i - first_default]);
        } else {
            struct tm_sb b;
            tm_sb_init(&b, c);
            tm_sb_printf(&b, "parameter '%.*s' was not provided",
                         param->text->len > 80 ? 80 : (int)param->text->len, param->text->p);
            tm_sb_add_char(&b, 0, false);
            v = tm_undef_hint(c, b.p);
        }
        tm_scope_set(c, s, param->name, v);
    }
}

static void bind_special(struct tmpl *c, const struct tm_node *n, struct tm_args *args,
                         struct tm_scope *s, bool found_caller)
{
    if ((n->uses & TM_USES_CALLER) && !found_caller) {
        struct tm_val caller = take_keyword(args, c->tpl->names[TM_NAME_caller]);
        if (caller.type == TM_ABSENT || caller.type == TM_NONE)
            caller = tm_undef_hint(c, "No caller defined");
        tm_scope_set(c, s, TM_NAME_caller, caller);
    }
    if (n->uses & TM_USES_KWARGS) {
        struct tm_dict *d = tm_dict_new(c);
        for (uint32_t i = 0; i < args->n_kw; i++)
            tm_dict_set(c, d, tm_string(args->kw[i].name), args->kw[i].v);
        tm_scope_set(c, s, TM_NAME_kwargs, tm_dict_val(d));
    } else if (args->n_kw) {
        const struct tm_str *name = args->kw[0].name;
        tm_fail(c, ERR_INVALID, "macro takes no keyword argument '%.*s'",
                name->len > 80 ? 80 : (int)name->len, name->p);
    }
    if (n->uses & TM_USES_VARARGS) {
        struct tm_list *l = tm_list_new(c, 0);
        for (uint32_t i = n->list.n; i < args->n; i++)
            tm_list_add(c, l, args->v[i]);
        tm_scope_set(c, s, TM_NAME_varargs, (struct tm_val){.type = TM_TUPLE, .list = l});
    } else if (args->n > n->list.n) {
        tm_fail(c, ERR_INVALID, "macro takes not more than %u argument(s)", n->list.n);
    }
}

struct tm_val tm_call_macro(struct tmpl *c, const struct tm_macro *m, const struct tm_args *args)
{
    const struct tm_node *n = m->node;
    struct tm_args left = *args;
    if (args->n_kw) {
        left.kw = tm_alloc(c, args->n_kw * sizeof(*left.kw));
        memcpy(left.kw, args->kw, args->n_kw * sizeof(*left.kw));
    }
    struct tm_scope *s = tm_scope_new(c, m->scope, n->shadow, n->n_shadow);
    bool found_caller = false;
    bind_parameters(c, n, &left, s, &found_caller);
    bind_special(c, n, &left, s, found_caller);
    struct tm_sb out;
    tm_sb_init(&out, c);
    run_body(c, s, &n->body, &out);
    return tm_string(tm_sb_done(&out));
}

static struct tm_val macro_value(struct tmpl *c, struct tm_scope *s, const struct tm_node *n)
{
    struct tm_macro *m = tm_alloc(c, sizeof(*m));
    *m = (struct tm_macro){n, s};
    return (struct tm_val){.type = TM_MACRO, .macro = m};
}

static void run_call_block(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                           struct tm_sb *out)
{
    struct tm_val caller = macro_value(c, s, n);
    struct tm_val f = tm_eval(c, s, n->b->a);
    struct tm_args args = tm_eval_args(c, s, n->b->call);
    struct tm_kwarg *kw = tm_alloc(c, (args.n_kw + 1) * sizeof(*kw));
    if (args.n_kw)
        memcpy(kw, args.kw, args.n_kw * sizeof(*kw));
    kw[args.n_kw++] = (struct tm_kwarg){c->tpl->names[TM_NAME_caller], caller};
    args.kw = kw;
    c->line = n->line;
    tm_sb_add_str(out, tm_need_str(c, tm_call(c, f, &args), "what a call block calls"));
}

/* ---- statements ---- */

static enum flow run_if(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                        struct tm_sb *out)
{
    for (uint32_t i = 0; i < n->list.n; i++)
        if (tm_truthy(c, tm_eval(c, s, n->list.v[i])))
            return run_body(c, s, &n->bodies[i], out);
    return run_body(c, s, &n->body2, out);
}

/* Renders the body to a text of its own, then applies the filters. */
static enum flow run_captured(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                              struct tm_val *text)
{
    struct tm_scope *inner = tm_scope_new(c, s, n->shadow, n->n_shadow);
    struct tm_sb b;
    tm_sb_init(&b, c);
    enum flow flow = run_body(c, inner, &n->body, &b);
    if (flow != FLOW_NEXT)
        return flow;
    *text = tm_string(tm_sb_done(&b));
    if (n->b)
        *text = tm_apply_filter(c, inner, n->b, *text);
    return FLOW_NEXT;
}

static enum flow run_with(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                          struct tm_sb *out)
{
    struct tm_scope *inner = tm_scope_new(c, s, n->shadow, n->n_shadow);
    for (uint32_t i = 0; i < n->list.n; i++)
        assign(c, inner, n->list.v[i], tm_eval(c, s, n->list2.v[i]));
    return run_body(c, inner, &n->body, out);
}

static void run_print(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                      struct tm_sb *out)
{
    for (uint32_t i = 0; i < n->list.n; i++) {
        struct tm_val v = tm_eval(c, s, n->list.v[i]);
        c->line = n->line;
        tm_sb_add_str(out, tm_to_str(c, v));
    }
}

static enum flow run_one(struct tmpl *c, struct tm_scope *s, const struct tm_node *n,
                         struct tm_sb *out)
{
    struct tm_val v;
    enum flow flow = FLOW_NEXT;
    switch (n->kind) {
    case TN_DATA:
        tm_sb_add_str(out, n->text);
        break;
    case TN_PRINT:
        run_print(c, s, n, out);
        break;
    case TN_IF:
        return run_if(c, s, n, out);
    case TN_FOR:
        v = tm_eval(c, s, n->b);
        c->line = n->line;
        if (n->flag) { /* jinja2 compiles it to a function: its text comes at the end */
            struct tm_sb b;
            tm_sb_init(&b, c);
            run_loop(c, s, n, v, 0, &b);
            tm_sb_add_str(out, tm_sb_done(&b));
        } else {
            run_loop(c, s, n, v, 0, out);
        }
        break;
    case TN_SET:
        v = tm_eval(c, s, n->b);
        c->line = n->line;
        assign(c, s, n->a, v);
        break;
    case TN_SET_BLOCK:
        flow = run_captured(c, s, n, &v);
        if (flow == FLOW_NEXT)
            assign(c, s, n->a, v);
        break;
    case TN_FILTER_BLOCK:
        flow = run_captured(c, s, n, &v);
        if (flow == FLOW_NEXT)
            tm_sb_add_str(out, tm_need_str(c, v, "the result of a filter block"));
        break;
    case TN_MACRO:
        tm_scope_set(c, s, n->name, macro_value(c, s, n));
        break;
    case TN_CALL_BLOCK:
        run_call_block(c, s, n, out);
        break;
    case TN_WITH:
        return run_with(c, s, n, out);
    case TN_GENERATION:
        run_body(c, tm_scope_new(c, s, n->shadow, n->n_shadow), &n->body, out);
        break;
    case TN_BREAK:
        return FLOW_BREAK;
    case TN_CONTINUE:
        return FLOW_CONTINUE;
    default:
        tm_fail(c, ERR_INTERNAL, "node of kind %d is no statement", (int)n->kind);
    }
    return flow;
}

static enum flow run_body(struct tmpl *c, struct tm_scope *s, const struct tm_nodes *body,
                          struct tm_sb *out)
{
    enum flow flow = FLOW_NEXT;
    if (++c->depth > TM_MAX_EVAL_DEPTH)
        tm_fail(c, ERR_TOO_LARGE, "evaluation nested deeper than %d", TM_MAX_EVAL_DEPTH);
    for (uint32_t i = 0; i < body->n && flow == FLOW_NEXT; i++) {
        tm_step(c, 1);
        c->line = body->v[i]->line;
        flow = run_one(c, s, body->v[i], out);
    }
    c->depth--;
    return flow;
}

void tm_run(struct tmpl *c, const struct chat_template *t, struct tm_scope *globals,
            struct tm_sb *out)
{
    run_body(c, tm_scope_new(c, globals, t->shadow, t->n_shadow), &t->body, out);
}
