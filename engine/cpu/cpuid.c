/* Chooses the kernel level at start: the only place that asks the processor. */
#include "engine/cpu/cpuid.h"

#include <stdint.h>

#include "config/settings.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

bool cpuid_has_avx2(void)
{
    enum { XSAVE_YMM = 6 };
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    uint32_t need = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if ((c & need) != need || (xcr0() & XSAVE_YMM) != XSAVE_YMM)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#else
bool cpuid_has_avx2(void)
{
    return false;
}
#endif

const char *cpuid_levels(void)
{
    return cpuid_has_avx2() ? "c avx2" : "c";
}

enum status cpuid_kernels(int isa_setting, const struct kernels **out, struct err *e)
{
    bool avx2 = cpuid_has_avx2();
    if (isa_setting == SET_ISA_C || (isa_setting == SET_ISA_AUTO && !avx2)) {
        *out = &kernels_c;
        return OK;
    }
    if (!avx2)
        return err_set(e, ERR_UNSUPPORTED, "cpu.isa avx2: this processor has only %s",
                       cpuid_levels());
    *out = kernels_avx2();
    return OK;
}
