/* CHECK: a broken invariant is a bug in millrace: print where, run the dump hooks, abort.
 * DCHECK: the same in builds with MILLRACE_EXPENSIVE_CHECKS (dev, tsan); costs nothing in release. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdbool.h>

__attribute__((noreturn, format(printf, 4, 5))) void
check_failed(const char *file, int line, const char *condition, const char *format, ...);
/* Hooks run before the abort, in order of registration, at most 8: they dump journals and ledgers. */
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

/* True when a test has planted the fault `which` in holder->fault, to check that it is detected. The only
 * macro for planted faults; compiled in checked builds only. */
#ifdef MILLRACE_EXPENSIVE_CHECKS
#define PLANTED(holder, which) ((holder)->fault == (which))
#else
#define PLANTED(holder, which) false
#endif

#endif
