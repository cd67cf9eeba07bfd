/* Text that people write: key files, config files, templates, values of the environment. One set of
 * rules for all: UTF-8, a byte order mark at the start is dropped, lines end in LF or CRLF, and no
 * control character but tab and the ends of lines. Thread: any. */
#ifndef BASE_TEXT_FILE_H
#define BASE_TEXT_FILE_H

#include "base/buf.h"
#include "base/status.h"

/* Reads a whole file; in *out CRLF is LF and the mark is gone. Errors name `what` ("key file"), path and
 * line, never the text: ERR_NOT_FOUND, ERR_IO, ERR_TOO_LARGE, ERR_INVALID. Does not wait for the other
 * end of a named pipe to be opened. */
enum status text_file_read(const char *what, const char *path, size_t max_bytes, struct buf *out,
                           struct err *e);

/* What a byte order mark at the start of s takes, 0 without one. */
size_t text_mark_bytes(struct str s);

/* Blanks at both ends: spaces, tabs, ends of lines. */
struct str text_trim(struct str s);

/* The first thing in s that the rules forbid; NULL: none. Writes what it is into why[cap]. CR is allowed
 * in front of LF only. */
const char *text_fault(struct str s, char *why, size_t cap);

#endif
