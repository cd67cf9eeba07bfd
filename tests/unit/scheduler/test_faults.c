/* Planted faults: each must be detected by the audit, by the fake's tags, or by an abort. */
#include <signal.h>

#include "base/log.h"
#include "kvpool/cache_int.h"
#include "tests/unit/scheduler/rig.h"

static uint32_t wrong_table[64];
static bool planted;
static struct rig g;

static struct request *start(uint32_t n_prompt, uint32_t n_choices)
{
    struct request *r = rig_random(&g, 3, n_prompt, 40);
    r->n_choices = n_choices;
    r->sampling.temperature = 1;
    rig_submit(&g, r);
    return r;
}

static struct seq *first_seq(void)
{
    return g.s->running.seq[0];
}

/* Takes one reader away from the second block of the running sequence. */
static void free_early(void)
{
    struct kvc_group *group = &g.s->kv->group[0];
    group->block[first_seq()->kv.t[0].block[1]].ref--;
}

START_TEST(a_block_freed_early_fails_the_audit)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = start(50, 1);
    struct err e;
    sched_turn(g.s);
    ck_assert_int_eq(kv_cache_audit(g.s->kv, &e), OK);
    free_early();
    ck_assert_int_eq(kv_cache_audit(g.s->kv, &e), ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(e.text, "kv I"));
    (void)r; /* left in place with its fault: rig_release would abort */
}
END_TEST

START_TEST(a_block_of_another_life_aborts_when_its_table_is_used)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = start(50, 1);
    sched_turn(g.s);
    g.s->kv->group[0].block[first_seq()->kv.t[0].block[1]].generation++;
    sched_cancel(g.s, r);
    sched_turn(g.s);
}
END_TEST

START_TEST(a_reused_block_shows_in_the_tags)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = start(50, 1);
    sched_turn(g.s);
    ck_assert_uint_eq(fake_tag_mismatches(g.be), 0);
    fake_poison(g.be, 0, first_seq()->kv.t[0].phys[1], 1);
    sched_turn(g.s);
    ck_assert_uint_gt(fake_tag_mismatches(g.be), 0);
    (void)r; /* left in place with its fault: rig_release would abort */
}
END_TEST

/* Shifts the first span's table by one entry, as a planner with an off-by-one would. */
static void shift_table(void *arg, const struct batch *b)
{
    const struct sched *s = arg;
    const struct kv_table *t = &s->step.span_seq[0]->kv.t[0];
    if (t->n < 3)
        return;
    for (uint32_t i = 0; i < t->n; i++)
        wrong_table[i] = t->block[i + 1 < t->n ? i + 1 : i];
    b->span[0].table[0] = wrong_table;
    planted = true;
}

START_TEST(a_table_off_by_one_shows_in_the_tags)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = start(50, 1);
    sched_turn(g.s);
    fake_set_watch(g.be, shift_table, g.s);
    sched_turn(g.s);
    ck_assert(planted);
    ck_assert_uint_gt(fake_tag_mismatches(g.be), 0);
    (void)r; /* left in place with its fault: rig_release would abort */
}
END_TEST

START_TEST(a_table_off_by_one_fails_the_audit)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = start(50, 1);
    sched_turn(g.s);
    struct kv_table *t = &first_seq()->kv.t[0];
    t->block[1] = t->block[2];
    t->generation[1] = t->generation[2];
    struct err e;
    ck_assert_int_eq(kv_cache_audit(g.s->kv, &e), ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(e.text, "kv I"));
    (void)r; /* left in place with its fault: rig_release would abort */
}
END_TEST

static enum status copy_nothing(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                                struct err *e)
{
    (void)be, (void)group, (void)src, (void)dst, (void)e;
    planted = true;
    return OK;
}

START_TEST(a_missed_tail_copy_in_a_fork_shows_in_the_tags)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct backend_ops ops = *g.be->ops;
    ops.copy_block = copy_nothing;
    g.be->ops = &ops;
    struct request *r = start(50, 2);
    for (int i = 0; i < 4; i++)
        sched_turn(g.s);
    ck_assert(planted);
    ck_assert_uint_gt(fake_tag_mismatches(g.be), 0);
    (void)r; /* left in place with its fault: rig_release would abort */
}
END_TEST

START_TEST(a_lost_claim_fails_the_audit)
{
    struct rig_options opt = rig_defaults();
    rig_init(&g, &opt);
    struct request *r = start(50, 1);
    sched_turn(g.s);
    g.s->kv->group[0].n_promised++;
    struct err e;
    ck_assert_int_eq(kv_cache_audit(g.s->kv, &e), ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(e.text, "promised"));
    (void)r; /* left in place with its fault: rig_release would abort */
}
END_TEST

int main(void)
{
    log_set_level(LOG_ERROR);
    Suite *suite = suite_create("scheduler/faults");
    TCase *tc = tcase_create("faults");
    tcase_add_test(tc, a_block_freed_early_fails_the_audit);
    tcase_add_test_raise_signal(tc, a_block_of_another_life_aborts_when_its_table_is_used, SIGABRT);
    tcase_add_test(tc, a_reused_block_shows_in_the_tags);
    tcase_add_test(tc, a_table_off_by_one_shows_in_the_tags);
    tcase_add_test(tc, a_table_off_by_one_fails_the_audit);
    tcase_add_test(tc, a_missed_tail_copy_in_a_fork_shows_in_the_tags);
    tcase_add_test(tc, a_lost_claim_fails_the_audit);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
