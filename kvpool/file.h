/* Files of the tiers in this folder: whole reads and writes, private folders, files that appear whole.
 * Private to this folder. Thread: any. */
#ifndef KVPOOL_FILE_H
#define KVPOOL_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/status.h"

/* Transfers all n bytes at offset `at`, or returns false with errno (a file that ends early: EIO). */
bool kv_file_write(int fd, const uint8_t *p, size_t n, uint64_t at);
bool kv_file_read(int fd, uint8_t *p, size_t n, uint64_t at);

/* ERR_UNSUPPORTED when another user owns the file described by st, or others may write to it: its content
 * cannot be trusted. `what` names it in the error. */
enum status kv_file_check_private(const struct stat *st, const char *what, struct err *e);

/* Opens path/kv/name, creating whichever of the three folders is missing. `path` must be owned by this user
 * or root and not be writable by others (or have the sticky bit); kv and name are private to this user (mode
 * 0700), and the folder is locked until the descriptor is closed or the process ends. Errors:
 * ERR_IO, ERR_BUSY when another process uses it, ERR_UNSUPPORTED with the owner's id. */
enum status kv_folder_open(const char *path, const char *name, int *fd, struct err *e);

/* Writes n bytes (in two parts) as `name`, mode 0600, so that the name always refers to a whole file:
 * by way of a new KV_FILE_TEMPORARY, which one thread at a time may use. durable: the file survives
 * a power failure. False with errno. */
#define KV_FILE_TEMPORARY "writing.tmp"
bool kv_file_replace(int folder, const char *name, const void *head, size_t n_head,
                     const void *rest, size_t n_rest, bool durable);
/* Opens a private regular file of at most n_max bytes for reading. Errors: ERR_NOT_FOUND, ERR_IO,
 * ERR_TOO_LARGE, ERR_UNSUPPORTED as kv_file_check_private (or not a regular file). */
enum status kv_file_open(int folder, const char *name, uint64_t n_max, int *fd, uint64_t *n_bytes,
                         struct err *e);
/* Appends the whole content of such a file. */
enum status kv_file_slurp(int folder, const char *name, size_t n_max, struct buf *out,
                          struct err *e);

/* Counts failures of a disk. All zero: none yet. */
struct kv_disk_faults {
    atomic_uint_fast64_t n;
    atomic_uint_fast64_t quiet_until_ns;
};
/* Counts one failure, and logs "`what`: error" at most once per minute. Thread: any. */
void kv_disk_fault(struct kv_disk_faults *f, const char *what, int error);

/* Adds a transfer of n bytes since t0_ns (clock_ns) to a moving mean of ns per byte over about 16 copies.
 * One thread writes a mean; 0: none yet. */
void kv_measure(_Atomic double *mean, uint64_t t0_ns, size_t n_bytes);

/* FNV-1a, for names and tables: continues from `hash` (at first KV_FNV_START). */
#define KV_FNV_START 0xcbf29ce484222325ull
uint64_t kv_fnv(uint64_t hash, const void *p, size_t n);

#endif
