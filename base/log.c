/* One line per write; see log.h. */
#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/thread.h"

/* A pipe that poll calls writable takes PIPE_BUF bytes without blocking. */
enum { LINE_CAP = PIPE_BUF, TEXT_CAP = 2048, ESCAPED_TEXT_CAP = 640 /* \u00XX is 6 bytes */ };

static struct mutex writing = {PTHREAD_MUTEX_INITIALIZER}; /* protects n_dropped */
static uint64_t n_dropped;

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

static bool write_now(const struct buf *line)
{
    struct pollfd fd = {.fd = 2, .events = POLLOUT};
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT) && write(2, line->ptr, line->len) > 0;
}

static void add_line(struct buf *out, enum log_level level, const char *text)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char stamp[64];
    size_t n = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(stamp + n, sizeof(stamp) - n, ".%03ldZ", now.tv_nsec / 1000000);
    if (!as_json) {
        buf_printf(out, "%s %-5s %s\n", stamp, level_names[level], text);
        return;
    }
    buf_printf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", stamp, level_names[level]);
    size_t head = out->len;
    json_add_string(out, str_of(text));
    if (out->len + sizeof("}\n") > LINE_CAP) {
        out->len = head;
        json_add_string(out, (struct str){text, ESCAPED_TEXT_CAP});
    }
    buf_add_c(out, "}\n");
}

static void tell_dropped(void)
{
    char text[64];
    snprintf(text, sizeof(text), "%llu log lines were dropped: stderr blocked",
             (unsigned long long)n_dropped);
    struct buf line = {0};
    add_line(&line, LOG_WARN, text);
    if (write_now(&line))
        n_dropped = 0;
    buf_release(&line);
}

void log_line(enum log_level level, const char *format, ...)
{
    if ((int)level < least)
        return;
    char text[TEXT_CAP];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct buf line = {0};
    add_line(&line, level, text);
    mutex_lock(&writing);
    if (n_dropped)
        tell_dropped();
    if (n_dropped || !write_now(&line))
        n_dropped++;
    mutex_unlock(&writing);
    buf_release(&line);
}
