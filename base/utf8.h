/* UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF). Thread: any. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

bool utf8_valid(struct str s);
/* Offset of the first invalid byte, s.len when valid. */
size_t utf8_error_at(struct str s);
/* Decodes one code point at s.ptr (s.len >= 1). Returns its length 1..4, or 0 when malformed or truncated. */
int utf8_decode(struct str s, uint32_t *code_point);
/* Length of the maximal subpart at s.ptr (s.len >= 1) where utf8_decode returned 0: the bytes that
 * one U+FFFD replaces. */
int utf8_malformed_len(struct str s);
int utf8_encode(uint32_t code_point,
                char out[4]); /* length 1..4; 0 for a surrogate or > 0x10ffff */
/* Length of the prefix that may be emitted now: the longest that does not end inside a code point which
 * later bytes could still complete. Malformed bytes count as complete (they become U+FFFD). */
size_t utf8_complete_len(struct str s);
/* Appends s, with every malformed sequence replaced by U+FFFD (one per maximal subpart, as in WHATWG). */
void utf8_add_lossy(struct buf *out, struct str s);

#endif
