/* Internals of the disk prefix cache: the head of a block's file, the index of files, the jobs.
 * Included by disk*.c and their tests only. */
#ifndef KVPOOL_DISK_INT_H
#define KVPOOL_DISK_INT_H

#include <stdatomic.h>

#include "kvpool/copier.h"
#include "kvpool/disk.h"
#include "kvpool/file.h"

enum { DISK_MAX_SLOTS = 64, DISK_HEAD_BYTES = 512, DISK_NAME_BYTES = 64, DISK_UNIT_BYTES = 4096 };
enum { DISK_VERSION = 2, DISK_MAX_ENTRIES = 1 << 20 };
enum { DISK_MIN_JOBS = 4 }; /* a put and the deletions that make room for it */

/* Everything that determines the meaning of a block's bytes. Compared as bytes, hence without
 * padding. */
struct disk_domain {
    uint8_t model[32];
    uint32_t version, endian; /* DISK_VERSION, 1 */
    uint32_t n_slots, dtype_k, dtype_v, n_layers, n_groups;
    uint32_t layers_crc; /* of layer_group and layer_index */
    char order[KV_ORDER_CAP]; /* of elements in a block */
    struct {
        uint32_t n_layers, window, n_kv_heads, head_dim;
        uint64_t k_bytes, v_bytes, unit_bytes, layer_bytes, block_bytes;
    } group[KV_MAX_GROUPS];
};

/* The first bytes of a file; the block's bytes follow. Integers in the machine's byte order. */
struct disk_head {
    char magic[8]; /* "MRKVBLK" and NUL */
    uint32_t crc; /* CRC-32C of the whole file with this field 0 */
    uint32_t group;
    uint64_t n_bytes; /* of the block */
    struct disk_domain domain;
    struct kv_key key, parent;
    int32_t tokens[DISK_MAX_SLOTS]; /* [n_slots], then 0 */
    uint8_t zero[8];
};
_Static_assert(sizeof(struct disk_head) == DISK_HEAD_BYTES, "the head has no gaps");

enum disk_state {
    DISK_ABSENT, /* pinned, but has no file */
    DISK_WRITING, /* a put is in progress */
    DISK_PRESENT,
    DISK_FAILED /* may have a file, which is not served; its bytes count until it is deleted */
};

enum { DISK_NONE = 0xffffffffu };

struct disk_entry {
    struct kv_key key;
    uint64_t domain; /* shortened, as in the file's name */
    uint64_t n_bytes; /* on disk, whole units; 0: none */
    uint32_t prev,
        next; /* LRU: PRESENT and FAILED entries without pins; next also chains free entries */
    uint32_t hash_next;
    uint32_t n_pins;
    uint8_t group, state;
};

enum disk_job_kind { DISK_PUT, DISK_GET, DISK_DROP };

struct disk_job {
    uint32_t kind; /* enum disk_job_kind */
    uint32_t group;
    uint64_t domain;
    uint64_t n_bytes; /* DROP: bytes that the file took */
    struct kv_key key, parent;
    int32_t tokens[DISK_MAX_SLOTS];
    uint8_t *bytes; /* PUT */
    uint32_t frame; /* GET */
    uint64_t id;
};

/* The thread's note for settle(): the failed put or get has left no file. */
enum { DISK_GONE = 1 };

/* Counters reported by the thread. */
struct disk_shared {
    atomic_uint_fast64_t n_bad;
    struct kv_disk_faults faults;
    _Atomic double read_ns_byte, write_ns_byte;
};

struct kv_disk {
    struct kv_disk_options o; /* path is not kept; max_bytes is the rest besides names */
    uint64_t max_bytes; /* of blocks and names together */
    struct disk_domain domain;
    uint64_t short_domain;
    uint64_t secret[2];
    int folder; /* owns; locked */
    struct kv_copier *copier; /* owns */
    uint8_t *buffer; /* owns: a whole file of the largest kind; the thread's */
    struct disk_shared *shared; /* owns */
    /* The index, engine thread. */
    struct disk_entry *entry; /* owns [n_entries] */
    uint32_t n_entries, free_head;
    uint32_t *bucket; /* owns [n_buckets], a power of two */
    uint32_t n_buckets;
    uint32_t lru_first, lru_last; /* most, least recently used */
    uint64_t n_bytes;
    struct kv_disk_stats stats; /* counters */
};

/* ---- disk_index.c ---- */
void disk_index_init(struct kv_disk *d, uint32_t n_entries);
uint32_t disk_find(const struct kv_disk *d, uint64_t domain, uint32_t group,
                   const struct kv_key *key); /* or DISK_NONE */
/* A new ABSENT entry, or DISK_NONE when all are taken. */
uint32_t disk_add(struct kv_disk *d, uint64_t domain, uint32_t group, const struct kv_key *key);
/* Sets state and size, and makes the entry the most recently used (FAILED: the least). Frees an entry that
 * is ABSENT without pins. */
void disk_set(struct kv_disk *d, uint32_t i, enum disk_state state, uint64_t n_bytes);
void disk_touch(struct kv_disk *d, uint32_t i); /* makes it the most recently used */
bool disk_pin(struct kv_disk *d, uint64_t domain, const struct kv_key *key);
void disk_unpin(struct kv_disk *d, uint64_t domain, const struct kv_key *key);

/* ---- disk_file.c ---- */
void disk_domain_init(struct disk_domain *out, const struct kv_layout *l, const uint8_t model[32]);
void disk_name(char out[DISK_NAME_BYTES], uint64_t domain, uint32_t group,
               const struct kv_key *key);
bool disk_name_read(const char *name, uint64_t *domain, uint32_t *group, struct kv_key *key);
static inline uint64_t disk_units(uint64_t n_bytes)
{
    return (n_bytes + DISK_UNIT_BYTES - 1) / DISK_UNIT_BYTES * DISK_UNIT_BYTES;
}
/* Bytes that a file of a group takes. */
static inline uint64_t disk_file_bytes(const struct kv_disk *d, uint32_t group)
{
    return disk_units(DISK_HEAD_BYTES + d->o.layout->group[group].block_bytes);
}
/* The copier's run: one struct disk_job. */
bool disk_run(void *disk, const void *job, struct kv_ticket *ticket);

/* ---- disk_scan.c ---- */
/* Fills the index from the folder; deletes partly written files, and the oldest beyond the bounds. */
enum status disk_scan(struct kv_disk *d, struct err *e);
enum status disk_read_secret(struct kv_disk *d, struct err *e);

#endif
