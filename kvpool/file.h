/* Files of this folder's tiers: whole reads and writes, private folders, files that appear whole.
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

/* All n bytes at offset `at`, or false with errno (a file that ends early: EIO). */
bool kv_file_write(int fd, const uint8_t *p, size_t n, uint64_t at);
bool kv_file_read(int fd, uint8_t *p, size_t n, uint64_t at);

/* ERR_UNSUPPORTED when somebody else owns what st is of, or others may write to it: what it holds could be
 * anybody's. `what` names it in the error. */
enum status kv_file_check_private(const struct stat *st, const char *what, struct err *e);

/* Opens path/kv/name, making the three folders where they are missing. `path` must be this user's or
 * root's and not writable by others (a sticky bit will do); kv and name are this user's alone (mode
 * 0700), and the folder is locked until the descriptor is closed or the process is gone. Errors:
 * ERR_IO, ERR_BUSY when another process has it, ERR_UNSUPPORTED with the owner's id. */
enum status kv_folder_open(const char *path, const char *name, int *fd, struct err *e);

/* Writes n bytes (in two parts) as `name`, mode 0600, so that the name always means a whole file:
 * by way of KV_FILE_TEMPORARY, made anew, which one thread at a time may use. durable: it survives
 * a power cut. False with errno. */
#define KV_FILE_TEMPORARY "writing.tmp"
bool kv_file_replace(int folder, const char *name, const void *head, size_t n_head,
                     const void *rest, size_t n_rest, bool durable);
/* Opens a private regular file of at most n_max bytes for reading. Errors: ERR_NOT_FOUND, ERR_IO,
 * ERR_TOO_LARGE, ERR_UNSUPPORTED as kv_file_check_private (or not a regular file). */
enum status kv_file_open(int folder, const char *name, uint64_t n_max, int *fd, uint64_t *n_bytes,
                         struct err *e);
/* Appends the whole of such a file. */
enum status kv_file_slurp(int folder, const char *name, size_t n_max, struct buf *out,
                          struct err *e);

/* What a disk refused. Zeroed: nothing yet. */
struct kv_disk_faults {
    atomic_uint_fast64_t n;
    atomic_uint_fast64_t quiet_until_ns;
};
/* Counts one, and logs `what`: and the error, at most once a minute. Thread: any. */
void kv_disk_fault(struct kv_disk_faults *f, const char *what, int error);

/* Takes n bytes since t0_ns (clock_ns) into a moving mean of ns a byte, about 16 copies long. One
 * thread writes a mean; 0: none yet. */
void kv_measure(_Atomic double *mean, uint64_t t0_ns, size_t n_bytes);

/* FNV-1a, for names and tables: hash goes on from `hash` (first: KV_FNV_START). */
#define KV_FNV_START 0xcbf29ce484222325ull
uint64_t kv_fnv(uint64_t hash, const void *p, size_t n);

#endif
