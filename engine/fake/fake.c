/* The fake backend's steps; see fake.h.
 *
 * A slot holds (position, token, chain) with chain_p = fake_mix(chain_{p-1}, token_p). Per layer group, a span
 * reads the slots of all positions that its rows see and checks that they form one chain: starting at position
 * 0 in a group without a window, and ending in the same tag in every group. At an output the history is
 * hashed again (all of it, or the part that overflow=sinks keeps) and compared with the slots read. */
#include "engine/fake/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/grammar/grammar.h"
#include "engine/fake/fake_int.h"

#define CHAIN_START 0x9e3779b97f4a7c15ull
#define NO_POSITION 0xffffffffu

uint64_t fake_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + CHAIN_START + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t fake_chain_next(uint64_t chain, int32_t token)
{
    return fake_mix(chain, (uint32_t)token);
}

uint64_t fake_chain(const int32_t *history, uint32_t n)
{
    uint64_t chain = CHAIN_START;
    for (uint32_t i = 0; i < n; i++)
        chain = fake_chain_next(chain, history[i]);
    return chain;
}

static int32_t token_of(uint64_t chain, uint32_t n_vocab)
{
    return (int32_t)(fake_mix(chain, 1) % n_vocab);
}

int32_t fake_next_token(const int32_t *history, uint32_t n, uint32_t n_vocab)
{
    return token_of(fake_chain(history, n), n_vocab);
}

static bool banned(const struct sample_job *job, int32_t token)
{
    for (uint32_t i = 0; i < job->n_ban; i++) {
        if (job->ban[i] == token)
            return true;
    }
    return false;
}

/* Draws a token from the tag that was read; a banned token is replaced by the next one, at most once around. */
/* The grammar's mask, in the job's buffer for it; NULL: everything is allowed. */
static const uint32_t *mask_of(const struct sample_job *job)
{
    if (!job->match)
        return NULL;
    struct gram_scratch *scratch = gram_scratch_new();
    const uint32_t *mask = gram_mask(job->match, job->mask, scratch);
    gram_scratch_free(scratch);
    return mask;
}

static bool allowed(const struct sample_job *job, const uint32_t *mask, int32_t token)
{
    return !banned(job, token) && (!mask || (mask[token / 32] >> (token % 32) & 1));
}

int32_t fake_chain_token(const struct sample_job *job, uint64_t chain, uint32_t n_vocab)
{
    if (job->params->temperature > 0)
        chain = fake_mix(fake_mix(chain, job->params->seed), job->choice + 1);
    int32_t token = token_of(chain, n_vocab);
    const uint32_t *mask = mask_of(job);
    for (uint32_t i = 0; i < n_vocab && !allowed(job, mask, token); i++)
        token = (int32_t)(((uint32_t)token + 1) % n_vocab);
    return token;
}

int32_t fake_job_token(const struct sample_job *job, uint32_t n_vocab)
{
    return fake_chain_token(job, fake_chain(job->history, job->n_history), n_vocab);
}

float fake_chain_logprob(uint64_t chain, int32_t token)
{
    return -(float)(fake_mix(chain, 2 + (uint64_t)token) % 1000) / 100.0f;
}

float fake_logprob(const int32_t *history, uint32_t n, int32_t token)
{
    return fake_chain_logprob(fake_chain(history, n), token);
}

/* Descending by construction: the alternatives are invented too. */
static void report(struct sample_job *job, uint64_t chain, uint32_t n_vocab)
{
    job->logprob = fake_chain_logprob(chain, job->token);
    job->n_top = 0;
    for (int32_t i = 0; i < job->params->n_top; i++) {
        job->top_token[i] = (int32_t)(((uint32_t)job->token + (uint32_t)i) % n_vocab);
        job->top_logprob[i] = -(float)i;
        job->n_top++;
    }
}

void fake_wrong(struct fake *f, const char *format, ...)
{
    if (f->n_mismatches++)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(f->mismatch, sizeof(f->mismatch), format, args);
    va_end(args);
}

static struct fake_slot *slot_at(struct fake *f, const struct batch_span *s, uint32_t group,
                                 uint32_t pos)
{
    uint32_t phys = s->table[group][pos / f->n_slots];
    if (phys >= f->n_phys[group]) {
        fake_wrong(f, "step %llu, group %u: position %u lies in block %u, there are %u",
                   (unsigned long long)f->now, group, pos, phys, f->n_phys[group]);
        phys = 0;
    }
    return fake_block(f, group, phys) + pos % f->n_slots;
}

/* The lowest position that a row at position pos sees. */
static uint32_t sees_from(const struct fake *f, uint32_t group, uint32_t pos)
{
    uint32_t window = f->be.layout.group[group].window;
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

static void write_row(struct fake *f, const struct batch_span *s, uint32_t group, uint32_t pos,
                      struct fake_slot row)
{
    struct fake_slot *own = slot_at(f, s, group, pos);
    uint32_t phys = s->table[group][pos / f->n_slots];
    if (own->step == f->now)
        fake_wrong(f, "step %llu, group %u: two rows write slot %u of block %u",
                   (unsigned long long)f->now, group, pos % f->n_slots, phys);
    if (phys >= f->n_frames[group] || fake_tier_writes(f, group, phys) ||
        fake_store_writes(f, group, phys))
        fake_wrong(f,
                   "step %llu, group %u: position %u is written to block %u, which is no frame "
                   "or being loaded",
                   (unsigned long long)f->now, group, pos, phys);
    *own = row;
}

static void write_span(struct fake *f, struct batch_span *s, const int32_t *token)
{
    uint64_t chain = s->pos0 ? slot_at(f, s, 0, s->pos0 - 1)->chain : CHAIN_START;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        chain = fake_chain_next(chain, token[i]);
        struct fake_slot row = {chain, f->now, s->pos0 + i, token[i]};
        for (uint32_t g = 0; g < f->n_groups; g++)
            write_row(f, s, g, s->pos0 + i, row);
        s->finite &= !f->o.kv_finite || f->o.kv_finite(chain);
    }
}

/* Reads the slots that the span's rows see in a group; returns the tag that its last position must have. */
static uint64_t read_group(struct fake *f, const struct batch_span *s, uint32_t group)
{
    uint32_t from = sees_from(f, group, s->pos0), end = s->pos0 + s->n_rows;
    uint64_t chain = CHAIN_START;
    for (uint32_t p = from; p < end; p++) {
        const struct fake_slot *slot = slot_at(f, s, group, p);
        chain = p == from && from > 0 ? slot->chain : fake_mix(chain, (uint32_t)slot->token);
        if (slot->position == p && slot->chain == chain && (slot->step == f->now) == (p >= s->pos0))
            continue;
        fake_wrong(
            f,
            "step %llu, group %u: block %u holds position %d of another history or step %llu "
            "where position %u of span at %u was to be read",
            (unsigned long long)f->now, group, s->table[group][p / f->n_slots], (int)slot->position,
            (unsigned long long)slot->step, p, s->pos0);
        return fake_mix(slot->chain, chain);
    }
    return chain;
}

static void check_staged(struct fake *f, const struct batch_span *s)
{
    uint32_t n[KV_MAX_GROUPS] = {0}, end = s->pos0 + s->n_rows;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        uint32_t first = sees_from(f, g, s->pos0) / f->n_slots;
        for (uint32_t i = first; i * f->n_slots < end; i++)
            n[g] += s->table[g][i] >= f->n_file_first[g];
    }
    if (n[0] != s->n_staged || (f->n_groups > 1 && n[1]))
        fake_wrong(f, "step %llu: span at %u says %u blocks of the file, its tables name %u and %u",
                   (unsigned long long)f->now, s->pos0, s->n_staged, n[0], n[1]);
}

static void read_span(struct fake *f, const struct batch_span *s)
{
    check_staged(f, s);
    uint64_t chain = read_group(f, s, 0);
    for (uint32_t g = 1; g < f->n_groups; g++) {
        if (read_group(f, s, g) != chain)
            fake_wrong(f, "step %llu, group %u: another history than group 0's, span at %u",
                       (unsigned long long)f->now, g, s->pos0);
    }
}

static void check_shape(struct fake *f, const struct batch *b)
{
    const struct backend_limits *l = &f->be.limits;
    uint32_t row = 0, n_staged = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        CHECK(b->span[i].row0 == row && b->span[i].n_rows >= 1);
        row += b->span[i].n_rows;
        n_staged += b->span[i].n_staged;
    }
    CHECK(row == b->n_rows && b->n_rows >= 1);
    CHECK(b->n_rows <= l->max_rows && b->n_spans <= l->max_spans && b->n_outs <= l->max_outs);
    CHECKF(n_staged <= l->max_staged, "%u blocks of the file, staging takes %u", n_staged,
           l->max_staged);
    for (uint32_t i = 0; i < b->n_outs; i++)
        CHECK(b->out[i].row < b->n_rows && (i == 0 || b->out[i].row > b->out[i - 1].row));
}

/* The tag that n positions must lead to. A longer history had its middle removed (overflow=sinks): its
 * first block and its latest tokens remain. */
static uint64_t chain_left(const struct fake *f, const struct sample_job *job, uint32_t n)
{
    uint32_t n_first = job->n_history > n ? f->n_slots : n;
    if (job->n_history < n || n < n_first)
        return ~0ull;
    uint64_t chain = fake_chain(job->history, n_first);
    for (uint32_t i = job->n_history - (n - n_first); i < job->n_history; i++)
        chain = fake_chain_next(chain, job->history[i]);
    return chain;
}

static void run_out(struct fake *f, struct batch_out *o, const struct batch_span *s)
{
    struct sample_job *job = &o->job;
    uint32_t pos = s->pos0 + o->row - s->row0;
    uint64_t chain = slot_at(f, s, 0, pos)->chain;
    if (s->lost) {
        job->token = -1;
        return;
    }
    if (chain != chain_left(f, job, pos + 1))
        fake_wrong(f, "step %llu: output at position %u read another history",
                   (unsigned long long)f->now, pos);
    if (f->o.logits_finite && !f->o.logits_finite(chain))
        job->token = -1;
    else if (f->o.script)
        job->token = job->given >= 0 ? job->given : f->o.script(f->o.script_arg, job);
    else
        job->token = job->given >= 0 ? job->given : fake_chain_token(job, chain, f->be.n_vocab);
    if (job->token >= 0 && job->params->n_top >= 0)
        report(job, chain, f->be.n_vocab);
}

static void advance_clock(const struct fake *f, const struct batch *b)
{
    uint64_t n_read = 0;
    for (uint32_t i = 0; i < b->n_spans; i++)
        n_read += (uint64_t)b->span[i].n_rows * b->span[i].pos0 +
                  (uint64_t)b->span[i].n_rows * (b->span[i].n_rows + 1) / 2;
    uint64_t ns = f->o.step_base_ns + f->o.step_row_ns * b->n_rows + f->o.step_kv_ns * n_read;
    if (ns)
        clock_fake_advance(ns);
}

static void write_garbage(struct fake *f, const struct batch_span *s)
{
    for (uint32_t g = 0; g < f->n_groups; g++) {
        for (uint32_t p = s->pos0; p < s->pos0 + s->n_rows; p++)
            write_row(f, s, g, p, (struct fake_slot){~0ull, f->now, NO_POSITION, -1});
    }
}

static enum status fail_step(struct fake *f, const struct batch *b, struct err *e)
{
    f->n_fail--;
    for (uint32_t i = 0; i < b->n_spans; i++)
        write_garbage(f, &b->span[i]);
    return err_set(e, ERR_INTERNAL, "step fails as the test asked");
}

static void start_span(struct fake *f, struct batch_span *s, const int32_t *token)
{
    s->finite = true;
    s->lost = s->n_staged > 0 && f->n_fail_reads > 0;
    if (s->lost) {
        f->n_fail_reads--;
        write_garbage(f, s);
    } else {
        write_span(f, s, token);
    }
}

static void run_copy(struct fake *f, const struct fake_copy *c)
{
    if (fake_tier_writes(f, c->group, c->src) || fake_tier_writes(f, c->group, c->dst))
        fake_wrong(f, "copy of block %u to %u of group %u, one of which is being loaded", c->src,
                   c->dst, c->group);
    for (uint32_t i = 0; i < f->n_slots; i++)
        fake_block(f, c->group, c->dst)[i] = fake_block(f, c->group, c->src)[i];
}

static bool is_due(const struct fake *f, uint64_t number)
{
    return f->n_copies > 0 && f->copy[0].before <= number;
}

/* Runs the copies that were submitted before step `number`. */
static void run_copies(struct fake *f, uint64_t number)
{
    while (is_due(f, number)) {
        run_copy(f, &f->copy[0]);
        memmove(f->copy, f->copy + 1, --f->n_copies * sizeof(*f->copy));
    }
}

static enum status run_step(struct fake *f, struct batch *b, struct err *e)
{
    if (f->n_fail)
        return fail_step(f, b, e);
    uint32_t next_out = 0;
    for (uint32_t i = 0; i < b->n_spans; i++)
        start_span(f, &b->span[i], b->token + b->span[i].row0);
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct batch_span *s = &b->span[i];
        if (!s->lost)
            read_span(f, s);
        for (; next_out < b->n_outs && b->out[next_out].row < s->row0 + s->n_rows; next_out++)
            run_out(f, &b->out[next_out], s);
    }
    advance_clock(f, b);
    return OK;
}

/* Runs everything up to step `number`, in the order of submit. */
static void run_until(struct fake *f, uint64_t number)
{
    fake_enter(f);
    for (uint32_t i = 0; i < f->n_flight && f->flight[i].number <= number; i++) {
        struct fake_step *s = &f->flight[i];
        if (s->ran)
            continue;
        run_copies(f, s->number);
        f->now = s->number;
        s->status = run_step(f, s->b, &s->e);
        s->ran = true;
    }
    fake_leave(f);
}

/* With runs_late, steps in flight run when they are collected or, at random, somewhat earlier. */
static bool runs_now(const struct fake *f, uint64_t number, uint64_t when)
{
    return !f->o.runs_late || fake_mix(number, when) % 4 == 0;
}

static struct fake_step take_oldest(struct fake *f)
{
    struct fake_step s = f->flight[0];
    f->n_flight--;
    memmove(f->flight, f->flight + 1, f->n_flight * sizeof(*f->flight));
    return s;
}

static enum status fake_submit(struct backend *be, struct batch *b, uint64_t *ticket, struct err *e)
{
    struct fake *f = (struct fake *)be;
    CHECK(f->n_flight < BACKEND_MAX_FLIGHT);
    uint64_t number = ++f->n_steps;
    check_shape(f, b);
    if (f->watch)
        f->watch(f->watch_arg, b);
    f->flight[f->n_flight++] = (struct fake_step){.b = b, .number = number};
    *ticket = number;
    if (runs_now(f, number, 0))
        run_until(f, number);
    else if (runs_now(f, number, 1))
        run_until(f, number - 1);
    if (f->o.runs_late || f->flight[f->n_flight - 1].status == OK)
        return OK;
    *e = f->flight[--f->n_flight].e;
    return e->status;
}

static enum status fake_collect(struct backend *be, uint64_t ticket, struct batch **b,
                                struct err *e)
{
    struct fake *f = (struct fake *)be;
    if (f->meanwhile)
        f->meanwhile(f->meanwhile_arg);
    CHECKF(f->n_flight > 0 && ticket == f->flight[0].number, "ticket %llu is not the oldest",
           (unsigned long long)ticket);
    run_until(f, runs_now(f, ticket, 2) ? f->n_steps : ticket);
    struct fake_step s = take_oldest(f);
    *b = s.b;
    if (s.status != OK)
        *e = s.e;
    return s.status;
}

static enum status fake_copy_block(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                                   struct err *e)
{
    struct fake *f = (struct fake *)be;
    if (group >= f->n_groups || src >= f->n_phys[group] || dst >= f->n_frames[group])
        return err_set(e, ERR_INTERNAL, "copy of block %u to %u of group %u, there are %u frames",
                       src, dst, group, f->n_frames[group < f->n_groups ? group : 0]);
    CHECK(f->n_copies < f->max_copies);
    f->copy[f->n_copies++] = (struct fake_copy){f->n_steps + 1, group, src, dst};
    if (!f->o.runs_late) {
        fake_enter(f);
        run_copies(f, f->n_steps + 1);
        fake_leave(f);
    }
    return OK;
}

static void fake_close(struct backend *be)
{
    struct fake *f = (struct fake *)be;
    for (uint32_t i = 0; i < f->o.max_jobs; i++)
        mem_free(f->job[i].move.early);
    fake_memory_free(f);
    mem_free(f->job);
    mem_free(f->done);
    mem_free(f->copy);
    mem_free(f);
}

static const struct backend_ops ops = {fake_submit, fake_collect, fake_copy_block, fake_close};

static void make_queues(struct fake *f)
{
    f->max_copies = BACKEND_MAX_FLIGHT * (f->be.limits.max_spans + 1) * KV_MAX_GROUPS;
    f->copy = mem_zalloc(mem_mul(f->max_copies, sizeof(*f->copy)));
    f->job = mem_zalloc(mem_mul(f->o.max_jobs, sizeof(*f->job)));
    f->done = mem_zalloc(mem_mul(f->o.max_jobs, sizeof(*f->done)));
    for (uint32_t i = 0; i < f->o.max_jobs; i++)
        f->job[i].move.early = mem_zalloc(mem_mul(f->n_slots, sizeof(*f->job[i].move.early)));
}

enum status fake_backend_new(const struct kv_arena *arena, const struct kv_layout *layout,
                             struct backend_limits limits, const struct fake_options *o,
                             struct backend **out, struct err *e)
{
    if (o->n_vocab < 1)
        return err_set(e, ERR_INVALID, "the fake needs a vocabulary");
    if (layout->n_groups < 1 || layout->group[0].window == 1)
        return err_set(e, ERR_INVALID, "the fake's first group sees at least the position before");
    struct fake *f = mem_zalloc(sizeof(*f));
    f->o = *o;
    f->n_slots = layout->n_slots;
    f->n_groups = layout->n_groups;
    f->n_steps = o->first_step;
    f->be = (struct backend){
        .ops = &ops, .layout = *layout, .kv = &f->store, .limits = limits, .n_vocab = o->n_vocab};
    fake_memory_new(f, arena);
    make_queues(f);
    *out = &f->be;
    return OK;
}

uint64_t fake_steps(const struct backend *be)
{
    return ((const struct fake *)be)->n_steps;
}

uint64_t fake_tag_mismatches(const struct backend *be)
{
    return ((const struct fake *)be)->n_mismatches;
}

const char *fake_mismatch(const struct backend *be)
{
    return ((const struct fake *)be)->mismatch;
}

void fake_fail_steps(struct backend *be, uint32_t n)
{
    ((struct fake *)be)->n_fail = n;
}

void fake_fail_reads(struct backend *be, uint32_t n)
{
    ((struct fake *)be)->n_fail_reads = n;
}

void fake_fail_moves(struct backend *be, uint32_t n)
{
    ((struct fake *)be)->n_fail_moves = n;
}

void fake_poison(struct backend *be, uint32_t group, uint32_t first, uint32_t n)
{
    struct fake *f = (struct fake *)be;
    CHECK(group < f->n_groups && first <= f->n_phys[group] && n <= f->n_phys[group] - first);
    fake_enter(f);
    for (uint32_t i = first; i < first + n; i++)
        fake_wipe(f, fake_block(f, group, i));
    fake_leave(f);
}

void fake_set_watch(struct backend *be, void (*watch)(void *arg, const struct batch *b), void *arg)
{
    struct fake *f = (struct fake *)be;
    f->watch = watch;
    f->watch_arg = arg;
}

void fake_set_meanwhile(struct backend *be, void (*meanwhile)(void *arg), void *arg)
{
    struct fake *f = (struct fake *)be;
    f->meanwhile = meanwhile;
    f->meanwhile_arg = arg;
}
