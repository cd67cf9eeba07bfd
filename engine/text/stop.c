/* Stop strings in a stream that arrives in pieces. The answer does not depend on where the stream is
 * cut: the earliest start wins, and of strings that start together the one that completes first
 * (the shortest). Text is held back only from the first place where a stop string may still
 * complete, so at most the longest one less a byte. Called by the engine thread; no allocation. */
#include "base/check.h"
#include "engine/text/text.h"

/* What was held and what came now, as one text. */
struct view {
    struct str held, text;
};

static char at(const struct view *v, size_t i)
{
    return i < v->held.len ? v->held.ptr[i] : v->text.ptr[i - v->held.len];
}

static void copy_out(const struct view *v, size_t from, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = at(v, from + i);
}

static bool equal_at(const struct view *v, size_t from, struct str s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at(v, from + i) != s.ptr[i])
            return false;
    return true;
}

/* The shortest stop string that stands complete at `from`, or -1; *open: another could still
 * complete there when more text comes. */
static int match_here(const struct stop_set *set, const struct view *v, size_t from, bool *open)
{
    size_t left = v->held.len + v->text.len - from;
    int best = -1;
    *open = false;
    for (uint32_t i = 0; i < set->n; i++) {
        struct str s = set->s[i];
        if (s.len == 0 || at(v, from) != s.ptr[0])
            continue;
        if (!equal_at(v, from, s, s.len < left ? s.len : left))
            continue;
        if (s.len > left)
            *open = true;
        else if (best < 0 || s.len < set->s[best].len)
            best = (int)i;
    }
    return best;
}

void stop_scan_init(struct stop_scan *s, const struct stop_set *set)
{
    *s = (struct stop_scan){.set = set};
}

/* final: no more text comes, so nothing stays open. */
static int scan(struct stop_scan *s, struct str text, bool include, bool final, char *out,
                uint32_t *n_out)
{
    char held[STOP_MAX_BYTES];
    memcpy(held, s->held, s->n_held);
    struct view v = {{held, s->n_held}, text};
    size_t n = v.held.len + text.len;
    size_t from = 0;
    for (; from < n; from++) {
        bool open;
        int hit = match_here(s->set, &v, from, &open);
        if (hit >= 0) {
            size_t len = from + (include ? s->set->s[hit].len : 0);
            copy_out(&v, 0, len, out);
            *n_out = (uint32_t)len;
            s->n_held = 0;
            return hit;
        }
        if (open && !final)
            break;
    }
    copy_out(&v, 0, from, out);
    *n_out = (uint32_t)from;
    s->n_held = (uint32_t)(n - from);
    CHECK(s->n_held < STOP_MAX_BYTES);
    copy_out(&v, from, s->n_held, s->held);
    return -1;
}

int stop_scan_push(struct stop_scan *s, struct str text, bool include, char *out, uint32_t *n_out)
{
    s->include = include;
    return scan(s, text, include, false, out, n_out);
}

int stop_scan_flush(struct stop_scan *s, char *out, uint32_t *n_out)
{
    return scan(s, (struct str){"", 0}, s->include, true, out, n_out);
}
