/* The disk prefix cache and named prefixes in a world of random operations: prefixes are filled, get
 * a name, are pinned on the disk and released; blocks are read, written, evicted and damaged; the scheduler
 * stops in the middle of all that, and another one continues with the folder. */
#ifndef TESTS_SCHEDULER_TAG_DISK_H
#define TESTS_SCHEDULER_TAG_DISK_H

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/unit/scheduler/tag_state.h"

/* ---- names ---- */

static inline struct str name_text(uint32_t name)
{
    static const char text[] = "abc";
    return (struct str){text + name, 1};
}

/* A change of pins on its way to the engine thread. */
struct pin_ask {
    struct sched_ask ask; /* first */
    struct tag_world *w;
    uint32_t name, version;
    struct kv_key key[];
};

static inline void pins_done(struct sched_ask *a, void *arg)
{
    struct pin_ask *p = (struct pin_ask *)a;
    struct tag_world *w = arg;
    struct tag_name *t = &w->name[p->name];
    MUST(a->status == OK || (a->status == ERR_DRAINING && w->stopping), "%d", a->status);
    w->n_pin_asks--;
    if (t->version == p->version)
        t->pinned = a->n_pin > 0;
    mem_free(p);
}

/* now, old: of one name; either may be NULL. */
static inline void change_pins(struct tag_world *w, uint32_t name,
                               const struct kv_named_prefix *now, const struct kv_named_prefix *old)
{
    uint32_t n_pin = now ? now->n_keys : 0, n_unpin = old ? old->n_keys : 0;
    struct tag_name *t = &w->name[name];
    struct pin_ask *p = mem_zalloc(sizeof(*p) + (n_pin + n_unpin) * sizeof(struct kv_key));
    if (n_pin)
        memcpy(p->key, now->keys, n_pin * sizeof(*p->key));
    if (n_unpin)
        memcpy(p->key + n_pin, old->keys, n_unpin * sizeof(*p->key));
    memset(t->seen, 0, sizeof(t->seen));
    memcpy(t->key, p->key, n_pin * sizeof(*p->key));
    t->n_keys = n_pin;
    t->pinned = false;
    *p = (struct pin_ask){.w = w, .name = name, .version = ++t->version};
    p->ask = (struct sched_ask){.kind = ASK_PINS,
                                .item.key = p->key,
                                .n_pin = n_pin,
                                .n_unpin = n_unpin,
                                .done = pins_done,
                                .arg = w};
    if (n_pin)
        random_count(DID_PIN);
    if (n_unpin)
        random_count(DID_UNPIN);
    w->n_pin_asks++;
    sched_ask(w->g.s, &p->ask);
}

/* A prompt was filled: it gets its name. */
static inline void name_keep(struct tag_world *w, const struct request *r, uint32_t name)
{
    struct kv_key key[MAX_KEYS];
    struct kv_named_prefix *old = NULL;
    struct err e;
    struct kv_named_prefix p = {.name = name_text(name),
                                .tokens = r->prompt,
                                .n_tokens = r->n_prompt - 1,
                                .keys = key,
                                .domain = kv_disk_domain(w->g.disk)};
    CHECK(p.n_tokens / w->opt.n_slots <= MAX_KEYS);
    p.n_keys = sched_prefix_keys(w->g.s, r, p.n_tokens, key);
    ck_assert_msg(kv_named_put(w->named, &p, &old, &e) == OK, "%s", e.text);
    change_pins(w, name, &p, old);
    kv_named_prefix_free(old);
}

static inline void name_delete(struct tag_world *w, uint32_t name)
{
    struct kv_named_prefix *old = NULL;
    struct err e;
    if (kv_named_delete(w->named, (struct str){0}, name_text(name), &old, &e) != OK)
        return;
    TRACE(&w->r, "name %u goes", name);
    change_pins(w, name, NULL, old);
    kv_named_prefix_free(old);
}

/* Keys that names pin, each once: equal ones stand at the same place of their chains. */
static inline uint32_t count_pinned(const struct tag_world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_NAMES; i++) {
        for (uint32_t k = 0; k < w->name[i].n_keys; k++) {
            bool again = false;
            for (uint32_t j = 0; j < i; j++)
                again |= k < w->name[j].n_keys &&
                         memcmp(&w->name[j].key[k], &w->name[i].key[k], sizeof(struct kv_key)) == 0;
            n += !again;
        }
    }
    return n;
}

/* What is pinned and came to the disk stays there, unless bits flipped. */
static inline void names_audit(struct tag_world *w)
{
    uint32_t n_pinned = kv_disk_stats(w->g.disk).n_pinned;
    MUST(w->n_pin_asks > 0 || n_pinned == KV_MAX_GROUPS * count_pinned(w), "%u pinned", n_pinned);
    for (uint32_t i = 0; i < N_NAMES; i++) {
        struct tag_name *t = &w->name[i];
        for (uint32_t k = 0; t->pinned && k < t->n_keys; k++) {
            for (uint32_t g = 0; g < w->opt.n_groups; g++) {
                bool has = kv_disk_has(w->g.disk, g, &t->key[k]);
                MUST(has || !t->seen[g][k] || w->damages,
                     "group %u, block %u of name %u was pinned and is gone", g, k, i);
                t->seen[g][k] |= has;
            }
        }
    }
}

/* ---- the disk ---- */

static inline void disk_audit(struct tag_world *w)
{
    if (!w->g.disk)
        return;
    struct kv_disk_stats st = kv_disk_stats(w->g.disk), *b = &w->disk_before;
    MUST(st.n_bytes <= st.max_bytes, "%llu bytes of %llu", (unsigned long long)st.n_bytes,
         (unsigned long long)st.max_bytes);
    MUST(st.n_bad == 0 || w->damages, "a block was not what had been written");
    bool pins = false;
    for (uint32_t i = 0; i < N_NAMES; i++)
        pins |= w->name[i].pinned;
    if (pins && st.n_evicted > b->n_evicted)
        random_count(DID_PIN_HELD);
    random_add(DID_DISK_PUT, st.n_put - b->n_put);
    random_add(DID_DISK_GET, st.n_got - b->n_got);
    random_add(DID_DISK_EVICT, st.n_evicted - b->n_evicted);
    random_add(DID_DISK_BAD, st.n_bad - b->n_bad);
    random_add(DID_DISK_LATE, st.n_late - b->n_late);
    *b = st;
    names_audit(w);
}

/* Flips a bit of a block's file. */
static inline void disk_damage(struct tag_world *w)
{
    struct kv_disk *d = w->g.disk;
    char name[DISK_NAME_BYTES];
    uint32_t n = 0, at = 0;
    if (!d || !w->damages)
        return;
    for (uint32_t i = 0; i < d->n_entries; i++)
        n += d->entry[i].state == DISK_PRESENT;
    if (n == 0)
        return;
    n = draw(&w->r, n);
    for (uint32_t i = 0; i < d->n_entries; i++) {
        if (d->entry[i].state == DISK_PRESENT && n-- == 0)
            at = i;
    }
    const struct disk_entry *t = &d->entry[at];
    disk_name(name, t->domain, t->group, &t->key);
    int fd = openat(d->folder, name, O_RDWR);
    uint8_t byte;
    if (fd < 0)
        return; /* found bad and deleted by a read that had been given up */
    off_t offset =
        (off_t)draw(&w->r, (uint32_t)(DISK_HEAD_BYTES + w->g.layout.group[t->group].block_bytes));
    MUST(pread(fd, &byte, 1, offset) == 1, "block %s", name);
    byte ^= (uint8_t)(1u << draw(&w->r, 8));
    MUST(pwrite(fd, &byte, 1, offset) == 1, "block %s", name);
    close(fd);
    TRACE(&w->r, "damage");
}

/* The order of use is kept as times of files, which are too coarse for a test that is to run again the
 * same way: gives them times a second apart, in that order. */
static inline void disk_spread_times(const struct kv_disk *d)
{
    char name[DISK_NAME_BYTES];
    time_t second = 1000000;
    for (uint32_t i = 0; i < d->n_entries; i++) { /* pinned ones are in no list */
        const struct disk_entry *t = &d->entry[i];
        struct timespec times[2] = {{.tv_sec = second}, {.tv_sec = second++}};
        disk_name(name, t->domain, t->group, &t->key);
        if (t->state == DISK_PRESENT && t->n_pins > 0)
            utimensat(d->folder, name, times, 0);
    }
    for (uint32_t i = d->lru_last; i != DISK_NONE; i = d->entry[i].prev) {
        const struct disk_entry *t = &d->entry[i];
        struct timespec times[2] = {{.tv_sec = second}, {.tv_sec = second++}};
        disk_name(name, t->domain, t->group, &t->key);
        utimensat(d->folder, name, times, 0);
    }
}

static inline void disk_step(struct tag_world *w)
{
    if (rig_disk_step(&w->g))
        TRACE(&w->r, "disk step");
}

/* A new scheduler has the pins of all names from its start on. */
static inline void names_restart(struct tag_world *w)
{
    for (uint32_t i = 0; i < N_NAMES; i++)
        w->name[i].pinned = w->name[i].n_keys > 0;
}

#endif
