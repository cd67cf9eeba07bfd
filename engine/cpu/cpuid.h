/* What this processor can run. Thread: any. */
#ifndef ENGINE_CPU_CPUID_H
#define ENGINE_CPU_CPUID_H

#include <stdbool.h>

#include "base/status.h"
#include "engine/cpu/kernels.h"

bool cpuid_has_avx2(void); /* AVX2, FMA and F16C, and the system saves their registers */
/* Levels this machine has, best last, for instance "c avx2". */
const char *cpuid_levels(void);
/* The table for a cpu.isa setting; ERR_UNSUPPORTED names the level the machine lacks. */
enum status cpuid_kernels(int isa_setting, const struct kernels **out, struct err *e);

#endif
