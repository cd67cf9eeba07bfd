/* Added tokens in text: a byte trie walked from each place where one can start. A walk is at most
 * as long as the longest added token, so finding all is linear in the text. */
#include "base/mem.h"
#include "engine/text/text.h"
#include "engine/text/vocab.h"

enum { MAX_NODES = 1 << 24 };

static uint32_t slot_of(uint32_t key, uint32_t mask)
{
    return (key * 0x9e3779b1u) >> 7 & mask;
}

static uint32_t child_of(const struct special_trie *t, uint32_t node, uint8_t byte)
{
    uint32_t key = (node << 8 | byte) + 1;
    for (uint32_t i = slot_of(key, t->mask);; i = (i + 1) & t->mask) {
        if (t->slot[i].key == key)
            return t->slot[i].child;
        if (t->slot[i].key == 0)
            return 0;
    }
}

static void put(struct special_trie *t, struct trie_slot s)
{
    uint32_t i = slot_of(s.key, t->mask);
    while (t->slot[i].key)
        i = (i + 1) & t->mask;
    t->slot[i] = s;
}

static uint32_t add_node(struct special_trie *t)
{
    if (t->n_nodes == t->cap_nodes) {
        t->cap_nodes = t->cap_nodes ? t->cap_nodes * 2 : 64;
        t->id = mem_realloc(t->id, mem_mul(t->cap_nodes, sizeof *t->id));
        t->control = mem_realloc(t->control, mem_mul(t->cap_nodes, sizeof *t->control));
    }
    t->id[t->n_nodes] = -1;
    t->control[t->n_nodes] = false;
    return t->n_nodes++;
}

void special_init(struct special_trie *t)
{
    *t = (struct special_trie){.mask = 255};
    t->slot = mem_zalloc(256 * sizeof *t->slot);
    add_node(t);
}

void special_release(struct special_trie *t)
{
    mem_free(t->slot);
    mem_free(t->id);
    mem_free(t->control);
    *t = (struct special_trie){0};
}

static void grow(struct special_trie *t)
{
    struct trie_slot *old = t->slot;
    uint32_t n_old = t->mask + 1;
    t->slot = mem_zalloc(mem_mul(n_old, 2 * sizeof *t->slot));
    t->mask = n_old * 2 - 1;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].key)
            put(t, old[i]);
    mem_free(old);
}

bool special_add(struct special_trie *t, struct str text, int32_t id, bool control)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.ptr[i];
        uint32_t child = child_of(t, node, byte);
        if (!child) {
            if (t->n_nodes >= MAX_NODES - 1)
                return false;
            if (t->n_slots * 2 > t->mask)
                grow(t);
            child = add_node(t);
            put(t, (struct trie_slot){(node << 8 | byte) + 1, child});
            t->n_slots++;
        }
        node = child;
    }
    if (node && t->id[node] < 0) {
        t->id[node] = id;
        t->control[node] = control;
        t->first[(uint8_t)text.ptr[0]] = true;
    }
    return true;
}

static bool counts(const struct special_filter *f, bool control, size_t end, size_t trusted_end)
{
    if (!control)
        return f->user;
    return f->control && (!f->trusted || end <= trusted_end);
}

/* End of the trusted range that holds `at`, 0 when none does. *i: the first range that ends behind
 * `at`, moves on with it. */
static size_t trusted_until(const struct special_filter *f, size_t at, size_t *i)
{
    while (*i < f->n_trusted && f->trusted[*i].end <= at)
        (*i)++;
    return *i < f->n_trusted && f->trusted[*i].start <= at ? f->trusted[*i].end : 0;
}

/* First range that ends behind `at`. */
static size_t first_range(const struct special_filter *f, size_t at)
{
    size_t low = 0, high = f->trusted ? f->n_trusted : 0;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (f->trusted[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool special_find(const struct special_trie *t, struct str text, size_t at,
                  const struct special_filter *f, struct special_match *out)
{
    size_t range = first_range(f, at);
    for (; at < text.len; at++) {
        if (!t->first[(uint8_t)text.ptr[at]])
            continue;
        size_t trusted_end = f->trusted ? trusted_until(f, at, &range) : 0;
        bool found = false;
        uint32_t node = 0;
        for (size_t i = at; i < text.len; i++) {
            node = child_of(t, node, (uint8_t)text.ptr[i]);
            if (!node)
                break;
            if (t->id[node] < 0 || !counts(f, t->control[node], i + 1, trusted_end))
                continue;
            *out = (struct special_match){at, i + 1, t->id[node]};
            found = true;
        }
        if (found)
            return true;
    }
    return false;
}
