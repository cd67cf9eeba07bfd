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

struct tm_val tm_key(struct tmpl *c, const char *key)
{
    return tm_string(tm_str_lit(c, key));
}

const struct tm_val *tm_member(struct tmpl *c, const struct tm_dict *d, const char *key)
{
    return tm_dict_get(c, d, tm_key(c, key));
}

/* A role of this list carries no text of the client, so a template may build a control token from it. */
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
    const struct tm_val *content = keep_content ? tm_member(c, message, "content") : NULL;
    for (uint32_t i = 0; i < message->n; i++)
        if (message->e[i].value.type != TM_NONE || &message->e[i].value == content)
            tm_dict_set(c, d, message->e[i].key, message->e[i].value);
    return d;
}

/* Reasoning under each name that a template may read, in the order in which transformers has them. */
static struct tm_dict *with_reasoning(struct tmpl *c, struct tm_dict *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct tm_val *found = NULL;
    for (size_t i = 0; !found && i < sizeof(names) / sizeof(names[0]); i++)
        found = tm_member(c, message, names[i]);
    if (!found)
        return message;
    struct tm_dict *d = tm_dict_new(c);
    struct tm_val reasoning = *found;
    tm_dict_set(c, d, tm_key(c, "thinking"), reasoning);
    for (uint32_t i = 0; i < message->n; i++)
        tm_dict_set(c, d, message->e[i].key, message->e[i].value);
    tm_dict_set(c, d, tm_key(c, "reasoning_content"), reasoning);
    return d;
}

static struct tm_val as_part(struct tmpl *c, struct tm_val text)
{
    struct tm_dict *part = tm_dict_new(c);
    tm_dict_set(c, part, tm_key(c, "type"), tm_key(c, "text"));
    tm_dict_set(c, part, tm_key(c, "text"), text);
    struct tm_list *l = tm_list_new(c, 1);
    tm_list_add(c, l, tm_dict_val(part));
    return tm_list_val(l);
}

static struct tm_dict *prepare(struct tmpl *c, struct tm_dict *message, bool keep_content)
{
    struct tm_dict *d = with_reasoning(c, without_nulls(c, message, keep_content));
    const struct tm_val *role = tm_member(c, d, "role"), *content = tm_member(c, d, "content");
    if (role && role->type == TM_STR && tm_str_is(role->s, "developer") &&
        !c->tpl->mentions_developer)
        tm_dict_set(c, d, tm_key(c, "role"), tm_key(c, "system"));
    if (content && content->type == TM_STR && c->tpl->wants_parts)
        tm_dict_set(c, d, tm_key(c, "content"), as_part(c, *content));
    return d;
}

void tm_refuse(struct tmpl *c, const char *field, const char *text)
{
    c->status = err_set_field(c->err, ERR_INVALID, field, NULL, "%s", text);
    longjmp(c->trap, 1);
}

static struct tm_list *read_messages(struct tmpl *c, const struct template_args *a)
{
    if (!json_is(a->messages, JSON_ARRAY))
        tm_refuse(c, "messages", "messages must be an array");
    struct tm_list *l = tm_from_json(c, a->messages).list;
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->v[i].type != TM_DICT)
            tm_refuse(c, "messages", "each message must be an object");
        struct tm_dict *d =
            a->verbatim ? l->v[i].dict : prepare(c, l->v[i].dict, a->keep_null_content);
        const struct tm_val *role = tm_member(c, d, "role");
        if (role)
            tm_dict_set(c, d, tm_key(c, "role"), trust_role(c, *role));
        l->v[i] = tm_dict_val(d);
    }
    return l;
}

/* ---- rendering ---- */

struct rendering {
    const struct template_args *args;
    enum tm_tag tag; /* appended to the final message when it is continued */
    const struct tm_str *result;
};

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
        tm_refuse(c, "chat_template_kwargs", "chat_template_kwargs must be an object");
    for (const struct json *v = json_first(a->kwargs); v; v = json_next(v)) {
        uint32_t id;
        if (tm_name_find(c->tpl, json_key(v), &id) && id != TM_NAME_messages &&
            id != TM_NAME_tools && id != TM_NAME_add_generation_prompt)
            tm_scope_set(c, s, id, tm_from_json(c, v));
    }
}

static void run(struct tmpl *c, struct tm_list *messages, const struct template_args *a,
                struct rendering *r)
{
    struct tm_scope *globals = tm_scope_new(c, NULL, NULL, 0);
    struct tm_sb out;
    set_globals(c, globals, a);
    tm_scope_set(c, globals, TM_NAME_messages, tm_list_val(messages));
    tm_sb_init(&out, c);
    tm_run(c, c->tpl, globals, &out);
    r->result = tm_sb_done(&out);
}

static void render(struct tmpl *c, struct rendering *r)
{
    const struct template_args *a = r->args;
    struct tm_list *messages = read_messages(c, a);
    if (a->continue_final_message && a->add_generation_prompt)
        tm_refuse(c, "continue_final_message",
                  "continue_final_message and add_generation_prompt exclude each other");
    const struct tm_str *text =
        a->continue_final_message ? tm_tag_final(c, messages, r->tag) : NULL;
    run(c, messages, a, r);
    if (text)
        r->result = tm_cut_final(c, r->result, text, r->tag);
}

static enum status render_guarded(struct tmpl *c, struct rendering *r)
{
    if (setjmp(c->trap))
        return c->status;
    render(c, r);
    return OK;
}

/* ---- probes: what the template does with a conversation ---- */

enum probe_shape { PROBE_USER, PROBE_PARTS, PROBE_SYSTEM, PROBE_TURNS, N_PROBE_SHAPES };

/* Texts of the user's messages in two renderings that are equal otherwise. */
static const char *const probe_texts[] = {"probe of the content format",
                                          "words that may be shown too"};

static void add_message(struct tmpl *c, struct tm_list *l, const char *role, struct tm_val content)
{
    struct tm_dict *d = tm_dict_new(c);
    tm_dict_set(c, d, tm_key(c, "role"), tm_key(c, role));
    tm_dict_set(c, d, tm_key(c, "content"), content);
    tm_list_add(c, l, tm_dict_val(d));
}

static struct tm_list *probe_messages(struct tmpl *c, enum probe_shape shape, const char *user)
{
    struct tm_list *l = tm_list_new(c, 3);
    struct tm_val text = tm_key(c, user);
    if (shape == PROBE_SYSTEM)
        add_message(c, l, "system", tm_key(c, "be brief"));
    add_message(c, l, "user", shape == PROBE_PARTS ? as_part(c, text) : text);
    if (shape == PROBE_TURNS) {
        add_message(c, l, "assistant", tm_key(c, "yes"));
        add_message(c, l, "user", text);
    }
    return l;
}

static enum status probe_guarded(struct tmpl *c, enum probe_shape shape, const char *user,
                                 struct rendering *r)
{
    static const struct template_args args = {.bos_token = {"<s>", 3}, .eos_token = {"</s>", 4}};
    if (setjmp(c->trap))
        return c->status;
    run(c, probe_messages(c, shape, user), &args, r);
    return OK;
}

/* False: the template fails on that shape. */
static bool probe(const struct chat_template *t, enum probe_shape shape, const char *user,
                  struct buf *out)
{
    struct tmpl c;
    struct rendering r = {0};
    context_init(&c, t, NULL);
    c.steps_left = TM_MAX_PROBE_STEPS;
    bool ok = probe_guarded(&c, shape, user, &r) == OK;
    if (ok)
        buf_add(out, r.result->p, r.result->len);
    tm_arena_release(&c);
    return ok;
}

enum probe_result { PROBE_FAILED, PROBE_HIDDEN, PROBE_SHOWN };

/* Does the text of the user's messages make a difference? */
static enum probe_result probe_shape(const struct chat_template *t, enum probe_shape shape)
{
    struct buf a = {0}, b = {0};
    enum probe_result result = PROBE_FAILED;
    if (probe(t, shape, probe_texts[0], &a) && probe(t, shape, probe_texts[1], &b))
        result = str_eq(buf_str(&a), buf_str(&b)) ? PROBE_HIDDEN : PROBE_SHOWN;
    buf_release(&a);
    buf_release(&b);
    return result;
}

static void probe_template(struct chat_template *t)
{
    enum probe_result result[N_PROBE_SHAPES];
    bool shown = false, hidden = false;
    for (enum probe_shape shape = 0; shape < N_PROBE_SHAPES; shape++) {
        result[shape] = probe_shape(t, shape);
        shown |= result[shape] == PROBE_SHOWN;
        hidden |= result[shape] == PROBE_HIDDEN;
    }
    t->wants_parts = t->mentions_content && result[PROBE_USER] != PROBE_SHOWN &&
                     result[PROBE_PARTS] == PROBE_SHOWN;
    t->ignores_messages = hidden && !shown;
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
    buf_add_str(&t->source, source);
    probe_template(t);
    *out = t;
    return OK;
}

void template_free(struct chat_template *t)
{
    if (!t)
        return;
    tm_arena_release(&t->parse);
    buf_release(&t->source);
    mem_free(t);
}

bool template_mentions(const struct chat_template *t, const char *text)
{
    return mentions(buf_str(&t->source), text);
}

bool template_ignores_messages(const struct chat_template *t)
{
    return t->ignores_messages;
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

/* The rendering with the other tag, cut: the text before the tag must be the same for both. */
static enum status render_check(const struct chat_template *t, const struct template_args *a,
                                struct buf *out, struct err *e)
{
    struct tmpl c;
    struct rendering r = {.args = a, .tag = TM_TAG_CHECK};
    context_init(&c, t, e);
    enum status status = render_guarded(&c, &r);
    if (status == OK)
        buf_add(out, r.result->p, r.result->len);
    tm_arena_release(&c);
    return status;
}

enum status template_render(const struct chat_template *t, const struct template_args *a,
                            struct buf *out, struct text_range **trusted, size_t *n_trusted,
                            struct err *e)
{
    struct tmpl c;
    struct buf check = {0};
    struct rendering r = {.args = a, .tag = TM_TAG_CUT};
    *trusted = NULL;
    *n_trusted = 0;
    enum status status = a->continue_final_message ? render_check(t, a, &check, e) : OK;
    context_init(&c, t, e);
    if (status == OK)
        status = render_guarded(&c, &r);
    if (status == OK && a->continue_final_message &&
        !str_eq(tm_view_str(r.result), buf_str(&check)))
        status = err_set_field(e, ERR_INVALID, "continue_final_message", NULL,
                               "continue_final_message is set but the chat template does not print "
                               "the final message as it was sent, once");
    if (status == OK) {
        give_ranges(r.result, out->len, trusted, n_trusted);
        buf_add(out, r.result->p, r.result->len);
    }
    tm_arena_release(&c);
    buf_release(&check);
    return status;
}
