/* Conversations; see messages.h. */
#include "server/api/messages.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/template/template.h"
#include "server/api/tools.h"
#include "server/limits.h"
#include "server/server.h"
#include "server/service.h"

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
enum { N_ROLES = sizeof(roles) / sizeof(roles[0]) };

struct place {
    char path[ERR_PARAM_CAP]; /* for instance messages[1].content */
};

static struct place place_at(size_t i, const char *rest)
{
    struct place p;
    snprintf(p.path, sizeof(p.path), "messages[%zu]%s", i, rest);
    return p;
}

static enum status bad(struct err *e, struct place at, const char *what)
{
    return err_set_field(e, ERR_INVALID, at.path, "invalid_value", "\"%s\" %s", at.path, what);
}

static bool has_nul(struct str s)
{
    return s.len && memchr(s.ptr, 0, s.len);
}

/* One content part: text (or a refusal, its twin in an assistant's message). */
static enum status add_part(const struct json *part, size_t i, size_t k, struct buf *text,
                            struct err *e)
{
    char rest[64];
    snprintf(rest, sizeof(rest), ".content[%zu]", k);
    if (json_is(part, JSON_STRING)) {
        buf_add_str(text, json_string(part));
        return OK;
    }
    if (!json_is(part, JSON_OBJECT))
        return bad(e, place_at(i, rest), "must be an object with type and text");
    const struct json *type = json_get(part, "type");
    bool refusal = json_is(type, JSON_STRING) && str_eq_c(json_string(type), "refusal");
    if (!json_is(type, JSON_STRING) || (!refusal && !str_eq_c(json_string(type), "text"))) {
        strncat(rest, ".type", sizeof(rest) - strlen(rest) - 1);
        struct place at = place_at(i, rest);
        return err_set_field(e, ERR_INVALID, at.path, "unsupported_content",
                             "\"%s\" must be \"text\": other kinds of content are not supported",
                             at.path);
    }
    const struct json *value = json_get(part, refusal ? "refusal" : "text");
    if (!json_is(value, JSON_STRING)) {
        strncat(rest, refusal ? ".refusal" : ".text", sizeof(rest) - strlen(rest) - 1);
        return bad(e, place_at(i, rest), "must be a string");
    }
    buf_add_str(text, json_string(value));
    return OK;
}

/* absent: the JSON text of an assistant's content that is null or not there beside tool calls. */
static enum status add_content(const struct json *message, size_t i, bool assistant,
                               const char *absent, struct buf *out, struct err *e)
{
    const struct json *content = json_get(message, "content");
    const struct json *calls = json_get(message, "tool_calls");
    buf_add_c(out, ",\"content\":");
    if (!content || json_is(content, JSON_NULL)) {
        if (!assistant)
            return bad(e, place_at(i, ".content"), "is required");
        const struct json *refusal = json_get(message, "refusal");
        if (json_is(refusal, JSON_STRING))
            json_add_string(out, json_string(refusal));
        else
            buf_add_c(out, json_is(calls, JSON_ARRAY) && json_count(calls) ? absent : "\"\"");
        return OK;
    }
    if (json_is(content, JSON_STRING)) {
        json_add_string(out, json_string(content));
        return OK;
    }
    if (!json_is(content, JSON_ARRAY))
        return bad(e, place_at(i, ".content"), "must be a string or an array of parts");
    struct buf text = {0};
    enum status status = OK;
    size_t k = 0;
    for (const struct json *part = json_first(content); part && !status; part = json_next(part))
        status = add_part(part, i, k++, &text, e);
    json_add_string(out, buf_str(&text));
    buf_release(&text);
    return status;
}

/* OpenAI sends arguments as JSON text; templates want the object. */
static void add_arguments(const struct json *arguments, struct buf *out)
{
    struct json_doc *doc = NULL;
    const struct json_limits limits = {.depth = JSON_DEPTH, .n_nodes = JSON_NODES};
    if (json_is(arguments, JSON_STRING) &&
        json_parse(json_string(arguments), limits, &doc, NULL) == OK &&
        json_is(json_root(doc), JSON_OBJECT))
        json_add_value(out, json_root(doc));
    else
        json_add_value(out, arguments);
    json_free(doc);
}

static void add_members(const struct json *object, const char *special, struct buf *out)
{
    const char *comma = "";
    buf_add_char(out, '{');
    for (const struct json *m = json_first(object); m; m = json_next(m)) {
        buf_add_c(out, comma);
        json_add_string(out, json_key(m));
        buf_add_char(out, ':');
        if (!str_eq_c(json_key(m), special))
            json_add_value(out, m);
        else if (strcmp(special, "arguments") == 0)
            add_arguments(m, out);
        else
            add_members(m, "arguments", out);
        comma = ",";
    }
    buf_add_char(out, '}');
}

static enum status add_tool_calls(const struct json *calls, size_t i, struct buf *out,
                                  struct err *e)
{
    if (!json_is(calls, JSON_ARRAY))
        return bad(e, place_at(i, ".tool_calls"), "must be an array");
    size_t k = 0;
    buf_add_char(out, '[');
    for (const struct json *call = json_first(calls); call; call = json_next(call)) {
        char rest[64];
        snprintf(rest, sizeof(rest), ".tool_calls[%zu]", k);
        if (!json_is(call, JSON_OBJECT))
            return bad(e, place_at(i, rest), "must be an object");
        const struct json *function = json_get(call, "function");
        if (function && !json_is(function, JSON_OBJECT)) {
            strncat(rest, ".function", sizeof(rest) - strlen(rest) - 1);
            return bad(e, place_at(i, rest), "must be an object");
        }
        if (k++)
            buf_add_char(out, ',');
        add_members(call, "function", out);
    }
    buf_add_char(out, ']');
    return OK;
}

static enum status check_role(const struct json *message, size_t i, struct str *role, struct err *e)
{
    const struct json *v = json_get(message, "role");
    if (!json_is(v, JSON_STRING))
        return bad(e, place_at(i, ".role"), v ? "must be a string" : "is required");
    *role = json_string(v);
    for (size_t k = 0; k < N_ROLES; k++)
        if (str_eq_c(*role, roles[k]))
            return OK;
    return bad(e, place_at(i, ".role"),
               "must be system, developer, user, assistant, tool or function");
}

/* Members other than role, content and tool_calls go through as they are. */
static enum status add_others(const struct json *message, size_t i, struct buf *out, struct err *e)
{
    for (const struct json *m = json_first(message); m; m = json_next(m)) {
        struct str key = json_key(m);
        if (str_eq_c(key, "role") || str_eq_c(key, "content") || json_is(m, JSON_NULL))
            continue;
        bool name = str_eq_c(key, "name") || str_eq_c(key, "tool_call_id");
        if (name && (!json_is(m, JSON_STRING) || has_nul(json_string(m)))) {
            char rest[32];
            snprintf(rest, sizeof(rest), ".%.*s", (int)key.len, key.ptr);
            return bad(e, place_at(i, rest), "must be a string without NUL characters");
        }
        buf_add_char(out, ',');
        json_add_string(out, key);
        buf_add_char(out, ':');
        enum status status = OK;
        if (str_eq_c(key, "tool_calls"))
            status = add_tool_calls(m, i, out, e);
        else
            json_add_value(out, m);
        if (status)
            return status;
    }
    return OK;
}

enum status messages_normalise(const struct json *messages, const char *absent, struct buf *out,
                               struct err *e)
{
    if (!json_is(messages, JSON_ARRAY) || json_count(messages) == 0)
        return err_set_field(e, ERR_INVALID, "messages", messages ? "invalid_value" : "missing",
                             messages ? "\"messages\" must be an array with at least one message"
                                      : "\"messages\" is required");
    size_t i = 0;
    buf_add_char(out, '[');
    for (const struct json *m = json_first(messages); m; m = json_next(m), i++) {
        struct str role;
        if (!json_is(m, JSON_OBJECT))
            return bad(e, place_at(i, ""), "must be an object");
        enum status status = check_role(m, i, &role, e);
        if (status)
            return status;
        if (str_eq_c(role, "developer"))
            role = STR_LIT("system");
        buf_add_c(out, i ? ",{\"role\":" : "{\"role\":");
        json_add_string(out, role);
        status = add_content(m, i, str_eq_c(role, "assistant"), absent, out, e);
        if (!status)
            status = add_others(m, i, out, e);
        if (status)
            return status;
        buf_add_char(out, '}');
    }
    buf_add_char(out, ']');
    return OK;
}

static enum status check_turn(const struct params *p, struct err *e)
{
    if (p->kwargs && !json_is(p->kwargs, JSON_OBJECT))
        return err_set_field(e, ERR_INVALID, "chat_template_kwargs", "invalid_type",
                             "\"chat_template_kwargs\" must be an object");
    if (p->continue_final && p->given[FIELD_add_generation_prompt] && p->add_generation_prompt)
        return err_set_field(e, ERR_INVALID, "continue_final_message", "invalid_value",
                             "\"continue_final_message\" and \"add_generation_prompt\" are both "
                             "true, at most one may be");
    return OK;
}

static struct str special_text(const struct tokenizer *tok, int32_t token)
{
    return token < 0 ? STR_LIT("") : tokenizer_text(tok, token);
}

/* A template may leave out the BOS that the model was trained with: then it is put in front, so that
 * a chat begins with exactly one whatever the template prints. */
static void ensure_bos(const struct tokenizer *tok, struct tokens *tokens)
{
    int32_t bos = tokenizer_bos(tok);
    if (!tokenizer_adds_bos(tok) || bos < 0 || (tokens->n > 0 && tokens->id[0] == bos))
        return;
    tokens_add(tokens, bos);
    memmove(tokens->id + 1, tokens->id, (tokens->n - 1) * sizeof(*tokens->id));
    tokens->id[0] = bos;
}

static enum status render_and_encode(const struct service *service, const struct params *p,
                                     const struct json *messages, bool keep_null_content,
                                     struct tokens *out, struct err *e)
{
    const struct tokenizer *tok = service->tok;
    int64_t fixed = service->set->deterministic_time;
    struct template_args args = {
        .messages = messages,
        .tools = tools_shown(p),
        .kwargs = p->kwargs,
        .add_generation_prompt = p->add_generation_prompt && !p->continue_final,
        .continue_final_message = p->continue_final,
        .bos_token = special_text(tok, tokenizer_bos(tok)),
        .eos_token = special_text(tok, tokenizer_eos(tok)),
        .now_unix_s = fixed ? fixed : clock_unix_s(),
        .keep_null_content = keep_null_content,
    };
    struct buf text = {0};
    struct encode_options options = {
        .add_special = p->given[FIELD_add_special_tokens] && p->add_special,
        .parse_special = true,
    };
    struct text_range *trusted = NULL;
    enum status status =
        template_render(service->tmpl, &args, &text, &trusted, &options.n_trusted, e);
    options.trusted = trusted;
    if (status) {
        if (!e->param[0])
            snprintf(e->param, sizeof(e->param), "messages");
    } else {
        status = tokenizer_encode(tok, buf_str(&text), &options, out, e);
        if (!status && (!p->given[FIELD_add_special_tokens] || p->add_special))
            ensure_bos(tok, out);
    }
    mem_free(trusted);
    buf_release(&text);
    return status;
}

/* Of messages that messages_normalise has taken. */
static bool lacks_content(const struct json *messages)
{
    for (const struct json *m = json_first(messages); m; m = json_next(m)) {
        const struct json *content = json_get(m, "content");
        if (!content || json_is(content, JSON_NULL))
            return true;
    }
    return false;
}

/* Instructions about tools for a template that knows none, in front of the system message. */
static void add_preface(const struct service *service, const struct params *p, struct buf *normal)
{
    static const struct str system = STR_LIT("[{\"role\":\"system\",\"content\":\"");
    struct buf preface = {0}, all = {0};
    if (service->tmpl)
        tools_add_preface(service->tmpl, p, &preface);
    if (preface.len) {
        struct str rest = buf_str(normal);
        bool joins = str_starts(rest, system);
        size_t n = joins ? system.len : 1; /* of the list's beginning */
        buf_add_str(&all, system);
        json_add_escaped(&all, buf_str(&preface));
        buf_add_c(&all, joins ? "\\n\\n" : "\"},");
        buf_add(&all, rest.ptr + n, rest.len - n);
        buf_release(normal);
        *normal = all;
    }
    buf_release(&preface);
}

static enum status encode_form(const struct service *service, const struct params *p,
                               const struct buf *normal, bool keep_null_content, struct tokens *out,
                               struct err *e)
{
    struct json_doc *doc = NULL;
    const struct json_limits limits = {.depth = JSON_DEPTH + 8, .n_nodes = 2 * JSON_NODES};
    enum status status = json_parse(buf_str(normal), limits, &doc, e);
    if (!status)
        status = render_and_encode(service, p, json_root(doc), keep_null_content, out, e);
    json_free(doc);
    return status;
}

/* An empty text in place of each content that isn't there. */
static enum status encode_empty_content(const struct service *service, const struct params *p,
                                        struct tokens *out, struct err *e)
{
    struct buf normal = {0};
    enum status status = messages_normalise(p->messages, "\"\"", &normal, e);
    if (!status)
        add_preface(service, p, &normal);
    if (!status)
        status = encode_form(service, p, &normal, false, out, e);
    buf_release(&normal);
    return status;
}

/* Tool calls come back without content (null, or no member), and templates expect it in one of three
 * ways: no member, as transformers now renders; none, which some ask for; an empty text, which the
 * rest take. The first that the template doesn't fail on counts. */
enum status messages_encode(const struct service *service, const struct params *p,
                            struct tokens *out, struct err *e)
{
    struct buf normal = {0};
    enum status status = check_turn(p, e);
    if (!status)
        status = messages_normalise(p->messages, "null", &normal, e);
    if (!status && !service->tmpl)
        status = err_set_field(
            e, ERR_INVALID, NULL, "no_chat_template",
            "the model has no usable chat template: use /v1/completions, or start the "
            "server with --chat-template FILE");
    else if (!status) {
        add_preface(service, p, &normal);
        status = encode_form(service, p, &normal, false, out, e);
        bool again = status == ERR_INVALID && lacks_content(p->messages);
        if (again)
            status = encode_form(service, p, &normal, true, out, e);
        if (again && status == ERR_INVALID)
            status = encode_empty_content(service, p, out, e);
    }
    buf_release(&normal);
    return status;
}
