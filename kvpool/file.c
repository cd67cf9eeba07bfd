/* Whole reads and writes, private folders; see file.h. */
#include "kvpool/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

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

/* Opens the folder `name` in folder `at`, ours and closed to others. -1 with errno. */
static int open_private(int at, const char *name)
{
    struct stat st;
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return -1;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && ((st.st_mode & 077) == 0 || fchmod(fd, 0700) == 0))
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

enum status kv_folder_open(const char *path, const char *name, int *fd, struct err *e)
{
    int root = -1, kv = -1;
    *fd = -1;
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root >= 0)
        kv = open_private(root, "kv");
    if (kv >= 0)
        *fd = open_private(kv, name);
    int error = errno;
    if (root >= 0)
        close(root);
    if (kv >= 0)
        close(kv);
    if (*fd < 0)
        return err_set(e, ERR_IO, "cannot open the folder '%s/kv/%s': %s", path, name,
                       strerror(error));
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return OK;
    error = errno;
    close(*fd);
    *fd = -1;
    if (error == EWOULDBLOCK)
        return err_set(e, ERR_BUSY, "the folder '%s/kv/%s' is used by another process", path, name);
    return err_set(e, ERR_IO, "cannot lock the folder '%s/kv/%s': %s", path, name, strerror(error));
}

bool kv_file_replace(int folder, const char *name, const void *head, size_t n_head,
                     const void *rest, size_t n_rest, bool durable)
{
    static const char tmp[] = "writing.tmp";
    int fd = openat(folder, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = kv_file_write(fd, head, n_head, 0) && kv_file_write(fd, rest, n_rest, n_head) &&
              (!durable || fsync(fd) == 0);
    int error = errno;
    /* Some file systems say only now that there was no room. */
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

bool kv_file_slurp(int folder, const char *name, size_t n_max, struct buf *out)
{
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0;
    if (ok && (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > n_max)) {
        errno = EFBIG;
        ok = false;
    }
    if (ok) {
        size_t n = (size_t)st.st_size;
        buf_reserve(out, n + 1);
        ok = kv_file_read(fd, (uint8_t *)out->ptr + out->len, n, 0);
        out->len += ok ? n : 0;
        out->ptr[out->len] = 0;
    }
    int error = errno;
    close(fd);
    errno = error;
    return ok;
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
