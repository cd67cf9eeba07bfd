/* CRC-32C, eight bytes per round: with eight tables, or with the instruction that x86-64 has had since
 * SSE4.2; see crc32c.h. */
#include "base/crc32c.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"

#define POLYNOMIAL 0x82F63B78u

/* table[k][b]: CRC of byte b followed by k zero bytes. At worst two threads fill it, with the same values. */
static _Atomic uint32_t table[8][256];
static atomic_bool is_filled;

static uint32_t at(int k, uint32_t b)
{
    return atomic_load_explicit(&table[k][b], memory_order_relaxed);
}

static void fill(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        atomic_store_explicit(&table[0][b], crc, memory_order_relaxed);
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++) {
            uint32_t crc = at(k - 1, b);
            atomic_store_explicit(&table[k][b], crc >> 8 ^ at(0, crc & 255), memory_order_relaxed);
        }
    }
    atomic_store_explicit(&is_filled, true, memory_order_release);
}

static uint32_t bytewise(uint32_t state, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        state = state >> 8 ^ at(0, (state ^ p[i]) & 255);
    return state;
}

static uint32_t load32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t crc32c_plain(uint32_t crc, const void *bytes, size_t n)
{
    if (!atomic_load_explicit(&is_filled, memory_order_acquire))
        fill();
    const uint8_t *p = bytes;
    uint32_t state = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a = state ^ load32(p), b = load32(p + 4);
        state = at(7, a & 255) ^ at(6, a >> 8 & 255) ^ at(5, a >> 16 & 255) ^ at(4, a >> 24) ^
                at(3, b & 255) ^ at(2, b >> 8 & 255) ^ at(1, b >> 16 & 255) ^ at(0, b >> 24);
    }
    return ~bytewise(state, p, n);
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p,
                                                               size_t n)
{
    uint64_t state = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        state = __builtin_ia32_crc32di(state, word);
    }
    uint32_t low = (uint32_t)state;
    for (; n > 0; n--, p++)
        low = __builtin_ia32_crc32qi(low, *p);
    return ~low;
}

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
    if (cpu_has(CPU_SSE42))
        return crc32c_sse42(crc, p, n);
    return crc32c_plain(crc, p, n);
}
#else
uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
    return crc32c_plain(crc, p, n);
}
#endif
