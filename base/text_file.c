/* Reading text files by one set of rules; see text_file.h. */
#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

static const char mark[] =
    "\xEF\xBB\xBF"; /* U+FEFF, which some editors put at the start of a file */

size_t text_mark_bytes(struct str s)
{
    return str_starts(s, STR_LIT(mark)) ? sizeof(mark) - 1 : 0;
}

struct str text_trim(struct str s)
{
    while (s.len && memchr(" \t\r\n", s.ptr[0], 4))
        s.ptr++, s.len--;
    while (s.len && memchr(" \t\r\n", s.ptr[s.len - 1], 4))
        s.len--;
    return s;
}

static bool is_control(struct str s, size_t i, uint32_t c)
{
    if (c == '\t' || c == '\n' || (c == '\r' && i + 1 < s.len && s.ptr[i + 1] == '\n'))
        return false;
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

const char *text_fault(struct str s, char *why, size_t cap)
{
    for (size_t i = 0; i < s.len;) {
        uint32_t c;
        int n = utf8_decode((struct str){s.ptr + i, s.len - i}, &c);
        if (n == 0)
            snprintf(why, cap, "byte 0x%02x is not valid utf-8", (unsigned char)s.ptr[i]);
        else if (c == 0)
            snprintf(why, cap, "holds a nul byte");
        else if (is_control(s, i, c))
            snprintf(why, cap, "holds the control character U+%04X", (unsigned)c);
        if (n == 0 || is_control(s, i, c))
            return s.ptr + i;
        i += (size_t)n;
    }
    return NULL;
}

/* Reads at most max_bytes + 1 bytes of the file. A reload reads on the main thread, so opening must not
 * wait for a writer at the other end of a pipe. */
static int read_bytes(const char *path, size_t max_bytes, struct buf *out)
{
    enum { PIECE = 4096 };
    ssize_t n = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    int error = fcntl(fd, F_SETFL, O_RDONLY) < 0 ? errno : 0;
    while (!error && n > 0 && out->len <= max_bytes) {
        buf_reserve(out, PIECE);
        n = read(fd, out->ptr + out->len, PIECE);
        if (n > 0)
            out->len += (size_t)n;
        else if (n < 0 && errno != EINTR)
            error = errno;
        else if (n < 0)
            n = 1;
    }
    close(fd);
    return error;
}

/* Some shells write UTF-16 where UTF-8 was intended. */
static bool is_utf16(struct str s)
{
    return str_starts(s, STR_LIT("\xFF\xFE")) || str_starts(s, STR_LIT("\xFE\xFF"));
}

static enum status check(const char *what, const char *path, struct str s, struct err *e)
{
    char why[64];
    size_t line = 1;
    const char *at = text_fault(s, why, sizeof(why));
    if (!at)
        return OK;
    for (const char *p = s.ptr; p < at; p++)
        line += *p == '\n';
    return err_set(e, ERR_INVALID, "%s \"%.200s\" line %zu: %s", what, path, line,
                   is_utf16(s) ? "the file is utf-16, not utf-8" : why);
}

/* Drops the mark and the CR of every CRLF. */
static void clean(struct buf *text)
{
    size_t n = 0;
    for (size_t i = text_mark_bytes(buf_str(text)); i < text->len; i++)
        if (text->ptr[i] != '\r')
            text->ptr[n++] = text->ptr[i];
    text->len = n;
    text->ptr[n] = 0;
}

enum status text_file_read(const char *what, const char *path, size_t max_bytes, struct buf *out,
                           struct err *e)
{
    buf_clear(out);
    buf_reserve(out, 1);
    int error = read_bytes(path, max_bytes, out);
    if (error)
        return err_set(e, error == ENOENT ? ERR_NOT_FOUND : ERR_IO,
                       "cannot read the %s \"%.300s\": %s", what, path, strerror(error));
    if (out->len > max_bytes)
        return err_set(e, ERR_TOO_LARGE, "the %s \"%.300s\" is over the limit of %zu bytes", what,
                       path, max_bytes);
    enum status st = check(what, path, buf_str(out), e);
    if (!st)
        clean(out);
    return st;
}
