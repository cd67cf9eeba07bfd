/* Functions of base/ that only tests call. */
#ifndef BASE_BASE_TEST_H
#define BASE_BASE_TEST_H

#include "base/ledger.h"
#include "base/metrics.h"
#include "base/status.h"

/* Number of mem_alloc/realloc/try/aligned calls on this thread so far; the step path makes none. */
uint64_t mem_thread_allocs(void);
/* Makes the n-th try allocation on this thread from now on fail (0 = off). */
void mem_fail_after(uint64_t n);

double metrics_value(const struct metrics *m, int id, const char *label_values);
uint64_t ledger_used(const struct ledger *l);
const char *status_name(enum status status);
const char *status_text(enum status status);

#endif
