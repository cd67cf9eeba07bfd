/* POST /grammar/check: a constraint of the output without a request for one. */
#include "server/api/api.h"

#include "base/json.h"
#include "engine/grammar/examples.h"
#include "server/api/constraint.h"
#include "server/api/prepare.h"
#include "server/exchange.h"
#include "server/grammars.h"
#include "server/service.h"

static const char *const kind_names[] = {
    [GRAMMAR_OBJECT] = "json_object", [GRAMMAR_SCHEMA] = "json_schema", [GRAMMAR_REGEX] = "regex",
    [GRAMMAR_CHOICE] = "choice",      [GRAMMAR_GBNF] = "gbnf",          [GRAMMAR_CALLS] = "calls"};

static void add_samples(const struct grammar *g, const struct params *p, struct buf *out)
{
    struct gram_examples *x = p->samples ? gram_examples_new(g) : NULL;
    struct buf text = {0};
    buf_add_c(out, "\"samples\":[");
    for (int64_t i = 0; i < p->samples; i++) {
        buf_clear(&text);
        buf_add_c(out, i ? "," : "");
        /* seeds from 1 on: 0 is the shortest text */
        if (gram_example(x, i ? 1 + (p->seed * 16 + (uint64_t)i) % UINT64_MAX : 0, &text))
            json_add_string(out, buf_str(&text));
        else
            buf_add_c(out, "null");
    }
    buf_add_char(out, ']');
    buf_release(&text);
    gram_examples_free(x);
}

static void add_head(const struct constraint *c, bool valid, struct buf *out)
{
    buf_printf(out, "{\"object\":\"grammar.check\",\"valid\":%s,\"field\":\"%s\",\"kind\":\"%s\",",
               valid ? "true" : "false", c->field, kind_names[c->kind]);
}

static void answer_valid(struct exchange *ex, const struct constraint *c, const struct params *p,
                         const struct grammar *g)
{
    struct grammar_size size;
    struct buf *out = &ex->reply.body;
    grammar_describe(g, &size);
    reply_json(ex, 200);
    add_head(c, true, out);
    buf_printf(
        out, "\"size\":{\"bytes\":%llu,\"states\":%u,\"rules\":%u,\"calls\":%u,\"depth\":%u},",
        (unsigned long long)size.n_bytes, size.n_states, size.n_rules, size.n_calls, size.depth);
    add_samples(g, p, out);
    buf_add_char(out, '}');
}

/* The pointer is what schemas put into e->param. */
static void answer_bad(struct exchange *ex, const struct constraint *c, const struct err *e)
{
    struct buf *out = &ex->reply.body;
    reply_json(ex, 200);
    add_head(c, false, out);
    buf_add_c(out, "\"error\":{\"message\":");
    json_add_string(out, str_of(e->text));
    buf_add_c(out, ",\"pointer\":");
    if (e->param[0] == '#')
        json_add_string(out, str_of(e->param));
    else
        buf_add_c(out, "null");
    buf_add_c(out, "}}");
}

static enum status take(const struct params *p, struct constraint *c, struct err *e)
{
    enum status st = constraint_take(p, c, e);
    if (st || c->field)
        return st;
    return err_set_field(
        e, ERR_INVALID, NULL, "missing",
        "one of the fields that constrain the output is required: response_format, "
        "structured_outputs, guided_json, guided_regex, guided_choice, "
        "guided_grammar, grammar, json_schema or regex");
}

static void check(struct exchange *ex, const struct params *p)
{
    const struct gram_owner owner = prepare_owner(ex);
    struct constraint c;
    struct grammar *g = NULL;
    struct err e = {0};
    enum status st = take(p, &c, &e);
    if (!st)
        st = constraint_compile(ex->service, &c, &owner, &g, &e);
    if (!st)
        answer_valid(ex, &c, p, g);
    else if (grammars_is_bad(&e))
        answer_bad(ex, &c, &e);
    else
        reply_err(ex, &e);
    grammar_unref(g);
    constraint_release(&c);
}

void api_grammar_check(struct exchange *ex)
{
    struct json_doc *doc;
    struct params p;
    if (prepare_params(ex, API_GRAMMAR, &doc, &p) == OK)
        check(ex, &p);
    json_free(doc);
}
