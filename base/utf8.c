/* UTF-8 decoding by the table of well-formed byte sequences (Unicode 15, table 3-7); see utf8.h. */
#include "base/utf8.h"

/* Length of a sequence that starts with `lead`, and the bounds of its second byte; 0 when no
 * sequence can start with it. The bounds exclude overlong forms, surrogates and values over U+10FFFF. */
static int sequence_len(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead == 0xE0)
        *low = 0xA0;
    else if (lead == 0xED)
        *high = 0x9F;
    else if (lead == 0xF0)
        *low = 0x90;
    else if (lead == 0xF4)
        *high = 0x8F;
    return lead < 0xF0 ? 3 : 4;
}

/* Length of the well-formed part at the start of s: equals *need when the code point is complete. */
static int matching_len(struct str s, int *need)
{
    uint8_t low, high;
    const uint8_t *p = (const uint8_t *)s.ptr;
    *need = sequence_len(p[0], &low, &high);
    if (*need == 0)
        return 0;
    int n = 1;
    while (n < *need && (size_t)n < s.len && p[n] >= low && p[n] <= high) {
        low = 0x80;
        high = 0xBF;
        n++;
    }
    return n;
}

int utf8_decode(struct str s, uint32_t *code_point)
{
    static const uint8_t lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    int need;
    int n = matching_len(s, &need);
    if (n == 0 || n < need)
        return 0;
    const uint8_t *p = (const uint8_t *)s.ptr;
    uint32_t c = p[0] & lead_mask[need];
    for (int i = 1; i < need; i++)
        c = c << 6 | (p[i] & 0x3F);
    *code_point = c;
    return need;
}

int utf8_malformed_len(struct str s)
{
    int need;
    int n = matching_len(s, &need);
    return n ? n : 1;
}

size_t utf8_error_at(struct str s)
{
    size_t i = 0;
    while (i < s.len) {
        if ((uint8_t)s.ptr[i] < 0x80) {
            i++;
            continue;
        }
        int need;
        int n = matching_len((struct str){s.ptr + i, s.len - i}, &need);
        if (n == 0 || n < need)
            return i;
        i += (size_t)n;
    }
    return s.len;
}

bool utf8_valid(struct str s)
{
    return utf8_error_at(s) == s.len;
}

int utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        if (c >= 0xD800 && c <= 0xDFFF)
            return 0;
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    if (c > 0x10FFFF)
        return 0;
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t utf8_complete_len(struct str s)
{
    for (size_t back = 1; back <= 3 && back <= s.len; back++) {
        size_t at = s.len - back;
        int need;
        int n = matching_len((struct str){s.ptr + at, back}, &need);
        if ((size_t)n == back && n < need)
            return at;
    }
    return s.len;
}

void utf8_add_lossy(struct buf *out, struct str s)
{
    while (s.len) {
        size_t n = utf8_error_at(s);
        buf_add(out, s.ptr, n);
        s.ptr += n;
        s.len -= n;
        if (s.len == 0)
            return;
        buf_add(out, "\xEF\xBF\xBD", 3);
        size_t bad = (size_t)utf8_malformed_len(s);
        s.ptr += bad;
        s.len -= bad;
    }
}
