/* The step journal: what happened in the scheduler, as fixed-size records in a bounded ring.
 *
 * Enough to run the same load again (`millrace simulate`): the limits, every request's arrival with its
 * lengths and a fingerprint of each block of its prompt and, at its end, of its output (equal beginnings
 * stay equal, texts cannot be read back), cancels, every step's rows and time, every end. The oldest records go first; a request's record and
 * those with its fingerprints may be cut apart at the ring's tail, readers skip what has no head.
 *
 * Thread: engine, but for journal_fingerprint. Nothing allocates after journal_init. */
#ifndef SCHEDULER_JOURNAL_H
#define SCHEDULER_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* X(id, name) */
#define JOURNAL_KINDS(X)                                                                           \
    X(NONE, "none")                                                                                \
    X(CONFIG, "config")                                                                            \
    X(SUBMIT, "submit")                                                                            \
    X(PROMPT, "prompt")                                                                            \
    X(CANCEL, "cancel")                                                                            \
    X(STEP, "step")                                                                                \
    X(END, "end")

enum journal_kind {
#define X(id, name) JOURNAL_##id,
    JOURNAL_KINDS(X)
#undef X
        N_JOURNAL_KINDS
};

enum { JOURNAL_PROMPT_PRINTS = 12 }; /* fingerprints a record */

/* Limits and sizes that a replay needs; one of them stands outside the ring. */
struct journal_config {
    uint32_t max_running, max_queued, max_batch_tokens, chunk_max, step_target_ms, max_context;
    uint32_t block_tokens, n_groups;
    struct journal_group {
        uint32_t window, n_frames, n_host, n_file;
        uint64_t block_bytes;
    } group[2];
    uint32_t prefix; /* not 0: the prefix cache is on */
    uint32_t reserve, preempt; /* enum sched_reserve, enum sched_preempt */
    uint32_t ram_ps_byte, write_ps_byte, read_ps_byte; /* copies, measured; 0: not known */
};

/* 64 bytes. */
struct journal_record {
    uint64_t at_ns; /* clock_ns(); a submit's: its arrival */
    uint32_t request; /* low bits of the request's id; 0 for steps */
    uint8_t kind; /* enum journal_kind */
    uint8_t status; /* END: -(enum status); 0 = finished */
    uint16_t n_choices; /* SUBMIT */
    union {
        struct {
            uint32_t n_prompt, max_tokens, tenant; /* tenant: its slot */
            int32_t priority;
        } submit;
        uint32_t print[JOURNAL_PROMPT_PRINTS]; /* PROMPT: the next blocks'; 0: none, or filler */
        struct {
            uint64_t took_ns, kv_read;
            uint64_t between_ns; /* since the step before; 0: the engine had nothing to do then */
            uint32_t n_rows, n_spans, n_outs, n_prompt_rows;
            uint16_t n_preempted, n_swaps, n_queued, n_running;
        } step;
        struct {
            uint64_t queue_ns, first_token_ns; /* since arrival; first_token_ns 0: none */
            uint32_t n_output, n_cached;
        } end;
    } u;
};

struct journal {
    struct journal_record *ring; /* owns [cap]; NULL: off */
    uint32_t cap;
    uint64_t n; /* records ever put */
    struct journal_config config;
};

/* n_bytes: of the ring; less than one record turns it off. */
void journal_init(struct journal *j, uint64_t n_bytes);
void journal_release(struct journal *j);

/* The next record of a kind, zeroed but for kind and time; NULL when the journal is off. */
struct journal_record *journal_put(struct journal *j, enum journal_kind kind, uint64_t at_ns);

/* Fingerprints of the full blocks in tokens: print[i] tells all tokens up to the end of block i apart, also
 * those of earlier calls with this state, which begins as a secret of the process. Returns how many, at
 * most cap. About a ns a token. Any thread. */
uint32_t journal_fingerprint(uint64_t *state, const int32_t *tokens, uint32_t n_tokens,
                             uint32_t block_tokens, uint32_t *print, uint32_t cap);
void journal_prompt(struct journal *j, uint64_t at_ns, uint32_t request, const uint32_t *print,
                    uint32_t n);

/* Records that are still there, oldest first: copies [from, from + cap) of them; *n_all of them exist. */
uint32_t journal_copy(const struct journal *j, uint64_t from, struct journal_record *to,
                      uint32_t cap, uint64_t *n_all);

/* ---- journal_text.c: a JSON object a line. Any thread. ---- */
void journal_write_config(struct buf *out, const struct journal_config *c);
void journal_write(struct buf *out, const struct journal_record *r);
/* One line back; unknown members are skipped. Kind JOURNAL_CONFIG fills c and leaves r's union, others
 * fill r. An unknown kind gives JOURNAL_NONE; ERR_FORMAT when it is no object or a member is no number
 * that fits. */
enum status journal_read(struct str line, struct journal_record *r, struct journal_config *c,
                         struct err *e);

#endif
