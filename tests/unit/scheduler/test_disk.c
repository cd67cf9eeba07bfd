/* The disk prefix cache in the schedule: hits after a restart have the right tags, bad files only cause a
 * miss, and a fetch ends properly whatever happens in the meantime. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include "kvpool/disk_int.h"
#include "tests/unit/scheduler/pressure.h"

enum { N_SLOTS = 8 };

static struct rig g;
static char folder[64];
static uint64_t n_life; /* rigs over the folder so far */
static uint32_t n_frames, n_windows;

static struct rig_options disk_options(void)
{
    struct rig_options o = rig_defaults();
    o.prefix = true;
    o.disk = folder;
    o.disk_bytes = 64 << 20;
    o.n_slots = N_SLOTS;
    o.n_blocks = n_frames;
    o.n_groups = 1 + n_windows;
    o.window[1] = 20;
    o.limits.chunk_max = 32;
    o.limits.max_batch_tokens = 64;
    o.limits.max_running = 16;
    o.limits.max_context = 500;
    o.limits.reserve = SCHED_RESERVE_NONE;
    o.fake.first_step = n_life++ << 32;
    return o;
}

static void open_rig(void)
{
    struct rig_options o = disk_options();
    rig_init(&g, &o);
}

static void restart(void)
{
    rig_release(&g);
    open_rig();
}

static void begin(uint32_t frames, uint32_t windows)
{
    snprintf(folder, sizeof(folder), "/tmp/millrace-sched-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    n_life = 1;
    n_frames = frames;
    n_windows = windows;
    open_rig();
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void end(void)
{
    rig_release(&g);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static uint32_t cached_of(struct request *r)
{
    struct ran o = run_alone(&g, r);
    ck_assert_int_eq(o.status, OK);
    request_unref(r);
    return o.n_cached;
}

static uint32_t ask(uint32_t family, uint32_t n_shared, uint32_t own)
{
    return cached_of(prompt_of(&g, family, n_shared, own, 5));
}

static struct request *submit(uint32_t family, uint32_t n_shared, uint32_t own)
{
    struct request *r = prompt_of(&g, family, n_shared, own, 5);
    rig_submit(&g, r);
    return r;
}

/* Every block of the family's first 96 tokens is on the disk, and in no frame. */
static void fill_disk(uint32_t family)
{
    ask(family, 96, 1);
    ck_assert_uint_eq(ask(family, 96, 2), 96);
    restart();
}

static uint32_t each_file(void (*fn)(int fd, uint32_t i))
{
    char path[128];
    uint32_t n = 0;
    snprintf(path, sizeof(path), "%s/kv/blocks", folder);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *t; (t = readdir(dir));) {
        if (!strstr(t->d_name, ".kv"))
            continue;
        int fd = openat(dirfd(dir), t->d_name, O_RDWR);
        ck_assert_int_ge(fd, 0);
        fn(fd, n++);
        close(fd);
    }
    closedir(dir);
    return n;
}

static void flip(int fd, uint32_t i)
{
    uint8_t byte;
    off_t at = (off_t)(i * 131) % (DISK_HEAD_BYTES + N_SLOTS * FAKE_SLOT_BYTES);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1u << i % 8);
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
}

START_TEST(what_was_asked_for_twice_comes_from_the_disk_after_a_restart)
{
    begin(200, (uint32_t)_i);
    ck_assert_uint_eq(ask(1, 96, 1), 0);
    ck_assert_uint_eq(kv_disk_stats(g.disk).n_blocks, 0);
    ck_assert_uint_eq(ask(1, 96, 2), 96);
    /* Of the window's blocks those that the second prompt could see were found. */
    ck_assert_uint_ge(kv_disk_stats(g.disk).n_blocks, 12);
    restart();
    uint64_t n_steps = fake_steps(g.be);
    ck_assert_uint_eq(ask(1, 96, 3), 96);
    ck_assert_uint_ge(kv_disk_stats(g.disk).n_got, 12);
    ck_assert_uint_eq(fake_steps(g.be) - n_steps, 4); /* the prompt's own end, three more tokens */
    ck_assert_uint_eq(ask(1, 96, 4), 96); /* from the frames now */
    ck_assert_uint_eq(ask(1, 48, 5), 48);
    end();
}
END_TEST

START_TEST(a_fill_saves_all_of_its_blocks_and_gives_no_token)
{
    begin(200, (uint32_t)_i);
    struct request *r = prompt_of(&g, 1, 64, 9, 1); /* 64 to keep */
    r->max_tokens = 0;
    r->fill = true;
    struct kv_key keys[8];
    ck_assert_uint_eq(sched_prefix_keys(g.s, r, 64, keys), 8);
    struct ran o = run_alone(&g, r);
    ck_assert(o.status == OK && o.n_token == 0);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert(kv_disk_has(g.disk, 0, &keys[i]));
    restart();
    ck_assert_uint_eq(ask(1, 64, 2), 64);
    request_unref(r);
    end();
}
END_TEST

START_TEST(flipped_bits_cost_a_miss_and_answers_stay_right)
{
    begin(200, (uint32_t)_i);
    fill_disk(1);
    ck_assert_uint_ge(each_file(flip), 12);
    ck_assert_uint_eq(ask(1, 96, 3), 0);
    ck_assert_uint_ge(kv_disk_stats(g.disk).n_bad, 1);
    ck_assert_uint_eq(ask(1, 96, 4), 96);
    end();
}
END_TEST

START_TEST(another_salt_has_nothing_from_the_disk)
{
    begin(200, 0);
    fill_disk(1);
    struct request *r = prompt_of(&g, 1, 96, 3, 5);
    r->salt = mem_dup("x", 1);
    r->n_salt_bytes = 1;
    ck_assert_uint_eq(cached_of(r), 0);
    ck_assert_uint_eq(kv_disk_stats(g.disk).n_got, 0);
    end();
}
END_TEST

START_TEST(what_is_slower_to_read_than_to_compute_is_computed)
{
    begin(200, 0);
    fill_disk(1);
    atomic_store(&g.disk->shared->read_ns_byte, 1e9);
    ck_assert_uint_eq(ask(1, 96, 3), 0);
    ck_assert_uint_eq(kv_disk_stats(g.disk).n_got, 0);
    end();
}
END_TEST

START_TEST(choices_share_what_was_fetched)
{
    begin(200, (uint32_t)_i);
    fill_disk(1);
    struct request *r = prompt_of(&g, 1, 96, 3, 5);
    r->n_choices = 3;
    r->sampling.temperature = 1;
    ck_assert_uint_eq(cached_of(r), 96);
    end();
}
END_TEST

START_TEST(who_wants_the_same_prompt_waits_for_the_fetch)
{
    begin(200, 0);
    fill_disk(1);
    struct request *r[3];
    struct ran o[3];
    for (uint32_t i = 0; i < 3; i++)
        r[i] = submit(1, 96, 10 + i);
    run_all(&g, r, o, 3);
    ck_assert_uint_eq(kv_disk_stats(g.disk).n_got, 12);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(o[i].n_cached, 96);
    for (uint32_t i = 0; i < 3; i++)
        request_unref(r[i]);
    end();
}
END_TEST

static struct req *fetching(void)
{
    for (uint32_t i = 0; i < 3 && !g.s->disk.fetching; i++)
        sched_turn(g.s);
    sched_turn(g.s); /* gets are out */
    ck_assert_ptr_nonnull(g.s->disk.fetching);
    ck_assert_uint_gt(g.s->disk.fetching->fetch.n_out, 0);
    return g.s->disk.fetching;
}

START_TEST(a_cancel_waits_until_nothing_of_the_fetch_is_out)
{
    begin(200, (uint32_t)_i);
    fill_disk(1);
    struct request *r = submit(1, 96, 3);
    struct seen seen;
    seen_init(&seen, r);
    fetching();
    sched_cancel(g.s, r);
    for (uint32_t i = 0; i < 3; i++)
        sched_turn(g.s);
    seen_read(&seen, r, UINT32_MAX);
    ck_assert_uint_eq(seen.n_end, 0);
    while (rig_disk_step(&g))
        continue;
    sched_turn(g.s);
    seen_read(&seen, r, UINT32_MAX);
    ck_assert(seen.n_end == 1 && seen.status == ERR_CANCELLED);
    seen_release(&seen);
    request_unref(r);
    ck_assert_uint_eq(ask(1, 96, 4), 96);
    end();
}
END_TEST

START_TEST(a_stop_within_a_fetch_ends_the_request)
{
    begin(200, (uint32_t)_i);
    fill_disk(1);
    struct request *r = submit(1, 96, 3);
    struct seen seen;
    seen_init(&seen, r);
    fetching();
    sched_stop(g.s);
    seen_read(&seen, r, UINT32_MAX);
    ck_assert(seen.n_end == 1 && seen.status == ERR_DRAINING);
    seen_release(&seen);
    request_unref(r);
    end();
}
END_TEST

START_TEST(a_fetch_that_finds_no_frames_is_computed)
{
    begin(40, (uint32_t)_i);
    fill_disk(1);
    struct request *r[5];
    struct ran o[5];
    for (uint32_t i = 0; i < 5; i++) {
        r[i] = i == 2 ? prompt_of(&g, 1, 96, 3, 5) : prompt_of(&g, 20 + i, 60, i, 5);
        r[i]->max_tokens = 60;
        rig_submit(&g, r[i]);
    }
    run_all(&g, r, o, 5);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_int_eq(o[i].status, OK);
    for (uint32_t i = 0; i < 5; i++)
        request_unref(r[i]);
    end();
}
END_TEST

static void pins_done(struct sched_ask *a, void *arg)
{
    (void)arg;
    ck_assert_int_eq(a->status, OK);
}

START_TEST(pins_come_and_go_in_the_order_they_were_asked_for)
{
    begin(200, 0);
    struct request *r = prompt_of(&g, 1, 64, 9, 1);
    struct kv_key keys[8];
    sched_prefix_keys(g.s, r, 64, keys);
    struct sched_ask on = {.kind = ASK_PINS, .item.key = keys, .n_pin = 8, .done = pins_done};
    struct sched_ask off = {.kind = ASK_PINS, .item.key = keys, .n_unpin = 8, .done = pins_done};
    sched_ask(g.s, &on);
    sched_ask(g.s, &off);
    sched_turn(g.s);
    ck_assert_uint_eq(kv_disk_stats(g.disk).n_pinned, 0);
    sched_ask(g.s, &on);
    sched_turn(g.s);
    ck_assert_uint_gt(kv_disk_stats(g.disk).n_pinned, 0);
    sched_ask(g.s, &off);
    sched_turn(g.s);
    sched_ask(g.s, &off); /* more than there are: nothing */
    sched_turn(g.s);
    ck_assert_uint_eq(kv_disk_stats(g.disk).n_pinned, 0);
    request_unref(r);
    end();
}
END_TEST

/* ---- anything in any order ---- */

static uint64_t state;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

struct client {
    struct request *r; /* NULL: free */
    struct seen seen;
    bool cancelled;
};

enum { N_CLIENTS = 8 };

static void client_start(struct client *c)
{
    c->r = prompt_of(&g, draw(4), 8 * draw(16), draw(50), 1 + draw(12));
    c->r->max_tokens = 1 + draw(30);
    c->r->n_choices = draw(6) ? 1 : 2;
    c->r->fill = draw(10) == 0;
    c->r->reserve = draw(5) == 0;
    c->r->prompt_logprobs = draw(12) == 0;
    if (c->r->fill) {
        c->r->max_tokens = 0;
        c->r->n_choices = 1;
    }
    c->cancelled = false;
    seen_init(&c->seen, c->r);
    rig_submit(&g, c->r);
}

static void client_read(struct client *c)
{
    seen_read(&c->seen, c->r, UINT32_MAX);
    if (!c->seen.n_end)
        return;
    ck_assert_msg(c->seen.status == OK || (c->cancelled && c->seen.status == ERR_CANCELLED) ||
                      c->seen.status == ERR_DRAINING,
                  "%s", c->seen.error);
    expect_lone(&g, c->r, &c->seen);
    seen_release(&c->seen);
    request_unref(c->r);
    c->r = NULL;
}

static void spoil(int fd, uint32_t i)
{
    if (draw(6) == 0)
        flip(fd, i);
}

/* A process dies with work under way and another one takes over. */
static void random_restart(struct client *client)
{
    sched_stop(g.s);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        if (client[i].r)
            client_read(&client[i]);
        ck_assert_ptr_null(client[i].r);
    }
    rig_release(&g);
    if (draw(3) == 0)
        each_file(spoil);
    open_rig();
}

static void random_step(struct client *client)
{
    struct client *c = &client[draw(N_CLIENTS)];
    uint32_t what = draw(100);
    if (what < 25 && !c->r) {
        client_start(c);
    } else if (what < 28 && c->r) {
        c->cancelled = true;
        sched_cancel(g.s, c->r);
    } else if (what < 60) {
        sched_turn(g.s);
        sched_audit(g.s);
        wipe_free(&g);
    } else if (what < 90) {
        rig_disk_step(&g);
    } else if (what < 99) {
        for (uint32_t i = 0; i < N_CLIENTS; i++) {
            if (client[i].r)
                client_read(&client[i]);
        }
    } else if (draw(8) == 0) {
        random_restart(client);
    }
}

START_TEST(any_order_of_requests_cancels_disk_steps_and_restarts)
{
    struct client client[N_CLIENTS] = {0};
    uint64_t n_got = 0, n_fetched = 0;
    state = (uint64_t)_i + 1;
    begin(40 + draw(60), (uint32_t)_i % 2);
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t before = g.s->disk.n_fetching;
        random_step(client);
        n_fetched += g.s->disk.n_fetching > before;
        n_got += kv_disk_stats(g.disk).n_got > 0;
        ck_assert_msg(fake_tag_mismatches(g.be) == 0, "%s", fake_mismatch(g.be));
    }
    random_restart(client);
    ck_assert_msg(n_got > 0 && n_fetched > 10, "%llu fetches", (unsigned long long)n_fetched);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler/disk");
    TCase *tc = tcase_create("disk");
    tcase_add_loop_test(tc, what_was_asked_for_twice_comes_from_the_disk_after_a_restart, 0, 2);
    tcase_add_loop_test(tc, a_fill_saves_all_of_its_blocks_and_gives_no_token, 0, 2);
    tcase_add_loop_test(tc, flipped_bits_cost_a_miss_and_answers_stay_right, 0, 2);
    tcase_add_test(tc, another_salt_has_nothing_from_the_disk);
    tcase_add_test(tc, what_is_slower_to_read_than_to_compute_is_computed);
    tcase_add_loop_test(tc, choices_share_what_was_fetched, 0, 2);
    tcase_add_test(tc, who_wants_the_same_prompt_waits_for_the_fetch);
    tcase_add_loop_test(tc, a_cancel_waits_until_nothing_of_the_fetch_is_out, 0, 2);
    tcase_add_loop_test(tc, a_stop_within_a_fetch_ends_the_request, 0, 2);
    tcase_add_loop_test(tc, a_fetch_that_finds_no_frames_is_computed, 0, 2);
    tcase_add_test(tc, pins_come_and_go_in_the_order_they_were_asked_for);
    tcase_add_loop_test(tc, any_order_of_requests_cancels_disk_steps_and_restarts, 0, 6);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
