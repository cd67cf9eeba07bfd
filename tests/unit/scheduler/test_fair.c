/* A key with light load beside one that floods, and the order of service over the whole scheduler: on a fake
 * clock that each step advances by the cost of its rows, so that the times are exact on any machine. */
#include <stdio.h>

#include "tests/unit/scheduler/rig.h"
#include "scheduler/tenant.h"

enum { LIGHT, FLOOD, N_TENANTS, MOST_LANES = 200, LIGHT_TOKENS = 512, STEP_TARGET_MS = 200 };

struct lane {
    struct request *r; /* NULL: nothing asked */
    struct seen seen;
    uint64_t sent_ns, first_ns;
};

struct world {
    struct rig rig;
    struct tenants *tenants;
    struct lane light, flood[MOST_LANES];
    uint32_t n_flood, flood_prompt, flood_output;
    uint32_t seed;
};

static void world_init(struct world *w, uint32_t n_flood, uint32_t prompt, uint32_t output)
{
    struct rig_options o = rig_defaults();
    memset(w, 0, sizeof(*w));
    clock_fake(true, NS_PER_S);
    /* About what two cores take for a model of 135 M parameters. */
    o.fake.step_base_ns = 8 * NS_PER_MS;
    o.fake.step_row_ns = 700000;
    o.fake.step_kv_ns = 40;
    o.n_blocks = 1 << 15;
    o.prefix = true;
    o.limits.step_target_ms = STEP_TARGET_MS;
    w->tenants = tenants_new(10 * NS_PER_S, o.limits.max_running, 4, 0);
    struct tenant_set *set = mem_zalloc(sizeof(*set));
    set->n = N_TENANTS;
    for (uint32_t i = 0; i < N_TENANTS; i++)
        set->row[i] = (struct tenant_config){.weight = 1, .generation = i + 1};
    tenants_publish(w->tenants, set);
    o.limits.tenants = w->tenants;
    rig_init(&w->rig, &o);
    w->n_flood = n_flood;
    w->flood_prompt = prompt;
    w->flood_output = output;
}

static void ask(struct world *w, struct lane *l, uint32_t tenant, uint32_t n_prompt, uint32_t n_out)
{
    l->r = rig_random(&w->rig, ++w->seed, n_prompt, n_out);
    l->r->tenant = tenant;
    l->sent_ns = clock_ns();
    l->first_ns = 0;
    seen_init(&l->seen, l->r);
    rig_submit(&w->rig, l->r);
}

static void take(struct lane *l)
{
    if (!l->r)
        return;
    seen_read(&l->seen, l->r, UINT32_MAX);
    if (!l->first_ns && l->seen.n_token[0] > 0)
        l->first_ns = clock_ns();
    if (l->seen.n_end) {
        ck_assert_int_eq(l->seen.status, OK);
        seen_release(&l->seen);
        request_unref(l->r);
        l->r = NULL;
    }
}

/* One step of all; flood lanes ask again at once. */
static void go_on(struct world *w)
{
    for (uint32_t i = 0; i < w->n_flood; i++)
        if (!w->flood[i].r)
            ask(w, &w->flood[i], FLOOD, w->flood_prompt, w->flood_output);
    if (!sched_turn(w->rig.s))
        clock_fake_advance(NS_PER_MS);
    take(&w->light);
    for (uint32_t i = 0; i < w->n_flood; i++)
        take(&w->flood[i]);
}

static void world_release(struct world *w)
{
    for (uint32_t i = 0; i < w->n_flood; i++)
        if (w->flood[i].r)
            sched_cancel(w->rig.s, w->flood[i].r);
    rig_run(&w->rig);
    for (uint32_t i = 0; i < w->n_flood; i++) {
        if (!w->flood[i].r)
            continue;
        seen_release(&w->flood[i].seen);
        request_unref(w->flood[i].r);
    }
    rig_release(&w->rig);
    tenants_free(w->tenants);
    clock_fake(false, 0);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The longest of N times to the light key's first token, in ns. */
static uint64_t light_longest(uint32_t n_flood, uint32_t prompt, uint32_t output)
{
    enum { N = 16, WARM_UP = 40 };
    struct world w;
    uint64_t took[N];
    world_init(&w, n_flood, prompt, output);
    for (int i = 0; i < WARM_UP; i++)
        go_on(&w);
    srand(n_flood + prompt);
    for (int i = 0; i < N; i++) {
        for (int pause = rand() % 40; pause > 0; pause--)
            go_on(&w);
        ask(&w, &w.light, LIGHT, LIGHT_TOKENS, 8);
        while (w.light.r)
            go_on(&w);
        took[i] = w.light.first_ns - w.light.sent_ns;
    }
    world_release(&w);
    qsort(took, N, sizeof(took[0]), by_value);
    return took[N - 1];
}

static const struct {
    uint32_t n_lanes, prompt, output;
} floods[] = {
    {48, 512, 64}, /* all of it runs */
    {200, 512, 64}, /* most of it waits */
    {200, 4000, 16}, /* long prompts */
    {200, 16, 1000}, /* long answers */
    {60, 1, 4000}, /* every place it may have, for good */
};

/* The bar: at most twice the time alone and two step budgets, whatever the flood is made of. */
START_TEST(a_flood_at_most_doubles_the_light_keys_time_to_the_first_token)
{
    uint64_t alone = light_longest(0, 0, 0);
    uint64_t beside = light_longest(floods[_i].n_lanes, floods[_i].prompt, floods[_i].output);
    printf("first token of %d tokens: %.0f ms alone, %.0f ms beside %u streams of %u + %u\n",
           LIGHT_TOKENS, (double)alone / 1e6, (double)beside / 1e6, floods[_i].n_lanes,
           floods[_i].prompt, floods[_i].output);
    ck_assert_uint_le(beside, 2 * alone + 2 * STEP_TARGET_MS * NS_PER_MS);
}
END_TEST

/* Two that both flood are served alike: their computed and made tokens, weighed, within what runs. */
START_TEST(two_keys_that_flood_are_served_alike)
{
    struct world w;
    world_init(&w, 120, 300, 30);
    for (uint32_t i = 0; i < w.n_flood;
         i++) /* half of the lanes ask as the other key, and for more */
        ask(&w, &w.flood[i], i % 2 ? FLOOD : LIGHT, i % 2 ? 300 : 900, 30);
    struct tenant_view v[2];
    for (int step = 0; step < 1600; step++) {
        if (!sched_turn(w.rig.s))
            clock_fake_advance(NS_PER_MS);
        for (uint32_t i = 0; i < w.n_flood; i++) {
            take(&w.flood[i]);
            if (!w.flood[i].r)
                ask(&w, &w.flood[i], i % 2 ? FLOOD : LIGHT, i % 2 ? 300 : 900, 30);
        }
    }
    double served[2];
    for (uint32_t i = 0; i < 2; i++) {
        tenant_look(w.tenants, i, &v[i]);
        served[i] =
            (double)(v[i].n_computed * TENANT_COST_PROMPT + v[i].n_output * TENANT_COST_OUTPUT);
    }
    double in_flight = 64 * (900 * TENANT_COST_PROMPT + 30 * TENANT_COST_OUTPUT);
    ck_assert_msg(served[0] - served[1] < in_flight && served[1] - served[0] < in_flight,
                  "served %.0f and %.0f, what runs at once is worth %.0f", served[0], served[1],
                  in_flight);
    ck_assert_msg(served[0] > 3 * in_flight, "too little was served to tell: %.0f", served[0]);
    world_release(&w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scheduler/fair");
    TCase *t = tcase_create("fair");
    tcase_add_loop_test(t, a_flood_at_most_doubles_the_light_keys_time_to_the_first_token, 0,
                        sizeof(floods) / sizeof(floods[0]));
    tcase_add_test(t, two_keys_that_flood_are_served_alike);
    suite_add_tcase(s, t);
    return run_suite(s);
}
