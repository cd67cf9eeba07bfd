/* An admitted request makes progress, whatever comes after it: streams, long prompts and several choices beside
 * floods of requests with every option that takes room (promised memory, choices, priorities, deadlines,
 * weights, contexts that slide, prompts that are only filled or reported, the disk's, ones larger than the
 * arena), with one key and with two, with every tier. Steps of others are counted, not time. */
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include "kvpool/disk_int.h"
#include "tests/unit/scheduler/rig.h"
#include "scheduler/tenant.h"

enum {
    MOST_FLOOD = 12,
    N_SLOTS = 8,
    N_FRAMES = 48,
    MOST_STILL = 24 /* turns without a row of its own that the oldest request may see */
};

enum tiers { NO_TIER, RAM_TIER, FILE_TIER, N_TIERS };

struct lane {
    struct request *r; /* NULL: nothing asked */
    struct seen seen;
    uint64_t rows; /* as of the last look */
    uint32_t n_still; /* turns since they changed */
};

/* What a flood's requests ask for. */
struct flood {
    const char *name;
    uint32_t n_prompt, max_tokens, n_lanes;
    uint32_t n_choices; /* 0: 1 */
    bool reserve, logprobs, fill, sinks, disk;
    bool oversize; /* larger than the arena, where there is a spill file */
    int32_t priority;
    uint64_t deadline_ms;
    uint32_t weight; /* of its key against 1, when it has its own */
    uint32_t n_frames; /* of the arena; 0: N_FRAMES */
};

static const struct flood floods[] = {
    {.name = "reserved", .n_prompt = 40, .max_tokens = 60, .n_lanes = 6, .reserve = true},
    {.name = "reserved, wide",
     .n_prompt = 20,
     .max_tokens = 20,
     .n_lanes = 6,
     .n_choices = 4,
     .reserve = true},
    {.name = "reserved, one after the other",
     .n_prompt = 100,
     .max_tokens = 100,
     .n_lanes = 2,
     .reserve = true},
    {.name = "reserved, first",
     .n_prompt = 30,
     .max_tokens = 90,
     .n_lanes = 6,
     .reserve = true,
     .priority = -3},
    {.name = "reserved, short", .n_prompt = 9, .max_tokens = 2, .n_lanes = 12, .reserve = true},
    {.name = "reserved, near deadlines",
     .n_prompt = 60,
     .max_tokens = 30,
     .n_lanes = 6,
     .reserve = true,
     .deadline_ms = 500},
    {.name = "best priority", .n_prompt = 60, .max_tokens = 60, .n_lanes = 12, .priority = -3},
    {.name = "wide", .n_prompt = 20, .max_tokens = 60, .n_lanes = 6, .n_choices = 5},
    {.name = "reported", .n_prompt = 120, .max_tokens = 4, .n_lanes = 8, .logprobs = true},
    {.name = "filled", .n_prompt = 200, .max_tokens = 0, .n_lanes = 8, .fill = true},
    {.name = "sliding", .n_prompt = 30, .max_tokens = 300, .n_lanes = 8, .sinks = true},
    {.name = "heavy key", .n_prompt = 150, .max_tokens = 1, .n_lanes = 12, .weight = 1000},
    {.name = "larger than the arena",
     .n_prompt = 100,
     .max_tokens = 150,
     .n_lanes = 4,
     .oversize = true},
    {.name = "on the disk", .n_prompt = 120, .max_tokens = 20, .n_lanes = 8, .disk = true},
    {.name = "on the disk, reserved",
     .n_prompt = 120,
     .max_tokens = 20,
     .n_lanes = 8,
     .disk = true,
     .reserve = true},
};
enum { N_FLOODS = sizeof(floods) / sizeof(floods[0]) };

static const char *folder; /* of the folders of all worlds; main makes and removes it */
static char disk_folder[64];

struct world {
    struct rig rig;
    struct tenants *tenants;
    const struct flood *flood;
    struct lane watched[2], lane[MOST_FLOOD];
    bool two_keys, has_file;
    uint32_t seed;
    uint64_t n_flooded; /* requests of the flood that ended */
};

static void world_init(struct world *w, const struct flood *f, enum tiers tiers, bool two_keys)
{
    struct rig_options o = rig_defaults();
    memset(w, 0, sizeof(*w));
    clock_fake(true, NS_PER_S);
    w->flood = f;
    w->two_keys = two_keys;
    o.prefix = true;
    o.n_slots = N_SLOTS;
    o.n_blocks = f->n_frames ? f->n_frames : N_FRAMES;
    o.limits.max_running = 16;
    o.limits.max_batch_tokens = 64;
    o.limits.chunk_max = 32;
    o.limits.max_context = 480;
    o.fake.step_base_ns = 4 * NS_PER_MS;
    o.fake.step_row_ns = NS_PER_MS / 2;
    o.fake.tier_costs = (struct kv_tier_costs){1, 1, 1};
    o.n_host[0] = tiers == RAM_TIER ? 40 : 0;
    o.n_file[0] = tiers == FILE_TIER ? 60 : 0;
    o.max_jobs = tiers == NO_TIER ? 0 : 4;
    if (f->disk) {
        o.n_file[0] = 0;
        o.max_jobs = tiers == RAM_TIER ? 4 : 0;
        snprintf(disk_folder, sizeof(disk_folder), "%s/%d", folder, (int)getpid());
        o.disk = disk_folder;
        o.disk_bytes = 64 * DISK_UNIT_BYTES;
        o.disk_deadline_ns = 100 * NS_PER_MS;
    }
    w->tenants = tenants_new(10 * NS_PER_S, o.limits.max_running, 4, 0);
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    set->n = 2;
    for (uint32_t i = 0; i < set->n; i++)
        set->row[i] = (struct tenant_config){.weight = i && f->weight ? f->weight : 1,
                                             .priority = -TENANT_PRIORITY_MAX,
                                             .generation = i + 1};
    tenants_publish(w->tenants, set);
    o.limits.tenants = w->tenants;
    w->has_file = o.n_file[0] > 0;
    rig_init(&w->rig, &o);
}

static void send(struct world *w, struct lane *l, struct request *r)
{
    *l = (struct lane){.r = r};
    seen_init(&l->seen, r);
    rig_submit(&w->rig, r);
}

static void send_flood(struct world *w, struct lane *l)
{
    const struct flood *f = w->flood;
    /* Of the disk's a few prompts come again and again. */
    uint32_t seed = f->disk ? 5000 + w->seed++ % 3 : ++w->seed;
    uint32_t n_more = f->oversize && w->has_file ? 200 : 0;
    struct request *r = rig_random(&w->rig, seed, f->n_prompt + n_more, f->max_tokens);
    r->n_choices = f->n_choices ? f->n_choices : 1;
    r->reserve = f->reserve;
    r->prompt_logprobs = f->logprobs;
    r->fill = f->fill;
    r->priority = f->priority;
    r->tenant = w->two_keys;
    if (f->sinks)
        r->overflow_context = 4 * N_SLOTS + 8;
    if (f->deadline_ms)
        r->deadline_ns = clock_ns() + f->deadline_ms * NS_PER_MS;
    send(w, l, r);
}

/* All rows that it ever had: what is computed again counts. */
static uint64_t rows_of(const struct lane *l)
{
    const struct req *q = l->r->engine_part;
    uint64_t n = 0;
    for (uint32_t i = 0; q && q->seq && i < l->r->n_choices; i++)
        n += q->seq[i].step;
    return n;
}

static void take(struct world *w, struct lane *l)
{
    if (!l->r)
        return;
    seen_read(&l->seen, l->r, UINT32_MAX);
    if (!l->seen.n_end)
        return;
    ck_assert_msg(l->seen.status == OK || l->seen.status == ERR_DEADLINE, "%s", l->seen.error);
    w->n_flooded += l >= w->lane && l < w->lane + MOST_FLOOD;
    seen_release(&l->seen);
    request_unref(l->r);
    l->r = NULL;
}

static void end_copies(struct world *w)
{
    while (fake_tier_flying(w->rig.be))
        fake_tier_finish(w->rig.be, 0, true);
    while (rig_disk_step(&w->rig))
        ;
}

/* One turn of all; lanes of the flood ask again at once. */
static void go_on(struct world *w, bool floods_on)
{
    for (uint32_t i = 0; floods_on && i < w->flood->n_lanes; i++)
        if (!w->lane[i].r)
            send_flood(w, &w->lane[i]);
    if (!sched_turn(w->rig.s))
        clock_fake_advance(NS_PER_MS);
    sched_audit(w->rig.s);
    end_copies(w);
    for (uint32_t i = 0; i < 2; i++)
        take(w, &w->watched[i]);
    for (uint32_t i = 0; i < MOST_FLOOD; i++)
        take(w, &w->lane[i]);
}

static void look(struct lane *l, uint32_t most, const char *what, const struct flood *f)
{
    if (!l->r)
        return;
    uint64_t rows = rows_of(l);
    l->n_still = rows == l->rows ? l->n_still + 1 : 0;
    l->rows = rows;
    ck_assert_msg(l->n_still <= most, "%s stands still beside a flood: %s", what, f->name);
}

static void release_lane(struct world *w, struct lane *l)
{
    if (l->r)
        sched_cancel(w->rig.s, l->r);
    while (l->r) {
        sched_turn(w->rig.s);
        end_copies(w);
        seen_read(&l->seen, l->r, UINT32_MAX);
        if (!l->seen.n_end)
            continue;
        seen_release(&l->seen);
        request_unref(l->r);
        l->r = NULL;
    }
}

static void world_release(struct world *w)
{
    for (uint32_t i = 0; i < 2; i++)
        release_lane(w, &w->watched[i]);
    for (uint32_t i = 0; i < MOST_FLOOD; i++)
        release_lane(w, &w->lane[i]);
    while (sched_turn(w->rig.s) || fake_tier_flying(w->rig.be) || rig_disk_step(&w->rig))
        end_copies(w);
    rig_release(&w->rig);
    tenants_free(w->tenants);
    clock_fake(false, 0);
}

enum { N_CASES = N_FLOODS * N_TIERS * 2 };

static const struct flood *case_init(struct world *w, int i)
{
    const struct flood *f = &floods[i % N_FLOODS];
    world_init(w, f, (enum tiers)(i / N_FLOODS % N_TIERS), i / N_FLOODS / N_TIERS);
    return f;
}

static void send_watched(struct world *w, uint32_t i, uint32_t n_prompt, uint32_t max_tokens,
                         uint32_t n_choices)
{
    struct request *r = rig_random(&w->rig, 900 + i, n_prompt, max_tokens);
    r->n_choices = n_choices;
    send(w, &w->watched[i], r);
}

START_TEST(the_oldest_stream_never_stands_still)
{
    struct world w;
    const struct flood *f = case_init(&w, _i);
    send_watched(&w, 0, 16, 250, 1);
    go_on(&w, false);
    for (uint32_t n = 0; w.watched[0].r; n++) {
        ck_assert_msg(n < 4000, "it doesn't end beside a flood: %s", f->name);
        go_on(&w, true);
        look(&w.watched[0], MOST_STILL, "the oldest", f);
    }
    for (uint32_t n = 0; w.n_flooded == 0; n++) {
        ck_assert_msg(n < 4000, "nothing of the flood ends: %s", f->name);
        go_on(&w, true);
    }
    world_release(&w);
}
END_TEST

/* Its cold blocks are read from the spill file in each step: it takes all of the arena that it can get. */
START_TEST(the_oldest_goes_on_though_it_is_larger_than_the_arena)
{
    struct world w;
    const struct flood *f = &floods[_i % N_FLOODS];
    world_init(&w, f, FILE_TIER, _i / N_FLOODS);
    if (f->disk) { /* without a spill file nothing is larger than the arena */
        world_release(&w);
        return;
    }
    send_watched(&w, 0, 300, 150, 1);
    go_on(&w, false);
    for (uint32_t n = 0; w.watched[0].r; n++) {
        ck_assert_msg(n < 4000, "it doesn't end beside a flood: %s", f->name);
        go_on(&w, true);
        look(&w.watched[0], MOST_STILL, "the oldest", f);
    }
    world_release(&w);
}
END_TEST

START_TEST(choices_of_the_oldest_never_stand_still_together)
{
    struct world w;
    const struct flood *f = case_init(&w, _i);
    send_watched(&w, 0, 30, 90, 3);
    go_on(&w, false);
    for (uint32_t n = 0; w.watched[0].r; n++) {
        ck_assert_msg(n < 4000, "it doesn't end beside a flood: %s", f->name);
        go_on(&w, true);
        look(&w.watched[0], MOST_STILL, "the oldest", f);
    }
    world_release(&w);
}
END_TEST

/* The prompt comes when the flood is there already. */
START_TEST(an_admitted_prompt_goes_on_to_its_end)
{
    struct world w;
    const struct flood *f = case_init(&w, _i);
    for (uint32_t n = 0; n < 40; n++)
        go_on(&w, true);
    send_watched(&w, 0, 200, 20, 1);
    for (uint32_t n = 0, n_in = 0; w.watched[0].r; n++) {
        go_on(&w, true);
        const struct req *q = w.watched[0].r ? w.watched[0].r->engine_part : NULL;
        n_in += q && q->state == REQ_RUNNING;
        ck_assert_msg(n < 8000, "it is not admitted beside a flood: %s", f->name);
        ck_assert_msg(n_in < 600, "it doesn't end beside a flood: %s", f->name);
    }
    world_release(&w);
}
END_TEST

/* A key that had much beside one of a thousand times its weight that comes back: by their counters alone
 * its prompt would wait for hundreds of thousands of tokens. */
START_TEST(the_oldest_prompt_has_rows_whatever_its_key_was_served)
{
    static const struct flood heavy = {.name = "heavy",
                                       .n_prompt = 400,
                                       .max_tokens = 1,
                                       .n_lanes = 12,
                                       .weight = 1000,
                                       .n_frames = 1000};
    struct world w;
    world_init(&w, &heavy, NO_TIER, true);
    send_watched(&w, 0, 16, 250, 1);
    while (w.watched[0].r)
        go_on(&w, false);
    for (uint32_t n = 0; n < 10; n++)
        go_on(&w, true);
    send_watched(&w, 0, 200, 20, 1);
    for (uint32_t n = 0, n_in = 0; w.watched[0].r; n++) {
        go_on(&w, true);
        const struct req *q = w.watched[0].r ? w.watched[0].r->engine_part : NULL;
        n_in += q && q->state == REQ_RUNNING;
        ck_assert_msg(n < 8000, "it is not admitted");
        ck_assert_msg(n_in < 400, "it doesn't end");
    }
    world_release(&w);
}
END_TEST

/* Three keys that never run out of requests, each with its own mixture of options, over an arena that is
 * always too small: what they are served, by weight, never comes further apart than what fits into the
 * arena at once and those that pass a head of the queue come to, a few requests in all. */
START_TEST(keys_that_always_wait_are_served_by_their_weights)
{
    enum { N_KEYS = 3, LANES = 20, MOST_PROMPT = 60, MOST_OUTPUT = 40, MOST_CHOICES = 3 };
    static const uint32_t weight[N_KEYS] = {1, 1, 3};
    static const struct flood none = {.name = "none"};
    static struct lane lane[N_KEYS][LANES];
    const uint64_t request = MOST_PROMPT * TENANT_COST_PROMPT +
                             (uint64_t)MOST_CHOICES * MOST_OUTPUT * TENANT_COST_OUTPUT;
    const uint64_t apart = 8 * request << 16;
    uint64_t served[N_KEYS] = {0}, n_ended = 0;
    struct world w;
    srand((unsigned)_i + 1);
    memset(lane, 0, sizeof(lane));
    world_init(&w, &none, (enum tiers)(_i % N_TIERS), true);
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    set->n = N_KEYS;
    for (uint32_t k = 0; k < N_KEYS; k++)
        set->row[k] = (struct tenant_config){.weight = weight[k], .generation = k + 1};
    tenants_publish(w.tenants, set);
    for (uint32_t n = 0; n < 4000; n++) {
        for (uint32_t i = 0; i < N_KEYS * LANES; i++) {
            struct lane *l = &lane[i % N_KEYS][i / N_KEYS];
            if (l->r)
                continue;
            struct request *r = rig_random(&w.rig, ++w.seed, 1 + (uint32_t)rand() % MOST_PROMPT,
                                           1 + (uint32_t)rand() % MOST_OUTPUT);
            r->tenant = i % N_KEYS;
            r->n_choices = rand() % 4 ? 1 : 1 + (uint32_t)rand() % MOST_CHOICES;
            /* The first promises all, the second by chance, the third nothing. */
            r->reserve = rand() % 4 >= 4 * (int)r->tenant / (N_KEYS - 1);
            send(&w, l, r);
        }
        go_on(&w, false);
        for (uint32_t i = 0; i < N_KEYS * LANES; i++) {
            struct lane *l = &lane[i % N_KEYS][i / N_KEYS];
            take(&w, l);
            n_ended += l->r == NULL;
        }
        uint64_t least = UINT64_MAX, most = 0;
        for (uint32_t k = 0; k < N_KEYS; k++) {
            served[k] = tenant_counter(w.tenants, k);
            least = served[k] < least ? served[k] : least;
            most = served[k] > most ? served[k] : most;
        }
        ck_assert_msg(most - least <= apart, "turn %u: %llu, %llu and %llu prompt tokens served", n,
                      (unsigned long long)(served[0] >> 19), (unsigned long long)(served[1] >> 19),
                      (unsigned long long)(served[2] >> 19));
    }
    printf("%d: %llu requests, %llu, %llu and %llu prompt tokens by weight\n", _i,
           (unsigned long long)n_ended, (unsigned long long)(served[0] >> 19),
           (unsigned long long)(served[1] >> 19), (unsigned long long)(served[2] >> 19));
    for (uint32_t i = 0; i < N_KEYS * LANES; i++)
        release_lane(&w, &lane[i % N_KEYS][i / N_KEYS]);
    world_release(&w);
}
END_TEST

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

int main(void)
{
    char path[] = "/tmp/millrace-progress-XXXXXX";
    if (!mkdtemp(path))
        return 1;
    folder = path;
    Suite *suite = suite_create("scheduler/progress");
    TCase *tc = tcase_create("progress");
    tcase_add_loop_test(tc, the_oldest_stream_never_stands_still, 0, N_CASES);
    tcase_add_loop_test(tc, the_oldest_goes_on_though_it_is_larger_than_the_arena, 0, 2 * N_FLOODS);
    tcase_add_loop_test(tc, choices_of_the_oldest_never_stand_still_together, 0, N_CASES);
    tcase_add_loop_test(tc, an_admitted_prompt_goes_on_to_its_end, 0, N_CASES);
    tcase_add_test(tc, the_oldest_prompt_has_rows_whatever_its_key_was_served);
    tcase_add_loop_test(tc, keys_that_always_wait_are_served_by_their_weights, 0, 2 * N_TIERS);
    suite_add_tcase(suite, tc);
    int rc = run_suite(suite);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}
