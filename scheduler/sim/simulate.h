/* `millrace simulate`: a recorded load run again through the real scheduler, on a clock of its own, over
 * a backend that only costs time. Answers what more memory, more sequences or a faster machine would
 * change, in seconds, without a model. Called by server/cli/simulate.c, main thread; nothing else may use
 * the clock meanwhile (it is faked). The same trace and options give the same result, bit for bit. */
#ifndef SCHEDULER_SIM_SIMULATE_H
#define SCHEDULER_SIM_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "scheduler/journal.h"

/* ---- a load (sim_trace.c) ---- */

struct sim_request {
    uint64_t at_ns; /* arrival, since the first one */
    uint64_t cancel_ns; /* after its arrival; 0: never */
    uint32_t id, n_prompt, max_tokens, n_choices, tenant;
    uint32_t n_output; /* of each choice, at most max_tokens */
    int32_t priority;
    uint32_t first_print, n_prints; /* of prompt and output, in sim_trace.print */
    bool ended; /* n_output is what it really was */
};

/* Step time in ns: base + row * rows + kv * positions read. */
struct sim_cost {
    double base_ns, row_ns, kv_ns;
};

/* Times in ns, counted in buckets of 1/64 octave: a quantile is within 1.6 %. */
enum { SIM_SUB_BUCKETS = 64, SIM_BUCKETS = SIM_SUB_BUCKETS * 60 };
struct sim_times {
    uint64_t n, max_ns;
    uint64_t bucket[SIM_BUCKETS];
};
void sim_times_add(struct sim_times *t, uint64_t ns);
uint64_t sim_times_quantile(const struct sim_times *t, double part); /* 0 when empty */

struct sim_trace {
    struct journal_config config; /* block_tokens 0: the log has none */
    struct sim_request *request; /* owns; ascending at_ns */
    uint32_t n_requests;
    uint32_t *print; /* owns */
    uint32_t n_prints;
    uint64_t span_ns; /* from the first to the last arrival */
    uint64_t n_steps; /* that the cost comes from; 0: it comes from the requests' times */
    struct sim_cost cost; /* all 0: not known */
    struct sim_times *first_token, *queue; /* own; as they were measured, [1] each */
    struct sim_times *gap; /* owns; access logs: mean time between tokens of each request */
    uint64_t n_skipped; /* lines or records that are no part of a request */
};

/* text: JSON lines of GET /debug/journal, or access log lines, text or JSON. ERR_FORMAT when nothing in
 * it is a request. */
enum status sim_trace_read(struct sim_trace *t, struct str text, struct err *e);
void sim_trace_release(struct sim_trace *t);

/* ---- a run (simulate.c, sim_world.c) ---- */

struct sim_options {
    struct journal_config
        config; /* as it is to be simulated: block_tokens and group[].n_frames set */
    struct sim_cost cost;
    double rate; /* arrivals come so many times as fast; > 0 */
};

struct sim_result {
    uint32_t n_requests, n_finished, n_refused, n_cancelled, n_failed;
    uint64_t n_prompt_tokens, n_output_tokens; /* of finished ones */
    uint64_t n_steps, n_rows, busy_ns;
    uint64_t span_ns; /* from the first arrival to the last end */
    uint64_t n_preempted, n_query_tokens, n_hit_tokens, n_spilled, n_loaded, n_evicted;
    double mean_running, mean_used; /* sequences; part of the arena's frames that are held */
    uint32_t peak_running, peak_used; /* the same; frames */
    struct sim_times first_token, gap, queue;
};

/* ERR_INVALID when the scheduler refuses the limits. */
enum status sim_run(const struct sim_trace *t, const struct sim_options *o, struct sim_result *out,
                    struct err *e);

#endif
