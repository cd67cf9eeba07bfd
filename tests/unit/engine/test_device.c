/* The guarantees and restrictions of engine/backend.h and kvpool/store.h, on the fake: steps and copies in order
 * however late they run, two in flight, unordered moves, and KV bytes that only the device can access. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/fake/fake_int.h"
#include "kvpool/kvpool_test.h"
#include "kvpool/tier.h"
#include "tests/unit/run_suite.h"

enum { N_SLOTS = 8, N_FRAMES = 8, N_HOST = 2, VOCAB = 50, MAX_ROWS = 32, UNSET = -7 };
enum { BLOCK_BYTES = N_SLOTS * FAKE_SLOT_BYTES };

struct rig {
    struct kv_layout layout;
    struct backend *be;
    struct batch b[2];
    int32_t history[64]; /* of the one sequence */
};

static const struct sampling_params greedy = {.n_top = -1};

static void rig_init(struct rig *r, const struct fake_options *o)
{
    struct err e;
    const struct kv_arena arena = {
        .n_groups = 1,
        .group = {{.block_bytes = BLOCK_BYTES, .n_frames = N_FRAMES, .n_host = N_HOST}}};
    struct fake_options fake = *o;
    *r = (struct rig){.layout = {.n_layers = 1,
                                 .n_groups = 1,
                                 .n_slots = N_SLOTS,
                                 .group = {{.n_layers = 1, .block_bytes = BLOCK_BYTES}}}};
    fake.n_vocab = VOCAB;
    ck_assert_int_eq(fake_backend_new(&arena, &r->layout,
                                      (struct backend_limits){MAX_ROWS, 4, 4, 4}, &fake, &r->be,
                                      &e),
                     OK);
    for (int i = 0; i < 2; i++)
        batch_init(&r->b[i], MAX_ROWS, 4, 4);
    for (int i = 0; i < 64; i++)
        r->history[i] = i * 7 % VOCAB;
}

static void rig_release(struct rig *r)
{
    for (int i = 0; i < 2; i++)
        batch_release(&r->b[i]);
    r->be->ops->close(r->be);
}

/* Positions [pos0, end) of the sequence through a table, with an output at the end. */
static uint64_t submit(struct rig *r, int i, uint32_t pos0, uint32_t end, const uint32_t *table)
{
    struct batch *b = &r->b[i];
    uint64_t ticket;
    struct err e;
    batch_clear(b);
    b->n_rows = end - pos0;
    b->n_spans = b->n_outs = 1;
    b->span[0] = (struct batch_span){.n_rows = b->n_rows, .pos0 = pos0, .table = {table}};
    memcpy(b->token, r->history + pos0, b->n_rows * sizeof(*b->token));
    b->out[0] = (struct batch_out){.row = b->n_rows - 1,
                                   .job = {.params = &greedy,
                                           .history = r->history,
                                           .n_history = end,
                                           .given = -1,
                                           .token = UNSET}};
    ck_assert_int_eq(r->be->ops->submit(r->be, b, &ticket, &e), OK);
    return ticket;
}

static void collect(struct rig *r, int i, uint64_t ticket)
{
    struct batch *done;
    struct err e;
    ck_assert_int_eq(r->be->ops->collect(r->be, ticket, &done, &e), OK);
    ck_assert_ptr_eq(done, &r->b[i]);
    const struct sample_job *job = &done->out[0].job;
    ck_assert_int_eq(job->token, fake_next_token(r->history, job->n_history, VOCAB));
}

static void no_mismatch(const struct rig *r)
{
    ck_assert_msg(fake_tag_mismatches(r->be) == 0, "%s", fake_mismatch(r->be));
}

/* Runs fn in a child; true when that ended any other way than by returning. */
static bool dies(void (*fn)(struct rig *r), struct rig *r)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        fn(r);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* ---- nobody else touches KV bytes ---- */

static volatile uint64_t sink;

static void read_directly(struct rig *r)
{
    sink = ((struct fake *)r->be)->slot[0]->chain;
}

static void write_directly(struct rig *r)
{
    ((struct fake *)r->be)->slot[0]->chain = sink;
}

static void move_properly(struct rig *r)
{
    uint8_t bytes[BLOCK_BYTES];
    struct err e;
    if (kv_store_read(r->be->kv, 0, 0, bytes, &e) != OK ||
        kv_store_write(r->be->kv, 0, 1, bytes, &e) != OK)
        abort();
    sink = bytes[0];
}

static void watch_reads(void *arg, const struct batch *b)
{
    (void)b;
    read_directly(arg);
}

static void step_watched(struct rig *r)
{
    static const uint32_t table[] = {0};
    fake_set_watch(r->be, watch_reads, r);
    submit(r, 0, 0, 3, table);
}

START_TEST(a_direct_access_to_kv_bytes_dies)
{
    static const uint32_t table[] = {0};
    struct rig r;
    rig_init(&r, &(struct fake_options){.runs_late = _i});
    ck_assert(!dies(move_properly, &r));
    ck_assert(dies(read_directly, &r) && dies(write_directly, &r) && dies(step_watched, &r));
    uint64_t ticket = submit(&r, 0, 0, 3, table);
    ck_assert(dies(read_directly, &r) && dies(write_directly, &r) && !dies(move_properly, &r));
    collect(&r, 0, ticket);
    ck_assert(dies(read_directly, &r));
    no_mismatch(&r);
    rig_release(&r);
}
END_TEST

/* ---- steps and copies ---- */

enum when { AT_SUBMIT, AT_NEXT_SUBMIT, AT_COLLECT_BEFORE, AT_COLLECT, N_WHENS };

/* A step, a copy of its block, a step that goes on in the copy, both in flight; again with the blocks that
 * are left, while the second is. Counts when each first and second step of a pair ran. */
static void run_pair(uint64_t first_step, bool late, uint32_t n_ran[2][N_WHENS])
{
    static const uint32_t before[] = {3}, after[] = {4, 5};
    struct rig r;
    struct err e;
    rig_init(&r, &(struct fake_options){.runs_late = late, .first_step = first_step});
    uint64_t t0 = submit(&r, 0, 0, 5, before);
    bool first = r.b[0].out[0].job.token != UNSET;
    ck_assert_int_eq(r.be->ops->copy_block(r.be, 0, 3, 4, &e), OK);
    uint64_t t1 = submit(&r, 1, 5, 12, after);
    bool next = r.b[0].out[0].job.token != UNSET, second = r.b[1].out[0].job.token != UNSET;
    ck_assert(t1 != t0 && (first ? next : !second || next));
    collect(&r, 0, t0);
    bool before_its_own = r.b[1].out[0].job.token != UNSET;
    n_ran[0][first ? AT_SUBMIT : next ? AT_NEXT_SUBMIT : AT_COLLECT]++;
    n_ran[1][second ? AT_SUBMIT : before_its_own ? AT_COLLECT_BEFORE : AT_COLLECT]++;
    uint64_t t2 = submit(&r, 0, 12, 14, after); /* the third of three, two in flight */
    collect(&r, 1, t1);
    collect(&r, 0, t2);
    no_mismatch(&r);
    rig_release(&r);
}

START_TEST(two_steps_and_a_copy_between_take_effect_in_order_however_late)
{
    uint32_t n_ran[2][N_WHENS] = {{0}};
    for (uint64_t i = 0; i < 200; i++)
        run_pair(i, true, n_ran);
    ck_assert(n_ran[0][AT_SUBMIT] && n_ran[0][AT_NEXT_SUBMIT] && n_ran[0][AT_COLLECT]);
    ck_assert(n_ran[1][AT_SUBMIT] && n_ran[1][AT_COLLECT_BEFORE] && n_ran[1][AT_COLLECT]);
    memset(n_ran, 0, sizeof(n_ran));
    for (uint64_t i = 0; i < 20; i++)
        run_pair(i, false, n_ran);
    ck_assert(n_ran[0][AT_SUBMIT] == 20 && n_ran[1][AT_SUBMIT] == 20);
}
END_TEST

START_TEST(a_failed_step_leaves_the_one_behind_it_alone)
{
    static const uint32_t table[] = {2}, other[] = {6};
    struct rig r;
    struct batch *done;
    struct err e;
    rig_init(&r, &(struct fake_options){.runs_late = true, .first_step = 3});
    fake_fail_steps(r.be, 1);
    uint64_t t0 = submit(&r, 0, 0, 4, table), t1 = submit(&r, 1, 0, 6, other);
    ck_assert_int_eq(r.be->ops->collect(r.be, t0, &done, &e), ERR_INTERNAL);
    collect(&r, 1, t1);
    t0 = submit(&r, 0, 0, 4, table); /* the sequence begins again */
    collect(&r, 0, t0);
    no_mismatch(&r);
    rig_release(&r);
}
END_TEST

static void submit_three(struct rig *r)
{
    static const uint32_t table[] = {0, 1};
    submit(r, 0, 0, 2, table);
    submit(r, 1, 2, 4, table);
    submit(r, 0, 4, 6, table);
}

static void collect_newest(struct rig *r)
{
    static const uint32_t table[] = {0, 1};
    submit(r, 0, 0, 2, table);
    collect(r, 1, submit(r, 1, 2, 4, table));
}

static void collect_twice(struct rig *r)
{
    static const uint32_t table[] = {0};
    uint64_t ticket = submit(r, 0, 0, 2, table);
    collect(r, 0, ticket);
    collect(r, 0, ticket);
}

START_TEST(what_the_contract_forbids_of_tickets_dies)
{
    struct rig r;
    rig_init(&r, &(struct fake_options){.runs_late = _i});
    ck_assert(dies(submit_three, &r) && dies(collect_newest, &r) && dies(collect_twice, &r));
    rig_release(&r);
}
END_TEST

/* Whoever gives a block away that a step in flight reads or writes is found out. */
START_TEST(a_block_that_is_reused_under_a_step_in_flight_is_a_mismatch)
{
    static const uint32_t table[] = {0};
    uint32_t n_found = 0;
    for (uint64_t i = 0; i < 40; i++) {
        struct rig r;
        struct batch *done;
        struct err e;
        rig_init(&r, &(struct fake_options){.runs_late = true, .first_step = i});
        collect(&r, 0, submit(&r, 0, 0, 3, table));
        uint64_t ticket = submit(&r, 0, 3, 4, table);
        bool ran = r.b[0].out[0].job.token != UNSET;
        uint8_t zero[BLOCK_BYTES] = {0};
        ck_assert_int_eq(kv_store_write(r.be->kv, 0, 0, zero, &e), OK);
        ck_assert_int_eq(r.be->ops->collect(r.be, ticket, &done, &e), OK);
        ck_assert_int_eq(fake_tag_mismatches(r.be) > 0, !ran);
        n_found += !ran;
        rig_release(&r);
    }
    ck_assert_uint_gt(n_found, 10);
}
END_TEST

/* ---- moves ---- */

static uint64_t start(struct rig *r, uint32_t src, uint32_t dst, void *bytes)
{
    const struct kv_move m = {.src = src, .dst = dst, .bytes = bytes};
    uint64_t ticket;
    struct err e;
    ck_assert_int_eq(r->be->kv->ops->start(r->be->kv, &m, &ticket, &e), OK);
    return ticket;
}

static void wait_for(struct rig *r, uint64_t ticket)
{
    struct err e;
    ck_assert_int_eq(r->be->kv->ops->wait(r->be->kv, ticket, &e), OK);
}

static void check_bytes(struct rig *r, uint32_t phys, const uint8_t *want)
{
    uint8_t bytes[BLOCK_BYTES];
    struct err e;
    ck_assert_int_eq(kv_store_read(r->be->kv, 0, phys, bytes, &e), OK);
    ck_assert_mem_eq(bytes, want, BLOCK_BYTES);
}

START_TEST(moves_end_in_any_order_and_bring_whole_blocks_between_all_ends)
{
    struct rig r;
    struct err e;
    uint8_t in[3][BLOCK_BYTES], out[BLOCK_BYTES];
    rig_init(&r, &(struct fake_options){.n_vocab = 1});
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < BLOCK_BYTES; k++)
            in[i][k] = (uint8_t)(k * 5 + i * 77 + 1);
        ck_assert_int_eq(kv_store_write(r.be->kv, 0, (uint32_t)i, in[i], &e), OK);
    }
    /* device to host, device to device, block to bytes, bytes to block */
    uint64_t t[] = {start(&r, 0, N_FRAMES + 1, NULL), start(&r, 1, 5, NULL),
                    start(&r, 2, KV_BYTES, out), start(&r, KV_BYTES, 6, in[1])};
    ck_assert(memcmp(out, in[2], BLOCK_BYTES) != 0); /* not there yet */
    static const int order[] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++)
        wait_for(&r, t[order[_i ? i : 3 - i]]);
    check_bytes(&r, N_FRAMES + 1, in[0]);
    check_bytes(&r, 5, in[1]);
    ck_assert_mem_eq(out, in[2], BLOCK_BYTES);
    check_bytes(&r, 6, in[1]);
    wait_for(&r, start(&r, N_FRAMES + 1, 7, NULL)); /* host to device */
    check_bytes(&r, 7, in[0]);
    no_mismatch(&r);
    rig_release(&r);
}
END_TEST

static void wait_twice(struct rig *r)
{
    uint64_t ticket = start(r, 0, 1, NULL);
    wait_for(r, ticket);
    wait_for(r, ticket);
}

START_TEST(moves_that_meet_are_mismatches_and_tickets_end_once)
{
    static const struct {
        uint32_t src, dst;
    } second[] = {{0, 1}, {2, 1}, {1, 3}, {2, 0}}; /* beside 0 to 1; the last writes its source */
    struct rig r;
    rig_init(&r, &(struct fake_options){.n_vocab = 1});
    start(&r, 0, 1, NULL);
    start(&r, second[_i].src, second[_i].dst, NULL);
    ck_assert_uint_gt(fake_tag_mismatches(r.be), 0);
    ck_assert(dies(wait_twice, &r));
    rig_release(&r);
}
END_TEST

START_TEST(a_step_that_reads_or_writes_what_a_move_brings_is_a_mismatch)
{
    static const uint32_t table[] = {0}, moved[] = {1};
    struct rig r;
    struct batch *done;
    struct err e;
    rig_init(&r, &(struct fake_options){.n_vocab = 1});
    collect(&r, 0, submit(&r, 0, 0, 3, table));
    uint64_t ticket = start(&r, 0, 1, NULL);
    if (_i) {
        wait_for(&r, ticket);
        collect(&r, 0, submit(&r, 0, 3, 4, moved));
        no_mismatch(&r);
    } else {
        uint64_t step = submit(&r, 0, 3, 4, moved);
        ck_assert_int_eq(r.be->ops->collect(r.be, step, &done, &e), OK);
        ck_assert_uint_gt(fake_tag_mismatches(r.be), 0);
    }
    rig_release(&r);
}
END_TEST

/* ---- the real tier over a device that takes its time ---- */

static bool copy(struct kv_tier *tier, bool load, uint32_t frame, uint32_t slot)
{
    const struct kv_job job = {.frame = frame, .slot = slot, .load = load, .id = 1};
    struct kv_done done;
    ck_assert(kv_tier_push(tier, &job) && kv_tier_step(tier) && kv_tier_pop(tier, &done));
    return done.ok;
}

START_TEST(the_tier_moves_blocks_of_any_device_and_answers_failed_moves)
{
    char folder[] = "/tmp/millrace-device-XXXXXX";
    static const uint32_t table[] = {0}, back[] = {2};
    struct rig r;
    struct kv_tier *tier;
    struct err e;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    rig_init(&r, &(struct fake_options){.n_vocab = 1});
    const struct kv_tier_options o = {
        .store = r.be->kv, .layout = &r.layout, .path = folder, .n_file = {2}, .max_jobs = 4};
    ck_assert_msg(kv_tier_open(&o, &tier, &e) == OK, "%s", e.text);
    collect(&r, 0, submit(&r, 0, 0, 5, table));
    for (uint32_t slot = 0; slot < N_HOST + 2; slot++) {
        fake_fail_moves(r.be, 1);
        ck_assert(!copy(tier, false, 0, slot));
        ck_assert(copy(tier, false, 0, slot));
        fake_fail_moves(r.be, 1);
        ck_assert(!copy(tier, true, 2, slot));
        ck_assert(copy(tier, true, 2, slot));
        collect(&r, 0, submit(&r, 0, 5, 6, back));
    }
    ck_assert_uint_eq(kv_tier_stats(tier).n_failed, 2 * (N_HOST + 2));
    no_mismatch(&r);
    kv_tier_close(tier);
    rig_release(&r);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine/device");
    TCase *t = tcase_create("device");
    tcase_add_loop_test(t, a_direct_access_to_kv_bytes_dies, 0, 2);
    tcase_add_test(t, two_steps_and_a_copy_between_take_effect_in_order_however_late);
    tcase_add_test(t, a_failed_step_leaves_the_one_behind_it_alone);
    tcase_add_loop_test(t, what_the_contract_forbids_of_tickets_dies, 0, 2);
    tcase_add_test(t, a_block_that_is_reused_under_a_step_in_flight_is_a_mismatch);
    tcase_add_loop_test(t, moves_end_in_any_order_and_bring_whole_blocks_between_all_ends, 0, 2);
    tcase_add_loop_test(t, moves_that_meet_are_mismatches_and_tickets_end_once, 0, 4);
    tcase_add_loop_test(t, a_step_that_reads_or_writes_what_a_move_brings_is_a_mismatch, 0, 2);
    tcase_add_test(t, the_tier_moves_blocks_of_any_device_and_answers_failed_moves);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
