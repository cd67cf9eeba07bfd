/* KV blocks in host memory: one anonymous mapping with huge pages advised, addressed directly by the kernels. */
#ifndef ENGINE_CPU_CPU_KV_H
#define ENGINE_CPU_CPU_KV_H

#include "kvpool/layout.h"
#include "kvpool/store.h"

struct cpu_kv {
    struct kv_store store; /* first: the interface's handle */
    uint8_t *map; /* owns; 2 MiB aligned */
    uint8_t *base[KV_MAX_GROUPS]; /* block 0 of a group; 64-byte aligned (2 MiB for group 0) */
};

/* As device.kv_new. Pages are not touched here (zero on first touch). */
enum status cpu_kv_new(const struct kv_layout *l, const uint32_t *n_frames, const uint32_t *n_host,
                       struct kv_store **out, struct err *e);

/* kv was made by cpu_kv_new; phys < n_frames + n_host. */
static inline uint8_t *kv_block_ptr(const struct kv_store *kv, uint32_t group, uint32_t phys)
{
    return ((const struct cpu_kv *)kv)->base[group] +
           (size_t)phys * kv->arena.group[group].block_bytes;
}

#endif
