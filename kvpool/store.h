/* The bytes of KV blocks as a device lends them: kvpool declares this interface, each device fills it in
 * (engine/device.h, kv_new), and whoever wants bytes moved calls it. Nobody else has an address of a block:
 * it may lie in memory that the host cannot read, in an order of elements that only the device knows
 * (kv_layout.order).
 *
 * A move copies one whole block. Its ends are blocks (frames and RAM slots, by their physical numbers, so
 * device to device, device to host and back), or for one of them host memory of the caller, where a block is
 * block_bytes bytes: what files hold. `start` gives a ticket, `wait` ends it. In between
 *   1. the source may be read and the destination written at any time, each slot (token position) on its own:
 *      until the ticket has ended the destination holds anything, and whether a slot that is written meanwhile
 *      comes along is open, while slots that are not come along whole;
 *   2. moves are in no order, neither with each other nor with the steps of a backend: who starts one sees to
 *      it that nothing in flight writes its source slots of interest, or reads or writes its destination;
 *   3. tickets may be waited for in any order, each exactly once. A move that failed has told so by then, and
 *      its destination still holds anything.
 * Threads: start, wait, stage and unstage any; close when nothing is in flight. */
#ifndef KVPOOL_STORE_H
#define KVPOOL_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kvpool/arena.h"

#define KV_BYTES UINT32_MAX /* as an end of a move: not a block but `bytes` */

enum { KV_STAGE_ALIGN = 4096 };

struct kv_move {
    uint32_t group;
    uint32_t src, dst; /* physical numbers as in arena.h; dst of blocks differs from src */
    void
        *bytes; /* [block_bytes] of the end that is KV_BYTES; borrowed until the ticket has ended */
};

struct kv_store;

struct kv_store_ops {
    enum status (*start)(struct kv_store *kv, const struct kv_move *m, uint64_t *ticket,
                         struct err *e);
    enum status (*wait)(struct kv_store *kv, uint64_t ticket, struct err *e);
    /* Host memory that moves to and from this device are fast with: zeroed, aligned to KV_STAGE_ALIGN; NULL
     * when there is none left. */
    void *(*stage)(struct kv_store *kv, size_t n_bytes);
    void (*unstage)(struct kv_store *kv, void *p); /* NULL is fine */
    void (*close)(struct kv_store *kv);
};

struct kv_store {
    const struct kv_store_ops *ops;
    struct kv_arena arena; /* how many blocks it has, and their sizes */
};

/* Start and wait in one, for threads that have nothing else to do. */
enum status kv_store_copy(struct kv_store *kv, uint32_t group, uint32_t src, uint32_t dst,
                          struct err *e);
enum status kv_store_read(struct kv_store *kv, uint32_t group, uint32_t src, void *dst,
                          struct err *e);
enum status kv_store_write(struct kv_store *kv, uint32_t group, uint32_t dst, const void *src,
                           struct err *e);
void kv_store_close(struct kv_store *kv); /* NULL is fine */

#endif
