/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein's keyed hash): for short inputs and
 * keys that a client cannot know. Words are read little-endian.
 *
 * The streaming form takes pieces of any length; whole 8-byte pieces cost nothing extra.
 * Thread: any; a struct siphash belongs to one caller. */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash {
    uint64_t v[4];
    uint64_t n_bytes; /* bytes hashed so far */
    uint64_t partial; /* the last n_bytes % 8 of them */
};

void siphash_init(struct siphash *h, const uint64_t key[2]);
void siphash_add(struct siphash *h, const void *p, size_t n_bytes);
void siphash_end(const struct siphash *h, uint64_t out[2]);
/* Hashes a whole input in one call. */
void siphash_128(const uint64_t key[2], const void *p, size_t n_bytes, uint64_t out[2]);
/* The hash of head's 16 bytes followed by n_bytes (a multiple of 8) at p: one link of a key chain. */
void siphash_128_link(const uint64_t key[2], const uint64_t head[2], const void *p, size_t n_bytes,
                      uint64_t out[2]);

#endif
