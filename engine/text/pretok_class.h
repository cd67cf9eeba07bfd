/* Character classes of a splitting rule, folded into one byte a character. Internal to engine/text.
 *
 * The patterns of a rule look at a character only through their classes, so characters that lie in
 * the same classes are one to them. Each code point becomes a symbol: ASCII itself, every other one
 * 0x80 plus the number of its set of classes. PCRE2 then runs over bytes, where a class is a bitmap
 * look-up; over code points it would walk hundreds of ranges for each character. */
#ifndef ENGINE_TEXT_PRETOK_CLASS_H
#define ENGINE_TEXT_PRETOK_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    CLASS_PAGE = 256,
    CLASS_PAGES = 0x110000 / CLASS_PAGE,
    CLASS_MAX_ATOMS = 64, /* classes in the patterns of one rule */
    CLASS_MAX_SYMBOLS = 128
};

struct class_table {
    uint8_t *page[CLASS_PAGES]; /* 256 symbols each, shared where equal; into `pool` */
    uint8_t *pool; /* owns */
};

/* patterns: NULL-terminated, as in pretok.def. Fills the table and appends to text[i] pattern i,
 * rewritten to match symbols. */
void class_table_init(struct class_table *t, const char *const *patterns, struct buf *text);
void class_table_release(struct class_table *t);

static inline uint8_t class_symbol(const struct class_table *t, uint32_t code_point)
{
    return t->page[code_point / CLASS_PAGE][code_point % CLASS_PAGE];
}

#endif
