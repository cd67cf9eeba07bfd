/* Copies outside the arena: parking, spills, loads, paging out of a running sequence. */
#include "kvpool/cache_int.h"

void kv_seq_park(struct kv_cache *c, struct kv_seq *s)
{
    CHECK(s->n_retired == s->n_tokens);
    kv_pending_end(c, s);
    if (!s->runs)
        return;
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kv_table *t = &s->t[k];
        for (uint32_t i = t->first; i < t->n; i++) {
            kvc_stop_entry(c, s, k, i);
            kvc_settle(c, &c->group[k], kvc_at(c, s, k, i));
        }
    }
    s->runs = false;
}

/* True when block i of s may stay in its slot while s runs. */
static bool can_page(const struct kv_cache *c, const struct kv_seq *s, uint32_t group, uint32_t i)
{
    return group == 0 && c->group[0].window == 0 && i < s->n_retired / c->n_slots &&
           kvc_stored(kvc_look(c, s, group, i));
}

struct kv_need kv_seq_absent_paged(const struct kv_cache *c, const struct kv_seq *s,
                                   uint32_t n_paged)
{
    struct kv_need need = {{0}};
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kv_table *t = &s->t[k];
        for (uint32_t i = t->first; i < t->n; i++) {
            if (n_paged > 0 && can_page(c, s, k, i)) {
                n_paged--;
                continue;
            }
            const struct kvc_block *b = kvc_look(c, s, k, i);
            need.n[k] += b->frame == KV_NO_BLOCK || b->list == KVC_PARKED;
        }
    }
    return need;
}

struct kv_need kv_seq_private(const struct kv_cache *c, const struct kv_seq *s)
{
    struct kv_need need = {{0}};
    for (uint32_t k = 0; k < c->n_groups; k++) {
        const struct kv_table *t = &s->t[k];
        for (uint32_t i = t->first; i < t->n; i++) {
            const struct kvc_block *b = kvc_look(c, s, k, i);
            bool late = b->pin > 0 || b->job == KVC_SPILL_OUT || b->job == KVC_LOAD_OUT;
            bool had = b->frame == KV_NO_BLOCK || b->list == KVC_PARKED;
            bool alone = b->n_run == (s->runs && t->phys[i] == b->frame);
            need.n[k] += !late && !had && alone && (b->ref == 1 || kvc_stored(b));
        }
    }
    return need;
}

/* First the entries whose blocks have frames, so that taking frames for the others cannot take those. */
static void run_present(struct kv_cache *c, struct kv_seq *s, uint32_t n_paged)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        struct kv_table *t = &s->t[k];
        for (uint32_t i = t->first; i < t->n; i++) {
            struct kvc_block *b = kvc_at(c, s, k, i);
            if (n_paged > 0 && can_page(c, s, k, i)) {
                n_paged--;
                b->n_paged++;
                t->n_paged++;
                t->phys[i] = g->n_frames + b->slot;
            } else if (b->frame != KV_NO_BLOCK) {
                b->n_run++;
                t->phys[i] = b->frame;
                if (kvc_loads(b))
                    kvc_wait_more(c, s);
            }
            kvc_settle(c, g, b);
        }
    }
}

static void run_absent(struct kv_cache *c, struct kv_seq *s)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        struct kv_table *t = &s->t[k];
        for (uint32_t i = t->first; i < t->n; i++) {
            if (t->phys[i] != KV_NO_BLOCK)
                continue;
            struct kvc_block *b = kvc_at(c, s, k, i);
            CHECK(kvc_stored(b));
            t->phys[i] = b->frame = kvc_take_frame(g, c);
            g->frame_block[b->frame] = t->block[i];
            b->n_run++;
            kvc_queue_job(c, g, b, KVC_LOAD_WAITS);
            kvc_wait_more(c, s);
        }
    }
}

bool kv_seq_unpark_paged(struct kv_cache *c, struct kv_seq *s, uint32_t n_paged)
{
    CHECK(!s->runs && !s->lost);
    struct kv_need need = kv_seq_absent_paged(c, s, n_paged);
    for (uint32_t k = 0; k < c->n_groups; k++) {
        if (need.n[k] > s->claim.n[k] + kv_room(c, k))
            return false;
    }
    for (uint32_t k = 0; k < c->n_groups; k++)
        kvc_draw(c, s, k, need.n[k]);
    s->runs = true;
    run_present(c, s, n_paged);
    run_absent(c, s);
    return true;
}

/* ---- spills ---- */

static bool spill_block(struct kv_cache *c, struct kvc_group *g, struct kvc_block *b,
                        enum kvc_greed greed)
{
    uint32_t slot = kvc_take_slot(c, g, greed);
    if (slot == KV_NO_BLOCK)
        return false;
    b->slot = slot;
    g->slot_block[slot] = kvc_index(g, b);
    kvc_queue_job(c, g, b, KVC_SPILL_WAITS);
    kvc_settle(c, g, b);
    return true;
}

static uint32_t spill_group(struct kv_cache *c, struct kv_seq *s, uint32_t group, uint32_t n_max)
{
    struct kvc_group *g = &c->group[group];
    struct kv_table *t = &s->t[group];
    uint32_t n = 0, end = s->runs ? s->n_retired / c->n_slots : t->n;
    for (uint32_t i = t->first > t->n_clean ? t->first : t->n_clean; i < end; i++) {
        struct kvc_block *b = kvc_at(c, s, group, i);
        if (b->slot == KV_NO_BLOCK) {
            if (n == n_max ||
                !spill_block(c, g, b, s->runs ? KVC_CACHED_ONES : KVC_CACHED_AND_TWINS))
                return n;
            n++;
        }
        t->n_clean = i + 1;
    }
    return n;
}

uint32_t kv_seq_spill(struct kv_cache *c, struct kv_seq *s, uint32_t n_max)
{
    uint32_t n = 0;
    if (s->spill_epoch != c->spill_epoch) {
        for (uint32_t k = 0; k < c->n_groups; k++)
            s->t[k].n_clean = 0;
        s->spill_epoch = c->spill_epoch;
    }
    for (uint32_t k = 0; k < c->n_groups; k++) {
        if (!s->runs || c->group[k].window == 0)
            n += spill_group(c, s, k, n_max - n);
    }
    return n;
}

uint32_t kv_seq_dirty(const struct kv_cache *c, const struct kv_seq *s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < c->n_groups; k++) {
        for (uint32_t i = s->t[k].first; i < s->t[k].n; i++)
            n += kvc_look(c, s, k, i)->slot == KV_NO_BLOCK;
    }
    return n;
}

uint32_t kv_seq_page_out(struct kv_cache *c, struct kv_seq *s, uint32_t n_max)
{
    struct kvc_group *g = &c->group[0];
    struct kv_table *t = &s->t[0];
    uint32_t n = 0;
    CHECK(s->runs && s->n_retired == s->n_tokens);
    for (uint32_t i = t->first; i < t->n && n < n_max; i++) {
        struct kvc_block *b = kvc_at(c, s, 0, i);
        if (t->phys[i] >= g->n_frames || !can_page(c, s, 0, i) || b->n_run != 1 ||
            b->job != KVC_IDLE)
            continue;
        b->n_run--;
        b->n_paged++;
        t->n_paged++;
        t->phys[i] = g->n_frames + b->slot;
        kvc_settle(c, g, b);
        n++;
    }
    return n;
}

/* ---- jobs ---- */

/* When few frames are free: of the blocks that were hit before, the next one to be evicted gets a copy in
 * advance. It must not replace another copy, or an idle server would copy in circles. */
static bool spill_ahead(struct kv_cache *c)
{
    for (uint32_t k = 0; k < c->n_groups; k++) {
        struct kvc_group *g = &c->group[k];
        const struct kvc_ends *l = &g->list[KVC_HIT_DIRTY];
        if (l->n > 0 && g->n_free_frames < g->n_frames / 8 && kv_room(c, k) > 0 &&
            c->n_out < (c->max_jobs + 1) / 2 &&
            spill_block(c, g, &g->block[l->head], KVC_COLDER_ONES))
            return true;
    }
    return false;
}

bool kv_job_next(struct kv_cache *c, struct kv_job *job)
{
    if (c->n_out >= c->max_jobs)
        return false;
    if (c->queue[0].n + c->queue[1].n == 0 && !spill_ahead(c))
        return false;
    bool load = c->queue[1].n > 0;
    uint32_t flat = c->queue[load].head, k = c->n_groups - 1;
    while (flat < c->group[k].flat0)
        k--;
    struct kvc_group *g = &c->group[k];
    struct kvc_block *b = &g->block[flat - g->flat0];
    kvc_unqueue_job(c, g, b);
    b->job = load ? KVC_LOAD_OUT : KVC_SPILL_OUT;
    b->job_id = ++c->n_jobs;
    c->n_out++;
    *job = (struct kv_job){.group = k,
                           .block = kvc_index(g, b),
                           .generation = b->generation,
                           .frame = b->frame,
                           .slot = b->slot,
                           .load = load,
                           .id = b->job_id};
    return true;
}

/* Ends the wait of all sequences for block b, one running entry each. Not ok: they are lost. */
static void end_waits(struct kv_cache *c, uint32_t group, uint32_t block, bool ok)
{
    struct kvc_block *b = &c->group[group].block[block];
    struct kv_seq *next;
    for (struct kv_seq *s = c->loading; s && b->n_run > 0; s = next) {
        struct kv_table *t = &s->t[group];
        next = s->load_next;
        if (b->pos < t->first || b->pos >= t->n || t->block[b->pos] != block ||
            t->phys[b->pos] >= c->group[group].n_frames)
            continue;
        if (!ok) {
            s->lost = true;
            t->phys[b->pos] = KV_NO_BLOCK;
            b->n_run--;
            kv_pending_end(c, s);
        }
        kvc_wait_less(c, s);
    }
}

void kv_job_done(struct kv_cache *c, const struct kv_job *job, bool ok)
{
    struct kvc_group *g = &c->group[job->group];
    struct kvc_block *b = &g->block[job->block];
    CHECKF(b->generation == job->generation && b->job_id == job->id &&
               b->job == (job->load ? KVC_LOAD_OUT : KVC_SPILL_OUT),
           "copy %llu of block %u of group %u is not out", (unsigned long long)job->id, job->block,
           job->group);
    c->n_out--;
    b->job = KVC_IDLE;
    if (ok) {
        c->n_loaded += job->load;
        c->n_spilled += !job->load;
        if (job->load)
            end_waits(c, job->group, job->block, true);
    } else {
        c->n_failed++;
        if (job->load) {
            end_waits(c, job->group, job->block, false);
            CHECK(b->n_run == 0);
            kvc_unindex(c, g, b);
            kvc_drop_frame(g, b);
        } else {
            kvc_drop_slot(c, g, b);
        }
    }
    kvc_settle(c, g, b);
}

uint32_t kv_jobs_open(const struct kv_cache *c)
{
    return c->queue[0].n + c->queue[1].n + c->n_out;
}
