/* Files of this folder's tiers: whole reads and writes, private folders, files that appear whole.
 * Private to this folder. Thread: any. */
#ifndef KVPOOL_FILE_H
#define KVPOOL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* All n bytes at offset `at`, or false with errno (a file that ends early: EIO). */
bool kv_file_write(int fd, const uint8_t *p, size_t n, uint64_t at);
bool kv_file_read(int fd, uint8_t *p, size_t n, uint64_t at);

/* Opens path/kv/name, making the three folders where they are missing. kv and name are ours alone
 * (mode 0700) and the folder is locked until the descriptor is closed or the process is gone.
 * Errors: ERR_IO, ERR_BUSY when another process has it. */
enum status kv_folder_open(const char *path, const char *name, int *fd, struct err *e);

/* Writes n bytes (in two parts) as `name`, mode 0600, so that the name always means a whole file:
 * by way of "writing.tmp", which one thread at a time may use. durable: it survives a power cut.
 * False with errno. */
bool kv_file_replace(int folder, const char *name, const void *head, size_t n_head,
                     const void *rest, size_t n_rest, bool durable);
/* Appends a whole regular file of at most n_max bytes. False with errno. */
bool kv_file_slurp(int folder, const char *name, size_t n_max, struct buf *out);

/* Takes n bytes since t0_ns (clock_ns) into a moving mean of ns a byte, about 16 copies long. One
 * thread writes a mean; 0: none yet. */
void kv_measure(_Atomic double *mean, uint64_t t0_ns, size_t n_bytes);

/* FNV-1a, for names and tables: hash goes on from `hash` (first: KV_FNV_START). */
#define KV_FNV_START 0xcbf29ce484222325ull
uint64_t kv_fnv(uint64_t hash, const void *p, size_t n);

#endif
