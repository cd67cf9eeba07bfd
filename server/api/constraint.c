/* See constraint.h. */
#include "server/api/constraint.h"

#include <stdio.h>
#include <string.h>

#include "server/grammars.h"
#include "server/service.h"

static enum status bad(struct err *e, const char *field, const char *what)
{
    return err_set_field(e, ERR_INVALID, field, "invalid_value", "\"%s\" %s", field, what);
}

/* One field more asks for a constraint. */
static enum status take(struct constraint *c, const char *field, enum grammar_kind kind,
                        const struct json *source, struct err *e)
{
    if (c->field)
        return err_set_field(e, ERR_INVALID, field, "invalid_value",
                             "\"%s\" and \"%s\" both constrain the output: only one may be set",
                             c->field, field);
    *c = (struct constraint){.field = field, .kind = kind, .source = source};
    return OK;
}

/* ---- response_format ---- */

static enum status take_schema_format(struct constraint *c, const struct json *format,
                                      struct err *e)
{
    static const char field[] = "response_format";
    const struct json *holder = json_get(format, "json_schema");
    const struct json *schema = json_get(format, "schema"); /* llama.cpp's short form */
    if (json_is(holder, JSON_OBJECT))
        schema = json_get(holder, "schema");
    if (!schema)
        return bad(e, field, "of type json_schema needs json_schema.schema");
    return take(c, field, GRAMMAR_SCHEMA, schema, e);
}

static enum status take_format(struct constraint *c, const struct json *format, struct err *e)
{
    static const char field[] = "response_format";
    const struct json *type = json_is(format, JSON_OBJECT) ? json_get(format, "type") : NULL;
    if (!json_is(type, JSON_STRING))
        return err_set_field(e, ERR_INVALID, field, "invalid_type",
                             "\"response_format\" must be an object with a string \"type\"");
    struct str name = json_string(type);
    if (str_eq_c(name, "text"))
        return OK;
    if (str_eq_c(name, "json_schema") ||
        (str_eq_c(name, "json_object") && json_get(format, "schema")))
        return take_schema_format(c, format, e);
    if (str_eq_c(name, "json_object"))
        return take(c, field, GRAMMAR_OBJECT, NULL, e);
    return err_set_field(
        e, ERR_INVALID, field, "invalid_value",
        "\"response_format.type\" must be \"text\", \"json_object\" or \"json_schema\", "
        "not \"%.*s\"",
        (int)(name.len < 32 ? name.len : 32), name.ptr);
}

/* ---- structured_outputs ---- */

static enum status take_structured(struct constraint *c, const struct json *object, struct err *e)
{
    static const struct {
        const char *key;
        enum grammar_kind kind;
    } known[] = {{"json", GRAMMAR_SCHEMA},
                 {"regex", GRAMMAR_REGEX},
                 {"choice", GRAMMAR_CHOICE},
                 {"grammar", GRAMMAR_GBNF}};
    static const char field[] = "structured_outputs";
    enum status st = OK;
    if (!json_is(object, JSON_OBJECT))
        return bad(e, field, "must be an object");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !st; i++) {
        const struct json *v = json_get(object, known[i].key);
        if (v && !json_is(v, JSON_NULL))
            st = take(c, field, known[i].kind, v, e);
    }
    if (!st && json_is(json_get(object, "json_object"), JSON_TRUE))
        st = take(c, field, GRAMMAR_OBJECT, NULL, e);
    const struct json *tag = json_get(object, "structural_tag");
    if (!st && tag && !json_is(tag, JSON_NULL))
        st = err_set_field(e, ERR_UNSUPPORTED, field, "unsupported_parameter",
                           "\"structured_outputs.structural_tag\" is not supported");
    return st;
}

/* ---- all fields ---- */

static bool is_empty(const struct json *v)
{
    return !v || (json_is(v, JSON_STRING) && json_string(v).len == 0) ||
           (json_is(v, JSON_ARRAY) && json_count(v) == 0);
}

static enum status take_all(struct constraint *c, const struct params *p, struct err *e)
{
    const struct {
        const char *field;
        enum grammar_kind kind;
        const struct json *source;
    } plain[] = {{"guided_json", GRAMMAR_SCHEMA, p->guided_json},
                 {"guided_regex", GRAMMAR_REGEX, p->guided_regex},
                 {"guided_choice", GRAMMAR_CHOICE, p->guided_choice},
                 {"guided_grammar", GRAMMAR_GBNF, p->guided_grammar},
                 {"json_schema", GRAMMAR_SCHEMA, p->json_schema},
                 {"regex", GRAMMAR_REGEX, p->regex},
                 {"grammar", GRAMMAR_GBNF, p->grammar}};
    enum status st = p->response_format ? take_format(c, p->response_format, e) : OK;
    if (!st && p->structured_outputs)
        st = take_structured(c, p->structured_outputs, e);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]) && !st; i++)
        if (!is_empty(plain[i].source))
            st = take(c, plain[i].field, plain[i].kind, plain[i].source, e);
    return st;
}

/* A schema may come as text, too: vLLM's clients send it so. */
static enum status parse_text(struct constraint *c, struct err *e)
{
    const struct json_limits limits = {.depth = 64, .n_nodes = 1 << 16};
    if (c->kind != GRAMMAR_SCHEMA || !json_is(c->source, JSON_STRING))
        return OK;
    enum status st = json_parse(json_string(c->source), limits, &c->doc, e);
    if (st)
        return grammars_bad(e);
    c->source = json_root(c->doc);
    return OK;
}

enum status constraint_take(const struct params *p, struct constraint *out, struct err *e)
{
    *out = (struct constraint){.field = NULL};
    return take_all(out, p, e);
}

void constraint_release(struct constraint *c)
{
    json_free(c->doc);
    c->doc = NULL;
}

enum status constraint_compile(const struct service *service, struct constraint *c,
                               const struct gram_owner *owner, struct grammar **out, struct err *e)
{
    enum status st = parse_text(c, e);
    return st ? st : grammars_get(service->grammars, c->kind, c->source, owner, out, e);
}

enum status constraint_read(const struct service *service, const struct params *p,
                            const struct gram_owner *owner, struct grammar **out, struct err *e)
{
    struct constraint c;
    *out = NULL;
    enum status st = constraint_take(p, &c, e);
    if (!st && c.field)
        st = constraint_compile(service, &c, owner, out, e);
    constraint_release(&c);
    if (!st || !grammars_is_bad(e))
        return st;
    err_prefix(e, "\"%s\"", c.field);
    snprintf(e->param, sizeof(e->param), "%s", c.field);
    return st;
}
