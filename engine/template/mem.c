/* Arena and error exit of the chat template interpreter.
 *
 * A rendering makes thousands of small values with one lifetime and may stop anywhere.
 * Called by all of engine/template. Thread: the one that parses or renders. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/template/interp.h"

struct tm_chunk {
    struct tm_chunk *next;
    size_t used, cap;
    _Alignas(16) char bytes[];
};

enum { FIRST_CHUNK_BYTES = 32 << 10, LARGEST_CHUNK_BYTES = 4 << 20, ALIGNMENT = 16 };

static void add_chunk(struct tmpl *c, size_t n_bytes)
{
    size_t cap = c->chunks ? c->chunks->cap * 2 : FIRST_CHUNK_BYTES;
    if (cap > LARGEST_CHUNK_BYTES)
        cap = LARGEST_CHUNK_BYTES;
    if (cap < n_bytes)
        cap = n_bytes;
    if (cap > c->arena_left)
        cap = n_bytes;
    struct tm_chunk *chunk = cap > c->arena_left ? NULL : mem_try_alloc(sizeof(*chunk) + cap);
    if (!chunk)
        tm_fail(c, ERR_TOO_LARGE, "needs more than %d MiB of memory", TM_MAX_ARENA_BYTES >> 20);
    c->arena_left -= cap;
    *chunk = (struct tm_chunk){.next = c->chunks, .cap = cap};
    c->chunks = chunk;
}

void *tm_alloc(struct tmpl *c, size_t n_bytes)
{
    if (n_bytes > TM_MAX_ARENA_BYTES)
        tm_fail(c, ERR_TOO_LARGE, "needs more than %d MiB of memory", TM_MAX_ARENA_BYTES >> 20);
    n_bytes = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!c->chunks || c->chunks->cap - c->chunks->used < n_bytes)
        add_chunk(c, n_bytes);
    void *p = c->chunks->bytes + c->chunks->used;
    c->chunks->used += n_bytes;
    return p;
}

void *tm_zalloc(struct tmpl *c, size_t n_bytes)
{
    void *p = tm_alloc(c, n_bytes);
    memset(p, 0, n_bytes);
    return p;
}

void *tm_grow(struct tmpl *c, void *p, size_t old_bytes, size_t new_bytes)
{
    size_t old = (old_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct tm_chunk *last = c->chunks;
    if (p && last && (char *)p + old == last->bytes + last->used &&
        new_bytes <= TM_MAX_ARENA_BYTES) {
        size_t more = (new_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - old;
        if (new_bytes > old_bytes && last->cap - last->used >= more) {
            last->used += more;
            return p;
        }
    }
    void *q = tm_alloc(c, new_bytes);
    if (old_bytes)
        memcpy(q, p, old_bytes);
    return q;
}

void tm_arena_release(struct tmpl *c)
{
    while (c->chunks) {
        struct tm_chunk *next = c->chunks->next;
        mem_free(c->chunks);
        c->chunks = next;
    }
}

/* Ends text at a code point: vsnprintf truncates anywhere. */
static void end_at_code_point(char *text, size_t cap)
{
    size_t n = strnlen(text, cap - 1);
    text[utf8_complete_len((struct str){text, n})] = 0;
}

void tm_fail(struct tmpl *c, enum status status, const char *format, ...)
{
    char text[ERR_TEXT_CAP];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    end_at_code_point(text, sizeof(text));
    c->status = err_set(c->err, status, "chat template, line %u: %s", c->line, text);
    if (c->err)
        end_at_code_point(c->err->text, sizeof(c->err->text));
    longjmp(c->trap, 1);
}

void tm_raise(struct tmpl *c, struct str message)
{
    char text[ERR_TEXT_CAP];
    size_t n = 0;
    for (size_t i = 0; i < message.len && n + 1 < sizeof(text); i++)
        if (message.ptr[i])
            text[n++] = message.ptr[i];
    text[n] = 0;
    end_at_code_point(text, sizeof(text));
    c->status = err_set(c->err, ERR_INVALID, "%s", text);
    longjmp(c->trap, 1);
}

void tm_fail_steps(struct tmpl *c)
{
    tm_fail(c, ERR_TOO_LARGE, "takes more than %d steps", TM_MAX_STEPS);
}

void tm_value_enter(struct tmpl *c)
{
    if (++c->value_depth > TM_MAX_VALUE_DEPTH)
        tm_fail(c, ERR_TOO_LARGE, "value nested deeper than %d", TM_MAX_VALUE_DEPTH);
}
