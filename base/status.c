/* Names of status codes and formatted error text. */
#include "base/status.h"
#include "base/base_test.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char *status_name(enum status status)
{
    switch (status) {
    case OK:
        return "OK";
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return #name;
        STATUS_TABLE(X)
#undef X
    }
    return "ERR_UNKNOWN";
}

const char *status_text(enum status status)
{
    switch (status) {
    case OK:
        return "ok";
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        STATUS_TABLE(X)
#undef X
    }
    return "unknown status";
}

/* The formatted text may hold any bytes (file names) and may have been cut inside a character. */
static void make_valid(char *text)
{
    size_t n = strlen(text), at;
    while ((at = utf8_error_at((struct str){text, n})) < n) {
        if (utf8_complete_len((struct str){text, n}) == at) {
            text[at] = 0;
            return;
        }
        text[at] = '?';
    }
}

enum status err_set(struct err *e, enum status status, const char *format, ...)
{
    if (!e)
        return status;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    make_valid(e->text);
    e->status = status;
    e->param[0] = e->code[0] = 0;
    return status;
}

enum status err_set_field(struct err *e, enum status status, const char *param, const char *code,
                          const char *format, ...)
{
    if (!e)
        return status;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    make_valid(e->text);
    e->status = status;
    snprintf(e->param, sizeof(e->param), "%s", param ? param : "");
    snprintf(e->code, sizeof(e->code), "%s", code ? code : "");
    make_valid(e->param);
    make_valid(e->code);
    return status;
}

void err_prefix(struct err *e, const char *format, ...)
{
    if (!e)
        return;
    char old[ERR_TEXT_CAP];
    memcpy(old, e->text, sizeof(old));
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof(e->text) - n, ": %s", old);
    make_valid(e->text);
}
