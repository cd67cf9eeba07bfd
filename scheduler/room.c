/* How many blocks things take: the numbers behind admission and preemption. Pure. Thread: engine, but for
 * room_worst and room_oversize, which read only what never changes. */
#include "scheduler/room.h"

#include "base/check.h"

static uint32_t blocks_for(const struct sched *s, uint64_t n_positions)
{
    uint32_t n_slots = s->layout.n_slots;
    return (uint32_t)(n_positions / n_slots + (n_positions % n_slots != 0));
}

/* Rows that a growth can have: bounds what a window holds at once. */
static uint32_t most_rows(const struct sched *s)
{
    const struct sched_limits *l = &s->limits;
    return l->chunk_max < l->max_batch_tokens ? l->chunk_max : l->max_batch_tokens;
}

static uint32_t window_blocks(const struct sched *s, uint32_t group, uint32_t n_positions)
{
    return kv_need_of(s->kv, n_positions, most_rows(s)).n[group];
}

bool room_reserves(const struct sched *s, bool asked)
{
    return asked || s->limits.reserve == SCHED_RESERVE_MAX ||
           s->limits.preempt == SCHED_PREEMPT_NEVER;
}

bool room_oversize(const struct sched *s, uint32_t n_positions)
{
    return s->layout.group[0].window == 0 && blocks_for(s, n_positions) > s->n_frames[0];
}

/* A sequence larger than the arena: what doesn't fit must have a slot, and the backend must be able to
 * read as many from the spill file in one step. */
static bool stages(const struct sched *s, uint32_t n_blocks)
{
    uint32_t kept = blocks_for(s, most_rows(s)) + 2; /* frames for what is written */
    uint32_t n_host = s->memory.arena->group[0].n_host;
    if (s->n_frames[0] <= kept)
        return false;
    uint32_t n_out = n_blocks - (s->n_frames[0] - kept);
    return n_out <= s->n_slots_total[0] && n_out <= n_host + s->be->limits.max_staged;
}

static uint32_t group_worst(const struct sched *s, uint32_t g, const struct kv_need *one,
                            uint32_t n_prompt, uint32_t max_tokens, uint32_t n_choices,
                            bool reserves)
{
    if (s->layout.group[g].window == 0)
        return (uint32_t)req_blocks_worst(n_prompt, max_tokens, n_choices, s->layout.n_slots);
    /* What the choices share slides out of all their windows at different times. */
    return one->n[g] * (n_choices + (reserves && n_choices > 1));
}

bool room_worst(const struct sched *s, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_choices,
                bool reserves, struct kv_need *worst, struct err *e)
{
    uint32_t positions = n_prompt - 1 + max_tokens;
    struct kv_need one = kv_need_of(s->kv, positions, most_rows(s));
    bool promised = room_reserves(s, reserves);
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint32_t n = group_worst(s, g, &one, n_prompt, max_tokens, n_choices, promised);
        /* Unless all is promised, one choice at a time is enough: the others are parked. */
        uint32_t must = promised ? n : one.n[g];
        bool paged = !promised && g == 0 && !s->layout.group[0].window;
        worst->n[g] = n;
        if (must <= s->n_frames[g] || (paged && stages(s, must)))
            continue;
        err_set_field(e, ERR_CONTEXT_LENGTH, "prompt", "context_length_exceeded",
                      "prompt of %u tokens, max_tokens %u and n %u need %u KV blocks of %u "
                      "tokens%s, there are %u",
                      n_prompt, max_tokens, n_choices, must, s->layout.n_slots,
                      promised ? " reserved" : "",
                      s->n_frames[g] + (paged ? s->n_slots_total[g] : 0));
        return false;
    }
    return true;
}

/* All of it, but for frames that slid out of a window and are still read by a copy: those come free soon,
 * and others are parked for the sequence that lacks them. */
static void claim_most(struct sched *s, struct kv_seq *kv, struct kv_need need)
{
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        uint32_t room = kv_room(s->kv, g);
        need.n[g] = need.n[g] < room ? need.n[g] : room;
    }
    CHECK(kv_seq_claim(s->kv, kv, &need));
}

void room_split_claim(struct sched *s, struct req *q)
{
    uint32_t n = q->r->n_choices, n_slots = s->layout.n_slots, positions = req_positions(q->r);
    struct kv_seq *parent = &q->seq[0].kv;
    struct kv_need part = {{0}};
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        if (s->layout.group[g].window) {
            part.n[g] = window_blocks(s, g, positions);
            continue;
        }
        /* Which one goes on in the open block that they share, and copies none, comes out later. */
        part.n[g] = blocks_for(s, positions) - parent->n_tokens / n_slots;
    }
    kv_seq_claim_trim(s->kv, parent, &part);
    for (uint32_t i = 1; i < n; i++)
        claim_most(s, &q->seq[i].kv, part);
}

struct kv_need room_add(struct kv_need a, struct kv_need b)
{
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        a.n[g] += b.n[g];
    return a;
}

bool room_covers(const struct sched *s, const struct kv_need *a, const struct kv_need *b)
{
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        if ((uint64_t)a->n[g] + b->n[g] > kv_room(s->kv, g))
            return false;
    }
    return true;
}

static uint32_t less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

struct kv_need room_growth(const struct sched *s, const struct seq *q, uint32_t n_positions)
{
    struct kv_need need = {{0}};
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        const struct kv_table *t = &q->kv.t[g];
        uint32_t n = less(blocks_for(s, n_positions), t->n);
        if (n > 0 && s->layout.group[g].window) {
            uint32_t more = less(window_blocks(s, g, n_positions), t->n - t->first);
            n = n < more ? n : more;
        }
        need.n[g] = less(n, q->kv.claim.n[g]);
    }
    return need;
}

static uint32_t positions_after(const struct seq *q, uint32_t n_rows)
{
    uint32_t last = req_positions(q->req->r);
    uint64_t n = (uint64_t)q->n_tok + n_rows;
    return n < last ? (uint32_t)n : last;
}

uint32_t room_positions(const struct sched *s, const struct seq *q, uint32_t n_rows)
{
    uint32_t likely = lengths_quantile(&s->lengths, 0.9);
    uint32_t left = less(likely, q->n_out); /* 0: longer than most, or nothing is known */
    return positions_after(q, left > 0 && left < n_rows ? left : n_rows);
}

/* What q takes within n_rows rows, at most or likely: blocks, those of choices that wait for its fork, and
 * its own copy of an open block that it shares. */
static struct kv_need growth_within(const struct sched *s, const struct seq *q, uint32_t n_rows,
                                    bool likely)
{
    n_rows = q->req->reserves ? 0 : n_rows; /* what was promised to it is no longer in the room */
    uint32_t positions = likely ? room_positions(s, q, n_rows) : positions_after(q, n_rows);
    struct kv_need need = room_growth(s, q, positions);
    if (q->req->r->n_choices == 1 || q->req->reserves)
        return need;
    if (q->forked)
        return q->state == SEQ_LIVE ? room_add(need, kv_seq_need(s->kv, &q->kv, 0)) : need;
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        need.n[g] += (q->req->r->n_choices - 1) * (1 + blocks_for(s, n_rows));
    return need;
}

static struct kv_need growth_of_all(const struct sched *s, uint32_t n_rows, bool likely)
{
    struct kv_need sum = {{0}};
    for (uint32_t i = 0; i < s->running.n; i++) {
        if (s->running.seq[i]->state == SEQ_LIVE)
            sum = room_add(sum, growth_within(s, s->running.seq[i], n_rows, likely));
    }
    for (const struct req *r = s->disk.fetching; r; r = r->fetch_next)
        sum = room_add(sum, growth_within(s, &r->seq[0], n_rows, likely));
    return sum;
}

struct kv_need room_horizon(const struct sched *s)
{
    bool ahead = s->limits.reserve == SCHED_RESERVE_QUANTILE;
    return growth_of_all(s, ahead ? SCHED_HORIZON : 0, true);
}

/* What a choice of q takes when all else that can be parked is: the arena, where it is larger. */
static uint32_t alone(const struct sched *s, const struct req *q, uint32_t group)
{
    uint32_t n = kv_need_of(s->kv, req_positions(q->r), most_rows(s)).n[group];
    return n < s->n_frames[group] ? n : s->n_frames[group];
}

/* More than its worst case: each choice can copy the open block that they share, though the last one need
 * not, and each gets a window of its own, though its part of the shared one fills it at first. */
struct kv_need room_promised(const struct sched *s, const struct request *r,
                             const struct kv_need *worst)
{
    struct kv_need most = *worst;
    if (r->n_choices == 1)
        return most;
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        if (s->layout.group[g].window)
            most.n[g] = 2 * r->n_choices * (worst->n[g] / (r->n_choices + 1));
        else
            most.n[g]++;
    }
    return most;
}

static bool all_fit_beside(const struct sched *s, struct kv_need sum)
{
    for (const struct req *q = s->running.reqs; q; q = q->next)
        sum = room_add(sum, q->promised);
    for (const struct req *q = s->running.reqs; q; q = q->next) {
        for (uint32_t g = 0; g < s->layout.n_groups && !q->reserves; g++) {
            if (sum.n[g] + alone(s, q, g) > s->n_frames[g])
                return false;
        }
    }
    return true;
}

bool room_may_promise(const struct sched *s, const struct req *q, const struct kv_need *worst,
                      const struct kv_need *claim)
{
    uint32_t n_steps = q->r->max_tokens + q->r->n_prompt / SCHED_MIN_CHUNK + 1;
    struct kv_need growth = growth_of_all(s, n_steps, false);
    if (PLANTED(s, SCHED_FAULT_GREEDY))
        return true;
    return room_covers(s, claim, &growth) && all_fit_beside(s, room_promised(s, q->r, worst));
}

struct kv_need room_watermark(const struct sched *s, bool high)
{
    struct kv_need need = {{0}};
    for (uint32_t g = 0; g < s->layout.n_groups; g++) {
        need.n[g] = s->n_frames[g] / (high ? 32 : 128);
        if (high)
            need.n[g] += s->running.n;
    }
    return need;
}

/* ---- lengths ---- */

/* Buckets end at 1, 2, 3, 4, 6, 8, 12, 16 ... */
static uint32_t bucket_end(uint32_t i)
{
    return i == 0 ? 1 : i % 2 ? 2u << (i / 2) : 3u << (i / 2 - 1);
}

void lengths_add(struct lengths *l, uint32_t n_out)
{
    uint32_t i = 0;
    while (i + 1 < SCHED_LENGTHS && bucket_end(i) < n_out)
        i++;
    const double decay = 0.98; /* about fifty requests count */
    for (uint32_t k = 0; k < SCHED_LENGTHS; k++)
        l->weight[k] *= decay;
    l->weight[i] += 1;
    l->sum = l->sum * decay + 1;
}

uint32_t lengths_quantile(const struct lengths *l, double part)
{
    double sum = 0;
    if (l->sum <= 0)
        return 0;
    for (uint32_t i = 0; i < SCHED_LENGTHS; i++) {
        sum += l->weight[i];
        if (sum >= part * l->sum)
            return bucket_end(i);
    }
    return bucket_end(SCHED_LENGTHS - 1);
}
