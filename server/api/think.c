/* See think.h. */
#include "server/api/think.h"

#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t blanks(struct str s)
{
    size_t n = 0;
    while (n < s.len && is_blank(s.ptr[n]))
        n++;
    return n;
}

static size_t without_blanks(struct str s)
{
    while (s.len && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s.len;
}

static void drop(struct think *t, size_t n)
{
    if (!n)
        return;
    memmove(t->held.ptr, t->held.ptr + n, t->held.len - n);
    t->held.len -= n;
}

/* True: the state changed, and the rest is to be looked at. */
static bool at_start(struct think *t, bool ended)
{
    static const struct str mark = STR_LIT(THINK_OPEN);
    size_t n = blanks(buf_str(&t->held));
    struct str s = {t->held.ptr + n, t->held.len - n};
    if (str_starts(s, mark)) {
        drop(t, n + mark.len);
        t->state = THINK_INSIDE;
        return true;
    }
    if (str_starts(mark, s) && !ended)
        return false;
    t->state = THINK_OVER;
    return true;
}

/* Bytes at the end that may belong to the closing mark, with the blanks before them. */
static size_t undecided(struct str s)
{
    static const struct str mark = STR_LIT(THINK_CLOSE);
    size_t n = s.len < mark.len ? s.len : mark.len - 1;
    while (n && memcmp(s.ptr + s.len - n, mark.ptr, n) != 0)
        n--;
    return s.len - without_blanks((struct str){s.ptr, s.len - n});
}

static bool inside(struct think *t, bool ended, struct buf *reasoning)
{
    static const struct str mark = STR_LIT(THINK_CLOSE);
    if (!t->said)
        drop(t, blanks(buf_str(&t->held)));
    struct str s = buf_str(&t->held);
    const char *close = s.len ? memmem(s.ptr, s.len, mark.ptr, mark.len) : NULL;
    size_t n = close ? without_blanks((struct str){s.ptr, (size_t)(close - s.ptr)})
                     : (ended ? without_blanks(s) : s.len - undecided(s));
    buf_add(reasoning, s.ptr, n);
    t->said |= n > 0;
    if (!close) {
        drop(t, ended ? s.len : n);
        return false;
    }
    drop(t, (size_t)(close - s.ptr) + mark.len);
    t->state = THINK_AFTER;
    return true;
}

static void work(struct think *t, bool ended, struct buf *reasoning, struct buf *rest)
{
    if (t->state == THINK_START && !at_start(t, ended))
        return;
    if (t->state == THINK_INSIDE && !inside(t, ended, reasoning))
        return;
    if (t->state == THINK_AFTER) {
        drop(t, blanks(buf_str(&t->held)));
        if (!t->held.len)
            return;
        t->state = THINK_OVER;
    }
    buf_add_str(rest, buf_str(&t->held));
    buf_clear(&t->held);
}

void think_feed(struct think *t, struct str text, struct buf *reasoning, struct buf *rest)
{
    buf_add_str(&t->held, text);
    work(t, false, reasoning, rest);
}

void think_end(struct think *t, struct buf *reasoning, struct buf *rest)
{
    work(t, true, reasoning, rest);
}

bool think_is_open(struct str text)
{
    static const struct str mark = STR_LIT(THINK_OPEN);
    size_t n = without_blanks(text);
    return n >= mark.len && memcmp(text.ptr + n - mark.len, mark.ptr, mark.len) == 0;
}
