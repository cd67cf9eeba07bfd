/* CPUID and XGETBV on x86-64, nothing elsewhere; see cpu.h. */
#include "base/cpu.h"

#include <stdatomic.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { XSAVE_YMM = 0x06, XSAVE_ZMM = 0xe6 };

static uint64_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static unsigned ask(void)
{
    const uint32_t need_1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint32_t need_7 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    unsigned found = c & bit_SSE4_2 ? CPU_SSE42 : 0;
    if ((c & need_1) != need_1 || (xcr0() & XSAVE_YMM) != XSAVE_YMM)
        return found;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return found;
    found |= CPU_AVX2;
    if ((b & need_7) == need_7 && (c & bit_AVX512VNNI) && (xcr0() & XSAVE_ZMM) == XSAVE_ZMM)
        found |= CPU_AVX512;
    return found;
}
#else
static unsigned ask(void)
{
    return 0;
}
#endif

bool cpu_has(unsigned features)
{
    enum { KNOWN = 1 << 30 };
    static atomic_uint known; /* at worst two threads fill it, with the same value */
    unsigned have = atomic_load_explicit(&known, memory_order_relaxed);
    if (have == 0) {
        have = ask() | KNOWN;
        atomic_store_explicit(&known, have, memory_order_relaxed);
    }
    return (have & features) == features;
}
