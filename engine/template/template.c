/* The door of the chat template interpreter: parse once, render for every request.
 *
 * Renders what Python's jinja2 renders when it is set up as transformers sets it up: immutable
 * sandbox, trim_blocks, lstrip_blocks, loop controls, the generation tag, tojson as json.dumps.
 * Called by the server (HTTP threads, many at once) and inspect. */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/template/interp.h"

/* ---- names ---- */

static uint32_t name_hash(struct str s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 16777619u;
    return h;
}

static uint32_t name_slot(const struct chat_template *t, struct str name)
{
    uint32_t at = name_hash(name) & (t->n_name_slots - 1);
    while (t->name_slots[at] && !str_eq(tm_view_str(t->names[t->name_slots[at] - 1]), name))
        at = (at + 1) & (t->n_name_slots - 1);
    return at;
}

bool tm_name_find(const struct chat_template *t, struct str name, uint32_t *id)
{
    uint32_t slot = t->name_slots[name_slot(t, name)];
    *id = slot - 1;
    return slot != 0;
}

static void grow_names(struct tmpl *c, struct chat_template *t)
{
    uint32_t cap = t->cap_names ? t->cap_names * 2 : 64;
    t->names = tm_grow(c, t->names, t->n_names * sizeof(*t->names), cap * sizeof(*t->names));
    t->cap_names = cap;
    t->n_name_slots = cap * 2;
    t->name_slots = tm_zalloc(c, t->n_name_slots * sizeof(*t->name_slots));
    for (uint32_t i = 0; i < t->n_names; i++)
        t->name_slots[name_slot(t, tm_view_str(t->names[i]))] = i + 1;
}

uint32_t tm_intern(struct tmpl *c, struct chat_template *t, struct str name)
{
    if (t->n_names == t->cap_names)
        grow_names(c, t);
    uint32_t slot = name_slot(t, name);
    if (!t->name_slots[slot]) {
        t->names[t->n_names++] = tm_str_new(c, name.ptr, name.len, true);
        t->name_slots[slot] = t->n_names;
    }
    return t->name_slots[slot] - 1;
}

/* ---- context ---- */

static void context_init(struct tmpl *c, const struct chat_template *t, struct err *e)
{
    *c = (struct tmpl){
        .arena_left = TM_MAX_ARENA_BYTES, .steps_left = TM_MAX_STEPS, .tpl = t, .err = e};
}

static bool mentions(struct str source, const char *word)
{
    return memmem(source.ptr, source.len, word, strlen(word)) != NULL;
}

static void parse_source(struct tmpl *c, struct chat_template *t, struct str source)
{
    struct tm_tokens tokens = {0};
    static const char *const known[] = {
#define X(n) #n,
        TM_NAMES(X)
#undef X
    };
    c->line = 1;
    if (source.len > TM_MAX_SOURCE_BYTES)
        tm_fail(c, ERR_TOO_LARGE, "source of %zu bytes, at most %d", source.len,
                TM_MAX_SOURCE_BYTES);
    if (!utf8_valid(source))
        tm_fail(c, ERR_FORMAT, "source is not valid UTF-8 at byte %zu", utf8_error_at(source));
    for (uint32_t i = 0; i < TM_N_NAMES; i++) {
        uint32_t id = tm_intern(c, t, str_of(known[i]));
        CHECK(id == i);
    }
    tm_lex(c, source, &tokens);
    tm_parse(c, t, &tokens);
    tm_analyse(c, t);
    t->mentions_developer = mentions(source, "developer");
    t->mentions_content = mentions(source, "content");
}

static enum status parse_guarded(struct tmpl *c, struct chat_template *t, struct str source)
{
    if (setjmp(c->trap))
        return c->status;
    parse_source(c, t, source);
    return OK;
}

/* ---- messages ---- */

static struct tm_val key_val(struct tmpl *c, const char *key)
{
    return tm_string(tm_str_lit(c, key));
}

static const struct tm_val *member(struct tmpl *c, const struct tm_dict *d, const char *key)
{
    return tm_dict_get(c, d, key_val(c, key));
}

/* A role out of this list carries no text of the client, so that a template may build a control
 * token from it. */
static struct tm_val trust_role(struct tmpl *c, struct tm_val role)
{
    static const char *const roles[] = {"system", "user",     "assistant",
                                        "tool",   "function", "developer"};
    for (size_t i = 0; role.type == TM_STR && i < sizeof(roles) / sizeof(roles[0]); i++)
        if (tm_str_is(role.s, roles[i]))
            return tm_string(tm_str_new(c, roles[i], strlen(roles[i]), true));
    return role;
}

static struct tm_dict *without_nulls(struct tmpl *c, const struct tm_dict *message,
                                     bool keep_content)
{
    struct tm_dict *d = tm_dict_new(c);
    const struct tm_val *content = keep_content ? member(c, message, "content") : NULL;
    for (uint32_t i = 0; i < message->n; i++)
        if (message->e[i].value.type != TM_NONE || &message->e[i].value == content)
            tm_dict_set(c, d, message->e[i].key, message->e[i].value);
    return d;
}

/* Reasoning under the name each template may read, in the order transformers gives the members. */
static struct tm_dict *with_reasoning(struct tmpl *c, struct tm_dict *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct tm_val *found = NULL;
    for (size_t i = 0; !found && i < sizeof(names) / sizeof(names[0]); i++)
        found = member(c, message, names[i]);
    if (!found)
        return message;
    struct tm_dict *d = tm_dict_new(c);
    struct tm_val reasoning = *found;
    tm_dict_set(c, d, key_val(c, "thinking"), reasoning);
    for (uint32_t i = 0; i < message->n; i++)
        tm_dict_set(c, d, message->e[i].key, message->e[i].value);
    tm_dict_set(c, d, key_val(c, "reasoning_content"), reasoning);
    return d;
}

static struct tm_val as_part(struct tmpl *c, struct tm_val text)
{
    struct tm_dict *part = tm_dict_new(c);
    tm_dict_set(c, part, key_val(c, "type"), key_val(c, "text"));
    tm_dict_set(c, part, key_val(c, "text"), text);
    struct tm_list *l = tm_list_new(c, 1);
    tm_list_add(c, l, tm_dict_val(part));
    return tm_list_val(l);
}

static struct tm_dict *prepare(struct tmpl *c, struct tm_dict *message, bool keep_content)
{
    struct tm_dict *d = with_reasoning(c, without_nulls(c, message, keep_content));
    const struct tm_val *role = member(c, d, "role"), *content = member(c, d, "content");
    if (role && role->type == TM_STR && tm_str_is(role->s, "developer") &&
        !c->tpl->mentions_developer)
        tm_dict_set(c, d, key_val(c, "role"), key_val(c, "system"));
    if (content && content->type == TM_STR && c->tpl->wants_parts)
        tm_dict_set(c, d, key_val(c, "content"), as_part(c, *content));
    return d;
}

__attribute__((noreturn)) static void refuse(struct tmpl *c, const char *field, const char *text)
{
    c->status = err_set_field(c->err, ERR_INVALID, field, NULL, "%s", text);
    longjmp(c->trap, 1);
}

static struct tm_list *read_messages(struct tmpl *c, const struct template_args *a)
{
    if (!json_is(a->messages, JSON_ARRAY))
        refuse(c, "messages", "messages must be an array");
    struct tm_list *l = tm_from_json(c, a->messages).list;
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->v[i].type != TM_DICT)
            refuse(c, "messages", "each message must be an object");
        struct tm_dict *d =
            a->verbatim ? l->v[i].dict : prepare(c, l->v[i].dict, a->keep_null_content);
        const struct tm_val *role = member(c, d, "role");
        if (role)
            tm_dict_set(c, d, key_val(c, "role"), trust_role(c, *role));
        l->v[i] = tm_dict_val(d);
    }
    return l;
}

/* ---- continue_final_message ---- */

/* The mark transformers appends to the last message before it renders, to find its end after. */
static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static struct tm_val tagged(struct tmpl *c, struct tm_val text)
{
    return tm_string(tm_concat(c, text.s, tm_str_lit(c, continue_tag)));
}

/* Tags the last message; gives its text. */
static const struct tm_str *tag_final(struct tmpl *c, struct tm_list *messages)
{
    if (!messages->n)
        refuse(c, "continue_final_message",
               "continue_final_message is set but there are no messages");
    struct tm_dict *last = messages->v[messages->n - 1].dict;
    const struct tm_val *content = member(c, last, "content");
    if (!content || content->type == TM_NONE)
        refuse(c, "continue_final_message",
               "continue_final_message is set but the final message has no content to continue");
    if (!c->tpl->mentions_content)
        refuse(c, "continue_final_message",
               "continue_final_message is set but the chat template reads no content");
    if (content->type == TM_STR) {
        const struct tm_str *text = content->s;
        tm_dict_set(c, last, key_val(c, "content"), tagged(c, *content));
        return text;
    }
    const struct tm_list *parts = content->type == TM_LIST ? content->list : tm_list_new(c, 0);
    for (uint32_t i = parts->n; i-- > 0;) {
        struct tm_val part = parts->v[i];
        const struct tm_val *text = part.type == TM_DICT ? member(c, part.dict, "text") : NULL;
        if (!text || text->type != TM_STR)
            continue;
        const struct tm_str *s = text->s;
        tm_dict_set(c, part.dict, key_val(c, "text"), tagged(c, *text));
        return s;
    }
    refuse(c, "continue_final_message",
           "continue_final_message is set but the final message holds no text to continue");
}

/* Cuts at the tag; where the template trimmed what follows the text, spaces before go as well. */
static const struct tm_str *cut_final(struct tmpl *c, const struct tm_str *s,
                                      const struct tm_str *text)
{
    const struct tm_str *tag = tm_str_lit(c, continue_tag);
    const struct tm_str *bare = tm_strip(c, tag, NULL, true, true);
    const struct tm_str *stripped = tm_strip(c, text, NULL, true, true);
    int64_t at = tm_find(c, s, bare, 0, s->len, true);
    if (at < 0 || tm_find(c, s, stripped, 0, s->len, false) < 0)
        refuse(c, "continue_final_message",
               "continue_final_message is set but the final message does not appear in the chat "
               "after applying the chat template");
    bool whole = tm_find(c, s, tag, (uint32_t)at, s->len, false) == at;
    s = tm_sub(c, s, 0, (uint32_t)at);
    return whole ? s : tm_strip(c, s, NULL, false, true);
}

/* ---- rendering ---- */

struct job {
    const struct template_args *args; /* NULL: a probe */
    bool probe_parts;
    const struct tm_str *result;
};

static const char probe_text[] = "probe of the content format";

static struct tm_list *probe_messages(struct tmpl *c, bool parts)
{
    struct tm_dict *d = tm_dict_new(c);
    struct tm_val text = key_val(c, probe_text);
    tm_dict_set(c, d, key_val(c, "role"), key_val(c, "user"));
    tm_dict_set(c, d, key_val(c, "content"), parts ? as_part(c, text) : text);
    struct tm_list *l = tm_list_new(c, 1);
    tm_list_add(c, l, tm_dict_val(d));
    return l;
}

static void set_token(struct tmpl *c, struct tm_scope *s, uint32_t name, struct str text)
{
    if (text.ptr)
        tm_scope_set(c, s, name, tm_string(tm_str_new(c, text.ptr, text.len, true)));
}

static void set_globals(struct tmpl *c, struct tm_scope *s, const struct template_args *a)
{
    c->now_unix_s = a->now_unix_s;
    tm_scope_set(c, s, TM_NAME_tools, a->tools ? tm_from_json(c, a->tools) : tm_none());
    tm_scope_set(c, s, TM_NAME_documents, tm_none());
    tm_scope_set(c, s, TM_NAME_add_generation_prompt, tm_bool(a->add_generation_prompt));
    set_token(c, s, TM_NAME_bos_token, a->bos_token);
    set_token(c, s, TM_NAME_eos_token, a->eos_token);
    if (!a->kwargs)
        return;
    if (!json_is(a->kwargs, JSON_OBJECT))
        refuse(c, "chat_template_kwargs", "chat_template_kwargs must be an object");
    for (const struct json *v = json_first(a->kwargs); v; v = json_next(v)) {
        uint32_t id;
        if (tm_name_find(c->tpl, json_key(v), &id) && id != TM_NAME_messages &&
            id != TM_NAME_tools && id != TM_NAME_add_generation_prompt)
            tm_scope_set(c, s, id, tm_from_json(c, v));
    }
}

static void render(struct tmpl *c, struct job *j)
{
    static const struct template_args none;
    const struct template_args *a = j->args ? j->args : &none;
    struct tm_scope *globals = tm_scope_new(c, NULL, NULL, 0);
    struct tm_list *messages = j->args ? read_messages(c, a) : probe_messages(c, j->probe_parts);
    if (a->continue_final_message && a->add_generation_prompt)
        refuse(c, "continue_final_message",
               "continue_final_message and add_generation_prompt exclude each other");
    const struct tm_str *text = a->continue_final_message ? tag_final(c, messages) : NULL;
    set_globals(c, globals, a);
    tm_scope_set(c, globals, TM_NAME_messages, tm_list_val(messages));
    struct tm_sb out;
    tm_sb_init(&out, c);
    tm_run(c, c->tpl, globals, &out);
    j->result = tm_sb_done(&out);
    if (text)
        j->result = cut_final(c, j->result, text);
}

static enum status render_guarded(struct tmpl *c, struct job *j)
{
    if (setjmp(c->trap))
        return c->status;
    render(c, j);
    return OK;
}

static bool probe(const struct chat_template *t, bool parts)
{
    struct tmpl c;
    struct job j = {.probe_parts = parts};
    context_init(&c, t, NULL);
    c.steps_left = TM_MAX_PROBE_STEPS;
    bool shown = render_guarded(&c, &j) == OK &&
                 memmem(j.result->p, j.result->len, probe_text, sizeof(probe_text) - 1);
    tm_arena_release(&c);
    return shown;
}

/* ---- door ---- */

enum status template_new(struct str source, struct chat_template **out, struct err *e)
{
    struct chat_template *t = mem_zalloc(sizeof(*t));
    context_init(&t->parse, t, e);
    enum status status = parse_guarded(&t->parse, t, source);
    if (status != OK) {
        template_free(t);
        return status;
    }
    t->parse.err = NULL;
    t->wants_parts = t->mentions_content && !probe(t, false) && probe(t, true);
    *out = t;
    return OK;
}

void template_free(struct chat_template *t)
{
    if (!t)
        return;
    tm_arena_release(&t->parse);
    mem_free(t);
}

static void give_ranges(const struct tm_str *s, size_t base, struct text_range **trusted, size_t *n)
{
    struct tm_mark all = {0, s->len};
    const struct tm_mark *marks = s->taint == TM_MIXED ? s->marks : &all;
    *n = s->taint == TM_MIXED ? s->n_marks : s->taint == TM_TRUSTED && s->len ? 1 : 0;
    *trusted = mem_alloc(mem_mul(*n + 1, sizeof(**trusted)));
    for (size_t i = 0; i < *n; i++)
        (*trusted)[i] = (struct text_range){base + marks[i].start, base + marks[i].end};
}

enum status template_render(const struct chat_template *t, const struct template_args *a,
                            struct buf *out, struct text_range **trusted, size_t *n_trusted,
                            struct err *e)
{
    struct tmpl c;
    struct job j = {.args = a};
    context_init(&c, t, e);
    *trusted = NULL;
    *n_trusted = 0;
    enum status status = render_guarded(&c, &j);
    if (status == OK) {
        give_ranges(j.result, out->len, trusted, n_trusted);
        buf_add(out, j.result->p, j.result->len);
    }
    tm_arena_release(&c);
    return status;
}
