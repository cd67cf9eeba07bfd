/* What the scheduler writes into its journal. Thread: engine, but for note_prints. */
#include "scheduler/notes.h"

#include <sys/random.h>

#include "base/mem.h"
#include "scheduler/journal.h"

/* Fingerprints in a journal must not allow guesses of a prompt to be tested. */
void notes_init(struct sched *s)
{
    const struct sched_limits *l = &s->limits;
    struct journal_config *c = &s->journal.config;
    journal_init(&s->journal, l->journal_bytes);
    if (getrandom(&s->print_secret, sizeof(s->print_secret), 0) != sizeof(s->print_secret))
        s->print_secret = clock_ns();
    *c = (struct journal_config){
        .max_running = l->max_running,
        .max_queued = l->max_queued,
        .max_batch_tokens = l->max_batch_tokens,
        .chunk_max = l->chunk_max,
        .step_target_ms = l->step_target_ms,
        .max_context = l->max_context,
        .block_tokens = s->layout.n_slots,
        .n_groups = s->layout.n_groups,
        .prefix = s->memory.prefix,
        .reserve = l->reserve,
        .preempt = l->preempt,
    };
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        c->group[g].window = s->layout.group[g].window;
        c->group[g].block_bytes = s->layout.group[g].block_bytes;
        c->group[g].n_frames = s->n_frames[g];
        c->group[g].n_file = s->memory.tier_ops ? s->memory.n_file[g] : 0;
        c->group[g].n_host = s->n_slots_total[g] - c->group[g].n_file;
    }
}

/* Equal prompts of two salts share nothing. */
static uint64_t print_root(const struct sched *s, const struct request *r)
{
    uint64_t root = s->print_secret;
    for (uint32_t i = 0; r->salt && i < r->n_salt_bytes; i++)
        root = (root ^ (unsigned char)r->salt[i]) * 0x100000001b3ull;
    return root;
}

/* In the submitting thread: the engine thread only copies. */
void note_prints(const struct sched *s, struct req *q)
{
    uint32_t n = q->r->n_prompt / s->layout.n_slots;
    if (!s->journal.cap)
        return;
    q->print_state = print_root(s, q->r);
    if (n == 0)
        return;
    q->print = mem_alloc(n * sizeof(*q->print));
    q->n_print = journal_fingerprint(&q->print_state, q->r->prompt, q->r->n_prompt,
                                     s->layout.n_slots, q->print, n);
}

static struct journal_record *put(struct sched *s, const struct req *q, enum journal_kind kind,
                                  uint64_t at_ns)
{
    struct journal_record *n = journal_put(&s->journal, kind, at_ns);
    if (n)
        n->request = (uint32_t)q->r->id;
    return n;
}

static uint64_t arrival(const struct req *q)
{
    return q->r->arrive_ns ? q->r->arrive_ns : q->queued_ns;
}

void note_submit(struct sched *s, const struct req *q)
{
    struct journal_record *n = put(s, q, JOURNAL_SUBMIT, arrival(q));
    if (!n)
        return;
    n->n_choices = (uint16_t)q->r->n_choices;
    n->u.submit.n_prompt = q->r->n_prompt;
    n->u.submit.max_tokens = q->r->max_tokens;
    n->u.submit.tenant = q->r->tenant;
    n->u.submit.priority = q->r->priority;
    journal_prompt(&s->journal, arrival(q), (uint32_t)q->r->id, q->print, q->n_print);
}

void note_cancel(struct sched *s, const struct req *q)
{
    put(s, q, JOURNAL_CANCEL, s->now_ns);
}

static uint16_t short_of(uint32_t n)
{
    return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX;
}

void note_idle(struct sched *s)
{
    s->noted_ns = 0;
}

void note_step(struct sched *s, const struct step *t)
{
    uint64_t last_ns = s->noted_ns;
    s->noted_ns = s->now_ns;
    struct journal_record *n = journal_put(&s->journal, JOURNAL_STEP, t->begin_ns);
    if (!n)
        return;
    n->u.step.took_ns = s->now_ns - t->begin_ns;
    n->u.step.kv_read = t->kv_read;
    n->u.step.between_ns = last_ns ? t->begin_ns - last_ns : 0;
    n->u.step.n_rows = t->batch.n_rows;
    n->u.step.n_spans = t->batch.n_spans;
    n->u.step.n_outs = t->batch.n_outs;
    n->u.step.n_prompt_rows = t->n_prompt_rows;
    n->u.step.n_preempted =
        short_of((uint32_t)(s->n_preempted[0] + s->n_preempted[1] - s->seen.n_preempted));
    s->seen.n_preempted = s->n_preempted[0] + s->n_preempted[1];
    n->u.step.n_queued = short_of(tenants_n_queued(s->tenants));
    n->u.step.n_running = short_of(s->running.n_held);
}

static uint32_t ps_of(double ns)
{
    return ns > 0 && ns < 1e6 ? (uint32_t)(ns * 1000) : 0;
}

void note_costs(const struct sched *s, struct journal_config *c)
{
    const struct sched_memory *m = &s->memory;
    if (!m->tier_ops)
        return;
    struct kv_tier_costs costs = m->tier_ops->costs(m->tier);
    c->ram_ps_byte = ps_of(costs.ram_ns_byte);
    c->write_ps_byte = ps_of(costs.file_write_ns_byte);
    c->read_ps_byte = ps_of(costs.file_read_ns_byte);
}

/* A conversation's next prompt begins with what the first choice said. */
static void note_output(struct sched *s, const struct req *q)
{
    if (!q->seq || !s->journal.cap)
        return;
    const struct seq *first = &q->seq[0];
    uint32_t n_slots = s->layout.n_slots, at = q->n_print * n_slots;
    uint32_t n_known = first->n_dropped ? 0 : q->r->n_prompt + first->n_out;
    uint32_t print[JOURNAL_PROMPT_PRINTS];
    uint64_t state = q->print_state;
    while (at + n_slots <= n_known) {
        uint32_t n = journal_fingerprint(&state, first->tokens + at, n_known - at, n_slots, print,
                                         JOURNAL_PROMPT_PRINTS);
        journal_prompt(&s->journal, s->now_ns, (uint32_t)q->r->id, print, n);
        at += n * n_slots;
    }
}

void note_end(struct sched *s, const struct req *q, const struct err *e)
{
    struct journal_record *n = put(s, q, JOURNAL_END, s->now_ns);
    if (!n)
        return;
    n->status = e ? (uint8_t)-e->status : 0;
    n->u.end.queue_ns = q->watch.spent.ns[TIMING_queue];
    n->u.end.first_token_ns = q->first_token_ns ? q->first_token_ns - arrival(q) : 0;
    n->u.end.n_output = q->n_output;
    n->u.end.n_cached = q->n_cached;
    note_output(s, q);
}
