/* Functions of kvpool/ that only tests and benchmarks call. */
#ifndef KVPOOL_KVPOOL_TEST_H
#define KVPOOL_KVPOOL_TEST_H

#include "kvpool/cache.h"
#include "kvpool/disk.h"
#include "kvpool/layout.h"
#include "kvpool/tier.h"

/* ---- cache ---- */
uint32_t kv_frames(const struct kv_cache *c, uint32_t group);
/* Of both tiers, including those that can be taken from other blocks. */
uint32_t kv_slots_free(const struct kv_cache *c, uint32_t group);
/* The lookup of kv_seq_adopt, without taking anything. */
uint32_t kv_match(const struct kv_cache *c, struct kv_key root, const int32_t *tokens,
                  uint32_t n_max);
/* Drops every cached block that has no holder. */
void kv_prefix_clear(struct kv_cache *c);
/* True when the frame belongs to no block: its content is never read. Tests overwrite it. */
bool kv_frame_is_free(const struct kv_cache *c, uint32_t group, uint32_t frame);
static inline bool kv_seq_unpark(struct kv_cache *c, struct kv_seq *s)
{
    return kv_seq_unpark_paged(c, s, 0);
}

/* The layout of a model whose layers are all alike. */
enum status kv_layout_init_plain(struct kv_layout *l, uint32_t n_layers, uint32_t n_kv_heads,
                                 uint32_t head_dim, uint32_t n_slots, enum kv_dtype dtype,
                                 struct err *e);

/* ---- tiers and disk: not threaded, each step does one job; false when there is none ---- */
bool kv_tier_step(struct kv_tier *t);
bool kv_disk_step(struct kv_disk *d);
/* Time (clock_ns) at which kv_tier_pop will have an answer at the latest; 0: no such time. */
uint64_t kv_tier_deadline_ns(const struct kv_tier *t);
/* The next n jobs (reads by kv_tier_read) fail with EIO. */
void kv_tier_fail(struct kv_tier *t, uint32_t n);
void kv_tier_fail_reads(struct kv_tier *t, uint32_t n);

#endif
