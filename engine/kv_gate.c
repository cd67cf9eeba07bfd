/* Measures the loss of quality of KV types; see kv_gate.h.
 *
 * Both runs use fine activations: with rounded ones, differences in the last bit alone cause a KL of about
 * 0.0007, which would mask the effect of the type. */
#include "engine/kv_gate.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { GATE_TOKENS = 200, CHUNK = 25, BUDGET_MS = 1000, HARD_BUDGET_MS = 5000 };

/* True when it is time to stop: after enough positions, if the next chunk would exceed the budget; before that,
 * if it would exceed the hard budget. */
static bool spent(const struct kv_gate *g)
{
    uint64_t next_ns = g->ns + g->ns / g->n_positions * CHUNK;
    uint64_t budget_ms = g->n_positions >= KV_GATE_FEW_POSITIONS ? BUDGET_MS : HARD_BUDGET_MS;
    return next_ns > budget_ms * NS_PER_MS;
}

static const char text[] =
    "The mill stood at the bend of the river, where the water ran fast even in August. Every "
    "morning "
    "the miller opened the gate a hand's breadth, and the wheel began to turn, slowly at first, "
    "then "
    "with a steady beat that could be heard as far as the church. \"How much flour do you need?\" "
    "he "
    "asked the baker. \"Two sacks today, and four on Saturday,\" she said, \"for the wedding.\" In "
    "1847 "
    "the old wheel was replaced by one of iron, 5.2 metres across, made in Leeds and brought by "
    "boat.\n\n"
    "def grind(sacks, rate=1.5):\n    hours = 0\n    for sack in sacks:\n        hours += "
    "sack.weight / "
    "rate\n    return round(hours, 2)\n\nThe sum of 17 and 25 is 42; their product is 425. Water "
    "boils "
    "at 100 degrees Celsius at sea level, and at about 93 degrees on a mountain 2,000 metres high.";

/* The run with one of the two types. */
struct side {
    struct kv_layout layout;
    struct kv_store *kv;
    struct backend *be;
    struct batch b;
    float *logits; /* owns [CHUNK][n_vocab] */
};

struct gate {
    struct side side[2]; /* f16, the type under test */
    uint32_t *table; /* owns: block i of a sequence is frame i */
    struct tokens tokens;
    uint32_t n_vocab, n_rows;
    double kl[CHUNK];
    bool same[CHUNK];
};

static enum status side_open(struct side *s, struct device_model *m, struct err *e)
{
    uint32_t n = (GATE_TOKENS + s->layout.n_slots - 1) / s->layout.n_slots;
    uint32_t n_frames[KV_MAX_GROUPS];
    struct backend_limits limits = {.max_rows = CHUNK, .max_spans = 1, .max_outs = CHUNK};
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        n_frames[g] = n;
    enum status st = m->device->kv_new(m, &s->layout, n_frames, NULL, &s->kv, e);
    if (st == OK)
        st = m->device->backend_new(m, true, s->kv, &s->layout, limits, &s->be, e);
    if (st != OK)
        return st;
    batch_init(&s->b, CHUNK, 1, CHUNK);
    s->logits = mem_alloc(mem_mul(mem_mul(CHUNK, s->be->n_vocab), sizeof *s->logits));
    return OK;
}

static void side_close(struct side *s)
{
    if (s->be)
        s->be->ops->close(s->be);
    batch_release(&s->b);
    kv_store_close(s->kv);
    mem_free(s->logits);
}

static enum status side_step(struct side *s, const struct gate *g, uint32_t pos, struct err *e)
{
    struct batch *b = &s->b, *done;
    uint64_t ticket;
    batch_clear(b);
    b->n_rows = g->n_rows;
    b->n_spans = 1;
    b->span[0] = (struct batch_span){.n_rows = g->n_rows, .pos0 = pos};
    for (uint32_t i = 0; i < KV_MAX_GROUPS; i++)
        b->span[0].table[i] = g->table;
    memcpy(b->token, g->tokens.id + pos, g->n_rows * sizeof *b->token);
    for (uint32_t i = 0; i < g->n_rows; i++)
        b->out[b->n_outs++] =
            (struct batch_out){.row = i, .logits = s->logits + (size_t)i * g->n_vocab};
    enum status st = s->be->ops->submit(s->be, b, &ticket, e);
    return st == OK ? s->be->ops->collect(s->be, ticket, &done, e) : st;
}

static uint32_t likeliest(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* KL of row `item`: sum of p (ln p - ln q) = mean under p of (x - y) - ln Zp + ln Zq. */
static void compare_item(void *ctx, uint32_t item, uint32_t worker)
{
    struct gate *g = ctx;
    (void)worker;
    const float *x = g->side[0].logits + (size_t)item * g->n_vocab;
    const float *y = g->side[1].logits + (size_t)item * g->n_vocab;
    uint32_t top_x = likeliest(x, g->n_vocab), top_y = likeliest(y, g->n_vocab);
    double zx = 0, zy = 0, sum = 0;
    for (uint32_t i = 0; i < g->n_vocab; i++) {
        float px = expf(x[i] - x[top_x]);
        zx += (double)px;
        zy += (double)expf(y[i] - y[top_y]);
        sum += (double)px * ((double)(x[i] - x[top_x]) - (double)(y[i] - y[top_y]));
    }
    g->kl[item] = sum / zx - log(zx) + log(zy);
    g->same[item] = top_x == top_y;
}

static enum status measure(struct gate *g, struct device_model *m, struct kv_gate *out,
                           struct err *e)
{
    uint64_t start = clock_ns();
    uint32_t n_tokens = g->tokens.n < GATE_TOKENS ? g->tokens.n : GATE_TOKENS, n_same = 0;
    double kl = 0;
    while (out->n_positions < n_tokens) {
        uint32_t pos = out->n_positions;
        g->n_rows = n_tokens - pos < CHUNK ? n_tokens - pos : CHUNK;
        for (int i = 0; i < 2; i++) {
            enum status st = side_step(&g->side[i], g, pos, e);
            if (st != OK)
                return st;
        }
        m->device->each(m, compare_item, g, g->n_rows);
        for (uint32_t i = 0; i < g->n_rows; i++) {
            kl += g->kl[i];
            n_same += g->same[i];
        }
        out->n_positions += g->n_rows;
        out->ns = clock_ns() - start;
        if (spent(out))
            break;
    }
    out->kl = kl / out->n_positions;
    out->top1 = (double)n_same / out->n_positions;
    return OK;
}

enum status kv_gate_run(struct device_model *m, const struct hparams *h,
                        const struct tokenizer *tok, const struct kv_layout *layout,
                        struct kv_gate *out, struct err *e)
{
    struct gate g = {.n_vocab = h->n_vocab};
    struct encode_options o = {.add_special = true};
    *out = (struct kv_gate){0};
    g.side[1].layout = *layout;
    enum status st = m->device->kv_layout(h, layout->n_slots, KV_F16, KV_F16, &g.side[0].layout, e);
    if (st == OK)
        st = tokenizer_encode(tok, str_of(text), &o, &g.tokens, e);
    for (int i = 0; i < 2 && st == OK; i++)
        st = side_open(&g.side[i], m, e);
    if (st == OK) {
        uint32_t n = (GATE_TOKENS + layout->n_slots - 1) / layout->n_slots;
        g.table = mem_alloc(mem_mul(n, sizeof *g.table));
        for (uint32_t i = 0; i < n; i++)
            g.table[i] = i;
        st = measure(&g, m, out, e);
    }
    for (int i = 0; i < 2; i++)
        side_close(&g.side[i]);
    tokens_release(&g.tokens);
    mem_free(g.table);
    return st;
}
