/* Pieces of JSON; see format.h. */
#include "server/api/format.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

enum { LOGPROB_FLOOR = -9999 };

void format_logprob(struct buf *out, float x)
{
    char text[32];
    if (!(x > LOGPROB_FLOOR))
        x = LOGPROB_FLOOR;
    if (x >= 0)
        x = 0;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    buf_add_c(out, text);
}

static void add_bytes(struct buf *out, struct str s)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < s.len; i++)
        buf_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)s.ptr[i]);
    buf_add_char(out, ']');
}

static void add_chat_token(struct buf *out, const struct tokenizer *tok, int32_t token,
                           float logprob)
{
    struct str bytes = tokenizer_bytes(tok, token);
    buf_add_c(out, "{\"token\":");
    json_add_string(out, bytes);
    buf_add_c(out, ",\"logprob\":");
    format_logprob(out, logprob);
    buf_add_c(out, ",\"bytes\":");
    add_bytes(out, bytes);
}

void format_chat_logprob(struct buf *out, const struct tokenizer *tok, const struct event *ev)
{
    const struct event_top *top = event_tops(ev);
    add_chat_token(out, tok, ev->token, ev->logprob);
    buf_add_c(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < ev->n_top; i++) {
        if (i)
            buf_add_char(out, ',');
        add_chat_token(out, tok, top[i].token, top[i].logprob);
        buf_add_char(out, '}');
    }
    buf_add_c(out, "]}");
}

/* The token as a JSON string. Bytes that are no UTF-8 by themselves keep apart from one another as
 * "bytes:\xe2\x80", the form OpenAI's completions have. */
static void add_token_key(struct buf *out, const struct tokenizer *tok, int32_t token)
{
    struct str s = tokenizer_bytes(tok, token);
    if (utf8_valid(s)) {
        json_add_string(out, s);
        return;
    }
    buf_add_c(out, "\"bytes:");
    for (size_t i = 0; i < s.len; i++)
        buf_printf(out, "\\\\x%02x", (unsigned)(unsigned char)s.ptr[i]);
    buf_add_char(out, '"');
}

/* Keys of one object must differ: a token whose text an earlier one has is left out. */
static bool text_seen(const struct tokenizer *tok, const struct event *ev, uint32_t n,
                      int32_t token)
{
    const struct event_top *top = event_tops(ev);
    struct str s = tokenizer_bytes(tok, token);
    if (str_eq(s, tokenizer_bytes(tok, ev->token)))
        return true;
    for (uint32_t i = 0; i < n; i++)
        if (str_eq(s, tokenizer_bytes(tok, top[i].token)))
            return true;
    return false;
}

static void add_tops(struct buf *out, const struct tokenizer *tok, const struct event *ev)
{
    const struct event_top *top = event_tops(ev);
    buf_add_char(out, '{');
    add_token_key(out, tok, ev->token);
    buf_add_char(out, ':');
    format_logprob(out, ev->logprob);
    for (uint32_t i = 0; i < ev->n_top; i++) {
        if (top[i].token == ev->token || text_seen(tok, ev, i, top[i].token))
            continue;
        buf_add_char(out, ',');
        add_token_key(out, tok, top[i].token);
        buf_add_char(out, ':');
        format_logprob(out, top[i].logprob);
    }
    buf_add_char(out, '}');
}

void lists_add(struct logprob_lists *l, const struct tokenizer *tok, const struct event *ev,
               bool has_value, uint64_t n_chars)
{
    const char *comma = l->n++ ? "," : "";
    struct str s = tokenizer_bytes(tok, ev->token);
    bool continues = s.len && ((unsigned char)s.ptr[0] & 0xC0) == 0x80;
    buf_add_c(&l->tokens, comma);
    add_token_key(&l->tokens, tok, ev->token);
    buf_add_c(&l->values, comma);
    buf_add_c(&l->tops, comma);
    if (has_value) {
        format_logprob(&l->values, ev->logprob);
        add_tops(&l->tops, tok, ev);
    } else {
        buf_add_c(&l->values, "null");
        buf_add_c(&l->tops, "null");
    }
    buf_printf(&l->offsets, "%s%llu", comma,
               (unsigned long long)(l->n_chars - (continues && l->n_chars ? 1 : 0)));
    l->n_chars += n_chars;
}

void lists_clear(struct logprob_lists *l)
{
    buf_clear(&l->tokens);
    buf_clear(&l->values);
    buf_clear(&l->tops);
    buf_clear(&l->offsets);
    l->n = 0;
}

void lists_release(struct logprob_lists *l)
{
    buf_release(&l->tokens);
    buf_release(&l->values);
    buf_release(&l->tops);
    buf_release(&l->offsets);
}

void lists_add_json(struct buf *out, const struct logprob_lists *a, const struct logprob_lists *b)
{
    static const struct {
        const char *name;
        size_t offset;
    } part[] = {
        {"{\"tokens\":[", offsetof(struct logprob_lists, tokens)},
        {"],\"token_logprobs\":[", offsetof(struct logprob_lists, values)},
        {"],\"top_logprobs\":[", offsetof(struct logprob_lists, tops)},
        {"],\"text_offset\":[", offsetof(struct logprob_lists, offsets)},
    };
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        buf_add_c(out, part[i].name);
        if (a)
            buf_add_str(out, buf_str((const struct buf *)((const char *)a + part[i].offset)));
        if (a && b && a->n && b->n)
            buf_add_char(out, ',');
        if (b)
            buf_add_str(out, buf_str((const struct buf *)((const char *)b + part[i].offset)));
    }
    buf_add_c(out, "]}");
}

uint64_t count_chars(struct str s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

void format_usage(struct buf *out, uint64_t n_prompt, uint64_t n_output, uint64_t n_cached)
{
    buf_printf(out,
               "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
               (unsigned long long)n_prompt, (unsigned long long)n_output,
               (unsigned long long)(n_prompt + n_output), (unsigned long long)n_cached);
}

static const char *const part_name[N_TIMING_PARTS] = {
#define X(name) #name,
    TIMING_PARTS(X)
#undef X
};

uint64_t timing_total_ns(const struct request_timing *t)
{
    uint64_t ns = 0;
    for (int i = 0; i < N_TIMING_PARTS; i++)
        ns += t->ns[i];
    return ns;
}

static double ms_of(uint64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

/* Exact to the ns: a reader that adds up the parts gets the total. */
void format_timings(struct buf *out, const struct request_timing *t)
{
    for (int i = 0; i < N_TIMING_PARTS; i++)
        buf_printf(out, "%s\"%s_ms\":%.6f", i ? "," : "{", part_name[i], ms_of(t->ns[i]));
    buf_printf(out, ",\"total_ms\":%.6f}", ms_of(timing_total_ns(t)));
}

void format_server_timing(struct buf *out, const struct request_timing *t)
{
    for (int i = 0; i < N_TIMING_PARTS; i++)
        if (t->ns[i])
            buf_printf(out, "%s;dur=%.3f, ", part_name[i], ms_of(t->ns[i]));
    buf_printf(out, "total;dur=%.3f", ms_of(timing_total_ns(t)));
}

const char *finish_text(enum finish_reason reason)
{
    switch (reason) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
        return "length";
    case FINISH_NONE:
    case FINISH_CANCEL:
    case FINISH_ERROR:
        break;
    }
    return "error";
}
