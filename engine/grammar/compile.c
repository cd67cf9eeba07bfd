/* One door for all kinds of grammars; see compile.h. */
#include "engine/grammar/compile.h"

#include "engine/grammar/calls.h"
#include "engine/grammar/expr.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

static enum status choice_expr(struct exprs *x, const struct json *list, struct err *e)
{
    struct expr_list all = {NULL, 0, 0};
    enum status st = OK;
    if (!json_is(list, JSON_ARRAY) || !json_count(list))
        return err_set(e, ERR_INVALID, "choices must be an array of at least one string");
    for (const struct json *v = json_first(list); v && !st; v = json_next(v)) {
        if (!json_is(v, JSON_STRING) || json_string(v).len == 0)
            st = err_set(e, ERR_INVALID, "a choice must be a string that is not empty");
        else
            expr_list_add(&all, expr_literal(x, json_string(v)));
    }
    exprs_set_rule(x, 0, expr_alt(x, all.id, all.n));
    expr_list_release(&all);
    return st;
}

static enum status regex_whole(struct exprs *x, const struct json *source, struct err *e)
{
    exprs_set_rule(x, 0, regex_expr(x, json_string(source), REGEX_PLAIN, true, e));
    return OK; /* an error is in x */
}

enum status grammar_compile(enum grammar_kind kind, const struct json *source,
                            const struct gram_vocab *vocab, struct ledger_hold *held,
                            struct grammar **out, struct err *e)
{
    struct exprs x;
    enum status st = OK;
    *out = NULL;
    if ((kind == GRAMMAR_REGEX || kind == GRAMMAR_GBNF) && !json_is(source, JSON_STRING))
        return err_set(e, ERR_INVALID, "must be a string");
    exprs_init(&x);
    x.held = held;
    switch (kind) {
    case GRAMMAR_OBJECT:
        schema_any_object(&x);
        break;
    case GRAMMAR_SCHEMA:
        st = schema_expr(&x, source, e);
        break;
    case GRAMMAR_REGEX:
        st = regex_whole(&x, source, e);
        break;
    case GRAMMAR_CHOICE:
        st = choice_expr(&x, source, e);
        break;
    case GRAMMAR_GBNF:
        st = gbnf_expr(&x, json_string(source), e);
        break;
    case GRAMMAR_CALLS:
        st = calls_expr(&x, source, e);
        break;
    }
    if (!st)
        st = grammar_new(&x, vocab, out, e);
    else
        exprs_release(&x);
    if (held)
        ledger_drop(held);
    return st;
}
