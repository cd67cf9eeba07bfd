/* Walks a grammar byte by byte: at random for a while, then by the shortest way to an end; see examples.h. */
#include "engine/grammar/examples.h"

#include <string.h>

#include "base/mem.h"
#include "engine/grammar/grammar_int.h"

enum {
    FAR = 1 << 28, /* no way to the end was found */
    MAX_LOOKS = 32 << 20, /* at transitions, to find the shortest way */
    MAX_FREE = 40, /* bytes at random */
    MAX_STEPS = 32 << 20 /* of all examples together */
};

struct gram_examples {
    const struct grammar *g;
    struct gram_scratch *scratch; /* owns */
    uint32_t *length; /* owns [n_states]: bytes to the end of the rule, at least */
    uint8_t byte[256]; /* of each class: the one that reads best */
    bool shown[256]; /* classes with a visible character or a blank */
    uint64_t rng, n_steps;
    struct gram_match at, next, best;
};

/* ---- the shortest way ---- */

static uint32_t length_of(const struct gram_examples *x, uint32_t s)
{
    const struct automaton *a = &x->g->a;
    const uint16_t *next = a->next + (size_t)s * a->n_classes;
    uint32_t best = a->flags[s] & STATE_FINAL ? 0 : FAR;
    for (uint32_t c = 0; c < a->n_classes; c++)
        if (next[c] && x->length[next[c]] + 1 < best)
            best = x->length[next[c]] + 1;
    for (uint32_t k = a->call0[s]; k < a->call0[s + 1]; k++) {
        uint32_t there = x->length[a->start[a->call[k].rule]] + x->length[a->call[k].back];
        if (there < best)
            best = there;
    }
    return best;
}

/* In rounds, each from the last state on, since rules end late. What rounds within MAX_LOOKS do not reach stays far. */
static void find_lengths(struct gram_examples *x)
{
    const struct automaton *a = &x->g->a;
    for (uint32_t s = 0; s < a->n_states; s++)
        x->length[s] = FAR;
    uint64_t of_round = (uint64_t)a->n_states * a->n_classes + a->call0[a->n_states];
    bool changed = true;
    for (uint64_t n_looks = of_round; changed && n_looks <= MAX_LOOKS; n_looks += of_round) {
        changed = false;
        for (uint32_t s = a->n_states; s-- > 1;) {
            uint32_t length = length_of(x, s);
            changed |= length != x->length[s];
            x->length[s] = length;
        }
    }
}

static uint64_t length_of_match(const struct gram_examples *x, const struct gram_match *m)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < m->n; i++) {
        uint64_t length = x->length[m->place[i].state];
        for (uint32_t d = 0; d < m->place[i].depth; d++)
            length += x->length[m->place[i].back[d]];
        best = length < best ? length : best;
    }
    return best;
}

/* ---- bytes ---- */

static uint32_t rank(uint32_t byte)
{
    return byte >= 'a' && byte <= 'z' ? 3 : byte > ' ' && byte < 0x7f ? 2 : byte == ' ';
}

static void choose_bytes(struct gram_examples *x)
{
    const struct automaton *a = &x->g->a;
    uint32_t best[256] = {0};
    for (uint32_t byte = 256; byte-- > 0;) {
        uint32_t c = a->class_of[byte];
        if (rank(byte) < best[c])
            continue;
        best[c] = rank(byte);
        x->byte[c] = (uint8_t)byte;
        x->shown[c] = best[c] > 0;
    }
}

static uint32_t draw(struct gram_examples *x, uint32_t n)
{
    x->rng = x->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((x->rng >> 33) % n);
}

/* Another byte of the class, where letters or digits are alike. */
static uint8_t vary(struct gram_examples *x, uint8_t byte)
{
    const uint8_t *class_of = x->g->a.class_of;
    uint8_t other = byte >= 'a' && byte <= 'z'   ? (uint8_t)('a' + draw(x, 26))
                    : byte >= '0' && byte <= '9' ? (uint8_t)('0' + draw(x, 10))
                                                 : byte;
    return class_of[other] == class_of[byte] ? other : byte;
}

/* One byte more: the one with the shortest way to the end, or any. False: none was found. */
static bool extend(struct gram_examples *x, bool shortest, struct buf *out)
{
    uint64_t best_length = UINT64_MAX;
    uint32_t n = 0;
    bool any_shown = false;
    uint8_t chosen = 0;
    for (uint32_t c = 0; c < x->g->a.n_classes && x->n_steps < MAX_STEPS; c++) {
        char byte = (char)(shortest ? x->byte[c] : vary(x, x->byte[c]));
        x->next = x->at;
        bool lives = gram_match_bytes(&x->next, (struct str){&byte, 1}, x->scratch);
        x->n_steps += 64 + gram_scratch_steps(x->scratch);
        if (!lives || (!shortest && any_shown && !x->shown[c]))
            continue;
        uint64_t length = length_of_match(x, &x->next);
        if (!shortest && !any_shown && x->shown[c])
            n = 0; /* the first that is shown takes the place of those before */
        any_shown |= x->shown[c];
        if (shortest ? length >= best_length : draw(x, ++n) != 0)
            continue;
        best_length = length;
        chosen = (uint8_t)byte;
        x->best = x->next;
    }
    if (best_length == UINT64_MAX)
        return false;
    buf_add_char(out, (char)chosen);
    x->at = x->best;
    return true;
}

bool gram_example(struct gram_examples *x, uint64_t seed, struct buf *out)
{
    size_t first = out->len;
    x->rng = seed * 2862933555777941757ull + 3037000493ull;
    uint32_t n_free = seed ? 4 + draw(x, MAX_FREE) : 0;
    gram_match_init(&x->at, x->g, x->scratch);
    while (out->len - first < GRAM_EXAMPLE_MAX && x->n_steps < MAX_STEPS) {
        size_t n = out->len - first;
        bool closes = n >= n_free;
        if (gram_match_complete(&x->at) &&
            (closes || gram_match_over(&x->at) || (n > 0 && draw(x, 4) == 0)))
            return true;
        if (!extend(x, closes, out))
            break;
    }
    out->len = first;
    return false;
}

struct gram_examples *gram_examples_new(const struct grammar *g)
{
    struct gram_examples *x = mem_zalloc(sizeof(*x));
    x->g = g;
    x->scratch = gram_scratch_new();
    x->length = mem_alloc(mem_mul(g->a.n_states, sizeof(*x->length)));
    find_lengths(x);
    choose_bytes(x);
    return x;
}

void gram_examples_free(struct gram_examples *x)
{
    if (!x)
        return;
    gram_scratch_free(x->scratch);
    mem_free(x->length);
    mem_free(x);
}
