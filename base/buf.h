/* A growable byte buffer. A NUL always follows the last byte; the content may hold NULs too. A
 * zero-initialised buffer is valid and empty. It owns its memory; release it with buf_release. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

#include "base/str.h"

struct buf {
    char *ptr; /* owns; NULL while empty */
    size_t len;
    size_t cap;
};

void buf_release(struct buf *b);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_reserve(struct buf *b, size_t n_more);
void buf_fit(struct buf *b); /* frees unused capacity */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_add_str(struct buf *b, struct str s);
void buf_add_c(struct buf *b, const char *c_string);
void buf_add_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *format, va_list args);
char *buf_take(
    struct buf *b); /* the caller owns the result (mem_free); never NULL; b is empty afterwards */

static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->ptr ? b->ptr : "", b->len};
}

#endif
