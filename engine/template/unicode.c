/* Character classes and case conversion as Python's str has them, on utf8proc's tables.
 *
 * Called by engine/template. Thread: any. */
#include <utf8proc.h>

#include "engine/template/interp.h"

/* Characters whose upper case is longer than one code point (Unicode SpecialCasing.txt and
 * UnicodeData.txt, version 14). */
static const struct {
    uint32_t cp, to[3];
} long_upper[] = {
#define U(cp, a, b, c) {cp, {a, b, c}},
#include "engine/template/upper.def"
#undef U
};

/* Digits that are not decimal digits (Numeric_Type=Digit), as inclusive ranges. */
static const uint32_t other_digits[][2] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool tm_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool tm_is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool tm_is_printable(uint32_t cp)
{
    if (cp < 0x7f)
        return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool tm_is_alpha(uint32_t cp)
{
    utf8proc_category_t k = category(cp);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool tm_is_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool tm_is_digit(uint32_t cp)
{
    for (size_t i = 0; i < sizeof(other_digits) / sizeof(other_digits[0]); i++)
        if (cp >= other_digits[i][0] && cp <= other_digits[i][1])
            return true;
    return tm_is_decimal(cp);
}

bool tm_is_numeric(uint32_t cp)
{
    utf8proc_category_t k = category(cp);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool tm_is_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL || cp == 0xaa || cp == 0xba;
}

bool tm_is_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU;
}

bool tm_is_title(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LT;
}

bool tm_is_ident(uint32_t cp, bool start)
{
    if (cp < 0x80)
        return (cp | 32) - 'a' < 26u || cp == '_' || (!start && cp - '0' < 10u);
    utf8proc_category_t k = category(cp);
    bool continues = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
                     k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC;
    return tm_is_alpha(cp) || k == UTF8PROC_CATEGORY_NL || (!start && continues);
}

/* ---- case ---- */

static void add_upper(struct tm_sb *b, uint32_t cp, bool trusted)
{
    if (cp < 0x80) {
        tm_sb_add_char(b, cp - 'a' < 26u ? cp - 32 : cp, trusted);
        return;
    }
    for (size_t i = 0; i < sizeof(long_upper) / sizeof(long_upper[0]); i++) {
        if (long_upper[i].cp != cp)
            continue;
        for (int k = 0; k < 3 && long_upper[i].to[k]; k++)
            tm_sb_add_char(b, long_upper[i].to[k], trusted);
        return;
    }
    tm_sb_add_char(b, (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp), trusted);
}

static void add_title(struct tm_sb *b, uint32_t cp, bool trusted)
{
    static const struct {
        uint32_t cp, to[3];
    } long_title[] = {
#define T(cp, a, b, c) {cp, {a, b, c}},
#include "engine/template/upper.def"
#undef T
    };
    for (size_t i = 0; cp >= 0x80 && i < sizeof(long_title) / sizeof(long_title[0]); i++) {
        if (long_title[i].cp != cp)
            continue;
        for (int k = 0; k < 3 && long_title[i].to[k]; k++)
            tm_sb_add_char(b, long_title[i].to[k], trusted);
        return;
    }
    if (cp < 0x80)
        add_upper(b, cp, trusted);
    else
        tm_sb_add_char(b, (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp), trusted);
}

static bool is_cased(uint32_t cp)
{
    return tm_is_lower(cp) || tm_is_upper(cp) || tm_is_title(cp);
}

static bool is_case_ignorable(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xb7 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027;
    }
}

/* Sigma at the end of a word has its own lower case. */
static bool is_final_sigma(const struct tm_str *s, uint32_t at)
{
    uint32_t cp, before = at;
    bool cased = false;
    while (before > 0) {
        do
            before--;
        while (before > 0 && ((unsigned char)s->p[before] & 0xc0) == 0x80);
        tm_decode(s, before, &cp);
        if (is_case_ignorable(cp))
            continue;
        cased = is_cased(cp);
        break;
    }
    if (!cased)
        return false;
    for (uint32_t i = at + 2; i < s->len;) {
        int n = tm_decode(s, i, &cp);
        if (!is_case_ignorable(cp))
            return !is_cased(cp);
        i += (uint32_t)n;
    }
    return true;
}

static void add_lower(struct tm_sb *b, const struct tm_str *s, uint32_t at, uint32_t cp,
                      bool trusted)
{
    if (cp == 0x130) {
        tm_sb_add_char(b, 'i', trusted);
        tm_sb_add_char(b, 0x307, trusted);
    } else if (cp == 0x3a3) {
        tm_sb_add_char(b, is_final_sigma(s, at) ? 0x3c2 : 0x3c3, trusted);
    } else if (cp < 0x80) {
        tm_sb_add_char(b, cp - 'A' < 26u ? cp + 32 : cp, trusted);
    } else {
        tm_sb_add_char(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), trusted);
    }
}

/* Characters that start a new word for jinja2's title filter. */
static bool splits_title(uint32_t cp)
{
    return tm_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

const struct tm_str *tm_recase(struct tmpl *c, const struct tm_str *s, enum tm_case how)
{
    struct tm_sb b;
    tm_sb_init(&b, c);
    uint32_t cursor = 0;
    bool start = true; /* of a word, or of the text */
    for (uint32_t at = 0; at < s->len;) {
        uint32_t cp;
        int n = tm_decode(s, at, &cp);
        bool trusted = tm_trusted_at(s, at, &cursor);
        bool up = how == TM_UPPER || (how == TM_JINJA_TITLE && start) ||
                  (how == TM_SWAPCASE && tm_is_lower(cp));
        bool keep = how == TM_SWAPCASE && !tm_is_lower(cp) && !tm_is_upper(cp);
        if (keep)
            tm_sb_add_char(&b, cp, trusted);
        else if (up)
            add_upper(&b, cp, trusted);
        else if ((how == TM_CAPITALIZE || how == TM_TITLE_WORDS) && start)
            add_title(&b, cp, trusted);
        else
            add_lower(&b, s, at, cp, trusted);
        if (how == TM_TITLE_WORDS)
            start = !is_cased(cp);
        else
            start = how == TM_JINJA_TITLE && splits_title(cp);
        at += (uint32_t)n;
    }
    return tm_as_markup(c, tm_sb_done(&b), s->markup);
}
