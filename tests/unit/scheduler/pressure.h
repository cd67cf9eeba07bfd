/* For the tests of memory pressure and sharing: prompts with a common start, runs to the end where all
 * consumers read and all copies end, every token checked against the reference run alone. */
#ifndef TESTS_SCHEDULER_PRESSURE_H
#define TESTS_SCHEDULER_PRESSURE_H

#include "base/check.h"
#include "kvpool/cache_int.h"
#include "tests/unit/scheduler/rig.h"

enum { RAN_CAP = 512 };

/* What became of a request; tokens of choice 0. */
struct ran {
    int32_t token[RAN_CAP];
    uint32_t n_token, n_cached, n_turns;
    enum status status;
};

/* Token i of a family of prompts with equal beginnings. */
static inline int32_t token_of(const struct rig *g, uint32_t family, uint32_t i)
{
    return (int32_t)((family * 2654435761u + i * 40503u + (i * i + family) % 11u) % g->be->n_vocab);
}

/* n_shared tokens of a family, then n_own of another; 3 output tokens. At least one token. */
static inline struct request *prompt_of(const struct rig *g, uint32_t family, uint32_t n_shared,
                                        uint32_t other, uint32_t n_own)
{
    int32_t prompt[RAN_CAP];
    uint32_t n = n_shared + n_own;
    CHECK(n >= 1 && n <= RAN_CAP);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = i < n_shared ? token_of(g, family, i) : token_of(g, 1000 + other, i);
    return rig_request(g, prompt, n, 4);
}

static inline void expect_lone(const struct rig *g, const struct request *r, const struct seen *o)
{
    for (uint32_t c = 0; c < r->n_choices; c++) {
        uint64_t chain = fake_chain(r->prompt, r->n_prompt);
        for (uint32_t i = 0; i < o->n_token[c]; i++) {
            struct sample_job job = {.params = &r->sampling, .choice = c};
            int32_t token = fake_chain_token(&job, chain, g->be->n_vocab);
            ck_assert_int_eq(o->token[c * o->cap + i], token);
            chain = fake_chain_next(chain, token);
        }
    }
}

/* Wipes what is free, so that any read of it shows. In runs: each call of the fake opens its memory. */
static inline void wipe_free(const struct rig *g)
{
    for (uint32_t i = 0; i < g->layout.n_groups; i++) {
        const uint32_t *block = g->s->kv->group[i].frame_block;
        uint32_t n_frames = g->arena.group[i].n_frames;
        for (uint32_t f = 0, end; f < n_frames; f = end + 1) {
            for (end = f; end < n_frames && block[end] == KV_NO_BLOCK;)
                end++;
            if (end > f)
                fake_poison(g->be, i, f, end - f);
        }
    }
}

/* Copies ahead of time go on when nobody runs: until there are none. */
static inline void settle_copies(struct rig *g)
{
    for (uint32_t n = 0; sched_turn(g->s) || kv_jobs_open(g->s->kv) > 0 ||
                         fake_tier_flying(g->be) || rig_disk_step(g);
         n++) {
        ck_assert_uint_lt(n, 1000);
        while (fake_tier_flying(g->be))
            fake_tier_finish(g->be, 0, true);
    }
}

/* Turns until all n requests have ended; copies end when they have been seen by one turn. */
static inline void run_all(struct rig *g, struct request **r, struct ran *o, uint32_t n)
{
    struct seen *seen = mem_zalloc(n * sizeof(*seen));
    uint32_t n_left = n, n_idle = 0;
    for (uint32_t i = 0; i < n; i++)
        seen_init(&seen[i], r[i]);
    for (uint32_t turn = 1; n_left > 0; turn++) {
        bool any = sched_turn(g->s);
        sched_audit(g->s);
        wipe_free(g);
        for (; fake_tier_flying(g->be); any = true)
            fake_tier_finish(g->be, 0, true);
        while (rig_disk_step(g))
            any = true;
        for (uint32_t i = 0; i < n; i++) {
            if (seen[i].n_end)
                continue;
            any |= seen_read(&seen[i], r[i], UINT32_MAX) > 0;
            o[i].n_turns = turn;
            n_left -= seen[i].n_end;
        }
        n_idle = any ? 0 : n_idle + 1;
        ck_assert_msg(n_idle < 4, "%u requests don't end", n_left);
        ck_assert_msg(fake_tag_mismatches(g->be) == 0, "%s", fake_mismatch(g->be));
    }
    settle_copies(g);
    for (uint32_t i = 0; i < n; i++) {
        expect_lone(g, r[i], &seen[i]);
        o[i].status = seen[i].status;
        o[i].n_cached = seen[i].end.n_cached;
        o[i].n_token = seen[i].n_token[0] < RAN_CAP ? seen[i].n_token[0] : RAN_CAP;
        memcpy(o[i].token, seen[i].token, o[i].n_token * sizeof(int32_t));
        seen_release(&seen[i]);
    }
    mem_free(seen);
}

static inline struct ran run_alone(struct rig *g, struct request *r)
{
    struct ran o;
    rig_submit(g, r);
    run_all(g, &r, &o, 1);
    return o;
}

#endif
