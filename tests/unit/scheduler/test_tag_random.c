/* Random operations on a scheduler over tiny pools against a naive reference that steps every choice
 * alone: submit, cancel, read or leave rings full, turn, end copies late, out of order, badly, fail steps
 * and reads, squeeze, clear the index, change limits; answers that go on beyond their context; prefixes
 * that are filled, named, pinned and released, on a disk with files that are written, evicted and damaged. Much of
 * it also happens while a step is in flight. After every operation the scheduler and the cache are audited, free
 * frames and slots are poisoned, and no tag may be wrong. From time to time everything must end within a bound,
 * or the scheduler stops with everything in progress and another one continues. After every turn each admitted
 * request must have made progress within a bounded number of steps of others, the oldest at once; some
 * worlds are small and never empty, with many promised requests. */
#include <ftw.h>

#include "tests/unit/scheduler/tag_world.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
enum { N_OPS = 20000, MOST_WORLDS = 5 }; /* one thread: nothing for that sanitizer to see */
#else
enum { N_OPS = 1000000, MOST_WORLDS = 40 };
#endif

enum { N_FAULTS = 13, SINKS_LONG = KVC_N_FAULTS - 1 + SCHED_FAULT_SINKS_LONG };

static struct tag_world w;

START_TEST(any_order_of_operations_gives_each_request_its_own_tokens_once)
{
    tag_run_world(&w, random_env("MILLRACE_RANDOM_SEED", 1) + (uint64_t)_i,
                  (uint32_t)random_env("MILLRACE_RANDOM_FAULT", KVC_NO_FAULT));
}
END_TEST

/* Faults of the cache that a scheduler's load must bring to light (test_tag_pool.c has them all), and of
 * the scheduler. */
static const struct {
    uint32_t fault; /* as in struct tag_world */
    const char *name;
} faults[N_FAULTS] = {{KVC_NO_FAULT, "none"},
                      {KVC_FAULT_NO_COW, "a missed copy-on-write"},
                      {KVC_FAULT_FRAME_UNDER_COPY, "a frame freed with a copy in flight"},
                      {KVC_FAULT_WINDOW_FIRST, "a window that slides too far"},
                      {KVC_FAULT_HIT_LENGTH, "an off-by-one in a hit"},
                      {KVC_FAULT_HIT_WINDOW, "a hit that takes too few window blocks"},
                      {KVC_FAULT_UNVERIFIED, "a hit by the key alone"},
                      {KVC_FAULT_STALE_SLOT, "a copy that lacks what was written since"},
                      {SINKS_LONG, "an overflow that keeps one token too many"},
                      {SINKS_LONG + 1, "an overflow that keeps the wrong tokens"},
                      {SINKS_LONG + 2, "a promise that starves older requests"},
                      {SINKS_LONG + 3, "requests admitted past those that stand still"},
                      {SINKS_LONG + 4, "the oldest prompt passed by a heavier tenant's"}};

struct planted {
    uint64_t seed;
    uint32_t fault;
};

static void run_planted(void *arg)
{
    const struct planted *p = arg;
    tag_run_world(&w, p->seed, p->fault);
}

START_TEST(a_planted_fault_is_found)
{
    uint32_t n_worlds = 0;
    for (bool found = false; !found && n_worlds < MOST_WORLDS; n_worlds++) {
        struct planted p = {9000 + n_worlds, faults[_i].fault};
        found = random_world_fails(run_planted, &p);
    }
    if (faults[_i].fault == KVC_NO_FAULT)
        ck_assert_msg(n_worlds == MOST_WORLDS, "found a fault that isn't there");
    else
        ck_assert_msg(n_worlds < MOST_WORLDS, "%s is not found in %u worlds", faults[_i].name,
                      n_worlds);
    printf("planted: %s: %u worlds\n", faults[_i].name, n_worlds);
}
END_TEST

START_TEST(the_run_has_met_everything)
{
    for (uint32_t i = 0; i < N_TAG_COUNTS; i++)
        ck_assert_msg(random_counts->n[i] > 0, "no world has met: %s", tag_names[i]);
}
END_TEST

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

int main(void)
{
    char folder[] = "/tmp/millrace-tag-XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    tag_folder = folder;
    random_counts_open(tag_names, N_TAG_COUNTS);
    Suite *suite = suite_create("scheduler/tag_random");
    TCase *tc = tcase_create("random");
    tcase_add_loop_test(tc, any_order_of_operations_gives_each_request_its_own_tokens_once, 0,
                        (int)random_worlds(N_OPS));
    if (random_worlds(N_OPS) >= RANDOM_FULL_WORLDS) {
        tcase_add_loop_test(tc, a_planted_fault_is_found, 0, N_FAULTS);
        tcase_add_test(tc, the_run_has_met_everything);
    }
    suite_add_tcase(suite, tc);
    int rc = run_suite(suite);
    random_counts_print("tag_random");
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}
