/* Processor features, detected once; no other code queries the processor. Thread: any. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

enum cpu_feature {
    CPU_SSE42 = 1,
    CPU_AVX2 = 2, /* with FMA and F16C, and the system saves their registers */
    CPU_AVX512 =
        4 /* F, BW, VL, DQ and VNNI on top of CPU_AVX2; the system saves their registers too */
};

/* True when the processor has all of these features. */
bool cpu_has(unsigned features);

#endif
