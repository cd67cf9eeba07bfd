/* Gemma's notation of arguments, {city:<escape>Paris<escape>,days:3}, to JSON; see toolcall.h. */
#include "server/api/toolcall.h"

#include <string.h>

#include "base/json.h"

enum pairs_state {
    PAIRS_KEY, /* before a key */
    PAIRS_IN_KEY,
    PAIRS_VALUE, /* before a value */
    PAIRS_MARKED, /* in a text between marks */
    PAIRS_QUOTED, /* in a text between quotes */
    PAIRS_ESCAPED, /* behind a \ in it */
    PAIRS_WORD, /* in a value without marks */
    PAIRS_LONG_WORD, /* the same, already told as a text */
    PAIRS_NEXT /* behind a value */
};

static const char *const marks[] = {"<escape>", "<|\"|>"};

enum found { FOUND_NONE, FOUND_PART, FOUND_WHOLE };

static enum found find_mark(struct str rest, size_t *n)
{
    enum found best = FOUND_NONE;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        struct str mark = str_of(marks[i]);
        if (str_starts(rest, mark)) {
            *n = mark.len;
            return FOUND_WHOLE;
        }
        if (str_starts(mark, rest))
            best = FOUND_PART;
    }
    return best;
}

void toolcall_pairs_begin(struct toolcall_pairs *g, struct buf *out)
{
    *g = (struct toolcall_pairs){.depth = 1, .state = PAIRS_KEY};
    buf_add_char(out, '{');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool in_list(const struct toolcall_pairs *g)
{
    return g->lists >> (g->depth - 1) & 1;
}

/* Bytes of longer characters go through as they are. */
static void add_byte(struct buf *out, char c)
{
    if ((unsigned char)c >= 0x80)
        buf_add_char(out, c);
    else
        json_add_escaped(out, (struct str){&c, 1});
}

static void end_word(struct toolcall_pairs *g, struct buf *out)
{
    const struct json_limits limits = {.depth = 1, .n_nodes = 1};
    struct json_doc *doc = NULL;
    struct str word = {g->word, g->n_word};
    bool plain = json_parse(word, limits, &doc, NULL) == OK;
    if (plain)
        buf_add_str(out, word);
    else
        json_add_string(out, word);
    json_free(doc);
    g->state = PAIRS_NEXT;
}

static void open_container(struct toolcall_pairs *g, bool list, struct buf *out)
{
    g->depth++;
    g->lists &= ~((uint64_t)1 << (g->depth - 1));
    g->lists |= (uint64_t)list << (g->depth - 1);
    buf_add_char(out, list ? '[' : '{');
    g->state = list ? PAIRS_VALUE : PAIRS_KEY;
}

static enum toolcall_step close_container(struct toolcall_pairs *g, struct buf *out)
{
    buf_add_char(out, in_list(g) ? ']' : '}');
    g->state = PAIRS_NEXT;
    return --g->depth ? STEP_MORE : STEP_DONE;
}

static bool closes(const struct toolcall_pairs *g, char c)
{
    return c == (in_list(g) ? ']' : '}');
}

static enum toolcall_step before_value(struct toolcall_pairs *g, char c, struct buf *out)
{
    if (is_blank(c))
        return STEP_MORE;
    if (closes(g, c) && in_list(g))
        return close_container(g, out);
    if ((c == '{' || c == '[') && g->depth < TOOLCALL_MAX_DEPTH) {
        open_container(g, c == '[', out);
        return STEP_MORE;
    }
    g->state = c == '"' ? PAIRS_QUOTED : PAIRS_WORD;
    if (c == '"')
        buf_add_char(out, '"');
    else
        g->word[0] = c;
    g->n_word = c != '"';
    return STEP_MORE;
}

static enum toolcall_step behind_value(struct toolcall_pairs *g, char c, struct buf *out)
{
    if (closes(g, c))
        return close_container(g, out);
    if (c == ',') {
        buf_add_char(out, ',');
        g->state = in_list(g) ? PAIRS_VALUE : PAIRS_KEY;
    }
    return STEP_MORE;
}

static enum toolcall_step in_word(struct toolcall_pairs *g, char c, struct buf *out)
{
    if (c == ',' || c == '}' || c == ']') {
        if (g->state == PAIRS_WORD)
            end_word(g, out);
        else
            buf_add_char(out, '"');
        g->state = PAIRS_NEXT;
        return behind_value(g, c, out);
    }
    if (g->state == PAIRS_WORD && g->n_word < sizeof(g->word)) {
        g->word[g->n_word++] = c;
        return STEP_MORE;
    }
    if (g->state == PAIRS_WORD) { /* too long for anything but a text */
        buf_add_char(out, '"');
        json_add_escaped(out, (struct str){g->word, g->n_word});
        g->state = PAIRS_LONG_WORD;
    }
    add_byte(out, c);
    return STEP_MORE;
}

static enum toolcall_step in_key(struct toolcall_pairs *g, char c, struct buf *out)
{
    if (g->state == PAIRS_KEY) {
        if (is_blank(c) || c == '"' || c == ',')
            return STEP_MORE;
        if (c == '}')
            return close_container(g, out);
        buf_add_char(out, '"');
        g->state = PAIRS_IN_KEY;
    }
    if (c == ':') {
        buf_add_c(out, "\":");
        g->state = PAIRS_VALUE;
    } else if (c != '"') {
        add_byte(out, c);
    }
    return STEP_MORE;
}

static enum toolcall_step in_quotes(struct toolcall_pairs *g, char c, struct buf *out)
{
    buf_add_char(out, c);
    if (g->state == PAIRS_ESCAPED)
        g->state = PAIRS_QUOTED;
    else if (c == '\\')
        g->state = PAIRS_ESCAPED;
    else if (c == '"')
        g->state = PAIRS_NEXT;
    return STEP_MORE;
}

static enum toolcall_step take_byte(struct toolcall_pairs *g, char c, struct buf *out)
{
    switch ((enum pairs_state)g->state) {
    case PAIRS_KEY:
    case PAIRS_IN_KEY:
        return in_key(g, c, out);
    case PAIRS_VALUE:
        return before_value(g, c, out);
    case PAIRS_QUOTED:
    case PAIRS_ESCAPED:
        return in_quotes(g, c, out);
    case PAIRS_WORD:
    case PAIRS_LONG_WORD:
        return in_word(g, c, out);
    case PAIRS_NEXT:
        return behind_value(g, c, out);
    case PAIRS_MARKED:
        break;
    }
    add_byte(out, c);
    return STEP_MORE;
}

enum toolcall_step toolcall_pairs_step(struct toolcall_pairs *g, struct str in, size_t *at,
                                       bool ended, struct buf *out)
{
    struct str rest = {in.ptr + *at, in.len - *at};
    size_t n = 0;
    bool may_mark = g->state == PAIRS_MARKED || g->state == PAIRS_VALUE;
    enum found found = may_mark ? find_mark(rest, &n) : FOUND_NONE;
    if (found == FOUND_PART && !ended)
        return STEP_WAIT;
    if (found == FOUND_WHOLE) {
        buf_add_char(out, '"');
        g->state = g->state == PAIRS_MARKED ? PAIRS_NEXT : PAIRS_MARKED;
        *at += n;
        return STEP_MORE;
    }
    (*at)++;
    return take_byte(g, rest.ptr[0], out);
}
