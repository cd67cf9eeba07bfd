/* The ring of the step journal; see journal.h. */
#include "scheduler/journal.h"

#include <string.h>

#include "base/mem.h"

_Static_assert(sizeof(struct journal_record) == 64, "a journal record is one cache line");

void journal_init(struct journal *j, uint64_t n_bytes)
{
    uint64_t n = n_bytes / sizeof(struct journal_record);
    memset(j, 0, sizeof(*j));
    j->cap = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    if (j->cap)
        j->ring = mem_zalloc(mem_mul(j->cap, sizeof(*j->ring)));
}

void journal_release(struct journal *j)
{
    mem_free(j->ring);
    memset(j, 0, sizeof(*j));
}

struct journal_record *journal_put(struct journal *j, enum journal_kind kind, uint64_t at_ns)
{
    if (!j->cap)
        return NULL;
    struct journal_record *r = &j->ring[j->n++ % j->cap];
    memset(r, 0, sizeof(*r));
    r->kind = (uint8_t)kind;
    r->at_ns = at_ns;
    return r;
}

/* Multiply and fold: the state is a bijection of the token for each predecessor, so that prompts which
 * differ in one token differ from there on but for a chance of 2^-32 a block. */
static uint64_t fold(uint64_t state, uint32_t token)
{
    uint64_t x = (state ^ token) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

uint32_t journal_fingerprint(uint64_t *state, const int32_t *tokens, uint32_t n_tokens,
                             uint32_t block_tokens, uint32_t *print, uint32_t cap)
{
    uint32_t n = n_tokens / block_tokens;
    uint64_t x = *state;
    n = n < cap ? n : cap;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < block_tokens; k++)
            x = fold(x, (uint32_t)tokens[(size_t)i * block_tokens + k]);
        uint32_t shown = (uint32_t)((x * 0xd6e8feb86659fd93ull) >> 32);
        print[i] = shown ? shown : 1;
    }
    *state = x;
    return n;
}

void journal_prompt(struct journal *j, uint64_t at_ns, uint32_t request, const uint32_t *print,
                    uint32_t n)
{
    for (uint32_t i = 0; i < n && j->cap; i += JOURNAL_PROMPT_PRINTS) {
        struct journal_record *r = journal_put(j, JOURNAL_PROMPT, at_ns);
        uint32_t left = n - i < JOURNAL_PROMPT_PRINTS ? n - i : JOURNAL_PROMPT_PRINTS;
        r->request = request;
        memcpy(r->u.print, print + i, left * sizeof(*print));
    }
}

uint32_t journal_copy(const struct journal *j, uint64_t from, struct journal_record *to,
                      uint32_t cap, uint64_t *n_all)
{
    uint64_t n_kept = j->n < j->cap ? j->n : j->cap, first = j->n - n_kept + from;
    *n_all = n_kept;
    uint32_t n = 0;
    for (; n < cap && from + n < n_kept; n++)
        to[n] = j->ring[(first + n) % j->cap];
    return n;
}
