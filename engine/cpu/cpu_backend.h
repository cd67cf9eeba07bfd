/* The CPU behind engine/backend.h: submit computes the whole step on the calling thread and the
 * workers, collect returns it. All scratch is sized here from the limits; a step allocates
 * nothing. */
#ifndef ENGINE_CPU_CPU_BACKEND_H
#define ENGINE_CPU_CPU_BACKEND_H

#include "engine/backend.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/pool.h"

/* m, k, pool and kv (of cpu_kv_new) are borrowed and must outlive the backend. activations: enum settings_cpu_activations. */
enum status cpu_backend_new(const struct cpu_model *m, const struct kernels *k, struct pool *pool,
                            int activations, struct kv_store *kv, const struct kv_layout *layout,
                            struct backend_limits limits, struct backend **out, struct err *e);

#endif
