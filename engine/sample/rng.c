/* Counter-based random numbers; see sampler.h. Stateless: any thread. */
#include "engine/sample/sampler.h"

/* Multipliers and key increments as published (golden ratio and sqrt(3) - 1 in 32 bits). */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

enum { PHILOX_ROUNDS = 10 };

void philox4x32(uint64_t key, uint64_t a, uint64_t b, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)a, c1 = (uint32_t)(a >> 32);
    uint32_t c2 = (uint32_t)b, c3 = (uint32_t)(b >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
