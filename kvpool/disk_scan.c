/* Scans the folder of the disk prefix cache at the start; see disk.h. */
#include "kvpool/disk_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"

struct found {
    uint64_t domain;
    struct kv_key key;
    uint32_t group;
    uint64_t n_bytes;
    int64_t used_ns; /* time of the last use: the file's mtime */
};

struct found_list {
    struct found *at; /* owns */
    uint32_t n, cap;
    uint32_t n_refused; /* files that other users could have written */
    struct err refusal; /* of the first of them */
};

struct secret_file {
    char magic[8];
    uint64_t secret[2];
    uint32_t zero;
    uint32_t crc; /* of what is before */
};

/* True: the file exists and is valid. *status: why the folder cannot be used, or OK. */
static bool secret_there(struct kv_disk *d, enum status *status, struct err *e)
{
    struct secret_file old;
    struct buf text = {0};
    *status = kv_file_slurp(d->folder, "secret", sizeof(old), &text, e);
    bool there = *status == OK && text.len == sizeof(old);
    if (there) {
        memcpy(&old, text.ptr, sizeof(old));
        there = memcmp(old.magic, "MRKVKEY", sizeof(old.magic)) == 0 &&
                old.crc == crc32c(0, &old, offsetof(struct secret_file, crc));
        memcpy(d->secret, old.secret, sizeof(d->secret));
    }
    if (*status == ERR_NOT_FOUND || *status == ERR_TOO_LARGE)
        *status = OK;
    buf_release(&text);
    return there;
}

enum status disk_read_secret(struct kv_disk *d, struct err *e)
{
    struct secret_file file = {.magic = "MRKVKEY"};
    enum status status;
    if (secret_there(d, &status, e) || status != OK)
        return status;
    if (getrandom(file.secret, sizeof(file.secret), 0) != sizeof(file.secret))
        return err_set(e, ERR_IO, "no random bytes for the disk prefix cache: %s", strerror(errno));
    file.crc = crc32c(0, &file, offsetof(struct secret_file, crc));
    if (!kv_file_replace(d->folder, "secret", &file, sizeof(file), NULL, 0, true))
        return err_set(e, ERR_IO, "cannot write the secret of the disk prefix cache: %s",
                       strerror(errno));
    memcpy(d->secret, file.secret, sizeof(d->secret));
    return OK;
}

/* Examines one name; false: its file is useless and is to be deleted. */
static bool look_at(const struct kv_disk *d, const char *name, struct found_list *list)
{
    struct found f;
    struct stat st;
    if (!disk_name_read(name, &f.domain, &f.group, &f.key))
        return strcmp(name, KV_FILE_TEMPORARY) != 0;
    if (fstatat(d->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    if (kv_file_check_private(&st, name, list->n_refused ? NULL : &list->refusal) != OK) {
        list->n_refused++;
        return false;
    }
    f.n_bytes = disk_units((uint64_t)st.st_size);
    f.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    bool ours = f.domain == d->short_domain;
    if (!S_ISREG(st.st_mode) ||
        (ours &&
         (f.group >= d->o.layout->n_groups ||
          (uint64_t)st.st_size != DISK_HEAD_BYTES + d->o.layout->group[f.group].block_bytes)) ||
        list->n == DISK_MAX_ENTRIES)
        return false;
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 256;
        list->at = mem_realloc(list->at, mem_mul(list->cap, sizeof(*list->at)));
    }
    list->at[list->n++] = f;
    return true;
}

static int by_use(const void *a_, const void *b_)
{
    const struct found *a = a_, *b = b_;
    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

static void delete_file(struct kv_disk *d, const struct found *f)
{
    char name[DISK_NAME_BYTES];
    disk_name(name, f->domain, f->group, &f->key);
    if (unlinkat(d->folder, name, 0) < 0)
        log_warn("cannot delete '%s' of the disk prefix cache: %s", name, strerror(errno));
}

/* Adds least recently used files first, so that the index's list is in order. Pinned entries are
 * in the index already and stay whatever the bounds are. */
static void enter(struct kv_disk *d, const struct found_list *list)
{
    uint64_t n_over = 0; /* bytes to delete */
    for (uint32_t k = 0; k < list->n; k++)
        n_over += list->at[k].n_bytes;
    n_over = n_over > d->o.max_bytes ? n_over - d->o.max_bytes : 0;
    uint32_t n_room = d->n_entries - d->stats.n_pinned, n_left = list->n;
    for (uint32_t k = 0; k < list->n; k++, n_left--) {
        const struct found *f = &list->at[k];
        uint32_t i = disk_find(d, f->domain, f->group, &f->key);
        if (i == DISK_NONE && (n_over > 0 || n_left > n_room)) {
            delete_file(d, f);
            n_over -= n_over < f->n_bytes ? n_over : f->n_bytes;
            continue;
        }
        if (i == DISK_NONE) {
            i = disk_add(d, f->domain, f->group, &f->key);
            n_room--;
        }
        disk_set(d, i, DISK_PRESENT, f->n_bytes);
    }
}

enum status disk_scan(struct kv_disk *d, struct err *e)
{
    int fd = openat(d->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct found_list list = {0};
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_IO, "cannot list the disk prefix cache: %s", strerror(errno));
    }
    for (struct dirent *t; (t = readdir(dir));) {
        if (!look_at(d, t->d_name, &list))
            unlinkat(d->folder, t->d_name, 0);
    }
    closedir(dir);
    if (list.n_refused > 0)
        log_warn(
            "disk prefix cache: files deleted that others could have written: %u, the first: %s",
            list.n_refused, list.refusal.text);
    if (list.n > 0)
        qsort(list.at, list.n, sizeof(*list.at), by_use);
    enter(d, &list);
    mem_free(list.at);
    return OK;
}
