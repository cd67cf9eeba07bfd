/* See listen.h. */
#include "server/api/listen.h"

#include "base/json.h"

/* ---- calls of tools ---- */

static uint32_t index_of(const struct job *j, const struct choice *c)
{
    return (uint32_t)(c - j->choice);
}

static bool knows_tool(void *arg, struct str name)
{
    const struct choice *c = arg;
    return tools_knows(&c->job->tools, name);
}

static void call_text(void *arg, struct str text)
{
    struct choice *c = arg;
    if (c->job->stream)
        job_add_chunk(c->job, c->job->out, index_of(c->job, c), text);
    else
        buf_add_str(&c->text, text);
}

/* Opens a chunk with one call in its delta, behind the call's index. */
static void begin_call_chunk(const struct choice *c)
{
    struct buf *out = c->job->out;
    job_begin_chunk(c->job, out, index_of(c->job, c));
    buf_printf(out, ",\"delta\":{\"tool_calls\":[{\"index\":%u,", c->parser.n_calls - 1);
}

static void end_call_chunk(const struct choice *c)
{
    buf_add_c(c->job->out, "\"}}]},\"logprobs\":null,\"finish_reason\":null");
    job_end_chunk(c->job, c->job->out);
}

/* Up to the opening quote of the arguments. */
static void add_call_head(const struct choice *c, struct buf *out, struct str name)
{
    const struct job *j = c->job;
    char id[TOOLCALL_ID_CAP];
    toolcall_id(j->id, index_of(j, c), c->parser.n_calls, j->tools.short_ids, id);
    buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", id);
    json_add_string(out, name);
    buf_add_c(out, ",\"arguments\":\"");
}

static void call_begins(void *arg, struct str name)
{
    struct choice *c = arg;
    if (c->job->stream) {
        begin_call_chunk(c);
        add_call_head(c, c->job->out, name);
        end_call_chunk(c);
    } else {
        buf_add_c(&c->calls, c->calls.len ? ",{" : "{");
        add_call_head(c, &c->calls, name);
    }
}

static void call_arguments(void *arg, struct str piece)
{
    struct choice *c = arg;
    if (c->job->stream) {
        begin_call_chunk(c);
        buf_add_c(c->job->out, "\"function\":{\"arguments\":\"");
        json_add_escaped(c->job->out, piece);
        end_call_chunk(c);
    } else {
        json_add_escaped(&c->calls, piece);
    }
}

static void call_ends(void *arg)
{
    struct choice *c = arg;
    if (!c->job->stream)
        buf_add_c(&c->calls, "\"}}");
}

/* ---- content and reasoning ---- */

static void give_content(struct choice *c, struct str text)
{
    if (c->job->tools.listens)
        toolcall_feed(&c->parser, text);
    else if (text.len)
        call_text(c, text);
}

static void give_reasoning(struct choice *c, struct str text)
{
    struct job *j = c->job;
    if (!text.len)
        return;
    if (!j->stream) {
        buf_add_str(&c->reasoning, text);
        return;
    }
    job_begin_chunk(j, j->out, index_of(j, c));
    buf_add_c(j->out, ",\"delta\":{\"reasoning_content\":");
    json_add_string(j->out, text);
    buf_add_c(j->out, ",\"reasoning\":");
    json_add_string(j->out, text);
    buf_add_c(j->out, "},\"logprobs\":null,\"finish_reason\":null");
    job_end_chunk(j, j->out);
}

static void give_split(struct choice *c)
{
    struct buf *reasoning = &c->job->said[0], *rest = &c->job->said[1];
    give_reasoning(c, buf_str(reasoning));
    give_content(c, buf_str(rest));
    buf_clear(reasoning);
    buf_clear(rest);
}

/* ---- door ---- */

bool listen_needed(const struct job *j)
{
    return j->tools.listens || j->thinks;
}

void listen_begin(struct job *j, struct choice *c)
{
    const struct toolcall_sink sink = {c,           knows_tool,     call_text,
                                       call_begins, call_arguments, call_ends};
    c->job = j;
    c->think.state = j->think_opened ? THINK_INSIDE : THINK_START;
    toolcall_init(&c->parser, &sink);
    if (j->tools.opened)
        toolcall_opened(&c->parser, j->tools.format);
}

void listen_text(struct choice *c, struct str text)
{
    if (!c->job->thinks) {
        give_content(c, text);
        return;
    }
    think_feed(&c->think, text, &c->job->said[0], &c->job->said[1]);
    give_split(c);
}

void listen_end(struct choice *c)
{
    if (c->job->thinks) {
        think_end(&c->think, &c->job->said[0], &c->job->said[1]);
        give_split(c);
    }
    if (c->job->tools.listens)
        toolcall_end(&c->parser);
}

void listen_add_message(const struct choice *c, struct buf *out)
{
    if (c->calls.len && !c->text.len)
        buf_add_c(out, "null");
    else
        json_add_string(out, buf_str(&c->text));
    buf_add_c(out, ",\"refusal\":null");
    if (c->reasoning.len) {
        buf_add_c(out, ",\"reasoning_content\":");
        json_add_string(out, buf_str(&c->reasoning));
        buf_add_c(out, ",\"reasoning\":");
        json_add_string(out, buf_str(&c->reasoning));
    }
    if (!c->calls.len)
        return;
    buf_add_c(out, ",\"tool_calls\":[");
    buf_add_str(out, buf_str(&c->calls));
    buf_add_char(out, ']');
}
