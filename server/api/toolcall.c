/* Calls of tools in streamed text; see toolcall.h.
 *
 * Bytes wait in `in` from `start` on until they are decided; a wrong guess says the first of them as text and
 * looks again at the rest. So the result does not depend on how the text was cut. */
#include "server/api/toolcall.h"

#include <stdio.h>
#include <string.h>

#include "base/siphash.h"

enum state {
    IN_TEXT,
    IN_HEAD, /* of an object with name and arguments, and what follows them in it */
    IN_NAME, /* of a named call, up to the { of its arguments */
    IN_ARGUMENTS, /* of a named call */
    IN_PAIRS,
    BETWEEN /* behind a call */
};

enum head {
    HEAD_OPEN, /* before the object */
    HEAD_MEMBER, /* before a key or the end */
    HEAD_KEY,
    HEAD_COLON,
    HEAD_VALUE, /* before a value */
    HEAD_NAME,
    HEAD_ARGUMENTS,
    HEAD_OTHER, /* in a value that says nothing */
    HEAD_NEXT /* behind a value */
};

enum result { MORE, WAIT, FAIL };

enum { MAX_NAMED_HEAD = 256 };

static const struct {
    struct str opener;
    enum toolcall_kind kind;
} formats[N_TOOLCALL_FORMATS] = {
#define X(id, opener, kind) {STR_LIT(opener), TOOLCALL_##kind},
#include "server/api/toolcall.def"
#undef X
};

/* What may follow a call and says nothing. */
static const char *const closers[] = {"</tool_call>",
                                      "</function>",
                                      "<end_function_call>",
                                      "<tool_call|>",
                                      "```",
                                      "<\xef\xbd\x9ctool\xe2\x96\x81"
                                      "call\xe2\x96\x81"
                                      "end\xef\xbd\x9c>",
                                      "<\xef\xbd\x9ctool\xe2\x96\x81"
                                      "calls\xe2\x96\x81"
                                      "end\xef\xbd\x9c>"};

void toolcall_id(const char *answer, uint32_t choice, uint32_t n, bool is_short,
                 char out[TOOLCALL_ID_CAP])
{
    enum { SHORT_DIGITS = 9, BASE = 36 };
    static const uint64_t secret[2] = {0x63616c6c73206f66, 0x20746f6f6c730000};
    const uint32_t place[2] = {choice, n};
    struct siphash h;
    uint64_t sum[2];
    siphash_init(&h, secret);
    siphash_add(&h, answer, strlen(answer));
    siphash_add(&h, place, sizeof(place));
    siphash_end(&h, sum);
    if (!is_short) {
        snprintf(out, TOOLCALL_ID_CAP, "call_%016llx%08x", (unsigned long long)sum[0],
                 (unsigned)sum[1]);
        return;
    }
    for (int i = 0; i < SHORT_DIGITS; i++, sum[0] /= BASE)
        out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[sum[0] % BASE];
    out[SHORT_DIGITS] = 0;
}

void toolcall_init(struct toolcall *p, const struct toolcall_sink *sink)
{
    *p = (struct toolcall){.sink = *sink};
}

void toolcall_release(struct toolcall *p)
{
    buf_release(&p->in);
    buf_release(&p->run);
}

/* ---- what comes out ---- */

static void say_run(struct toolcall *p)
{
    if (p->run.len && p->run_is_text)
        p->sink.text(p->sink.arg, buf_str(&p->run));
    else if (p->run.len)
        p->sink.arguments(p->sink.arg, buf_str(&p->run));
    buf_clear(&p->run);
}

static void say(struct toolcall *p, bool text, struct str s)
{
    if (p->run_is_text != text)
        say_run(p);
    p->run_is_text = text;
    buf_add_str(&p->run, s);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static struct str held(const struct toolcall *p)
{
    return (struct str){p->in.ptr + p->start, p->in.len - p->start};
}

/* The first byte that waits is text; the next is looked at anew. */
static void say_first_byte(struct toolcall *p)
{
    char c = p->in.ptr[p->start];
    say(p, true, (struct str){&c, 1});
    p->said_text |= !is_blank(c);
    p->at = ++p->start;
    p->state = IN_TEXT;
}

static void begin_call(struct toolcall *p)
{
    say_run(p);
    p->begun = true;
    p->n_calls++;
    p->sink.begin(p->sink.arg, (struct str){p->name, p->n_name});
}

static void end_call(struct toolcall *p)
{
    say_run(p);
    p->begun = false;
    p->sink.end(p->sink.arg);
    p->state = BETWEEN;
    p->start = p->at;
}

/* ---- ends of JSON values ---- */

/* A byte of a container or a string; true: it was the last. */
static bool scan_byte(struct toolcall_scan *s, char c)
{
    if (s->escaped) {
        s->escaped = false;
    } else if (s->in_string) {
        s->escaped = c == '\\';
        s->in_string = c != '"';
    } else if (c == '"') {
        s->in_string = true;
    } else if (c == '{' || c == '[') {
        s->depth++;
    } else if (c == '}' || c == ']') {
        s->depth--;
    }
    return !s->depth && !s->in_string && !s->escaped;
}

/* ---- objects with name and arguments ---- */

static bool key_is(const struct toolcall *p, const char *key)
{
    return str_eq_c((struct str){p->key, p->n_key}, key);
}

static enum result head_open(struct toolcall *p, char c)
{
    if (c == '[' && !p->is_list)
        p->is_list = true;
    else if (c == '{')
        p->head = HEAD_MEMBER;
    else if (!is_blank(c))
        return FAIL;
    return MORE;
}

/* The object is whole. */
static enum result end_object(struct toolcall *p)
{
    if (p->inner) {
        p->inner = false;
        p->head = HEAD_NEXT;
        return MORE;
    }
    if (!p->begun) {
        if (!p->n_name || formats[p->format].kind == TOOLCALL_PLAIN)
            return FAIL;
        begin_call(p);
        say(p, false, STR_LIT("{}"));
    }
    end_call(p);
    return MORE;
}

static enum result head_member(struct toolcall *p, char c)
{
    p->n_key = 0;
    if (c == '"')
        p->head = HEAD_KEY;
    else if (c == '}')
        return end_object(p);
    else if (!is_blank(c))
        return FAIL;
    return MORE;
}

/* A key too long or with escapes is none of ours. */
static enum result head_key(struct toolcall *p, char c)
{
    if (p->scan.escaped)
        p->scan.escaped = false;
    else if (c == '\\')
        p->scan.escaped = true;
    else if (c == '"')
        p->head = HEAD_COLON;
    if (p->head == HEAD_KEY && p->n_key < sizeof(p->key))
        p->key[p->n_key++] = c;
    return MORE;
}

static enum result head_colon(struct toolcall *p, char c)
{
    if (c == ':')
        p->head = HEAD_VALUE;
    else if (!is_blank(c))
        return FAIL;
    return MORE;
}

static enum result other_value(struct toolcall *p, char c)
{
    p->scan = (struct toolcall_scan){0};
    p->head = HEAD_OTHER;
    if (c == '{' || c == '[' || c == '"')
        scan_byte(&p->scan, c);
    else if (!strchr("-0123456789tfn", c) || !c)
        return FAIL;
    return MORE;
}

static enum result head_value(struct toolcall *p, char c)
{
    bool is_arguments = key_is(p, "arguments") || key_is(p, "parameters");
    if (is_blank(c))
        return MORE;
    if (!p->n_name && (key_is(p, "name") || key_is(p, "function")) && c == '"') {
        p->head = HEAD_NAME;
    } else if (key_is(p, "function") && c == '{' && !p->inner) {
        p->inner = true;
        p->head = HEAD_MEMBER;
    } else if (is_arguments && !p->args_to && c == '{') {
        p->scan = (struct toolcall_scan){.depth = 1};
        p->args_from = p->at - 1;
        p->head = HEAD_ARGUMENTS;
        if (p->n_name) {
            begin_call(p);
            say(p, false, STR_LIT("{"));
        }
    } else if (is_arguments || (key_is(p, "name") && !p->n_name)) {
        return FAIL;
    } else {
        return other_value(p, c);
    }
    return MORE;
}

static enum result head_name(struct toolcall *p, char c)
{
    if (c == '\\' || (c != '"' && p->n_name == sizeof(p->name)))
        return FAIL;
    if (c != '"') {
        p->name[p->n_name++] = c;
        return MORE;
    }
    if (!p->sink.known(p->sink.arg, (struct str){p->name, p->n_name}))
        return FAIL;
    p->head = HEAD_NEXT;
    if (p->args_to) {
        begin_call(p);
        say(p, false, (struct str){p->in.ptr + p->args_from, p->args_to - p->args_from});
    }
    return MORE;
}

static enum result head_arguments(struct toolcall *p, char c)
{
    if (p->begun)
        say(p, false, (struct str){&c, 1});
    if (scan_byte(&p->scan, c)) {
        p->args_to = p->at;
        p->head = HEAD_NEXT;
    }
    return MORE;
}

static enum result head_next(struct toolcall *p, char c)
{
    if (c == ',')
        p->head = HEAD_MEMBER;
    else if (c == '}')
        return end_object(p);
    else if (!is_blank(c))
        return FAIL;
    return MORE;
}

static enum result head_other(struct toolcall *p, char c)
{
    bool scalar = !p->scan.depth && !p->scan.in_string;
    if (scalar && (c == ',' || c == '}' || is_blank(c))) {
        p->head = HEAD_NEXT;
        return head_next(p, c);
    }
    if (!scalar && scan_byte(&p->scan, c))
        p->head = HEAD_NEXT;
    return MORE;
}

static enum result head_byte(struct toolcall *p, char c)
{
    switch ((enum head)p->head) {
    case HEAD_OPEN:
        return head_open(p, c);
    case HEAD_MEMBER:
        return head_member(p, c);
    case HEAD_KEY:
        return head_key(p, c);
    case HEAD_COLON:
        return head_colon(p, c);
    case HEAD_VALUE:
        return head_value(p, c);
    case HEAD_NAME:
        return head_name(p, c);
    case HEAD_ARGUMENTS:
        return head_arguments(p, c);
    case HEAD_OTHER:
        return head_other(p, c);
    case HEAD_NEXT:
        break;
    }
    return head_next(p, c);
}

/* ---- a name, then arguments ---- */

static struct str trim(struct str s)
{
    while (s.len && is_blank(s.ptr[0]))
        s = (struct str){s.ptr + 1, s.len - 1};
    while (s.len && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* DeepSeek's `function<sep>NAME` and a fence, or `NAME<sep>`; Mistral's `NAME[ARGS]`; `NAME>`. */
static struct str name_in(struct str head)
{
    static const char sep[] = "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>";
    const char *at = head.len ? memmem(head.ptr, head.len, sep, sizeof(sep) - 1) : NULL;
    if (at) {
        const char *behind = at + sizeof(sep) - 1;
        struct str right = trim((struct str){behind, (size_t)(head.ptr + head.len - behind)});
        head = right.len && right.ptr[0] != '`' ? right
                                                : (struct str){head.ptr, (size_t)(at - head.ptr)};
    }
    head = trim(head);
    size_t n = 0;
    while (n < head.len && !strchr("\n`[> ", head.ptr[n]))
        n++;
    return (struct str){head.ptr, n};
}

static void begin_head(struct toolcall *p, enum state state)
{
    p->state = (uint8_t)state;
    p->head = HEAD_OPEN;
    p->begun = p->inner = false;
    p->n_name = p->n_key = 0;
    p->args_from = p->args_to = 0;
    p->scan = (struct toolcall_scan){0};
    p->body = p->at;
}

static enum result name_byte(struct toolcall *p, char c)
{
    struct str head = {p->in.ptr + p->body, p->at - 1 - p->body};
    bool pairs = formats[p->format].kind == TOOLCALL_PAIRS;
    if ((c == '{' || c == '[') && !pairs && trim(head).len == 0) {
        p->at--;
        begin_head(p, IN_HEAD);
        return MORE;
    }
    if (c != '{')
        return head.len < MAX_NAMED_HEAD ? MORE : FAIL;
    struct str name = name_in(head);
    if (!name.len || name.len > sizeof(p->name) || !p->sink.known(p->sink.arg, name))
        return FAIL;
    memcpy(p->name, name.ptr, name.len);
    p->n_name = (uint32_t)name.len;
    begin_call(p);
    p->run_is_text = false;
    p->state = pairs ? IN_PAIRS : IN_ARGUMENTS;
    p->scan = (struct toolcall_scan){.depth = 1};
    if (pairs)
        toolcall_pairs_begin(&p->pairs, &p->run);
    else
        say(p, false, STR_LIT("{"));
    return MORE;
}

static void argument_byte(struct toolcall *p, char c)
{
    say(p, false, (struct str){&c, 1});
    if (scan_byte(&p->scan, c))
        end_call(p);
}

/* ---- openers and closers ---- */

/* Does the held text begin with the mark? MORE: yes; WAIT: as far as it goes. */
static enum result begins(const struct toolcall *p, struct str mark)
{
    struct str s = held(p);
    if (str_starts(s, mark))
        return MORE;
    return !p->ended && str_starts(mark, s) ? WAIT : FAIL;
}

static void open_call(struct toolcall *p, enum toolcall_format format)
{
    enum toolcall_kind kind = formats[format].kind;
    bool here = format == TOOLCALL_OBJECT || format == TOOLCALL_LIST;
    p->format = format;
    p->is_list = false;
    p->at = p->start + (here ? 0 : formats[format].opener.len);
    begin_head(p, kind == TOOLCALL_JSON || kind == TOOLCALL_PLAIN ? IN_HEAD : IN_NAME);
}

static enum result find_opener(struct toolcall *p)
{
    enum result best = FAIL;
    for (int i = 0; i < N_TOOLCALL_FORMATS; i++) {
        if (formats[i].kind == TOOLCALL_PLAIN && (p->said_text || p->n_calls))
            continue;
        enum result r = begins(p, formats[i].opener);
        if (r == MORE && best == FAIL) { /* a longer one stands before, and may still come */
            open_call(p, (enum toolcall_format)i);
            return MORE;
        }
        if (r == WAIT)
            best = WAIT;
    }
    return best;
}

static enum result text_byte(struct toolcall *p)
{
    enum result r = strchr("<[`{", p->in.ptr[p->start]) ? find_opener(p) : FAIL;
    if (r == FAIL)
        say_first_byte(p);
    return r == WAIT ? WAIT : MORE;
}

static enum result find_closer(struct toolcall *p)
{
    enum result best = FAIL;
    for (size_t i = 0; i < sizeof(closers) / sizeof(closers[0]); i++) {
        enum result r = begins(p, str_of(closers[i]));
        if (r == MORE) {
            p->at = p->start += strlen(closers[i]);
            return MORE;
        }
        if (r == WAIT)
            best = WAIT;
    }
    return best;
}

/* Blanks, separators and closers are passed over; another object of the same kind is another call. */
static enum result between_byte(struct toolcall *p)
{
    char c = p->in.ptr[p->start];
    enum toolcall_kind kind = formats[p->format].kind;
    bool objects = kind == TOOLCALL_JSON || kind == TOOLCALL_PLAIN || p->is_list;
    if (is_blank(c) || (objects && (c == ',' || c == ';')) || (p->is_list && c == ']')) {
        p->at = ++p->start;
        return MORE;
    }
    if (objects && c == '{') {
        p->at = p->start;
        begin_head(p, IN_HEAD);
        return MORE;
    }
    enum result closer = find_closer(p);
    if (closer == MORE)
        return MORE;
    enum result opener = find_opener(p);
    if (opener == FAIL && closer == FAIL)
        say_first_byte(p);
    return opener != MORE && (opener == WAIT || closer == WAIT) ? WAIT : MORE;
}

/* ---- all states ---- */

static enum result pairs_byte(struct toolcall *p)
{
    switch (toolcall_pairs_step(&p->pairs, buf_str(&p->in), &p->at, p->ended, &p->run)) {
    case STEP_WAIT:
        return WAIT;
    case STEP_DONE:
        end_call(p);
        break;
    case STEP_MORE:
        break;
    }
    return MORE;
}

/* A guess was wrong. What a call has been told of stays: it ends, and the rest is text. */
static void fail(struct toolcall *p)
{
    if (!p->begun) {
        say_first_byte(p);
        return;
    }
    p->at--; /* the byte that does not belong to it */
    end_call(p);
    p->state = IN_TEXT;
}

static enum result step(struct toolcall *p)
{
    enum result r = MORE;
    switch ((enum state)p->state) {
    case IN_TEXT:
        return text_byte(p);
    case BETWEEN:
        return between_byte(p);
    case IN_PAIRS:
        return pairs_byte(p);
    case IN_ARGUMENTS:
        argument_byte(p, p->in.ptr[p->at++]);
        return MORE;
    case IN_HEAD:
        p->at++;
        r = head_byte(p, p->in.ptr[p->at - 1]);
        break;
    case IN_NAME:
        p->at++;
        r = name_byte(p, p->in.ptr[p->at - 1]);
        break;
    }
    if (r == FAIL || (!p->begun && p->at - p->start > TOOLCALL_MAX_HELD))
        fail(p);
    return MORE;
}

/* Bytes that are decided leave; those of a call that has begun are. */
static void forget(struct toolcall *p)
{
    size_t n = p->begun ? p->at : p->start;
    if (!n)
        return;
    memmove(p->in.ptr, p->in.ptr + n, p->in.len - n);
    p->in.len -= n;
    p->at -= n;
    p->start = 0;
    p->body = p->body > n ? p->body - n : 0;
    p->args_from = p->args_from > n ? p->args_from - n : 0;
    p->args_to = p->args_to > n ? p->args_to - n : p->args_to ? 1 : 0;
}

static void work(struct toolcall *p)
{
    while (p->at < p->in.len && step(p) == MORE)
        ;
}

void toolcall_feed(struct toolcall *p, struct str text)
{
    buf_add_str(&p->in, text);
    work(p);
    say_run(p);
    forget(p);
}

void toolcall_opened(struct toolcall *p, enum toolcall_format format)
{
    open_call(p, format);
    p->at = p->body = p->start;
}

void toolcall_end(struct toolcall *p)
{
    p->ended = true;
    for (;;) {
        work(p);
        if (p->start >= p->in.len || p->begun || p->state == BETWEEN)
            break;
        say_first_byte(p);
    }
    say_run(p);
    if (p->begun)
        end_call(p);
    buf_clear(&p->in);
}
