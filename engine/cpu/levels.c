/* Each instruction level, the setting that forces it, and the processor features it needs; see levels.h. */
#include "engine/cpu/levels.h"

#include "base/cpu.h"
#include "config/settings.h"
#include "engine/cpu/c/kernels_c.h"
#if defined(__x86_64__)
#include "engine/cpu/avx2/kernels_avx2.h"
#include "engine/cpu/avx512/kernels_avx512.h"
#define X86(kernels) &kernels
#else
#define X86(kernels) NULL
#endif

/* Worst first; a level's features include those of the levels before it. up_to: names of the levels up to this one. */
static const struct {
    const struct kernels *kernels; /* NULL: of another architecture */
    const char *name, *up_to;
    int setting;
    unsigned features;
} table[] = {
    {&kernels_c, "c", "c", SET_ISA_C, 0},
    {X86(kernels_avx2), "avx2", "c avx2", SET_ISA_AVX2, CPU_AVX2},
    {X86(kernels_avx512), "avx512", "c avx2 avx512", SET_ISA_AVX512, CPU_AVX512},
};

enum { N_LEVELS = sizeof table / sizeof table[0] };

const struct kernels *levels_at(uint32_t i)
{
    return i < N_LEVELS && cpu_has(table[i].features) ? table[i].kernels : NULL;
}

static uint32_t best(void)
{
    uint32_t i = 0;
    while (levels_at(i + 1))
        i++;
    return i;
}

const char *levels_names(void)
{
    return table[best()].up_to;
}

enum status levels_choose(int isa_setting, const struct kernels **out, struct err *e)
{
    uint32_t i = best();
    if (isa_setting != SET_ISA_AUTO)
        for (i = 0; i + 1 < N_LEVELS && table[i].setting != isa_setting;)
            i++;
    *out = levels_at(i);
    if (*out)
        return OK;
    return err_set(e, ERR_UNSUPPORTED, "cpu.isa %s: this processor has only %s", table[i].name,
                   levels_names());
}
