/* disk_writer FOLDER MAX_BYTES write SEED: puts and gets blocks of the disk prefix cache until it is
 * killed, and writes to a spill file all the time. Prints a dot at the start and for each
 * answer; ends with status 1 when a get returns bytes that were never put.
 * disk_writer FOLDER MAX_BYTES read MODEL: tries every block that the writer may have put, and prints
 * "served N bad N bytes N", where all served blocks had the right bytes (otherwise: status 1).
 *
 * MODEL is a number that represents a model's digest; the writer's is 0. A block's bytes are a function of its
 * number, so that a reader can check them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "base/ring.h"
#include "engine/cpu/cpu_kv.h"
#include "kvpool/disk.h"
#include "kvpool/tier.h"

enum { N_KEYS = 400, N_TOKENS = 8, N_BUFFERS = 16 };

static struct kv_layout layout;

static void wake(void *arg)
{
    mpsc_wake(arg);
}

static int fail(const char *what)
{
    fprintf(stderr, "disk_writer: %s\n", what);
    return 1;
}

static struct kv_key key_of(uint64_t n)
{
    return (struct kv_key){{(n + 1) * 0x9e3779b97f4a7c15u, n}};
}

static uint64_t word_of(uint64_t n, size_t i)
{
    uint64_t x = (n << 32 | i) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 29;
}

static void fill(uint8_t *p, uint32_t group, uint64_t n)
{
    for (size_t i = 0; i < layout.group[group].block_bytes / 8; i++) {
        uint64_t word = word_of(n, i);
        memcpy(p + 8 * i, &word, 8);
    }
}

static bool holds(const uint8_t *p, uint32_t group, uint64_t n)
{
    for (size_t i = 0; i < layout.group[group].block_bytes / 8; i++) {
        uint64_t word = word_of(n, i);
        if (memcmp(p + 8 * i, &word, 8) != 0)
            return false;
    }
    return true;
}

/* tokens [N_TOKENS]: where the block's ids go. */
static struct kv_disk_block block_of(uint64_t n, int32_t *tokens, uint8_t *bytes, uint32_t frame)
{
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)n + i;
    return (struct kv_disk_block){.group = n % 2,
                                  .key = key_of(n),
                                  .parent = key_of(n + N_KEYS),
                                  .tokens = tokens,
                                  .bytes = bytes,
                                  .frame = frame,
                                  .id = n};
}

static int read_all(struct kv_disk *disk, const struct kv_store *store)
{
    uint32_t n_served = 0;
    for (uint64_t n = 0; n < N_KEYS; n++) {
        int32_t tokens[N_TOKENS];
        struct kv_disk_done done;
        struct kv_disk_block b = block_of(n, tokens, NULL, 0);
        if (!kv_disk_get(disk, &b))
            continue;
        while (kv_disk_step(disk))
            continue;
        if (!kv_disk_pop(disk, &done))
            return fail("no answer");
        if (done.ok && !holds(kv_block_ptr(store, n % 2, 0), n % 2, n))
            return fail("served what was never put");
        n_served += done.ok;
    }
    struct kv_disk_stats s = kv_disk_stats(disk);
    printf("served %u bad %llu bytes %llu\n", n_served, (unsigned long long)s.n_bad,
           (unsigned long long)s.n_bytes);
    return 0;
}

/* One job in the spill file at a time; its slot's block is checked by the tier's own tests. */
static void spill_some(struct kv_tier *tier, uint64_t step)
{
    struct kv_done done;
    while (kv_tier_pop(tier, &done))
        continue;
    struct kv_job job = {.frame = N_BUFFERS, .slot = step % 4, .load = step & 4, .id = step};
    kv_tier_push(tier, &job);
}

static int write_forever(struct kv_disk *disk, struct kv_tier *tier, struct mpsc *event,
                         const struct kv_store *store, uint8_t *bytes, uint64_t state)
{
    size_t stride = layout.group[0].block_bytes + layout.group[1].block_bytes;
    bool busy[N_BUFFERS] = {false};
    putchar('.');
    for (uint64_t step = 0;; step++) {
        int32_t tokens[N_TOKENS];
        struct kv_disk_done done;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint32_t i = (uint32_t)(step % N_BUFFERS);
        uint64_t n = state % N_KEYS;
        struct kv_disk_block b = block_of(n, tokens, bytes + i * stride, i);
        if (!busy[i] && state >> 60 == 0) { /* a get for 15 puts keeps the thread at its writes */
            busy[i] = kv_disk_get(disk, &b);
        } else if (!busy[i]) {
            if (kv_disk_has(disk, n % 2, &b.key))
                continue;
            fill(b.bytes, n % 2, n);
            busy[i] = kv_disk_put(disk, &b);
        } else {
            mpsc_wait(event, 100); /* the buffer is in flight */
        }
        while (kv_disk_pop(disk, &done)) {
            i = (uint32_t)((size_t)(done.bytes - bytes) / stride);
            busy[i] = false;
            if (done.get && done.ok &&
                !holds(kv_block_ptr(store, done.group, i), done.group, done.id))
                return fail("served what was never put");
            putchar('.');
        }
        fflush(stdout);
        spill_some(tier, step);
    }
}

static int run(const char *folder, uint64_t max_bytes, bool writes, uint64_t number)
{
    static const struct kv_layer_shape shape[] = {{0, 1, 16384}, {16, 1, 24576}};
    uint32_t n_frames[KV_MAX_GROUPS] = {N_BUFFERS + 1, N_BUFFERS}; /* one to spill */
    struct err e;
    struct kv_store *store;
    struct kv_disk *disk;
    struct kv_tier *tier;
    struct mpsc *event = mpsc_new(1, &e);
    if (!event || kv_layout_init(&layout, shape, 2, N_TOKENS, KV_F16, KV_F16, &e) != OK ||
        cpu_kv_new(&layout, n_frames, NULL, &store, &e) != OK)
        return fail(e.text);
    struct kv_disk_options o = {.layout = &layout,
                                .store = store,
                                .path = folder,
                                .max_bytes = max_bytes,
                                .max_jobs = 2 * N_BUFFERS,
                                .threaded = writes,
                                .wake = wake,
                                .wake_arg = event};
    memcpy(o.model_digest, &number, writes ? 0 : sizeof(number));
    if (kv_disk_open(&o, &disk, &e) != OK)
        return fail(e.text);
    uint8_t *bytes =
        mem_zalloc(N_BUFFERS * (layout.group[0].block_bytes + layout.group[1].block_bytes));
    if (!writes)
        return read_all(disk, store);
    struct kv_tier_options spill = {.store = store,
                                    .layout = &layout,
                                    .path = folder,
                                    .n_file = {4, 0},
                                    .max_jobs = 4,
                                    .threaded = true};
    if (kv_tier_open(&spill, &tier, &e) != OK)
        return fail(e.text);
    return write_forever(disk, tier, event, store, bytes, number | 1);
}

int main(int argc, char **argv)
{
    bool writes = argc == 5 && strcmp(argv[3], "write") == 0;
    if (!writes && !(argc == 5 && strcmp(argv[3], "read") == 0)) {
        fprintf(stderr, "usage: disk_writer FOLDER MAX_BYTES write SEED | read MODEL\n");
        return 2;
    }
    return run(argv[1], strtoull(argv[2], NULL, 10), writes, strtoull(argv[4], NULL, 10));
}
