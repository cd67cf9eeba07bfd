/* Finds the states in the middle of a string, which accept any plain text. Most tokens of a vocabulary are
 * plain text, so in these states they need not be walked one by one (vocab.h, match.c). */
#include "base/mem.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/vocab.h"

struct byte_span {
    uint8_t first, last;
};

/* True when all texts of these byte ranges lead from `state` to `to`. A byte with the same transition as the
 * byte before needs no second check: transitions come in few runs. */
static bool all_lead(const struct automaton *a, uint16_t state, const struct byte_span *span,
                     uint32_t n, uint16_t to, struct exprs *x)
{
    uint16_t before = 0;
    if (!exprs_spend(x, span->last - span->first + 2u))
        return false;
    for (uint32_t byte = span->first; byte <= span->last; byte++) {
        uint16_t next = automaton_next(a, state, (uint8_t)byte);
        if (!next || (n == 1 && next != to))
            return false;
        if (n > 1 && next != before && !all_lead(a, next, span + 1, n - 1, to, x))
            return false;
        before = next;
    }
    return true;
}

/* The state that every plain code point leads to; 0: they differ, or one is not accepted. */
static uint16_t plain_step(const struct automaton *a, uint16_t state, struct exprs *x)
{
    static const struct {
        struct byte_span span[4];
        uint32_t n;
    } texts[] = {
        {{{' ', '!'}}, 1},
        {{{'#', '['}}, 1},
        {{{']', 0x7f}}, 1},
        {{{0xc2, 0xdf}, {0x80, 0xbf}}, 2},
        {{{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}}, 3},
        {{{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}}, 3},
        {{{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}}, 3},
        {{{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}}, 3},
        {{{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}, 4},
        {{{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}, 4},
        {{{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}, 4},
    };
    uint16_t to = automaton_next(a, state, 'a');
    if (!to || a->flags[to] != STATE_READS || automaton_next(a, state, 'b') != to)
        return 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (!all_lead(a, state, texts[i].span, texts[i].n, to, x))
            return 0;
    return to;
}

/* The states along the way must need no deeper stack than the first: none of them may be beyond a bound. */
static bool is_plain(const struct automaton *a, const uint16_t *to, uint16_t s)
{
    uint16_t at = s;
    for (uint32_t n = 0; n < GRAM_PLAIN_CHARS && to[at] != at; n++) {
        if (!to[at] || a->need[to[at]] > a->need[s])
            return false;
        at = to[at];
    }
    return true;
}

void automaton_find_plain(struct automaton *a, struct exprs *x)
{
    uint16_t *to = mem_zalloc(mem_mul(a->n_states, sizeof(*to)));
    a->plain = mem_zalloc(a->n_states);
    exprs_spend(x, a->n_states * (4ull + GRAM_PLAIN_CHARS));
    for (uint32_t s = 1; s < a->n_states && !x->error.status; s++)
        if (a->flags[s] == STATE_READS)
            to[s] = plain_step(a, (uint16_t)s, x);
    for (uint32_t s = 1; s < a->n_states; s++)
        a->plain[s] = to[s] && is_plain(a, to, (uint16_t)s);
    mem_free(to);
}
