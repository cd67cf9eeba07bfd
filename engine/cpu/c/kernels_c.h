/* The plain level, for the table of levels. */
#ifndef ENGINE_CPU_C_KERNELS_C_H
#define ENGINE_CPU_C_KERNELS_C_H

#include "engine/cpu/kernels.h"

extern const struct kernels kernels_c;

#endif
