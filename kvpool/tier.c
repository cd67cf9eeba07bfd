/* RAM and file tiers and their threads; see tier.h.
 *
 * File: per group a run of slots, each block_bytes rounded up to KV_TIER_ALIGN, as O_DIRECT
 * requires. Blocks of the arena are aligned to 64 bytes only, so copies go through a bounce
 * buffer: one extra memcpy, a tenth of the write's time; it also allows a hanging job to be given up. */
#include "kvpool/tier.h"
#include "kvpool/kvpool_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "kvpool/copier.h"
#include "kvpool/file.h"

/* The part that threads other than the owner's read and write. */
struct shared {
    atomic_uint n_fail, n_fail_reads;
    _Atomic double ram_ns_byte, file_write_ns_byte, file_read_ns_byte;
};

struct kv_tier {
    struct kv_tier_options o;
    struct kv_copier *ram, *file; /* own; file is NULL without a spill file */
    int fd; /* owns; -1 without a spill file */
    int read_fd; /* owns; the same file through the page cache, for kv_tier_read; may equal fd */
    bool direct;
    uint64_t group_at[KV_MAX_GROUPS]; /* offset of the group's slot 0 in the file */
    size_t stride[KV_MAX_GROUPS]; /* bytes per slot in the file */
    uint64_t n_file_bytes;
    uint8_t *bounce; /* owns (unstage): largest stride; the file's thread only */
    size_t n_bounce_bytes;
    struct shared *shared; /* owns */
    struct kv_tier_stats stats; /* owner only; counters */
};

static bool take_one(atomic_uint *n)
{
    unsigned left = atomic_load(n);
    while (left > 0) {
        if (atomic_compare_exchange_weak(n, &left, left - 1))
            return true;
    }
    return false;
}

/* ---- RAM ---- */

static bool run_ram(void *arg, const void *job_, struct kv_ticket *ticket)
{
    struct kv_tier *t = arg;
    const struct kv_job *job = job_;
    const struct kv_arena_group *g = &t->o.store->arena.group[job->group];
    uint32_t slot = g->n_frames + job->slot;
    struct err e;
    if (take_one(&t->shared->n_fail) || !kv_ticket_hold(ticket))
        return false;
    uint64_t t0_ns = clock_ns();
    if (kv_store_copy(t->o.store, job->group, job->load ? slot : job->frame,
                      job->load ? job->frame : slot, &e) != OK)
        return false;
    kv_measure(&t->shared->ram_ns_byte, t0_ns, g->block_bytes);
    return true;
}

/* ---- file ---- */

static uint64_t slot_at(const struct kv_tier *t, uint32_t group, uint32_t file_slot)
{
    DCHECK(file_slot < t->o.n_file[group]);
    return t->group_at[group] + (uint64_t)file_slot * t->stride[group];
}

static bool spill(struct kv_tier *t, const struct kv_job *job, uint64_t at,
                  struct kv_ticket *ticket)
{
    struct err e;
    if (!kv_ticket_hold(ticket))
        return false;
    size_t n_bytes = t->o.store->arena.group[job->group].block_bytes;
    if (kv_store_read(t->o.store, job->group, job->frame, t->bounce, &e) != OK)
        return false;
    kv_ticket_let_go(ticket);
    if (t->o.before_io)
        t->o.before_io(t->o.before_io_arg);
    uint64_t t0_ns = clock_ns();
    if (!kv_file_write(t->fd, t->bounce, t->stride[job->group], at))
        return false;
    kv_measure(&t->shared->file_write_ns_byte, t0_ns, n_bytes);
    return true;
}

static bool load(struct kv_tier *t, const struct kv_job *job, uint64_t at, struct kv_ticket *ticket)
{
    struct err e;
    size_t n_bytes = t->o.store->arena.group[job->group].block_bytes;
    if (t->o.before_io)
        t->o.before_io(t->o.before_io_arg);
    uint64_t t0_ns = clock_ns();
    if (!kv_file_read(t->fd, t->bounce, t->stride[job->group], at) || !kv_ticket_hold(ticket))
        return false;
    if (kv_store_write(t->o.store, job->group, job->frame, t->bounce, &e) != OK)
        return false;
    kv_measure(&t->shared->file_read_ns_byte, t0_ns, n_bytes);
    return true;
}

static bool run_file(void *arg, const void *job_, struct kv_ticket *ticket)
{
    struct kv_tier *t = arg;
    const struct kv_job *job = job_;
    if (take_one(&t->shared->n_fail))
        return false;
    uint64_t at = slot_at(t, job->group, job->slot - t->o.store->arena.group[job->group].n_host);
    return job->load ? load(t, job, at, ticket) : spill(t, job, at, ticket);
}

enum status kv_tier_read(const struct kv_tier *t, uint32_t group, uint32_t file_slot, size_t offset,
                         size_t n_bytes, void *dst, struct err *e)
{
    CHECK(t->fd >= 0 && file_slot < t->o.n_file[group]);
    CHECK(offset <= t->stride[group] && n_bytes <= t->stride[group] - offset);
    uint64_t at = slot_at(t, group, file_slot) + offset;
    if (take_one(&t->shared->n_fail_reads))
        errno = EIO;
    else if (kv_file_read(t->read_fd, dst, n_bytes, at))
        return OK;
    return err_set(e, ERR_IO, "cannot read %zu bytes of slot %u of the spill file in '%s': %s",
                   n_bytes, file_slot, t->o.path, strerror(errno));
}

/* ---- life ---- */

/* A file without a name, read and written past the page cache where that works. */
static int open_unlinked(const char *path, bool *direct)
{
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    *direct = fd >= 0;
    if (fd < 0)
        fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    /* File systems without O_TMPFILE: the name exists for a moment. */
    struct buf name = {0};
    buf_printf(&name, "%s/millrace-spill-XXXXXX", path);
    fd = mkostemp(name.ptr, O_CLOEXEC);
    if (fd >= 0)
        unlink(name.ptr);
    int error = errno;
    buf_release(&name);
    errno = error;
    return fd;
}

/* Staged blocks are read again in every step: through the page cache, which the kernel may reclaim at any
 * time and which stays coherent with direct writes to a slot. Without /proc all I/O goes through it. */
static void open_for_staging(struct kv_tier *t)
{
    char name[64];
    t->read_fd = t->fd;
    if (!t->direct)
        return;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", t->fd);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* the slices are far apart */
        t->read_fd = fd;
    } else if (fcntl(t->fd, F_SETFL, O_RDWR) == 0) {
        t->direct = false;
    }
}

/* Allocates the space now where the file system can, so that no spill fails for lack of space. */
static bool size_file(int fd, uint64_t n_bytes)
{
    int rc;
    do
        rc = fallocate(fd, 0, 0, (off_t)n_bytes);
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = ftruncate(fd, (off_t)n_bytes);
    return rc == 0;
}

static uint64_t free_on_disk(int fd)
{
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

static enum status refuse_size(const struct kv_tier *t, uint64_t n_free, int error, struct err *e)
{
    return err_set_field(e, ERR_IO, "kv.spill.bytes", NULL,
                         "no room for a spill file of %s in '%s', where %s are free, of which "
                         "kv.spill.min_free keeps %s: %s",
                         size_shown(t->n_file_bytes).text, t->o.path, size_shown(n_free).text,
                         size_shown(t->o.min_free_bytes).text, strerror(error));
}

/* Compares first: an allocation that fills the disk before it fails would briefly leave no space for others. */
static enum status take_space(const struct kv_tier *t, struct err *e)
{
    uint64_t n_free = free_on_disk(t->fd), keep = t->o.min_free_bytes;
    if (n_free < keep || n_free - keep < t->n_file_bytes)
        return refuse_size(t, n_free, ENOSPC, e);
    return size_file(t->fd, t->n_file_bytes) ? OK : refuse_size(t, n_free, errno, e);
}

static enum status open_file(struct kv_tier *t, struct err *e)
{
    for (uint32_t g = 0; g < t->o.layout->n_groups; g++) {
        t->stride[g] = kv_tier_slot_bytes(t->o.layout->group[g].block_bytes);
        t->group_at[g] = t->n_file_bytes;
        t->n_file_bytes += (uint64_t)t->o.n_file[g] * t->stride[g];
        if (t->o.n_file[g] && t->stride[g] > t->n_bounce_bytes)
            t->n_bounce_bytes = t->stride[g];
    }
    if (t->n_file_bytes == 0)
        return OK;
    CHECK(t->o.path && *t->o.path);
    t->fd = open_unlinked(t->o.path, &t->direct);
    if (t->fd < 0)
        return err_set_field(e, ERR_IO, "kv.spill.path", NULL,
                             "cannot make a spill file in '%s': %s", t->o.path, strerror(errno));
    enum status st = take_space(t, e);
    if (st)
        return st;
    open_for_staging(t);
    t->bounce = t->o.store->ops->stage(t->o.store, t->n_bounce_bytes);
    return t->bounce ? OK
                     : err_set(e, ERR_NO_MEMORY, "no memory for a copy buffer of %zu bytes",
                               t->n_bounce_bytes);
}

enum status kv_tier_open(const struct kv_tier_options *o, struct kv_tier **out, struct err *e)
{
    struct kv_tier *t = mem_zalloc(sizeof(*t));
    struct kv_copier_options copier = {.name = "kv-copy-ram",
                                       .max_jobs = o->max_jobs,
                                       .job_bytes = sizeof(struct kv_job),
                                       .deadline_ns = o->deadline_ns,
                                       .threaded = o->threaded,
                                       .run = run_ram,
                                       .arg = t,
                                       .wake = o->wake,
                                       .wake_arg = o->wake_arg};
    t->o = *o;
    t->o.path = mem_strdup(o->path ? o->path : "");
    t->fd = t->read_fd = -1;
    t->shared = mem_zalloc(sizeof(*t->shared));
    enum status status = open_file(t, e);
    if (status == OK)
        status = kv_copier_new(&copier, &t->ram, e);
    if (status == OK && t->fd >= 0) {
        copier.name = "kv-copy-file";
        copier.run = run_file;
        status = kv_copier_new(&copier, &t->file, e);
    }
    if (status != OK) {
        kv_tier_close(t);
        return status;
    }
    *out = t;
    return OK;
}

void kv_tier_stop(struct kv_tier *t)
{
    if (t->ram)
        kv_copier_stop(t->ram);
    if (t->file)
        kv_copier_stop(t->file);
}

void kv_tier_close(struct kv_tier *t)
{
    if (!t)
        return;
    kv_copier_free(t->ram);
    kv_copier_free(t->file);
    if (t->read_fd >= 0 && t->read_fd != t->fd)
        close(t->read_fd);
    if (t->fd >= 0)
        close(t->fd);
    t->o.store->ops->unstage(t->o.store, t->bounce);
    mem_free(t->shared);
    mem_free((char *)t->o.path);
    mem_free(t);
}

/* ---- jobs ---- */

uint32_t kv_tier_room(const struct kv_tier *t)
{
    uint32_t ram = kv_copier_room(t->ram);
    uint32_t file = t->file ? kv_copier_room(t->file) : ram;
    return ram < file ? ram : file;
}

bool kv_tier_push(struct kv_tier *t, const struct kv_job *job)
{
    CHECK(job->group < t->o.layout->n_groups);
    const struct kv_arena_group *g = &t->o.store->arena.group[job->group];
    CHECKF(job->frame < g->n_frames && job->slot < g->n_host + t->o.n_file[job->group],
           "job %llu: frame %u, slot %u of group %u", (unsigned long long)job->id, job->frame,
           job->slot, job->group);
    return kv_copier_push(job->slot < g->n_host ? t->ram : t->file, job);
}

static void count(struct kv_tier *t, const struct kv_done *done)
{
    size_t n_bytes = t->o.layout->group[done->job.group].block_bytes;
    if (!done->ok) {
        t->stats.n_failed++;
    } else if (done->job.load) {
        t->stats.n_in++;
        t->stats.n_bytes_in += n_bytes;
    } else {
        t->stats.n_out++;
        t->stats.n_bytes_out += n_bytes;
    }
}

bool kv_tier_pop(struct kv_tier *t, struct kv_done *done)
{
    enum kv_copy_end end;
    if (!kv_copier_pop(t->ram, &done->job, &end) &&
        !(t->file && kv_copier_pop(t->file, &done->job, &end)))
        return false;
    done->ok = end == KV_COPY_DONE;
    t->stats.n_late += end == KV_COPY_LATE;
    count(t, done);
    return true;
}

bool kv_tier_step(struct kv_tier *t)
{
    return kv_copier_step(t->ram) || (t->file && kv_copier_step(t->file));
}

uint64_t kv_tier_deadline_ns(const struct kv_tier *t)
{
    uint64_t ram = kv_copier_deadline_ns(t->ram);
    uint64_t file = t->file ? kv_copier_deadline_ns(t->file) : 0;
    return ram && (!file || ram < file) ? ram : file;
}

/* ---- sight ---- */

struct kv_tier_costs kv_tier_costs(const struct kv_tier *t)
{
    return (struct kv_tier_costs){atomic_load(&t->shared->ram_ns_byte),
                                  atomic_load(&t->shared->file_write_ns_byte),
                                  atomic_load(&t->shared->file_read_ns_byte)};
}

struct kv_tier_stats kv_tier_stats(const struct kv_tier *t)
{
    struct kv_tier_stats s = t->stats;
    s.file_bytes = t->n_file_bytes;
    s.direct = t->direct;
    return s;
}

void kv_tier_fail(struct kv_tier *t, uint32_t n)
{
    atomic_store(&t->shared->n_fail, n);
}

void kv_tier_fail_reads(struct kv_tier *t, uint32_t n)
{
    atomic_store(&t->shared->n_fail_reads, n);
}
