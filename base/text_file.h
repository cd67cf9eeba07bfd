/* Text that people write: key files, config files, templates, environment variables. One set of
 * rules for all of it: UTF-8, a byte order mark at the start is dropped, lines end in LF or CRLF, and
 * no control characters except tab and line ends. Thread: any. */
#ifndef BASE_TEXT_FILE_H
#define BASE_TEXT_FILE_H

#include "base/buf.h"
#include "base/status.h"

/* Reads a whole file; in *out CRLF has become LF and the mark is removed. Errors name `what` ("key file"),
 * the path and the line, never the text: ERR_NOT_FOUND, ERR_IO, ERR_TOO_LARGE, ERR_INVALID. Opening a
 * named pipe does not wait for its other end. */
enum status text_file_read(const char *what, const char *path, size_t max_bytes, struct buf *out,
                           struct err *e);

/* Length of the byte order mark at the start of s, 0 without one. */
size_t text_mark_bytes(struct str s);

/* Removes blanks at both ends: spaces, tabs, line ends. */
struct str text_trim(struct str s);

/* The first byte in s that breaks the rules; NULL: none. Describes it in why[cap]. CR is allowed only
 * before LF. */
const char *text_fault(struct str s, char *why, size_t cap);

#endif
