/* Random operations on a KV cache of tiny pools with the fake backend: adopt, grow, submit, retire late,
 * undo, fork, park, unpark, spill, page out, copies that end late, out of order or not at all, claims,
 * announcements, clears, values that are not finite. After each operation the cache is audited, free
 * frames and slots are poisoned, and no tag may be wrong. */
#include "tests/unit/engine/pool_world.h"

enum { N_OPS = 400000, N_FAULTS = 9 };

START_TEST(any_order_of_operations_reads_each_history_and_leaves_nothing)
{
    run_world(random_env("MILLRACE_RANDOM_SEED", 1) + (uint64_t)_i,
              (enum kvc_fault)random_env("MILLRACE_RANDOM_FAULT", KVC_NO_FAULT), true);
}
END_TEST

static const struct {
    enum kvc_fault fault;
    const char *name;
} faults[N_FAULTS] = {{KVC_NO_FAULT, "none"},
                      {KVC_FAULT_NO_COW, "a missed copy-on-write"},
                      {KVC_FAULT_EARLY_PUBLISH, "an early publish"},
                      {KVC_FAULT_FRAME_UNDER_COPY, "a frame freed with a copy in flight"},
                      {KVC_FAULT_WINDOW_FIRST, "a window that slides too far"},
                      {KVC_FAULT_HIT_LENGTH, "an off-by-one in a hit"},
                      {KVC_FAULT_HIT_WINDOW, "a hit that takes too few window blocks"},
                      {KVC_FAULT_UNVERIFIED, "a hit by the key alone"},
                      {KVC_FAULT_STALE_SLOT, "a copy that lacks what was written since"}};

struct planted {
    uint64_t seed;
    enum kvc_fault fault;
    bool audits;
};

static void run_planted(void *arg)
{
    const struct planted *p = arg;
    run_world(p->seed, p->fault, p->audits);
}

static void find(enum kvc_fault fault, const char *name, bool audits)
{
    enum { MOST = 40 };
    uint32_t n_worlds = 0;
    for (bool found = false; !found && n_worlds < MOST; n_worlds++) {
        struct planted p = {7000 + n_worlds, fault, audits};
        found = random_world_fails(run_planted, &p);
    }
    if (fault == KVC_NO_FAULT)
        ck_assert_msg(n_worlds == MOST, "found a fault that isn't there");
    else
        ck_assert_msg(n_worlds < MOST, "%s is not found in %u worlds", name, n_worlds);
    printf("planted: %s: %u worlds%s\n", name, n_worlds, audits ? "" : ", by tags alone");
}

START_TEST(a_planted_fault_is_found)
{
    find(faults[_i].fault, faults[_i].name, true);
}
END_TEST

START_TEST(tags_alone_find_a_planted_fault)
{
    find(faults[_i].fault, faults[_i].name, false);
}
END_TEST

START_TEST(the_run_has_met_everything)
{
    for (uint32_t i = 0; i < N_COUNTS; i++)
        ck_assert_msg(random_counts->n[i] > 0, "no world has met: %s", names[i]);
}
END_TEST

int main(void)
{
    random_counts_open(names, N_COUNTS);
    Suite *suite = suite_create("engine/tag_pool");
    TCase *tc = tcase_create("random");
    tcase_add_loop_test(tc, any_order_of_operations_reads_each_history_and_leaves_nothing, 0,
                        (int)random_worlds(N_OPS));
    if (random_worlds(N_OPS) >= RANDOM_FULL_WORLDS) {
        tcase_add_loop_test(tc, a_planted_fault_is_found, 0, N_FAULTS);
        tcase_add_loop_test(tc, tags_alone_find_a_planted_fault, 0, N_FAULTS);
        tcase_add_test(tc, the_run_has_met_everything);
    }
    suite_add_tcase(suite, tc);
    int rc = run_suite(suite);
    random_counts_print("tag_pool");
    return rc;
}
