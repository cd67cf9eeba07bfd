/* Expressions of chat templates, by recursive descent with jinja2's grammar.
 *
 * Bounded: brackets nest at most TM_MAX_PARSE_DEPTH deep, the height of an expression (long operator
 * chains) is at most TM_MAX_TREE_DEPTH. Called by parse.c. */
#include <string.h>

#include "engine/template/parse.h"

static struct tm_node *parse_or(struct parser *p);
static struct tm_node *parse_unary(struct parser *p, bool with_filter);

/* ---- tokens ---- */

bool tp_is_op(const struct parser *p, const char *op)
{
    return p->tok->type == TT_OP && str_eq_c(p->tok->text, op);
}

bool tp_is_name(const struct parser *p, const char *name)
{
    return p->tok->type == TT_NAME && str_eq_c(p->tok->text, name);
}

bool tp_skip_op(struct parser *p, const char *op)
{
    bool yes = tp_is_op(p, op);
    p->tok += yes;
    return yes;
}

bool tp_skip_name(struct parser *p, const char *name)
{
    bool yes = tp_is_name(p, name);
    p->tok += yes;
    return yes;
}

void tp_unexpected(struct parser *p, const char *wanted)
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

void tp_want_op(struct parser *p, const char *op)
{
    if (!tp_skip_op(p, op))
        tp_unexpected(p, op);
}

struct str tp_want_name(struct parser *p, const char *wanted)
{
    if (p->tok->type != TT_NAME)
        tp_unexpected(p, wanted);
    return (p->tok++)->text;
}

void tp_want_block_end(struct parser *p)
{
    if (p->tok->type != TT_BLOCK_END)
        tp_unexpected(p, "the end of the statement tag");
    p->tok++;
}

void tp_enter(struct parser *p)
{
    if (++p->depth > TM_MAX_PARSE_DEPTH) {
        p->c->line = p->tok->line;
        tm_fail(p->c, ERR_TOO_LARGE, "nested deeper than %d", TM_MAX_PARSE_DEPTH);
    }
}

/* ---- nodes ---- */

struct tm_node *tp_node_new(struct parser *p, enum tm_kind kind, uint32_t line)
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

void tp_nodes_add(struct parser *p, struct tm_nodes *l, struct tm_node *n)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        l->v = tm_grow(p->c, l->v, l->n * sizeof(*l->v), cap * sizeof(*l->v));
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

void tp_add_child(struct parser *p, struct tm_node *n, struct tm_nodes *l, struct tm_node *child)
{
    tp_nodes_add(p, l, child);
    raise_height(p, n, child);
}

static struct tm_node *node_pair(struct parser *p, enum tm_kind kind, uint32_t line,
                                 struct tm_node *a, struct tm_node *b)
{
    struct tm_node *n = tp_node_new(p, kind, line);
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
    struct tm_node *n = tp_node_new(p, TN_CONST, line);
    n->value = v;
    return n;
}

struct tm_node *tp_node_name(struct parser *p, uint32_t line, struct str name)
{
    struct tm_node *n = tp_node_new(p, TN_NAME, line);
    n->name = tm_intern(p->c, p->t, name);
    n->text = p->t->names[n->name];
    n->builtin = tm_global_find(name);
    return n;
}

const struct tm_str *tp_literal(struct parser *p, struct str s)
{
    return tm_str_new(p->c, s.ptr, s.len, true);
}

/* ---- expressions ---- */

static bool tuple_ends(const struct parser *p)
{
    return p->tok->type == TT_VAR_END || p->tok->type == TT_BLOCK_END || tp_is_op(p, ")");
}

static struct tm_node *parse_primary(struct parser *p, bool with_namespace);

static struct tm_node *parse_member(struct parser *p, enum tm_tuple_of of)
{
    switch (of) {
    case OF_EXPRESSIONS:
        return tp_expression(p);
    case OF_OR:
        return parse_or(p);
    default:
        return parse_primary(p, of == OF_SET_TARGETS);
    }
}

/* One expression, or a tuple: several separated by commas. */
struct tm_node *tp_tuple(struct parser *p, enum tm_tuple_of of, bool may_be_empty)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = NULL, *first = NULL;
    while (!tuple_ends(p)) {
        struct tm_node *item = parse_member(p, of);
        if (n)
            tp_add_child(p, n, &n->list, item);
        else
            first = item;
        if (!tp_skip_op(p, ","))
            break;
        if (!n) {
            n = tp_node_new(p, TN_TUPLE, line);
            tp_add_child(p, n, &n->list, first);
        }
    }
    if (n || first)
        return n ? n : first;
    if (!may_be_empty)
        tp_unexpected(p, "an expression");
    return tp_node_new(p, TN_TUPLE, line);
}

static struct tm_node *parse_list(struct parser *p)
{
    struct tm_node *n = tp_node_new(p, TN_LIST, p->tok->line);
    tp_want_op(p, "[");
    while (!tp_is_op(p, "]")) {
        tp_add_child(p, n, &n->list, tp_expression(p));
        if (!tp_skip_op(p, ","))
            break;
    }
    tp_want_op(p, "]");
    return n;
}

static struct tm_node *parse_dict(struct parser *p)
{
    struct tm_node *n = tp_node_new(p, TN_DICT, p->tok->line);
    tp_want_op(p, "{");
    while (!tp_is_op(p, "}")) {
        tp_add_child(p, n, &n->list, tp_expression(p));
        tp_want_op(p, ":");
        tp_add_child(p, n, &n->list2, tp_expression(p));
        if (!tp_skip_op(p, ","))
            break;
    }
    tp_want_op(p, "}");
    return n;
}

static struct tm_node *parse_string(struct parser *p)
{
    uint32_t line = p->tok->line;
    const struct tm_str *s = tp_literal(p, (p->tok++)->text);
    while (p->tok->type == TT_STRING)
        s = tm_concat(p->c, s, tp_literal(p, (p->tok++)->text));
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
    struct tm_node *n = tp_node_name(p, t->line, t->text);
    if (with_namespace && tp_skip_op(p, ".")) {
        n->kind = TN_NSREF;
        n->text = tp_literal(p, tp_want_name(p, "an attribute"));
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
    struct tm_val v = tm_string(tp_literal(p, t->text));
    v.type = TM_BIG;
    return node_const(p, t->line, v);
}

static struct tm_node *parse_primary(struct parser *p, bool with_namespace)
{
    struct tm_node *n = NULL;
    tp_enter(p);
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
        if (tp_skip_op(p, "(")) {
            n = tp_tuple(p, OF_EXPRESSIONS, true);
            tp_want_op(p, ")");
        } else if (tp_is_op(p, "[")) {
            n = parse_list(p);
        } else if (tp_is_op(p, "{")) {
            n = parse_dict(p);
        } else {
            tp_unexpected(p, "an expression");
        }
    }
    p->depth--;
    return n;
}

/* The contents of the brackets of a[...]: an expression or a slice. */
static struct tm_node *parse_subscript(struct parser *p)
{
    struct tm_node *start = NULL;
    uint32_t line = p->tok->line;
    if (!tp_is_op(p, ":")) {
        start = tp_expression(p);
        if (!tp_is_op(p, ":"))
            return start;
    }
    p->tok++;
    struct tm_node *n = tp_node_new(p, TN_SLICE, line), *part[3] = {start, NULL, NULL};
    if (!tp_is_op(p, ":") && !tp_is_op(p, "]") && !tp_is_op(p, ","))
        part[1] = tp_expression(p);
    if (tp_skip_op(p, ":") && !tp_is_op(p, "]") && !tp_is_op(p, ","))
        part[2] = tp_expression(p);
    for (int i = 0; i < 3; i++)
        tp_add_child(p, n, &n->list, part[i]);
    return n;
}

static struct tm_node *parse_brackets(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    tp_want_op(p, "[");
    struct tm_node *arg = NULL, *tuple = NULL;
    while (!tp_is_op(p, "]")) {
        struct tm_node *part = parse_subscript(p);
        if (arg && !tuple) {
            tuple = tp_node_new(p, TN_TUPLE, line);
            tp_add_child(p, tuple, &tuple->list, arg);
        }
        if (tuple)
            tp_add_child(p, tuple, &tuple->list, part);
        arg = part;
        if (!tp_skip_op(p, ","))
            break;
    }
    tp_want_op(p, "]");
    if (!arg)
        arg = tp_node_new(p, TN_TUPLE, line);
    if (tuple)
        for (uint32_t i = 0; i < tuple->list.n; i++)
            if (tuple->list.v[i]->kind == TN_SLICE)
                unsupported(p, STR_LIT("several slices in one subscript"));
    return node_pair(p, TN_ITEM, line, of, tuple ? tuple : arg);
}

static struct tm_node *parse_dot(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    tp_want_op(p, ".");
    if (p->tok->type == TT_INT)
        return node_pair(p, TN_ITEM, line, of, parse_number(p));
    struct str name = tp_want_name(p, "a name or number after '.'");
    struct tm_node *n = node_pair(p, TN_ATTR, line, of, NULL);
    n->text = tp_literal(p, name);
    return n;
}

static void add_keyword(struct parser *p, struct tm_callargs *call, struct str name,
                        struct tm_node *value)
{
    uint32_t id = tm_intern(p->c, p->t, name);
    for (uint32_t i = 0; i < call->n_kw; i++)
        if (call->kw[i].name == id)
            tp_unexpected(p, "each keyword argument only once");
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
    if (tp_skip_op(p, "*")) {
        if (call->star || call->star_star)
            tp_unexpected(p, order);
        value = call->star = tp_expression(p);
    } else if (tp_skip_op(p, "**")) {
        if (call->star_star)
            tp_unexpected(p, order);
        value = call->star_star = tp_expression(p);
    } else if (p->tok->type == TT_NAME && p->tok[1].type == TT_OP &&
               str_eq_c(p->tok[1].text, "=")) {
        struct str name = p->tok->text;
        if (call->star_star)
            tp_unexpected(p, order);
        p->tok += 2;
        value = tp_expression(p);
        add_keyword(p, call, name, value);
    } else {
        if (call->star || call->star_star || call->n_kw)
            tp_unexpected(p, order);
        value = tp_expression(p);
        tp_nodes_add(p, &call->args, value);
    }
    raise_height(p, n, value);
}

static void parse_arguments(struct parser *p, struct tm_node *n)
{
    n->call = tm_zalloc(p->c, sizeof(*n->call));
    if (!tp_skip_op(p, "("))
        return;
    tp_enter(p);
    while (!tp_is_op(p, ")")) {
        parse_argument(p, n, n->call);
        if (!tp_skip_op(p, ","))
            break;
    }
    tp_want_op(p, ")");
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
        if (tp_is_op(p, "."))
            n = parse_dot(p, n);
        else if (tp_is_op(p, "["))
            n = parse_brackets(p, n);
        else if (tp_is_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static struct str parse_dotted_name(struct parser *p, const char *wanted)
{
    struct str name = tp_want_name(p, wanted);
    if (tp_is_op(p, "."))
        unsupported(p, name);
    return name;
}

struct tm_node *tp_one_filter(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = node_pair(p, TN_FILTER, line, of, NULL);
    n->text = tp_literal(p, parse_dotted_name(p, "the name of a filter"));
    n->builtin = tm_filter_find(tm_view_str(n->text));
    parse_arguments(p, n);
    return n;
}

static struct tm_node *parse_test(struct parser *p, struct tm_node *of)
{
    uint32_t line = p->tok->line;
    p->tok++;
    bool negated = tp_skip_name(p, "not");
    struct tm_node *n = node_pair(p, TN_TEST, line, of, NULL);
    n->text = tp_literal(p, parse_dotted_name(p, "the name of a test"));
    n->builtin = tm_test_find(tm_view_str(n->text));
    if (tp_is_op(p, "(")) {
        parse_arguments(p, n);
    } else {
        n->call = tm_zalloc(p->c, sizeof(*n->call));
        bool value = p->tok->type == TT_NAME || p->tok->type == TT_STRING ||
                     p->tok->type == TT_INT || p->tok->type == TT_BIG || p->tok->type == TT_FLOAT ||
                     tp_is_op(p, "[") || tp_is_op(p, "{");
        if (value && !tp_is_name(p, "else") && !tp_is_name(p, "or") && !tp_is_name(p, "and")) {
            if (tp_is_name(p, "is"))
                tp_unexpected(p, "no second test after 'is'");
            struct tm_node *arg = parse_postfix(p, parse_primary(p, false));
            tp_nodes_add(p, &n->call->args, arg);
            raise_height(p, n, arg);
        }
    }
    return negated ? node_pair(p, TN_NOT, line, n, NULL) : n;
}

static struct tm_node *parse_filters_and_tests(struct parser *p, struct tm_node *n)
{
    for (;;) {
        if (tp_skip_op(p, "|"))
            n = tp_one_filter(p, n);
        else if (tp_is_name(p, "is"))
            n = parse_test(p, n);
        else if (tp_is_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

static struct tm_node *parse_unary(struct parser *p, bool with_filter)
{
    uint32_t line = p->tok->line;
    struct tm_node *n;
    tp_enter(p);
    if (tp_skip_op(p, "-"))
        n = node_pair(p, TN_NEG, line, parse_unary(p, false), NULL);
    else if (tp_skip_op(p, "+"))
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
    while (tp_skip_op(p, "**"))
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
        if (tp_skip_op(p, table[i].text)) {
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
    if (!tp_is_op(p, "~"))
        return first;
    struct tm_node *n = tp_node_new(p, TN_CONCAT, line);
    tp_add_child(p, n, &n->list, first);
    while (tp_skip_op(p, "~"))
        tp_add_child(p, n, &n->list, parse_product(p));
    return n;
}

static struct tm_node *parse_sum(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_concat(p);
    for (;;) {
        if (tp_skip_op(p, "+"))
            n = node_binary(p, TO_ADD, line, n, parse_concat(p));
        else if (tp_skip_op(p, "-"))
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
        if (tp_skip_op(p, table[i].text)) {
            *op = (uint8_t)table[i].op;
            return true;
        }
    }
    if (tp_skip_name(p, "in")) {
        *op = TO_IN;
        return true;
    }
    if (tp_is_name(p, "not") && p->tok[1].type == TT_NAME && str_eq_c(p->tok[1].text, "in")) {
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
        tp_add_child(p, n, &n->list, parse_sum(p));
    }
    return n ? n : first;
}

static struct tm_node *parse_not(struct parser *p)
{
    uint32_t line = p->tok->line;
    if (!tp_skip_name(p, "not"))
        return parse_compare(p);
    tp_enter(p);
    struct tm_node *n = node_pair(p, TN_NOT, line, parse_not(p), NULL);
    p->depth--;
    return n;
}

static struct tm_node *parse_and(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_not(p);
    while (tp_skip_name(p, "and"))
        n = node_pair(p, TN_AND, line, n, parse_not(p));
    return n;
}

static struct tm_node *parse_or(struct parser *p)
{
    uint32_t line = p->tok->line;
    struct tm_node *n = parse_and(p);
    while (tp_skip_name(p, "or"))
        n = node_pair(p, TN_OR, line, n, parse_and(p));
    return n;
}

struct tm_node *tp_expression(struct parser *p)
{
    uint32_t line = p->tok->line;
    tp_enter(p);
    struct tm_node *n = parse_or(p);
    while (tp_skip_name(p, "if")) {
        struct tm_node *test = parse_or(p);
        struct tm_node *otherwise = tp_skip_name(p, "else") ? tp_expression(p) : NULL;
        n = node_pair(p, TN_COND, line, n, test);
        n->c = otherwise;
        raise_height(p, n, otherwise);
    }
    p->depth--;
    return n;
}
