/* The levels that tests of kernels run through. */
#ifndef TESTS_UNIT_ENGINE_TESTED_LEVELS_H
#define TESTS_UNIT_ENGINE_TESTED_LEVELS_H

#include "engine/cpu/levels.h"

#if defined(__x86_64__)
extern const struct kernels kernels_emulated_avx512; /* tests/emulate/ */
#endif

/* The levels of this machine, then on x86-64 with AVX2 the AVX-512 level once more, emulated. */
static inline const struct kernels *tested(uint32_t i)
{
#if defined(__x86_64__)
    if (i > 1 && !levels_at(i))
        return levels_at(i - 1) ? &kernels_emulated_avx512 : NULL;
#endif
    return levels_at(i);
}

#endif
