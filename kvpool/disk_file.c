/* Files of the disk prefix cache: names, heads, and the thread that reads, writes and deletes them;
 * see disk.h for what a file holds. */
#include "kvpool/disk_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"

static const char magic[8] = "MRKVBLK";

void disk_domain_init(struct disk_domain *out, const struct kv_layout *l, const uint8_t model[32])
{
    memset(out, 0, sizeof(*out));
    memcpy(out->model, model, sizeof(out->model));
    out->version = DISK_VERSION;
    out->endian = 1;
    out->n_slots = l->n_slots;
    out->dtype_k = l->dtype_k;
    memcpy(out->order, l->order, sizeof(out->order));
    out->dtype_v = l->dtype_v;
    out->n_layers = l->n_layers;
    out->n_groups = l->n_groups;
    for (uint32_t i = 0; i < l->n_layers; i++) {
        uint16_t at[2] = {l->layer_group[i], l->layer_index[i]};
        out->layers_crc = crc32c(out->layers_crc, at, sizeof(at));
    }
    for (uint32_t g = 0; g < l->n_groups; g++) {
        const struct kv_group *group = &l->group[g];
        out->group[g].n_layers = group->n_layers;
        out->group[g].window = group->window;
        out->group[g].n_kv_heads = group->n_kv_heads;
        out->group[g].head_dim = group->head_dim;
        out->group[g].k_bytes = group->k_bytes;
        out->group[g].v_bytes = group->v_bytes;
        out->group[g].unit_bytes = group->unit_bytes;
        out->group[g].layer_bytes = group->layer_bytes;
        out->group[g].block_bytes = group->block_bytes;
    }
}

/* ---- names: 16 hex digits, group, 32 hex digits ---- */

void disk_name(char out[DISK_NAME_BYTES], uint64_t domain, uint32_t group, const struct kv_key *key)
{
    snprintf(out, DISK_NAME_BYTES, "%016" PRIx64 "-%" PRIu32 "-%016" PRIx64 "%016" PRIx64 ".kv",
             domain, group, key->w[0], key->w[1]);
}

/* 16 lower-case hex digits and nothing else. */
static bool read_hex(const char *p, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = p[i] ? strchr(digits, p[i]) : NULL;
        if (!digit)
            return false;
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

bool disk_name_read(const char *name, uint64_t *domain, uint32_t *group, struct kv_key *key)
{
    static const char pattern[] = "0123456789abcdef-0-0123456789abcdef0123456789abcdef.kv";
    if (strlen(name) != sizeof(pattern) - 1 || name[16] != '-' || name[18] != '-' ||
        strcmp(name + 51, ".kv") != 0)
        return false;
    *group = (uint32_t)(name[17] - '0');
    return *group < KV_MAX_GROUPS && read_hex(name, domain) && read_hex(name + 19, &key->w[0]) &&
           read_hex(name + 35, &key->w[1]);
}

/* ---- the thread ---- */

static size_t block_bytes(const struct kv_disk *d, uint32_t group)
{
    return d->o.layout->group[group].block_bytes;
}

/* The expected head of a job's file, except for the CRC. */
static void make_head(const struct kv_disk *d, const struct disk_job *job, struct disk_head *head)
{
    memset(head, 0, sizeof(*head));
    memcpy(head->magic, magic, sizeof(magic));
    head->group = job->group;
    head->n_bytes = block_bytes(d, job->group);
    head->domain = d->domain;
    head->key = job->key;
    head->parent = job->parent;
    memcpy(head->tokens, job->tokens, sizeof(head->tokens));
}

static void before_io(const struct kv_disk *d)
{
    if (d->o.before_io)
        d->o.before_io(d->o.before_io_arg);
}

/* For settle(), after a failure. */
static void note_if_gone(const struct kv_disk *d, const char *name, struct kv_ticket *ticket)
{
    struct stat st;
    if (fstatat(d->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        kv_ticket_note(ticket, DISK_GONE);
}

static bool put(struct kv_disk *d, const struct disk_job *job, const char *name,
                struct kv_ticket *ticket)
{
    struct disk_head head;
    size_t n = block_bytes(d, job->group);
    if (!kv_ticket_hold(ticket))
        return false;
    memcpy(d->buffer + DISK_HEAD_BYTES, job->bytes, n);
    kv_ticket_let_go(ticket);
    uint64_t t0_ns = clock_ns();
    make_head(d, job, &head);
    memcpy(d->buffer, &head, sizeof(head));
    head.crc = crc32c(0, d->buffer, DISK_HEAD_BYTES + n);
    before_io(d);
    /* An existing file is one that could not be served. It is deleted first, so that there are never two,
     * and a failed write leaves none. */
    if ((unlinkat(d->folder, name, 0) == 0 || errno == ENOENT) &&
        kv_file_replace(d->folder, name, &head, sizeof(head), d->buffer + DISK_HEAD_BYTES, n,
                        false)) {
        kv_measure(&d->shared->write_ns_byte, t0_ns, n);
        return true;
    }
    kv_disk_fault(&d->shared->faults, "cannot write to the disk prefix cache", errno);
    note_if_gone(d, name, ticket);
    return false;
}

enum reading { READING_OK, READING_BAD, READING_FAILED };

/* Reads the whole file into the buffer. Bad: missing, not ours, or not of the right kind and size. */
static enum reading read_block_file(struct kv_disk *d, const char *name, size_t n_file)
{
    struct err e;
    int fd;
    uint64_t n;
    enum status status = kv_file_open(d->folder, name, n_file, &fd, &n, &e);
    if (status == ERR_UNSUPPORTED)
        log_warn("a block of the disk prefix cache is not served: %s", e.text);
    if (status != OK)
        return status == ERR_IO ? READING_FAILED : READING_BAD;
    enum reading result = n != n_file                              ? READING_BAD
                          : kv_file_read(fd, d->buffer, n_file, 0) ? READING_OK
                                                                   : READING_FAILED;
    if (result == READING_FAILED)
        kv_disk_fault(&d->shared->faults, "cannot read from the disk prefix cache", errno);
    if (result == READING_OK)
        futimens(fd, NULL); /* keeps the order of use for the next start */
    close(fd);
    return result;
}

static bool is_sound(struct kv_disk *d, const struct disk_job *job, size_t n_file)
{
    struct disk_head wanted, head;
    memcpy(&head, d->buffer, sizeof(head));
    make_head(d, job, &wanted);
    wanted.crc = head.crc;
    if (memcmp(&wanted, &head, sizeof(head)) != 0)
        return false;
    memset(d->buffer + offsetof(struct disk_head, crc), 0, sizeof(head.crc));
    return crc32c(0, d->buffer, n_file) == head.crc;
}

static bool get(struct kv_disk *d, const struct disk_job *job, const char *name,
                struct kv_ticket *ticket)
{
    size_t n = block_bytes(d, job->group);
    struct err e;
    before_io(d);
    uint64_t t0_ns = clock_ns();
    enum reading reading = read_block_file(d, name, DISK_HEAD_BYTES + n);
    if (reading == READING_OK && !is_sound(d, job, DISK_HEAD_BYTES + n))
        reading = READING_BAD;
    if (reading == READING_BAD) {
        atomic_fetch_add(&d->shared->n_bad, 1);
        unlinkat(d->folder, name, 0);
        note_if_gone(d, name, ticket);
    }
    if (reading != READING_OK || !kv_ticket_hold(ticket))
        return false;
    if (kv_store_write(d->o.store, job->group, job->frame, d->buffer + DISK_HEAD_BYTES, &e) != OK)
        return false;
    kv_measure(&d->shared->read_ns_byte, t0_ns, n);
    return true;
}

/* Deleted even when its ticket was given up: later writes rely on the space. */
static bool drop(struct kv_disk *d, const char *name)
{
    struct stat st;
    if (unlinkat(d->folder, name, 0) == 0 || errno == ENOENT)
        return true;
    int error = errno;
    if (fstatat(d->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return true; /* a read-only disk refuses before it checks that the file exists */
    kv_disk_fault(&d->shared->faults, "cannot delete from the disk prefix cache", error);
    return false;
}

bool disk_run(void *disk, const void *job_, struct kv_ticket *ticket)
{
    struct kv_disk *d = disk;
    const struct disk_job *job = job_;
    char name[DISK_NAME_BYTES];
    disk_name(name, job->domain, job->group, &job->key);
    switch (job->kind) {
    case DISK_PUT:
        return put(d, job, name, ticket);
    case DISK_GET:
        return get(d, job, name, ticket);
    default:
        return drop(d, name);
    }
}
