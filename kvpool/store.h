/* Access to the bytes of KV blocks: kvpool declares this interface, each device implements it
 * (engine/device.h, kv_new), and callers move bytes through it. Only the device has the address of a block:
 * it may be in memory that the host cannot read, in an order of elements that only the device knows
 * (kv_layout.order).
 *
 * A move copies one whole block. Its ends are blocks (frames and RAM slots, by their physical numbers: device
 * to device, device to host and back); one end may instead be host memory of the caller, where a block is
 * block_bytes bytes, the form that files hold. `start` returns a ticket, `wait` ends it. In between
 *   1. the source may be read and the destination written at any time, each slot (token position) separately:
 *      until the ticket has ended, the content of the destination is undefined. Slots that are written in the
 *      meantime may or may not be copied; slots that are not are copied whole;
 *   2. moves are not ordered, neither with each other nor with the steps of a backend: the caller ensures that
 *      nothing in flight writes the source slots it needs, or reads or writes the destination;
 *   3. tickets may be waited for in any order, each exactly once. A failure is reported by then at the latest,
 *      and leaves the destination undefined.
 * Threads: start, wait, stage and unstage any; close when nothing is in flight. */
#ifndef KVPOOL_STORE_H
#define KVPOOL_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/arena.h"

#define KV_BYTES UINT32_MAX /* as an end of a move: `bytes` instead of a block */

enum { KV_STAGE_ALIGN = 4096 };

struct kv_move {
    uint32_t group;
    uint32_t src, dst; /* physical numbers as in arena.h; dst of blocks differs from src */
    void *bytes; /* [block_bytes]: the end that is KV_BYTES; borrowed until the ticket has ended */
};

struct kv_store;

struct kv_store_ops {
    enum status (*start)(struct kv_store *kv, const struct kv_move *m, uint64_t *ticket,
                         struct err *e);
    enum status (*wait)(struct kv_store *kv, uint64_t ticket, struct err *e);
    /* Host memory that is fast for moves to and from this device: zeroed, aligned to KV_STAGE_ALIGN; NULL
     * when none is left. */
    void *(*stage)(struct kv_store *kv, size_t n_bytes);
    void (*unstage)(struct kv_store *kv, void *p); /* NULL is fine */
    void (*close)(struct kv_store *kv);
};

struct kv_store {
    const struct kv_store_ops *ops;
    struct kv_arena arena; /* numbers and sizes of its blocks */
};

/* Start and wait in one call, for threads that have nothing else to do. */
enum status kv_store_copy(struct kv_store *kv, uint32_t group, uint32_t src, uint32_t dst,
                          struct err *e);
enum status kv_store_read(struct kv_store *kv, uint32_t group, uint32_t src, void *dst,
                          struct err *e);
enum status kv_store_write(struct kv_store *kv, uint32_t group, uint32_t dst, const void *src,
                           struct err *e);
void kv_store_close(struct kv_store *kv); /* NULL is fine */

#endif
