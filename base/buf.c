/* A growable byte buffer; see buf.h. */
#include "base/buf.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

void buf_release(struct buf *b)
{
    mem_free(b->ptr);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->ptr)
        b->ptr[0] = 0;
}

void buf_reserve(struct buf *b, size_t n_more)
{
    size_t need;
    CHECK(mem_add_ok(b->len, n_more, &need) && mem_add_ok(need, 1, &need));
    if (need <= b->cap)
        return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap = mem_mul(cap, 2);
    b->ptr = mem_realloc(b->ptr, cap);
    b->cap = cap;
    b->ptr[b->len] = 0;
}

void buf_fit(struct buf *b)
{
    if (b->cap <= b->len + 1)
        return;
    b->cap = b->len + 1;
    b->ptr = mem_realloc(b->ptr, b->cap);
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    buf_reserve(b, n);
    if (n)
        memcpy(b->ptr + b->len, p, n);
    b->len += n;
    b->ptr[b->len] = 0;
}

void buf_add_str(struct buf *b, struct str s)
{
    buf_add(b, s.ptr, s.len);
}

void buf_add_c(struct buf *b, const char *c_string)
{
    buf_add(b, c_string, strlen(c_string));
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    CHECK(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->ptr + b->len, (size_t)n + 1, format, args);
    b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

char *buf_take(struct buf *b)
{
    buf_reserve(b, 0);
    char *p = b->ptr;
    *b = (struct buf){0};
    return p;
}
