/* See tools.h. */
#include "server/api/tools.h"

#include <stdio.h>
#include <string.h>

#include "engine/template/template.h"
#include "server/grammars.h"
#include "server/service.h"

enum { MAX_CALLS = 8 /* of an answer that is forced to call */ };

#define DS(text) "<\xef\xbd\x9ctool\xe2\x96\x81" text "\xef\xbd\x9c>"
#define DS_CALLS_BEGIN                                                                             \
    DS("calls\xe2\x96\x81"                                                                         \
       "begin")
#define DS_CALL_BEGIN                                                                              \
    DS("call\xe2\x96\x81"                                                                          \
       "begin")

/* How a forced call is written: opener, open, calls, close; a call is begin, its name, middle, its arguments, end. */
struct frame {
    const char *sign; /* of templates that write calls so */
    enum toolcall_format format;
    bool control_marks, short_ids;
    const char *opener; /* ends the prompt, since it may be a control token */
    const char *open, *begin, *middle, *end;
    const char *separator; /* NULL: one call only */
    const char *close;
};

static const struct frame frames[] = {
    {"<tool_call>", TOOLCALL_HERMES, false, false, "<tool_call>\n", "", "{\"name\": \"",
     "\", \"arguments\": ", "}\n</tool_call>", "\n<tool_call>\n", ""},
    {DS_CALLS_BEGIN, TOOLCALL_DEEPSEEK_LIST, true, false,
     DS_CALLS_BEGIN DS_CALL_BEGIN "function" DS("sep"), "", "", "\n```json\n", "\n```", NULL, ""},
    {"[TOOL_CALLS]", TOOLCALL_MISTRAL, true, true, "[TOOL_CALLS]", "[", "{\"name\": \"",
     "\", \"arguments\": ", "}", ", ", "]"},
    {"<|python_tag|>", TOOLCALL_OBJECT, true, false, "", "", "{\"name\": \"",
     "\", \"parameters\": ", "}", NULL, ""},
    {"<start_function_call>", TOOLCALL_OBJECT, true, false, "", "", "{\"name\": \"",
     "\", \"arguments\": ", "}", NULL, ""},
    {"<|tool_call>", TOOLCALL_OBJECT, true, false, "", "", "{\"name\": \"",
     "\", \"arguments\": ", "}", NULL, ""},
    {"", TOOLCALL_OBJECT, false, false, "", "", "{\"name\": \"", "\", \"arguments\": ", "}", NULL,
     ""},
};

static bool knows_tools(const struct chat_template *tmpl)
{
    return tmpl && template_mentions(tmpl, "tools");
}

static const struct frame *frame_of(const struct chat_template *tmpl)
{
    const struct frame *f = frames, *plain = &frames[sizeof(frames) / sizeof(frames[0]) - 1];
    if (!knows_tools(tmpl))
        return plain;
    while (f < plain && !template_mentions(tmpl, f->sign))
        f++;
    return f;
}

/* ---- tool_choice ---- */

enum mode { MODE_AUTO, MODE_NONE, MODE_REQUIRED };

struct choice_of_tool {
    enum mode mode;
    bool one; /* a named tool: one call of it */
    struct str name;
    const struct json *allowed; /* list of tools, NULL: all */
};

static enum status bad(struct err *e, const char *path, const char *what)
{
    return err_set_field(e, ERR_INVALID, path, "invalid_value", "\"%s\" %s", path, what);
}

/* Chat's form has the name in `function`, that of the Responses API beside the type. */
static const struct json *name_of(const struct json *tool)
{
    const struct json *function = json_is(tool, JSON_OBJECT) ? json_get(tool, "function") : NULL;
    const struct json *holder = json_is(function, JSON_OBJECT) ? function : tool;
    const struct json *name = json_is(holder, JSON_OBJECT) ? json_get(holder, "name") : NULL;
    return json_is(name, JSON_STRING) ? name : NULL;
}

static bool read_mode(const struct json *v, enum mode *mode)
{
    static const struct {
        const char *name;
        enum mode mode;
    } modes[] = {{"auto", MODE_AUTO},
                 {"none", MODE_NONE},
                 {"required", MODE_REQUIRED},
                 {"any", MODE_REQUIRED}};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (json_is(v, JSON_STRING) && str_eq_c(json_string(v), modes[i].name)) {
            *mode = modes[i].mode;
            return true;
        }
    }
    return false;
}

static enum status read_choice_object(const struct json *v, struct choice_of_tool *c, struct err *e)
{
    const struct json *allowed = json_get(v, "allowed_tools");
    const struct json *name = name_of(v);
    if (json_is(allowed, JSON_OBJECT)) {
        c->allowed = json_get(allowed, "tools");
        if (!read_mode(json_get(allowed, "mode"), &c->mode) || !json_is(c->allowed, JSON_ARRAY))
            return bad(e, "tool_choice",
                       "of type allowed_tools needs a mode and an array of tools");
        return OK;
    }
    if (!name)
        return bad(e, "tool_choice", "must name a function, or be auto, none or required");
    *c = (struct choice_of_tool){.mode = MODE_REQUIRED, .one = true, .name = json_string(name)};
    return OK;
}

static enum status read_choice(const struct params *p, struct choice_of_tool *c, struct err *e)
{
    const struct json *v = p->tool_choice;
    *c = (struct choice_of_tool){.mode = MODE_AUTO};
    if (!v || read_mode(v, &c->mode))
        return OK;
    if (json_is(v, JSON_OBJECT))
        return read_choice_object(v, c, e);
    return bad(e, "tool_choice", "must be \"auto\", \"none\", \"required\" or an object");
}

static bool may_call(const struct choice_of_tool *c, struct str name)
{
    if (c->one)
        return str_eq(name, c->name);
    if (!c->allowed)
        return true;
    for (const struct json *v = json_first(c->allowed); v; v = json_next(v))
        if (name_of(v) && str_eq(json_string(name_of(v)), name))
            return true;
    return false;
}

/* ---- tools ---- */

/* Letters, digits and a few marks: what every format can hold without escapes. */
static bool name_is_fine(struct str s)
{
    if (!s.len || s.len > TOOLCALL_MAX_NAME)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= ' ' || c == 127 || strchr("\"\\<>[]{}`|", c))
            return false;
    }
    return true;
}

static enum status bad_tool(struct err *e, size_t i, const char *rest, const char *what)
{
    char path[ERR_PARAM_CAP];
    snprintf(path, sizeof(path), "tools[%zu]%s", i, rest);
    return bad(e, path, what);
}

static enum status check_tool(const struct json *tool, size_t i, struct err *e)
{
    if (!json_is(tool, JSON_OBJECT))
        return bad_tool(e, i, "", "must be an object");
    const struct json *type = json_get(tool, "type"), *function = json_get(tool, "function");
    if (type && !(json_is(type, JSON_STRING) && str_eq_c(json_string(type), "function")))
        return bad_tool(e, i, ".type", "must be \"function\": other kinds are not supported");
    if (!json_is(function, JSON_OBJECT))
        return bad_tool(e, i, ".function", "must be an object");
    const struct json *name = json_get(function, "name");
    const struct json *parameters = json_get(function, "parameters");
    if (!json_is(name, JSON_STRING) || !name_is_fine(json_string(name)))
        return bad_tool(e, i, ".function.name",
                        "must be a string of 1 to 128 letters, digits, _ and -");
    if (parameters && !json_is(parameters, JSON_NULL) && !json_is(parameters, JSON_OBJECT))
        return bad_tool(e, i, ".function.parameters", "must be a JSON schema");
    return OK;
}

static enum status read_names(const struct params *p, const struct choice_of_tool *c,
                              struct tools *out, struct err *e)
{
    size_t i = 0;
    for (const struct json *v = json_first(p->tools); v; v = json_next(v), i++) {
        enum status st = check_tool(v, i, e);
        if (st)
            return st;
        struct str name = json_string(name_of(v));
        if (!may_call(c, name))
            continue;
        buf_add_str(&out->names, name);
        buf_add_char(&out->names, 0);
    }
    if (!out->names.len)
        return bad(e, "tool_choice", "allows none of the tools");
    return OK;
}

/* ---- the grammar of a forced call ---- */

/* No parameters are declared, and nothing says that there may be others. */
static bool takes_none(const struct json *parameters)
{
    static const char *const idle[] = {"type",  "properties",  "required",
                                       "title", "description", "$schema"};
    if (!json_is(parameters, JSON_OBJECT))
        return true;
    for (const struct json *m = json_first(parameters); m; m = json_next(m)) {
        bool known = false;
        for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
            known |= str_eq_c(json_key(m), idle[i]);
        bool holds = (json_is(m, JSON_OBJECT) || json_is(m, JSON_ARRAY)) && json_count(m);
        if (!known || holds)
            return false;
    }
    return json_get(parameters, "type") != NULL;
}

static void add_member(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, "\"%s\":", key);
    json_add_string(out, str_of(text));
    buf_add_char(out, ',');
}

static void add_call(struct buf *out, const struct frame *f, const struct json *tool, size_t i)
{
    const struct json *parameters = json_get(json_get(tool, "function"), "parameters");
    buf_add_c(out, "{\"begin\":\"");
    json_add_escaped(out, str_of(f->begin));
    json_add_escaped(out, json_string(name_of(tool)));
    json_add_escaped(out, str_of(f->middle));
    buf_add_c(out, "\",");
    add_member(out, "end", f->end);
    buf_printf(out, "\"place\":\"tools[%zu].function.parameters\",\"schema\":", i);
    if (takes_none(parameters))
        buf_add_c(out, "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}");
    else
        json_add_value(out, parameters);
    buf_add_char(out, '}');
}

static void add_source(struct buf *out, const struct frame *f, const struct params *p,
                       const struct choice_of_tool *c)
{
    bool many = f->separator && !c->one && p->parallel_tools;
    const char *comma = "";
    size_t i = 0;
    buf_add_char(out, '{');
    add_member(out, "open", f->open);
    add_member(out, "separator", f->separator ? f->separator : "");
    add_member(out, "close", f->close);
    buf_printf(out, "\"most\":%d,\"calls\":[", many ? MAX_CALLS : 1);
    for (const struct json *v = json_first(p->tools); v; v = json_next(v), i++) {
        if (!may_call(c, json_string(name_of(v))))
            continue;
        buf_add_c(out, comma);
        add_call(out, f, v, i);
        comma = ",";
    }
    buf_add_c(out, "]}");
}

static enum status force(const struct service *service, const struct params *p,
                         const struct gram_owner *owner, const struct frame *f,
                         const struct choice_of_tool *c, struct grammar **grammar, struct err *e)
{
    const struct json_limits limits = {.depth = 128, .n_nodes = 1 << 20};
    struct buf source = {0};
    struct json_doc *doc = NULL;
    if (*grammar)
        return bad(e, "tool_choice",
                   "forces a call, and another field constrains the output: only "
                   "one may");
    add_source(&source, f, p, c);
    enum status st = json_parse(buf_str(&source), limits, &doc, e);
    if (!st)
        st = grammars_get(service->grammars, GRAMMAR_CALLS, json_root(doc), owner, grammar, e);
    json_free(doc);
    buf_release(&source);
    if (!st || !grammars_is_bad(e))
        return st;
    if (strncmp(e->param, "tools[", 6) != 0)
        snprintf(e->param, sizeof(e->param), "tools");
    char place[ERR_PARAM_CAP];
    snprintf(place, sizeof(place), "%s", e->param);
    err_prefix(e, "\"%s\"", place);
    return st;
}

/* ---- door ---- */

static enum status check_kinds(const struct params *p, const struct choice_of_tool *c,
                               struct err *e)
{
    if (p->tools && !json_is(p->tools, JSON_ARRAY))
        return err_set_field(e, ERR_INVALID, "tools", "invalid_type", "\"tools\" must be an array");
    if (c->mode == MODE_REQUIRED && (!p->tools || !json_count(p->tools)))
        return bad(e, "tool_choice", "asks for a call, and there are no tools");
    return OK;
}

enum status tools_read(const struct service *service, const struct params *p,
                       const struct gram_owner *owner, struct tools *out, struct grammar **grammar,
                       struct err *e)
{
    struct choice_of_tool c;
    const struct frame *f = frame_of(service->tmpl);
    enum status st = read_choice(p, &c, e);
    if (!st)
        st = check_kinds(p, &c, e);
    if (st || c.mode == MODE_NONE || !p->tools || !json_count(p->tools))
        return st;
    st = read_names(p, &c, out, e);
    *out = (struct tools){.names = out->names,
                          .listens = !*grammar,
                          .control_marks = f->control_marks,
                          .short_ids = f->short_ids,
                          .format = f->format,
                          .opener = ""};
    if (st || c.mode != MODE_REQUIRED)
        return st;
    out->opener = f->opener;
    out->opened = f->opener[0];
    return force(service, p, owner, f, &c, grammar, e);
}

void tools_release(struct tools *t)
{
    buf_release(&t->names);
}

bool tools_knows(const struct tools *t, struct str name)
{
    for (size_t at = 0; at < t->names.len;) {
        struct str known = str_of(t->names.ptr + at);
        if (str_eq(known, name))
            return true;
        at += known.len + 1;
    }
    return false;
}

const struct json *tools_shown(const struct params *p)
{
    enum mode mode = MODE_AUTO;
    read_mode(p->tool_choice, &mode);
    return mode != MODE_NONE && json_is(p->tools, JSON_ARRAY) && json_count(p->tools) ? p->tools
                                                                                      : NULL;
}

void tools_add_preface(const struct chat_template *tmpl, const struct params *p, struct buf *out)
{
    const struct json *tools = tools_shown(p);
    if (!tools || knows_tools(tmpl))
        return;
    buf_add_c(out, "You can call these functions (the parameters are JSON schemas):\n");
    for (const struct json *v = json_first(tools); v; v = json_next(v)) {
        const struct json *function = json_is(v, JSON_OBJECT) ? json_get(v, "function") : NULL;
        json_add_value(out, function ? function : v);
        buf_add_char(out, '\n');
    }
    buf_add_c(out, "To call one, answer with nothing but a JSON object of this form:\n"
                   "{\"name\": \"the function\", \"arguments\": {\"a parameter\": \"its value\"}}");
}

enum status tools_open_prompt(const struct service *service, const struct tools *t,
                              struct tokens *prompt, struct err *e)
{
    const struct encode_options options = {.parse_special = true};
    if (!t->opened)
        return OK;
    return tokenizer_encode(service->tok, str_of(t->opener), &options, prompt, e);
}
