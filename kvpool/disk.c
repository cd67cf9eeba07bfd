/* The disk prefix cache's door: which blocks are on disk, what is read, written and deleted; see
 * disk.h.
 *
 * Bytes are counted when a write is queued and given back when the deletion is queued: the thread
 * works in that order, so the files never take more than was counted. */
#include "kvpool/disk.h"
#include "kvpool/kvpool_test.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "kvpool/disk_int.h"
#include "kvpool/file.h"
#include "kvpool/named.h"

/* Entries for as many files as fit, and for some pinned blocks that have not been put yet. Files of other
 * models may be smaller than ours; those beyond this number are deleted. */
static uint32_t count_entries(const struct kv_disk *d, uint64_t n_pins)
{
    uint64_t least = disk_file_bytes(d, 0);
    for (uint32_t g = 1; g < d->o.layout->n_groups; g++)
        least = disk_file_bytes(d, g) < least ? disk_file_bytes(d, g) : least;
    uint64_t n = d->o.max_bytes / least + 2 * KV_MAX_GROUPS * n_pins + 4096;
    return n < DISK_MAX_ENTRIES ? (uint32_t)n : DISK_MAX_ENTRIES;
}

static void pin_one(void *arg, uint64_t domain, const struct kv_key *key)
{
    disk_pin(arg, domain, key);
}

static enum status open_files(struct kv_disk *d, const struct kv_disk_options *o, struct err *e)
{
    size_t largest = 0;
    for (uint32_t g = 0; g < o->layout->n_groups; g++) {
        size_t n = o->layout->group[g].block_bytes;
        largest = n > largest ? n : largest;
    }
    uint64_t n_least = 0;
    for (uint32_t g = 0; g < o->layout->n_groups; g++)
        n_least += disk_file_bytes(d, g);
    if (d->o.max_bytes < n_least)
        return err_set(e, ERR_INVALID,
                       "prefix.disk.bytes %llu leaves %llu bytes beside named prefixes, less than "
                       "one block of each group: %llu bytes",
                       (unsigned long long)o->max_bytes, (unsigned long long)d->o.max_bytes,
                       (unsigned long long)n_least);
    enum status status = kv_folder_open(o->path, "blocks", &d->folder, e);
    if (status != OK || (status = disk_read_secret(d, e)) != OK)
        return status;
    disk_domain_init(&d->domain, o->layout, o->model_digest);
    d->short_domain =
        kv_fnv(kv_fnv(KV_FNV_START, &d->domain, sizeof(d->domain)), d->secret, sizeof(d->secret));
    disk_index_init(d, count_entries(d, o->named ? kv_named_n_keys(o->named) : 0));
    if (o->named)
        kv_named_each_key(o->named, pin_one, d);
    d->buffer = mem_try_alloc(DISK_HEAD_BYTES + largest);
    if (!d->buffer)
        return err_set(e, ERR_NO_MEMORY, "no memory for a block of %zu bytes", largest);
    return disk_scan(d, e);
}

enum status kv_disk_open(const struct kv_disk_options *o, struct kv_disk **out, struct err *e)
{
    struct kv_disk *d = mem_zalloc(sizeof(*d));
    struct kv_copier_options copier = {.name = "kv-disk",
                                       .max_jobs = o->max_jobs,
                                       .job_bytes = sizeof(struct disk_job),
                                       .deadline_ns = o->deadline_ns,
                                       .threaded = o->threaded,
                                       .drain = true,
                                       .run = disk_run,
                                       .arg = d,
                                       .wake = o->wake,
                                       .wake_arg = o->wake_arg};
    CHECK(o->max_jobs >= DISK_MIN_JOBS);
    d->o = *o;
    d->o.path = NULL;
    d->max_bytes = o->max_bytes;
    d->o.max_bytes -= o->named ? kv_named_max_bytes(o->named) : 0;
    d->folder = -1;
    d->shared = mem_zalloc(sizeof(*d->shared));
    enum status status = open_files(d, o, e);
    if (status == OK)
        status = kv_copier_new(&copier, &d->copier, e);
    if (status != OK) {
        kv_disk_close(d);
        return status;
    }
    *out = d;
    return OK;
}

void kv_disk_stop(struct kv_disk *d)
{
    if (d->copier)
        kv_copier_stop(d->copier);
}

void kv_disk_close(struct kv_disk *d)
{
    if (!d)
        return;
    kv_copier_free(d->copier);
    if (d->folder >= 0)
        close(d->folder);
    mem_free(d->buffer);
    mem_free(d->entry);
    mem_free(d->bucket);
    mem_free(d->shared);
    mem_free(d);
}

void kv_disk_secret(const struct kv_disk *d, uint64_t secret[2])
{
    memcpy(secret, d->secret, sizeof(d->secret));
}

uint64_t kv_disk_domain(const struct kv_disk *d)
{
    return d->short_domain;
}

/* ---- tickets ---- */

bool kv_disk_has(const struct kv_disk *d, uint32_t group, const struct kv_key *key)
{
    uint32_t i = disk_find(d, d->short_domain, group, key);
    return i != DISK_NONE && d->entry[i].state == DISK_PRESENT;
}

bool kv_disk_wants(const struct kv_disk *d, uint32_t group, const struct kv_key *key)
{
    uint32_t i = disk_find(d, d->short_domain, group, key);
    return i == DISK_NONE ||
           (d->entry[i].state != DISK_PRESENT && d->entry[i].state != DISK_WRITING);
}

static struct disk_job make_job(const struct kv_disk *d, enum disk_job_kind kind,
                                const struct kv_disk_block *b)
{
    struct disk_job job = {.kind = kind,
                           .group = b->group,
                           .domain = d->short_domain,
                           .key = b->key,
                           .parent = b->parent,
                           .bytes = b->bytes,
                           .frame = b->frame,
                           .id = b->id};
    CHECK(b->group < d->o.layout->n_groups);
    memcpy(job.tokens, b->tokens, d->o.layout->n_slots * sizeof(*job.tokens));
    return job;
}

/* Deletes the least recently used file. False: all are pinned or being written, or the queue has no
 * place for this and what it is done for. */
static bool evict(struct kv_disk *d)
{
    uint32_t i = d->lru_last;
    if (i == DISK_NONE || kv_copier_room(d->copier) < 2)
        return false;
    const struct disk_entry *t = &d->entry[i];
    struct disk_job job = {.kind = DISK_DROP,
                           .group = t->group,
                           .domain = t->domain,
                           .n_bytes = t->n_bytes,
                           .key = t->key};
    CHECK(kv_copier_push(d->copier, &job));
    disk_set(d, i, DISK_ABSENT, 0);
    return true;
}

bool kv_disk_put(struct kv_disk *d, const struct kv_disk_block *b)
{
    struct disk_job job = make_job(d, DISK_PUT, b);
    uint64_t n_bytes = disk_file_bytes(d, b->group);
    uint32_t i = disk_find(d, d->short_domain, b->group, &b->key);
    if (!kv_disk_wants(d, b->group, &b->key))
        return false;
    if (i != DISK_NONE) {
        /* Keeps it safe from evict(); a failed write may have left a file, which is replaced.
         * */
        disk_set(d, i, DISK_WRITING, d->entry[i].n_bytes);
    } else {
        if (d->free_head == DISK_NONE && !evict(d))
            return false;
        i = disk_add(d, d->short_domain, b->group, &b->key);
        disk_set(d, i, DISK_WRITING, 0);
    }
    uint64_t n_more = n_bytes - d->entry[i].n_bytes;
    while (d->n_bytes + n_more > d->o.max_bytes && evict(d))
        continue;
    if (d->n_bytes + n_more > d->o.max_bytes || !kv_copier_push(d->copier, &job)) {
        uint64_t n_old = d->entry[i].n_bytes;
        disk_set(d, i, n_old ? DISK_FAILED : DISK_ABSENT, n_old);
        return false;
    }
    disk_set(d, i, DISK_WRITING, n_bytes);
    return true;
}

bool kv_disk_get(struct kv_disk *d, const struct kv_disk_block *b)
{
    struct disk_job job = make_job(d, DISK_GET, b);
    uint32_t i = disk_find(d, d->short_domain, b->group, &b->key);
    if (i == DISK_NONE || d->entry[i].state != DISK_PRESENT || !kv_copier_push(d->copier, &job))
        return false;
    disk_touch(d, i);
    return true;
}

/* A file that could not be deleted still exists and is served as before, unless it is being rewritten, in
 * which case the write counts it. */
static void settle_drop(struct kv_disk *d, const struct disk_job *job, uint32_t i)
{
    if (i == DISK_NONE && (i = disk_add(d, job->domain, job->group, &job->key)) == DISK_NONE)
        d->n_bytes += job->n_bytes; /* no place in the index: its space stays counted for good */
    else if (d->entry[i].state == DISK_ABSENT)
        disk_set(d, i, DISK_PRESENT, job->n_bytes);
}

/* A late put may still leave a file: it counts until it is deleted. A late deletion is carried out
 * regardless. A late get says nothing about the file. */
static void settle(struct kv_disk *d, const struct disk_job *job, enum kv_copy_end end)
{
    uint32_t i = disk_find(d, job->domain, job->group, &job->key);
    bool gone = kv_copier_note(d->copier) == DISK_GONE;
    if (job->kind == DISK_DROP) {
        d->stats.n_evicted += end != KV_COPY_FAILED;
        if (end == KV_COPY_FAILED)
            settle_drop(d, job, i);
    } else if (job->kind == DISK_PUT) {
        CHECK(i != DISK_NONE && d->entry[i].state == DISK_WRITING);
        d->stats.n_put += end == KV_COPY_DONE;
        if (gone)
            disk_set(d, i, DISK_ABSENT, 0);
        else
            disk_set(d, i, end == KV_COPY_DONE ? DISK_PRESENT : DISK_FAILED, d->entry[i].n_bytes);
    } else if (end == KV_COPY_DONE) {
        d->stats.n_got++;
    } else if (end == KV_COPY_FAILED && i != DISK_NONE && d->entry[i].state == DISK_PRESENT) {
        disk_set(d, i, gone ? DISK_ABSENT : DISK_FAILED, gone ? 0 : d->entry[i].n_bytes);
    }
}

bool kv_disk_pop(struct kv_disk *d, struct kv_disk_done *done)
{
    struct disk_job job;
    enum kv_copy_end end;
    do {
        if (!kv_copier_pop(d->copier, &job, &end))
            return false;
        settle(d, &job, end);
    } while (job.kind == DISK_DROP);
    d->stats.n_failed += end != KV_COPY_DONE;
    d->stats.n_late += end == KV_COPY_LATE;
    *done = (struct kv_disk_done){.id = job.id,
                                  .group = job.group,
                                  .key = job.key,
                                  .bytes = job.bytes,
                                  .get = job.kind == DISK_GET,
                                  .ok = end == KV_COPY_DONE};
    return true;
}

bool kv_disk_step(struct kv_disk *d)
{
    return kv_copier_step(d->copier);
}

uint32_t kv_disk_room(const struct kv_disk *d)
{
    return kv_copier_room(d->copier);
}

/* ---- pins, inspection ---- */

uint32_t kv_disk_pin(struct kv_disk *d, const struct kv_key *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!disk_pin(d, d->short_domain, &keys[i]))
            return i;
    }
    return n;
}

void kv_disk_unpin(struct kv_disk *d, const struct kv_key *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        disk_unpin(d, d->short_domain, &keys[i]);
}

struct kv_disk_stats kv_disk_stats(const struct kv_disk *d)
{
    struct kv_disk_stats s = d->stats;
    s.n_bytes = d->n_bytes + (d->o.named ? kv_named_bytes(d->o.named) : 0);
    s.max_bytes = d->max_bytes;
    s.n_bad = atomic_load(&d->shared->n_bad);
    s.n_faults = atomic_load(&d->shared->faults.n);
    s.read_ns_byte = atomic_load(&d->shared->read_ns_byte);
    s.write_ns_byte = atomic_load(&d->shared->write_ns_byte);
    return s;
}
