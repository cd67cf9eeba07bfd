/* The disk prefix cache in a folder that other users can access, and on a disk that fails: none of their files
 * is read or written through, and the reported figures are true. Runs as root, like all of tests/run. */
#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/unit/kvpool/disk_rig.h"

enum { STRANGER = 4321 };

static const char *const folders[] = {"", "/kv", "/kv/blocks", "/kv/names"};
enum { N_FOLDERS = sizeof(folders) / sizeof(folders[0]) };

/* Opens names and blocks; the first status that is not OK. */
static enum status open_both(struct rig *r, struct kv_named **named, struct err *e)
{
    const struct kv_named_options o = {.path = r->folder, .max_bytes = 1 << 20};
    *named = NULL;
    r->disk = NULL;
    enum status status = kv_named_open(&o, named, e);
    return status ? status : kv_disk_open(&r->o, &r->disk, e);
}

static void close_both(struct rig *r, struct kv_named *named)
{
    kv_disk_close(r->disk);
    r->disk = NULL;
    kv_named_close(named);
}

static const char *in_folder(const struct rig *r, const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s%s", r->folder, name);
    return path;
}

static void expect_refused(struct rig *r, const char *folder, const char *says)
{
    struct kv_named *named;
    struct err e = {0};
    ck_assert_int_eq(open_both(r, &named, &e), ERR_UNSUPPORTED);
    close_both(r, named);
    ck_assert_msg(strstr(e.text, in_folder(r, folder)) && strstr(e.text, says), "%s", e.text);
}

START_TEST(a_folder_of_another_user_is_refused_with_its_id)
{
    struct rig r;
    struct kv_named *named;
    struct err e;
    rig_init(&r);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    close_both(&r, named);
    for (int i = 0; i < N_FOLDERS; i++) {
        ck_assert_int_eq(chown(in_folder(&r, folders[i]), STRANGER, 0), 0);
        expect_refused(&r, folders[i], "' is owned by user 4321");
        ck_assert_int_eq(chown(in_folder(&r, folders[i]), 0, 0), 0);
    }
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    close_both(&r, named);
    rig_release(&r);
}
END_TEST

START_TEST(a_folder_that_others_can_write_is_refused)
{
    struct rig r;
    struct kv_named *named;
    struct err e;
    rig_init(&r);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    close_both(&r, named);
    for (int i = 0; i < N_FOLDERS; i++) {
        ck_assert_int_eq(chmod(in_folder(&r, folders[i]), 0770), 0);
        expect_refused(&r, folders[i], "can be written by others: mode 0770");
        ck_assert_int_eq(chmod(in_folder(&r, folders[i]), 0707), 0);
        expect_refused(&r, folders[i], "can be written by others: mode 0707");
        ck_assert_int_eq(chmod(in_folder(&r, folders[i]), 0700), 0);
    }
    /* In a shared folder like /tmp names of others cannot be moved. */
    ck_assert_int_eq(chmod(r.folder, 01777), 0);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    close_both(&r, named);
    rig_release(&r);
}
END_TEST

static int32_t tokens[8];
static const struct kv_named_prefix bot = {.name = STR_LIT("bot"), .tokens = tokens, .n_tokens = 8};

static const char *name_path(const struct rig *r)
{
    return in_folder(r, "/kv/names/0000000000000000--626f74");
}

static bool bot_is_there(struct kv_named *named)
{
    struct kv_named_prefix *got;
    struct err e;
    bool there = kv_named_get(named, bot.owner, bot.name, &got, &e) == OK;
    kv_named_prefix_free(got);
    return there;
}

START_TEST(a_file_that_others_could_have_written_is_not_used)
{
    struct rig r;
    struct kv_named *named;
    struct err e;
    char block[256];
    rig_init(&r);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    ck_assert_int_eq(kv_named_put(named, &bot, NULL, &e), OK);
    ck_assert(put(&r, 0, 1) && put(&r, 0, 2) && put(&r, 0, 3) && put(&r, 0, 4));
    snprintf(block, sizeof(block), "%s", path_of(&r, 0, 1));
    ck_assert_int_eq(chown(block, STRANGER, 0), 0);
    ck_assert_int_eq(chmod(path_of(&r, 0, 2), 0620), 0);
    ck_assert(!get(&r, 0, 1) && !get(&r, 0, 2) && get(&r, 0, 3));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bad, 2);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
    ck_assert_int_eq(chown(path_of(&r, 0, 3), STRANGER, 0), 0);
    ck_assert_int_eq(chown(name_path(&r), STRANGER, 0), 0);
    close_both(&r, named);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    ck_assert(!has(&r, 0, 3) && get(&r, 0, 4));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
    ck_assert(!bot_is_there(named));
    close_both(&r, named);
    ck_assert_int_eq(chown(in_folder(&r, "/kv/blocks/secret"), STRANGER, 0), 0);
    ck_assert_int_eq(open_both(&r, &named, &e), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "'secret' is owned by user 4321"));
    close_both(&r, named);
    rig_release(&r);
}
END_TEST

/* What stands where files are written first: a link, or another name of somebody's file. */
START_TEST(nothing_is_written_through_a_planted_file)
{
    struct rig r;
    struct kv_named *named;
    struct err e;
    char victim[256], text[8] = "";
    umask(0);
    rig_init(&r);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    snprintf(victim, sizeof(victim), "%s", in_folder(&r, "/victim"));
    int fd = open(victim, O_CREAT | O_RDWR, 0600);
    ck_assert_int_eq(write(fd, "precious", 8), 8);
    for (int hard = 0; hard < 2; hard++) {
        for (int i = 2; i < N_FOLDERS; i++) {
            char tmp[300];
            snprintf(tmp, sizeof(tmp), "%s/writing.tmp", in_folder(&r, folders[i]));
            ck_assert_int_eq(hard ? link(victim, tmp) : symlink(victim, tmp), 0);
        }
        ck_assert(put(&r, 0, (uint64_t)hard));
        ck_assert_int_eq(kv_named_put(named, &bot, NULL, &e), OK);
        ck_assert_int_eq(pread(fd, text, 8, 0), 8);
        ck_assert(memcmp(text, "precious", 8) == 0);
        ck_assert(get(&r, 0, (uint64_t)hard) && bot_is_there(named));
    }
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, 8);
    ck_assert_int_eq(stat(path_of(&r, 0, 1), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(name_path(&r), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    close(fd);
    close_both(&r, named);
    rig_release(&r);
}
END_TEST

/* ---- disks that refuse ---- */

/* Lines of the log with a text, since it was turned into this file. */
static int count_lines(int log, const char *text)
{
    static char all[1 << 16];
    ssize_t n = pread(log, all, sizeof(all) - 1, 0);
    int n_lines = 0;
    all[n < 0 ? 0 : n] = 0;
    for (const char *at = all; (at = strstr(at, text)); at++)
        n_lines++;
    return n_lines;
}

static int catch_log(void)
{
    int log = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    ck_assert_int_ge(log, 0);
    ck_assert_int_ge(dup2(log, 2), 0);
    return log;
}

/* What is reported is what is there: bytes, blocks, and each of these can be had. */
static void expect_true(struct rig *r, uint64_t n_most)
{
    struct kv_disk_stats st = kv_disk_stats(r->disk);
    uint32_t n = 0;
    ck_assert_uint_eq(st.n_bytes, disk_use(r));
    for (uint64_t i = 0; i < n_most; i++)
        n += has(r, 0, i) && get(r, 0, i);
    ck_assert_uint_eq(n, kv_disk_stats(r->disk).n_blocks);
    ck_assert_uint_eq(n, st.n_blocks);
}

/* A small file system where one can be mounted, else a limit on a file's size. */
static bool make_small(struct rig *r)
{
    if (mount("none", r->folder, "tmpfs", 0, "size=64k,mode=700") == 0)
        return true;
    ck_assert_int_eq(errno, EPERM);
    return false;
}

START_TEST(a_full_disk_is_reported_and_what_is_reported_is_true)
{
    struct rig r;
    struct kv_named *named;
    struct err e;
    rig_init(&r);
    rig_layout(&r, 400, KV_F16);
    clock_fake(true, 1000);
    bool mounted = make_small(&r);
    ck_assert_int_eq(open_both(&r, &named, &e), OK);
    int log = catch_log();
    uint64_t n = 0;
    if (mounted) {
        while (n < 20 && put(&r, 0, n))
            n++;
    } else {
        struct rlimit small = {DISK_UNIT_BYTES, RLIM_INFINITY};
        signal(SIGXFSZ, SIG_IGN);
        ck_assert(put(&r, 0, n++));
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        ck_assert(!put(&r, 0, n));
    }
    ck_assert_uint_ge(n, 1);
    ck_assert_uint_lt(n, 20);
    for (uint64_t i = n; i < n + 5; i++)
        ck_assert(!put(&r, 0, i));
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_faults, 6);
    ck_assert_int_eq(count_lines(log, "cannot write to the disk prefix cache"), 1);
    clock_fake_advance(61 * NS_PER_S);
    ck_assert(!put(&r, 0, n));
    ck_assert_int_eq(count_lines(log, "cannot write to the disk prefix cache"), 2);
    expect_true(&r, n + 5);
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    ck_assert_int_eq(mounted ? unlink(path_of(&r, 0, 0)) : setrlimit(RLIMIT_FSIZE, &all), 0);
    ck_assert(put(&r, 0, n) && get(&r, 0, n));
    close_both(&r, named);
    if (mounted)
        umount(r.folder);
    rig_release(&r);
}
END_TEST

/* As a file system that turns read-only: every change fails, here for want of a descriptor that allows any. */
START_TEST(on_a_read_only_disk_what_is_there_is_served_and_counted)
{
    struct rig r;
    rig_init(&r);
    rig_open(&r);
    clock_fake(true, 1000);
    r.o.max_bytes = 4 * disk_file_bytes(r.disk, 0);
    rig_restart(&r);
    for (uint64_t n = 0; n < 4; n++)
        ck_assert(put(&r, 0, n));
    int log = catch_log();
    bool mounted = mount(r.folder, r.folder, NULL, MS_BIND, NULL) == 0 &&
                   mount(NULL, r.folder, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0;
    int folder = r.disk->folder;
    char path[128];
    snprintf(path, sizeof(path), "%s/kv/blocks", r.folder);
    r.disk->folder = mounted ? open(path, O_RDONLY | O_DIRECTORY) : -1;
    for (uint64_t n = 10; n < 16; n++)
        ck_assert(!put(&r, 0, n) && !has(&r, 0, n)); /* needs room, and a file that cannot go */
    if (mounted)
        expect_true(&r, 20);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_blocks, 4);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_evicted, 0);
    ck_assert_uint_ge(kv_disk_stats(r.disk).n_bytes, disk_use(&r));
    ck_assert_uint_ge(kv_disk_stats(r.disk).n_faults, 6);
    ck_assert_int_eq(count_lines(log, "the disk prefix cache: "), 1);
    if (mounted) {
        close(r.disk->folder);
        ck_assert_int_eq(umount(r.folder), 0);
    }
    r.disk->folder = folder;
    ck_assert(put(&r, 0, 10) && get(&r, 0, 10));
    expect_true(&r, 20);
    ck_assert_uint_eq(kv_disk_stats(r.disk).n_evicted, 1);
    rig_release(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("private");
    TCase *t = tcase_create("private");
    tcase_add_test(t, a_folder_of_another_user_is_refused_with_its_id);
    tcase_add_test(t, a_folder_that_others_can_write_is_refused);
    tcase_add_test(t, a_file_that_others_could_have_written_is_not_used);
    tcase_add_test(t, nothing_is_written_through_a_planted_file);
    tcase_add_test(t, a_full_disk_is_reported_and_what_is_reported_is_true);
    tcase_add_test(t, on_a_read_only_disk_what_is_there_is_served_and_counted);
    suite_add_tcase(s, t);
    return run_suite(s);
}
