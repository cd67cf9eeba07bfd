/* Parser of chat templates: tokens to syntax tree, by recursive descent with jinja2's grammar.
 *
 * Bounded: statements and brackets nest at most TM_MAX_PARSE_DEPTH deep, the height of an expression
 * (long operator chains) is at most TM_MAX_TREE_DEPTH. Called by template_new. */
#include <string.h>

#include "engine/text/template_int.h"

struct parser {
    struct tmpl *c;
    struct chat_template *t;
    const struct tm_token *tok; /* current */
    uint32_t depth;
    uint32_t loops; /* for loops around, within the same function */
};

static struct tm_node *parse_expression(struct parser *p);
static struct tm_node *parse_or(struct parser *p);
static struct tm_node *parse_unary(struct parser *p, bool with_filter);
static void parse_body(struct parser *p, struct tm_nodes *out, const char *const *ends);

/* ---- tokens ---- */

static bool is_op(const struct parser *p, const char *op)
{
    return p->tok->type == TT_OP && str_eq_c(p->tok->text, op);
}

static bool is_name(const struct parser *p, const char *name)
{
    return p->tok->type == TT_NAME && str_eq_c(p->tok->text, name);
}

static bool skip_op(struct parser *p, const char *op)
{
    bool yes = is_op(p, op);
    p->tok += yes;
    return yes;
}

static bool skip_name(struct parser *p, const char *name)
{
    bool yes = is_name(p, name);
    p->tok += yes;
    return yes;
}

__attribute__((noreturn)) static void unexpected(struct parser *p, const char *wanted)
{
    p->c->line = p->tok->line;
    struct str t = p->tok->text;
    switch (p->tok->type) {
    case TT_EOF:
        tm_fail(p->c, ERR_FORMAT, "template ends where %s is expected", wanted);
    case TT_DATA:
        tm_fail(p->c, ERR_FORMAT, "text where %s is expected", wanted);
    case TT_VAR_END:
    case TT_BLOCK_END:
        tm_fail(p->c, ERR_FORMAT, "tag ends where %s is expected", wanted);
    default:
        tm_fail(p->c, ERR_FORMAT, "'%.*s' where %s is expected", t.len > 60 ? 60 : (int)t.len,
                t.ptr, wanted);
    }
}

__attribute__((noreturn)) static void unsupported(struct parser *p, struct str construct)
{
    p->c->line = p->tok->line;
    tm_fail(p->c, ERR_UNSUPPORTED, "construct '%.*s' is not supported", (int)construct.len,
            construct.ptr);
}

static void want_op(struct parser *p, const char *op)
{
    if (!skip_op(p, op))
        unexpected(p, op);
}

static struct str want_name(struct parser *p, const char *wanted)
{
    if (p->tok->type != TT_NAME)
        unexpected(p, wanted);
    return (p->tok++)->text;
}

static void want_block_end(struct parser *p)
{
    if (p->tok->type != TT_BLOCK_END)
        unexpected(p, "the end of the statement tag");
    p->tok++;
}

static void enter(struct parser *p)
{
    if (++p->depth > TM_MAX_PARSE_DEPTH) {
        p->c->line = p->tok->line;
        tm_fail(p->c, ERR_TOO_LARGE, "nested deeper than %d", TM_MAX_PARSE_DEPTH);
    }
}

/* ---- nodes ---- */

static struct tm_node *node_new(struct parser *p, enum tm_kind kind, uint32_t line)
{
    struct tm_node *n = tm_zalloc(p->c, sizeof(*n));
    n->kind = kind;
    n->line = line;
    n->height = 1;
    return n;
}

static void raise_height(struct parser *p, struct tm_node *n, const struct tm_node *child)
{
    if (child && child->height >= n->height)
        n->height = child->height + 1;
    if (n->height > TM_MAX_TREE_DEPTH) {
        p->c->line = n->line;
        tm_fail(p->c, ERR_TOO_LARGE, "expression of more than %d levels", TM_MAX_TREE_DEPTH);
    }
}

static void nodes_add(struct parser *p, struct tm_nodes *l, struct tm_node *n)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        l->v = tm_grow(p->c, l->v, l->n * sizeof(*l->v), cap * sizeof(*l->v));
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

static void add_child(struct parser *p, struct tm_node *n, struct tm_nodes *l,
                      struct tm_node *child)
{
    nodes_add(p, l, child);
    raise_height(p, n, child);
}

static struct tm_node *node_pair(struct parser *p, enum tm_kind kind, uint32_t line,
                                 struct tm_node *a, struct tm_node *b)
{
    struct tm_node *n = node_new(p, kind, line);
    n->a = a;
    n->b = b;
    raise_height(p, n, a);
    raise_height(p, n, b);
    return n;
}

static struct tm_node *node_binary(struct parser *p, enum tm_op op, uint32_t line,
                                   struct tm_node *a, struct tm_node *b)
{
    struct tm_node *n = node_pair(p, TN_BINARY, line, a, b);
    n->op = op;
    return n;
}

static struct tm_node *node_const(struct parser *p, uint32_t line, struct tm_val v)
{
    struct tm_node *n = node_new(p, TN_CONST, line);
    n->value = v;
    return n;
}

static struct tm_node *node_name(struct parser *p, uint32_t line, struct str name)
{
    struct tm_node *n = node_new(p, TN_NAME, line);
    n->name = tm_intern(p->c, p->t, name);
    n->text = p->t->names[n->name];
    n->builtin = tm_global_find(name);
    return n;
}

static const struct tm_str *literal(struct parser *p, struct str s)
{
    return tm_str_new(p->c, s.ptr, s.len, true);
}

/* ---- expressions ---- */

static bool tuple_ends(const struct parser *p, const char *end_name)
{
    return p->tok->type == TT_VAR_END || p->tok->type == TT_BLOCK_END || is_op(p, ")") ||
           (end_name && is_name(p, end_name));
}

enum tuple_of { OF_EXPRESSIONS, OF_OR, OF_TARGETS, OF_SET_TARGETS };

static struct tm_node *parse_primary(struct parser *p, bool with_namespace);

static struct tm_node *parse_member(struct parser *p, enum tuple_of of)
{
    switch (of) {
    case OF_EXPRESSIONS:
        return parse_expression(p);
    case OF_OR:
        return parse_or(p);
    default:
        return parse_primary(p, of == OF_SET_TARGETS);
    }
}

/* One expression, or several divided by commas: a tuple. */
static struct tm_node *parse_tuple(struct parser *p, enum tuple_of of, const char *end_name,
                                   bool may_be_empty)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = NULL, *first = NULL;
    while (!tuple_ends(p, end_name)) {
        struct tm_node *item = parse_member(p, of);
        if (n)
            add_child(p, n, &n->list, item);
        else
            first = item;
        if (!skip_op(p, ","))
            break;
        if (!n) {
            n = node_new(p, TN_TUPLE, line);
            add_child(p, n, &n->list, first);
        }
    }
    if (n || first)
        return n ? n : first;
    if (!may_be_empty)
        unexpected(p, "an expression");
    return node_new(p, TN_TUPLE, line);
}

static struct tm_node *parse_list(struct parser *p)
{
    struct tm_node *n = node_new(p, TN_LIST, p->tok->line);
    want_op(p, "[");
    while (!is_op(p, "]")) {
        add_child(p, n, &n->list, parse_expression(p));
        if (!skip_op(p, ","))
            break;
    }
    want_op(p, "]");
    return n;
}

static struct tm_node *parse_dict(struct parser *p)
{
    struct tm_node *n = node_new(p, TN_DICT, p->tok->line);
    want_op(p, "{");
    while (!is_op(p, "}")) {
        add_child(p, n, &n->list, parse_expression(p));
        want_op(p, ":");
        add_child(p, n, &n->list2, parse_expression(p));
        if (!skip_op(p, ","))
            break;
    }
    want_op(p, "}");
    return n;
}

static struct tm_node *parse_string(struct parser *p)
{
    uint32_t line = p->tok->line;
    const struct tm_str *s = literal(p, (p->tok++)->text);
    while (p->tok->type == TT_STRING)
        s = tm_concat(p->c, s, literal(p, (p->tok++)->text));
    return node_const(p, line, tm_string(s));
}

static struct tm_node *parse_word(struct parser *p, bool with_namespace)
{
    const struct tm_token *t = p->tok++;
    if (str_eq_c(t->text, "true") || str_eq_c(t->text, "True"))
        return node_const(p, t->line, tm_bool(true));
    if (str_eq_c(t->text, "false") || str_eq_c(t->text, "False"))
        return node_const(p, t->line, tm_bool(false));
    if (str_eq_c(t->text, "none") || str_eq_c(t->text, "None"))
        return node_const(p, t->line, tm_none());
    struct tm_node *n = node_name(p, t->line, t->text);
    if (with_namespace && skip_op(p, ".")) {
        n->kind = TN_NSREF;
        n->text = literal(p, want_name(p, "an attribute"));
    }
    return n;
}

static struct tm_node *parse_number(struct parser *p)
{
    const struct tm_token *t = p->tok++;
    if (t->type == TT_INT)
        return node_const(p, t->line, tm_int(t->i));
    if (t->type == TT_FLOAT)
        return node_const(p, t->line, tm_float(t->f));
    struct tm_val v = tm_string(literal(p, t->text));
    v.type = TM_BIG;
    return node_const(p, t->line, v);
}

static struct tm_node *parse_primary(struct parser *p, bool with_namespace)
{
    struct tm_node *n = NULL;
    enter(p);
    switch (p->tok->type) {
    case TT_NAME:
        n = parse_word(p, with_namespace);
        break;
    case TT_STRING:
        n = parse_string(p);
        break;
    case TT_INT:
    case TT_BIG:
    case TT_FLOAT:
        n = parse_number(p);
        break;
    default:
        if (skip_op(p, "(")) {
            n = parse_tuple(p, OF_EXPRESSIONS, NULL, true);
            want_op(p, ")");
        } else if (is_op(p, "[")) {
            n = parse_list(p);
        } else if (is_op(p, "{")) {
            n = parse_dict(p);
        } else {
            unexpected(p, "an expression");
        }
    }
    p->depth--;
    return n;
}

/* What stands between the brackets of a[...]: an expression or a slice. */
static struct tm_node *parse_subscript(struct parser *p)
{
    struct tm_node *start = NULL;
    uint32_t line = p->tok->line;
    if (!is_op(p, ":")) {
        start = parse_expression(p);
        if (!is_op(p, ":"))
            return start;
    }
    p->tok++;
    struct tm_node *n = node_new(p, TN_SLICE, line), *part[3] = {start, NULL, NULL};
    if (!is_op(p, ":") && !is_op(p, "]") && !is_op(p, ","))
        part[1] = parse_expression(p);
    if (skip_op(p, ":") && !is_op(p, "]") && !is_op(p, ","))
        part[2] = parse_expression(p);
    for (int i = 0; i < 3; i++)
        add_child(p, n, &n->list, part[i]);
    return n;
}

static struct tm_node *parse_brackets(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    want_op(p, "[");
    struct tm_node *arg = NULL, *tuple = NULL;
    while (!is_op(p, "]")) {
        struct tm_node *part = parse_subscript(p);
        if (arg && !tuple) {
            tuple = node_new(p, TN_TUPLE, line);
            add_child(p, tuple, &tuple->list, arg);
        }
        if (tuple)
            add_child(p, tuple, &tuple->list, part);
        arg = part;
        if (!skip_op(p, ","))
            break;
    }
    want_op(p, "]");
    if (!arg)
        arg = node_new(p, TN_TUPLE, line);
    if (tuple)
        for (uint32_t i = 0; i < tuple->list.n; i++)
            if (tuple->list.v[i]->kind == TN_SLICE)
                unsupported(p, STR_LIT("several slices in one subscript"));
    return node_pair(p, TN_ITEM, line, of, tuple ? tuple : arg);
}

static struct tm_node *parse_dot(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    want_op(p, ".");
    if (p->tok->type == TT_INT)
        return node_pair(p, TN_ITEM, line, of, parse_number(p));
    struct str name = want_name(p, "a name or number after '.'");
    struct tm_node *n = node_pair(p, TN_ATTR, line, of, NULL);
    n->text = literal(p, name);
    return n;
}

static void add_keyword(struct parser *p, struct tm_callargs *call, struct str name,
                        struct tm_node *value)
{
    uint32_t id = tm_intern(p->c, p->t, name);
    for (uint32_t i = 0; i < call->n_kw; i++)
        if (call->kw[i].name == id)
            unexpected(p, "each keyword argument only once");
    if (call->n_kw == call->cap_kw) {
        uint32_t cap = call->cap_kw ? call->cap_kw * 2 : 4;
        call->kw = tm_grow(p->c, call->kw, call->n_kw * sizeof(*call->kw), cap * sizeof(*call->kw));
        call->cap_kw = cap;
    }
    call->kw[call->n_kw++] = (struct tm_kwnode){id, value};
}

static void parse_argument(struct parser *p, struct tm_node *n, struct tm_callargs *call)
{
    static const char order[] = "arguments in the order positional, keyword, *, **";
    struct tm_node *value;
    if (skip_op(p, "*")) {
        if (call->star || call->star_star)
            unexpected(p, order);
        value = call->star = parse_expression(p);
    } else if (skip_op(p, "**")) {
        if (call->star_star)
            unexpected(p, order);
        value = call->star_star = parse_expression(p);
    } else if (p->tok->type == TT_NAME && p->tok[1].type == TT_OP &&
               str_eq_c(p->tok[1].text, "=")) {
        struct str name = p->tok->text;
        if (call->star_star)
            unexpected(p, order);
        p->tok += 2;
        value = parse_expression(p);
        add_keyword(p, call, name, value);
    } else {
        if (call->star || call->star_star || call->n_kw)
            unexpected(p, order);
        value = parse_expression(p);
        nodes_add(p, &call->args, value);
    }
    raise_height(p, n, value);
}

static void parse_arguments(struct parser *p, struct tm_node *n)
{
    n->call = tm_zalloc(p->c, sizeof(*n->call));
    if (!skip_op(p, "("))
        return;
    enter(p);
    while (!is_op(p, ")")) {
        parse_argument(p, n, n->call);
        if (!skip_op(p, ","))
            break;
    }
    want_op(p, ")");
    p->depth--;
}

static struct tm_node *parse_call(struct parser *p, struct tm_node *of)
{
    struct tm_node *n = node_pair(p, TN_CALL, p->tok->line, of, NULL);
    parse_arguments(p, n);
    return n;
}

static struct tm_node *parse_postfix(struct parser *p, struct tm_node *n)
{
    for (;;) {
        if (is_op(p, "."))
            n = parse_dot(p, n);
        else if (is_op(p, "["))
            n = parse_brackets(p, n);
        else if (is_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static struct str parse_dotted_name(struct parser *p, const char *wanted)
{
    struct str name = want_name(p, wanted);
    if (is_op(p, "."))
        unsupported(p, name);
    return name;
}

static struct tm_node *parse_one_filter(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = node_pair(p, TN_FILTER, line, of, NULL);
    n->text = literal(p, parse_dotted_name(p, "the name of a filter"));
    n->builtin = tm_filter_find(tm_view_str(n->text));
    parse_arguments(p, n);
    return n;
}

static struct tm_node *parse_test(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    p->tok++;
    bool negated = skip_name(p, "not");
    struct tm_node *n = node_pair(p, TN_TEST, line, of, NULL);
    n->text = literal(p, parse_dotted_name(p, "the name of a test"));
    n->builtin = tm_test_find(tm_view_str(n->text));
    if (is_op(p, "(")) {
        parse_arguments(p, n);
    } else {
        n->call = tm_zalloc(p->c, sizeof(*n->call));
        bool value = p->tok->type == TT_NAME || p->tok->type == TT_STRING ||
                     p->tok->type == TT_INT || p->tok->type == TT_BIG || p->tok->type == TT_FLOAT ||
                     is_op(p, "[") || is_op(p, "{");
        if (value && !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and")) {
            if (is_name(p, "is"))
                unexpected(p, "no second test after 'is'");
            struct tm_node *arg = parse_postfix(p, parse_primary(p, false));
            nodes_add(p, &n->call->args, arg);
            raise_height(p, n, arg);
        }
    }
    return negated ? node_pair(p, TN_NOT, line, n, NULL) : n;
}

static struct tm_node *parse_filters_and_tests(struct parser *p, struct tm_node *n)
{
    for (;;) {
        if (skip_op(p, "|"))
            n = parse_one_filter(p, n);
        else if (is_name(p, "is"))
            n = parse_test(p, n);
        else if (is_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static struct tm_node *parse_unary(struct parser *p, bool with_filter)
{
    uint32_t line = p->tok->line;
    struct tm_node *n;
    enter(p);
    if (skip_op(p, "-"))
        n = node_pair(p, TN_NEG, line, parse_unary(p, false), NULL);
    else if (skip_op(p, "+"))
        n = node_pair(p, TN_POS, line, parse_unary(p, false), NULL);
    else
        n = parse_primary(p, false);
    n = parse_postfix(p, n);
    p->depth--;
    return with_filter ? parse_filters_and_tests(p, n) : n;
}

static struct tm_node *parse_pow(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_unary(p, true);
    while (skip_op(p, "**"))
        n = node_binary(p, TO_POW, line, n, parse_unary(p, true));
    return n;
}

static bool skip_product_op(struct parser *p, enum tm_op *op)
{
    static const struct {
        const char *text;
        enum tm_op op;
    } table[] = {{"*", TO_MUL}, {"/", TO_DIV}, {"//", TO_FLOORDIV}, {"%", TO_MOD}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (skip_op(p, table[i].text)) {
            *op = table[i].op;
            return true;
        }
    }
    return false;
}

static struct tm_node *parse_product(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_pow(p);
    enum tm_op op;
    while (skip_product_op(p, &op))
        n = node_binary(p, op, line, n, parse_pow(p));
    return n;
}

static struct tm_node *parse_concat(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *first = parse_product(p);
    if (!is_op(p, "~"))
        return first;
    struct tm_node *n = node_new(p, TN_CONCAT, line);
    add_child(p, n, &n->list, first);
    while (skip_op(p, "~"))
        add_child(p, n, &n->list, parse_product(p));
    return n;
}

static struct tm_node *parse_sum(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_concat(p);
    for (;;) {
        if (skip_op(p, "+"))
            n = node_binary(p, TO_ADD, line, n, parse_concat(p));
        else if (skip_op(p, "-"))
            n = node_binary(p, TO_SUB, line, n, parse_concat(p));
        else
            return n;
    }
}

static bool skip_compare_op(struct parser *p, uint8_t *op)
{
    static const struct {
        const char *text;
        enum tm_op op;
    } table[] = {{"==", TO_EQ}, {"!=", TO_NE}, {"<", TO_LT},
                 {"<=", TO_LE}, {">", TO_GT},  {">=", TO_GE}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (skip_op(p, table[i].text)) {
            *op = (uint8_t)table[i].op;
            return true;
        }
    }
    if (skip_name(p, "in")) {
        *op = TO_IN;
        return true;
    }
    if (is_name(p, "not") && p->tok[1].type == TT_NAME && str_eq_c(p->tok[1].text, "in")) {
        p->tok += 2;
        *op = TO_NOT_IN;
        return true;
    }
    return false;
}

static struct tm_node *parse_compare(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *first = parse_sum(p), *n = NULL;
    uint8_t op;
    while (skip_compare_op(p, &op)) {
        if (!n)
            n = node_pair(p, TN_COMPARE, line, first, NULL);
        uint32_t i = n->list.n;
        n->ops = tm_grow(p->c, n->ops, i, i + 1);
        n->ops[i] = op;
        add_child(p, n, &n->list, parse_sum(p));
    }
    return n ? n : first;
}

static struct tm_node *parse_not(struct parser *p)
{
    uint32_t line = p->tok->line;
    if (!skip_name(p, "not"))
        return parse_compare(p);
    enter(p);
    struct tm_node *n = node_pair(p, TN_NOT, line, parse_not(p), NULL);
    p->depth--;
    return n;
}

static struct tm_node *parse_and(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_not(p);
    while (skip_name(p, "and"))
        n = node_pair(p, TN_AND, line, n, parse_not(p));
    return n;
}

static struct tm_node *parse_or(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_and(p);
    while (skip_name(p, "or"))
        n = node_pair(p, TN_OR, line, n, parse_and(p));
    return n;
}

static struct tm_node *parse_expression(struct parser *p)
{
    uint32_t line = p->tok->line;
    enter(p);
    struct tm_node *n = parse_or(p);
    while (skip_name(p, "if")) {
        struct tm_node *test = parse_or(p);
        struct tm_node *otherwise = skip_name(p, "else") ? parse_expression(p) : NULL;
        n = node_pair(p, TN_COND, line, n, test);
        n->c = otherwise;
        raise_height(p, n, otherwise);
    }
    p->depth--;
    return n;
}

/* ---- statements ---- */

static void check_target(struct parser *p, struct tm_node *n)
{
    if (n->kind == TN_TUPLE) {
        for (uint32_t i = 0; i < n->list.n; i++)
            check_target(p, n->list.v[i]);
        return;
    }
    if (n->kind != TN_NAME && n->kind != TN_NSREF)
        unexpected(p, "a name to assign to");
}

static struct tm_node *parse_target(struct parser *p, bool with_namespace, const char *end_name)
{
    struct tm_node *n =
        parse_tuple(p, with_namespace ? OF_SET_TARGETS : OF_TARGETS, end_name, false);
    check_target(p, n);
    return n;
}

static void refuse_loop_target(struct parser *p, const struct tm_node *n)
{
    if (n->kind == TN_NAME && n->name == TM_NAME_loop)
        unexpected(p, "another name than 'loop'");
    for (uint32_t i = 0; n->kind == TN_TUPLE && i < n->list.n; i++)
        refuse_loop_target(p, n->list.v[i]);
}

static struct tm_node *parse_for(struct parser *p, uint32_t line)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    struct tm_node *n = node_new(p, TN_FOR, line);
    n->a = parse_target(p, false, "in");
    refuse_loop_target(p, n->a);
    if (!skip_name(p, "in"))
        unexpected(p, "in");
    n->b = parse_tuple(p, OF_OR, "recursive", false);
    if (skip_name(p, "if"))
        n->c = parse_expression(p);
    n->flag = skip_name(p, "recursive");
    uint32_t loops = p->loops;
    p->loops = n->flag ? 1 : loops + 1;
    parse_body(p, &n->body, ends);
    p->loops = n->flag ? 0 : loops;
    if (skip_name(p, "else"))
        parse_body(p, &n->body2, end);
    p->loops = loops;
    p->tok++;
    return n;
}

static struct tm_node *parse_if(struct parser *p, uint32_t line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif",
                                                                                       NULL};
    struct tm_node *n = node_new(p, TN_IF, line);
    for (;;) {
        add_child(p, n, &n->list, parse_tuple(p, OF_OR, NULL, false));
        uint32_t i = n->list.n - 1;
        n->bodies = tm_grow(p->c, n->bodies, i * sizeof(*n->bodies), (i + 1) * sizeof(*n->bodies));
        n->bodies[i] = (struct tm_nodes){0};
        struct tm_nodes body = {0};
        parse_body(p, &body, ends);
        n->bodies[i] = body;
        if (skip_name(p, "elif"))
            continue;
        if (skip_name(p, "else"))
            parse_body(p, &n->body2, end);
        p->tok++;
        return n;
    }
}

static struct tm_node *parse_filter_chain(struct parser *p)
{
    struct tm_node *n = NULL;
    while (skip_op(p, "|"))
        n = parse_one_filter(p, n);
    return n;
}

static struct tm_node *parse_set(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endset", NULL};
    struct tm_node *n = node_new(p, TN_SET, line);
    n->a = parse_target(p, true, NULL);
    if (skip_op(p, "=")) {
        n->b = parse_tuple(p, OF_EXPRESSIONS, NULL, false);
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
    want_op(p, "(");
    while (!is_op(p, ")")) {
        uint32_t line = p->tok->line;
        struct tm_node *param = node_name(p, line, want_name(p, "a parameter"));
        if (skip_op(p, "="))
            nodes_add(p, &n->list2, parse_expression(p));
        else if (n->list2.n)
            unexpected(p, "a default, as the parameter before has one");
        nodes_add(p, &n->list, param);
        if (!skip_op(p, ","))
            break;
    }
    want_op(p, ")");
}

/* Body of what jinja2 compiles to a function of its own: no break or continue through it. */
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
    struct tm_node *n = node_new(p, TN_MACRO, line);
    struct str name = want_name(p, "the macro's name");
    n->name = tm_intern(p->c, p->t, name);
    n->text = p->t->names[n->name];
    parse_signature(p, n);
    parse_function_body(p, &n->body, end);
    return n;
}

static struct tm_node *parse_call_block(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endcall", NULL};
    struct tm_node *n = node_new(p, TN_CALL_BLOCK, line);
    if (is_op(p, "("))
        parse_signature(p, n);
    n->b = parse_expression(p);
    if (n->b->kind != TN_CALL)
        unexpected(p, "a call");
    parse_function_body(p, &n->body, end);
    return n;
}

static struct tm_node *parse_filter_block(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endfilter", NULL};
    struct tm_node *n = node_new(p, TN_FILTER_BLOCK, line);
    n->b = parse_one_filter(p, NULL);
    while (skip_op(p, "|"))
        n->b = parse_one_filter(p, n->b);
    parse_body(p, &n->body, end);
    p->tok++;
    return n;
}

static struct tm_node *parse_with(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endwith", NULL};
    struct tm_node *n = node_new(p, TN_WITH, line);
    while (p->tok->type != TT_BLOCK_END) {
        if (n->list.n)
            want_op(p, ",");
        struct tm_node *target = parse_target(p, false, NULL);
        nodes_add(p, &n->list, target);
        want_op(p, "=");
        nodes_add(p, &n->list2, parse_expression(p));
    }
    parse_body(p, &n->body, end);
    p->tok++;
    return n;
}

static struct tm_node *parse_print(struct parser *p, uint32_t line)
{
    struct tm_node *n = node_new(p, TN_PRINT, line);
    while (p->tok->type != TT_BLOCK_END) {
        if (n->list.n)
            want_op(p, ",");
        nodes_add(p, &n->list, parse_expression(p));
    }
    return n;
}

static struct tm_node *parse_generation(struct parser *p, uint32_t line)
{
    static const char *const end[] = {"endgeneration", NULL};
    struct tm_node *n = node_new(p, TN_GENERATION, line);
    parse_function_body(p, &n->body, end);
    return n;
}

static struct tm_node *parse_jump(struct parser *p, uint32_t line, enum tm_kind kind)
{
    if (!p->loops) {
        p->c->line = line;
        tm_fail(p->c, ERR_FORMAT, "'%s' outside a loop", kind == TN_BREAK ? "break" : "continue");
    }
    return node_new(p, kind, line);
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
    struct str name = want_name(p, "the name of a statement");
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
        if (is_name(p, *ends))
            return true;
    return false;
}

/* Statements and text up to one of the end tags, whose name is the current token afterwards. Skips
 * the rest of the opening tag first. ends NULL: to the end of the template. */
static void parse_body(struct parser *p, struct tm_nodes *out, const char *const *ends)
{
    enter(p);
    if (ends) {
        skip_op(p, ":");
        want_block_end(p);
    }
    for (;;) {
        const struct tm_token *t = p->tok++;
        if (t->type == TT_DATA) {
            struct tm_node *n = node_new(p, TN_DATA, t->line);
            n->text = literal(p, t->text);
            nodes_add(p, out, n);
        } else if (t->type == TT_VAR_BEGIN) {
            struct tm_node *n = node_new(p, TN_PRINT, t->line);
            nodes_add(p, &n->list, parse_tuple(p, OF_EXPRESSIONS, NULL, false));
            if (p->tok->type != TT_VAR_END)
                unexpected(p, "the end of the print tag");
            p->tok++;
            nodes_add(p, out, n);
        } else if (t->type == TT_BLOCK_BEGIN) {
            if (at_end_tag(p, ends))
                break;
            nodes_add(p, out, parse_statement(p));
            want_block_end(p);
        } else {
            p->tok--;
            if (!ends)
                break;
            unexpected(p, ends[0]);
        }
    }
    p->depth--;
}

void tm_parse(struct tmpl *c, struct chat_template *t, const struct tm_tokens *tokens)
{
    struct parser p = {.c = c, .t = t, .tok = tokens->v};
    parse_body(&p, &t->body, NULL);
    if (p.tok->type != TT_EOF)
        unexpected(&p, "a statement");
}
