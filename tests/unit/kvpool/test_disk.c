/* kvpool/disk: blocks that were put are returned, also after a restart, and nothing else ever is; the limit of
 * bytes, the pins and the file modes hold. Threads are run under TSan by the preset tsan. */
#include <signal.h>
#include <sys/resource.h>

#include "tests/unit/kvpool/disk_rig.h"
#include "kvpool/kvpool_test.h"
#include "base/base_test.h"

START_TEST(blocks_of_each_group_come_back_now_and_after_a_restart)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    ck_assert(!has(&r, 0, 1) && !get(&r, 0, 1));
    for (uint64_t n = 0; n < 20; n++)
        ck_assert(put(&r, n % 2, n));
    for (int round = 0; round < 2; round++) {
        for (uint64_t n = 0; n < 20; n++) {
            ck_assert(has(&r, n % 2, n) && get(&r, n % 2, n));
            ck_assert(!has(&r, 1 - n % 2, n) && !get(&r, 1 - n % 2, n));
        }
        ck_assert_uint_eq(kv_disk_stats(r.disk).n_blocks, 20);
        ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
        rig_restart(&r);
    }
    rig_release(&r);
}
END_TEST

START_TEST(a_block_is_there_once_it_was_written_and_is_written_once)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    struct kv_disk_block b = block_of(&r, 0, 5);
    fill(&r, r.bytes, 0, 5);
    ck_assert(kv_disk_put(r.disk, &b));
    ck_assert(!has(&r, 0, 5));
    ck_assert(!kv_disk_put(r.disk, &b) && !kv_disk_get(r.disk, &b));
    ck_assert(finish(&r));
    ck_assert(has(&r, 0, 5));
    ck_assert(!kv_disk_put(r.disk, &b));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_put, 1);
    rig_release(&r);
}
END_TEST

START_TEST(another_model_layout_order_or_type_sees_nothing_and_takes_nothing_away)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    ck_assert(put(&r, 0, 1) && put(&r, 1, 2));
    for (int other = 0; other < 4; other++) {
        kv_disk_close(r.disk);
        r.o.model_digest[31] = other == 0;
        rig_layout(&r, other == 1 ? 48 : 40, other == 2 ? KV_BF16 : KV_F16);
        r.layout.order[0] = other == 3;
        rig_open(&r);
        ck_assert(!has(&r, 0, 1) && !get(&r, 0, 1) && !has(&r, 1, 2) && !get(&r, 1, 2));
        ck_assert_uint_eq(kv_disk_stats(r.disk).n_foreign, 2 + 2 * (uint32_t)other);
        ck_assert(put(&r, 0, 1) && get(&r, 0, 1) && put(&r, 1, 3));
    }
    kv_disk_close(r.disk);
    r.o.model_digest[31] = 0;
    rig_layout(&r, 40, KV_F16);
    rig_open(&r);
    ck_assert(get(&r, 0, 1) && get(&r, 1, 2) && !get(&r, 1, 3));
    rig_release(&r);
}
END_TEST

/* As if a short domain collided, or somebody renamed files. */
START_TEST(a_file_of_another_model_key_or_group_under_our_name_is_not_served)
{
    struct rig r;
    char from[256];
    rig_init(&r);
    rig_layout(&r, 24, KV_F16);
    rig_open(&r);
    ck_assert(put(&r, 0, 1) && put(&r, 0, 2) && put(&r, 0, 3));
    snprintf(from, sizeof(from), "%s", path_of(&r, 0, 2));
    ck_assert_int_eq(rename(from, path_of(&r, 0, 4)), 0); /* another key */
    snprintf(from, sizeof(from), "%s", path_of(&r, 0, 3));
    kv_disk_close(r.disk);
    r.o.model_digest[0] ^= 1;
    rig_open(&r);
    ck_assert_int_eq(rename(from, path_of(&r, 0, 3)), 0); /* another model */
    rig_restart(&r);
    ck_assert(has(&r, 0, 3));
    ck_assert(!get(&r, 0, 3));
    ck_assert(!has(&r, 0, 3));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bad, 1);
    ck_assert_int_eq(access(path_of(&r, 0, 3), F_OK), -1);
    kv_disk_close(r.disk);
    r.o.model_digest[0] ^= 1;
    rig_open(&r);
    ck_assert(has(&r, 0, 4) && !get(&r, 0, 4) && !has(&r, 0, 4));
    ck_assert(get(&r, 0, 1));
    rig_release(&r);
}
END_TEST

START_TEST(other_tokens_or_another_parent_are_not_served)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    for (int what = 0; what < 2; what++) {
        ck_assert(put(&r, 0, 1));
        struct kv_disk_block b = block_of(&r, 0, 1);
        if (what == 0)
            r.tokens[N_BLOCK_TOKENS - 1]++;
        else
            b.parent.w[1] ^= 1;
        const uint8_t *to = plain_block(&r.store, 0, b.frame);
        ck_assert(kv_disk_get(r.disk, &b) && !finish(&r));
        for (size_t i = 0; i < r.layout.group[0].block_bytes; i++)
            EXPECT(to[i] == 0);
    }
    rig_release(&r);
}
END_TEST

/* Reads or writes one byte of a block's file. */
static uint8_t poke(struct rig *r, uint64_t n, size_t at, int flip)
{
    uint8_t byte;
    int fd = open(path_of(r, 0, n), O_RDWR);
    EXPECT(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= (uint8_t)flip;
    EXPECT(pwrite(fd, &byte, 1, (off_t)at) == 1);
    close(fd);
    return byte;
}

START_TEST(a_flipped_bit_anywhere_is_never_served)
{
    struct rig r;
    uint64_t state = 99;
    rig_init(&r);
    rig_open(&r);
    size_t n_file = DISK_HEAD_BYTES + r.layout.group[0].block_bytes;
    for (size_t k = 0; k < DISK_HEAD_BYTES + 400; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t at = k < DISK_HEAD_BYTES ? k : (state >> 33) % n_file;
        EXPECT(put(&r, 0, k));
        poke(&r, k, at, 1 << (state >> 60) % 8);
        if (k % 100 == 0)
            rig_restart(&r);
        EXPECT(!get(&r, 0, k) && !has(&r, 0, k));
        EXPECT(access(path_of(&r, 0, k), F_OK) < 0);
        EXPECT(put(&r, 0, k) && get(&r, 0, k)); /* and can be had anew */
    }
    rig_release(&r);
}
END_TEST

START_TEST(what_is_no_file_or_has_another_size_is_not_served)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    for (int restart = 0; restart < 2; restart++) {
        for (uint64_t n = 0; n < 7; n++)
            ck_assert(put(&r, 0, n));
        ck_assert_int_eq(truncate(path_of(&r, 0, 0), 0), 0);
        ck_assert_int_eq(truncate(path_of(&r, 0, 1), DISK_HEAD_BYTES), 0);
        ck_assert_int_eq(truncate(path_of(&r, 0, 2), 1 << 20), 0);
        for (uint64_t n = 3; n < 6; n++)
            ck_assert_int_eq(unlink(path_of(&r, 0, n)), 0);
        ck_assert_int_eq(mkfifo(path_of(&r, 0, 3), 0600), 0);
        ck_assert_int_eq(symlink("/dev/zero", path_of(&r, 0, 4)), 0);
        if (restart)
            rig_restart(&r);
        for (uint64_t n = 0; n < 6; n++)
            ck_assert(!get(&r, 0, n));
        ck_assert(get(&r, 0, 6));
        ck_assert_uint_eq(kv_disk_stats(r.disk).n_bad, restart ? 0 : 6);
        rig_restart(&r);
        ck_assert_uint_eq(disk_use(&r), disk_file_bytes(r.disk, 0));
        ck_assert_int_eq(unlink(path_of(&r, 0, 6)), 0);
        rig_restart(&r);
    }
    rig_release(&r);
}
END_TEST

START_TEST(half_written_files_go_and_files_of_others_stay)
{
    struct rig r;
    char path[128];
    rig_init(&r);
    rig_open(&r);
    ck_assert(put(&r, 0, 1));
    static const char *names[] = {"writing.tmp", "readme", "x.kv"};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof(path), "%s/kv/blocks/%s", r.folder, names[i]);
            if (round == 0)
                close(open(path, O_CREAT | O_WRONLY, 0600));
            else
                ck_assert_int_eq(access(path, F_OK), i == 0 ? -1 : 0);
        }
        rig_restart(&r);
    }
    ck_assert(get(&r, 0, 1));
    rig_release(&r);
}
END_TEST

static void look_at_use(void *arg)
{
    struct rig *r = arg;
    EXPECT(disk_use(r) <= r->o.max_bytes);
}

START_TEST(the_cap_holds_at_all_times_and_the_least_recently_used_goes)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    uint64_t file = disk_file_bytes(r.disk, 0);
    kv_disk_close(r.disk);
    r.o.max_bytes = 10 * file + 4095;
    r.o.before_io = look_at_use;
    r.o.before_io_arg = &r;
    rig_open(&r);
    for (uint64_t n = 0; n < 300; n++) {
        EXPECT(put(&r, 0, n));
        EXPECT(disk_use(&r) <= r.o.max_bytes && disk_use(&r) == kv_disk_stats(r.disk).n_bytes);
        EXPECT(get(&r, 0, 0)); /* used all the time: stays */
        if (n >= 9)
            EXPECT(has(&r, 0, n - 8) && !has(&r, 0, n > 9 ? n - 9 : 400));
    }
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_evicted, 290);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_blocks, 10);

    /* A larger group's block takes several smaller ones' room. */
    rig_restart(&r);
    uint64_t n_before = kv_disk_stats(r.disk).n_bytes;
    ck_assert(put(&r, 1, 1000) && get(&r, 1, 1000));
    ck_assert_uint_le(kv_disk_stats(r.disk).n_bytes, n_before + file);
    rig_release(&r);
}
END_TEST

START_TEST(the_order_of_use_survives_and_a_smaller_cap_deletes_the_oldest)
{
    struct rig r;
    struct timespec when[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    rig_init(&r);
    rig_open(&r);
    for (uint64_t n = 0; n < 10; n++) {
        ck_assert(put(&r, 0, n));
        when[1].tv_sec += 10; /* files' times may be coarser than this test is quick */
        ck_assert_int_eq(utimensat(AT_FDCWD, path_of(&r, 0, n), when, 0), 0);
    }
    ck_assert(get(&r, 0, 2)); /* sets its time to now */
    uint64_t file = disk_file_bytes(r.disk, 0);
    r.o.max_bytes = 4 * file;
    rig_restart(&r);
    for (uint64_t n = 0; n < 10; n++)
        ck_assert_int_eq(has(&r, 0, n), n == 2 || n >= 7);
    ck_assert_uint_eq(disk_use(&r), 4 * file);
    ck_assert(put(&r, 0, 20));
    ck_assert(!has(&r, 0, 7) && has(&r, 0, 8) && has(&r, 0, 2));
    rig_release(&r);
}
END_TEST

START_TEST(pinned_blocks_are_never_evicted)
{
    struct rig r;
    struct kv_key keys[4];
    rig_init(&r);
    rig_open(&r);
    r.o.max_bytes = 8 * disk_file_bytes(r.disk, 0);
    rig_restart(&r);
    for (uint64_t n = 0; n < 4; n++)
        keys[n] = key_of(n);
    ck_assert(put(&r, 0, 0) && put(&r, 0, 1)); /* two before they are pinned, two after */
    ck_assert_uint_eq(kv_disk_pin(r.disk, keys, 4), 4);
    ck_assert(!has(&r, 0, 3));
    ck_assert(put(&r, 0, 2) && put(&r, 0, 3));
    for (uint64_t n = 10; n < 40; n++)
        EXPECT(put(&r, 0, n));
    for (uint64_t n = 0; n < 4; n++)
        ck_assert(get(&r, 0, n));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_pinned, 8);
    for (uint64_t n = 36; n < 40; n++) {
        struct kv_key key = key_of(n);
        ck_assert_uint_eq(kv_disk_pin(r.disk, &key, 1), 1);
    }
    ck_assert(!put(&r, 0, 50)); /* no room that could be had */
    ck_assert_uint_eq(kv_disk_pin(r.disk, keys, 1), 1); /* twice: wants two unpins */
    kv_disk_unpin(r.disk, keys, 4);
    for (uint64_t n = 50; n < 60; n++)
        EXPECT(put(&r, 0, n));
    ck_assert(has(&r, 0, 0) && !has(&r, 0, 1) && !has(&r, 0, 2) && !has(&r, 0, 3));
    kv_disk_unpin(r.disk, keys, 1);
    for (uint64_t n = 60; n < 70; n++)
        EXPECT(put(&r, 0, n));
    ck_assert(!has(&r, 0, 0));
    rig_release(&r);
}
END_TEST

START_TEST(blocks_of_named_prefixes_are_pinned_from_the_start)
{
    struct rig r;
    struct kv_named *named;
    struct err e;
    rig_init(&r);
    rig_open(&r);
    struct kv_key keys[3] = {key_of(0), key_of(1), key_of(2)};
    int32_t tokens[24] = {0};
    struct kv_named_prefix p = {.name = STR_LIT("bot"),
                                .tokens = tokens,
                                .n_tokens = 24,
                                .keys = keys,
                                .n_keys = 3,
                                .domain = kv_disk_domain(r.disk)};
    struct kv_named_options o = {.path = r.folder, .max_bytes = DISK_UNIT_BYTES};
    ck_assert_int_eq(kv_named_open(&o, &named, &e), OK);
    ck_assert_int_eq(kv_named_put(named, &p, NULL, &e), OK);
    for (uint64_t n = 0; n < 8; n++)
        ck_assert(put(&r, 0, n));
    r.o.max_bytes = 5 * disk_file_bytes(r.disk, 0) + o.max_bytes;
    for (int other_model = 1; other_model >= 0; other_model--) {
        kv_disk_close(r.disk);
        kv_named_close(named);
        o.model[0] = (uint8_t)other_model;
        ck_assert_int_eq(kv_named_open(&o, &named, &e), OK);
        r.o.named = named;
        r.o.model_digest[0] ^= 1;
        rig_open(&r);
        for (uint64_t n = 100; n < 120; n++)
            EXPECT(put(&r, 0, n));
        ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r) + DISK_UNIT_BYTES);
        ck_assert_uint_le(kv_disk_stats(r.disk).n_bytes, r.o.max_bytes);
    }
    ck_assert(get(&r, 0, 0) && get(&r, 0, 1) && get(&r, 0, 2) && !has(&r, 0, 3));
    rig_release(&r);
    kv_named_close(named);
}
END_TEST

START_TEST(folders_and_files_are_private_whatever_the_umask)
{
    struct rig r;
    char path[300];
    struct stat st;
    umask(0);
    rig_init(&r);
    ck_assert_int_eq(rmdir(r.folder), 0);
    rig_open(&r);
    ck_assert(put(&r, 0, 1));
    static const char *folders[] = {"", "/kv", "/kv/blocks"};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof(path), "%s%s", r.folder, folders[i]);
            ck_assert_int_eq(stat(path, &st), 0);
            /* The folder that was there already is its owner's to open. */
            ck_assert_uint_eq(st.st_mode & 07777, round && i == 0 ? 0755 : 0700);
            ck_assert_int_eq(chmod(path, 0755), 0);
        }
        rig_restart(&r);
    }
    ck_assert_int_eq(stat(path_of(&r, 0, 1), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    snprintf(path, sizeof(path), "%s/kv/blocks/secret", r.folder);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    rig_release(&r);
}
END_TEST

START_TEST(what_cannot_be_opened_is_said)
{
    struct rig r;
    struct kv_disk *second;
    struct err e;
    rig_init(&r);
    rig_open(&r);
    ck_assert_int_eq(kv_disk_open(&r.o, &second, &e), ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(e.text, "/kv/blocks' is used by another process"));
    kv_disk_close(r.disk);
    r.o.max_bytes = 4096;
    ck_assert_int_eq(kv_disk_open(&r.o, &second, &e), ERR_INVALID);
    ck_assert_ptr_nonnull(
        strstr(e.text, "prefix.disk.bytes 4096 leaves 4096 bytes beside named prefixes, "));
    r.o.path = "/tmp/millrace-no-such-folder/x";
    r.o.max_bytes = 1 << 24;
    ck_assert_int_eq(kv_disk_open(&r.o, &second, &e), ERR_IO);
    ck_assert_str_eq(e.text, "cannot open the folder '/tmp/millrace-no-such-folder/x': "
                             "No such file or directory");
    r.o.path = r.folder;
    rig_open(&r);
    rig_release(&r);
}
END_TEST

START_TEST(without_its_secret_a_cache_begins_anew)
{
    struct rig r;
    uint64_t first[2], second[2];
    char path[128];
    rig_init(&r);
    rig_open(&r);
    kv_disk_secret(r.disk, first);
    ck_assert(put(&r, 0, 1));
    rig_restart(&r);
    kv_disk_secret(r.disk, second);
    ck_assert(memcmp(first, second, sizeof(first)) == 0 && (first[0] || first[1]));
    snprintf(path, sizeof(path), "%s/kv/blocks/secret", r.folder);
    for (int what = 0; what < 3; what++) {
        if (what == 0) {
            uint8_t byte;
            int fd = open(path, O_RDWR);
            ck_assert_int_eq(pread(fd, &byte, 1, 9), 1);
            byte ^= 4;
            ck_assert_int_eq(pwrite(fd, &byte, 1, 9), 1);
            close(fd);
        } else {
            ck_assert_int_eq(what == 1 ? truncate(path, 7) : unlink(path), 0);
        }
        rig_restart(&r);
        kv_disk_secret(r.disk, second);
        ck_assert(memcmp(first, second, sizeof(first)) != 0);
        ck_assert(!has(&r, 0, 1) && !get(&r, 0, 1));
        memcpy(first, second, sizeof(first));
    }
    rig_release(&r);
}
END_TEST

START_TEST(a_write_that_fails_costs_that_block_alone)
{
    struct rig r;
    struct rlimit small = {4096, RLIM_INFINITY}, old;
    signal(SIGXFSZ, SIG_IGN);
    rig_init(&r);
    rig_layout(&r, 400, KV_F16);
    rig_open(&r);
    ck_assert(put(&r, 0, 1));
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    ck_assert(!put(&r, 0, 2) && !has(&r, 0, 2));
    ck_assert(get(&r, 0, 1));
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert(put(&r, 0, 2) && get(&r, 0, 2) && put(&r, 0, 3));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_failed, 1);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
    rig_release(&r);
}
END_TEST

static void answer_late(void *arg)
{
    struct rig *r = arg;
    struct kv_disk_done done;
    clock_fake_advance(2000);
    EXPECT(kv_disk_pop(r->disk, &done) && !done.ok && done.id == r->n_jobs);
    /* Their owners go on. */
    memset(r->bytes, 0x77, r->layout.group[0].block_bytes);
    memset(plain_block(&r->store, 0, 0), 0x77, r->layout.group[0].block_bytes);
}

START_TEST(a_disk_that_hangs_is_given_up_and_touches_no_block_after)
{
    struct rig r;
    struct kv_disk_done done;
    clock_fake(true, NS_PER_S);
    rig_init(&r);
    rig_open(&r);
    ck_assert(put(&r, 0, 1));
    r.o.deadline_ns = 1000;
    r.o.before_io = answer_late;
    r.o.before_io_arg = &r;
    rig_restart(&r);
    struct kv_disk_block b = block_of(&r, 0, 1);
    ck_assert(kv_disk_get(r.disk, &b) && kv_disk_step(r.disk) && !kv_disk_pop(r.disk, &done));
    for (size_t i = 0; i < r.layout.group[0].block_bytes; i++)
        EXPECT(plain_block(&r.store, 0, b.frame)[i] == 0x77);
    b = block_of(&r, 0, 2);
    fill(&r, r.bytes, 0, 2);
    ck_assert(kv_disk_put(r.disk, &b) && kv_disk_step(r.disk) && !kv_disk_pop(r.disk, &done));
    for (size_t i = 0; i < r.layout.group[0].block_bytes; i++)
        EXPECT(r.bytes[i] == 0x77);
    ck_assert(has(&r, 0, 1)); /* slow is not bad */
    ck_assert(!has(&r, 0, 2)); /* whether it was written is not known */
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_late, 2);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
    r.o.before_io = NULL;
    rig_restart(&r);
    ck_assert(get(&r, 0, 1) && get(&r, 0, 2)); /* it was, whole */
    rig_release(&r);
}
END_TEST

/* Deletions are done whenever the disk comes to them: their room is not lost. */
START_TEST(late_deletions_give_their_room_back)
{
    struct rig r;
    struct kv_disk_done done;
    clock_fake(true, NS_PER_S);
    rig_init(&r);
    r.o.deadline_ns = 1000;
    rig_open(&r);
    r.o.max_bytes = 3 * disk_file_bytes(r.disk, 0);
    rig_restart(&r);
    for (uint64_t n = 0; n < 3; n++)
        ck_assert(put(&r, 0, n));
    for (uint64_t n = 10; n < 20; n++) {
        struct kv_disk_block b = block_of(&r, 0, n);
        fill(&r, r.bytes, 0, n);
        ck_assert(kv_disk_put(r.disk, &b));
        clock_fake_advance(2000);
        ck_assert(kv_disk_pop(r.disk, &done) && !done.ok);
        while (kv_disk_step(r.disk))
            continue;
        ck_assert_uint_le(kv_disk_stats(r.disk).n_bytes, r.o.max_bytes);
        ck_assert_uint_le(disk_use(&r), kv_disk_stats(r.disk).n_bytes);
    }
    ck_assert(put(&r, 0, 30) && get(&r, 0, 30));
    rig_release(&r);
}
END_TEST

START_TEST(stopping_writes_what_was_queued)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        struct rig r;
        struct kv_disk_done done;
        rig_init(&r);
        r.o.threaded = threaded;
        rig_open(&r);
        fill(&r, r.bytes, 0, 0);
        for (uint64_t n = 0; n < MAX_JOBS; n++) {
            struct kv_disk_block b = block_of(&r, 0, n);
            ck_assert(kv_disk_put(r.disk, &b));
        }
        ck_assert_uint_eq(kv_disk_room(r.disk), 0);
        struct kv_disk_block b = block_of(&r, 0, 100);
        ck_assert(!kv_disk_put(r.disk, &b));
        kv_disk_stop(r.disk);
        for (uint64_t n = 0; n < MAX_JOBS; n++)
            ck_assert(kv_disk_pop(r.disk, &done) && done.ok && !done.get);
        ck_assert(!kv_disk_pop(r.disk, &done));
        rig_restart(&r);
        for (uint64_t n = 0; n < MAX_JOBS; n++)
            ck_assert(has(&r, 0, n));
        ck_assert(!has(&r, 0, 100));
        rig_release(&r);
    }
}
END_TEST

/* One buffer a job, random puts and gets of more blocks than fit; every answer is checked. */
START_TEST(under_threads_every_ticket_is_answered_once_with_the_right_bytes)
{
    enum { N_KEYS = 60 };
    struct rig r;
    uint64_t state = 7, n_of[MAX_JOBS], id_of[MAX_JOBS];
    bool busy[MAX_JOBS] = {false}, is_get[MAX_JOBS];
    uint32_t n_out = 0, n_begun = 0, n_done = 0;
    rig_init(&r);
    rig_open(&r);
    r.o.max_bytes = 30 * disk_file_bytes(r.disk, 0);
    r.o.threaded = true;
    rig_restart(&r);
    size_t n_bytes = r.layout.group[0].block_bytes;
    uint8_t *buffers = mem_zalloc(MAX_JOBS * n_bytes);
    for (bool enough = false; !enough || n_out > 0;) {
        enough = kv_disk_stats(r.disk).n_got >= 500 && kv_disk_stats(r.disk).n_evicted >= 100;
        struct kv_disk_done done;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint32_t i = state % MAX_JOBS;
        uint64_t n = (state >> 16) % N_KEYS;
        bool wants_get = state >> 40 & 1;
        if (!enough && !busy[i]) {
            struct kv_disk_block b = block_of(&r, 0, n);
            b.bytes = buffers + i * n_bytes;
            b.frame = i;
            if (!wants_get)
                fill(&r, b.bytes, 0, n);
            if (wants_get ? kv_disk_get(r.disk, &b) : kv_disk_put(r.disk, &b)) {
                busy[i] = true, is_get[i] = wants_get, n_of[i] = n, id_of[i] = b.id;
                n_out++, n_begun++;
            }
        }
        while (kv_disk_pop(r.disk, &done)) {
            i = (uint32_t)((size_t)(done.bytes - buffers) / n_bytes);
            EXPECT(busy[i] && id_of[i] == done.id && is_get[i] == done.get && done.ok);
            if (done.get)
                EXPECT(holds(&r, plain_block(&r.store, 0, i), 0, n_of[i]));
            busy[i] = false;
            n_out--, n_done++;
        }
        if (n_out == MAX_JOBS || (enough && n_out > 0))
            mpsc_wait(r.event, -1);
    }
    ck_assert_uint_eq(n_begun, n_done);
    kv_disk_stop(r.disk);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
    ck_assert_uint_le(disk_use(&r), r.o.max_bytes);
    mem_free(buffers);
    rig_release(&r);
}
END_TEST

START_TEST(nothing_is_allocated_after_the_start)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    uint64_t n_before = mem_thread_allocs();
    for (uint64_t n = 0; n < 50; n++)
        EXPECT(put(&r, 0, n) && get(&r, 0, n));
    ck_assert_uint_eq(mem_thread_allocs(), n_before);
    rig_release(&r);
}
END_TEST

START_TEST(the_index_is_bounded_and_what_is_over_it_is_deleted)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    r.o.max_bytes = 10 * disk_file_bytes(r.disk, 1);
    rig_restart(&r);
    uint32_t n_entries = r.disk->n_entries;
    ck_assert_uint_lt(n_entries, 5000);
    for (uint32_t k = 0; k < n_entries + 10; k++) { /* tiny files of another model */
        char path[256], name[DISK_NAME_BYTES];
        struct kv_key key = key_of(k);
        disk_name(name, 0x1234, 0, &key);
        snprintf(path, sizeof(path), "%s/kv/blocks/%s", r.folder, name);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        EXPECT(fd >= 0);
        close(fd);
    }
    rig_restart(&r);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_foreign, n_entries);
    ck_assert(put(&r, 0, 1) && get(&r, 0, 1)); /* takes the place of one of them */
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_foreign, n_entries - 1);
    rig_release(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("disk");
    TCase *t = tcase_create("disk");
    tcase_add_test(t, blocks_of_each_group_come_back_now_and_after_a_restart);
    tcase_add_test(t, a_block_is_there_once_it_was_written_and_is_written_once);
    tcase_add_test(t, another_model_layout_order_or_type_sees_nothing_and_takes_nothing_away);
    tcase_add_test(t, a_file_of_another_model_key_or_group_under_our_name_is_not_served);
    tcase_add_test(t, other_tokens_or_another_parent_are_not_served);
    tcase_add_test(t, a_flipped_bit_anywhere_is_never_served);
    tcase_add_test(t, what_is_no_file_or_has_another_size_is_not_served);
    tcase_add_test(t, half_written_files_go_and_files_of_others_stay);
    tcase_add_test(t, the_cap_holds_at_all_times_and_the_least_recently_used_goes);
    tcase_add_test(t, the_order_of_use_survives_and_a_smaller_cap_deletes_the_oldest);
    tcase_add_test(t, pinned_blocks_are_never_evicted);
    tcase_add_test(t, blocks_of_named_prefixes_are_pinned_from_the_start);
    tcase_add_test(t, folders_and_files_are_private_whatever_the_umask);
    tcase_add_test(t, what_cannot_be_opened_is_said);
    tcase_add_test(t, without_its_secret_a_cache_begins_anew);
    tcase_add_test(t, a_write_that_fails_costs_that_block_alone);
    tcase_add_test(t, a_disk_that_hangs_is_given_up_and_touches_no_block_after);
    tcase_add_test(t, late_deletions_give_their_room_back);
    tcase_add_test(t, stopping_writes_what_was_queued);
    tcase_add_test(t, under_threads_every_ticket_is_answered_once_with_the_right_bytes);
    tcase_add_test(t, nothing_is_allocated_after_the_start);
    tcase_add_test(t, the_index_is_bounded_and_what_is_over_it_is_deleted);
    suite_add_tcase(s, t);
    return run_suite(s);
}
