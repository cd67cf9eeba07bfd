/* The fake's tier: copies between frames and slots that end when a test asks for it; see fake.h. */
#include <string.h>

#include "base/check.h"
#include "engine/fake/fake_int.h"

static uint32_t source_of(const struct fake *f, const struct kv_job *j)
{
    return j->load ? f->n_frames[j->group] + j->slot : j->frame;
}

static uint32_t target_of(const struct fake *f, const struct kv_job *j)
{
    return j->load ? j->frame : f->n_frames[j->group] + j->slot;
}

/* Reports two copies where one writes what the other reads or writes. */
static void check_races(struct fake *f, const struct kv_job *j)
{
    for (uint32_t i = 0; i < f->n_jobs; i++) {
        const struct kv_job *k = &f->job[i].job;
        if (k->group != j->group)
            continue;
        uint32_t to = target_of(f, j), to_other = target_of(f, k);
        if (to == to_other || to == source_of(f, k) || to_other == source_of(f, j))
            fake_wrong(f, "copies %llu and %llu meet: frames %u %u, slots %u %u",
                       (unsigned long long)k->id, (unsigned long long)j->id, k->frame, j->frame,
                       k->slot, j->slot);
    }
}

uint32_t fake_tier_room(const struct backend *be)
{
    const struct fake *f = (const struct fake *)be;
    return f->o.max_jobs - f->n_jobs - f->n_done;
}

bool fake_tier_push(struct backend *be, const struct kv_job *j)
{
    struct fake *f = (struct fake *)be;
    CHECK(j->group < f->n_groups && j->frame < f->n_frames[j->group] &&
          j->slot < f->n_phys[j->group] - f->n_frames[j->group]);
    if (fake_tier_room(be) == 0)
        return false;
    check_races(f, j);
    struct fake_job *job = &f->job[f->n_jobs++];
    job->job = *j;
    const struct kv_move m = {.group = j->group, .src = source_of(f, j), .dst = target_of(f, j)};
    fake_enter(f);
    fake_move_start(f, &job->move, &m, j->id);
    fake_leave(f);
    if (!f->o.tier_waits)
        fake_tier_finish(be, f->n_jobs - 1, true);
    return true;
}

void fake_tier_finish(struct backend *be, uint32_t i, bool ok)
{
    struct fake *f = (struct fake *)be;
    CHECK(i < f->n_jobs);
    struct fake_job done = f->job[i];
    fake_enter(f);
    fake_move_end(f, &done.move, ok);
    fake_leave(f);
    memmove(f->job + i, f->job + i + 1, (f->n_jobs - i - 1) * sizeof(*f->job));
    f->job[--f->n_jobs] = done; /* its memory is reused for the next one */
    f->done[f->n_done++] = (struct kv_done){done.job, ok};
}

bool fake_tier_pop(struct backend *be, struct kv_done *done)
{
    struct fake *f = (struct fake *)be;
    if (f->n_done == 0)
        return false;
    *done = f->done[0];
    memmove(f->done, f->done + 1, --f->n_done * sizeof(*f->done));
    return true;
}

struct kv_tier_costs fake_tier_costs(const struct backend *be)
{
    return ((const struct fake *)be)->o.tier_costs;
}

uint32_t fake_tier_flying(const struct backend *be)
{
    return ((const struct fake *)be)->n_jobs;
}

bool fake_tier_writes(const struct fake *f, uint32_t group, uint32_t frame)
{
    for (uint32_t i = 0; i < f->n_jobs; i++) {
        const struct kv_job *j = &f->job[i].job;
        if (j->load && j->group == group && j->frame == frame)
            return true;
    }
    return false;
}
