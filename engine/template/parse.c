/* Statements of chat templates, with jinja2's grammar; nested at most TM_MAX_PARSE_DEPTH deep.
 *
 * Called by template_new. */
#include "engine/template/parse.h"

static void parse_body(struct parser *p, struct tm_nodes *out, const char *const *ends);

static void check_target(struct parser *p, struct tm_node *n)
{
    if (n->kind == TN_TUPLE) {
        for (uint32_t i = 0; i < n->list.n; i++)
            check_target(p, n->list.v[i]);
        return;
    }
    if (n->kind != TN_NAME && n->kind != TN_NSREF)
        tp_unexpected(p, "a name to assign to");
}

static struct tm_node *parse_target(struct parser *p, bool with_namespace)
{
    struct tm_node *n = tp_tuple(p, with_namespace ? OF_SET_TARGETS : OF_TARGETS, false);
    check_target(p, n);
    return n;
}

/* Within a for statement, its special variable cannot be assigned. */
static void refuse_loop_target(struct parser *p, const struct tm_node *n)
{
    if (!p->fors)
        return;
    if (n->kind == TN_NAME && n->name == TM_NAME_loop)
        tp_unexpected(p, "another name than 'loop'");
    for (uint32_t i = 0; n->kind == TN_TUPLE && i < n->list.n; i++)
        refuse_loop_target(p, n->list.v[i]);
}

static struct tm_node *parse_for(struct parser *p, uint32_t line)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    struct tm_node *n = tp_node_new(p, TN_FOR, line);
    p->fors++;
    n->a = parse_target(p, false);
    refuse_loop_target(p, n->a);
    if (!tp_skip_name(p, "in"))
        tp_unexpected(p, "in");
    n->b = tp_tuple(p, OF_OR, false);
    if (tp_skip_name(p, "if"))
        n->c = tp_expression(p);
    n->flag = tp_skip_name(p, "recursive");
    uint32_t loops = p->loops;
    p->loops = n->flag ? 1 : loops + 1;
    parse_body(p, &n->body, ends);
    p->loops = n->flag ? 0 : loops;
    if (tp_skip_name(p, "else"))
        parse_body(p, &n->body2, end);
    p->loops = loops;
    p->fors--;
    p->tok++;
    return n;
}

static struct tm_node *parse_if(struct parser *p, uint32_t line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif",
                                                                                       NULL};
    struct tm_node *n = tp_node_new(p, TN_IF, line);
    for (;;) {
        tp_add_child(p, n, &n->list, tp_tuple(p, OF_OR, false));
        uint32_t i = n->list.n - 1;
        n->bodies = tm_grow(p->c, n->bodies, i * sizeof(*n->bodies), (i + 1) * sizeof(*n->bodies));
        n->bodies[i] = (struct tm_nodes){0};
        struct tm_nodes body = {0};
        parse_body(p, &body, ends);
        n->bodies[i] = body;
        if (tp_skip_name(p, "elif"))
            continue;
        if (tp_skip_name(p, "else"))
            parse_body(p, &n->body2, end);
        p->tok++;
        return n;
    }
}

static struct tm_node *parse_filter_chain(struct parser *p)
{
    struct tm_node *n = NULL;
    while (tp_skip_op(p, "|"))
        n = tp_one_filter(p, n);
    return n;
}

static struct tm_node *parse_set(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endset", NULL};
    struct tm_node *n = tp_node_new(p, TN_SET, line);
    n->a = parse_target(p, true);
    refuse_loop_target(p, n->a);
    if (tp_skip_op(p, "=")) {
        n->b = tp_tuple(p, OF_EXPRESSIONS, false);
        return n;
    }
    n->kind = TN_SET_BLOCK;
    n->b = parse_filter_chain(p);
    parse_body(p, &n->body, end);
    p->tok++;
    return n;
}

static void parse_signature(struct parser *p, struct tm_node *n)
{
    tp_want_op(p, "(");
    while (!tp_is_op(p, ")")) {
        uint32_t line = p->tok->line;
        struct tm_node *param = tp_node_name(p, line, tp_want_name(p, "a parameter"));
        if (tp_skip_op(p, "="))
            tp_nodes_add(p, &n->list2, tp_expression(p));
        else if (n->list2.n)
            tp_unexpected(p, "a default, as the parameter before has one");
        tp_nodes_add(p, &n->list, param);
        if (!tp_skip_op(p, ","))
            break;
    }
    tp_want_op(p, ")");
}

/* Body that jinja2 compiles to a function of its own: break and continue cannot leave it. */
static void parse_function_body(struct parser *p, struct tm_nodes *out, const char *const *ends)
{
    uint32_t loops = p->loops;
    p->loops = 0;
    parse_body(p, out, ends);
    p->tok++;
    p->loops = loops;
}

static struct tm_node *parse_macro(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endmacro", NULL};
    struct tm_node *n = tp_node_new(p, TN_MACRO, line);
    struct str name = tp_want_name(p, "the macro's name");
    n->name = tm_intern(p->c, p->t, name);
    n->text = p->t->names[n->name];
    parse_signature(p, n);
    parse_function_body(p, &n->body, end);
    return n;
}

static struct tm_node *parse_call_block(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endcall", NULL};
    struct tm_node *n = tp_node_new(p, TN_CALL_BLOCK, line);
    if (tp_is_op(p, "("))
        parse_signature(p, n);
    n->b = tp_expression(p);
    if (n->b->kind != TN_CALL)
        tp_unexpected(p, "a call");
    parse_function_body(p, &n->body, end);
    return n;
}

static struct tm_node *parse_filter_block(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endfilter", NULL};
    struct tm_node *n = tp_node_new(p, TN_FILTER_BLOCK, line);
    n->b = tp_one_filter(p, NULL);
    while (tp_skip_op(p, "|"))
        n->b = tp_one_filter(p, n->b);
    parse_body(p, &n->body, end);
    p->tok++;
    return n;
}

static struct tm_node *parse_with(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endwith", NULL};
    struct tm_node *n = tp_node_new(p, TN_WITH, line);
    while (p->tok->type != TT_BLOCK_END) {
        if (n->list.n)
            tp_want_op(p, ",");
        struct tm_node *target = parse_target(p, false);
        tp_nodes_add(p, &n->list, target);
        tp_want_op(p, "=");
        tp_nodes_add(p, &n->list2, tp_expression(p));
    }
    parse_body(p, &n->body, end);
    p->tok++;
    return n;
}

static struct tm_node *parse_print(struct parser *p, uint32_t line)
{
    struct tm_node *n = tp_node_new(p, TN_PRINT, line);
    while (p->tok->type != TT_BLOCK_END) {
        if (n->list.n)
            tp_want_op(p, ",");
        tp_nodes_add(p, &n->list, tp_expression(p));
    }
    return n;
}

static struct tm_node *parse_generation(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endgeneration", NULL};
    struct tm_node *n = tp_node_new(p, TN_GENERATION, line);
    parse_function_body(p, &n->body, end);
    return n;
}

static struct tm_node *parse_jump(struct parser *p, uint32_t line, enum tm_kind kind)
{
    if (!p->loops) {
        p->c->line = line;
        tm_fail(p->c, ERR_FORMAT, "'%s' outside a loop", kind == TN_BREAK ? "break" : "continue");
    }
    return tp_node_new(p, kind, line);
}

static struct tm_node *parse_break(struct parser *p, uint32_t line)
{
    return parse_jump(p, line, TN_BREAK);
}

static struct tm_node *parse_continue(struct parser *p, uint32_t line)
{
    return parse_jump(p, line, TN_CONTINUE);
}

static const struct {
    const char *name;
    struct tm_node *(*parse)(struct parser *p, uint32_t line); /* NULL: known, not supported */
} statements[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
    {"block", NULL},
    {"extends", NULL},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"autoescape", NULL},
};

static struct tm_node *parse_statement(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct str name = tp_want_name(p, "the name of a statement");
    p->c->line = line;
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!str_eq_c(name, statements[i].name))
            continue;
        if (!statements[i].parse)
            tm_fail(p->c, ERR_UNSUPPORTED, "statement '%s' is not supported", statements[i].name);
        return statements[i].parse(p, line);
    }
    tm_fail(p->c, ERR_UNSUPPORTED, "unknown statement '%.*s'", name.len > 60 ? 60 : (int)name.len,
            name.ptr);
}

static bool at_end_tag(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (tp_is_name(p, *ends))
            return true;
    return false;
}

/* Statements and text up to one of the end tags, whose name is the current token afterwards. Skips
 * the rest of the opening tag first. ends NULL: to the end of the template. */
static void parse_body(struct parser *p, struct tm_nodes *out, const char *const *ends)
{
    tp_enter(p);
    if (ends) {
        tp_skip_op(p, ":");
        tp_want_block_end(p);
    }
    for (;;) {
        const struct tm_token *t = p->tok++;
        if (t->type == TT_DATA) {
            struct tm_node *n = tp_node_new(p, TN_DATA, t->line);
            n->text = tp_literal(p, t->text);
            tp_nodes_add(p, out, n);
        } else if (t->type == TT_VAR_BEGIN) {
            struct tm_node *n = tp_node_new(p, TN_PRINT, t->line);
            tp_nodes_add(p, &n->list, tp_tuple(p, OF_EXPRESSIONS, false));
            if (p->tok->type != TT_VAR_END)
                tp_unexpected(p, "the end of the print tag");
            p->tok++;
            tp_nodes_add(p, out, n);
        } else if (t->type == TT_BLOCK_BEGIN) {
            if (at_end_tag(p, ends))
                break;
            tp_nodes_add(p, out, parse_statement(p));
            tp_want_block_end(p);
        } else {
            p->tok--;
            if (!ends)
                break;
            tp_unexpected(p, ends[0]);
        }
    }
    p->depth--;
}

void tm_parse(struct tmpl *c, struct chat_template *t, const struct tm_tokens *tokens)
{
    struct parser p = {.c = c, .t = t, .tok = tokens->v};
    parse_body(&p, &t->body, NULL);
    if (p.tok->type != TT_EOF)
        tp_unexpected(&p, "a statement");
}
