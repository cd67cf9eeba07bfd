/* Random operations on the KV cache's books against a naive reference (cache_model.h), and tests of that
 * test: faults planted in the books are found.
 *
 * MILLRACE_RANDOM_OPS and MILLRACE_RANDOM_SEED choose another run. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/kvpool/cache_model.h"
#include "tests/unit/run_suite.h"

enum { DEFAULT_OPS = 400000, FAULT_OPS = 2000000 };

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(every_visible_position_reads_its_own_tag_and_every_invariant_holds_after_each_operation)
{
    static struct model m;
    m.audits = true;
    model_run(&m, number_from("MILLRACE_RANDOM_SEED", 1),
              number_from("MILLRACE_RANDOM_OPS", DEFAULT_OPS));
    printf("%llu operations: %llu growths, %llu hits, %llu tail copies, %llu loads, %llu spills, "
           "%llu failed copies, %llu blocks paged out, %llu slid out, %llu undone, %llu evicted, "
           "%llu lost\n",
           (unsigned long long)m.n_ops, (unsigned long long)m.n_grown, (unsigned long long)m.n_hits,
           (unsigned long long)m.n_copies, (unsigned long long)m.n_loads,
           (unsigned long long)m.n_spills, (unsigned long long)m.n_failed,
           (unsigned long long)m.n_paged, (unsigned long long)m.n_slides,
           (unsigned long long)m.n_undone, (unsigned long long)m.n_evicted,
           (unsigned long long)m.n_lost);
    /* A run that reaches none of these would prove nothing. */
    ck_assert_uint_gt(m.n_hits, 0);
    ck_assert_uint_gt(m.n_copies, 0);
    ck_assert_uint_gt(m.n_loads, 0);
    ck_assert_uint_gt(m.n_failed, 0);
    ck_assert_uint_gt(m.n_paged, 0);
    ck_assert_uint_gt(m.n_slides, 0);
    ck_assert_uint_gt(m.n_undone, 0);
    ck_assert_uint_gt(m.n_evicted, 0);
    ck_assert_uint_gt(m.n_lost, 0);
}
END_TEST

/* A process of its own: a fault may well end in an abort. */
static bool fault_is_found(enum kvc_fault fault, bool audits)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        static struct model m;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        m.audits = audits;
        m.fault = fault;
        model_run(&m, 1, FAULT_OPS);
        _Exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

START_TEST(each_planted_fault_is_found_with_the_audit)
{
    ck_assert_msg(fault_is_found((enum kvc_fault)_i, true), "fault %d was not found", _i);
}
END_TEST

START_TEST(each_planted_fault_is_found_by_the_tags_alone)
{
    ck_assert_msg(fault_is_found((enum kvc_fault)_i, false), "fault %d was not found", _i);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool: cache, random");
    TCase *t = tcase_create("random");
    tcase_add_test(
        t, every_visible_position_reads_its_own_tag_and_every_invariant_holds_after_each_operation);
    suite_add_tcase(s, t);
    t = tcase_create("planted faults");
    tcase_add_loop_test(t, each_planted_fault_is_found_with_the_audit, KVC_NO_FAULT + 1,
                        KVC_N_FAULTS);
    tcase_add_loop_test(t, each_planted_fault_is_found_by_the_tags_alone, KVC_NO_FAULT + 1,
                        KVC_N_FAULTS);
    suite_add_tcase(s, t);
    return run_suite(s);
}
