/* The fake backend; see fake.h.
 *
 * A slot holds (position, token, chain) with chain_p = mix(chain_{p-1}, token_p). A row reads the
 * slots of all positions before it in its own table and checks that they form one chain from position
 * 0 on; at an output the whole history is hashed again and compared with what was read. */
#include "engine/fake/fake.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"

#define CHAIN_START 0x9e3779b97f4a7c15ull
#define NO_POSITION 0xffffffffu

struct slot {
    uint64_t chain;
    uint64_t step; /* that wrote it */
    uint32_t position;
    int32_t token;
};

struct fake {
    struct backend be; /* first: struct backend * is cast back */
    struct fake_options o;
    struct slot *slot; /* owns [n_blocks * n_slots] */
    uint32_t n_slots, n_blocks;
    uint64_t n_steps, n_mismatches;
    uint32_t n_fail;
    struct batch *in_flight;
    void (*watch)(void *arg, const struct batch *b);
    void *watch_arg;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + CHAIN_START + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t chain_of(const int32_t *history, uint32_t n)
{
    uint64_t chain = CHAIN_START;
    for (uint32_t i = 0; i < n; i++)
        chain = mix(chain, (uint32_t)history[i]);
    return chain;
}

static int32_t token_of(uint64_t chain, uint32_t n_vocab)
{
    return (int32_t)(mix(chain, 1) % n_vocab);
}

int32_t fake_next_token(const int32_t *history, uint32_t n, uint32_t n_vocab)
{
    return token_of(chain_of(history, n), n_vocab);
}

static bool banned(const struct sample_job *job, int32_t token)
{
    for (uint32_t i = 0; i < job->n_ban; i++) {
        if (job->ban[i] == token)
            return true;
    }
    return false;
}

/* The draw from what was read: bans step on to the next token, at most a whole round. */
static int32_t draw(const struct sample_job *job, uint64_t chain, uint32_t n_vocab)
{
    if (job->params->temperature > 0)
        chain = mix(mix(chain, job->params->seed), job->choice + 1);
    int32_t token = token_of(chain, n_vocab);
    for (uint32_t i = 0; i < n_vocab && banned(job, token); i++)
        token = (int32_t)(((uint32_t)token + 1) % n_vocab);
    return token;
}

int32_t fake_job_token(const struct sample_job *job, uint32_t n_vocab)
{
    return draw(job, chain_of(job->history, job->n_history), n_vocab);
}

static float logprob_of(uint64_t chain, int32_t token)
{
    return -(float)(mix(chain, 2 + (uint64_t)token) % 1000) / 100.0f;
}

float fake_logprob(const int32_t *history, uint32_t n, int32_t token)
{
    return logprob_of(chain_of(history, n), token);
}

/* Descending by construction: the alternatives are made up too. */
static void report(struct sample_job *job, uint64_t chain, uint32_t n_vocab)
{
    job->logprob = logprob_of(chain, job->token);
    job->n_top = 0;
    for (int32_t i = 0; i < job->params->n_top; i++) {
        job->top_token[i] = (int32_t)(((uint32_t)job->token + (uint32_t)i) % n_vocab);
        job->top_logprob[i] = -(float)i;
        job->n_top++;
    }
}

static struct slot *slot_at(struct fake *f, const struct batch_span *s, uint32_t pos)
{
    uint32_t block = s->table[0][pos / f->n_slots];
    if (block >= f->n_blocks) {
        f->n_mismatches++;
        block = 0;
    }
    return &f->slot[(size_t)block * f->n_slots + pos % f->n_slots];
}

static void write_row(struct fake *f, const struct batch_span *s, uint32_t pos, int32_t token)
{
    struct slot *own = slot_at(f, s, pos);
    uint64_t before = pos ? slot_at(f, s, pos - 1)->chain : CHAIN_START;
    if (own->step == f->n_steps)
        f->n_mismatches++; /* two rows of one step write one slot */
    *own = (struct slot){mix(before, (uint32_t)token), f->n_steps, pos, token};
}

/* Reads positions 0..pos; returns the chain that was found there. */
static uint64_t read_row(struct fake *f, const struct batch_span *s, uint32_t pos)
{
    uint64_t chain = CHAIN_START;
    for (uint32_t p = 0; p <= pos; p++) {
        const struct slot *slot = slot_at(f, s, p);
        chain = mix(chain, (uint32_t)slot->token);
        if (slot->position != p || slot->chain != chain) {
            f->n_mismatches++;
            return mix(slot->chain, chain);
        }
    }
    return chain;
}

static void check_shape(struct fake *f, const struct batch *b)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        CHECK(b->span[i].row0 == row && b->span[i].n_rows >= 1);
        row += b->span[i].n_rows;
    }
    CHECK(row == b->n_rows && b->n_rows >= 1);
    CHECK(b->n_rows <= f->be.limits.max_rows && b->n_spans <= f->be.limits.max_spans &&
          b->n_outs <= f->be.limits.max_outs);
    for (uint32_t i = 0; i < b->n_outs; i++)
        CHECK(b->out[i].row < b->n_rows && (i == 0 || b->out[i].row > b->out[i - 1].row));
}

static void run_out(struct fake *f, struct batch_out *o, const struct batch_span *s)
{
    struct sample_job *job = &o->job;
    uint32_t pos = s->pos0 + o->row - s->row0;
    uint64_t chain = read_row(f, s, pos);
    if (job->n_history != pos + 1 || chain != chain_of(job->history, job->n_history))
        f->n_mismatches++;
    if (f->o.script)
        job->token = job->given >= 0 ? job->given : f->o.script(f->o.script_arg, job);
    else
        job->token = job->given >= 0 ? job->given : draw(job, chain, f->be.n_vocab);
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

static enum status fake_submit(struct backend *be, struct batch *b, struct err *e)
{
    struct fake *f = (struct fake *)be;
    CHECK(!f->in_flight);
    f->n_steps++;
    check_shape(f, b);
    if (f->watch)
        f->watch(f->watch_arg, b);
    if (f->n_fail) {
        f->n_fail--;
        return err_set(e, ERR_INTERNAL, "step fails as the test asked");
    }
    uint32_t next_out = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        struct batch_span *s = &b->span[i];
        s->finite = true;
        s->lost = false;
        for (uint32_t k = 0; k < s->n_rows; k++)
            write_row(f, s, s->pos0 + k, b->token[s->row0 + k]);
    }
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct batch_span *s = &b->span[i];
        read_row(f, s, s->pos0 + s->n_rows - 1);
        for (; next_out < b->n_outs && b->out[next_out].row < s->row0 + s->n_rows; next_out++)
            run_out(f, &b->out[next_out], s);
    }
    advance_clock(f, b);
    f->in_flight = b;
    return OK;
}

static enum status fake_collect(struct backend *be, struct batch **b, struct err *e)
{
    (void)e;
    struct fake *f = (struct fake *)be;
    *b = f->in_flight;
    f->in_flight = NULL;
    return OK;
}

static enum status fake_copy_block(struct backend *be, uint32_t group, uint32_t src, uint32_t dst,
                                   struct err *e)
{
    (void)group;
    struct fake *f = (struct fake *)be;
    if (src >= f->n_blocks || dst >= f->n_blocks)
        return err_set(e, ERR_INTERNAL, "copy of block %u to %u, there are %u", src, dst,
                       f->n_blocks);
    for (uint32_t i = 0; i < f->n_slots; i++)
        f->slot[(size_t)dst * f->n_slots + i] = f->slot[(size_t)src * f->n_slots + i];
    return OK;
}

static void fake_close(struct backend *be)
{
    struct fake *f = (struct fake *)be;
    mem_free(f->slot);
    mem_free(f);
}

static const struct backend_ops ops = {fake_submit, fake_collect, fake_copy_block, fake_close};

enum status fake_backend_new(struct kv_arena *arena, const struct kv_layout *layout,
                             struct backend_limits limits, const struct fake_options *o,
                             struct backend **out, struct err *e)
{
    if (o->n_vocab < 1)
        return err_set(e, ERR_INVALID, "the fake needs a vocabulary");
    struct fake *f = mem_zalloc(sizeof(*f));
    f->o = *o;
    f->n_slots = layout->n_slots;
    f->n_blocks = arena->group[0].n_frames;
    f->be = (struct backend){
        .ops = &ops, .layout = *layout, .arena = arena, .limits = limits, .n_vocab = o->n_vocab};
    f->slot = mem_zalloc(mem_mul(mem_mul(f->n_blocks, f->n_slots), sizeof(*f->slot)));
    for (uint32_t i = 0; i < f->n_blocks; i++)
        fake_poison(&f->be, i);
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

void fake_fail_steps(struct backend *be, uint32_t n)
{
    ((struct fake *)be)->n_fail = n;
}

void fake_poison(struct backend *be, uint32_t block)
{
    struct fake *f = (struct fake *)be;
    CHECK(block < f->n_blocks);
    for (uint32_t i = 0; i < f->n_slots; i++)
        f->slot[(size_t)block * f->n_slots + i] = (struct slot){~0ull, 0, NO_POSITION, -1};
}

void fake_set_watch(struct backend *be, void (*watch)(void *arg, const struct batch *b), void *arg)
{
    struct fake *f = (struct fake *)be;
    f->watch = watch;
    f->watch_arg = arg;
}
