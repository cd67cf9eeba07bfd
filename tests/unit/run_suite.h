/* main of a unit test: runs one suite; prints failures to stdout, and sets the exit status if there
 * were any. */
#ifndef TESTS_UNIT_RUN_SUITE_H
#define TESTS_UNIT_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

/* ck_assert for inner loops: ck_assert reports each success to the parent process. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #condition);                             \
    } while (0)

/* Check kills a test after 4 s unless the environment says otherwise when its case is made, which is
 * before main comes here: a busy machine must not make a right program look wrong. ctest's limit
 * ends a test that hangs. */
__attribute__((constructor)) static void run_suite_without_clock(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "0", 1);
}

static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed != 0;
}

#endif
