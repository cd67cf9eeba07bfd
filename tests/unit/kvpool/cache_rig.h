/* A small cache for unit tests: one full group and, if asked, one with a window; blocks of 4 positions. */
#ifndef TESTS_UNIT_KVPOOL_CACHE_RIG_H
#define TESTS_UNIT_KVPOOL_CACHE_RIG_H

#include <string.h>

#include "base/mem.h"
#include "kvpool/kvpool_test.h"
#include "kvpool/cache_int.h"
#include "tests/unit/run_suite.h"

enum { RIG_TOKENS = 128, RIG_SEQS = 6 };

static struct kv_layout rig_layout;
static struct kv_options rig_options;
static struct kv_cache *rig;
static struct kv_seq seq[RIG_SEQS];
static int32_t text[RIG_TOKENS];
static struct kv_copy copies[16];
static uint32_t n_copies;

static inline void rig_sound(void)
{
    struct err e;
    if (kv_cache_audit(rig, &e) != OK)
        ck_abort_msg("%s", e.text);
}

static inline struct kv_key rig_root(const char *salt)
{
    struct kv_domain d = {
        .rope = "", .adapter = "", .salt = salt, .n_salt_bytes = (uint32_t)strlen(salt)};
    return kv_root(rig, &d);
}

/* Groups: one full; window > 0: a second one. Options not named here: rig_options beforehand. */
static inline void rig_open(uint32_t n_frames, uint32_t n_host, uint32_t window)
{
    rig_layout = (struct kv_layout){.n_layers = 2,
                                    .n_groups = window > 0 ? 2 : 1,
                                    .n_slots = 4,
                                    .group[1] = {.window = window}};
    rig_options.layout = &rig_layout;
    rig_options.n_frames[0] = rig_options.n_frames[1] = n_frames;
    rig_options.n_host[0] = rig_options.n_host[1] = n_host;
    rig_options.max_jobs = 4;
    rig_options.max_pending = 16;
    rig_options.prefix = true;
    rig = kv_cache_new(&rig_options);
    for (int i = 0; i < RIG_TOKENS; i++)
        text[i] = i * 3;
    for (int i = 0; i < RIG_SEQS; i++)
        kv_seq_init(rig, &seq[i], RIG_TOKENS, rig_root(""));
    n_copies = 0;
}

static inline void rig_close(void)
{
    for (int i = 0; i < RIG_SEQS; i++) {
        kv_seq_drop(rig, &seq[i]);
        kv_seq_release(rig, &seq[i]);
    }
    rig_sound();
    kv_prefix_clear(rig);
    rig_sound();
    for (uint32_t k = 0; k < rig->n_groups; k++)
        ck_assert_uint_eq(rig->group[k].n_free_frames, kv_frames(rig, k));
    kv_cache_free(rig);
}

static inline bool rig_grow(struct kv_seq *s, uint32_t n)
{
    if (!s->runs)
        ck_assert(kv_seq_unpark(rig, s));
    bool grown = kv_seq_grow(rig, s, n, copies, &n_copies);
    rig_sound();
    return grown;
}

static inline void rig_retire(struct kv_seq *s)
{
    kv_seq_retire(rig, s, text, true);
    rig_sound();
}

/* n positions computed and retired. */
static inline void rig_fill(struct kv_seq *s, uint32_t n)
{
    ck_assert(rig_grow(s, n));
    rig_retire(s);
}

/* All jobs that can run now, done one by one; how many. */
static inline uint32_t rig_copy_all(bool ok)
{
    struct kv_job job;
    uint32_t n = 0;
    for (; kv_job_next(rig, &job); n++) {
        rig_sound();
        kv_job_done(rig, &job, ok);
        rig_sound();
    }
    return n;
}

static inline const struct kvc_block *rig_block(const struct kv_seq *s, uint32_t group, uint32_t i)
{
    return kvc_look(rig, s, group, i);
}

#endif
