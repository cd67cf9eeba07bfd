/* Whole reads and writes, private folders; see file.h. */
#include "kvpool/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

bool kv_file_write(int fd, const uint8_t *p, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done == 0 ? ENOSPC : errno;
            return false;
        }
        p += done, n -= (size_t)done, at += (uint64_t)done;
    }
    return true;
}

bool kv_file_read(int fd, uint8_t *p, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t done = pread(fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done == 0 ? EIO : errno;
            return false;
        }
        p += done, n -= (size_t)done, at += (uint64_t)done;
    }
    return true;
}

/* ---- folders and files that no other user could have written ---- */

enum { WRITABLE_BY_OTHERS = 022, SEEN_BY_OTHERS = 077 };

static enum status refuse_owner(uid_t owner, const char *what, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "'%s' is owned by user %u, and this server runs as user %u",
                   what, (unsigned)owner, (unsigned)geteuid());
}

static enum status refuse_mode(const struct stat *st, const char *what, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED,
                   "'%s' (owned by user %u) can be written by others: mode %04o", what,
                   (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777));
}

enum status kv_file_check_private(const struct stat *st, const char *what, struct err *e)
{
    if (st->st_uid != geteuid())
        return refuse_owner(st->st_uid, what, e);
    return st->st_mode & WRITABLE_BY_OTHERS ? refuse_mode(st, what, e) : OK;
}

/* The given folder may be root's, and may be shared if its sticky bit protects names. */
static enum status check_root(const struct stat *st, const char *path, struct err *e)
{
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return refuse_owner(st->st_uid, path, e);
    if (st->st_mode & WRITABLE_BY_OTHERS && !(st->st_mode & S_ISVTX))
        return refuse_mode(st, path, e);
    return OK;
}

static enum status cannot_open(const char *path, struct err *e)
{
    return err_set(e, ERR_IO, "cannot open the folder '%s': %s", path, strerror(errno));
}

static enum status open_root(const char *path, int *fd, struct err *e)
{
    struct stat st;
    *fd = -1;
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &st) < 0)
        return cannot_open(path, e);
    return check_root(&st, path, e);
}

/* Opens the folder `name` in folder `at`, which is `path` in errors. */
static enum status open_private(int at, const char *name, const char *path, int *fd, struct err *e)
{
    struct stat st;
    *fd = -1;
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return cannot_open(path, e);
    *fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &st) < 0)
        return cannot_open(path, e);
    enum status status = kv_file_check_private(&st, path, e);
    if (status == OK && st.st_mode & SEEN_BY_OTHERS && fchmod(*fd, 0700) < 0)
        return cannot_open(path, e);
    return status;
}

static enum status lock_folder(int fd, const char *path, struct err *e)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return OK;
    if (errno == EWOULDBLOCK)
        return err_set(e, ERR_BUSY, "the folder '%s' is used by another process", path);
    return err_set(e, ERR_IO, "cannot lock the folder '%s': %s", path, strerror(errno));
}

static void close_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

enum status kv_folder_open(const char *path, const char *name, int *fd, struct err *e)
{
    int root = -1, kv = -1;
    struct buf text = {0};
    *fd = -1;
    enum status status = open_root(path, &root, e);
    if (status == OK) {
        buf_printf(&text, "%s/kv", path);
        status = open_private(root, "kv", text.ptr, &kv, e);
    }
    if (status == OK) {
        buf_printf(&text, "/%s", name);
        status = open_private(kv, name, text.ptr, fd, e);
    }
    if (status == OK)
        status = lock_folder(*fd, text.ptr, e);
    close_open(root);
    close_open(kv);
    if (status != OK) {
        close_open(*fd);
        *fd = -1;
    }
    buf_release(&text);
    return status;
}

bool kv_file_replace(int folder, const char *name, const void *head, size_t n_head,
                     const void *rest, size_t n_rest, bool durable)
{
    static const char tmp[] = KV_FILE_TEMPORARY;
    /* Never opens anything that exists, neither a link nor a file that another process holds open. */
    if (unlinkat(folder, tmp, 0) < 0 && errno != ENOENT)
        return false;
    int fd = openat(folder, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = kv_file_write(fd, head, n_head, 0) && kv_file_write(fd, rest, n_rest, n_head) &&
              (!durable || fsync(fd) == 0);
    int error = errno;
    /* Some file systems report only now that there was no space. */
    if (close(fd) < 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && renameat(folder, tmp, folder, name) == 0)
        return !durable || fsync(folder) == 0;
    error = ok ? errno : error;
    unlinkat(folder, tmp, 0);
    errno = error;
    return false;
}

static enum status check_file(int fd, const char *name, uint64_t n_max, uint64_t *n_bytes,
                              struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_IO, "cannot look at '%s': %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_UNSUPPORTED, "'%s' is not a regular file", name);
    *n_bytes = (uint64_t)st.st_size;
    if (*n_bytes > n_max)
        return err_set(e, ERR_TOO_LARGE, "'%s' has %llu bytes, over %llu", name,
                       (unsigned long long)*n_bytes, (unsigned long long)n_max);
    return kv_file_check_private(&st, name, e);
}

enum status kv_file_open(int folder, const char *name, uint64_t n_max, int *fd, uint64_t *n_bytes,
                         struct err *e)
{
    *fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return err_set(e,
                       errno == ENOENT  ? ERR_NOT_FOUND
                       : errno == ELOOP ? ERR_UNSUPPORTED
                                        : ERR_IO,
                       "cannot open '%s': %s", name, strerror(errno));
    enum status status = check_file(*fd, name, n_max, n_bytes, e);
    if (status != OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

enum status kv_file_slurp(int folder, const char *name, size_t n_max, struct buf *out,
                          struct err *e)
{
    int fd;
    uint64_t n;
    enum status status = kv_file_open(folder, name, n_max, &fd, &n, e);
    if (status != OK)
        return status;
    buf_reserve(out, (size_t)n + 1);
    if (kv_file_read(fd, (uint8_t *)out->ptr + out->len, (size_t)n, 0))
        out->len += (size_t)n;
    else
        status = err_set(e, ERR_IO, "cannot read '%s': %s", name, strerror(errno));
    out->ptr[out->len] = 0;
    close(fd);
    return status;
}

void kv_disk_fault(struct kv_disk_faults *f, const char *what, int error)
{
    enum { QUIET_S = 60 };
    uint64_t now_ns = clock_ns(), until_ns = atomic_load(&f->quiet_until_ns);
    atomic_fetch_add(&f->n, 1);
    if (now_ns >= until_ns &&
        atomic_compare_exchange_strong(&f->quiet_until_ns, &until_ns, now_ns + QUIET_S * NS_PER_S))
        log_warn("%s: %s (logged once per minute at most)", what, strerror(error));
}

void kv_measure(_Atomic double *mean, uint64_t t0_ns, size_t n_bytes)
{
    double now = (double)(clock_ns() - t0_ns) / (double)n_bytes;
    double old = atomic_load_explicit(mean, memory_order_relaxed);
    atomic_store_explicit(mean, old > 0 ? old + (now - old) / 16 : now, memory_order_relaxed);
}

uint64_t kv_fnv(uint64_t hash, const void *p, size_t n)
{
    const uint8_t *bytes = p;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash;
}
