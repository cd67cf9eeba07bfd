/* Character classes for the pre-tokeniser patterns: generated, dated tables (unicode_tables.c),
 * because a host library's Unicode version must not decide where text is cut. Read-only. */
#ifndef ENGINE_TEXT_UNICODE_H
#define ENGINE_TEXT_UNICODE_H

#include <stdint.h>

/* General categories; Cn and Cs are what no row holds. The upper nibble is the major class. */
enum uni_category {
    UNI_LU = 0x10,
    UNI_LL,
    UNI_LT,
    UNI_LM,
    UNI_LO,
    UNI_MN = 0x20,
    UNI_MC,
    UNI_ME,
    UNI_ND = 0x30,
    UNI_NL,
    UNI_NO,
    UNI_PC = 0x40,
    UNI_PD,
    UNI_PS,
    UNI_PE,
    UNI_PI,
    UNI_PF,
    UNI_PO,
    UNI_SM = 0x50,
    UNI_SC,
    UNI_SK,
    UNI_SO,
    UNI_ZS = 0x60,
    UNI_ZL,
    UNI_ZP,
    UNI_CC = 0x70,
    UNI_CF,
    UNI_CO,
    UNI_SPACE = 0x80
};

struct uni_range {
    uint32_t first, last; /* inclusive */
    uint8_t category;
};

extern const struct uni_range uni_categories[]; /* ascending, disjoint */
extern const unsigned uni_categories_n;
extern const struct uni_range uni_spaces[]; /* \s */
extern const unsigned uni_spaces_n;
/* Numeric for the Digits pre-tokenizer, but not yet in uni_categories. */
extern const struct uni_range uni_late_digits[];
extern const unsigned uni_late_digits_n;

#endif
