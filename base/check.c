/* Ends the process after it has found a bug in itself; see check.h. */
#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DUMPS = 8 };

static struct {
    void (*fn)(void *arg);
    void *arg;
} dumps[MAX_DUMPS];
static int n_dumps;

void check_add_dump(void (*dump)(void *arg), void *arg)
{
    if (n_dumps < MAX_DUMPS) {
        dumps[n_dumps].fn = dump;
        dumps[n_dumps++].arg = arg;
    }
}

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    static _Thread_local bool failing;
    char text[512];
    int n = snprintf(text, sizeof(text), "millrace: bug at %s:%d: check failed: %s ", file, line,
                     condition);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    if (write(2, text, strlen(text)) < 0 || write(2, "\n", 1) < 0)
        abort();
    if (!failing) {
        failing = true;
        for (int i = 0; i < n_dumps; i++)
            dumps[i].fn(dumps[i].arg);
    }
    abort();
}
