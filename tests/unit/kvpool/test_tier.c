/* kvpool/tier: bytes are restored from every slot, every job is answered once, late and failed copies
 * change nothing, the spill file has no name. Threads are run under TSan by the preset tsan. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "kvpool/kvpool_test.h"
#include "base/base_test.h"
#include "base/mem.h"
#include "base/ring.h"
#include "base/thread.h"
#include "kvpool/tier.h"
#include "tests/unit/kvpool/plain_store.h"
#include "tests/unit/run_suite.h"

enum { N_FRAMES = 6, N_HOST = 3, N_FILE = 4, N_SLOTS = N_HOST + N_FILE, MAX_JOBS = 8 };

struct rig {
    struct kv_layout layout;
    struct plain_store store;
    struct kv_tier_options o;
    struct kv_tier *tier;
    struct mpsc *event;
    char folder[64];
    uint64_t n_jobs;
};

static void wake(void *arg)
{
    mpsc_wake(arg);
}

/* Two groups, block sizes that are no multiples of the file's alignment. */
static void rig_init(struct rig *r)
{
    static const struct kv_layer_shape shape[] = {{0, 2, 40}, {16, 1, 24}, {0, 2, 40}};
    uint32_t n_frames[KV_MAX_GROUPS] = {N_FRAMES, N_FRAMES};
    uint32_t n_host[KV_MAX_GROUPS] = {N_HOST, N_HOST};
    struct err e = {0};
    *r = (struct rig){0};
    ck_assert_msg(kv_layout_init(&r->layout, shape, 3, 8, KV_F16, KV_F16, &e) == OK, "%s", e.text);
    ck_assert_uint_eq(r->layout.n_groups, 2);
    plain_store_init(&r->store, &r->layout, n_frames, n_host);
    snprintf(r->folder, sizeof(r->folder), "/tmp/millrace-tier-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(r->folder));
    r->event = mpsc_new(1, &e);
    r->o = (struct kv_tier_options){.store = &r->store.store,
                                    .layout = &r->layout,
                                    .path = r->folder,
                                    .n_file = {N_FILE, N_FILE},
                                    .max_jobs = MAX_JOBS,
                                    .wake = wake,
                                    .wake_arg = r->event};
}

static void rig_open(struct rig *r)
{
    struct err e = {0};
    ck_assert_msg(kv_tier_open(&r->o, &r->tier, &e) == OK, "%s", e.text);
}

static void rig_release(struct rig *r)
{
    kv_tier_close(r->tier);
    plain_store_release(&r->store);
    mpsc_free(r->event);
    ck_assert_int_eq(rmdir(r->folder), 0); /* nothing was left in it */
}

static uint8_t pattern(uint64_t seed, size_t i)
{
    return (uint8_t)((seed * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u) >> 56);
}

static void frame_write(struct rig *r, uint32_t group, uint32_t frame, uint64_t seed)
{
    uint8_t *p = plain_block(&r->store, group, frame);
    for (size_t i = 0; i < r->layout.group[group].block_bytes; i++)
        p[i] = pattern(seed, i);
}

static bool frame_is(struct rig *r, uint32_t group, uint32_t frame, uint64_t seed)
{
    const uint8_t *p = plain_block(&r->store, group, frame);
    for (size_t i = 0; i < r->layout.group[group].block_bytes; i++) {
        if (p[i] != pattern(seed, i))
            return false;
    }
    return true;
}

static bool push(struct rig *r, bool load, uint32_t group, uint32_t frame, uint32_t slot)
{
    struct kv_job job = {
        .group = group, .frame = frame, .slot = slot, .load = load, .id = ++r->n_jobs};
    return kv_tier_push(r->tier, &job);
}

static struct kv_done wait_done(struct rig *r)
{
    struct kv_done done;
    while (!kv_tier_pop(r->tier, &done))
        mpsc_wait(r->event, -1);
    return done;
}

static struct kv_done step_done(struct rig *r)
{
    struct kv_done done;
    ck_assert(kv_tier_step(r->tier));
    ck_assert(kv_tier_pop(r->tier, &done));
    return done;
}

START_TEST(every_slot_of_both_tiers_gives_back_its_bytes)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    for (uint32_t g = 0; g < 2; g++) {
        for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
            frame_write(&r, g, slot % N_FRAMES, 100 * g + slot);
            ck_assert(push(&r, false, g, slot % N_FRAMES, slot));
            struct kv_done done = step_done(&r);
            ck_assert(done.ok && !done.job.load && done.job.slot == slot);
        }
    }
    for (uint32_t g = 0; g < 2; g++) {
        for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
            ck_assert(push(&r, true, g, 5, slot));
            ck_assert(step_done(&r).ok);
            ck_assert(frame_is(&r, g, 5, 100 * g + slot));
        }
    }
    struct kv_tier_stats s = kv_tier_stats(r.tier);
    ck_assert_uint_eq(s.n_out, 2 * N_SLOTS);
    ck_assert_uint_eq(s.n_in, 2 * N_SLOTS);
    ck_assert_uint_eq(s.n_bytes_in, s.n_bytes_out);
    ck_assert_uint_eq(s.n_failed, 0);
    ck_assert_uint_ge(s.file_bytes, N_FILE * r.layout.group[0].block_bytes);
    rig_release(&r);
}
END_TEST

START_TEST(without_a_file_or_ram_slots_the_other_tier_works)
{
    struct rig r;
    rig_init(&r);
    r.o.path = "";
    memset(r.o.n_file, 0, sizeof(r.o.n_file));
    rig_open(&r);
    frame_write(&r, 1, 0, 7);
    ck_assert(push(&r, false, 1, 0, 2) && step_done(&r).ok);
    ck_assert(push(&r, true, 1, 3, 2) && step_done(&r).ok);
    ck_assert(frame_is(&r, 1, 3, 7));
    ck_assert_uint_eq(kv_tier_stats(r.tier).file_bytes, 0);
    kv_tier_close(r.tier);
    plain_store_release(&r.store);

    uint32_t n_frames[KV_MAX_GROUPS] = {N_FRAMES, N_FRAMES};
    plain_store_init(&r.store, &r.layout, n_frames, NULL);
    r.o.path = r.folder;
    r.o.n_file[0] = 1; /* and none in the other group */
    rig_open(&r);
    frame_write(&r, 0, 0, 8);
    ck_assert(push(&r, false, 0, 0, 0) && step_done(&r).ok);
    ck_assert(push(&r, true, 0, 3, 0) && step_done(&r).ok);
    ck_assert(frame_is(&r, 0, 3, 8));
    rig_release(&r);
}
END_TEST

START_TEST(threads_answer_every_job_once_and_move_the_right_bytes)
{
    struct rig r;
    rig_init(&r);
    r.o.threaded = true;
    r.o.deadline_ns = 3600 * NS_PER_S;
    rig_open(&r);
    uint64_t state = 88172645463325252u;
    uint64_t in_slot[2][N_SLOTS] = {{0}};
    bool slot_busy[2][N_SLOTS] = {{false}}, seen[4096] = {false};
    uint64_t in_frame[2][N_FRAMES];
    bool frame_busy[2][N_FRAMES] = {{false}};
    for (uint32_t g = 0; g < 2; g++) {
        for (uint32_t f = 0; f < N_FRAMES; f++)
            frame_write(&r, g, f, in_frame[g][f] = 1000 * g + f);
    }
    uint32_t n_out = 0, n_done = 0, n_pushed = 0;
    while (n_done < 2000) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint32_t g = state & 1, f = (state >> 8) % N_FRAMES, slot = (state >> 16) % N_SLOTS;
        bool load = state >> 24 & 1;
        if (n_pushed < 2000 && n_out < MAX_JOBS && !frame_busy[g][f] && !slot_busy[g][slot] &&
            (!load || in_slot[g][slot])) {
            if (!load) /* something new to tell the spill from those before it */
                frame_write(&r, g, f, in_frame[g][f] = 10000 + n_pushed);
            EXPECT(push(&r, load, g, f, slot));
            frame_busy[g][f] = slot_busy[g][slot] = true;
            n_out++, n_pushed++;
            continue;
        }
        if (n_out == 0)
            continue;
        struct kv_done done = wait_done(&r);
        EXPECT(done.ok && !seen[done.job.id]);
        seen[done.job.id] = true;
        g = done.job.group, f = done.job.frame, slot = done.job.slot;
        if (done.job.load)
            EXPECT(frame_is(&r, g, f, in_frame[g][f] = in_slot[g][slot]));
        else
            in_slot[g][slot] = in_frame[g][f];
        frame_busy[g][f] = slot_busy[g][slot] = false;
        n_out--, n_done++;
    }
    struct kv_tier_costs c = kv_tier_costs(r.tier);
    ck_assert(c.ram_ns_byte > 0 && c.file_write_ns_byte > 0 && c.file_read_ns_byte > 0);
    rig_release(&r);
}
END_TEST

START_TEST(a_full_queue_refuses_until_an_answer_was_taken)
{
    struct rig r;
    struct kv_done done;
    rig_init(&r);
    rig_open(&r);
    ck_assert_uint_eq(kv_tier_room(r.tier), MAX_JOBS);
    for (uint32_t i = 0; i < MAX_JOBS; i++)
        ck_assert(push(&r, false, 0, i % N_FRAMES, N_HOST));
    ck_assert_uint_eq(kv_tier_room(r.tier), 0);
    ck_assert(!push(&r, false, 0, 0, N_HOST));
    ck_assert(kv_tier_step(r.tier));
    ck_assert_uint_eq(kv_tier_room(r.tier), 0);
    ck_assert(kv_tier_pop(r.tier, &done) && done.ok);
    ck_assert_uint_eq(kv_tier_room(r.tier), 1);
    ck_assert(push(&r, false, 0, 0, N_HOST));
    ck_assert(!push(&r, false, 0, 0, N_HOST));
    rig_release(&r);
}
END_TEST

START_TEST(failed_copies_say_so_and_leave_the_frame_as_it_was)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    for (uint32_t slot = N_HOST - 1; slot <= N_HOST; slot++) { /* RAM, then file */
        frame_write(&r, 0, 0, 1);
        ck_assert(push(&r, false, 0, 0, slot) && step_done(&r).ok);
        frame_write(&r, 0, 1, 2);
        kv_tier_fail(r.tier, 2);
        ck_assert(push(&r, true, 0, 1, slot) && !step_done(&r).ok);
        ck_assert(frame_is(&r, 0, 1, 2));
        ck_assert(push(&r, false, 0, 1, slot) && !step_done(&r).ok);
        ck_assert(push(&r, true, 0, 1, slot) && step_done(&r).ok);
        ck_assert(frame_is(&r, 0, 1, 1));
    }
    ck_assert_uint_eq(kv_tier_stats(r.tier).n_failed, 4);
    ck_assert_uint_eq(kv_tier_stats(r.tier).n_late, 0);
    rig_release(&r);
}
END_TEST

START_TEST(a_job_that_waited_too_long_fails_once_and_is_never_done)
{
    struct rig r;
    struct kv_done done;
    clock_fake(true, NS_PER_S);
    rig_init(&r);
    r.o.deadline_ns = 1000;
    rig_open(&r);
    ck_assert_uint_eq(kv_tier_deadline_ns(r.tier), 0);
    frame_write(&r, 0, 0, 1);
    frame_write(&r, 0, 1, 2);
    ck_assert(push(&r, false, 0, 0, 0) && step_done(&r).ok);
    ck_assert(push(&r, true, 0, 1, 0));
    ck_assert_uint_eq(kv_tier_deadline_ns(r.tier), NS_PER_S + 1000);
    clock_fake_advance(999);
    ck_assert(!kv_tier_pop(r.tier, &done));
    clock_fake_advance(1);
    ck_assert(kv_tier_pop(r.tier, &done) && !done.ok && done.job.load && done.job.frame == 1);
    ck_assert(!kv_tier_pop(r.tier, &done));
    ck_assert_uint_eq(kv_tier_stats(r.tier).n_late, 1);
    ck_assert_uint_eq(kv_tier_room(r.tier), MAX_JOBS - 1);
    ck_assert(kv_tier_step(r.tier));
    ck_assert(!kv_tier_pop(r.tier, &done));
    ck_assert(frame_is(&r, 0, 1, 2));
    ck_assert_uint_eq(kv_tier_room(r.tier), MAX_JOBS);
    rig_release(&r);
}
END_TEST

/* What happens while the file's thread is about to read or write: time passes, the owner is
 * answered and uses the frame for something else. */
static void answer_and_reuse(void *arg)
{
    struct rig *r = arg;
    struct kv_done done;
    clock_fake_advance(2000);
    if (!kv_tier_pop(r->tier, &done))
        return;
    EXPECT(!done.ok);
    frame_write(r, 0, done.job.frame, 999);
    r->n_jobs += 1000;
}

START_TEST(a_job_that_hangs_in_the_disk_is_given_up_and_touches_its_frame_no_more)
{
    struct rig r;
    struct kv_done done;
    clock_fake(true, NS_PER_S);
    rig_init(&r);
    r.o.deadline_ns = 1000;
    rig_open(&r);
    frame_write(&r, 0, 0, 1);
    ck_assert(push(&r, false, 0, 0, N_HOST) && step_done(&r).ok);
    kv_tier_close(r.tier);

    r.o.before_io = answer_and_reuse;
    r.o.before_io_arg = &r;
    rig_open(&r);
    for (int load = 0; load < 2; load++) {
        r.n_jobs = 0;
        frame_write(&r, 0, 2, 3);
        ck_assert(push(&r, load, 0, 2, N_HOST + 1));
        ck_assert(kv_tier_step(r.tier));
        ck_assert_uint_ge(r.n_jobs, 1000); /* the hook was answered */
        ck_assert(!kv_tier_pop(r.tier, &done));
        ck_assert(frame_is(&r, 0, 2, 999));
        ck_assert_uint_eq(kv_tier_room(r.tier), MAX_JOBS);
    }
    /* The spill that was given up wrote what the frame held when it began, never a mixture. */
    uint8_t *p = mem_alloc(r.layout.group[0].block_bytes);
    struct err e;
    ck_assert_int_eq(kv_tier_read(r.tier, 0, 1, 0, r.layout.group[0].block_bytes, p, &e), OK);
    for (size_t i = 0; i < r.layout.group[0].block_bytes; i++)
        EXPECT(p[i] == pattern(3, i));
    mem_free(p);
    rig_release(&r);
}
END_TEST

static void pass_gate(void *arg)
{
    mutex_lock(arg);
    mutex_unlock(arg);
}

START_TEST(copies_within_ram_pass_a_disk_that_hangs)
{
    struct rig r;
    struct mutex gate;
    mutex_init(&gate);
    rig_init(&r);
    r.o.threaded = true;
    r.o.before_io = pass_gate;
    r.o.before_io_arg = &gate;
    rig_open(&r);
    mutex_lock(&gate);
    frame_write(&r, 0, 0, 1);
    ck_assert(push(&r, false, 0, 0, N_HOST));
    ck_assert(push(&r, false, 0, 0, 0));
    ck_assert(push(&r, true, 0, 1, 0));
    for (int i = 0; i < 2; i++) {
        struct kv_done done = wait_done(&r);
        ck_assert(done.ok && done.job.slot == 0);
    }
    ck_assert(frame_is(&r, 0, 1, 1));
    mutex_unlock(&gate);
    ck_assert_uint_eq(wait_done(&r).job.slot, N_HOST);
    rig_release(&r);
    mutex_release(&gate);
}
END_TEST

START_TEST(stopping_answers_what_is_left)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        struct rig r;
        struct kv_done done;
        bool seen[2 * MAX_JOBS + 1] = {false};
        uint32_t n = 0;
        rig_init(&r);
        r.o.threaded = threaded;
        rig_open(&r);
        for (uint32_t i = 0; i < MAX_JOBS; i++) {
            ck_assert(push(&r, false, 0, i % N_FRAMES, i % N_HOST));
            ck_assert(push(&r, false, 0, i % N_FRAMES, N_HOST + i % N_FILE));
        }
        kv_tier_stop(r.tier);
        while (kv_tier_pop(r.tier, &done)) {
            ck_assert(!seen[done.job.id]);
            seen[done.job.id] = true;
            ck_assert(threaded || !done.ok);
            n++;
        }
        ck_assert_uint_eq(n, 2 * MAX_JOBS);
        rig_release(&r);
    }
}
END_TEST

START_TEST(the_spill_file_is_private_and_has_no_name)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    DIR *fds = opendir("/proc/self/fd");
    int n_found = 0;
    for (struct dirent *d; (d = readdir(fds));) {
        char target[256], name[300];
        struct stat st;
        snprintf(name, sizeof(name), "/proc/self/fd/%s", d->d_name);
        ssize_t n = readlink(name, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = 0;
        if (strncmp(target, r.folder, strlen(r.folder)) != 0)
            continue;
        ck_assert_int_eq(stat(name, &st), 0);
        ck_assert_uint_eq(st.st_nlink, 0);
        ck_assert_uint_eq(st.st_mode & 0777, 0600);
        ck_assert_uint_eq((uint64_t)st.st_size, kv_tier_stats(r.tier).file_bytes);
        n_found++;
    }
    closedir(fds);
    ck_assert_int_ge(n_found, 1); /* once for copies, once for staging */
    ck_assert_int_eq(rmdir(r.folder), 0); /* empty while the tier is open */
    ck_assert_int_eq(mkdir(r.folder, 0700), 0);
    rig_release(&r);
}
END_TEST

START_TEST(parts_of_a_slot_can_be_read_wherever_they_lie)
{
    struct rig r;
    struct err e;
    rig_init(&r);
    rig_open(&r);
    size_t n = r.layout.group[0].block_bytes;
    uint8_t *p = mem_aligned(KV_TIER_ALIGN, 8 * KV_TIER_ALIGN);
    ck_assert_uint_gt(n, KV_TIER_ALIGN);
    ck_assert_uint_lt(n, 7 * KV_TIER_ALIGN);
    frame_write(&r, 0, 0, 5);
    ck_assert(push(&r, false, 0, 0, N_SLOTS - 1) && step_done(&r).ok);
    for (size_t offset = 0; offset < n; offset += offset % 3 ? 517 : 64) {
        for (size_t n_read = 1; n_read <= n - offset; n_read += 1033) {
            size_t shift = (offset + n_read) % 64;
            EXPECT(kv_tier_read(r.tier, 0, N_FILE - 1, offset, n_read, p + shift, &e) == OK);
            for (size_t i = 0; i < n_read; i++)
                EXPECT(p[shift + i] == pattern(5, offset + i));
        }
    }
    ck_assert_int_eq(kv_tier_read(r.tier, 0, N_FILE - 1, 0, KV_TIER_ALIGN, p, &e), OK);
    for (size_t i = 0; i < KV_TIER_ALIGN; i++)
        EXPECT(p[i] == pattern(5, i));
    kv_tier_fail_reads(r.tier, 1);
    ck_assert_int_eq(kv_tier_read(r.tier, 0, 1, 0, 64, p, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "cannot read 64 bytes of slot 1 of the spill file in '"));
    ck_assert_int_eq(kv_tier_read(r.tier, 0, 1, 0, 64, p, &e), OK);
    mem_free(p);
    rig_release(&r);
}
END_TEST

START_TEST(a_slot_that_is_written_again_is_read_with_its_new_bytes)
{
    struct rig r;
    struct err e;
    rig_init(&r);
    rig_open(&r);
    size_t n = r.layout.group[0].block_bytes;
    uint8_t *p = mem_alloc(n);
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint32_t file_slot = (uint32_t)(seed * 7 % N_FILE);
        frame_write(&r, 0, 0, seed);
        ck_assert(push(&r, false, 0, 0, N_SLOTS - N_FILE + file_slot) && step_done(&r).ok);
        EXPECT(kv_tier_read(r.tier, 0, file_slot, 0, n, p, &e) == OK);
        for (size_t i = 0; i < n; i++)
            EXPECT(p[i] == pattern(seed, i));
    }
    mem_free(p);
    rig_release(&r);
}
END_TEST

START_TEST(a_folder_that_is_missing_or_too_small_is_named)
{
    struct rig r;
    struct err e;
    rig_init(&r);
    r.o.path = "/tmp/millrace-no-such-folder/x";
    ck_assert_int_eq(kv_tier_open(&r.o, &r.tier, &e), ERR_IO);
    ck_assert_str_eq(e.text, "cannot make a spill file in '/tmp/millrace-no-such-folder/x': "
                             "No such file or directory");
    ck_assert_str_eq(e.param, "kv.spill.path");
    r.o.path = r.folder;
    r.o.n_file[0] = UINT32_MAX;
    ck_assert_int_eq(kv_tier_open(&r.o, &r.tier, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "no room for a spill file of "));
    ck_assert_ptr_nonnull(strstr(e.text, " are free, of which kv.spill.min_free keeps "));
    ck_assert_str_eq(e.param, "kv.spill.bytes");
    rig_release(&r);
}
END_TEST

START_TEST(moving_blocks_allocates_nothing)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    uint64_t n_before = mem_thread_allocs();
    for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
        EXPECT(push(&r, false, 0, 0, slot) && step_done(&r).ok);
        EXPECT(push(&r, true, 0, 0, slot) && step_done(&r).ok);
    }
    ck_assert_uint_eq(mem_thread_allocs(), n_before);
    rig_release(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tier");
    TCase *t = tcase_create("tier");
    tcase_add_test(t, every_slot_of_both_tiers_gives_back_its_bytes);
    tcase_add_test(t, without_a_file_or_ram_slots_the_other_tier_works);
    tcase_add_test(t, threads_answer_every_job_once_and_move_the_right_bytes);
    tcase_add_test(t, a_full_queue_refuses_until_an_answer_was_taken);
    tcase_add_test(t, failed_copies_say_so_and_leave_the_frame_as_it_was);
    tcase_add_test(t, a_job_that_waited_too_long_fails_once_and_is_never_done);
    tcase_add_test(t, a_job_that_hangs_in_the_disk_is_given_up_and_touches_its_frame_no_more);
    tcase_add_test(t, copies_within_ram_pass_a_disk_that_hangs);
    tcase_add_test(t, stopping_answers_what_is_left);
    tcase_add_test(t, the_spill_file_is_private_and_has_no_name);
    tcase_add_test(t, parts_of_a_slot_can_be_read_wherever_they_lie);
    tcase_add_test(t, a_slot_that_is_written_again_is_read_with_its_new_bytes);
    tcase_add_test(t, a_folder_that_is_missing_or_too_small_is_named);
    tcase_add_test(t, moving_blocks_allocates_nothing);
    suite_add_tcase(s, t);
    return run_suite(s);
}
