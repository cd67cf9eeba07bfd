/* Writing JSON; see json.h. */
#include "base/json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_int.h"
#include "base/utf8.h"

/* c is below U+10000. */
static void add_escape(struct buf *out, uint32_t c)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    const char *value = c && c < 0x80 ? strchr(values, (int)c) : NULL;
    if (value) {
        buf_add_char(out, '\\');
        buf_add_char(out, names[value - values]);
    } else {
        static const char hex[] = "0123456789abcdef";
        char text[6] = {'\\',       'u', hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15],
                        hex[c & 15]};
        buf_add(out, text, sizeof(text));
    }
}

/* Unicode line ends above ASCII: JSON allows them unescaped, but readers of event streams and logs that
 * split lines by Unicode's rules would split there. */
static bool is_line_end(uint32_t c)
{
    return c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* Number of bytes at the start of s that need no escaping. */
static size_t plain_len(struct str s)
{
    size_t i = 0;
    while (i < s.len) {
        uint8_t c = (uint8_t)s.ptr[i];
        uint32_t code_point;
        if (c < 0x20 || c == '"' || c == '\\')
            return i;
        int n = c < 0x80 ? 1 : utf8_decode((struct str){s.ptr + i, s.len - i}, &code_point);
        if (n == 0 || (c >= 0x80 && is_line_end(code_point)))
            return i;
        i += (size_t)n;
    }
    return i;
}

void json_add_escaped(struct buf *out, struct str s)
{
    while (s.len) {
        size_t n = plain_len(s);
        buf_add(out, s.ptr, n);
        s = (struct str){s.ptr + n, s.len - n};
        if (s.len == 0)
            return;
        uint32_t c;
        n = (size_t)utf8_decode(s, &c);
        if (n) {
            add_escape(out, c);
        } else {
            buf_add(out, "\xEF\xBF\xBD", 3);
            n = (size_t)utf8_malformed_len(s);
        }
        s = (struct str){s.ptr + n, s.len - n};
    }
}

void json_add_string(struct buf *out, struct str s)
{
    buf_add_char(out, '"');
    json_add_escaped(out, s);
    buf_add_char(out, '"');
}

void json_add_double(struct buf *out, double x)
{
    if (!isfinite(x)) {
        buf_add_c(out, "null");
        return;
    }
    /* 15 digits always survive a round trip through a normal double; subnormals hold fewer. */
    char text[40];
    locale_t old = uselocale(json_locale());
    for (int digits = fabs(x) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod_l(text, NULL, json_locale()) == x)
            break;
    }
    uselocale(old);
    buf_add_c(out, text);
}

void json_add_value(struct buf *out, const struct json *v)
{
    bool in_string = false;
    for (size_t i = 0; i < v->raw.len; i++) {
        char c = v->raw.ptr[i];
        if (!in_string && json_is_space(c))
            continue;
        buf_add_char(out, c);
        if (in_string && c == '\\')
            buf_add_char(out, v->raw.ptr[++i]);
        else if (c == '"')
            in_string = !in_string;
    }
}
