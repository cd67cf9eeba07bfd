/* A view of bytes: pointer and length; not NUL-terminated, may hold U+0000. Borrows. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *ptr;
    size_t len;
};

#define STR_LIT(literal) ((struct str){(literal), sizeof(literal) - 1})

static inline struct str str_of(const char *c_string)
{
    return (struct str){c_string, c_string ? strlen(c_string) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool str_eq_c(struct str a, const char *c_string)
{
    return str_eq(a, str_of(c_string));
}

static inline bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

#endif
