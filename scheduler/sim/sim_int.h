/* Inside of the simulator: the world that the scheduler runs in. For sim*.c only. */
#ifndef SCHEDULER_SIM_SIM_INT_H
#define SCHEDULER_SIM_SIM_INT_H

#include "scheduler/scheduler.h"
#include "scheduler/sim/simulate.h"

enum { SIM_VOCAB = 1 << 24, SIM_STOP_TOKEN = 0, SIM_JOBS = 32 };

struct sim_copy {
    struct kv_job job;
    uint64_t end_ns;
};

/* A backend that costs time, and a tier whose copies end when they are due. */
struct sim_world {
    struct backend be;
    struct kv_arena arena; /* no bytes */
    struct kv_layout layout;
    struct sched_memory memory;
    const struct sim_trace *trace; /* borrows */
    struct sim_cost cost;
    double ram_ns_byte, write_ns_byte, read_ns_byte;
    struct batch *in_flight;
    uint64_t n_steps, n_rows, busy_ns;
    struct sim_copy copy[SIM_JOBS]; /* a ring: one channel, first in first out */
    uint32_t copy_head, n_copies;
    uint64_t channel_ns; /* the last copy ends then */
};

void sim_world_init(struct sim_world *w, const struct sim_trace *t, const struct sim_options *o);
/* When the next copy ends; 0: none is out. */
uint64_t sim_world_next_ns(const struct sim_world *w);
/* Token of a request's history at a position: equal where the blocks' prints are. */
int32_t sim_token(const struct sim_trace *t, uint32_t request, uint32_t block_tokens, uint32_t pos);

#endif
