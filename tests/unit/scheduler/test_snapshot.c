/* Queries to the engine thread: each is answered once, with the true state. */
#include <stdatomic.h>
#include <stdio.h>

#include "base/thread.h"
#include "base/base_test.h"
#include "tests/unit/scheduler/rig.h"

static void count_done(struct sched_ask *a, void *arg)
{
    (void)a;
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static struct sched_ask ask_for(enum sched_ask_kind kind, void *items, uint32_t cap,
                                atomic_uint *n_done)
{
    return (struct sched_ask){
        .kind = kind, .cap = cap, .item.any = items, .done = count_done, .arg = n_done};
}

START_TEST(sequences_tell_state_tokens_blocks_and_times)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    clock_fake(true, 1000);
    opt.fake.step_base_ns = 500;
    opt.limits.max_running = 2;
    opt.limits.max_batch_tokens = 64;
    rig_init(&g, &opt);
    struct request *r[3];
    struct seq_view v[8];
    atomic_uint n_done = 0;
    struct sched_ask a = ask_for(ASK_SEQUENCES, v, 8, &n_done);
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = rig_random(&g, i + 1, 60, 20);
        r[i]->arrive_ns = clock_ns();
        snprintf(r[i]->name, sizeof(r[i]->name), "r%u", i);
        rig_submit(&g, r[i]);
    }
    r[0]->sampling.temperature = 0;
    sched_turn(g.s); /* 60 rows of r0, 4 of r1 */
    sched_ask(g.s, &a);
    ck_assert_uint_eq(n_done, 0);
    sched_turn(g.s); /* 1 of r0, 56 of r1 */
    ck_assert_uint_eq(n_done, 1);
    ck_assert_uint_eq(a.n, 3);
    ck_assert_uint_eq(a.n_all, 3);
    ck_assert_uint_eq(a.view.n_running, 2);
    ck_assert_uint_eq(a.view.n_queued, 1);
    ck_assert_uint_eq(a.view.group[0].n_frames, opt.n_blocks);
    for (uint32_t i = 0; i < 3; i++) {
        const struct seq_view *s = &v[i];
        ck_assert_uint_eq(s->n_prompt, 60);
        ck_assert_uint_eq(s->max_tokens, 20);
        if (strcmp(s->name, "r0") == 0) {
            ck_assert_int_eq(s->state, VIEW_RUNNING);
            ck_assert_uint_eq(s->n_output, 2);
            ck_assert_uint_eq(s->n_kv, 61);
            ck_assert_uint_eq(s->n_blocks[VIEW_TIER_ARENA], 4);
            ck_assert_uint_eq(s->timing.ns[TIMING_prefill], 500);
            ck_assert_uint_eq(s->timing.ns[TIMING_decode], 500);
            ck_assert_uint_eq(s->idle_ns, 0);
        } else if (strcmp(s->name, "r1") == 0) {
            ck_assert_int_eq(s->state, VIEW_RUNNING);
            ck_assert_uint_eq(s->n_kv, 60);
        } else {
            ck_assert_str_eq(s->name, "r2");
            ck_assert_int_eq(s->state, VIEW_QUEUED);
            ck_assert_uint_eq(s->timing.ns[TIMING_queue], 1000);
            ck_assert_uint_eq(s->n_blocks[VIEW_TIER_ARENA], 0);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        request_unref(r[i]);
    rig_release(&g);
}
END_TEST

START_TEST(pages_cover_every_row_once)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    enum { N = 25 };
    struct request *r[N];
    bool seen[N] = {false};
    atomic_uint n_done = 0;
    for (uint32_t i = 0; i < N; i++) {
        r[i] = rig_random(&g, i + 1, 20, 50);
        snprintf(r[i]->name, sizeof(r[i]->name), "%u", i);
        rig_submit(&g, r[i]);
    }
    sched_turn(g.s);
    g.s->limits.max_batch_tokens = 1; /* the pages are of one state of things */
    for (uint64_t from = 0; from < N; from += 7) {
        struct seq_view v[7];
        struct sched_ask a = ask_for(ASK_SEQUENCES, v, 7, &n_done);
        a.from = from;
        sched_ask(g.s, &a);
        snapshot_answer(g.s);
        ck_assert_uint_eq(a.n_all, N);
        ck_assert_uint_eq(a.n, N - from < 7 ? N - from : 7);
        for (uint32_t i = 0; i < a.n; i++) {
            uint32_t k = (uint32_t)atoi(v[i].name);
            EXPECT(k < N && !seen[k]);
            seen[k] = true;
        }
    }
    for (uint32_t i = 0; i < N; i++) {
        ck_assert(seen[i]);
        request_unref(r[i]);
    }
    rig_release(&g);
}
END_TEST

START_TEST(one_tenant_is_told_nothing_of_the_others)
{
    enum { N = 12, MINE = 3, N_TENANTS = 6 };
    struct rig g;
    struct rig_options opt = rig_defaults();
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    opt.limits.max_running = 6;
    opt.limits.tenants = tenants_new(NS_PER_S, opt.limits.max_running, 0, 0);
    set->n = N_TENANTS;
    for (uint32_t i = 0; i < N_TENANTS; i++)
        set->row[i] = (struct tenant_config){.weight = 1, .generation = i + 1};
    tenants_publish(opt.limits.tenants, set);
    rig_init(&g, &opt);
    struct request *r[N];
    struct seq_view v[2 * N];
    atomic_uint n_done = 0;
    for (uint32_t i = 0; i < N; i++) {
        r[i] = rig_random(&g, i + 1, 20, 50);
        r[i]->tenant = i % 3 == 0 ? MINE : 5;
        r[i]->n_choices = 1 + i % 2;
        snprintf(r[i]->name, sizeof(r[i]->name), "%u", i);
        rig_submit(&g, r[i]);
    }
    sched_turn(g.s);
    g.s->limits.max_batch_tokens = 1; /* the answers are of one state of things */
    struct sched_ask all = ask_for(ASK_SEQUENCES, v, 2 * N, &n_done);
    sched_ask(g.s, &all);
    snapshot_answer(g.s);
    uint32_t n_rows = 0, n_queued = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        n_rows += v[i].tenant == MINE;
        n_queued += v[i].tenant == MINE && v[i].state == VIEW_QUEUED;
    }
    ck_assert(n_queued > 0 && n_rows > n_queued && n_rows < all.n);
    for (uint64_t from = 0; from <= n_rows; from++) {
        struct sched_ask a = ask_for(ASK_SEQUENCES, v, 2 * N, &n_done);
        a.one_tenant = true;
        a.tenant = MINE;
        a.from = from;
        sched_ask(g.s, &a);
        snapshot_answer(g.s);
        ck_assert_uint_eq(a.n_all, n_rows);
        ck_assert_uint_eq(a.n, n_rows - from);
        ck_assert_uint_eq(a.view.n_queued, n_queued);
        ck_assert_uint_eq(a.view.n_running, n_rows - n_queued);
        ck_assert_uint_eq(a.view.n_parked, 0);
        for (uint32_t i = 0; i < a.n; i++)
            ck_assert_uint_eq(v[i].tenant, MINE);
    }
    for (uint32_t i = 0; i < N; i++)
        request_unref(r[i]);
    rig_release(&g);
    tenants_free(opt.limits.tenants);
}
END_TEST

START_TEST(blocks_are_those_in_use)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 100, 10);
    struct block_view v[16];
    atomic_uint n_done = 0;
    rig_submit(&g, r);
    sched_turn(g.s);
    struct sched_ask a = ask_for(ASK_BLOCKS, v, 16, &n_done);
    a.audit = true;
    sched_ask(g.s, &a);
    snapshot_answer(g.s);
    ck_assert_uint_eq(a.n, 7); /* 100 tokens in blocks of 16 */
    ck_assert(a.audited);
    ck_assert_int_eq(a.audit_error.status, OK);
    ck_assert_uint_eq(a.view.slots_written, 100);
    ck_assert_uint_eq(a.view.slots_allocated, 112);
    uint32_t filled = 0;
    for (uint32_t i = 0; i < a.n; i++) {
        ck_assert_uint_eq(v[i].n_refs, 1);
        filled += v[i].n_filled;
    }
    ck_assert_uint_eq(filled, 100);
    request_unref(r);
    rig_release(&g);
}
END_TEST

enum { N_PARKING = 8 };

/* What the rows of one run showed. */
struct shown {
    uint32_t n_state[N_VIEW_STATES], n_tier[N_VIEW_TIERS], n_preempted;
    uint64_t idle_ns;
};

static void parking_options(struct rig_options *opt)
{
    *opt = rig_defaults();
    opt->fake.step_base_ns = 500;
    opt->fake.tier_waits = true;
    opt->n_blocks = 24;
    opt->n_host[0] = 20;
    opt->n_file[0] = 60;
    opt->max_jobs = 4;
    opt->limits.reserve = SCHED_RESERVE_NONE;
    opt->limits.preempt = SCHED_PREEMPT_SWAP;
}

/* Asks in one turn, and holds the rows against the totals and against n_left requests. */
static void ask_in_turn(struct rig *g, struct request **r, struct seen *o, uint32_t *n_left,
                        struct shown *shown)
{
    atomic_uint n_done = 0;
    struct seq_view v[N_PARKING];
    struct sched_ask a = ask_for(ASK_SEQUENCES, v, N_PARKING, &n_done);
    uint32_t n_arena = 0, n_parked = 0;
    a.audit = true;
    sched_ask(g->s, &a);
    sched_turn(g->s);
    *n_left = 0;
    for (uint32_t i = 0; i < N_PARKING; i++) {
        seen_read(&o[i], r[i], UINT32_MAX);
        *n_left += o[i].n_end == 0;
    }
    EXPECT(a.audit_error.status == OK);
    EXPECT(a.n == *n_left);
    EXPECT(a.view.n_running + a.view.n_parked + a.view.n_queued == *n_left);
    for (uint32_t i = 0; i < a.n; i++) {
        bool parked = v[i].state == VIEW_PARKED;
        shown->n_state[v[i].state]++;
        n_parked += parked;
        n_arena += v[i].n_blocks[VIEW_TIER_ARENA];
        if (v[i].n_preempted > shown->n_preempted)
            shown->n_preempted = v[i].n_preempted;
        if (parked && v[i].idle_ns > shown->idle_ns)
            shown->idle_ns = v[i].idle_ns;
        EXPECT(parked || v[i].state == VIEW_LOADING || v[i].n_blocks[VIEW_TIER_FILE] == 0);
        for (int t = 0; t < N_VIEW_TIERS; t++)
            shown->n_tier[t] += v[i].n_blocks[t];
    }
    EXPECT(n_parked == a.view.n_parked);
    EXPECT(n_arena <= a.view.group[0].n_frames - a.view.group[0].n_free);
}

/* Its time in all parts is no longer than its life; returns what it spent parked. */
static uint64_t check_times(const struct request *r, const struct seen *o)
{
    uint64_t sum = 0;
    ck_assert_int_eq(o->status, OK);
    for (int part = 0; part < N_TIMING_PARTS; part++)
        sum += o->end.timing.ns[part];
    EXPECT(sum + r->arrive_ns <= clock_ns());
    EXPECT(sum + r->arrive_ns >= o->end.first_token_ns);
    return o->end.timing.ns[TIMING_swap];
}

/* Everything that the rows say adds up to what the totals say, at every turn of a run under pressure. */
START_TEST(parked_sequences_show_where_their_blocks_are)
{
    enum { N = N_PARKING, TURNS = 100000 };
    struct rig g;
    struct rig_options opt;
    struct request *r[N];
    struct seen o[N];
    struct shown shown = {0};
    uint32_t n_left = N;
    uint64_t swap_ns = 0;
    clock_fake(true, 1000);
    parking_options(&opt);
    rig_init(&g, &opt);
    for (uint32_t i = 0; i < N; i++) {
        r[i] = rig_random(&g, i + 1, 50, 150);
        r[i]->arrive_ns = clock_ns();
        seen_init(&o[i], r[i]);
        rig_submit(&g, r[i]);
    }
    for (uint32_t turn = 0; n_left > 0; turn++) {
        EXPECT(turn < TURNS);
        ask_in_turn(&g, r, o, &n_left, &shown);
        while (fake_tier_flying(g.be) && turn % 3 == 0)
            fake_tier_finish(g.be, 0, true);
        clock_fake_advance(1);
    }
    for (uint32_t i = 0; i < N; i++) {
        swap_ns += check_times(r[i], &o[i]);
        seen_release(&o[i]);
        request_unref(r[i]);
    }
    /* The run was one that has all of them to show. */
    ck_assert_uint_gt(shown.n_state[VIEW_PARKED], 0);
    ck_assert_uint_gt(shown.n_state[VIEW_LOADING], 0);
    ck_assert_uint_gt(shown.n_state[VIEW_QUEUED], 0);
    ck_assert_uint_gt(shown.n_tier[VIEW_TIER_RAM], 0);
    ck_assert_uint_gt(shown.n_tier[VIEW_TIER_FILE], 0);
    ck_assert_uint_gt(shown.n_tier[VIEW_TIER_MOVING], 0);
    ck_assert_uint_gt(shown.n_preempted, 0);
    ck_assert_uint_gt(shown.idle_ns, 0);
    ck_assert_uint_gt(swap_ns, 0);
    rig_release(&g);
}
END_TEST

START_TEST(the_journal_comes_through_the_same_door)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.journal_bytes = 1 << 16;
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 16, 3);
    struct journal_record v[16];
    atomic_uint n_done = 0;
    rig_submit(&g, r);
    rig_run(&g);
    struct sched_ask a = ask_for(ASK_JOURNAL, v, 16, &n_done);
    sched_ask(g.s, &a);
    sched_turn(g.s);
    ck_assert_uint_eq(a.n, 6); /* submit, prompt, 3 steps, end */
    ck_assert_uint_eq(v[0].kind, JOURNAL_SUBMIT);
    ck_assert_uint_eq(v[5].kind, JOURNAL_END);
    ck_assert_uint_eq(a.view.journal.block_tokens, 16);
    request_unref(r);
    rig_release(&g);
}
END_TEST

START_TEST(answering_allocates_nothing)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    opt.limits.journal_bytes = 1 << 16;
    rig_init(&g, &opt);
    struct request *r = rig_random(&g, 1, 30, 30);
    struct seq_view seq[4];
    struct block_view block[4];
    struct journal_record record[4];
    atomic_uint n_done = 0;
    struct sched_ask a[3] = {ask_for(ASK_SEQUENCES, seq, 4, &n_done),
                             ask_for(ASK_BLOCKS, block, 4, &n_done),
                             ask_for(ASK_JOURNAL, record, 4, &n_done)};
    rig_submit(&g, r);
    sched_turn(g.s);
    uint64_t before = mem_thread_allocs();
    for (uint32_t i = 0; i < 3; i++)
        sched_ask(g.s, &a[i]);
    snapshot_answer(g.s);
    ck_assert_uint_eq(mem_thread_allocs(), before);
    ck_assert_uint_eq(n_done, 3);
    request_unref(r);
    rig_release(&g);
}
END_TEST

enum { N_ASKERS = 3, N_ASKS = 300 };

struct asker {
    struct thread thread;
    struct sched *s;
    atomic_uint n_done;
    struct sched_ask ask[N_ASKS];
    struct seq_view view[N_ASKS][2];
};

static void ask_many(void *arg)
{
    struct asker *k = arg;
    for (uint32_t i = 0; i < N_ASKS; i++) {
        k->ask[i] = ask_for(ASK_SEQUENCES, k->view[i], 2, &k->n_done);
        sched_ask(k->s, &k->ask[i]);
    }
}

/* Threads ask while the engine thread runs and ends: each question is answered exactly once. */
START_TEST(no_question_is_lost_when_the_scheduler_stops)
{
    struct rig g;
    struct rig_options opt = rig_defaults();
    static struct asker k[N_ASKERS];
    struct err e;
    rig_init(&g, &opt);
    ck_assert_int_eq(sched_start(g.s, &e), OK);
    for (uint32_t i = 0; i < N_ASKERS; i++) {
        k[i].s = g.s;
        ck_assert_int_eq(thread_start(&k[i].thread, "asker", ask_many, &k[i], &e), OK);
    }
    sched_stop(g.s);
    for (uint32_t i = 0; i < N_ASKERS; i++)
        thread_join(&k[i].thread);
    for (uint32_t i = 0; i < N_ASKERS; i++) {
        ck_assert_uint_eq(k[i].n_done, N_ASKS);
        for (uint32_t j = 0; j < N_ASKS; j++)
            EXPECT(k[i].ask[j].status == OK || k[i].ask[j].status == ERR_DRAINING);
    }
    rig_release(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshot");
    TCase *t = tcase_create("snapshot");
    tcase_add_test(t, sequences_tell_state_tokens_blocks_and_times);
    tcase_add_test(t, pages_cover_every_row_once);
    tcase_add_test(t, one_tenant_is_told_nothing_of_the_others);
    tcase_add_test(t, blocks_are_those_in_use);
    tcase_add_test(t, parked_sequences_show_where_their_blocks_are);
    tcase_add_test(t, the_journal_comes_through_the_same_door);
    tcase_add_test(t, answering_allocates_nothing);
    tcase_add_test(t, no_question_is_lost_when_the_scheduler_stops);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
