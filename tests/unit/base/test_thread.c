/* base/thread and base/cgroup: threads run with signals blocked; quotas and limits are found in
 * made-up /proc and /sys trees as containers and hosts show them. */
#include <check.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cgroup.h"
#include "base/thread.h"
#include "tests/unit/run_suite.h"

struct seen {
    bool signals_blocked, faults_blocked;
    int n;
    struct mutex lock;
};

static void look(void *arg)
{
    struct seen *s = arg;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    s->signals_blocked = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT);
    s->faults_blocked = sigismember(&mask, SIGBUS) || sigismember(&mask, SIGSEGV);
}

START_TEST(a_thread_runs_with_signals_blocked_and_the_caller_keeps_its_mask)
{
    struct seen seen = {0};
    struct thread t;
    struct err e;
    sigset_t mask;
    ck_assert_int_eq(thread_start(&t, "looker", look, &seen, &e), OK);
    thread_join(&t);
    ck_assert(!t.running);
    thread_join(&t); /* a second time is nothing */
    ck_assert(seen.signals_blocked && !seen.faults_blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ck_assert(!sigismember(&mask, SIGTERM));
}
END_TEST

static void use_a_mebibyte(void *arg)
{
    volatile char used[1 << 20];
    for (size_t i = 0; i < sizeof(used); i += 1024)
        used[i] = 1;
    *(bool *)arg = used[0] != 0;
}

/* The default is what ulimit -s said when the process began. */
START_TEST(a_thread_has_stack_whatever_the_default)
{
    bool done = false;
    pthread_attr_t small;
    struct thread t;
    struct err e;
    ck_assert(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 17) == 0);
    ck_assert_int_eq(pthread_setattr_default_np(&small), 0);
    ck_assert_int_eq(thread_start(&t, "user", use_a_mebibyte, &done, &e), OK);
    thread_join(&t);
    ck_assert(done);
    pthread_attr_destroy(&small);
}
END_TEST

static void count(void *arg)
{
    struct seen *s = arg;
    for (int i = 0; i < 20000; i++) {
        mutex_lock(&s->lock);
        s->n++;
        mutex_unlock(&s->lock);
    }
}

START_TEST(a_mutex_lets_one_thread_in_at_a_time)
{
    struct seen seen = {0};
    struct thread threads[3];
    struct err e;
    mutex_init(&seen.lock);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(thread_start(&threads[i], "counter", count, &seen, &e), OK);
    for (int i = 0; i < 3; i++)
        thread_join(&threads[i]);
    ck_assert_int_eq(seen.n, 60000);
    mutex_release(&seen.lock);
}
END_TEST

struct file {
    const char *path;
    const char *text;
};

struct tree {
    const char *claim;
    struct file files[8];
    int cpus;
    uint64_t memory;
};

#define NONE UINT64_MAX
#define V2_MOUNT "30 25 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_CPU_MOUNT "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define V1_MEMORY_MOUNT "34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

static const struct tree trees[] = {
    {"nothing is there", {{"/unused", ""}}, 0, NONE},
    {"v2 without limits",
     {{"/proc/self/cgroup", "0::/user.slice\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/user.slice/memory.max", "max\n"}},
     0,
     NONE},
    {"v2 quota is rounded up",
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "150000 100000\n"},
      {"/sys/fs/cgroup/a/memory.max", "1073741824\n"}},
     2,
     1073741824},
    {"a quota under one CPU is one",
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "5000 100000\n"}},
     1,
     NONE},
    {"a whole quota is not rounded up",
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"}},
     3,
     NONE},
    {"v2 takes the least of all ancestors",
     {{"/proc/self/cgroup", "0::/a/b/c\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "200000 100000\n"},
      {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n"},
      {"/sys/fs/cgroup/a/memory.max", "4096000\n"},
      {"/sys/fs/cgroup/a/b/c/memory.max", "8192000\n"}},
     2,
     4096000},
    {"v2 in a cgroup namespace: limits stand at the mount's top",
     {{"/proc/self/cgroup", "0::/\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/cpu.max", "100000 50000\n"},
      {"/sys/fs/cgroup/memory.max", "555\n"}},
     2,
     555},
    {"v2: the path leads out of the namespace",
     {{"/proc/self/cgroup", "0::/../../other\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/cpu.max", "400000 100000\n"}},
     4,
     NONE},
    {"v1 nested, joint mount of cpu and cpuacct",
     {{"/proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/x/y\n1:name=systemd:/\n"},
      {"/proc/self/mountinfo", V1_CPU_MOUNT V1_MEMORY_MOUNT},
      {"/sys/fs/cgroup/cpu,cpuacct/x/y/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/x/y/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "2147483648\n"}},
     3,
     2147483648},
    {"v1 memory without a limit",
     {{"/proc/self/cgroup", "4:memory:/m\n"},
      {"/proc/self/mountinfo", V1_MEMORY_MOUNT},
      {"/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n"}},
     0,
     NONE},
    {"v1 in a container: the host's path, only its own part is mounted",
     {{"/proc/self/cgroup", "3:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n"},
      {"/proc/self/mountinfo",
       "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
       "34 31 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "120000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "77777\n"}},
     2,
     77777},
    {"v1 in a container: mounted part and own path have nothing in common",
     {{"/proc/self/cgroup", "3:cpu:/kubepods/pod1/abc\n"},
      {"/proc/self/mountinfo",
       "33 31 0:30 /elsewhere /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "700000\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     7,
     NONE},
    {"v1: the own folder is hidden, the mount's top is what is left",
     {{"/proc/self/cgroup", "3:cpu:/kubepods/pod1/abc\n"},
      {"/proc/self/mountinfo", "33 31 0:30 / /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     6,
     NONE},
    {"a mount of part of the tree is not taken for a folder of a similar name",
     {{"/proc/self/cgroup", "3:cpu:/docker/abcdef\n"},
      {"/proc/self/mountinfo",
       "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
      {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/cpudef/cpu.cfs_quota_us", "100000\n"},
      {"/sys/fs/cgroup/cpudef/cpu.cfs_period_us", "100000\n"}},
     2,
     NONE},
    {"hybrid: cpu by v1, memory by v2; a blank in the mount's path",
     {{"/proc/self/cgroup", "2:cpu:/a\n0::/a\n"},
      {"/proc/self/mountinfo",
       "33 31 0:30 / /sys/fs/v1\\040cpu rw - cgroup cgroup rw,cpu\n" V2_MOUNT},
      {"/sys/fs/v1 cpu/a/cpu.cfs_quota_us", "500000\n"},
      {"/sys/fs/v1 cpu/a/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/a/memory.max", "123\n"}},
     5,
     123},
    {"nonsense in the files limits nothing",
     {{"/proc/self/cgroup", "junk\n0::/a\n::\n"},
      {"/proc/self/mountinfo", "junk\n - cgroup2 x\n" V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "x y\n"},
      {"/sys/fs/cgroup/a/memory.max", ""},
      {"/sys/fs/cgroup/cpu.max", "100000 0\n"}},
     0,
     NONE},
};

static void write_file(const char *root, const struct file *f)
{
    struct buf path = {0};
    buf_printf(&path, "%s%s", root, f->path);
    for (char *p = path.ptr + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path.ptr, 0755);
        *p = '/';
    }
    FILE *out = fopen(path.ptr, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(fputs(f->text, out), 0);
    ck_assert_int_eq(fclose(out), 0);
    buf_release(&path);
}

static void remove_tree(const char *root)
{
    struct buf command = {0};
    buf_printf(&command, "rm -rf '%s'", root);
    ck_assert_int_eq(system(command.ptr), 0);
    buf_release(&command);
}

START_TEST(limits_are_found_as_containers_and_hosts_show_them)
{
    const struct tree *t = &trees[_i];
    char root[] = "/tmp/millrace-cgroup-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (const struct file *f = t->files; f < t->files + 8 && f->path; f++)
        write_file(root, f);
    int cpus = cgroup_cpu_quota(root);
    uint64_t memory = cgroup_memory_limit(root);
    remove_tree(root);
    ck_assert_msg(cpus == t->cpus, "%s: %d CPUs", t->claim, cpus);
    ck_assert_msg(memory == t->memory, "%s: %llu bytes", t->claim, (unsigned long long)memory);
}
END_TEST

START_TEST(the_affinity_mask_bounds_the_cpu_count)
{
    cpu_set_t all, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    int n = thread_cpu_count();
    ck_assert_int_ge(n, 1);
    ck_assert_int_le(n, CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    ck_assert_int_eq(thread_cpu_count(), 1);
}
END_TEST

START_TEST(memory_is_bounded_by_what_the_machine_has)
{
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    ck_assert_uint_gt(thread_memory_limit(), 0);
    ck_assert_uint_le(thread_memory_limit(), total);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base/thread");
    TCase *t = tcase_create("thread");
    tcase_add_test(t, a_thread_runs_with_signals_blocked_and_the_caller_keeps_its_mask);
    tcase_add_test(t, a_thread_has_stack_whatever_the_default);
    tcase_add_test(t, a_mutex_lets_one_thread_in_at_a_time);
    tcase_add_loop_test(t, limits_are_found_as_containers_and_hosts_show_them, 0,
                        (int)(sizeof(trees) / sizeof(trees[0])));
    tcase_add_test(t, the_affinity_mask_bounds_the_cpu_count);
    tcase_add_test(t, memory_is_bounded_by_what_the_machine_has);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
