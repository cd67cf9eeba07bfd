/* Calls of tools as an expression; see calls.h. */
#include "engine/grammar/calls.h"

#include <stdio.h>

#include "engine/grammar/schema.h"

static expr_id text_of(struct exprs *x, const struct json *v, const char *key)
{
    struct str s = json_string(json_get(v, key));
    return s.len ? expr_literal(x, s) : expr_empty(x);
}

static enum status call_expr(struct exprs *x, const struct json *call, expr_id *out, struct err *e)
{
    expr_id arguments = 0;
    enum status st = schema_add_object(x, json_get(call, "schema"), &arguments, e);
    if (st) {
        struct str place = json_string(json_get(call, "place"));
        snprintf(e->param, sizeof(e->param), "%.*s", (int)place.len, place.ptr);
        return st;
    }
    *out = expr_seq3(x, text_of(x, call, "begin"), arguments, text_of(x, call, "end"));
    return OK;
}

enum status calls_expr(struct exprs *x, const struct json *source, struct err *e)
{
    struct expr_list all = {NULL, 0, 0};
    enum status st = OK;
    int64_t most = 1;
    json_i64(json_get(source, "most"), 1, EXPR_MAX_REPEAT, &most);
    for (const struct json *v = json_first(json_get(source, "calls")); v && !st; v = json_next(v)) {
        expr_id one = 0;
        st = call_expr(x, v, &one, e);
        expr_list_add(&all, one);
    }
    uint32_t rule = exprs_add_rule(x);
    exprs_set_rule(x, rule, expr_alt(x, all.id, all.n));
    expr_list_release(&all);
    expr_id call = expr_rule(x, rule);
    expr_id more = expr_seq2(x, text_of(x, source, "separator"), call);
    expr_id list = expr_seq2(x, call, expr_repeat(x, more, 0, (uint32_t)most - 1));
    exprs_set_rule(x, 0,
                   expr_seq3(x, text_of(x, source, "open"), list, text_of(x, source, "close")));
    return st;
}
