/* Parts that all schemas share: white space, any string, any value, literals. */
#include "base/buf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/schema_int.h"

expr_id schema_space(struct schema *s)
{
    struct err e;
    return regex_expr(s->x, STR_LIT("( |\n[ \t]{0,32})?"), REGEX_PLAIN, true, &e);
}

expr_id schema_any_string(struct schema *s)
{
    struct err e;
    if (!s->string) {
        s->string = exprs_add_rule(s->x);
        exprs_set_rule(
            s->x, s->string,
            regex_expr(s->x,
                       STR_LIT("\"([^\"\\\\\\x00-\\x1f]|\\\\([\"\\\\/bfnrt]|"
                               "u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))*\""),
                       REGEX_PLAIN, true, &e));
    }
    return expr_rule(s->x, s->string);
}

struct str schema_text(struct schema *s, struct str text, struct buf *out)
{
    (void)s;
    buf_clear(out);
    json_add_string(out, text);
    return buf_str(out);
}

expr_id schema_literal(struct schema *s, const struct json *value)
{
    struct buf text = {0};
    json_add_value(&text, value);
    expr_id id = expr_literal(s->x, buf_str(&text));
    buf_release(&text);
    return id;
}

/* first (between more)* in brackets; the content is optional. */
static expr_id listed(struct schema *s, const char *open, expr_id item, const char *close)
{
    struct exprs *x = s->x;
    expr_id space = schema_space(s);
    expr_id more = expr_seq3(x, expr_text(x, ","), space, item);
    expr_id items = expr_seq2(x, item, expr_repeat(x, more, 0, EXPR_MANY));
    expr_id full = expr_seq(x, (expr_id[]){space, items, space}, 3);
    return expr_seq3(x, expr_text(x, open), expr_maybe(x, full), expr_text(x, close));
}

static expr_id any_object(struct schema *s)
{
    expr_id pair = expr_seq(s->x,
                            (expr_id[]){schema_any_string(s), expr_text(s->x, ":"), schema_space(s),
                                        schema_any_value(s)},
                            4);
    return listed(s, "{", pair, "}");
}

static expr_id any_number(struct exprs *x)
{
    struct err e;
    return regex_expr(x, STR_LIT("-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?"),
                      REGEX_PLAIN, true, &e);
}

expr_id schema_any_value(struct schema *s)
{
    struct exprs *x = s->x;
    if (s->any_value)
        return expr_rule(x, s->any_value);
    s->any_value = exprs_add_rule(x);
    expr_id array = listed(s, "[", expr_rule(x, s->any_value), "]");
    expr_id all[] = {any_object(s),        array,
                     schema_any_string(s), any_number(x),
                     expr_text(x, "true"), expr_text(x, "false"),
                     expr_text(x, "null")};
    exprs_set_rule(x, s->any_value, expr_alt(x, all, 7));
    return expr_rule(x, s->any_value);
}

void schema_any_object(struct exprs *x)
{
    struct err e;
    struct schema s = {.x = x, .e = &e};
    exprs_set_rule(x, 0, any_object(&s));
}
