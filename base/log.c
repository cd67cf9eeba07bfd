/* One line a write; see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"

static atomic_int least = LOG_INFO;
static atomic_bool as_json;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_set_level(enum log_level level)
{
    least = level;
}

void log_set_json(bool json)
{
    as_json = json;
}

static void write_all(const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(2, p, n);
        if (k <= 0)
            return;
        p += k;
        n -= (size_t)k;
    }
}

void log_line(enum log_level level, const char *format, ...)
{
    if ((int)level < least)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char stamp[64];
    size_t n = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(stamp + n, sizeof(stamp) - n, ".%03ldZ", now.tv_nsec / 1000000);

    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct buf line = {0};
    if (as_json) {
        buf_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", stamp,
                   level_names[level]);
        json_add_string(&line, str_of(text));
        buf_add_c(&line, "}\n");
    } else {
        buf_printf(&line, "%s %-5s %s\n", stamp, level_names[level], text);
    }
    write_all(line.ptr, line.len);
    buf_release(&line);
}
