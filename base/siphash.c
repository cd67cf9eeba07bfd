/* SipHash-2-4-128; see siphash.h. */
#include "base/siphash.h"

#include <string.h>

static inline uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotl(v[1], 13) ^ v[0], v[0] = rotl(v[0], 32);
    v[2] += v[3], v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotl(v[1], 17) ^ v[2], v[2] = rotl(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t m)
{
    v[3] ^= m;
    sip_round(v);
    sip_round(v);
    v[0] ^= m;
}

static inline uint64_t load_word(const uint8_t *p, size_t n)
{
    uint64_t m = 0;
    for (size_t i = 0; i < n; i++)
        m |= (uint64_t)p[i] << (8 * i);
    return m;
}

static inline void sip_init(uint64_t v[4], const uint64_t key[2])
{
    v[0] = key[0] ^ 0x736f6d6570736575u;
    v[1] = key[1] ^ 0x646f72616e646f6du ^ 0xee;
    v[2] = key[0] ^ 0x6c7967656e657261u;
    v[3] = key[1] ^ 0x7465646279746573u;
}

static inline void sip_end(uint64_t v[4], uint64_t last, uint64_t out[2])
{
    sip_word(v, last);
    v[2] ^= 0xee;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

void siphash_init(struct siphash *h, const uint64_t key[2])
{
    sip_init(h->v, key);
    h->n_bytes = 0;
    h->partial = 0;
}

void siphash_add(struct siphash *h, const void *p, size_t n_bytes)
{
    const uint8_t *in = p;
    while (n_bytes > 0) {
        uint32_t have = h->n_bytes % 8;
        uint32_t take = n_bytes < 8 - have ? (uint32_t)n_bytes : 8 - have;
        h->partial |= load_word(in, take) << (8 * have);
        h->n_bytes += take;
        in += take;
        n_bytes -= take;
        if (have + take == 8) {
            sip_word(h->v, h->partial);
            h->partial = 0;
        }
    }
}

void siphash_end(const struct siphash *h, uint64_t out[2])
{
    uint64_t v[4];
    memcpy(v, h->v, sizeof(v));
    sip_end(v, h->n_bytes << 56 | h->partial, out);
}

/* Mixes the whole words of p into v; the compiler merges the eight byte loads into one. */
static inline void sip_words(uint64_t v[4], const uint8_t *p, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++) {
        uint64_t m;
        memcpy(&m, p + 8 * i, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        m = __builtin_bswap64(m);
#endif
        sip_word(v, m);
    }
}

void siphash_128(const uint64_t key[2], const void *p, size_t n_bytes, uint64_t out[2])
{
    uint64_t v[4];
    const uint8_t *in = p;
    sip_init(v, key);
    sip_words(v, in, n_bytes / 8);
    uint64_t rest = load_word(in + n_bytes / 8 * 8, n_bytes % 8);
    sip_end(v, (uint64_t)n_bytes << 56 | rest, out);
}

void siphash_128_link(const uint64_t key[2], const uint64_t head[2], const void *p, size_t n_bytes,
                      uint64_t out[2])
{
    uint64_t v[4];
    sip_init(v, key);
    sip_word(v, head[0]);
    sip_word(v, head[1]);
    sip_words(v, p, n_bytes / 8);
    sip_end(v, (uint64_t)(n_bytes + 16) << 56, out);
}
