/* What only tests ask of base/. */
#ifndef BASE_BASE_TEST_H
#define BASE_BASE_TEST_H

#include "base/ledger.h"
#include "base/metrics.h"
#include "base/status.h"

/* Calls of mem_alloc/realloc/try/aligned of this thread so far: the step path makes none. */
uint64_t mem_thread_allocs(void);
/* The n-th try allocation from now on of this thread fails (0 = off). */
void mem_fail_after(uint64_t n);

double metrics_value(const struct metrics *m, int id, const char *label_values);
uint64_t ledger_used(const struct ledger *l);
const char *status_name(enum status status);
const char *status_text(enum status status);

#endif
