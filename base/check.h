/* CHECK: a broken invariant is a bug of ours: say where, dump what hooks know, abort.
 * DCHECK: the same in builds with MILLRACE_EXPENSIVE_CHECKS (dev, tsan), free in release. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdbool.h>

__attribute__((noreturn, format(printf, 4, 5))) void
check_failed(const char *file, int line, const char *condition, const char *format, ...);
/* Called (in order of registration, at most 8) before the abort: journals, ledgers. */
void check_add_dump(void (*dump)(void *arg), void *arg);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            check_failed(__FILE__, __LINE__, #cond, " ");                                          \
    } while (0)
#define CHECKF(cond, ...)                                                                          \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__);                                  \
    } while (0)

#ifdef MILLRACE_EXPENSIVE_CHECKS
#define DCHECK(cond) CHECK(cond)
#else
#define DCHECK(cond) ((void)sizeof(cond))
#endif

/* A fault that a test has planted in its holder, to see that it is found: holder->fault is `which`. The one
 * macro for them, compiled in checked builds only. */
#ifdef MILLRACE_EXPENSIVE_CHECKS
#define PLANTED(holder, which) ((holder)->fault == (which))
#else
#define PLANTED(holder, which) false
#endif

#endif
