/* Moves that the caller waits for at once; see store.h. */
#include "kvpool/store.h"

static enum status move(struct kv_store *kv, const struct kv_move *m, struct err *e)
{
    uint64_t ticket;
    enum status st = kv->ops->start(kv, m, &ticket, e);
    return st == OK ? kv->ops->wait(kv, ticket, e) : st;
}

enum status kv_store_copy(struct kv_store *kv, uint32_t group, uint32_t src, uint32_t dst,
                          struct err *e)
{
    return move(kv, &(struct kv_move){.group = group, .src = src, .dst = dst}, e);
}

enum status kv_store_read(struct kv_store *kv, uint32_t group, uint32_t src, void *dst,
                          struct err *e)
{
    return move(kv, &(struct kv_move){.group = group, .src = src, .dst = KV_BYTES, .bytes = dst},
                e);
}

enum status kv_store_write(struct kv_store *kv, uint32_t group, uint32_t dst, const void *src,
                           struct err *e)
{
    void *bytes = (void *)(uintptr_t)src; /* a source is only read */
    return move(kv, &(struct kv_move){.group = group, .src = KV_BYTES, .dst = dst, .bytes = bytes},
                e);
}

void kv_store_close(struct kv_store *kv)
{
    if (kv)
        kv->ops->close(kv);
}
