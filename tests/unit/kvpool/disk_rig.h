/* Shared by the tests of the disk prefix cache: a scratch folder, blocks with bytes derived from
 * their number, and the cache over them. */
#ifndef TESTS_UNIT_KVPOOL_DISK_RIG_H
#define TESTS_UNIT_KVPOOL_DISK_RIG_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "kvpool/kvpool_test.h"
#include "base/mem.h"
#include "base/ring.h"
#include "kvpool/disk_int.h"
#include "kvpool/named.h"
#include "tests/unit/kvpool/plain_store.h"
#include "tests/unit/run_suite.h"

enum { N_BLOCK_TOKENS = 8, MAX_JOBS = 8, N_STORE_FRAMES = 24 };

struct rig {
    struct kv_layout layout;
    struct kv_disk_options o;
    struct kv_disk *disk;
    struct mpsc *event;
    char folder[64];
    uint8_t *bytes; /* owns: a block to put */
    struct plain_store store; /* gets go to frame 0, unless a test says otherwise */
    int32_t tokens[DISK_MAX_SLOTS];
    uint64_t n_jobs;
};

static inline void rig_wake(void *arg)
{
    mpsc_wake(arg);
}

static inline void rig_layout(struct rig *r, uint32_t head_dim, enum kv_dtype dtype_v)
{
    const struct kv_layer_shape shape[] = {{0, 1, head_dim}, {16, 1, 24}, {0, 1, head_dim}};
    struct err e = {0};
    ck_assert_msg(kv_layout_init(&r->layout, shape, 3, N_BLOCK_TOKENS, KV_F16, dtype_v, &e) == OK,
                  "%s", e.text);
}

static inline void rig_init(struct rig *r)
{
    struct err e = {0};
    *r = (struct rig){0};
    rig_layout(r, 40, KV_F16);
    plain_store_init(&r->store, &r->layout, (uint32_t[]){N_STORE_FRAMES, N_STORE_FRAMES}, NULL);
    snprintf(r->folder, sizeof(r->folder), "/tmp/millrace-disk-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(r->folder));
    r->event = mpsc_new(1, &e);
    r->bytes = mem_zalloc(1 << 16);
    r->o = (struct kv_disk_options){.layout = &r->layout,
                                    .store = &r->store.store,
                                    .model_digest = {1, 2, 3},
                                    .path = r->folder,
                                    .max_bytes = 1 << 24,
                                    .max_jobs = MAX_JOBS,
                                    .wake = rig_wake,
                                    .wake_arg = r->event};
}

static inline void rig_open(struct rig *r)
{
    struct err e = {0};
    ck_assert_msg(kv_disk_open(&r->o, &r->disk, &e) == OK, "%s", e.text);
}

static inline void rig_restart(struct rig *r)
{
    kv_disk_close(r->disk);
    rig_open(r);
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void rig_release(struct rig *r)
{
    kv_disk_close(r->disk);
    nftw(r->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    mpsc_free(r->event);
    mem_free(r->bytes);
    plain_store_release(&r->store);
}

static inline struct kv_key key_of(uint64_t n)
{
    return (struct kv_key){{n * 0x9e3779b97f4a7c15u, ~n}};
}

/* Block n of a group. */
static inline struct kv_disk_block block_of(struct rig *r, uint32_t group, uint64_t n)
{
    for (int i = 0; i < N_BLOCK_TOKENS; i++)
        r->tokens[i] = (int32_t)(n * 31 + (uint64_t)i);
    return (struct kv_disk_block){.group = group,
                                  .key = key_of(n),
                                  .parent = key_of(n + 1),
                                  .tokens = r->tokens,
                                  .bytes = r->bytes,
                                  .id = ++r->n_jobs};
}

static inline uint8_t byte_of(uint32_t group, uint64_t n, size_t i)
{
    return (uint8_t)(((n + 77 * group + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u) >> 56);
}

static inline void fill(struct rig *r, uint8_t *p, uint32_t group, uint64_t n)
{
    for (size_t i = 0; i < r->layout.group[group].block_bytes; i++)
        p[i] = byte_of(group, n, i);
}

static inline bool holds(struct rig *r, const uint8_t *p, uint32_t group, uint64_t n)
{
    for (size_t i = 0; i < r->layout.group[group].block_bytes; i++) {
        if (p[i] != byte_of(group, n, i))
            return false;
    }
    return true;
}

/* Works off everything, one answer expected; its ok. */
static inline bool finish(struct rig *r)
{
    struct kv_disk_done done, more;
    while (kv_disk_step(r->disk))
        continue;
    EXPECT(kv_disk_pop(r->disk, &done));
    EXPECT(done.id == r->n_jobs);
    EXPECT(!kv_disk_pop(r->disk, &more));
    return done.ok;
}

static inline bool put(struct rig *r, uint32_t group, uint64_t n)
{
    struct kv_disk_block b = block_of(r, group, n);
    fill(r, r->bytes, group, n);
    return kv_disk_put(r->disk, &b) && finish(r);
}

static inline bool has(struct rig *r, uint32_t group, uint64_t n)
{
    struct kv_key key = key_of(n);
    return kv_disk_has(r->disk, group, &key);
}

/* True: the right bytes came. False: none came, and the memory is as it was. */
static inline bool get(struct rig *r, uint32_t group, uint64_t n)
{
    size_t n_bytes = r->layout.group[group].block_bytes;
    struct kv_disk_block b = block_of(r, group, n);
    uint8_t *to = plain_block(&r->store, group, b.frame);
    memset(to, 0xa5, n_bytes);
    bool ok = kv_disk_get(r->disk, &b) && finish(r);
    if (ok)
        EXPECT(holds(r, to, group, n));
    for (size_t i = 0; !ok && i < n_bytes; i++)
        EXPECT(to[i] == 0xa5);
    return ok;
}

/* Path of a block's file. */
static inline const char *path_of(struct rig *r, uint32_t group, uint64_t n)
{
    static char path[256];
    char name[DISK_NAME_BYTES];
    struct kv_key key = key_of(n);
    disk_name(name, kv_disk_domain(r->disk), group, &key);
    snprintf(path, sizeof(path), "%s/kv/blocks/%s", r->folder, name);
    return path;
}

/* Bytes that the files of blocks take on disk, half-written ones too. */
static inline uint64_t disk_use(struct rig *r)
{
    char path[128];
    uint64_t n = 0;
    snprintf(path, sizeof(path), "%s/kv/blocks", r->folder);
    DIR *dir = opendir(path);
    for (struct dirent *t; (t = readdir(dir));) {
        struct stat st;
        if (t->d_name[0] == '.' || strcmp(t->d_name, "secret") == 0)
            continue;
        EXPECT(fstatat(dirfd(dir), t->d_name, &st, 0) == 0);
        n += (uint64_t)st.st_blocks * 512 > (uint64_t)st.st_size ? (uint64_t)st.st_blocks * 512
                                                                 : disk_units((uint64_t)st.st_size);
    }
    closedir(dir);
    return n;
}

#endif
