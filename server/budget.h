/* How much memory clients may make the server keep: from the option, or from the memory there is beside
 * the model. Thread: main. */
#ifndef SERVER_BUDGET_H
#define SERVER_BUDGET_H

#include <stdint.h>

#include "config/settings.h"

/* memory_bytes: what the process may have in all. fixed_bytes: weights, KV arena, scratch. Without the
 * option server.memory: three quarters (allocators waste some) of what is left beside both, the program,
 * and the bodies that are being prepared; at least BUDGET_LEAST_BYTES. */
enum { BUDGET_LEAST_BYTES = 16 << 20 };
uint64_t budget_bytes(const struct settings *set, uint64_t memory_bytes, uint64_t fixed_bytes);

/* Memory that the process may have in all, at its start: what kv_free_bytes() then says. Later it may be
 * less: what RLIMIT_AS leaves counts when the model is mapped. */
uint64_t budget_within_limits(uint64_t memory_bytes, uint64_t fixed_bytes);

#endif
