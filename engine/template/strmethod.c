/* Methods of str in chat templates. Positions and lengths count code points, as in Python.
 *
 * Called through tm_invoke. Thread: the one that renders. */
#include <string.h>

#include "engine/template/interp.h"

#define METHOD(name)                                                                               \
    static struct tm_val name(struct tmpl *c, struct tm_val self, const struct tm_val *a,          \
                              const struct tm_args *raw)
#define UNUSED (void)c, (void)self, (void)a, (void)raw

static bool given(struct tm_val v)
{
    return v.type != TM_ABSENT && v.type != TM_NONE;
}

static void refuse_markup(struct tmpl *c, const struct tm_str *s)
{
    if (s->markup)
        tm_fail(c, ERR_UNSUPPORTED, "this method of a safe string is not supported");
}

/* ---- helpers shared with the filters ---- */

static bool in_set(const struct tm_str *set, uint32_t cp)
{
    if (!set)
        return tm_is_space(cp);
    for (uint32_t at = 0; at < set->len;) {
        uint32_t one;
        at += (uint32_t)tm_decode(set, at, &one);
        if (one == cp)
            return true;
    }
    return false;
}

const struct tm_str *tm_strip(struct tmpl *c, const struct tm_str *s, const struct tm_str *chars,
                              bool left, bool right)
{
    uint32_t from = 0, to = s->len, cp;
    tm_step(c, 1);
    while (left && from < to) {
        int n = tm_decode(s, from, &cp);
        if (!in_set(chars, cp))
            break;
        from += (uint32_t)n;
        tm_step(c, chars ? 1 + chars->len / 8 : 1);
    }
    while (right && to > from) {
        uint32_t prev = to - 1;
        while (prev > from && ((unsigned char)s->p[prev] & 0xc0) == 0x80)
            prev--;
        tm_decode(s, prev, &cp);
        if (!in_set(chars, cp))
            break;
        to = prev;
        tm_step(c, chars ? 1 + chars->len / 8 : 1);
    }
    return tm_sub(c, s, from, to);
}

static uint32_t char_len(const struct tm_str *s, uint32_t at)
{
    uint32_t cp;
    return (uint32_t)tm_decode(s, at, &cp);
}

const struct tm_str *tm_replace(struct tmpl *c, const struct tm_str *s, const struct tm_str *from,
                                const struct tm_str *to, int64_t count)
{
    struct tm_sb b;
    tm_sb_init(&b, c);
    uint32_t at = 0;
    if (!from->len) { /* before every character and at the end */
        for (; count != 0 && at <= s->len; count--) {
            tm_sb_add_str(&b, to);
            uint32_t n = at < s->len ? char_len(s, at) : 1;
            if (at < s->len)
                tm_sb_add_sub(&b, s, at, at + n);
            at += n;
        }
    }
    for (; from->len && count != 0; count--) {
        int64_t hit = tm_find(c, s, from, at, s->len, false);
        if (hit < 0)
            break;
        tm_sb_add_sub(&b, s, at, (uint32_t)hit);
        tm_sb_add_str(&b, to);
        at = (uint32_t)hit + from->len;
    }
    if (at == 0)
        return s;
    if (at < s->len)
        tm_sb_add_sub(&b, s, at, s->len);
    return tm_sb_done(&b);
}

const struct tm_str *tm_join(struct tmpl *c, const struct tm_str *sep, const struct tm_list *items)
{
    struct tm_sb b;
    tm_sb_init(&b, c);
    for (uint32_t i = 0; i < items->n; i++) {
        if (i)
            tm_sb_add_str(&b, sep);
        tm_sb_add_str(&b, items->v[i].s);
    }
    return tm_sb_done(&b);
}

struct tm_list *tm_split_lines(struct tmpl *c, const struct tm_str *s, bool keep_ends)
{
    struct tm_list *l = tm_list_new(c, 0);
    uint32_t start = 0, cp;
    for (uint32_t at = 0; at < s->len;) {
        uint32_t n = (uint32_t)tm_decode(s, at, &cp), end = at;
        at += n;
        if (!tm_is_line_end(cp))
            continue;
        if (cp == '\r' && at < s->len && s->p[at] == '\n')
            at++;
        tm_list_add(c, l, tm_string(tm_sub(c, s, start, keep_ends ? at : end)));
        start = at;
    }
    if (start < s->len)
        tm_list_add(c, l, tm_string(tm_sub(c, s, start, s->len)));
    return l;
}

/* ---- case and classes ---- */

METHOD(m_upper)
{
    UNUSED;
    return tm_string(tm_recase(c, self.s, TM_UPPER));
}

METHOD(m_lower)
{
    UNUSED;
    return tm_string(tm_recase(c, self.s, TM_LOWER));
}

METHOD(m_title)
{
    UNUSED;
    return tm_string(tm_recase(c, self.s, TM_TITLE_WORDS));
}

METHOD(m_capitalize)
{
    UNUSED;
    return tm_string(tm_recase(c, self.s, TM_CAPITALIZE));
}

METHOD(m_swapcase)
{
    UNUSED;
    return tm_string(tm_recase(c, self.s, TM_SWAPCASE));
}

static struct tm_val all_chars(struct tmpl *c, const struct tm_str *s, bool (*is)(uint32_t))
{
    tm_step(c, 1 + s->len / 8);
    for (uint32_t at = 0; at < s->len;) {
        uint32_t cp;
        at += (uint32_t)tm_decode(s, at, &cp);
        if (!is(cp))
            return tm_bool(false);
    }
    return tm_bool(s->len > 0);
}

static bool is_alnum(uint32_t cp)
{
    return tm_is_alpha(cp) || tm_is_digit(cp) || tm_is_numeric(cp);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

METHOD(m_isalpha)
{
    UNUSED;
    return all_chars(c, self.s, tm_is_alpha);
}

METHOD(m_isdigit)
{
    UNUSED;
    return all_chars(c, self.s, tm_is_digit);
}

METHOD(m_isdecimal)
{
    UNUSED;
    return all_chars(c, self.s, tm_is_decimal);
}

METHOD(m_isnumeric)
{
    UNUSED;
    return all_chars(c, self.s, tm_is_numeric);
}

METHOD(m_isalnum)
{
    UNUSED;
    return all_chars(c, self.s, is_alnum);
}

METHOD(m_isspace)
{
    UNUSED;
    return all_chars(c, self.s, tm_is_space);
}

METHOD(m_isascii)
{
    UNUSED;
    return tm_bool(!self.s->len || all_chars(c, self.s, is_ascii).b);
}

METHOD(m_islower)
{
    UNUSED;
    return tm_invoke(c, tm_test_find(STR_LIT("lower")), self, raw);
}

METHOD(m_isupper)
{
    UNUSED;
    return tm_invoke(c, tm_test_find(STR_LIT("upper")), self, raw);
}

/* ---- trimming and padding ---- */

static struct tm_val strip(struct tmpl *c, const struct tm_str *s, struct tm_val chars, bool left,
                           bool right)
{
    return tm_string(
        tm_strip(c, s, given(chars) ? tm_need_str(c, chars, "strip argument") : NULL, left, right));
}

METHOD(m_strip)
{
    UNUSED;
    return strip(c, self.s, a[0], true, true);
}

METHOD(m_lstrip)
{
    UNUSED;
    return strip(c, self.s, a[0], true, false);
}

METHOD(m_rstrip)
{
    UNUSED;
    return strip(c, self.s, a[0], false, true);
}

static struct tm_val pad(struct tmpl *c, const struct tm_str *s, struct tm_val width,
                         struct tm_val fill, char how)
{
    int64_t want = tm_need_int(c, width, "width"), n = tm_str_chars(c, s);
    const struct tm_str *with = given(fill) ? tm_need_str(c, fill, "fill character") : NULL;
    if (with && tm_str_chars(c, with) != 1)
        tm_fail(c, ERR_INVALID, "the fill character must be exactly one character long");
    if (want <= n)
        return tm_string(s);
    if (want > TM_MAX_STRING_BYTES)
        tm_fail(c, ERR_TOO_LARGE, "makes a text of more than %d bytes", TM_MAX_STRING_BYTES);
    int64_t all = want - n, left = how == 'r' ? all : how == 'l' ? 0 : all / 2 + (all & want & 1);
    struct tm_sb b;
    tm_sb_init(&b, c);
    for (int64_t i = 0; i <= all; i++) {
        if (i == left)
            tm_sb_add_str(&b, s);
        if (i < all && with)
            tm_sb_add_str(&b, with);
        else if (i < all)
            tm_sb_add(&b, " ", 1, false);
    }
    return tm_string(tm_as_markup(c, tm_sb_done(&b), s->markup));
}

METHOD(m_ljust)
{
    UNUSED;
    return pad(c, self.s, a[0], a[1], 'l');
}

METHOD(m_rjust)
{
    UNUSED;
    return pad(c, self.s, a[0], a[1], 'r');
}

METHOD(m_center)
{
    UNUSED;
    return pad(c, self.s, a[0], a[1], 'c');
}

METHOD(m_zfill)
{
    UNUSED;
    bool sign = self.s->len && (self.s->p[0] == '-' || self.s->p[0] == '+');
    int64_t width = tm_need_int(c, a[0], "width");
    struct tm_val zero = tm_string(tm_str_lit(c, "0"));
    const struct tm_str *digits = tm_sub(c, self.s, sign, self.s->len);
    struct tm_val padded = pad(c, digits, tm_int(width - (width > INT64_MIN && sign)), zero, 'r');
    return tm_string(tm_concat(c, tm_sub(c, self.s, 0, sign), padded.s));
}

METHOD(m_removeprefix)
{
    UNUSED;
    const struct tm_str *p = tm_need_str(c, a[0], "prefix");
    bool has = str_starts(tm_view_str(self.s), tm_view_str(p));
    return tm_string(has ? tm_sub(c, self.s, p->len, self.s->len) : self.s);
}

static bool ends_with(struct str s, struct str end)
{
    return s.len >= end.len && memcmp(s.ptr + s.len - end.len, end.ptr, end.len) == 0;
}

METHOD(m_removesuffix)
{
    UNUSED;
    const struct tm_str *p = tm_need_str(c, a[0], "suffix");
    bool has = p->len && ends_with(tm_view_str(self.s), tm_view_str(p));
    return tm_string(has ? tm_sub(c, self.s, 0, self.s->len - p->len) : self.s);
}

/* ---- searching ---- */

/* The part of s that Python's start and stop arguments mean, as bytes; false when start is past
 * the end. */
static bool part_of(struct tmpl *c, const struct tm_str *s, struct tm_val start, struct tm_val stop,
                    uint32_t *from, uint32_t *to)
{
    *from = 0;
    *to = s->len;
    if (!given(start) && !given(stop))
        return true;
    int64_t n = tm_str_chars(c, s);
    int64_t i = given(start) ? tm_need_int(c, start, "start") : 0;
    int64_t j = given(stop) ? tm_need_int(c, stop, "stop") : n;
    i = i < 0 ? (i + n < 0 ? 0 : i + n) : i;
    j = j < 0 ? (j + n < 0 ? 0 : j + n) : j > n ? n : j;
    if (i > n || i > j)
        return false;
    *from = tm_str_offset(c, s, (uint32_t)i);
    *to = tm_str_offset(c, s, (uint32_t)j);
    return true;
}

static int64_t find_char(struct tmpl *c, const struct tm_str *s, const struct tm_val *a, bool last)
{
    uint32_t from, to;
    const struct tm_str *needle = tm_need_str(c, a[0], "text to find");
    if (!part_of(c, s, a[1], a[2], &from, &to))
        return -1;
    int64_t at = tm_find(c, s, needle, from, to, last);
    return at < 0 ? -1 : (int64_t)tm_str_chars(c, tm_sub(c, s, 0, (uint32_t)at));
}

METHOD(m_find)
{
    UNUSED;
    return tm_int(find_char(c, self.s, a, false));
}

METHOD(m_rfind)
{
    UNUSED;
    return tm_int(find_char(c, self.s, a, true));
}

METHOD(m_index)
{
    UNUSED;
    int64_t i = find_char(c, self.s, a, false);
    if (i < 0)
        tm_fail(c, ERR_INVALID, "substring not found");
    return tm_int(i);
}

METHOD(m_rindex)
{
    UNUSED;
    int64_t i = find_char(c, self.s, a, true);
    if (i < 0)
        tm_fail(c, ERR_INVALID, "substring not found");
    return tm_int(i);
}

METHOD(m_count)
{
    UNUSED;
    uint32_t from, to;
    const struct tm_str *needle = tm_need_str(c, a[0], "text to count");
    if (!part_of(c, self.s, a[1], a[2], &from, &to))
        return tm_int(0);
    if (!needle->len)
        return tm_int((int64_t)tm_str_chars(c, tm_sub(c, self.s, from, to)) + 1);
    int64_t n = 0, at;
    for (; (at = tm_find(c, self.s, needle, from, to, false)) >= 0; n++)
        from = (uint32_t)at + needle->len;
    return tm_int(n);
}

static bool affix(struct tmpl *c, struct str s, struct tm_val what, bool end)
{
    if (what.type == TM_TUPLE) {
        for (uint32_t i = 0; i < what.list->n; i++) {
            struct str one = tm_view_str(tm_need_str(c, what.list->v[i], "prefix or suffix"));
            if (end ? ends_with(s, one) : str_starts(s, one))
                return true;
        }
        return false;
    }
    struct str one = tm_view_str(tm_need_str(c, what, "prefix or suffix"));
    return end ? ends_with(s, one) : str_starts(s, one);
}

METHOD(m_startswith)
{
    UNUSED;
    uint32_t from, to;
    if (!part_of(c, self.s, a[1], a[2], &from, &to))
        return tm_bool(false);
    return tm_bool(affix(c, (struct str){self.s->p + from, to - from}, a[0], false));
}

METHOD(m_endswith)
{
    UNUSED;
    uint32_t from, to;
    if (!part_of(c, self.s, a[1], a[2], &from, &to))
        return tm_bool(false);
    return tm_bool(affix(c, (struct str){self.s->p + from, to - from}, a[0], true));
}

/* ---- splitting ---- */

static void turn(struct tm_list *l)
{
    for (uint32_t i = 0; i < l->n / 2; i++) {
        struct tm_val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static uint32_t prev_char(const struct tm_str *s, uint32_t at, uint32_t *cp)
{
    do
        at--;
    while (at > 0 && ((unsigned char)s->p[at] & 0xc0) == 0x80);
    tm_decode(s, at, cp);
    return at;
}

static struct tm_list *split_space(struct tmpl *c, const struct tm_str *s, int64_t max)
{
    struct tm_list *l = tm_list_new(c, 0);
    const struct tm_str *rest = tm_strip(c, s, NULL, true, false);
    for (; rest->len && max != 0; max--) {
        uint32_t at = 0, cp = 0;
        while (at < rest->len) {
            int n = tm_decode(rest, at, &cp);
            if (tm_is_space(cp))
                break;
            at += (uint32_t)n;
        }
        tm_step(c, at);
        tm_list_add(c, l, tm_string(tm_sub(c, rest, 0, at)));
        rest = tm_strip(c, tm_sub(c, rest, at, rest->len), NULL, true, false);
    }
    if (rest->len)
        tm_list_add(c, l, tm_string(rest));
    return l;
}

static struct tm_list *rsplit_space(struct tmpl *c, const struct tm_str *s, int64_t max)
{
    struct tm_list *l = tm_list_new(c, 0);
    const struct tm_str *rest = tm_strip(c, s, NULL, false, true);
    for (; rest->len && max != 0; max--) {
        uint32_t at = rest->len, cp = 0;
        while (at > 0) {
            uint32_t before = prev_char(rest, at, &cp);
            if (tm_is_space(cp))
                break;
            at = before;
        }
        tm_step(c, rest->len - at);
        tm_list_add(c, l, tm_string(tm_sub(c, rest, at, rest->len)));
        rest = tm_strip(c, tm_sub(c, rest, 0, at), NULL, false, true);
    }
    if (rest->len)
        tm_list_add(c, l, tm_string(rest));
    turn(l);
    return l;
}

static struct tm_list *split_at(struct tmpl *c, const struct tm_str *s, const struct tm_str *sep,
                                int64_t max, bool right)
{
    struct tm_list *l = tm_list_new(c, 0);
    uint32_t from = 0, to = s->len;
    if (!sep->len)
        tm_fail(c, ERR_INVALID, "empty separator");
    for (; max != 0; max--) {
        int64_t at = tm_find(c, s, sep, from, to, right);
        if (at < 0)
            break;
        uint32_t hit = (uint32_t)at;
        if (right) {
            tm_list_add(c, l, tm_string(tm_sub(c, s, hit + sep->len, to)));
            to = hit;
        } else {
            tm_list_add(c, l, tm_string(tm_sub(c, s, from, hit)));
            from = hit + sep->len;
        }
    }
    tm_list_add(c, l, tm_string(tm_sub(c, s, from, to)));
    if (right)
        turn(l);
    return l;
}

static struct tm_val split(struct tmpl *c, const struct tm_str *s, const struct tm_val *a,
                           bool right)
{
    int64_t max = given(a[1]) ? tm_need_int(c, a[1], "maxsplit") : -1;
    if (given(a[0]))
        return tm_list_val(split_at(c, s, tm_need_str(c, a[0], "separator"), max, right));
    return tm_list_val(right ? rsplit_space(c, s, max) : split_space(c, s, max));
}

METHOD(m_split)
{
    UNUSED;
    return split(c, self.s, a, false);
}

METHOD(m_rsplit)
{
    UNUSED;
    return split(c, self.s, a, true);
}

METHOD(m_splitlines)
{
    UNUSED;
    return tm_list_val(tm_split_lines(c, self.s, a[0].type != TM_ABSENT && tm_truthy(c, a[0])));
}

static struct tm_val partition(struct tmpl *c, const struct tm_str *s, struct tm_val by, bool right)
{
    const struct tm_str *sep = tm_need_str(c, by, "separator");
    if (!sep->len)
        tm_fail(c, ERR_INVALID, "empty separator");
    int64_t at = tm_find(c, s, sep, 0, s->len, right);
    struct tm_list *l = tm_list_new(c, 3);
    uint32_t hit = at < 0 ? (right ? 0 : s->len) : (uint32_t)at;
    uint32_t end = at < 0 ? hit : hit + sep->len;
    tm_list_add(c, l, tm_string(tm_sub(c, s, 0, hit)));
    tm_list_add(c, l, tm_string(tm_sub(c, s, hit, end)));
    tm_list_add(c, l, tm_string(tm_sub(c, s, end, s->len)));
    return (struct tm_val){.type = TM_TUPLE, .list = l};
}

METHOD(m_partition)
{
    UNUSED;
    return partition(c, self.s, a[0], false);
}

METHOD(m_rpartition)
{
    UNUSED;
    return partition(c, self.s, a[0], true);
}

/* ---- putting together ---- */

METHOD(m_join)
{
    UNUSED;
    refuse_markup(c, self.s);
    const struct tm_list *items = tm_to_list(c, a[0]);
    for (uint32_t i = 0; i < items->n; i++) {
        if (items->v[i].type != TM_STR)
            tm_fail(c, ERR_INVALID, "join: item %u must be a string, not %s", i,
                    tm_type_name(items->v[i]));
    }
    return tm_string(tm_join(c, self.s, items));
}

METHOD(m_replace)
{
    UNUSED;
    refuse_markup(c, self.s);
    int64_t count = a[2].type == TM_ABSENT ? -1 : tm_need_int(c, a[2], "replace count");
    return tm_string(tm_replace(c, self.s, tm_need_str(c, a[0], "text to replace"),
                                tm_need_str(c, a[1], "replacement"), count));
}

METHOD(m_format)
{
    UNUSED;
    return tm_string(tm_format(c, self.s, raw));
}

METHOD(m_unsupported)
{
    UNUSED;
    tm_fail(c, ERR_UNSUPPORTED, "this method of str is not supported");
}

const struct tm_builtin tm_str_methods[] = {
    {"strip", "/chars?", m_strip},
    {"lstrip", "/chars?", m_lstrip},
    {"rstrip", "/chars?", m_rstrip},
    {"split", "sep? maxsplit?", m_split},
    {"rsplit", "sep? maxsplit?", m_rsplit},
    {"splitlines", "keepends?", m_splitlines},
    {"startswith", "/prefix start? end?", m_startswith},
    {"endswith", "/suffix start? end?", m_endswith},
    {"replace", "/old new count?", m_replace},
    {"join", "/iterable", m_join},
    {"upper", "/", m_upper},
    {"lower", "/", m_lower},
    {"title", "/", m_title},
    {"capitalize", "/", m_capitalize},
    {"swapcase", "/", m_swapcase},
    {"find", "/sub start? end?", m_find},
    {"rfind", "/sub start? end?", m_rfind},
    {"index", "/sub start? end?", m_index},
    {"rindex", "/sub start? end?", m_rindex},
    {"count", "/sub start? end?", m_count},
    {"partition", "/sep", m_partition},
    {"rpartition", "/sep", m_rpartition},
    {"removeprefix", "/prefix", m_removeprefix},
    {"removesuffix", "/suffix", m_removesuffix},
    {"ljust", "/width fillchar?", m_ljust},
    {"rjust", "/width fillchar?", m_rjust},
    {"center", "/width fillchar?", m_center},
    {"zfill", "/width", m_zfill},
    {"isalpha", "/", m_isalpha},
    {"isdigit", "/", m_isdigit},
    {"isdecimal", "/", m_isdecimal},
    {"isnumeric", "/", m_isnumeric},
    {"isalnum", "/", m_isalnum},
    {"isspace", "/", m_isspace},
    {"isascii", "/", m_isascii},
    {"islower", "/", m_islower},
    {"isupper", "/", m_isupper},
    {"format", NULL, m_format},
    {"casefold", NULL, m_unsupported},
    {"encode", NULL, m_unsupported},
    {"expandtabs", NULL, m_unsupported},
    {"format_map", NULL, m_unsupported},
    {"isidentifier", NULL, m_unsupported},
    {"isprintable", NULL, m_unsupported},
    {"istitle", NULL, m_unsupported},
    {"maketrans", NULL, m_unsupported},
    {"translate", NULL, m_unsupported},
    {NULL, NULL, NULL},
};
