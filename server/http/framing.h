/* The bytes of a connection by the grammar of RFC 9112, before libmicrohttpd reads them.
 *
 * libmicrohttpd 0.9.75 takes much that another parser reads in another way: folded lines, names
 * without a letter, NUL, bare CR and LF, blanks after a value, broken chunk extensions. Here each
 * request's line, fields, chunk sizes and trailer are checked byte by byte, and only what has one
 * meaning is passed on, in its plainest form: without empty lines in front, chunk extensions and
 * trailers, without blanks around what frames a body. What is refused is never passed on.
 *
 * Pure: no input or output; one struct per connection. Thread: any. */
#ifndef SERVER_HTTP_FRAMING_H
#define SERVER_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HOST_MAX_BYTES = 262, /* a name of 255 bytes, a colon, a port */
    CHUNK_LINE_MAX_BYTES = 4096 /* a chunk's size with its extensions */
};

struct framing {
    uint8_t state; /* enum state of framing.c */
    uint8_t field; /* the field whose value is read */
    bool trailer; /* lines are of a trailer */
    bool head_method, options; /* HEAD, OPTIONS */
    bool bad_target; /* in none of its forms; refused where the version is known */
    bool old; /* HTTP/1.0 */
    bool zero; /* the first digit behind a % is 0 */
    bool has_length, has_encoding, has_expect;
    uint8_t n_host;
    uint32_t n_kept; /* about what libmicrohttpd keeps of the head */
    uint32_t n_line; /* bytes of a chunk's size line */
    uint32_t n_heads, n_requests; /* heads, and whole requests, that were found valid */
    uint64_t n_partial; /* bytes passed on of the request being read */
    uint64_t left; /* of the body or chunk; while digits are read, their value */
    uint16_t n_text;
    char text[HOST_MAX_BYTES + 2]; /* of the word being read, as far as it matters */
    const char *why; /* what is wrong; static; NULL: nothing */
    int problem; /* with why: id of a problem (errors.h) */
};

void framing_init(struct framing *f);
/* Checks the next n bytes and leaves in p the part of them that the parser may see; returns its length. With
 * f->why set nothing is taken any more, and the last n_partial bytes passed on are of what is refused. */
size_t framing_take(struct framing *f, char *p, size_t n);
/* True between two requests. */
bool framing_idle(const struct framing *f);

/* uri-host [":" port] of RFC 9110 7.2; may be empty. */
bool framing_host_valid(const char *text, size_t n);

#endif
