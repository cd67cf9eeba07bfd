/* bytes -> token id, and the byte alphabet of byte-level vocabularies. */
#include "engine/text/vocab.h"

#include "base/mem.h"

static uint32_t pow2_at_least(uint64_t n)
{
    uint32_t p = 16;
    while (p < n)
        p *= 2;
    return p;
}

/* A multiply-fold hash, eight bytes a step. Keys are tokens and pieces of text; chains are bounded
 * by the vocabulary, which is fixed, so no secret is needed. */
static uint32_t hash_bytes(struct str s)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ s.len;
    const char *p = s.ptr;
    size_t left = s.len;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    if (left) {
        uint64_t v = 0;
        memcpy(&v, p, left);
        h = (h ^ v) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    h *= 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h >> 32);
}

void byte_map_init(struct byte_map *m, const struct str *text, uint32_t n)
{
    uint32_t cap = pow2_at_least((uint64_t)n * 2);
    m->slot = mem_zalloc(mem_mul(cap, sizeof *m->slot));
    m->mask = cap - 1;
    m->text = text;
}

void byte_map_release(struct byte_map *m)
{
    mem_free(m->slot);
    m->slot = NULL;
}

static struct byte_slot *find_slot(const struct byte_map *m, struct str key, uint32_t hash)
{
    for (uint32_t i = hash & m->mask;; i = (i + 1) & m->mask) {
        struct byte_slot *s = &m->slot[i];
        if (s->id_plus_1 == 0 || (s->hash == hash && str_eq(m->text[s->id_plus_1 - 1], key)))
            return s;
    }
}

void byte_map_add(struct byte_map *m, uint32_t id)
{
    uint32_t hash = hash_bytes(m->text[id]);
    struct byte_slot *s = find_slot(m, m->text[id], hash);
    if (s->id_plus_1 == 0)
        *s = (struct byte_slot){hash, id + 1};
}

int32_t byte_map_find(const struct byte_map *m, struct str key)
{
    return (int32_t)find_slot(m, key, hash_bytes(key))->id_plus_1 - 1;
}

/* Printable Latin-1 stands for itself; the other 68 bytes follow from U+0100 on, in order. */
static bool is_plain(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad);
}

uint32_t byte_char(uint8_t byte)
{
    if (is_plain(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte <= 0xa0)
        return 0x100u + 0x21u + (byte - 0x7fu);
    return 0x143; /* 0xad */
}

int char_byte(uint32_t c)
{
    if (c < 0x100)
        return is_plain(c) ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
