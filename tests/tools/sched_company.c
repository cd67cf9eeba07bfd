/* Runs the same 64 requests through the scheduler and a real model, and prints the results of each.
 *
 *   sched_company MODEL alone
 *   sched_company MODEL together SEED
 *
 * alone: one after the other. together: random arrivals, random batch and chunk sizes from SEED. One line
 * per choice: request, choice, its tokens, a hash over the bits of all its logits. The two outputs must be
 * equal (tests/py/test_company.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "scheduler/sched.h"
#include "scheduler/snapshot.h"

enum { N_REQUESTS = 64, MAX_PROMPT = 70, MAX_OUT = 10, MAX_N = 2, N_BLOCKS = 2048, MAX_ROWS = 256 };

struct choice_log {
    int32_t token[MAX_OUT];
    uint32_t n;
    uint64_t hash;
};

static struct choice_log logs[N_REQUESTS][MAX_N];
static float *logits; /* owns [max_outs * n_vocab] */
static const struct backend_ops *inner;
static struct sched *sched;
static uint32_t rng;

static uint32_t draw(uint32_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 17;
    rng ^= rng << 5;
    return rng % below;
}

/* Asks for the logits of every output row. */
static enum status submit(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e)
{
    for (uint32_t i = 0; i < b->n_outs; i++)
        b->out[i].logits = logits + (size_t)i * be->n_vocab;
    return inner->submit(be, b, ticket, e);
}

static enum status collect(struct backend *be, uint64_t ticket, struct batch **b, struct err *e)
{
    enum status st = inner->collect(be, ticket, b, e);
    for (uint32_t i = 0; st == OK && i < (*b)->n_outs; i++) {
        const struct seq *q = sched->step.out_seq[i];
        struct choice_log *l = &logs[q->req->r->id][q->choice];
        const uint8_t *bytes = (const uint8_t *)(*b)->out[i].logits;
        for (size_t k = 0; k < be->n_vocab * sizeof(float); k++)
            l->hash = (l->hash ^ bytes[k]) * 0x100000001b3ull;
    }
    return st;
}

/* The same for a given number in every run. */
static struct request *make_request(uint32_t id, uint32_t n_vocab)
{
    struct request *r = request_new(1u << 14);
    rng = id * 2654435761u + 12345;
    r->id = id;
    r->n_prompt = 1 + draw(MAX_PROMPT);
    r->prompt = mem_alloc(r->n_prompt * sizeof(int32_t));
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = (int32_t)draw(n_vocab);
    r->max_tokens = 1 + draw(MAX_OUT);
    r->n_choices = 1 + draw(MAX_N);
    r->ignore_eos = true;
    r->sampling.temperature = draw(2) ? 0.8f : 0;
    r->sampling.seed = id;
    r->sampling.repetition_penalty = draw(3) ? 1 : 1.2f;
    return r;
}

static bool read_events(struct request *r)
{
    uint32_t n;
    const struct event *ev;
    bool ended = false;
    while ((ev = byte_ring_peek(&r->ring, &n)) != NULL) {
        struct choice_log *l = &logs[r->id][ev->choice];
        if (ev->type == EVENT_TOKEN)
            l->token[l->n++] = ev->token;
        if (ev->type == EVENT_END) {
            CHECKF(ev->status == OK, "%.*s", (int)ev->n_text, event_text(ev));
            ended = true;
        }
        byte_ring_pop(&r->ring);
    }
    return ended;
}

static void run(bool together, uint32_t seed, uint32_t n_vocab)
{
    struct request *r[N_REQUESTS];
    uint32_t n_sent = 0, n_ended = 0;
    struct err e;
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        r[i] = make_request(i, n_vocab);
    rng = seed * 40503u + 1;
    while (n_ended < N_REQUESTS) {
        uint32_t n_more = together ? draw(4) : n_sent == n_ended;
        for (; n_more > 0 && n_sent < N_REQUESTS; n_more--, n_sent++)
            CHECKF(sched_submit(sched, r[n_sent], NULL, &e) == OK, "%s", e.text);
        if (together) {
            sched->limits.chunk_max = 1 + draw(64);
            sched->limits.max_batch_tokens = sched->limits.max_running + draw(64);
        }
        sched_turn(sched);
        for (uint32_t i = 0; i < n_sent; i++) {
            if (!r[i] || !read_events(r[i]))
                continue;
            request_unref(r[i]);
            r[i] = NULL;
            n_ended++;
        }
    }
}

static void print_logs(void)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        for (uint32_t c = 0; c < MAX_N && logs[i][c].n; c++) {
            printf("%u.%u:", i, c);
            for (uint32_t k = 0; k < logs[i][c].n; k++)
                printf(" %d", logs[i][c].token[k]);
            printf(" logits %016llx\n", (unsigned long long)logs[i][c].hash);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "sched_company MODEL alone|together [SEED]\n");
        return 2;
    }
    struct settings set;
    struct engine *en;
    struct kv_layout layout;
    struct kv_store *kv;
    struct backend *be;
    struct err e;
    const uint32_t n_blocks = N_BLOCKS;
    struct sched_limits limits = {.max_running = 64,
                                  .max_queued = N_REQUESTS,
                                  .max_batch_tokens = MAX_ROWS,
                                  .chunk_max = MAX_ROWS,
                                  .step_target_ms = 200,
                                  .max_context = 2048};
    settings_init(&set);
    CHECKF(engine_open(argv[1], &set, &en, &e) == OK, "%s", e.text);
    CHECKF(engine_kv_layout(en, &set, &layout, &e) == OK, "%s", e.text);
    CHECKF(engine_kv_store(en, &layout, &n_blocks, NULL, &kv, &e) == OK, "%s", e.text);
    CHECKF(engine_backend(en, kv, &layout, (struct backend_limits){MAX_ROWS, 64, 64, 0}, &be, &e) ==
               OK,
           "%s", e.text);
    const struct sched_memory memory = {.layout = &layout,
                                        .arena = &kv->arena,
                                        .prefix = true,
                                        .domain = {.rope = "", .adapter = "", .salt = ""}};
    CHECKF(sched_new(&limits, be, &memory, engine_tokenizer(en), NULL, &sched, &e) == OK, "%s",
           e.text);
    logits = mem_alloc((size_t)64 * be->n_vocab * sizeof(float));
    inner = be->ops;
    struct backend_ops ops = *inner;
    ops.submit = submit;
    ops.collect = collect;
    be->ops = &ops;
    run(strcmp(argv[2], "together") == 0, argc > 3 ? (uint32_t)atoi(argv[3]) : 1, be->n_vocab);
    print_logs();
    sched_stop(sched);
    sched_free(sched);
    inner->close(be);
    kv_store_close(kv);
    engine_close(en);
    settings_release(&set);
    mem_free(logits);
    return 0;
}
